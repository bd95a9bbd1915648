"""``dwsweep fit DIR --along COLUMN``: the loss against any column of numbers, in sentences.

All other settings stay fixed: per arm, depth and budget (per budget where the column is the depth) the values are
compared with each other and, with several arms, the arms at each value.

No question to the posterior of a table: a column of numbers is smooth and shrunk there, and takes nine runs of three
sizes; here a few values at one depth and size may do anything. A posterior with a level, a slope and a curvature for
each value leaves differences 400 times as wide as the cells do with two sizes per value (simulated, five values).

Runs are sorted into curves: one arm, one depth and one value of the column, over sizes. ``build_curves`` then treats a
curve as it treats a depth in a plain fit, so the noise is the same: cell + seed by two-way least squares, held-out
documents, the scatter of a shape, the choice of a learning rate. A group of the comparison takes one cell of each
curve, all of one budget; cells of other sizes move there along their own curve, whose errors are drawn, too.

*Within a group.* With m_j the mean loss at value j, corrected to the size of the group, every difference m_j − m_i has
a band that holds for all pairs at once (sup-t over the draws of all cells). From L_ji ≤ μ_j − μ_i ≤ U_ji for all pairs
follows, whichever value is the best one and however it was chosen (Hsu 1996, Multiple Comparisons),

    max_i L_ji ≤ μ_j − min_i μ_i ≤ max_i U_ji            above the best

*Between arms.* The loss of one arm − the loss of another at the values that both have, with a band that holds for all
of them. Errors that the arms share, and moves along curves, are those of every difference of two arms (pairing.py).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument, either, example
from dwsweep.fit.analysis import fit_options, fit_table, provenance
from dwsweep.fit.arm import Arm
from dwsweep.fit.arms import labels, tables_of, unequal_data
from dwsweep.fit.data import condition
from dwsweep.fit.data.impossible import without_bad_runs
from dwsweep.fit.data.lengths import at_equal_length
from dwsweep.fit.data.one_unit import in_one_unit
from dwsweep.fit.data.one_variable import width_follows
from dwsweep.fit.data.roles import RECIPE, TUNING
from dwsweep.fit.data.rows import Row, are_alike
from dwsweep.fit.data.runs import Selection, number, select_runs
from dwsweep.fit.data.shape import BLOCK, SAME_SIZE, n_params_of
from dwsweep.fit.data.shape import COLUMNS as OF_SHAPE
from dwsweep.fit.data.table import Table, account
from dwsweep.fit.pairing import SEED, UNCORRECTED, at_size, pair_arms
from dwsweep.fit.statistics.ask import enough
from dwsweep.fit.statistics.curves import SimultaneousBand, build_curves
from dwsweep.fit.statistics.documents import document_covariance
from dwsweep.fit.statistics.noise import FLOOR_NATS, Noise
from dwsweep.fit.statistics.posterior import Posterior
from dwsweep.fit.statistics.scatter import judged
from dwsweep.fit.statistics.small_matrices import small_matrices
from dwsweep.fit.warnings import check_runs, left_out_line, still_falling
from dwsweep.interval import Interval
from dwsweep.records import columns
from dwsweep.records.along import BEST, NOT_APART, UNKNOWN, WORSE, Along, AlongRow
from dwsweep.records.fit import FORMAT, FitOptions, FitResult
from dwsweep.text import SHORT, format_count, join

SIZES = tuple(name for name in columns.named("size") if name != "depth")  # columns that are sizes themselves
OUTCOMES = columns.named("outcome", "identity")  # columns of a run's results and names
WITH_HEADS = {"heads", "head_size"}  # either column determines the other
Key = tuple[int | None, float | None]  # (depth, budget) of a group; None if the column is it
GROUPS_SAID = 6  # groups of each arm that the answer names, at most


def fit_along(table: Any, column: str, others: Iterable[Any] = (), **options: Any) -> FitResult:
    """Losses along ``column``: the record behind ``dwsweep.fit_table(table, along=column)``; of one arm along its depth
    or size beside the plain fit. options: as for ``fit_table``."""
    chosen = fit_options(**options)
    for name, given in (("adjust", chosen.adjust), ("no_adjust", chosen.no_adjust), ("at", [*dict(chosen.at)])):
        if given:
            raise InputError(
                f"{either(argument(name))}: {given[0]!r}; losses along a column are compared as they are, and "
                f"adjusted for nothing; allowed: {argument('where')} that keeps one value of it"
            )
    if chosen.axis != "n_params":
        raise InputError(f"{argument('axis')}: {chosen.axis!r}; along a column losses are compared at n_params")
    others = list(others)
    tables = tables_of(table, others, chosen)
    if column not in tables[0].roles:
        column = tables[0].ours(column)
    check_column(tables, column)
    before = tables[0].account
    tables = [at_equal_length(data, chosen) for data in in_one_unit(tables)]
    names = labels(tables) if len(tables) > 1 else [""]
    with small_matrices():
        arms, along = compared(tables, names, column, chosen)
    if len(tables) == 1 and column in ("depth", *SIZES):
        return replace(fit_table(table, **options), along=along)
    read = tables if others else tables[:1]  # arms of one sweep share its table
    left_out = [one.account - before for one in tables[len(read) :]]
    warnings: dict[str, list[str]] = {}
    for arm in arms:
        for line in arm.warnings:
            warnings.setdefault(line, []).append(arm.label)
    rows = account(
        sum(one.n_read for one in read),
        sum(len(arm.runs) for arm in arms),
        [*(one.account for one in read), *left_out, *(arm.left_out for arm in arms)],
        [note for one in read for note in one.notes],
    )
    return FitResult(
        format=FORMAT,
        along=along,
        warnings=[line if len(by) == len(along.arms) else f"{', '.join(by)}: {line}" for line, by in warnings.items()],
        noise=arms[0].noise,
        unit=read[0].unit,
        provenance=provenance(read[0], chosen, rows),
    )


def compared(
    tables: Sequence[Table], names: Sequence[str], column: str, options: FitOptions
) -> tuple[list[Arm], Along]:
    """The arms, and the losses along ``column`` of those with a usable run."""
    given, every = arms_along(tables, names, column, options)
    arms = [arm for arm in given if arm.runs]
    groups = [group for group in every if len(group.values) > 1]
    if not groups:
        raise InputError(
            f"{argument('column', '--along')}: {column!r}; no depth and size has two values of it to compare"
        )
    base = arms[0]
    of_base = {group.key: group for group in every if group.arm is base}
    above: dict[tuple[str, Key], Mapping[Any, Interval]] = {}
    paired, unequal = [], list[str]()
    for arm in arms[1:]:
        unequal += unequal_data(base, arm, base.unit)
        pairing = pair_arms(base, arm)
        drawn = pairing.drawn(base.curves, arm.curves, np.random.default_rng([SEED, options.seed]))
        for group in (group for group in groups if group.arm is arm and group.key in of_base):
            first = of_base[group.key]
            if len(shared := [value for value in group.values if value in first.values]) > 1:
                gaps = arm_differences(first, group, shared, drawn, pairing.df, options.confidence)
                above[arm.label, group.key] = dict(zip(shared, gaps, strict=True))
        if any(label == arm.label for label, _ in above):
            paired.append(f"{arm.label} against {base.label}: {pairing.how}")
    of_groups = [_rows(of, above.get((of.arm.label, of.key), {}), column, options.confidence) for of in groups]
    empty = [f"{arm.label}: no run has a usable loss; it is not compared" for arm in given if not arm.runs]
    return given, Along(
        column=column,
        unit=base.unit,
        arms=tuple(arm.label for arm in arms),
        confidence=options.confidence,
        answer=(*unequal, *_not_adjusted(groups, column), *answers(of_groups, base.label, base.unit)),
        rows=tuple(chain.from_iterable(of_groups)),
        notes=(*empty, *_notes(groups, len(every) - len(groups), column), *paired),
    )


def _rows(group: Contrast, above_base: Mapping[Any, Interval], column: str, confidence: float) -> list[AlongRow]:
    """above_base: losses of this arm above the first one's, at the values that both have."""
    curves, best = group.arm.curves, int(group.mean.argmin())
    rows = []
    for k, above in enumerate(above_best(group, confidence)):
        value, cell, row = group.values[k], group.cells[k], group.rows[k]
        verdict = WORSE if above.sign > 0 else BEST if k == best else NOT_APART
        rows.append(
            AlongRow(
                arm=group.arm.label,
                column=column,
                value=value,
                depth=int(row["depth"]),
                budget=group.key[1],
                width=number(row["width"]),
                heads=row.get("heads"),
                head_size=row.get("head_size"),
                n_params=number(float(curves.n_params[cell])),
                learning_rate=curves.learning_rate[cell],
                n=int(curves.n[cell]),
                loss=float(group.mean[k]),
                se=float(group.se[k]) if group.noise.known else None,
                correction=float(group.mean[k] - curves.mean[cell]),
                **above.columns("above_best"),
                **above_base.get(value, Interval()).columns("above_base"),
                verdict=verdict if group.noise.known else UNKNOWN,
                confidence=confidence,
            )
        )
    return rows


