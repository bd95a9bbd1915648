"""``dwsweep fit DIR --along COLUMN``: the loss against any column of numbers, in sentences.

All other settings stay fixed: per arm, depth and budget (per budget where the column is the depth) the values are
compared with each other and, with several arms, the arms at each value.
``along_cells`` sorts the runs and compares them.

No question to the posterior of a table: a column of numbers is smooth and shrunk there, and takes nine runs of three
sizes; here a few values at one depth and size may do anything, and errors that seeds and documents share cancel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument, either
from dwsweep.fit.along_cells import (
    SEED,
    SIZES,
    ArmAlong,
    Group,
    Ranking,
    arm_differences,
    arms_along,
    check_column,
    ranked,
)
from dwsweep.fit.analysis import fit_options, fit_table, provenance
from dwsweep.fit.arm import Arm
from dwsweep.fit.arms import labels, tables_of
from dwsweep.fit.cells import number
from dwsweep.fit.data.roles import RECIPE, TUNING
from dwsweep.fit.data.table import Table, account
from dwsweep.fit.lengths import at_equal_length
from dwsweep.fit.one_thread import one_thread
from dwsweep.fit.one_unit import in_one_unit
from dwsweep.fit.pairing import SAME_SIZE, Pairing, pair_arms
from dwsweep.fit.token_group import noise_summary
from dwsweep.interval import Interval
from dwsweep.records.along import (
    BASE,
    BEST,
    NEITHER,
    NOT_APART,
    OTHER,
    UNKNOWN,
    WORSE,
    Along,
    AlongCurve,
    AlongRow,
    ArmDivergence,
)
from dwsweep.records.fit import FORMAT, AlongFit, Fit, FitOptions
from dwsweep.text import SHORT, format_count, join

SIDES = {-1: OTHER, 0: NEITHER, 1: BASE}  # the arm that is ahead, by the sign of (the other's loss − the base's loss)
NOT_ADJUSTED = "NOT ADJUSTED"
WITH_HEADS = {"heads", "head_size"}  # either column determines the other


def fit_along(
    table: Any,
    column: str,
    others: Iterable[Any] = (),
    **options: Any,
) -> AlongFit:
    """Losses along ``column``: the record behind ``dwsweep.fit_table(table, along=column)``. options: as for
    ``fit_table``; params and beside have no effect here."""
    chosen = fit_options(**options)
    for name, columns in (("adjust", chosen.adjust), ("no_adjust", chosen.no_adjust), ("at", [*dict(chosen.at)])):
        if columns:
            raise InputError(
                f"{either(argument(name))}: {columns[0]!r}; losses along a column are compared as they are, and "
                f"adjusted for nothing; allowed: {argument('where')} that keeps one value of it"
            )
    if chosen.axis != "n_params":
        raise InputError(f"{argument('axis')}: {chosen.axis!r}; along a column losses are compared at n_params")
    tables = tables_of(table, list(others), chosen)
    if column not in tables[0].columns:
        column = tables[0].theirs.get(column, column)
    check_column(tables, column)
    tables = [at_equal_length(data, chosen) for data in in_one_unit(tables)]
    names = labels(tables) if len(tables) > 1 else [""]
    with one_thread():
        found, along = compared(tables, names, column, chosen)
        return _fit(found, along, tables, chosen)


def fit_beside_along(
    table: Any,
    column: str,
    others: Iterable[Any] = (),
    **options: Any,
) -> Fit:
    """``fit_along``, plus ``fit_table`` for one arm along its depth or size."""
    found = fit_along(table, column, others, **options)
    if found.along.arms != ("",) or found.along.column not in ("depth", *SIZES):
        return found
    result = fit_table(table, **options)
    along = found.along
    if result.adjusted and not along.answer[0].startswith(NOT_ADJUSTED):
        names = join(dict.fromkeys(one.name for one in result.adjusted.columns))
        said = f"{NOT_ADJUSTED}: losses along {column} are as they are, and not at held values of {names}"
        along = replace(along, answer=(said, *along.answer))
    return replace(result, along=along)


def compared(
    tables: Sequence[Table], names: Sequence[str], column: str, options: FitOptions
) -> tuple[list[ArmAlong], Along]:
    """One table per arm, and notes on them."""
    found = arms_along(tables, names, column, options)
    base, *_ = found
    of_base = {group.key: group for group in base.groups}
    groups, curves, partings = [], [], []
    for one in found:
        pairing: Pairing | None = None
        drawn: Sequence[np.ndarray] = ()
        if one is not base:
            pairing = pair_arms(base.arm, one.arm)
            drawn = pairing.drawn(len(base.arm.curves.draws), np.random.default_rng([SEED, options.seed]))
        for group in one.groups:
            if len(group.values) < 2:
                continue
            above: Mapping[Any, Interval] = {}
            beside = of_base.get(group.key)
            shared = [value for value in group.values if beside and value in beside.values]
            if beside and pairing and len(shared) > 1:
                gaps = arm_differences(beside, group, shared, pairing, drawn, options.confidence)
                above = dict(zip(shared, gaps, strict=True))
                partings.append(_parting(base.arm.label, group, above, pairing, column))
            groups.append(group)
            curves.append(_curve(group, above, column, options.confidence))
    if not curves:
        raise InputError(
            f"{argument('column', '--along')}: {column!r}; no depth and size has two values of it to compare"
        )
    usable = [one.arm.label for one in found]
    empty = [f"{name}: no run has a usable loss; it is not compared" for name in names if name not in usable]
    return found, Along(
        column=column,
        unit=base.arm.unit,
        arms=tuple(usable),
        confidence=options.confidence,
        answer=(*_not_adjusted(found, column), *answers(column, base.arm.unit, curves, partings, len(found) > 1)),
        curves=tuple(curves),
        partings=tuple(partings),
        notes=(*empty, *_notes(found, groups, partings, column)),
    )


def _fit(found: Sequence[ArmAlong], along: Along, tables: Sequence[Table], options: FitOptions) -> AlongFit:
    """Record of the answer: its sentences, the warnings of all arms, the noise of the first. tables: one per arm."""
    data, used = tables[0], sum(len(one.arm.runs) for one in found)
    of_file = {table.source: table for table in tables}.values()  # the arms of one sweep share a file
    rows = account(
        sum(table.n_read for table in of_file),
        used,
        [one for table in of_file for one in table.account],
        [one.out for one in found],
        [note for table in of_file for note in table.notes],
    )
    warnings: dict[str, list[str]] = {}
    for one in found:
        for line in one.arm.warnings:
            warnings.setdefault(line, []).append(one.arm.label)
    noise = noise_summary(found[0].arm.curves)
    return AlongFit(
        format=FORMAT,
        along=along,
        left_out=[replace(run.record(), depth=int(run.run.row["depth"])) for one in found for run in one.bad],
        warnings=[line if len(by) == len(found) else f"{', '.join(by)}: {line}" for line, by in warnings.items()],
        noise=noise,
        unit=data.unit,
        provenance=replace(provenance(data, options, used), account=rows),
    )


def _curve(group: Group, above_base: Mapping[Any, Interval], column: str, confidence: float) -> AlongCurve:
    ranking, values, best = ranked(group, confidence), group.values, int(group.mean.argmin())
    rows = tuple(
        _row(group, k, k == best, ranking, above_base.get(value, Interval()), column, confidence)
        for k, value in enumerate(values)
    )
    worse = [row.verdict == WORSE for row in rows]
    head, tail = (len(list(takewhile(bool, side))) for side in (worse[:best], worse[:best:-1]))
    worse_from, worse_to = values[-tail] if tail else None, values[head - 1] if head else None
    return AlongCurve(
        arm=group.arm.label,
        depth=group.depth,
        budget=group.budget,
        rows=rows,
        best=values[best],
        worse_from=worse_from,
        worse_to=worse_to,
        **ranking.spread.columns("spread"),
        worst=values[int(group.mean.argmax())],
        sentence=of_curve(rows, values[best], worse_from, worse_to, group.arm.unit),
    )


def _row(
    group: Group, k: int, is_best: bool, ranking: Ranking, above_base: Interval, column: str, confidence: float
) -> AlongRow:
    curves, cell, row, above = group.arm.curves, group.cells[k], group.rows[k], ranking.above_best[k]
    verdict = WORSE if above.sign > 0 else BEST if is_best else NOT_APART
    return AlongRow(
        arm=group.arm.label,
        column=column,
        value=group.values[k],
        depth=int(row["depth"]),
        budget=group.budget,
        width=number(row["width"]),
        heads=row.get("heads"),
        head_size=row.get("head_size"),
        n_params=number(float(curves.n_params[cell])),
        learning_rate=curves.learning_rate[cell],
        n=int(curves.n[cell]),
        loss=float(group.mean[k]),
        se=float(group.se[k]) if group.known else None,
        correction=float(group.correction[k]),
        **above.columns("above_best"),
        **above_base.columns("above_base"),
        verdict=verdict if group.known else UNKNOWN,
        confidence=confidence,
    )


def _parting(base: str, group: Group, above: Mapping[Any, Interval], pairing: Pairing, column: str) -> ArmDivergence:
    """Divergence of an arm from the base in one group. above: value → its loss − the base's loss."""
    values, sides = list(above), [SIDES[one.sign] for one in above.values()]
    ahead, start, after = sides[-1], None, None
    if ahead != NEITHER:
        held = len(list(takewhile(lambda side: side == ahead, reversed(sides))))
        start = values[-held]
        against = [value for value, side in zip(values[:-held], sides, strict=False) if side not in (ahead, NEITHER)]
        after = against[-1] if against else None
    return ArmDivergence(
        base=base,
        arm=group.arm.label,
        depth=group.depth,
        budget=group.budget,
        ahead=ahead,
        start=start,
        after=after,
        pairing=f"unpaired: {pairing.why_not}" if pairing.why_not else f"paired by {pairing.by}",
        sentence=of_parting(base, group.arm, column, above, ahead, start, after),
    )


