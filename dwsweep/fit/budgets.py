"""Runs of equal compute: which they are, and what a fit at equal compute says of them.

What was asked of the runs is taken from the table where it says so (a column ``train_flops`` or ``train_seconds``) or
from the runs' config.json. Otherwise runs whose own values agree form a budget: FLOPs are counted, so they agree but
for whole steps; measured seconds agree as well as the clock.

The runs of each budget are selected, judged and averaged by themselves, since a shape that was trained at several
budgets is as many cells. ``budget_surface`` then fits the losses of all budgets together.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.fit.budget_surface import Measured, answered
from dwsweep.fit.cells import BadRun, Run, Selection, n_params_of
from dwsweep.fit.curves import Curves
from dwsweep.fit.guideline import held_out_line
from dwsweep.fit.rows import Row
from dwsweep.fit.table import Table
from dwsweep.records import record as reader
from dwsweep.records.fit import FitOptions, HeldOut, NoiseSummary
from dwsweep.records.run import RunConfig
from dwsweep.records.studies import FLOPS, SECONDS, EqualBudgets
from dwsweep.records.transitions import Cell, RateRun
from dwsweep.text import format_count

KEYS = {FLOPS: "flops", SECONDS: "seconds"}  # of the spec's section ``train``
AGREE = {FLOPS: 1.10, SECONDS: 1.5}  # largest over smallest value of one budget
APART = {FLOPS: 1.15, SECONDS: 1.2}  # from one budget to the next, at least
FREE_OVER_SPREAD = 3.0  # of ln values: the least gap between budgets over the widest that counts as one
ASKED = "asked"
SIZES_FACTOR = 2.0  # that the sizes of a budget span, at least
FEWEST_SHAPES = 3
COVERED = 0.8  # share of the runs that budgets hold, where the table was trained at budgets
SAME_TOKENS = 1.02


@dataclass(frozen=True)
class TrainedBudgets:
    """axis: flops or device_seconds. known_from: how the budgets are known. only: what the table was trained by, so
    that the tokens follow the shape; otherwise equal values occur only incidentally. rows: of each budget.
    left_out: finished runs in none of them."""

    axis: str
    known_from: str
    only: bool
    rows: dict[float, list[Row]]
    left_out: int = 0

    @property
    def main(self) -> float:
        """The budget with the most shapes, the larger one of two."""
        return max(self.rows, key=lambda value: (len(_shapes(self.rows[value])), value))


def trained_budgets(data: Table, axis: str) -> TrainedBudgets | None:
    """The budgets of ``data`` that matter to a fit over ``axis``: those that all of it was trained to, whatever the
    axis, or those at which its runs meet, where they are asked for."""
    met = {name: _agreeing(data.rows, name) for name in (FLOPS, SECONDS)}
    for find in (_columns, lambda _: _trained_to(data.rows, met, FLOPS), _configs):
        if found := find(data):
            return found
    if found := _trained_to(data.rows, met, SECONDS):
        return found
    curved = {value: rows for value, rows in met[FLOPS].items() if _has_curve(rows)}
    if axis == FLOPS and curved:
        return TrainedBudgets(FLOPS, _agreement(curved, FLOPS), False, curved)
    return None


def other_axis_warning(trained: TrainedBudgets, axis: str) -> str:
    """Where curves over ``axis`` are not what was asked of the runs."""
    equal = ", ".join(format_count(value) for value in sorted(trained.rows))
    said = f"the runs were trained at equal {trained.axis} ({equal})"
    what = f"axis {trained.axis} compares what was asked"
    one = f"; this fit uses the runs at {format_count(trained.main)}" if len(trained.rows) > 1 else ""
    if axis in (FLOPS, SECONDS):
        return f"LENGTH FOLLOWS THE SHAPE: {said}, so {axis} differ by the shape and are no size{one}; {what}"
    return (
        f"LENGTH FOLLOWS THE SIZE: {said}, so larger nets saw fewer tokens, and curves over {axis} mix size and length "
        f"of training: what is best at a size here holds for nets of just that length{one}; {what}"
    )


def _columns(data: Table) -> TrainedBudgets | None:
    """Budgets by a column that says what was asked of the runs."""
    promises = {name: [row.get(f"train_{key}") for row in data.rows] for name, key in KEYS.items()}
    return _promised(data.rows, promises, "the column train_{}")


def _configs(data: Table) -> TrainedBudgets | None:
    """Budgets by the configs of the runs."""
    if not data.directory or len({row.get("tokens") for row in data.rows} - {None}) < 2:
        return None
    trains = [_train_section(data.directory, row) for row in data.rows]
    promises = {name: [train.get(key) for train in trains] for name, key in KEYS.items()}
    return _promised(data.rows, promises, "train.{} of the runs")


def _promised(rows: Sequence[Row], promises: Mapping[str, Sequence[Any]], source: str) -> TrainedBudgets | None:
    for name, values in promises.items():
        # a run that was not measured spent what was asked
        asked = [{**row, name: row.get(name) or value, ASKED: value} for row, value in zip(rows, values, strict=True)]
        exact = {value: found for value, found in _grouped(values, asked).items() if _spans(found)}
        for groups in (exact, _agreeing(asked, name, ASKED)):
            if not groups or not _covered(groups, rows):
                continue
            whole = {value: _longest(found) for value, found in groups.items()}
            return TrainedBudgets(name, source.format(KEYS[name]), True, whole, _left_out(whole, rows))
    return None


def _trained_to(rows: Sequence[Row], met: Mapping[str, dict[float, list[Row]]], name: str) -> TrainedBudgets | None:
    """Budgets by the runs' own values, where they explain the table."""
    groups = met[name]
    if not groups or not _covered(groups, rows) or _same_length(rows, groups):
        return None
    if name == SECONDS and not any(_value(row, "tokens") for row in rows):
        return None  # times may be alike by the way, and nothing says that the lengths are not
    whole = _with_unfinished(groups, rows, name)
    return TrainedBudgets(name, _agreement(groups, name), True, whole, _left_out(whole, rows))