def _notes(groups: Sequence[Contrast], single: int, column: str) -> list[str]:
    """Sentences on the premises: unequal sizes and their correction. single: number of groups with a single value."""
    notes = []
    gap = max(float(np.abs(group.arm.curves.x[group.cells] - group.x).max()) for group in groups)
    if gap > UNCORRECTED:
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
    if single:
        notes.append(f"depths and sizes with one value of {column}, which are not compared: {single}")
    if len(groups) > 1:
        notes.append("intervals are simultaneous within one depth and size, not over all of them")
    return notes


def _not_adjusted(groups: Sequence[Contrast], column: str) -> list[str]:
    """A line on other settings that change along the column."""
    tied = {column, "learning_rate", "lr", *(WITH_HEADS if column in WITH_HEADS else ()), "head_size"}
    names = [name for name in dict.fromkeys((*RECIPE, *TUNING)) if name not in tied]
    names = [name for name in names if any(len({str(row.get(name)) for row in of.rows}) > 1 for of in groups)]
    if column != "learning_rate" and any(_have_own_rates(of) for of in groups):
        names.append("learning_rate")
    if not names:
        return []
    change = "changes" if len(names) == 1 else "change"
    return [
        f"NOT ADJUSTED: {join(names)} {change} along {column}, too, and the effect is part of the differences; a fit "
        "without --along adjusts for it"
    ]


