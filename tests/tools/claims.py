"""Claims of each output about each pair of depths and about best depths, as a reader finds them there.

A claim on a pair is (status, N, interval) in the words and digits of the output. An output that leaves one of the three
out says None. Figures say numbers; a mark that ends at the edge of its axes has no bound there.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from dwsweep.interval import Interval
from dwsweep.text import format_count

Pair = tuple[int, int]
STATUS = r"crossed|not reached|already crossed|undecided|ambiguous"


class Claim(NamedTuple):
    """Words of a text. None: it does not say."""

    status: str | None
    size: str | None = None
    ends: str | None = None

    def agrees(self, other: Claim) -> bool:
        return all(a is None or b is None or a == b for a, b in zip(self, other, strict=True))


class Mark(NamedTuple):
    """Numbers of a figure, on the axis of the fit."""

    status: str | None
    value: float | None
    low: float | None
    high: float | None


def of_row(row: Mapping[str, Any]) -> Claim:
    """A row of transitions.csv, read by a program."""
    n, low, high = (float(row[name]) if row[name] not in ("", None) else None for name in _ENDS)
    interval = Interval(n, low, high)
    ends = "" if interval.unbounded else interval.ends(format_count)
    return Claim(str(row["status"]).replace("_", " "), "" if n is None else format_count(n), ends)


_ENDS = ("n_params", "n_params_low", "n_params_high")


def first_rows(text: str) -> dict[Any, dict[str, str]]:
    """The first row of each pair (and count of tokens) of a CSV."""
    found: dict[Any, dict[str, str]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        key: Any = (int(row["shallow"]), int(row["deep"]))
        found.setdefault((float(row["tokens"]), *key) if "tokens" in row else key, row)
    return found


def table_of(text: str, title: str) -> list[list[str]]:
    """The rows of the printed table under ``title``, cell by cell; cells that are empty are not there."""
    lines = iter(text.splitlines())
    assert any(line.startswith(title) for line in lines), title
    rows = []
    for line in lines:
        if not line.strip():
            break
        rows.append(re.split(r"\s{2,}", line.strip()))
    return rows[2:] if len(rows) > 1 and set("".join(rows[1])) == {"─"} else rows[1:]


def in_cells(rows: Iterable[list[str]]) -> dict[Pair, Claim]:
    """Rows that begin with the pair, its status, N and interval."""
    found = {}
    for pair, status, *rest in rows:
        shallow, deep = map(int, pair.split("→"))
        size = "" if rest[0] in ("–", "") else rest[0]
        ends = rest[1] if len(rest) > 1 and re.search("[<>…]", rest[1]) else ""
        found[shallow, deep] = Claim(re.split("[,:]", status)[0], size, ends)
    return found


def in_sentence(text: str) -> dict[Pair, Claim]:
    """“Where the deeper net starts to win: …” wherever it stands."""
    joined = " ".join(html.unescape(_TAG.sub(" ", text)).split())
    (said,) = re.findall(r"Where the deeper net starts to win: (.*?)\.(?=\s[A-Z]|\s-|\s?$)", joined)[:1] or [""]
    found = {}
    for part in said.split("; "):
        at = re.fullmatch(r"(\d+)→(\d+) at N = (\S+) \((.*)\)", part)
        words = re.fullmatch(rf"(\d+)→(\d+) ({STATUS})[^(]*(?:\((.*)\))?", part)
        if at:
            found[int(at[1]), int(at[2])] = Claim("crossed", at[3], at[4])
        elif words:
            found[int(words[1]), int(words[2])] = Claim(words[3], "", words[4] or "")
    return found


def in_repr(text: str) -> dict[Pair, Claim]:
    found = {}
    for a, b, size, status in re.findall(rf"(\d+) → (\d+) (?:at ([^,;]+)|({STATUS}))", text):
        found[int(a), int(b)] = Claim("crossed", size) if size else Claim(status, "")
    return found


def in_ties(warnings: Iterable[str]) -> dict[Pair, Claim]:
    """Pairs that a warning calls tied beyond their bound."""
    (line,) = [line for line in warnings if line.startswith("ties: ")] or [""]
    return {
        (int(a), int(b)): Claim(status, "", f"> {low}" if status == "not reached" else f"< {high}")
        for a, b, status, low, high in re.findall(
            r"(\d+)→(\d+) \((not reached|already crossed)\) from (\S+) to ([^\s:,]+)", line
        )
    }


def in_html(page: str, title: str) -> list[list[str]]:
    """The rows of the table that follows ``title``."""
    after = page[page.index(title) :]
    body = after[: after.index("</table>")]
    rows = re.findall(r"<tr\b[^>]*>(.*?)</tr>", body, re.S)
    cells = [[" ".join(html.unescape(_TAG.sub("", c)).split()) for c in _CELL.findall(row)] for row in rows]
    return [row for row in cells if row and "→" in row[0]]


_CELL = re.compile(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", re.S)
_TAG = re.compile(r"</?[a-zA-Z!][^>]*>")


def in_titles(figure: Figure) -> dict[Pair, Claim]:
    """Titles of the panels of the difference curves, such as “1 → 2: crossed at 295K”."""
    found = {}
    for axes in figure.axes:
        title = re.match(rf"(\d+) → (\d+): ({STATUS})(?: at (\S+))?", title_of(axes))
        if title:
            found[int(title[1]), int(title[2])] = Claim(title[3], title[4] or "")
    return found


def in_panels(figure: Figure) -> dict[Pair, Mark]:
    """Bars on the zero line of the panels of the difference curves, of the pairs that have one."""
    found = {}
    for axes in figure.axes:
        title = re.match(rf"(\d+) → (\d+): ({STATUS})", title_of(axes))
        mark = _mark(axes, 0.0)
        if title and mark:
            found[int(title[1]), int(title[2])] = mark._replace(status=title[3])
    return found


def in_strip(figure: Figure) -> dict[Pair, Mark]:
    """The lowest panel of the losses against size: a row per pair."""
    axes = figure.axes[2]
    said = {round(note.xy[1]): note.get_text() for note in axes.texts if hasattr(note, "xy")}
    found = {}
    for row, label in enumerate(axes.get_yticklabels()):
        pair = re.fullmatch(r"(\d+) → (\d+)", label.get_text())
        if pair:
            mark = _mark(axes, float(row)) or Mark(None, None, None, None)
            found[int(pair[1]), int(pair[2])] = mark._replace(status=said.get(row, "crossed"))
    return found


def _mark(axes: Any, height: float) -> Mark | None:
    """The lying interval at a height."""
    spans = [line for line in axes.lines if line.get_linewidth() == 2.0 and _at(line, height) == 2]
    if not spans:
        return None
    values = [line for line in axes.lines if _at(line, height) == 1 and line.get_marker() == "o"]
    (low, high), edges = map(float, spans[0].get_xdata()), axes.get_xlim()
    value = float(values[0].get_xdata()[0]) if values else None
    return Mark(None, value, None if low <= edges[0] * 1.0001 else low, None if high >= edges[1] / 1.0001 else high)


def _at(line: Any, height: float) -> int:
    """Number of a line's points if all lie at a height."""
    y = list(line.get_ydata())
    return len(y) if len(y) <= 2 and all(float(v) == height for v in y) else 0


def title_of(axes: Any) -> str:
    """The title, on whichever side it stands."""
    return "".join(axes.get_title(side) for side in ("left", "center", "right"))


def circles(figure: Figure) -> Iterator[float]:
    """Sizes of the crossings that a figure of several sweeps marks."""
    for axes in figure.axes:
        for line in axes.lines:
            if line.get_marker() == "o" and len(line.get_xdata()) == 1:
                yield float(line.get_xdata()[0])


def best_in_cells(rows: Iterable[list[str]]) -> dict[str, str]:
    """N → (best depth, interval), as the printed table of best depths says them."""
    found = {}
    for size, depth, *rest in rows:
        ends = rest[0] if rest and re.search("[<>…]", rest[0]) else ""
        found[size] = f"{depth} {ends}".strip()
    return found
