"""``dwsweep fit DIR --along COLUMN``: the loss of one recipe against any column of numbers, in sentences.

All other settings stay fixed: per depth and budget (per budget where the column is the depth) the values are compared
with each other.

No question to the posterior of a table: a column of numbers is smooth and shrunk there, and takes nine runs of three
sizes; here a few values at one depth and size may do anything. A posterior with a level, a slope and a curvature for
each value leaves differences 400 times as wide as the cells do with two sizes per value (simulated, five values).

Runs are sorted into curves: one depth and one value of the column, over sizes. ``analysed`` then treats a curve as it
treats a depth in a plain fit, so the noise is the same: cell + seed by two-way least squares, held-out documents, the
scatter of a shape, the choice of a learning rate. A group of the comparison takes one cell of each curve, all of one
budget; cells of other sizes move there along their own curve, whose errors are drawn, too.

With m_j the mean loss at value j, corrected to the size of the group, every difference m_j − m_i has a band that holds
for all pairs at once (sup-t over the draws of all cells). From L_ji ≤ μ_j − μ_i ≤ U_ji for all pairs follows, whichever
value is the best one and however it was chosen (Hsu 1996, Multiple Comparisons),

    max_i L_ji ≤ μ_j − min_i μ_i ≤ max_i U_ji            above the best
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from dwsweep.errors import InputError, argument, example
from dwsweep.fit.analysis import Request, answered, fit_options, one_recipe, provenance
from dwsweep.fit.arm import Arm, analysed, selected
from dwsweep.fit.data import condition
from dwsweep.fit.data.lengths import at_equal_length
from dwsweep.fit.data.one_unit import in_one_unit
from dwsweep.fit.data.roles import RECIPE, TUNING
from dwsweep.fit.data.rows import Row, are_alike, positive
from dwsweep.fit.data.runs import number
from dwsweep.fit.data.shape import BLOCK, SAME_SIZE, n_params_of
from dwsweep.fit.data.shape import COLUMNS as OF_SHAPE
from dwsweep.fit.data.table import Table, account
from dwsweep.fit.statistics.curves import Curves, SimultaneousBand
from dwsweep.fit.statistics.model import SIZE_SLOPE
from dwsweep.fit.statistics.noise import FLOOR_NATS, Noise
from dwsweep.fit.statistics.small_matrices import small_matrices
from dwsweep.interval import Interval
from dwsweep.records import columns
from dwsweep.records.along import BEST, NOT_APART, UNKNOWN, WORSE, Along, AlongRow
from dwsweep.records.fit import FORMAT, FitOptions, FitResult
from dwsweep.text import SHORT, format_count, join

DEPTH = "depth"
# columns that are no setting: sizes, results and names of a run
NO_SETTINGS = {*columns.named("size", "outcome", "identity")} - {DEPTH}
WITH_HEADS = {"heads", "head_size"}  # either column determines the other
GROUPS_SAID = 6  # groups that the answer names, at most
UNCORRECTED = 1e-3  # difference in ln N below which losses stay uncorrected
SEED = 17  # seed of the errors of a slope that no curve shows


def fit_along(
    table: Any, column: str, *, params: Iterable[float] = (), beside: Iterable[Any] = (), **options: Any
) -> FitResult:
    """Losses along ``column``: the record behind ``dwsweep.fit_table(table, along=column)``; along the depth beside the
    plain fit. params, beside, options: as for ``fit_table``."""
    chosen = fit_options(**options)
    held = ", ".join(f"{name}={value}" for name, value in chosen.at)
    asked = {"axis": chosen.axis, "adjust": join(chosen.adjust), "no_adjust": join(chosen.no_adjust), "at": held}
    for name, value in asked.items():
        if value not in ("", "n_params"):
            raise InputError(
                f"{argument(name)}: {value}; losses along a column are compared as they are, at equal n_params; for "
                f"another setting give {argument('where')} that keeps one value of it"
            )
    read = one_recipe(table, chosen)
    if column not in read.roles:
        column = read.ours(column)
    check_column(read, column)
    params, beside = list(params), list(beside)
    more = argument("params") if params else argument("beside", "--with")
    if column != DEPTH and (given := [*params, *beside]):
        raise InputError(f"{more}: {given[0]}; losses along {column} have no guideline and no transitions")
    (data,) = in_one_unit([read])
    data = at_equal_length(data, chosen)
    with small_matrices():
        arm, along = compared(data, column, chosen)
        if column == DEPTH:
            return replace(answered(Request.of(read, chosen), params, beside), along=along)
    rows = account(data.n_read, len(arm.runs), [data.account, arm.left_out], data.notes)
    return FitResult(
        format=FORMAT,
        along=along,
        warnings=list(arm.warnings),
        noise=arm.noise,
        unit=data.unit,
        provenance=provenance(data, chosen, rows),
    )


def compared(data: Table, column: str, options: FitOptions) -> tuple[Arm, Along]:
    """The runs with their curves, and the losses along ``column``.

    Raises:
        InputError: no run has a usable loss, or runs that differ in more than the column would be compared.
    """
    arm = _arm(data, column, options)
    if not arm.runs:
        raise InputError(f"table: {data.source}; it has no finished run with a usable loss")
    curves, every = arm.curves, list(_groups(arm, column, _sizes(data), data.source))
    groups = [group for group in every if len(group.rows) > 1]
    if not groups:
        raise InputError(
            f"{argument('column', '--along')}: {column!r}; no depth and size has two values of it to compare"
        )
    x = curves.x.copy()
    for group in groups:
        x[group.cells] = math.log(group.key[1])
    mean, errors = at_sizes(curves, x)
    of_groups = [
        _rows(curves, group, mean[group.cells], errors[:, group.cells], column, options.confidence) for group in groups
    ]
    return arm, Along(
        column=column,
        unit=data.unit,
        confidence=options.confidence,
        answer=(*_not_adjusted(arm, groups, column), *answers(of_groups, data.unit)),
        rows=tuple(chain.from_iterable(of_groups)),
        notes=_notes(curves, x, groups, len(every) - len(groups), column),
    )


class Group(NamedTuple):
    """One comparison. key: (depth, budget); no depth if the column is it. cells: indices in the curves, in rising order
    of the column. rows: one row of each cell."""

    key: tuple[int | None, float]
    cells: list[int]
    rows: list[Row]


def _arm(data: Table, column: str, options: FitOptions) -> Arm:
    """The runs that count, as in a plain fit, with a curve over sizes for each depth and value of the column. Two
    values are two shapes."""
    if column == DEPTH:
        return analysed(data, data.rows, options)
    rows = [row for row in data.rows if row.get(column) is not None]
    rows = [{**row, BLOCK: f"{row.get(BLOCK, '')} {column} {row[column]}".strip()} for row in rows]
    selection = selected(data, rows, options)
    if blank := len(data.rows) - len(rows):
        selection.warnings.append(f"{column}: blank in {blank} rows, which are left out")
        selection.account[f"have no {column}", ""] += blank
    keys = [(run.row[DEPTH], run.row[column]) for run in selection.runs]
    curves = {key: k for k, key in enumerate(sorted(set(keys)), start=1)}
    runs = [replace(run, depth=curves[key]) for run, key in zip(selection.runs, keys, strict=True)]
    return analysed(data, rows, options, alone=False, selection=replace(selection, runs=runs))


def _rows(
    curves: Curves, group: Group, mean: np.ndarray, errors: np.ndarray, column: str, confidence: float
) -> list[AlongRow]:
    """mean (J,), errors (D, J): of the cells of the group at its budget, nats."""
    rows, known = [], curves.noise.known
    for k, above in enumerate(above_best(mean, errors, curves.noise, confidence)):
        cell, row = group.cells[k], group.rows[k]
        verdict = WORSE if above.sign > 0 else BEST if k == mean.argmin() else NOT_APART
        rows.append(
            AlongRow(
                column=column,
                value=row[column],
                depth=int(row[DEPTH]),
                budget=group.key[1],
                width=number(row["width"]),
                n_params=number(float(curves.n_params[cell])),
                learning_rate=curves.learning_rate[cell],
                n=int(curves.n[cell]),
                loss=float(mean[k]),
                se=max(float(errors[:, k].std()), FLOOR_NATS) if known else None,
                correction=float(mean[k] - curves.mean[cell]),
                **above.columns("above_best"),
                verdict=verdict if known else UNKNOWN,
            )
        )
    return rows


def _notes(curves: Curves, x: np.ndarray, groups: Sequence[Group], single: int, column: str) -> tuple[str, ...]:
    """Sentences on the premises: unequal sizes and their correction to ``x`` (K,). single: number of groups with a
    single value."""
    notes, gap = [], float(np.abs(curves.x - x).max())
    if gap > UNCORRECTED:
        labels = np.unique(curves.depth[[k for group in groups for k in group.cells]])
        by = (
            "by the published slope, −0.076 of the loss per unit of ln N (Kaplan et al. 2020), as there is one "
            "size, with an error as large as the slope"
            if any(len(curves.sizes(int(label))) < 2 for label in labels)
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
    return tuple(notes)


def _not_adjusted(arm: Arm, groups: Sequence[Group], column: str) -> list[str]:
    """A line on other settings that change along the column."""
    tied = {column, "learning_rate", "lr", *(WITH_HEADS if column in WITH_HEADS else ()), "head_size"}
    names = [name for name in dict.fromkeys((*RECIPE, *TUNING)) if name not in tied]
    names = [name for name in names if any(len({str(row.get(name)) for row in of.rows}) > 1 for of in groups)]
    if column != "learning_rate" and any(_have_own_rates(arm, of) for of in groups):
        names.append("learning_rate")
    if not names:
        return []
    change = "changes" if len(names) == 1 else "change"
    return [
        f"NOT ADJUSTED: {join(names)} {change} along {column}, too, and the effect is part of the differences; a fit "
        "without --along adjusts for it"
    ]


def _have_own_rates(arm: Arm, of: Group) -> bool:
    """True if values of a group have different learning rates, and not each of them the best of several."""
    curves, tried = arm.curves, arm.rates_tried
    rates = [rate for k in of.cells if (rate := curves.learning_rate[k])]
    return bool(rates) and not are_alike(rates) and min(tried[curves.shape(k)] for k in of.cells) == 1


def at_sizes(curves: Curves, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean (K,), errors (D, K)) of all cells at ln axis ``x`` (K,) in place of their own: each moves along its own
    curve over sizes, with the curve's errors, nats.

    A curve of a single size has the slope of published laws, with an error as large as the slope that all such cells
    share.
    """
    from scipy.interpolate import PchipInterpolator

    found, gaps = np.vstack([curves.mean, curves.draws]), x - curves.x
    far = np.abs(gaps) > UNCORRECTED
    slope = np.append(1.0, 1.0 + np.random.default_rng(SEED).standard_normal(len(curves.draws)))
    for label in np.unique(curves.depth[far]).tolist():
        of = np.flatnonzero(far & (curves.depth == label))
        sizes, losses = curves.losses(label)
        if len(sizes) > 1:
            there, here = np.split(PchipInterpolator(sizes, losses, axis=1)([*x[of], *curves.x[of]]), 2, axis=1)
            found[:, of] += there - here
        else:
            found[:, of] += slope[:, None] * SIZE_SLOPE * curves.mean[of] * gaps[of]
    return found[0], found[1:] - found[0]