def _have_own_rates(of: Contrast) -> bool:
    """True if values of a group have different learning rates, and not each of them the best of several."""
    curves, tried = of.arm.curves, of.arm.rates_tried
    rates = [rate for k in of.cells if (rate := curves.learning_rate[k])]
    return bool(rates) and not are_alike(rates) and min(tried[curves.shape(k)] for k in of.cells) == 1


@dataclass(frozen=True)
class Contrast:
    """Losses of one arm at one depth and size, for J values of the column in rising order.

    key: (depth, budget), each None if the column is it. cells (J,): indices into the arm's curves. rows: one row of
    each cell. mean (J,): nats, moved to the budget. deviations (D, J): nats, draws of the errors. x (J,): ln N of the
    budget, or of each cell where the column is it.
    """

    arm: Arm
    key: Key
    values: Sequence[Any]
    cells: np.ndarray
    rows: Sequence[Row]
    mean: np.ndarray
    deviations: np.ndarray
    x: np.ndarray

    @classmethod
    def of(cls, arm: Arm, key: Key, cells: Mapping[Any, int], rows: Sequence[Row]) -> Contrast:
        """Group of cells: index in the arm's curves by value of the column. rows: of all cells."""
        curves, where = arm.curves, np.array(list(cells.values()))
        x = curves.x[where] if key[1] is None else np.full(len(where), math.log(key[1]))
        mean, deviations = at_size(curves, where, x, curves.draws - curves.mean)
        return cls(arm, key, list(cells), where, [rows[k] for k in where], mean, deviations, x)

    @property
    def noise(self) -> Noise:
        return self.arm.curves.noise

    @property
    def se(self) -> np.ndarray:
        return np.maximum(self.deviations.std(axis=0), FLOOR_NATS)


