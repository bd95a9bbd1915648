"""Which runs were trained at equal compute: with the same FLOPs, or for the same time.

What was asked is taken from the table where it says so (a column ``train_flops`` or ``train_seconds``) or from the
runs' config.json; else runs whose own values agree form a budget: FLOPs are counted, so they agree but for whole steps;
measured seconds agree as well as the clock.

Runs of equal compute: the best size of each depth, and the best depth at each budget.

The budgets of a table as one fit: each budget's runs are selected, judged and averaged by themselves, since a shape
that was trained at several budgets is as many cells; here they come together again.

What a table trained at equal compute says, as records: per budget the best size of each depth and the best depth
(budget_minima.py), over the budgets the powers with which they grow (budget_trends.py).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.fit.budget_minima import FREE, DepthMinimum, Minimum, OverDepths, Points, minima, points_of, trends
from dwsweep.fit.cells import BadRun, Run, Selection, Shape, n_params_of, number
from dwsweep.fit.curves import Curves
from dwsweep.fit.rows import Row
from dwsweep.fit.table import Table
from dwsweep.interval import Interval
from dwsweep.records import record as reader
from dwsweep.records.fit import FitOptions, NoiseSummary
from dwsweep.records.run import RunConfig
from dwsweep.records.studies import (
    FLOPS,
    NOT_REACHED_HIGH,
    NOT_REACHED_LOW,
    REACHED,
    SECONDS,
    TOO_FEW,
    UNDECIDED,
    BestAtBudget,
    Budget,
    BudgetCurve,
    DepthAtBudget,
    DepthProfile,
    EqualBudgets,
)
from dwsweep.records.transitions import Cell, RateRun, numbers
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
    """What a column says was asked."""
    promises = {name: [row.get(f"train_{key}") for row in data.rows] for name, key in KEYS.items()}
    return _promised(data.rows, promises, "the column train_{}")


def _configs(data: Table) -> TrainedBudgets | None:
    """What the configs of the runs say was asked."""
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
    """What the runs' own values say, where that explains the table."""
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
    """What a fit takes from the budgets instead of from one group of runs. record: None where no run has a loss."""

    trained: TrainedBudgets
    parts: Mapping[float, Group]
    record: EqualBudgets | None

    @classmethod
    def of(cls, trained: TrainedBudgets, parts: Mapping[float, Group], confidence: float) -> AtBudgets:
        measured = {value: Measured(part.selection.runs, part.curves) for value, part in parts.items()}
        return cls(trained, parts, equal_budgets(trained, measured, confidence))

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
    def selection(self) -> Selection:
        """Selection over all budgets. A shape is excluded where it is at every budget that has it."""
        chosen = [part.selection for part in self.parts.values()]
        runs: list[Run] = [run for one in chosen for run in one.runs]
        used = {run.shape for run in runs}
        excluded: dict[Shape, str] = {}
        for one in chosen:
            excluded |= {shape: why for shape, why in one.excluded.items() if shape not in used}
        rules = dict.fromkeys(one.diverged_rule for one in chosen if one.diverged_rule)
        return Selection(runs, excluded, {}, [], "; ".join(rules) or None)

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
                f"flops: those of a run are {span} off its budget (whole steps); the losses are corrected by 0.06 of "
                f"the loss per unit of ln tokens, an assumption, whose error is in the intervals"
            )
        if axis != FLOPS and worst > LATE:
            lines.append(
                f"device_seconds: the measured ones are {span} off the budget; shapes are compared as they were asked "
                f"to train, and one per cent more time is worth about 0.0006 of the loss"
            )
        for budget in self.record.budgets if self.record else ():
            bent = [f"L {row.depth} ×{row.misfit:.1f}" for row in budget.depths if row.misfit and row.misfit > 1.0]
            if budget.best.misfit and budget.best.misfit > 1.0:
                bent.append(f"over depths ×{budget.best.misfit:.1f}")
            if bent:
                lines.append(
                    f"no smooth curve passes the losses at {format_count(budget.best.budget)} {axis}; errors were "
                    f"widened: {', '.join(bent)}"
                )
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


