"""Reports of studies: losses along a column, and arms against each other."""

from __future__ import annotations

from collections.abc import Sequence

from dwsweep.fit.along import value_text
from dwsweep.interval import Form, Interval
from dwsweep.records import transitions
from dwsweep.records.along import WORSE, Along, AlongCurve, AlongRow
from dwsweep.records.comparison import (
    BEST_DEPTH,
    NOT_COMPARABLE,
    TRANSITION,
    UNCHANGED,
    ComparedRow,
    Comparison,
)
from dwsweep.report.document import INTERVAL, MISSING, Lines, Part, Table, label, number, shown
from dwsweep.text import format_count

MILLI = 1e3  # nats → 10⁻³ nats


def along_parts(found: Along, said: int = 0) -> list[Part]:
    """Parts on losses along a column: answer, table, notes. said: lines of the answer shown above."""
    parts: list[Part] = [Lines([f"Loss along {found.column}"], apart=True), Lines(found.answer[said:], indent=2)]
    parts += [_along_table(found), *(_against(found, arm) for arm in found.arms[1:])]
    return [*parts, Lines([f"{note}." for note in found.notes], indent=2, apart=bool(found.notes))]


def _along_table(found: Along) -> Table:
    """Table with a row per value of every group, and a line between groups."""
    level = round(100 * found.confidence)
    columns = [label("arm"), *map(number, (found.column.replace("_", " "), "L", "N")), label("shape"), number("loss")]
    title = f"{found.unit.capitalize()} at equal size; {level} % intervals, of a group together"
    table = Table(title, [*columns, number("above the best"), INTERVAL])
    for curve in found.curves:
        for row in curve.rows:
            above = _starred(row.above_best_interval, row.verdict == WORSE)
            arm = _short(row.arm) if len(found.arms) > 1 else ""
            place = (value_text(row.value), *_group(found, curve))
            table.add(arm, *place, _shape(row), shown(row.loss, ".4f"), *above, end=row is curve.rows[-1])
    return table


def _group(found: Along, curve: AlongCurve) -> tuple[str, str]:
    """Cells of the depth of a group, blank along depth itself, and of its size, blank if it has none."""
    depth = "" if found.column == "depth" else str(curve.depth)
    return depth, "" if curve.budget is None else format_count(curve.budget)


def _against(found: Along, arm: str) -> Table:
    """Table of each arm minus the first, at common values."""
    columns = [*map(number, (found.column.replace("_", " "), "L", "N", "loss", _short(found.arms[0]), "difference"))]
    table = Table(f"Loss of {arm} − that of {found.arms[0]}: below zero {arm} is ahead", [*columns, INTERVAL])
    for curve in found.curves:
        rows = [row for row in curve.rows if row.arm == arm and row.above_base is not None]
        for row in rows:
            above, losses = row.above_base_interval, ["", ""]
            if row.loss is not None and above.value is not None:
                losses = [f"{row.loss:.4f}", f"{row.loss - above.value:.4f}"]
            clear = _starred(above, above.bounded and 0.0 not in above)
            table.add(value_text(row.value), *_group(found, curve), *losses, *clear, end=row is rows[-1])
    return table


def _starred(found: Interval, shown: bool) -> list[str]:
    """Text of a value with its interval; a star marks a difference from zero."""
    if found.value is None:
        return ["", ""]
    ends = found.ends("+.3f") if found.bounded else ""
    return [f"{found.value:+.3f}{'*' if shown else ' '}", ends]


def _shape(row: AlongRow) -> str:
    heads = f" {row.heads:g}×{row.head_size:g}" if row.heads and row.head_size else ""
    return f"{row.depth}×{row.width:g}{heads}"


def _short(name: str) -> str:
    return name.replace(" ", "_") if len(name) <= 16 else f"{name[:15]}…".replace(" ", "_")


STATUSES = {status.replace("_", " ") for status in transitions.STATUSES}


def comparison_parts(found: Comparison, letter: str, axis: str) -> list[Part]:
    """Parts of a comparison. letter: letter of the arm; the base has A. axis: name of a value of the axis."""
    title = f"Does it change the answer? {letter}, {found.arm}, against A, {found.base}"
    paired = f"paired by {found.pairing}" if found.paired else found.pairing
    parts: list[Part] = [Lines([title], apart=True), Lines([*found.answer, paired], indent=2)]
    level = round(100 * found.rows[0].confidence) if found.rows else 95
    best, pairs = (f"{name}, {level} % intervals" for name in ("Best depth at each size", "Transitions"))
    parts.append(_ratios(found.of(BEST_DEPTH), letter, best, axis))
    parts.append(_ratios(found.of(TRANSITION), letter, pairs, "pair"))
    parts.append(_losses(found, letter))
    notes = [line for line in (*found.notes, each_by_itself(found)) if line]
    return [*parts, *([Lines(notes, indent=2, apart=True)] if notes else [])]


def each_by_itself(found: Comparison) -> str:
    """Sentence on the joint meaning of several intervals."""
    compared = sum(row.verdict != NOT_COMPARABLE for row in found.rows)
    if compared < 2:
        return ""
    level = round(100 * found.rows[0].confidence)
    return (
        f"Each interval holds by itself: of {compared} comparisons whose truth is no change, {100 - level} % are "
        "expected to show one."
    )


def _ratios(rows: Sequence[ComparedRow], letter: str, title: str, key: str) -> Table:
    table = Table(title, [number(key), label("A"), label(letter), number(f"{letter}/A"), INTERVAL, label("change")])
    for row in rows:
        change, both = row.change_interval, (row.base_interval, row.other_interval)
        table.add(
            f"{row.depth}→{row.deep}" if row.deep else format_count(row.n_params or 0.0),
            *(
                _estimate(one, status, row.form)
                for one, status in zip(both, (row.base_status, row.other_status), strict=True)
            ),
            shown(change.value, row.ratio_form),
            "" if change.unbounded else change.ends(row.ratio_form),
            {UNCHANGED: "not shown", NOT_COMPARABLE: MISSING}.get(row.verdict, row.verdict),
        )
    return table


def _estimate(found: Interval, status: str, text: Form) -> str:
    """Text of an estimate with its interval, or of its bound."""
    known = status.replace("_", " ")
    if found.value is not None or found.unbounded:
        return found.format(text, known)
    return found.ends(text) if known in STATUSES else f"{known} {found.ends(text)}".strip()


def _losses(found: Comparison, letter: str) -> Table:
    title = f"Loss of {letter} − A, 10⁻³ {found.unit}: below zero {letter} is ahead"
    table = Table(title, [*map(number, ("depth", "at the smallest N", "at the largest N")), label("ahead")])
    for depth, rows in found.losses.items():
        texts = [_estimate(row.change_interval.map(lambda v: MILLI * v), "", "+.1f") for row in (rows[0], rows[-1])]
        ahead = [part.replace(" is ahead", "") for part in found.ahead(depth, "A", letter)]
        table.add(str(depth), *texts, ", ".join(ahead) or "neither")
    return table