def above_best(group: Contrast, confidence: float) -> list[Interval]:
    """Loss of each value of a group above that of the best, without intervals if the noise is unknown."""
    m, d = group.mean, group.deviations
    if not group.noise.known:
        return _intervals(m - m.min())
    i, j = np.triu_indices(len(m), 1)
    low, high = np.zeros((2, len(m), len(m)))
    pairs = SimultaneousBand(m[j] - m[i], d[:, j] - d[:, i], group.noise.df, confidence)
    low[j, i], high[j, i] = pairs.low, pairs.high
    low[i, j], high[i, j] = -pairs.high, -pairs.low
    return _intervals(m - m.min(), low.max(axis=1), high.max(axis=1))


def _intervals(value: np.ndarray, *ends: np.ndarray) -> list[Interval]:
    """One row per ``value`` (J,); ends: low and high (J,) where they are known."""
    return [Interval(*each) for each in np.stack([value, *ends], axis=1).tolist()]


def arm_differences(
    base: Contrast, other: Contrast, values: Sequence[Any], drawn: Sequence[np.ndarray], df: float, confidence: float
) -> list[Interval]:
    """Loss of the other arm − loss of the base at each shared value of ``values``. The band holds at all of them
    together. drawn, df: see ``Pairing``."""
    sides = base, other
    places = [[group.values.index(value) for value in values] for group in sides]
    one, two = (group.mean[where] for group, where in zip(sides, places, strict=True))
    if not (base.noise.known and other.noise.known):
        return _intervals(two - one)
    own = [
        at_size(group.arm.curves, group.cells[where], group.x[where], errors)[1]
        for group, where, errors in zip(sides, places, drawn, strict=True)
    ]
    band = SimultaneousBand(two - one, own[1] - own[0], min(base.noise.df, other.noise.df, df), confidence)
    return _intervals(band.value, band.low, band.high)


def check_column(tables: Sequence[Table], column: str) -> None:
    """Refuse a column that is missing, not numeric, an outcome, or constant."""
    name = argument("column", "--along")
    if column in OUTCOMES or tables[0].roles.get(column) in ("cost", "loss"):
        raise InputError(f"{name}: {column!r}; a result or a name of a run; allowed: a setting of the run")
    for data in tables:
        if column not in data.roles:
            near = condition.nearest(column, data.roles)
            raise InputError(f"{name}: {column!r}; not a column of {data.source}{near}")
        for place, row in enumerate(data.rows, start=1):
            value = row.get(column)
            if value is not None and (isinstance(value, bool | str) or not math.isfinite(value)):
                raise InputError(
                    f"{name}: {column!r} is {str(value)[:40]!r} in row {place}; must be a column of numbers"
                )
    values = {row.get(column) for data in tables for row in data.rows} - {None}
    if len(values) < 2:
        what = f"{next(iter(values)):g} in every row" if values else "blank in every row"
        raise InputError(f"{name}: {column!r} is {what} of {tables[0].source}; at least two values are compared")