def above_best(mean: np.ndarray, errors: np.ndarray, noise: Noise, confidence: float) -> list[Interval]:
    """Loss of each value of a group above that of the best, without intervals if the noise is unknown."""
    above = mean - mean.min()
    if not noise.known:
        return [Interval(value) for value in above.tolist()]
    i, j = np.triu_indices(len(mean), 1)
    low, high = np.zeros((2, len(mean), len(mean)))
    pairs = SimultaneousBand(mean[j] - mean[i], errors[:, j] - errors[:, i], noise.df, confidence)
    low[j, i], high[j, i] = pairs.low, pairs.high
    low[i, j], high[i, j] = -pairs.high, -pairs.low
    return [Interval(*each) for each in np.stack([above, low.max(axis=1), high.max(axis=1)], axis=1).tolist()]


def check_column(data: Table, column: str) -> None:
    """Refuse a column that is missing, not numeric, no setting, or constant."""
    name = f"{argument('column', '--along')}: {column!r}"
    if column in NO_SETTINGS or data.roles.get(column) in ("cost", "loss"):
        raise InputError(f"{name}; a size, a result or a name of a run; allowed: depth, or a setting of the run")
    if column not in data.roles:
        raise InputError(f"{name}; not a column of {data.source}{condition.nearest(column, data.roles)}")
    for place, row in enumerate(data.rows, start=1):
        value = row.get(column)
        if value is not None and (isinstance(value, bool | str) or not math.isfinite(value)):
            raise InputError(f"{name} is {str(value)[:40]!r} in row {place}; must be a column of numbers")
    values = {row.get(column) for row in data.rows} - {None}
    if len(values) < 2:
        what = f"{next(iter(values)):g} in every row" if values else "blank in every row"
        raise InputError(f"{name} is {what} of {data.source}; at least two values are compared")