def _notes(
    found: Sequence[ArmAlong], groups: Sequence[Group], partings: Sequence[ArmDivergence], column: str
) -> list[str]:
    """Sentences on the premises: unequal sizes and their correction, other columns that differ, pairing of the arms."""
    notes = []
    gap = max(float(np.abs(group.gaps).max()) for group in groups)
    if gap > SAME_SIZE:
        curves = [(group.arm.curves, depth) for group in groups for depth in group.arm.curves.depth[group.cells]]
        alone = any(len(one.sizes(int(depth))) < 2 for one, depth in curves)
        by = (
            "by the published slope, −0.076 of the loss per unit of ln N (Kaplan et al. 2020), as there is one "
            "size, with an error as large as the slope"
            if alone
            else "along their own curves over sizes"
        )
        notes.append(
            f"sizes differ from their budget by up to {100 * math.expm1(gap):.1f} %; losses are corrected to it {by}, "
            "and every interval includes the error of this correction"
        )
    for name, labels_ in _besides(found, column).items():
        where = f" ({', '.join(labels_)})" if len(found) > 1 else ""
        notes.append(f"{name} changes along {column}, too{where}: its effect is part of the differences")
    single = sum(len(group.values) < 2 for one in found for group in one.groups)
    if single:
        notes.append(f"{single} depths and sizes have one value of {column}, and are not compared")
    notes += list(dict.fromkeys(f"{one.arm} against {one.base}: {one.pairing}" for one in partings))
    if len(groups) > 1:
        notes.append("intervals are simultaneous within one depth and size, not over all of them")
    return notes