GRID_POINTS = 81
WHY = {
    REACHED: "",
    NOT_REACHED_LOW: "the loss does not surely rise toward the {low} tried",
    NOT_REACHED_HIGH: "the loss does not surely rise toward the {high} tried",
    UNDECIDED: "the loss surely rises toward neither the {low} nor the {high} tried",
}
NOISE_UNKNOWN = "the noise is not known"
SIZES = {"low": "smallest size", "high": "largest size"}
DEPTHS = {"low": "shallowest depth", "high": "deepest depth"}


class Measured(NamedTuple):
    """The runs of one budget and their cells, with x = ln N; curves: None where no run has a usable loss."""

    runs: Sequence[Run]
    curves: Curves | None


def equal_budgets(
    trained: TrainedBudgets, measured: Mapping[float, Measured], confidence: float
) -> EqualBudgets | None:
    """All budgets of ``measured``, by their value; None where none of them has a usable loss."""
    budgets = [
        _budget(trained.axis, value, runs, curves, confidence)
        for value, (runs, curves) in sorted(measured.items())
        if curves is not None
    ]
    if not budgets:
        return None
    return EqualBudgets(
        axis=trained.axis,
        known_from=trained.known_from,
        only=trained.only,
        budgets=tuple(budgets),
        trends=tuple(trends([budget.best for budget in budgets], confidence)),
    )


def _budget(axis: str, value: float, runs: Sequence[Run], curves: Curves, confidence: float) -> Budget:
    points = points_of(axis, value, runs, curves, confidence)
    found = minima(points)
    over = OverDepths.of(points, found)
    return Budget(
        best=_best_row(axis, value, points, runs, over),
        depths=tuple(_depth_row(axis, value, points, one, over) for one in found),
        curves=tuple(_curve(points, one) for one in found),
        profile=_profile(over),
    )


def status_of(found: Minimum) -> str:
    """Which ends of a minimum's interval there are."""
    if found.x is not None and found.low is not None and found.high is not None:
        return REACHED
    if (found.low is None) == (found.high is None):
        return UNDECIDED
    return NOT_REACHED_LOW if found.low is None else NOT_REACHED_HIGH


def _above_zero(value: float, half: float) -> Interval:
    """value ± half, clipped at zero."""
    return Interval(max(value, 0.0), max(value - half, 0.0), value + half)


def _depth_row(axis: str, value: float, points: Points, one: DepthMinimum, over: OverDepths) -> DepthAtBudget:
    curves = points.curves
    lowest = one.where[int(points.mean[one.where].argmin())]
    sizes = curves.sizes(one.depth)
    status, reason = TOO_FEW, f"{len(sizes)} size{'s' if len(sizes) > 1 else ''}, a minimum needs three"
    if len(sizes) >= FREE and one.minimum is None:
        status, reason = UNDECIDED, NOISE_UNKNOWN
    low = high = x = tokens = None
    loss = above = Interval()
    if one.minimum and one.curve:
        low, high, status = one.minimum.low, one.minimum.high, status_of(one.minimum)
        reason = WHY[status].format(**SIZES)
        if status == REACHED and one.minimum.x is not None:
            x = one.minimum.x
            loss = Interval.around(one.curve.lowest(x), points.level_half(float(one.curve.at(x)[1]) ** 2))
            tokens = _finite(points.ln_tokens_at(one, x))
    size = Interval(x, low, high)
    if found := over.apart(one):
        nats = max(found[0], 0.0)
        above = _above_zero(nats, points.critical * found[1])
    return DepthAtBudget(
        axis=axis,
        budget=value,
        depth=one.depth,
        status=status,
        **size.map(math.exp).columns("n_params"),
        **size.map(lambda v: float(np.exp(curves.ln_width_of(one.depth, v)))).columns("width"),
        tokens=tokens,
        tokens_per_param=tokens / math.exp(x) if tokens and x is not None else None,
        **loss.columns("loss"),
        **above.columns("above_best"),
        sizes=len(sizes),
        smallest=math.exp(sizes[0]),
        largest=math.exp(sizes[-1]),
        tried_width=number(round(curves.width[lowest], 6)),
        tried_n_params=number(round(curves.n_params[lowest], 6)),
        tried_loss=float(points.mean[lowest]),
        misfit=one.curve.misfit if one.curve else None,
        confidence=points.confidence,
        reason=reason,
    )


def _finite(ln_value: float) -> float | None:
    return math.exp(ln_value) if math.isfinite(ln_value) else None