def _agreement(groups: Mapping[float, list[Row]], name: str) -> str:
    percent = max(100.0 * (max(r[name] for r in rows) / min(r[name] for r in rows) - 1.0) for rows in groups.values())
    return f"{name} that agree within {percent:.2g} %"


def _grouped(values: Iterable[Any], rows: Sequence[Row]) -> dict[float, list[Row]]:
    groups: dict[float, list[Row]] = defaultdict(list)
    for value, row in zip(values, rows, strict=True):
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            groups[float(value)].append(row)
    return groups


def _longest(rows: Sequence[Row]) -> list[Row]:
    """Leave out the branches that stop before the budget of their shape is spent."""
    most: dict[tuple[Any, Any], float] = defaultdict(float)
    for row in rows:
        most[row["depth"], row["width"]] = max(most[row["depth"], row["width"]], row.get("tokens") or 0.0)
    return [row for row in rows if SAME_TOKENS * (row.get("tokens") or 0.0) >= most[row["depth"], row["width"]]]


def _train_section(directory: str, row: Row) -> Mapping[str, Any]:
    path = paths.as_path(directory) / "runs" / str(row.get("run_id")) / "config.json"
    try:
        config = reader.read(path, RunConfig)
    except (InputError, OSError):
        return {}
    return config.train if config else {}


def _agreeing(rows: Sequence[Row], name: str, column: str | None = None) -> dict[float, list[Row]]:
    """Groups of rows whose values agree and whose sizes do not, by their middle value; what several of them leave free
    between them may be what tells them apart. column: that holds the values."""
    of = column or name
    having = sorted((row for row in rows if _value(row, of) is not None), key=lambda row: row[of])
    ends = [k for k in range(1, len(having)) if having[k][of] > APART[name] * having[k - 1][of]]
    gap = min((math.log(having[k][of] / having[k - 1][of]) for k in ends), default=0.0)
    agree = max(AGREE[name], min(math.exp(gap / FREE_OVER_SPREAD), APART[name]))
    groups: dict[float, list[Row]] = {}
    for start, end in pairwise([0, *ends, len(having)]):
        found = having[start:end]
        if found and found[-1][of] <= agree * found[0][of] and _spans(found):
            groups[float(np.median([row[of] for row in found]))] = found
    return groups


def _value(row: Row, name: str) -> float | None:
    value = row.get(name)
    return value if isinstance(value, int | float) and 0 < value < math.inf else None


def _shapes(rows: Sequence[Row]) -> set[tuple[Any, Any]]:
    return {(row["depth"], row["width"]) for row in rows}