def _besides(found: Sequence[ArmAlong], column: str) -> dict[str, list[str]]:
    """Settings that change along the column → the arms in which they do."""
    tied = {column, "learning_rate", "lr", *(WITH_HEADS if column in WITH_HEADS else ()), "head_size"}
    names = [name for name in dict.fromkeys((*RECIPE, *TUNING)) if name not in tied]
    changing = {
        name: [
            one.arm.label
            for one in found
            if any(len({str(row.get(name)) for row in group.rows}) > 1 for group in one.groups)
        ]
        for name in names
    }
    return {name: arms for name, arms in changing.items() if arms}


def _not_adjusted(found: Sequence[ArmAlong], column: str) -> list[str]:
    """A line about a heap of runs, in which several settings change along the column."""
    names = list(_besides(found, column))
    if len(names) < HEAP:
        return []
    change = f"{join(names)} change along {column}, too, and losses are adjusted for none of them"
    return [f"{NOT_ADJUSTED}: {change}; a fit without {argument('column', '--along')} adjusts for them"]


HEAP = 3  # fewest settings that change along a column for the first line to say so
NOUNS = {"depth": "layers", "heads": "heads"}
GROUPS_SAID = 6  # groups of each arm that the answer names, at most


def value_text(value: float) -> str:
    """Text of a value of the column: ``4``, ``124K``, ``0.002``."""
    return format_count(value) if abs(value) >= 1e4 else f"{value:g}"


def at(column: str, value: float) -> str:
    """``8 heads``, ``head_size 64``."""
    if column not in NOUNS:
        return f"{column} {value_text(value)}"
    return f"{value_text(value)} {NOUNS[column] if value != 1 else NOUNS[column].removesuffix('s')}"


def place(depth: int | None, budget: float | None) -> str:
    """``L 2, N = 124K``; empty if the column is both."""
    parts = [f"L {depth}" if depth is not None else "", f"N = {format_count(budget)}" if budget is not None else ""]
    return ", ".join(part for part in parts if part)


def nats(by: Interval, unit: str) -> str:
    """``0.030 nats (0.010 … 0.050)``."""
    return f"{by.value:.3f} {SHORT[unit]} ({by.ends('{:.3f}'.format)})"


def loses(depth: float, percent: float, low: float | None, high: float | None, where: str) -> str:
    """Sentence on the loss of the worst depth at one size, for measured and for fitted losses alike."""
    ends = Interval(percent, low, high).ends("{:.2g}".format)
    layers = f"{depth:g} layers lose" if depth != 1 else "1 layer loses"
    return f"{layers} {percent:.2g} % ({ends}) of the loss at {where}"


