"""Groups of a table along a column: which runs are compared with which, and how far apart they are.

The posterior of the losses (posterior.py) answers for depth and size, and is not asked here. Nothing is assumed of the
column: its values may have any losses, at one depth and one size too, where no posterior of depths exists. A posterior
with a level, a slope and a curvature for each value leaves differences 400 times as wide as the cells do with two sizes
per value, and 1,100 times with one, as most such sweeps have; with six sizes they are a quarter narrower, by smoothing
over sizes alone (simulated, five values). So each value's own runs are compared, with the noise and the scatter between
shapes that every fit has.

Runs are sorted into curves: one arm, one depth and one value of the column, over sizes. ``build_curves`` then treats a
curve as it treats a depth in a plain fit, so the noise is the same: cell + seed by two-way least squares, held-out
documents, the scatter of a shape, the choice of a learning rate. A group of the comparison takes one cell of each
curve, all of one budget.

*Within a group.* With m_j the mean loss at value j, corrected to the size of the group, every difference m_j − m_i has
a band that holds for all pairs at once (sup-t over the draws of all cells). From L_ji ≤ μ_j − μ_i ≤ U_ji for all pairs
follows, whichever value is the best one and however it was chosen (Hsu 1996, Multiple Comparisons),

    max_i L_ji ≤ μ_j − min_i μ_i ≤ max_i U_ji            above the best
    max_ji L_ji ≤ max_j μ_j − min_i μ_i ≤ max_ji U_ji    the spread

The spread of noisy means is larger than the spread of the true ones; the draws estimate the excess, which is taken off.
Shapes differ slightly in size: each moves to the size of its group along its own curve, whose errors are drawn, too.

*Between arms.* The loss of one arm − the loss of another at the values that both have, with a band that holds for all
of them. Errors that the arms share, and moves along curves, are those of every difference of two arms (pairing.py).
"""

from __future__ import annotations

import difflib
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument, example
from dwsweep.fit.arm import Arm
from dwsweep.fit.ask import enough
from dwsweep.fit.cells import BadRun, Run, impossible, select_runs
from dwsweep.fit.curves import Curves, SimultaneousBand, build_curves
from dwsweep.fit.data import condition
from dwsweep.fit.data.rows import LeftOut, Row
from dwsweep.fit.data.shape import COLUMNS as OF_SHAPE
from dwsweep.fit.data.shape import n_params_of
from dwsweep.fit.data.table import Table
from dwsweep.fit.documents import document_covariance
from dwsweep.fit.model import Cells
from dwsweep.fit.noise import FLOOR_NATS
from dwsweep.fit.one_variable import width_follows
from dwsweep.fit.pairing import TOLERANCE, Pairing, at_size
from dwsweep.fit.posterior import Posterior
from dwsweep.fit.scatter import judged
from dwsweep.fit.warnings import left_out_line, still_falling
from dwsweep.interval import Interval
from dwsweep.records import columns
from dwsweep.records.fit import FitOptions
from dwsweep.text import join

SIZES = tuple(name for name in columns.named("size") if name != "depth")  # columns that are sizes themselves
OUTCOMES = columns.named("outcome", "identity")  # columns of a run's results and names
Key = tuple[int | None, float | None]  # (depth, budget) of a group; None if the column is it
SEED = 17  # seed of the draws of errors that arms share


@dataclass(frozen=True)
class Group:
    """Losses of one arm at one depth and size, for J values of the column in rising order.

    depth, budget: None if the column is the depth or the budget itself. cells (J,): indices into the arm's curves.
    rows: one row of each cell. mean (J,): nats, moved to the budget. deviations (D, J): nats, draws of the errors. df:
    degrees of freedom of their variance. x (J,): ln N of the budget, or of each cell where the column is it.
    """

    arm: Arm
    depth: int | None
    budget: float | None
    values: Sequence[Any]
    cells: np.ndarray
    rows: Sequence[Row]
    mean: np.ndarray
    deviations: np.ndarray
    df: float
    x: np.ndarray

    @classmethod
    def of(cls, arm: Arm, key: Key, cells: Mapping[Any, int], rows: Sequence[Row]) -> Group:
        """Group of cells: index in the arm's curves by value of the column. rows: of all cells."""
        curves, where = arm.curves, np.array(list(cells.values()))
        df = curves.noise.df if curves.noise.known else 0.0
        x = curves.x[where] if key[1] is None else np.full(len(where), math.log(key[1]))
        mean, deviations = at_size(curves, where, x, curves.draws - curves.mean)
        return cls(arm, *key, list(cells), where, [rows[k] for k in where], mean, deviations, df, x)

    @property
    def correction(self) -> np.ndarray:
        """(J,) nats, the part of ``mean`` that the correction to one size added."""
        found: np.ndarray = self.mean - self.arm.curves.mean[self.cells]
        return found

    @property
    def gaps(self) -> np.ndarray:
        """(J,) ln N of the cells − ln N of the budget."""
        found: np.ndarray = self.arm.curves.x[self.cells] - self.x
        return found

    @property
    def key(self) -> Key:
        return self.depth, self.budget

    @property
    def known(self) -> bool:
        return self.arm.curves.noise.known

    @property
    def se(self) -> np.ndarray:
        return np.maximum(self.deviations.std(axis=0), FLOOR_NATS)