def _spans(rows: Sequence[Row]) -> bool:
    sizes = [n_params_of(row) for row in rows]
    return len(_shapes(rows)) >= FEWEST_SHAPES and max(sizes) >= SIZES_FACTOR * min(sizes)


def _has_curve(rows: Sequence[Row]) -> bool:
    """Whether a depth has three sizes."""
    return max(Counter(depth for depth, _ in _shapes(rows)).values()) >= FEWEST_SHAPES


def _covered(groups: Mapping[float, list[Row]], rows: Sequence[Row]) -> bool:
    return _left_out(groups, rows) <= (1.0 - COVERED) * sum(map(_finished, rows))


def _left_out(groups: Mapping[float, list[Row]], rows: Sequence[Row]) -> int:
    """How many finished runs no group has."""
    return sum(map(_finished, rows)) - sum(_finished(row) for group in groups.values() for row in group)


def _finished(row: Row) -> bool:
    return str(row.get("status") or "done").lower() == "done"


def _same_length(rows: Sequence[Row], groups: Mapping[float, list[Row]]) -> bool:
    """Whether runs of equal tokens hold as many shapes as budgets do: the table was trained at equal tokens, and small
    nets that take the same time, or products that come out alike, are no budget."""
    having = sorted((row for row in rows if _value(row, "tokens") is not None), key=lambda row: row["tokens"])
    if not having:
        return False
    start, counts = 0, []
    for k in range(1, len(having) + 1):
        if k == len(having) or having[k]["tokens"] > SAME_TOKENS * having[start]["tokens"]:
            counts.append(len(_shapes(having[start:k])))
            start = k
    return float(np.mean(counts)) >= float(np.mean([len(_shapes(group)) for group in groups.values()]))


def _with_unfinished(groups: dict[float, list[Row]], rows: Sequence[Row], name: str) -> dict[float, list[Row]]:
    """The groups with the runs that have no value, since they failed or diverged: into the budget of the shape and the
    tokens, or into the only budget that there is."""
    place: dict[tuple[Any, Any], set[tuple[Any, float]]] = defaultdict(set)
    for value, members in groups.items():
        for row in members:
            place[row["depth"], row["width"]].add((row.get("tokens"), value))
    found = {value: list(members) for value, members in groups.items()}
    for row in rows:
        if _value(row, name) is not None:
            continue
        known = place.get((row["depth"], row["width"]), set())
        fits = {value for tokens, value in known if len(groups) == 1 or _near(tokens, row.get("tokens"))}
        if len(fits) == 1 or len(groups) == 1:
            found[fits.pop() if fits else next(iter(groups))].append(row)
    return found


def _near(a: Any, b: Any) -> bool:
    return isinstance(a, int | float) and isinstance(b, int | float) and max(a, b) <= SAME_TOKENS * min(a, b)


FAR_OFF = 0.02  # FLOPs of a run beside those of its budget, from which on it is said
LATE = 0.05  # measured seconds beside those asked


class Group(Protocol):
    """The runs of one budget, selected and averaged, with x = ln N (a ``TokenGroup``)."""

    @property
    def selection(self) -> Selection: ...
    @property
    def curves(self) -> Curves | None: ...
    @property
    def warnings(self) -> Sequence[str]: ...
    @property
    def bad(self) -> Sequence[BadRun]: ...
    def cells(self) -> list[Cell]: ...
    def noise(self) -> NoiseSummary: ...
    def rates(self) -> list[RateRun]: ...