def of_curve(
    curve_rows: Sequence[AlongRow], best: float, worse_from: float | None, worse_to: float | None, unit: str
) -> str:
    """Sentence on the value with the least loss, and on values shown to be worse."""
    column = curve_rows[0].column
    rows = {row.value: row for row in curve_rows}
    values = list(rows)
    tried = f"best at {at(column, best)} of {', '.join(map(value_text, values))}"
    if curve_rows[0].above_best_low is None:
        return f"{tried}; the noise is not known, so nothing is claimed"

    def by(value: float) -> str:
        return nats(rows[value].above_best_interval, unit)

    alike = [value_text(v) for v in values if rows[v].verdict != WORSE and v != best]
    parts = [tried + (f" (not told apart from {', '.join(alike)})" if alike else "")]
    if worse_from is not None:
        last = "" if worse_from == values[-1] else f", by {by(values[-1])} at {value_text(values[-1])}"
        parts.append(f"from {at(column, worse_from)} on it is worse by {by(worse_from)}{last}: degrades")
    elif best == values[-1]:
        parts.append(f"no degradation shown up to {at(column, best)}, the largest tried")
    else:
        parts.append(f"no degradation shown up to {at(column, values[-1])} (there {by(values[-1])})")
    if worse_to is not None:
        to = f"up to {at(column, worse_to)}" if worse_to != values[0] else f"at {at(column, worse_to)}"
        first = "" if worse_to == values[0] else f", by {by(values[0])} at {value_text(values[0])}"
        parts.append(f"{to} it is worse by {by(worse_to)}{first}")
    return "; ".join(parts)


def spread(curve: AlongCurve, unit: str) -> str:
    """Sentence on the loss difference between the worst value and the best."""
    found = curve.spread_interval
    if found.value is None:
        return "shape matters: unknown, as the noise is not known"
    ends, (percent, low, high) = nats(found, unit), map(curve.percent, (found.value, found.low, found.high))
    said = loses(curve.worst, percent or 0.0, low, high, place(curve.depth, curve.budget) or "this size")
    none = "" if found.sign > 0 else "; no difference between the depths is shown"
    return f"shape matters: of the depths tried, {said}, {ends}{none}"


def of_parting(
    base: str, arm: Arm, column: str, above: Mapping[Any, Interval], ahead: str, start: Any, after: Any
) -> str:
    """Sentence on the value from which another arm differs from the first. above: value → loss − base."""
    values = list(above)
    if ahead == NEITHER:
        alone = [value_text(value) for value, one in above.items() if one.sign]
        held = f", only at {', '.join(alone)}" if alone else ""
        return f"{arm.label} is not shown to differ from {base} up to {at(column, values[-1])}{held}"
    first, second = (arm.label, base) if ahead == OTHER else (base, arm.label)
    if after is not None:
        between = f"the arms diverge between {value_text(after)} and {value_text(start)}"
    elif start == values[0]:
        between = "the arms diverge there or below, where nothing was tried"
    else:
        before = [value_text(value) for value in values if value < start]
        between = f"the arms diverge there or before: at {', '.join(before)} no difference is shown"
    gap = nats(-above[start] if ahead == OTHER else above[start], arm.unit)
    return f"{first} is ahead of {second} from {at(column, start)} on, there by {gap}; {between}"


def leading(found: Sequence[tuple[str, str]]) -> list[str]:
    """Lines for the first groups, from (place, sentence) pairs."""
    lines = [f"{where}: {sentence}" if where else sentence for where, sentence in found]
    left = len(lines) - GROUPS_SAID
    return lines if left <= 0 else [*lines[:GROUPS_SAID], f"… and {left} more, in the table"]


def answers(
    column: str, unit: str, curves: Sequence[AlongCurve], partings: Sequence[ArmDivergence], several: bool
) -> list[str]:
    """Sentences of the answer: the sizes at which the arms differ, then each arm."""
    lines = leading([(place(one.depth, one.budget), one.sentence) for one in partings])
    for arm in dict.fromkeys(curve.arm for curve in curves):
        own = [curve for curve in curves if curve.arm == arm]
        said = leading([(place(curve.depth, curve.budget), curve.sentence) for curve in own])
        lines += [f"{arm}, {line}" if several else line for line in said]
        if column == "depth":
            most = max(len(curve.rows) for curve in own)
            full = [curve for curve in own if len(curve.rows) == most]
            ends = full if len(full) < 3 else [full[0], full[-1]]
            lines += [(f"{arm}: " if several else "") + spread(curve, unit) for curve in ends]
    return lines
