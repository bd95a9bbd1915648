"""Claims of each output about each pair of depths and about best depths, as a reader finds them there.

A claim on a pair is (status, N, interval) in the words and digits of the output. An output that leaves one of the three
out says None.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

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


def of_row(row: Mapping[str, Any]) -> Claim:
    """A row of transitions.csv, read by a program."""
    n, low, high = (float(row[name]) if row[name] not in ("", None) else None for name in _ENDS)
    interval = Interval(n, low, high)
    ends = "" if interval.unbounded else interval.ends(format_count)
    return Claim(str(row["status"]).replace("_", " "), "" if n is None else format_count(n), ends)


_ENDS = ("n_params", "n_params_low", "n_params_high")


def first_rows(text: str) -> dict[Any, dict[str, str]]:
    """The first row of each pair of a CSV."""
    found: dict[Any, dict[str, str]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        found.setdefault((int(row["shallow"]), int(row["deep"])), row)
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
    (said,) = re.findall(r"Where the deeper net starts to win: (.*?)\.(?=\s[A-Z\d]|\s-|\s?$)", joined)[:1] or [""]
    found = {}
    for part in said.split("; "):
        at = re.fullmatch(r"(\d+)→(\d+) at N = (\S+) \((.*)\)", part)
        words = re.fullmatch(rf"(\d+)→(\d+) ({STATUS})[^(]*(?:\((.*)\))?", part)
        if at:
            found[int(at[1]), int(at[2])] = Claim("crossed", at[3], at[4])
        elif words:
            found[int(words[1]), int(words[2])] = Claim(words[3], "", words[4] or "")
    return found


def in_html(page: str, title: str) -> list[list[str]]:
    """The rows of the table that follows ``title``."""
    after = page[page.index(title) :]
    body = after[: after.index("</table>")]
    rows = re.findall(r"<tr\b[^>]*>(.*?)</tr>", body, re.S)
    cells = [[" ".join(html.unescape(_TAG.sub("", c)).split()) for c in _CELL.findall(row)] for row in rows]
    return [row for row in cells if row and "→" in row[0]]


_CELL = re.compile(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", re.S)
_TAG = re.compile(r"</?[a-zA-Z!][^>]*>")


def best_in_cells(rows: Iterable[list[str]]) -> dict[str, str]:
    """N → (best depth, interval), as the printed table of best depths says them."""
    found = {}
    for size, depth, *rest in rows:
        ends = rest[0] if rest and re.search("[<>…]", rest[0]) else ""
        found[size] = f"{depth} {ends}".strip()
    return found