def arms_along(
    tables: Sequence[Table], names: Sequence[str], column: str, options: FitOptions
) -> tuple[list[Arm], list[Contrast]]:
    """Arms, whose curves are numbered alike; and their groups, those of one value too.

    Raises:
        InputError: runs that differ in more than the column would be compared, or the first arm has no usable run.
    """
    sizes = {} if column in SIZES else _sizes(tables)
    chosen = [_selected(data, column, options) for data in tables]
    every = {_place_of(run.row, column) for selection in chosen for run in selection.runs}
    # a curve that is a depth keeps its number of layers, so that a plain fit has the same curves
    numbers = {key: int(key[0]) if len(key) == 1 else k for k, key in enumerate(sorted(every), start=1)}
    found: list[Arm] = []
    groups: list[Contrast] = []
    for data, name, selection in zip(tables, names, chosen, strict=True):
        if not selection.runs and found:
            found.append(Arm(name, selection, None))
            continue
        if not selection.runs:
            raise InputError(f"table: {data.source}; {name or 'it'} has no finished run with a usable loss")
        checked = [*check_runs(selection.runs, data)]
        checked += still_falling(data.directory, selection.runs) if data.directory else []
        numbered = [replace(run, depth=numbers[_place_of(run.row, column)]) for run in selection.runs]
        selection, bad = without_bad_runs(replace(selection, runs=numbered))
        runs = selection.runs
        held_out = document_covariance(data.directory, runs) if options.documents and data.directory else None
        rng = np.random.default_rng(options.seed)
        curves = build_curves(runs, options.noise, rng, held_out, data.unit)
        # the scatter between shapes is that of a plain fit where each curve is a depth
        alone = column not in ("depth", *SIZES) or width_follows(runs) or not enough(curves)
        curves = judged(curves, None if alone else Posterior.of(curves.cells, options.seed))
        warnings = [*data.doubts, *selection.warnings, *checked, *([left_out_line(bad)] if bad else [])]
        warnings += held_out.warnings if held_out else []
        found.append(Arm(name, selection, curves, warnings, bad=bad, held_out=held_out, unit=data.unit))
        of_shape = {run.shape: run.row for run in runs}
        rows = [of_shape[curves.shape(k)] for k in range(len(curves.x))]
        own = _groups(rows, column, sizes, data.source)
        groups += [Contrast.of(found[-1], key, cells, rows) for key, cells in own.items()]
    return found, groups


def _place_of(row: Row, column: str) -> tuple[float, ...]:
    """Depth and value of the column, which all shapes of a curve share."""
    return (row["depth"],) if column in ("depth", *SIZES) else (row["depth"], row[column])


def _selected(data: Table, column: str, options: FitOptions) -> Selection:
    """The runs that count, as in a plain fit; two values of the column are two shapes."""
    rows = [row for row in data.rows if row.get(column) is not None]
    blank = len(data.rows) - len(rows)
    if column not in ("depth", *SIZES):
        rows = [{**row, BLOCK: f"{row.get(BLOCK, '')} {column} {row[column]}".strip()} for row in rows]
    selection = select_runs(rows, options.axis, data.named, data.unit, data.settings, theirs=data.theirs)
    if blank:
        selection.warnings.append(f"{column}: blank in {blank} rows, which are left out")
        selection.account[f"have no {column}", ""] += blank
    return selection


def _sizes(tables: Sequence[Table]) -> dict[float, float]:
    """n_params → size of comparison: its budget if every row has one, else the geometric mean of sizes within a factor
    1.25."""
    rows = [row for data in tables for row in data.rows]
    budgets = [row.get("budget") for row in rows]
    if all(isinstance(size, int | float) and 0.0 < size < math.inf for size in budgets):
        return {}
    counts = np.unique([n_params_of(row) for row in rows if n_params_of(row) > 0])
    groups: list[list[float]] = []
    for n in counts.tolist():
        if groups and math.log(n / groups[-1][0]) <= SAME_SIZE:
            groups[-1].append(n)
        else:
            groups.append([n])
    return {n: math.exp(float(np.mean(np.log(group)))) for group in groups for n in group}


def _groups(rows: Sequence[Row], column: str, sizes: Mapping[float, float], source: str) -> dict[Key, dict[Any, int]]:
    """Cells by group and value: indices, both keys in rising order."""
    found: dict[Key, dict[Any, int]] = defaultdict(dict)
    for k, row in enumerate(rows):
        depth = None if column == "depth" else int(row["depth"])
        size = None
        if column not in SIZES:
            size = sizes[n_params_of(row)] if sizes else float(row["budget"])
        value = row[column]
        first = found[depth, size].setdefault(value, k)
        if first != k:
            shown = " and ".join(shape_text(rows[one]) for one in (first, k))
            of_net = ("width", *(name for name in OF_SHAPE if name != column))
            differs = next((name for name in of_net if rows[first].get(name) != row.get(name)), "width")
            choice = condition.equals(differs, row.get(differs))
            raise InputError(
                f"{argument('column', '--along')}: {column!r}; {source} has two shapes of one size at {column} "
                f"{value:g}, {shown}, which would be averaged; choose, such as with "
                + example(f"where={choice!r}", condition.option(choice))
            )
    return {
        key: dict(sorted(found[key].items())) for key in sorted(found, key=lambda key: (key[0] or 0, key[1] or 0.0))
    }