@dataclass(frozen=True)
class Ranking:
    """Differences of each value from the best, without intervals if the noise is unknown. spread: worst loss − best
    loss, nats, without an interval if the noise is unknown."""

    above_best: Sequence[Interval]
    spread: Interval


def ranked(group: Group, confidence: float) -> Ranking:
    """Differences of every two values of a group."""
    m, d = group.mean, group.deviations
    above = m - m.min()
    if not group.known:
        return Ranking(_intervals(above), Interval())
    i, j = np.triu_indices(len(m), 1)
    low, high = np.zeros((len(m), len(m))), np.zeros((len(m), len(m)))
    pairs = SimultaneousBand(m[j] - m[i], d[:, j] - d[:, i], group.df, confidence)
    low[j, i], high[j, i] = pairs.low, pairs.high
    low[i, j], high[i, j] = -high[j, i], -low[j, i]
    drawn = float(np.ptp(m + d, axis=1).mean())
    bounds = float(low.max()), float(high.max())
    return Ranking(
        _intervals(above, low.max(axis=1), high.max(axis=1)),
        Interval(float(np.clip(2.0 * float(np.ptp(m)) - drawn, *bounds)), *bounds),
    )


def _intervals(value: np.ndarray, *ends: np.ndarray) -> list[Interval]:
    """One row per ``value`` (J,); ends: low and high (J,) where they are known."""
    return [Interval(*each) for each in np.stack([value, *ends], axis=1).tolist()]


def arm_differences(
    base: Group, other: Group, values: Sequence[Any], pairing: Pairing, drawn: Sequence[np.ndarray], confidence: float
) -> list[Interval]:
    """Loss of the other arm − loss of the base at each shared value of ``values``. The band holds at all of them
    together. drawn: see ``Pairing.drawn``."""
    sides = base, other
    a, b = ([group.values.index(value) for value in values] for group in sides)
    difference = other.mean[b] - base.mean[a]
    if not (base.known and other.known):
        return _intervals(difference)
    *errors, level = drawn
    i, j = base.cells[a], other.cells[b]
    one, two = (
        at_size(group.arm.curves, cells, group.x[places], own)[1]
        for group, cells, places, own in zip(sides, (i, j), (a, b), errors, strict=True)
    )
    band = SimultaneousBand(difference, two - one + level, pairing.df(i, j), confidence)
    return _intervals(band.value, band.low, band.high)


@dataclass(frozen=True)
class ArmAlong:
    """One arm. arm: its curves, numbered alike in all arms. groups: also groups of one value. rows: a row of each
    cell of the curves. bad: runs left out as impossible. out: rows that are out, by reason."""

    arm: Arm
    groups: Sequence[Group]
    rows: Sequence[Row]
    bad: Sequence[BadRun]
    out: Mapping[LeftOut, int] = field(default_factory=dict)


