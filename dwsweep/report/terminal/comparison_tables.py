"""One arm against another, for people: the answer in sentences, then the numbers behind it, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dwsweep.records import transitions
from dwsweep.records.studies import (
    BEST_DEPTH,
    NOT_COMPARABLE,
    TRANSITION,
    UNCHANGED,
    ArmsAtDepth,
    ComparedRow,
    Comparison,
)
from dwsweep.report.terminal.folding import Folded, empty_table
from dwsweep.text import format_count, format_range

MILLI = 1e3
STATUSES = {status.replace("_", " ") for status in transitions.STATUSES}


def render(found: Comparison, letter: str, axis: str) -> RenderableType:
    """letter: of the arm, the base's is A. axis: how a value of the axis is called."""
    parts: list[Any] = [
        Text(f"Does it change the answer? {letter}, {found.arm}, against A, {found.base}"),
        *(Padding(Text(line), (0, 0, 0, 2)) for line in (*found.answer, paired(found))),
    ]
    level = round(100 * found.rows[0].confidence) if found.rows else 95
    for quantity, title, key, text in (
        (BEST_DEPTH, f"Best depth at each size, {level} % intervals", axis, lambda v: f"{v:.1f}"),
        (TRANSITION, f"Transitions, {level} % intervals", "pair", format_count),
    ):
        if rows := found.of(quantity):
            parts += [Text(""), Folded(_ratios(rows, letter, title, key, text), beside="interval")]
    if found.depths:
        parts += [Text(""), Folded(_losses(found, letter))]
    if notes := [*found.notes, each_by_itself(found)]:
        parts += [Text(""), *(Padding(Text(line), (0, 0, 0, 2)) for line in notes if line)]
    return Group(*parts)


def paired(found: Comparison) -> str:
    """What the arms share."""
    return f"paired by {found.pairing}" if found.paired else found.pairing


def each_by_itself(found: Comparison) -> str:
    """What several intervals mean together."""
    compared = sum(row.verdict != NOT_COMPARABLE for row in found.rows)
    if compared < 2:
        return ""
    level = round(100 * found.rows[0].confidence)
    return (
        f"Each interval holds by itself: of {compared} comparisons whose truth is no change, {100 - level} % are "
        "expected to show one."
    )


def _ratios(rows: Sequence[ComparedRow], letter: str, title: str, key: str, text: Callable[[float], str]) -> Table:
    table = empty_table(title, f"{key}> A< {letter}< {letter}/A> interval< change<")
    for row in rows:
        name = f"{row.depth}→{row.deep}" if row.deep else format_count(row.n_params or 0.0)
        open_ended = row.change_low is None and row.change_high is None
        table.add_row(
            name,
            estimate(row.base, row.base_low, row.base_high, row.base_status, text),
            estimate(row.other, row.other_low, row.other_high, row.other_status, text),
            "–" if row.change is None else f"{row.change:.2f}",
            "" if open_ended else format_range(row.change_low, row.change_high, lambda v: f"{v:.2f}"),
            {UNCHANGED: "not shown", NOT_COMPARABLE: "–"}.get(row.verdict, row.verdict),
        )
    return table


def estimate(
    value: float | None, low: float | None, high: float | None, status: str, text: Callable[[float], str]
) -> str:
    """With its interval, or the bound that there is."""
    interval = "" if low is None and high is None else format_range(low, high, text)
    if value is None:
        known = status.replace("_", " ")
        return " ".join(filter(None, ("" if interval and known not in STATUSES else known, interval)))
    return f"{text(value)} ({interval or 'unbounded'})"


def _losses(found: Comparison, letter: str) -> Table:
    table = empty_table(
        f"Loss of {letter} − A, 10⁻³ {found.unit}: below zero {letter} is ahead",
        "depth> at_the_smallest_N> at_the_largest_N> ahead<",
    )
    for one in found.depths:
        table.add_row(str(one.curve.depth), _end(one, 0), _end(one, -1), ahead(one, letter))
    return table


def _end(one: ArmsAtDepth, k: int) -> str:
    g, low, high = (values[k] for values in (one.curve.g, one.curve.low, one.curve.high))
    thousandths = lambda v: f"{MILLI * v:+.1f}"  # noqa: E731
    return estimate(g, low, high, "", thousandths)


def ahead(one: ArmsAtDepth, letter: str) -> str:
    """Which arm is ahead where, by the simultaneous band."""
    x = one.curve.x
    said = []
    for part in one.partings:
        who = letter if part.ahead == "other" else "A"
        first, last = part.start == x[0], part.end == x[-1]
        where = "everywhere" if first and last else f"from {format_count(part.start)}" if last else ""
        where = where or (f"to {format_count(part.end)}" if first else "")
        said.append(f"{who} {where or f'{format_count(part.start)} … {format_count(part.end)}'}")
    return ", ".join(said) or "neither"
