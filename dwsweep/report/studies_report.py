"""Reports of studies: losses along a column, and arms against each other."""

from __future__ import annotations

from dwsweep.fit.along import value_text
from dwsweep.interval import layers
from dwsweep.records.along import WORSE, Along
from dwsweep.records.answers import BEST_DEPTH, DIFFERENCE, NOT_COMPARABLE, RATIO, UNCHANGED, AnswerRow, Comparison
from dwsweep.report.document import INTERVAL, MISSING, Lines, Part, TextTable, estimate, label, number, shown
from dwsweep.text import format_count

MILLI = 1e3  # nats → 10⁻³ nats


def along_parts(found: Along, said: int = 0) -> list[Part]:
    """Parts on losses along a column: answer, table, notes. said: lines of the answer shown above."""
    title, answer = Lines([f"Loss along {found.column}"], apart=True), Lines(found.answer[said:], indent=2)
    notes = Lines([f"{note}." for note in found.notes], indent=2, apart=True)
    return [title, answer, _along_table(found), notes]


def _along_table(found: Along) -> TextTable:
    """Table with a row per value of every group, and a line between groups. A star marks a difference from the best."""
    columns = [*map(number, (found.column.replace("_", " "), "L", "N")), label("shape"), number("loss")]
    title = f"{found.unit.capitalize()} at equal size; {round(100 * found.confidence)} % intervals, of a group together"
    table = TextTable(title, [*columns, number("above the best"), INTERVAL])
    for rows in found.curves:
        for row in rows:
            above = row.above_best_interval
            table.add(
                value_text(row.value),
                "" if found.column == "depth" else str(row.depth),
                format_count(row.budget),
                f"{row.depth}×{row.width:g}",
                shown(row.loss, ".4f"),
                f"{above.value:+.3f}{'*' if row.verdict == WORSE else ' '}",
                above.ends("+.3f") if above.bounded else "",
                end=row is rows[-1],
            )
    return table


def comparison_parts(found: Comparison, letter: str, axis: str) -> list[Part]:
    """Parts of a comparison. letter: letter of the arm; the base has A. axis: name of a value of the axis."""
    title = f"Does it change the answer? {letter}, {found.arm}, against A, {found.base}"
    said = Lines([*found.answer, found.pairing], indent=2)
    chance = 100 - round(100 * found.confidence)
    alone = f"Each interval holds by itself: where nothing changes, {chance} % of them are expected to show a change."
    notes = (*found.notes, alone) if found.rows else found.notes
    return [Lines([title], apart=True), said, _changes(found, letter, axis), Lines(notes, indent=2, apart=True)]


def _changes(found: Comparison, letter: str, axis: str) -> TextTable:
    """Table of the best depths under both arms with their ratio, of the ratios of transitions, and of the differences
    of the losses."""
    title = f"Best depths, transitions and losses (10⁻³ {found.unit}), {round(100 * found.confidence)} % intervals"
    numbers = number(f"at {axis}"), number("A"), number(letter), number(f"{letter}/A or {letter} − A")
    table = TextTable(title, [label("of"), *numbers, INTERVAL, label("change")])
    depths = {(row.arm, row.n_params): row for row in found.of(BEST_DEPTH)}
    for row in (*found.of(RATIO), *found.of(DIFFERENCE)):
        own = [depths.get((arm, row.n_params)) for arm in (found.base, found.arm)]
        of, form, change = f"transition {row.value}", ".2f", row.estimate_interval
        if row.question == DIFFERENCE:
            of, form, change = f"loss of {row.depth:g} layers", "+.1f", change.map(lambda nats: MILLI * nats)
        table.add(
            "best depth" if row.column == BEST_DEPTH else of,
            format_count(row.n_params) if row.n_params else "",
            *(_depth(one) if one and row.question == RATIO else "" for one in own),
            *estimate(change, form),
            {UNCHANGED: "not shown", NOT_COMPARABLE: MISSING}.get(row.reason, row.reason),
        )
    return table


def _depth(row: AnswerRow) -> str:
    """Best depth with its interval, or its bound."""
    text = row.depth_interval.format(layers, row.reason)
    return text if row.depth is not None or row.depth_interval.unbounded else f"{row.reason} {text}".strip()