def _sizes(data: Table) -> dict[float, float]:
    """n_params → size of comparison: its budget if every row has one, else the geometric mean of sizes within a factor
    1.25."""
    if all(positive(row.get("budget")) for row in data.rows):
        return {n_params_of(row): float(row["budget"]) for row in data.rows}
    counts = np.unique([n_params_of(row) for row in data.rows if n_params_of(row) > 0])
    groups: list[list[float]] = []
    for n in counts.tolist():
        if groups and math.log(n / groups[-1][0]) <= SAME_SIZE:
            groups[-1].append(n)
        else:
            groups.append([n])
    return {n: math.exp(float(np.mean(np.log(group)))) for group in groups for n in group}


def _groups(arm: Arm, column: str, sizes: Mapping[float, float], source: str) -> Iterator[Group]:
    """Cells of each group."""
    of_shape = {run.shape: run.row for run in arm.runs}
    rows = [of_shape[arm.curves.shape(k)] for k in range(len(arm.curves.x))]
    found: dict[tuple[int | None, float], dict[Any, int]] = defaultdict(dict)
    for k, row in enumerate(rows):
        depth = None if column == DEPTH else int(row[DEPTH])
        value, size = row[column], sizes[n_params_of(row)]
        first = found[depth, size].setdefault(value, k)
        if first != k:
            shown = " and ".join(f"{rows[one][DEPTH]:g}×{rows[one]['width']:g}" for one in (first, k))
            of_net = ("width", *(name for name in OF_SHAPE if name != column))
            differs = next((name for name in of_net if rows[first].get(name) != row.get(name)), "width")
            choice = condition.equals(differs, row.get(differs))
            raise InputError(
                f"{argument('column', '--along')}: {column!r}; {source} has two shapes of one size at {column} "
                f"{value:g}, {shown}, of other {differs}, which would be averaged; choose, such as with "
                + example(f"where={choice!r}", condition.option(choice))
            )
    for key in sorted(found, key=lambda key: (key[0] or 0, key[1])):
        cells = [k for _, k in sorted(found[key].items())]
        yield Group(key, cells, [rows[k] for k in cells])


