"""Reports of studies: losses along a column, and arms against each other."""

from __future__ import annotations

from dwsweep.fit.along import value_text
from dwsweep.interval import Form, Interval
from dwsweep.records import transitions
from dwsweep.records.along import WORSE, Along, AlongRow
from dwsweep.records.comparison import BEST_DEPTH, NOT_COMPARABLE, TRANSITION, UNCHANGED, Comparison
from dwsweep.report.document import INTERVAL, MISSING, Lines, Part, Table, estimate, label, number, shown
from dwsweep.text import format_count

MILLI = 1e3  # nats → 10⁻³ nats


def along_parts(found: Along, said: int = 0) -> list[Part]:
    """Parts on losses along a column: answer, table, notes. said: lines of the answer shown above."""
    parts: list[Part] = [Lines([f"Loss along {found.column}"], apart=True), Lines(found.answer[said:], indent=2)]
    notes = Lines([f"{note}." for note in found.notes], indent=2, apart=bool(found.notes))
    return [*parts, _along_table(found), notes]


def _along_table(found: Along) -> Table:
    """Table with a row per value of every group, and a line between groups; of several arms with their difference from
    the first."""
    level, several = round(100 * found.confidence), len(found.arms) > 1
    columns = [label("arm"), *map(number, (found.column.replace("_", " "), "L", "N")), label("shape"), number("loss")]
    title = f"{found.unit.capitalize()} at equal size; {level} % intervals, of a group together"
    against = number(f"− {_short(found.arms[0])}")
    table = Table(title, [*columns, number("above the best"), INTERVAL, against, INTERVAL])
    for curve in found.curves:
        for row in curve.rows:
            base = row.above_base_interval
            table.add(
                _short(row.arm) if several else "",
                value_text(row.value),
                "" if found.column == "depth" else str(curve.depth),
                "" if curve.budget is None else format_count(curve.budget),
                _shape(row),
                shown(row.loss, ".4f"),
                *_starred(row.above_best_interval, row.verdict == WORSE),
                *(_starred(base, base.bounded and 0.0 not in base) if several else ()),
                end=row is curve.rows[-1],
            )
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
    parts.append(_changes(found, letter, axis))
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


def _changes(found: Comparison, letter: str, axis: str) -> Table:
    """Table of the best depths and transitions under both arms with their ratio, and of the losses at the smallest and
    the largest size of each depth with their difference."""
    level = round(100 * found.rows[0].confidence) if found.rows else 95
    title = f"Best depths, transitions and losses (10⁻³ {found.unit}), {level} % intervals"
    numbers = number(f"at {axis}"), number("A"), number(letter), number(f"{letter}/A or {letter} − A")
    table = Table(title, [label("of"), *numbers, INTERVAL, label("change, or ahead")])
    for row in (*found.of(BEST_DEPTH), *found.of(TRANSITION)):
        change = row.change_interval
        both = ((row.base_interval, row.base_status), (row.other_interval, row.other_status))
        table.add(
            f"transition {row.depth}→{row.deep}" if row.deep else "best depth",
            format_count(row.n_params) if row.n_params and not row.deep else "",
            *(_estimate(one, status, row.form) for one, status in both),
            *estimate(change, row.ratio_form),
            {UNCHANGED: "not shown", NOT_COMPARABLE: MISSING}.get(row.verdict, row.verdict),
        )
    for depth, rows in found.losses.items():
        ahead = ", ".join(part.replace(" is ahead", "") for part in found.ahead(depth, "A", letter)) or "neither"
        for row in dict.fromkeys((rows[0], rows[-1])):
            change = row.change_interval.map(lambda nats: MILLI * nats)
            size = format_count(row.n_params) if row.n_params else ""
            table.add(f"loss of {depth} layers", size, "", "", *estimate(change, "+.1f"), ahead)
    return table


def _estimate(found: Interval, status: str, text: Form) -> str:
    """Text of an estimate with its interval, or of its bound."""
    known = status.replace("_", " ")
    if found.value is not None or found.unbounded:
        return found.format(text, known)
    return found.ends(text) if known in STATUSES else f"{known} {found.ends(text)}".strip()
