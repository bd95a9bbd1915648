"""The loss along a column, for people: what it says in sentences, then one table, at most 80 columns wide."""

from __future__ import annotations

from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dwsweep.fit.along import value_text
from dwsweep.records.studies import WORSE, Along, AlongRow, EqualShape, EqualToBaseline
from dwsweep.report.terminal.folding import Folded, empty_table
from dwsweep.text import format_count, format_range

EQUAL_SHOWN = 12


def render(found: Along) -> list[Any]:
    """Answer, table, shapes that equal the baseline, notes."""
    arms = len(found.arms) > 1
    parts: list[Any] = [Text(f"Loss along {found.column}")]
    parts += [Padding(Text(line), (0, 0, 0, 2)) for line in found.answer]
    parts += [Text(""), Folded(_table(found, arms), keys=2 if arms else 1, beside="interval")]
    for arm in found.arms[1:]:
        table = _against(found, arm)
        parts += [Text(""), Folded(table, beside="interval")] if table.rows else []
    for one in found.equal:
        parts += [Text(""), *_equal(one, arms)]
    if found.notes:
        parts += [Text(""), *(Padding(Text(f"{note}."), (0, 0, 0, 2)) for note in found.notes)]
    return parts


def _table(found: Along, arms: bool) -> Table:
    """One row per value of every group; a line between groups."""
    level = round(100 * found.confidence)
    columns = ("arm< " if arms else "") + f"{found.column}> "
    columns += "" if found.column == "depth" else "L> "
    sized = any(curve.budget is not None for curve in found.curves)
    columns += ("N> " if sized else "") + "shape< loss> above_the_best> interval<"
    table = empty_table(f"{found.unit.capitalize()} at equal size; {level} % intervals, of a group together", columns)
    for curve in found.curves:
        for row in curve.rows:
            cells = [_short(row.arm)] if arms else []
            cells += [value_text(row.value)] + ([] if found.column == "depth" else [str(row.depth)])
            cells += [format_count(curve.budget)] if curve.budget is not None else [""] if sized else []
            cells += [_shape(row), "–" if row.loss is None else f"{row.loss:.4f}"]
            cells += _ends(row.above_best, row.above_best_low, row.above_best_high, row.verdict == WORSE)
            table.add_row(*cells, end_section=row is curve.rows[-1])
    return table


def _against(found: Along, arm: str) -> Table:
    """An arm − the first one, at the values that both have."""
    columns = f"{found.column}> " + ("" if found.column == "depth" else "L> ") + f"N> loss> {_short(found.arms[0])}> "
    title = f"Loss of {arm} − that of {found.arms[0]}: below zero {arm} is ahead"
    table = empty_table(title, f"{columns}difference> interval<")
    for curve in found.curves:
        rows = [row for row in curve.rows if row.arm == arm and row.above_base is not None]
        for row in rows:
            low, high = row.above_base_low, row.above_base_high
            shown = low is not None and high is not None and (low > 0.0 or high < 0.0)
            cells = [value_text(row.value)] + ([] if found.column == "depth" else [str(row.depth)])
            cells += ["" if curve.budget is None else format_count(curve.budget)]
            if row.loss is not None and row.above_base is not None:
                cells += [f"{row.loss:.4f}", f"{row.loss - row.above_base:.4f}"]
            table.add_row(*cells, *_ends(row.above_base, low, high, shown), end_section=row is rows[-1])
    return table


def _ends(value: float | None, low: float | None, high: float | None, shown: bool) -> list[str]:
    """A value with its interval; a star where it is shown not to be zero."""
    if value is None:
        return ["", ""]
    ends = "" if low is None or high is None else format_range(low, high, lambda v: f"{v:+.3f}")
    return [f"{value:+.3f}{'*' if shown else ' '}", ends]


def _shape(row: AlongRow | EqualShape) -> str:
    heads = f" {row.heads:g}×{row.head_size:g}" if row.heads and row.head_size else ""
    return f"{row.depth}×{row.width:g}{heads}"


def _equal(one: EqualToBaseline, arms: bool) -> list[Any]:
    level = round(100 * one.confidence)
    table = empty_table(
        f"No worse than {one.baseline} by more than {one.margin:.3f} nats? {level} %, all shapes at once",
        "shape< N> saved> worse> at_most> equal<",
    )
    smaller = [row for row in one.rows if row.saved_percent > 0.0]
    for row in smaller[:EQUAL_SHOWN]:
        table.add_row(
            _shape(row),
            format_count(row.n_params),
            f"{row.saved_percent:.0f} %",
            "–" if row.worse is None else f"{row.worse:+.3f}",
            "–" if row.worse_high is None else f"{row.worse_high:+.3f}",
            "yes" if row.equal else "not shown",
        )
    sentence = Padding(Text((f"{one.arm}: " if arms else "") + one.sentence), (0, 0, 0, 2))
    if not smaller:
        return [sentence]
    left = len(smaller) - EQUAL_SHOWN
    more = [Text(f"{left} more in along_equal.csv")] if left > 0 else []
    return [sentence, Folded(table), *more]


def _short(name: str) -> str:
    return name.replace(" ", "_") if len(name) <= 16 else f"{name[:15]}…".replace(" ", "_")
