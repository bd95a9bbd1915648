"""``dwsweep fit DIR --along COLUMN``: the loss against any column of numbers, in sentences.

Whatever else was chosen stays fixed: per arm, depth and budget (per budget where the column is the depth) the values
are held against each other and, where there are several arms, the arms against each other at each value.
``along_cells`` sorts the runs, ``bands`` compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit.along_cells import SIZES, ArmAlong, Key, arms_along, check_column, equal_to_baseline, unit_of
from dwsweep.fit.analysis import fit_options, fit_table, noise_summary, provenance
from dwsweep.fit.arms import check_few, labels
from dwsweep.fit.bands import Losses, Ranking, apart, losses_of, ranked
from dwsweep.fit.cells import number
from dwsweep.fit.lengths import at_equal_length
from dwsweep.fit.pairing import Pairing, pair_arms
from dwsweep.fit.rows import RECIPE, TUNING, arms, check_one_arm
from dwsweep.fit.table import Table, read_table
from dwsweep.fit.warnings import check_status
from dwsweep.interval import Interval
from dwsweep.records.fit import AlongFit, Fit, FitOptions
from dwsweep.records.studies import (
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
    ArmsParting,
)
from dwsweep.text import SHORT, format_count, format_range

SEED = 17  # of the draws for slopes and for what arms share
WITH_HEADS = {"heads", "head_size"}  # the one follows from the other


def fit_along(
    table: Any,
    column: str,
    others: Iterable[Any] = (),
    *,
    baseline: str | None = None,
    margin: float | None = None,
    **options: Any,
) -> AlongFit:
    """The losses along ``column``, as ``dwsweep.fit_along`` has them.

    baseline: by default the deepest shape, of the fewest heads and of the largest size; every shape is held against it
    where depths and heads vary, or where it is given. options: those of ``fit_table``, of which params and beside say
    nothing here.
    """
    from threadpoolctl import threadpool_limits

    others = list(others)
    if options.get("axis", "n_params") != "n_params":
        raise InputError(f"{argument('axis')}: {options['axis']!r}; along a column losses are compared at n_params")
    if margin is not None and not 0.0 < margin < math.inf:
        raise InputError(
            f"{argument('margin')}: {margin!r}; must be a positive number of nats, or of the unit of the losses"
        )
    where = options.get("where", ())
    where = (where,) if isinstance(where, str) else tuple(where)
    tables = _tables(table, others, options.get("columns"), where, options.get("unit"))
    check_column(tables, column)
    chosen = fit_options(**{name: value for name, value in options.items() if name not in ("params", "beside")})
    tables = [at_equal_length(data, chosen) for data in tables]
    with threadpool_limits(1, user_api="blas"):
        found, along = compared(tables, labels(tables) if len(tables) > 1 else [""], column, chosen, baseline, margin)
        return _fit(found, along, tables[0], chosen)


def fit_beside_along(table: Any, column: str, others: Iterable[Any] = (), **options: Any) -> Fit:
    """``fit_along``, and of one arm along its depth or a size ``fit_table`` too, which can hold both."""
    found = fit_along(table, column, others, **options)
    if found.along.arms != ("",) or column not in ("depth", *SIZES):
        return found
    plain = {name: value for name, value in options.items() if name not in ("baseline", "margin")}
    return replace(fit_table(table, **plain), along=found.along)


def compared(
    tables: Sequence[Table],
    names: Sequence[str],
    column: str,
    options: FitOptions,
    baseline: str | None = None,
    margin: float | None = None,
) -> tuple[list[ArmAlong], Along]:
    """The arms, one table each, and what is said of them."""
    found = arms_along(tables, names, column, options)
    along = _along(found, tables, column, options)
    usable = {one.arm.label for one in found}
    empty = [f"{name}: no run has a usable loss; it is not compared" for name in names if name not in usable]
    equal = equal_to_baseline(found, baseline, margin, options.confidence)
    return found, replace(along, notes=(*empty, *along.notes), equal=equal)


def _tables(table: Any, others: Sequence[Any], columns: Any, where: Sequence[str], unit: str | None) -> list[Table]:
    """One per arm."""
    tables = [read_table(one, columns, where, unit) for one in (table, *others)]
    for one in tables:
        check_status(one.rows)
        if others:
            check_one_arm(one.rows, one.source)
    found = tables if others else [replace(tables[0], rows=rows) for rows in arms(tables[0].rows).values()]
    check_few(len(found))
    return found


def _fit(found: Sequence[ArmAlong], along: Along, data: Table, options: FitOptions) -> AlongFit:
    """What is said, with the warnings of all arms and the noise of the first. data: the table of the first arm."""
    warnings: dict[str, list[str]] = {}
    for one in found:
        for line in one.arm.warnings:
            warnings.setdefault(line, []).append(one.arm.label)
    noise = noise_summary(found[0].arm.curves)
    names = {
        str(int(d)): f"L {row['depth']:g}, {along.column} {row[along.column]:g}"
        for one in found
        for d, row in zip(one.arm.curves.depth, one.rows, strict=True)
    }
    return AlongFit(
        along=along,
        left_out=[replace(run.record(), depth=int(run.run.row["depth"])) for one in found for run in one.bad],
        warnings=[line if len(by) == len(found) else f"{', '.join(by)}: {line}" for line, by in warnings.items()],
        noise=replace(
            noise,
            sigma={names[d]: s for d, s in (noise.sigma or {}).items()},
            df={names[d]: v for d, v in (noise.df or {}).items()},
        ),
        unit=data.unit,
        provenance=provenance(data, options, sum(len(one.arm.runs) for one in found)),
    )


def _along(found: Sequence[ArmAlong], tables: Sequence[Table], column: str, options: FitOptions) -> Along:
    sizes = _sizes(found)
    losses: list[dict[Key, Losses]] = [
        {
            key: losses_of(one.arm.curves, list(cells.values()), sizes[key], np.random.default_rng([SEED, place, k]))
            for k, (key, cells) in enumerate(one.groups.items())
            if len(cells) > 1
        }
        for place, one in enumerate(found)
    ]
    unit = unit_of(tables)
    curves = [
        _curve(one, key, held, column, unit, options.confidence)
        for one, by_key in zip(found, losses, strict=True)
        for key, held in by_key.items()
    ]
    if not curves:
        raise InputError(
            f"{argument('column', '--along')}: {column!r}; no depth and size has two values of it: nothing is compared"
        )
    partings: list[ArmsParting] = []
    for other, by_key in zip(found[1:], losses[1:], strict=True):
        pairing = pair_arms(found[0].arm, other.arm, options.noise, options.shape_noise)
        for key in (key for key in by_key if key in losses[0]):
            sides = (found[0], losses[0][key]), (other, by_key[key])
            parting, rows = _parting(*sides, key, pairing, column, unit, options)
            if parting is None:
                continue
            partings.append(parting)
            of_other = next(k for k, c in enumerate(curves) if (c.arm, c.depth, c.budget) == (other.arm.label, *key))
            curves[of_other] = replace(
                curves[of_other], rows=tuple(replace(row, **rows.get(row.value, {})) for row in curves[of_other].rows)
            )
    names = tuple(one.arm.label for one in found)
    return Along(
        column=column,
        unit=unit,
        arms=names,
        inputs=tuple(dict.fromkeys(data.source for data in tables)),
        confidence=options.confidence,
        answer=tuple(answers(column, unit, curves, partings, len(found) > 1)),
        curves=tuple(curves),
        partings=tuple(partings),
        notes=tuple(_notes(found, losses, partings, column)),
    )


def _sizes(found: Sequence[ArmAlong]) -> dict[Key, float | None]:
    """ln of the size at which each group is compared, the same in all arms; None where the column is a size."""
    keys = {key for one in found for key in one.groups}
    return {(depth, size): None if size is None else math.log(size) for depth, size in keys}


def _curve(one: ArmAlong, key: Key, losses: Losses, column: str, unit: str, confidence: float) -> AlongCurve:
    cells = one.groups[key]
    ranking = ranked(losses, confidence)
    values = list(cells)
    best = values[int(losses.mean.argmin())]
    rows = tuple(_row(one, key, value, k, losses, ranking, column, confidence) for k, value in enumerate(values))
    after = [row.verdict == WORSE for row in rows if row.value > best]
    before = [row.verdict == WORSE for row in rows if row.value < best]
    tail = len(list(next((g for held, g in groupby(reversed(after)) if held), ()))) if after and after[-1] else 0
    head = len(list(next((g for held, g in groupby(before) if held), ()))) if before and before[0] else 0
    worse_from, worse_to = values[-tail] if tail else None, values[head - 1] if head else None
    return AlongCurve(
        arm=one.arm.label,
        depth=key[0],
        budget=key[1],
        rows=rows,
        best=best,
        worse_from=worse_from,
        worse_to=worse_to,
        **(ranking.spread if ranking.spread.bounded else Interval()).columns("spread"),
        worst=values[int(losses.mean.argmax())],
        sentence=of_curve(rows, best, worse_from, worse_to, unit),
    )


def _row(
    one: ArmAlong, key: Key, value: Any, k: int, losses: Losses, ranking: Ranking, column: str, confidence: float
) -> AlongRow:
    cell = one.groups[key][value]
    curves, row = one.arm.curves, one.rows[cell]
    best, first = ranking.above_best.at(k), ranking.above_first.at(k)
    verdict = BEST if k == int(losses.mean.argmin()) else NOT_APART
    if best.low is None:
        verdict = UNKNOWN
    elif best.low > 0.0:
        verdict = WORSE
    return AlongRow(
        arm=one.arm.label,
        column=column,
        value=value,
        depth=int(row["depth"]),
        budget=key[1],
        width=number(row["width"]),
        heads=row.get("heads"),
        head_size=row.get("head_size"),
        n_params=number(float(curves.n_params[cell])),
        learning_rate=curves.learning_rate[cell],
        n=int(curves.n[cell]),
        loss=float(losses.mean[k]),
        se=float(losses.se[k]) if losses.known else None,
        correction=float(losses.correction[k]),
        above_best=float(losses.mean[k] - losses.mean.min()),
        above_best_low=best.low,
        above_best_high=best.high,
        **first.columns("above_first"),
        verdict=verdict,
        confidence=confidence,
    )


def _parting(
    base: tuple[ArmAlong, Losses],
    other: tuple[ArmAlong, Losses],
    key: Key,
    pairing: Pairing,
    column: str,
    unit: str,
    options: FitOptions,
) -> tuple[ArmsParting | None, dict[Any, dict[str, Any]]]:
    """Where the other arm parts from the base in one group, and what each of its rows says of that; None where they
    have fewer than two values in common."""
    shared = [value for value in base[0].groups[key] if value in other[0].groups[key]]
    if len(shared) < 2:
        return None, {}
    sides = [_only(one, losses, key, shared) for one, losses in (base, other)]
    rng = np.random.default_rng([SEED, len(shared), options.seed])
    found = apart(sides[0], sides[1], pairing, options.confidence, rng)
    rows = {value: found.at(k).columns("above_base") for k, value in enumerate(shared)}
    sides_ahead = [NEITHER] * len(shared)
    if found.low is not None and found.high is not None:
        sides_ahead = [
            OTHER if high < 0.0 else BASE if low > 0.0 else NEITHER
            for low, high in zip(found.low, found.high, strict=True)
        ]
    ahead, start, after = _stretch(sides_ahead, shared)
    gap = ""
    if start is not None:
        by = found.at(shared.index(start))
        if ahead == OTHER and by.value is not None and by.low is not None and by.high is not None:
            by = Interval(-by.value, -by.high, -by.low)
        gap = nats(by, unit)
    a, b = base[0].arm.label, other[0].arm.label
    alone = [value for value, side in zip(shared, sides_ahead, strict=True) if side != NEITHER]
    sentence = of_parting(a, b, column, ahead, start, after, shared, gap, alone)
    return ArmsParting(
        base=a,
        arm=b,
        depth=key[0],
        budget=key[1],
        ahead=ahead,
        start=start,
        after=after,
        pairing=f"unpaired: {pairing.why_not}" if pairing.why_not else f"paired by {pairing.by}",
        sentence=sentence,
    ), rows


def _only(one: ArmAlong, losses: Losses, key: Key, values: Sequence[Any]) -> tuple[Any, Losses, list[int]]:
    """(arm, losses, cells) at some of its values."""
    cells = one.groups[key]
    places = [list(cells).index(value) for value in values]
    kept = replace(
        losses,
        mean=losses.mean[places],
        deviations=losses.deviations[:, places],
        correction=losses.correction[places],
    )
    return one.arm, kept, [cells[value] for value in values]


def _stretch(sides: Sequence[str], values: Sequence[Any]) -> tuple[str, Any, Any]:
    """(which arm is ahead at every value up to the last one, from where on, the last value before it at which the other
    one is)."""
    ahead = sides[-1]
    if ahead == NEITHER:
        return NEITHER, None, None
    first = len(sides) - 1
    while first > 0 and sides[first - 1] == ahead:
        first -= 1
    against = [value for value, side in zip(values[:first], sides, strict=False) if side not in (ahead, NEITHER)]
    return ahead, values[first], against[-1] if against else None


def _notes(
    found: Sequence[ArmAlong], losses: Sequence[dict[Key, Losses]], partings: Sequence[ArmsParting], column: str
) -> list[str]:
    """What the numbers rest on: sizes that are not quite equal, what differs besides, and how the arms are paired."""
    every = [held for by_key in losses for held in by_key.values()]
    notes = []
    gap = max(held.gap for held in every)
    slopes = [held.slope for held in every if held.slope is not None]
    if slopes:
        measured = all(slope.measured for slope in slopes)
        values = sorted({f"{slope.value:.2g}" for slope in slopes}, key=float)
        by = (
            "by the slope between neighbouring sizes"
            if measured
            else "by a slope of −0.076 of the loss per unit of ln N (Kaplan et al. 2020), for want of a second size, "
            "with an error as large as itself"
        )
        span = values[0] if len(values) == 1 else f"{values[0]} … {values[-1]}"
        notes.append(
            f"sizes differ from their budget by up to {100 * math.expm1(gap):.1f} %; losses are corrected to it {by} "
            f"({span} per unit of ln N), and the error of that is in every interval"
        )
    notes += _besides(found, column)
    single = sum(len(cells) < 2 for one in found for cells in one.groups.values())
    if single:
        notes.append(f"{single} depths and sizes have one value of {column}, and are not compared")
    notes += list(dict.fromkeys(f"{one.arm} against {one.base}: {one.pairing}" for one in partings))
    if len(every) > 1:
        notes.append("intervals hold together within one depth and size, not over all of them")
    return notes


def _besides(found: Sequence[ArmAlong], column: str) -> list[str]:
    """Settings that change along the column."""
    notes = []
    tied = {column, "learning_rate", "lr", *(WITH_HEADS if column in WITH_HEADS else ()), "head_size"}
    for name in dict.fromkeys((*RECIPE, *TUNING)):
        if name in tied:
            continue
        differs = [
            one.arm.label
            for one in found
            if any(
                len({str(one.rows[k].get(name)) for k in cells.values()}) > 1 for cells in one.groups.values()
            )
        ]  # fmt: skip
        if differs:
            where = f" ({', '.join(differs)})" if len(found) > 1 else ""
            notes.append(f"{name} changes along {column}, too{where}: what it does is in the differences")
    return notes


NOUNS = {"depth": "layers", "heads": "heads"}
GROUPS_SAID = 6  # of each arm


def value_text(value: float) -> str:
    """A value of the column: ``4``, ``124K``, ``0.002``."""
    return format_count(value) if abs(value) >= 1e4 else f"{value:g}"


def at(column: str, value: float) -> str:
    """``8 heads``, ``head_size 64``."""
    noun = NOUNS.get(column)
    return (
        f"{value_text(value)} {noun if value != 1 else noun.removesuffix('s')}"
        if noun
        else f"{column} {value_text(value)}"
    )


def place(depth: int | None, budget: float | None) -> str:
    """``L 2, N = 124K``; empty where the column is both."""
    parts = [f"L {depth}" if depth is not None else "", f"N = {format_count(budget)}" if budget is not None else ""]
    return ", ".join(part for part in parts if part)


def nats(by: Interval, unit: str) -> str:
    """``0.030 nats (0.010 … 0.050)``."""
    if by.value is None:
        return "–"
    said = f"{by.value:.3f} {SHORT[unit]}"
    return f"{said} ({format_range(by.low, by.high, '{:.3f}'.format)})" if by.bounded else said


def loses(depth: float, percent: float, low: float | None, high: float | None, where: str) -> str:
    """How much the worst depth loses at one size: the same words whether the runs say it or the fitted loss."""
    ends = format_range(low, high, lambda v: f"{v:.2g}")
    layers = f"{depth:g} layers lose" if depth != 1 else "1 layer loses"
    return f"{layers} {percent:.2g} % ({ends}) of the loss at {where}"


def of_curve(
    curve_rows: Sequence[AlongRow], best: float, worse_from: float | None, worse_to: float | None, unit: str
) -> str:
    """Where the loss is least, and where it is shown to be worse."""
    column = curve_rows[0].column
    rows = {row.value: row for row in curve_rows}
    values = list(rows)
    tried = f"best at {at(column, best)} of {', '.join(map(value_text, values))}"
    if curve_rows[0].above_best_low is None:
        return f"{tried}; the noise is not known, so nothing is claimed"

    def by(value: float) -> str:
        return nats(Interval.of(rows[value], "above_best"), unit)

    alike = [value_text(v) for v in values if rows[v].verdict != WORSE and v != best]
    parts = [tried + (f" (not told apart from {', '.join(alike)})" if alike else "")]
    if worse_from is not None:
        last = "" if worse_from == values[-1] else f", by {by(values[-1])} at {value_text(values[-1])}"
        parts.append(f"from {at(column, worse_from)} on it is worse by {by(worse_from)}{last}: degrades")
    elif best == values[-1]:
        parts.append(f"no degradation shown up to {at(column, best)}, the most tried")
    else:
        parts.append(f"no degradation shown up to {at(column, values[-1])} (there {by(values[-1])})")
    if worse_to is not None:
        to = f"up to {at(column, worse_to)}" if worse_to != values[0] else f"at {at(column, worse_to)}"
        first = "" if worse_to == values[0] else f", by {by(values[0])} at {value_text(values[0])}"
        parts.append(f"{to} it is worse by {by(worse_to)}{first}")
    return "; ".join(parts)


def spread(curve: AlongCurve, unit: str) -> str:
    """How far the worst value is from the best."""
    if not curve.known or curve.spread is None:
        return "shape matters: not said, the noise is not known"
    percent, low, high = (curve.percent(v) for v in (curve.spread, curve.spread_low, curve.spread_high))
    ends = nats(Interval.of(curve, "spread"), unit)
    if percent is None or low is None:
        return f"shape matters: {ends} from the best depth to the worst; no share of a loss that is not positive"
    where = place(curve.depth, curve.budget) or "this size"
    none = "" if low > 0.0 else "; no difference between the depths is shown"
    return f"shape matters: of the depths tried, {loses(curve.worst, percent, low, high, where)}, {ends}{none}"


def of_parting(
    base: str, arm: str, column: str, ahead: str, start: float | None, after: float | None, values: Sequence[float],
    gap: str, alone: Sequence[float],
) -> str:  # fmt: skip
    """Where another arm leaves the first one. gap: the difference at ``start``; alone: values at which one of the two
    is shown ahead without a stretch to the end."""
    if ahead == NEITHER:
        held = f"; apart at {', '.join(map(value_text, alone))} alone" if alone else ""
        return f"where {arm} parts from {base}: not shown up to {at(column, values[-1])}{held}"
    first, second = (arm, base) if ahead == OTHER else (base, arm)
    assert start is not None
    if after is not None:
        between = f"they part between {value_text(after)} and {value_text(start)}"
    elif start == values[0]:
        between = "they part there or below, where nothing was tried"
    else:
        before = [value_text(value) for value in values if value < start]
        between = f"they part there or before: at {', '.join(before)} they are not told apart"
    return f"{first} is ahead of {second} from {at(column, start)} on, there by {gap}; {between}"


def listed(found: Sequence[tuple[str, str]]) -> list[str]:
    """(place, sentence) of each group as lines, the first ones; what all say alike is said once."""
    lines = [f"{where}: {sentence}" if where else sentence for where, sentence in found]
    left = len(lines) - GROUPS_SAID
    return lines if left <= 0 else [*lines[:GROUPS_SAID], f"… and {left} more, in the table"]


def answers(
    column: str, unit: str, curves: Sequence[AlongCurve], partings: Sequence[ArmsParting], several: bool
) -> list[str]:
    """All that is said, the plainest first: where the arms part, then each arm."""
    lines = listed([(place(one.depth, one.budget), one.sentence) for one in partings])
    for arm in dict.fromkeys(curve.arm for curve in curves):
        own = [curve for curve in curves if curve.arm == arm]
        said = listed([(place(curve.depth, curve.budget), curve.sentence) for curve in own])
        lines += [f"{arm}, {line}" if several else line for line in said]
        if column == "depth":
            most = max(len(curve.rows) for curve in own)
            full = [curve for curve in own if len(curve.rows) == most]
            ends = full if len(full) < 3 else [full[0], full[-1]]
            lines += [(f"{arm}: " if several else "") + spread(curve, unit) for curve in ends]
    return lines