def value_text(value: float) -> str:
    """Text of a value of the column: ``4``, ``124K``, ``0.002``."""
    return format_count(value) if abs(value) >= 1e4 else f"{value:g}"


def place(depth: int | None, budget: float) -> str:
    """``L 2, N = 124K``."""
    return f"{'' if depth is None else f'L {depth}, '}N = {format_count(budget)}"


def of_curve(rows: Sequence[AlongRow], unit: str) -> str:
    """Sentence on the value with the least loss, and on values shown to be worse."""
    best = min(rows, key=lambda row: row.loss or 0.0)
    tried = f"best at {best.column} {value_text(best.value)} of {', '.join(value_text(row.value) for row in rows)}"
    if best.above_best_low is None:
        return f"{tried}; the noise is not known, so nothing is claimed"
    alike = ", ".join(value_text(row.value) for row in rows if row.verdict == NOT_APART)
    worse = [(value_text(row.value), row.above_best_interval) for row in rows if row.verdict == WORSE]
    shown = [f"{value} by {by.value:.3f} {SHORT[unit]} ({by.ends('{:.3f}'.format)})" for value, by in worse]
    apart = f" (not told apart from {alike})" if alike else ""
    return f"{tried}{apart}; worse: {', '.join(shown) or 'none is shown to be'}"


def answers(curves: Sequence[Sequence[AlongRow]], unit: str) -> list[str]:
    """Sentences on the first groups. curves: rows of each group."""
    lines = [f"{place(*rows[0].group)}: {of_curve(rows, unit)}" for rows in curves]
    left = len(lines) - GROUPS_SAID
    return lines if left <= 0 else [*lines[:GROUPS_SAID], f"… and {left} more, in the table"]