def check_column(tables: Sequence[Table], column: str) -> None:
    """Refuse a column that is missing, not numeric, an outcome, or constant."""
    name = argument("column", "--along")
    if column in OUTCOMES:
        raise InputError(f"{name}: {column!r}; a result or a name of a run; allowed: a setting of the run")
    for data in tables:
        if column not in data.columns:
            near = difflib.get_close_matches(column, data.columns[:1000], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {join(data.columns, 30)}"
            raise InputError(f"{name}: {column!r}; not a column of {data.source}, {hint}")
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


def arms_along(tables: Sequence[Table], names: Sequence[str], column: str, options: FitOptions) -> list[ArmAlong]:
    """Arms with a usable run, with their curves and groups.

    Raises:
        InputError: runs that differ in more than the column would be compared, or the first arm has no usable run.
    """
    sizes = {} if column in SIZES else _sizes(tables)
    chosen = [_selected(data, column, options) for data in tables]
    curves = {_curve(run.row, column) for runs, *_ in chosen for run in runs}
    # a curve that is a depth keeps its number of layers, so that a plain fit has the same curves
    number = {key: int(key[0]) if len(key) == 1 else k for k, key in enumerate(sorted(curves), start=1)}
    found: list[ArmAlong] = []
    for data, name, (usable, said, out) in zip(tables, names, chosen, strict=True):
        if not usable and found:
            continue
        if not usable:
            raise InputError(f"table: {data.source}; {name or 'it'} has no finished run with a usable loss")
        warnings = [*said, *(still_falling(data.directory, usable) if data.directory else [])]
        runs = [replace(run, depth=number[_curve(run.row, column)]) for run in usable]
        bad, too_many = impossible(runs)
        warnings += [*too_many, *([left_out_line(bad)] if bad else [])]
        out_of = {id(one.run) for one in bad}
        runs = [run for run in runs if id(run) not in out_of]
        held_out = document_covariance(data.directory, runs) if options.documents and data.directory else None
        if held_out:
            warnings += held_out.warnings
        rng = np.random.default_rng(options.seed)
        of_arm = build_curves(runs, options.noise, options.draws, rng, held_out, data.unit)
        of_arm = _judged(of_arm, runs, column, options)
        rows = {run.shape: run.row for run in runs}
        rows_of = [rows[of_arm.shape(k)] for k in range(len(of_arm.x))]
        arm = Arm(
            name, data.source, data.sha256, runs, of_arm, held_out=held_out, unit=data.unit, warnings=tuple(warnings)
        )
        cells = _groups(rows_of, column, sizes, data.source)
        groups = [Group.of(arm, key, cells[key], rows_of) for key in cells]
        out["have an impossible loss", ""] += len(bad)
        found.append(ArmAlong(arm, groups, rows_of, bad, out))
    return found


def _judged(curves: Curves, runs: Sequence[Run], column: str, options: FitOptions) -> Curves:
    """The curves of an arm with the scatter between shapes: of a plain fit of ``runs`` where each curve is a depth."""
    if column not in ("depth", *SIZES):
        return judged(curves)
    alone = width_follows(runs) or not enough(curves)
    return judged(curves, None if alone else Posterior.of(Cells.of(curves), options.seed))


def _curve(row: Row, column: str) -> tuple[float, ...]:
    """Depth and value of the column, which all shapes of a curve share."""
    return (row["depth"],) if column in ("depth", *SIZES) else (row["depth"], row[column])


def _selected(data: Table, column: str, options: FitOptions) -> tuple[list[Run], list[str], Counter[LeftOut]]:
    """The runs that count, warnings, and rows that are out, value by value: settings that differ within a value are
    refused as in a plain fit."""
    out: Counter[LeftOut] = Counter()
    of_value: dict[Any, list[Row]] = defaultdict(list)
    for row in data.rows:
        if row.get(column) is not None:
            of_value[None if column in ("depth", *SIZES) else row[column]].append(row)
    runs: list[Run] = []
    where: dict[str, list[Any]] = defaultdict(list)
    for value in sorted(of_value, key=lambda v: v or 0.0):
        try:
            selection = select_runs(of_value[value], options.axis, data.named, data.unit, data.settings)
        except InputError as error:
            said = "" if value is None else f"at {column} {value:g}: "
            raise InputError(*(f"{said}{line}" for line in error.templates)) from None
        runs += selection.runs
        out.update(selection.account)
        for line in selection.warnings:
            where[line].append(value)
    lines = [
        line if len(values) == len(of_value) else f"{column} {', '.join(f'{v:g}' for v in values)}: {line}"
        for line, values in where.items()
    ]
    blank = sum(row.get(column) is None for row in data.rows)
    out[f"have no {column}", ""] += blank
    return runs, [*lines, *([f"{column}: blank in {blank} rows, which are left out"] if blank else [])], out


def _sizes(tables: Sequence[Table]) -> dict[float, float]:
    """n_params → size of comparison: its budget if every row has one, else the geometric mean of sizes within a factor
    1.25 of a neighbour."""
    rows = [row for data in tables for row in data.rows]
    budgets = [row.get("budget") for row in rows]
    if all(isinstance(size, int | float) and 0.0 < size < math.inf for size in budgets):
        return {}
    counts = np.unique([n_params_of(row) for row in rows if n_params_of(row) > 0])
    groups = np.split(counts, np.flatnonzero(np.diff(np.log(counts)) > TOLERANCE) + 1)
    return {float(n): math.exp(float(np.mean(np.log(group)))) for group in groups for n in group}


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