def _best_row(axis: str, value: float, points: Points, runs: Sequence[Run], over: OverDepths) -> BestAtBudget:
    curves = points.curves
    lowest = int(points.mean.argmin())
    own = [float(run.row[axis]) for run in runs if run.row.get(axis)]
    status, reason = TOO_FEW, _too_few(over, len(curves.depths))
    best = None
    depth = Interval()
    if over.minimum:
        status = status_of(over.minimum)
        reason = WHY[status].format(**DEPTHS)
        best = over.at_best() if status == REACHED else None
        depth = Interval(best.y if best else None, over.minimum.low, over.minimum.high)
    worst = _worst(over, points.critical) if best else None
    t = points.critical
    size = Interval.around(best.x, t * best.x_sd) if best else Interval()
    width = Interval.around(best.ln_width, t * best.ln_width_sd) if best else Interval()
    tokens = [_finite(best.ln_spent - x) if best and x is not None else None for x in (size.value, size.low, size.high)]
    loss = Interval.around(best.loss, best.loss_half) if best else Interval()
    return BestAtBudget(
        axis=axis,
        budget=value,
        spread=max(own) / min(own) - 1.0 if own else 0.0,
        runs=len(runs),
        shapes=len(curves.x),
        depths=len(curves.depths),
        status=status,
        **depth.map(math.exp).columns("depth"),
        **size.map(math.exp).columns("n_params"),
        **width.map(math.exp).columns("width"),
        tokens=tokens[0],
        tokens_low=tokens[2],
        tokens_high=tokens[1],
        tokens_per_param=tokens[0] / math.exp(best.x) if best and tokens[0] else None,
        **loss.columns("loss"),
        worst_depth=worst[0] if worst else None,
        worst_nats=worst[1] if worst else None,
        worst_nats_low=worst[2] if worst else None,
        worst_nats_high=worst[3] if worst else None,
        worst_percent=100.0 * worst[1] / best.loss if worst and best else None,
        tried_depth=int(curves.depth[lowest]),
        tried_width=number(round(curves.width[lowest], 6)),
        tried_n_params=number(round(curves.n_params[lowest], 6)),
        tried_loss=float(points.mean[lowest]),
        misfit=over.curve.misfit if over.curve else None,
        noise_source=curves.noise.source,
        confidence=points.confidence,
        reason=reason,
    )


def _too_few(over: OverDepths, depths: int) -> str:
    """Why there is no curve over depths."""
    if not over.points.curves.noise.known:
        return NOISE_UNKNOWN
    if depths < FREE:
        return f"{depths} depth{'s' if depths > 1 else ''}, a best one needs three"
    sizes = over.points.curves.sizes
    if all(len(sizes(depth)) < FREE for depth in over.points.curves.depths):
        return "every depth has fewer than three sizes"
    return "fewer than three depths have their lowest loss inside the sizes tried"


def _worst(over: OverDepths, critical: float) -> tuple[float, float, float, float] | None:
    """(depth, nats above the best, ends of its interval) of the depth that loses most at its best size."""
    apart = {one.depth: found for one in over.found if (found := over.apart(one))}
    if not apart:
        return None
    depth = max(apart, key=lambda d: apart[d][0])
    nats, se = apart[depth]
    return float(depth), nats, max(nats - critical * se, 0.0), nats + critical * se


def _curve(points: Points, one: DepthMinimum) -> BudgetCurve:
    curves, where = points.curves, one.where
    sizes = curves.sizes(one.depth)
    x = np.linspace(sizes[0], sizes[-1], GRID_POINTS) if one.curve else np.zeros(0)
    loss, se = one.curve.at(x) if one.curve else (x, x)
    return BudgetCurve(
        depth=one.depth,
        n_params=numbers(np.exp(curves.x[where])),
        mean=numbers(points.mean[where]),
        se=numbers(np.sqrt(np.diagonal(points.covariance)[where])) if curves.noise.known else None,
        grid=numbers(np.exp(x)),
        loss=numbers(loss),
        half=numbers(points.critical * se) if one.curve else None,
    )


def _profile(over: OverDepths) -> DepthProfile | None:
    if over.curve is None:
        return None
    y = np.linspace(over.curve.first, over.curve.last, GRID_POINTS)
    loss, se = over.curve.at(y)
    return DepthProfile(depth=numbers(np.exp(y)), loss=numbers(loss), half=numbers(over.points.critical * se))