@dataclass(frozen=True)
class AtBudgets:
    """The part of a fit that comes from the budgets. record: None where no run has a loss."""

    trained: TrainedBudgets
    parts: Mapping[float, Group]
    record: EqualBudgets | None
    held_out: HeldOut | None = None

    @classmethod
    def of(cls, trained: TrainedBudgets, parts: Mapping[float, Group], confidence: float) -> AtBudgets:
        measured = {value: Measured(part.selection.runs, part.curves) for value, part in parts.items()}
        found = answered(trained.axis, measured, confidence)
        if found is None:
            return cls(trained, parts, None)
        record = EqualBudgets(
            axis=trained.axis,
            known_from=trained.known_from,
            only=trained.only,
            budgets=found.budgets,
            trends=found.trends,
        )
        return cls(trained, parts, record, found.held_out)

    @property
    def only(self) -> bool:
        """Whether nothing else is left to fit: the whole table was trained so."""
        return self.trained.only

    @property
    def why_no_law(self) -> str:
        axis = self.trained.axis
        return (
            f"every shape of a budget was trained with the same {axis}, so that no loss curve runs over {axis} and no "
            f"two depths cross; the best depth at each budget takes their place"
        )

    @property
    def runs(self) -> list[Run]:
        return [run for part in self.parts.values() for run in part.selection.runs]

    @property
    def bad(self) -> list[BadRun]:
        return [found for part in self.parts.values() for found in part.bad]

    @property
    def warnings(self) -> list[str]:
        return [*self._own_warnings(), *_merged([part.warnings for part in self._main_first()])]

    def _main_first(self) -> list[Group]:
        main = self.trained.main
        return [self.parts[main], *(part for value, part in self.parts.items() if value != main)]

    def _own_warnings(self) -> list[str]:
        axis, lines = self.trained.axis, []
        if self.only and self.trained.left_out:
            lines.append(
                f"{self.trained.left_out} finished run(s) belong to no budget ({self.trained.known_from}) and are left "
                f"out"
            )
        off = [
            float(run.row[axis]) / value - 1.0
            for value, part in self.parts.items()
            for run in part.selection.runs
            if run.row.get(axis)
        ]
        worst = max((abs(share) for share in off), default=0.0)
        span = f"{100 * min(off, default=0.0):+.1f} … {100 * max(off, default=0.0):+.1f} %"
        if axis == FLOPS and worst > FAR_OFF:
            lines.append(
                f"flops: those of a run are {span} off its budget; the losses are corrected by 0.06 of "
                f"the loss per unit of ln tokens, an assumption, whose error is in the intervals"
            )
        if axis != FLOPS and worst > LATE:
            lines.append(
                f"device_seconds: the measured ones are {span} off the budget; shapes are compared as they were asked "
                f"to train, and one per cent more time is worth about 0.0006 of the loss"
            )
        if self.held_out and self.held_out.too_few:
            lines.append(held_out_line(self.held_out))
        return lines

    def cells(self) -> list[Cell]:
        """Cells of all budgets; ``axis_value`` says of which. A shape may stand there once per budget."""
        rows = []
        for value, part in self.parts.items():
            for cell in part.cells():
                rows.append(
                    cell if cell.excluded else replace(cell, axis_value=_axis_value(self.trained, value, part, cell))
                )
        return sorted(rows, key=lambda row: (row.depth, row.width, row.axis_value or 0.0))

    def noise(self) -> NoiseSummary:
        """Noise of the main budget."""
        return self.parts[self.trained.main].noise()

    def rates(self) -> list[RateRun]:
        """Rates of the main budget: a best rate moves with the length of training."""
        return self.parts[self.trained.main].rates()


def budgets_on_axis(
    trained: TrainedBudgets | None, options: FitOptions, group: Callable[[list[Row]], Group]
) -> AtBudgets | None:
    """The runs of each budget as one ``group`` against N; None where the axis is not what was equal."""
    if trained is None or trained.axis != options.axis:
        return None
    try:
        parts = {value: group(rows) for value, rows in trained.rows.items()}
    except InputError:
        if trained.only:
            raise
        return None  # runs that meet by the way, of several recipes: the fit does not need them
    return AtBudgets.of(trained, parts, options.confidence)


def _axis_value(trained: TrainedBudgets, value: float, part: Group, cell: Cell) -> float:
    """The mean over the runs of a cell; the budget itself where they have none."""
    own: list[Any] = [run.row.get(trained.axis) for run in part.selection.runs if run.shape == (cell.depth, cell.width)]
    known = [float(v) for v in own if v]
    return math.fsum(known) / len(known) if known else value


def _merged(lists: Iterable[Sequence[str]]) -> list[str]:
    """Each warning once: those of several budgets that begin alike differ in their numbers only."""
    first: dict[str, str] = {}
    again: dict[str, int] = {}
    for lines in lists:
        for line in lines:
            key = line.partition(":")[0]
            if key not in first:
                first[key] = line
            elif line != first[key]:
                again[key] = again.get(key, 0) + 1
    more = {key: f" (alike at {n} other budget{'s' if n > 1 else ''})" for key, n in again.items()}
    return [line + more.get(key, "") for key, line in first.items()]