def shape_text(row: Row) -> str:
    """``6×64, 2 heads``."""
    heads = f", {row['heads']:g} heads" if row.get("heads") else ""
    return f"{row['depth']:g}×{row['width']:g}{heads}"


def value_text(value: float) -> str:
    """Text of a value of the column: ``4``, ``124K``, ``0.002``."""
    return format_count(value) if abs(value) >= 1e4 else f"{value:g}"


def place(depth: int | None, budget: float | None) -> str:
    """``L 2, N = 124K``; empty if the column is both."""
    parts = [f"L {depth}" if depth is not None else "", f"N = {format_count(budget)}" if budget is not None else ""]
    return ", ".join(part for part in parts if part)


def nats(by: Interval, unit: str) -> str:
    """``0.030 nats (0.010 … 0.050)``."""
    return f"{by.value:.3f} {SHORT[unit]} ({by.ends('{:.3f}'.format)})"


def of_curve(rows: Sequence[AlongRow], unit: str) -> str:
    """Sentence on the value with the least loss, and on values shown to be worse."""
    best = min(rows, key=lambda row: row.loss or 0.0)
    tried = f"best at {best.column} {value_text(best.value)} of {', '.join(value_text(row.value) for row in rows)}"
    if best.above_best_low is None:
        return f"{tried}; the noise is not known, so nothing is claimed"
    alike = ", ".join(value_text(row.value) for row in rows if row.verdict == NOT_APART)
    worse = [row for row in rows if row.verdict == WORSE]
    shown = ", ".join(f"{value_text(row.value)} by {nats(row.above_best_interval, unit)}" for row in worse)
    apart = f" (not told apart from {alike})" if alike else ""
    return f"{tried}{apart}; worse: {shown or 'none is shown to be'}"


def of_difference(rows: Sequence[AlongRow], base: str, unit: str) -> str:
    """Sentence on the values at which an arm is better or worse than the ``base``."""
    above = {value_text(row.value): row.above_base_interval for row in rows if row.above_base is not None}
    if all(one.unbounded for one in above.values()):
        return f"{rows[0].arm} against {base}: the noise of one of them is not known, so nothing is claimed"
    parts = []
    for word, sign in (("better", -1), ("worse", 1)):
        of = {value: one if sign > 0 else -one for value, one in above.items() if one.sign == sign}
        if of:
            shown = ", ".join(f"{value} (by {nats(one, unit)})" for value, one in of.items())
            parts.append(f"{word} at {rows[0].column.replace('_', ' ')} {shown}")
    if alike := [value for value, one in above.items() if not one.sign]:
        parts.append(f"no difference is shown at {', '.join(alike)}")
    return f"{rows[0].arm} against {base}: {'; '.join(parts)}"


def leading(found: Sequence[tuple[Sequence[AlongRow], str]]) -> list[str]:
    """Lines for the first groups, from pairs of the rows of a group and their sentence."""
    lines = [": ".join(filter(None, (place(*rows[0].group), sentence))) for rows, sentence in found]
    left = len(lines) - GROUPS_SAID
    return lines if left <= 0 else [*lines[:GROUPS_SAID], f"… and {left} more, in the table"]


def answers(curves: Sequence[Sequence[AlongRow]], base: str, unit: str) -> list[str]:
    """Sentences of the answer: the values at which the arms differ from the ``base``, then each arm. curves: rows of
    each group of an arm."""
    compared = [rows for rows in curves if any(row.above_base is not None for row in rows)]
    lines = leading([(rows, of_difference(rows, base, unit)) for rows in compared])
    for arm in dict.fromkeys(rows[0].arm for rows in curves):
        own = leading([(rows, of_curve(rows, unit)) for rows in curves if rows[0].arm == arm])
        lines += [f"{arm}, {line}" if arm else line for line in own]
    return lines
