"""Runs at equal budgets of compute: the best depth and size of each, by one posterior of the losses of all budgets.

At one budget compute spent on size is not spent on tokens: the loss has a minimum over size and depth. With
x = ln N, y = ln L, and the terms of model.py,

    loss(x, y) at budget b = f_b(x) + h(x, y; θ) + δ(x, y)

f_b level common to all depths at a budget, a column of the posterior: an offset, a slope and waves of its own, which
     include the effect of tokens.
h, δ effect of depth, the same at every budget: a budget with few shapes, or a depth with few sizes, leans on the rest.

Every answer is a question to its draws, within the hull of the shapes of a budget (nets.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dwsweep.fit.ask import FEWEST_CELLS, FEWEST_DEPTHS, FEWEST_SIZES, held_out, quantiles
from dwsweep.fit.cells import Run, number
from dwsweep.fit.curves import Curves
from dwsweep.fit.guideline import held_out_line
from dwsweep.fit.lengths import TrainedBudgets
from dwsweep.fit.model import PRIORS, UNREPLICATED, Cells, Frame, budget_column, curved, distinct_sizes
from dwsweep.fit.nets import Grid, Nets, interval
from dwsweep.fit.one_variable import width_follows
from dwsweep.fit.posterior import Posterior
from dwsweep.fit.token_group import TokenGroup
from dwsweep.interval import Interval
from dwsweep.records.equal_budgets import (
    FLOPS,
    NOT_REACHED_HIGH,
    NOT_REACHED_LOW,
    REACHED,
    TOO_FEW,
    TRENDS,
    UNDECIDED,
    AtBudget,
    Budget,
    BudgetTrend,
    DepthProfile,
    EqualBudgets,
)
from dwsweep.records.fit import HeldOut
from dwsweep.records.transitions import Cell, numbers

# slope of a loss in ln tokens, over the loss, by which runs that miss their budget are corrected, and how far it may be
# wrong. Assumed: β·B/D^β of published laws is 0.03 … 0.09 of the loss; the median is 0.049 in Gemstones
LENGTH_SLOPE, LENGTH_SLOPE_SD = -0.07, 0.035
FEWEST_BUDGETS = 3
FAR_OFF = 0.02  # ratio of a run's FLOPs to its budget's beyond which a warning is given
LATE = 0.05  # ratio of measured to requested seconds, likewise
WHY = {
    REACHED: "",
    NOT_REACHED_LOW: "the loss is not shown to rise toward the {low} tried",
    NOT_REACHED_HIGH: "the loss is not shown to rise toward the {high} tried",
    UNDECIDED: "the loss is shown to rise toward neither the {low} nor the {high} tried",
}
OF_SIZES = {"low": "smallest size", "high": "largest size"}
OF_DEPTHS = {"low": "shallowest depth", "high": "deepest depth"}


class Measured(NamedTuple):
    """The runs of one budget and their cells, with x = ln N; curves: None if no run has a usable loss."""

    runs: Sequence[Run]
    curves: Curves | None


@dataclass(frozen=True)
class Shapes:
    """The K shapes of one budget. mean: (K,) nats, corrected to the exact budget, by ``off``·``LENGTH_SLOPE`` of it.
    spent: (K,) ln D + ln N, NaN where the tokens are not known."""

    axis: str
    value: float
    curves: Curves
    mean: np.ndarray
    off: np.ndarray
    spent: np.ndarray

    @classmethod
    def of(cls, axis: str, value: float, runs: Sequence[Run], curves: Curves) -> Shapes:
        off, tokens = np.zeros(len(curves.x)), np.full(len(curves.x), np.nan)
        for k in range(len(curves.x)):
            found = [run.row for run in runs if run.shape == curves.shape(k)]
            if axis == FLOPS:
                off[k] = np.mean([math.log(row[axis] / value) for row in found])
            if known := [row["tokens"] for row in found if row.get("tokens")]:
                tokens[k] = np.mean(np.log(known))
        return cls(axis, value, curves, curves.mean * (1.0 - LENGTH_SLOPE * off), off, tokens + curves.x)


def posterior_of(budgets: Sequence[Shapes]) -> Posterior:
    """The posterior of all budgets, each a column named by its place."""
    from scipy.linalg import block_diag

    each = [Cells.of(one.curves) for one in budgets]
    x, y, variance = (np.concatenate([vars(one)[name] for one in each]) for name in ("x", "y", "variance"))
    place = np.repeat(np.arange(len(each)), [len(one.x) for one in each])
    length = np.concatenate([LENGTH_SLOPE_SD * one.curves.mean * one.off for one in budgets])
    factors = np.hstack([block_diag(*(one.factors for one in each)), length[:, None]])
    known = all(one.df > 0.0 for one in each)
    return Posterior.of(
        Cells(
            x=x,
            y=y,
            mean=np.concatenate([one.mean for one in budgets]),
            variance=variance if known else np.zeros(len(x)),
            factors=factors[:, factors.any(axis=0)],
            df=sum(one.df for one in each) if known else 0.0,
            scatter=PRIORS["scatter"] if known else UNREPLICATED,
            columns=tuple((budget_column if k else curved)(str(k), place == k) for k in range(len(each))),
        )
    )


@dataclass(frozen=True)
class Sizes:
    """Width and tokens of a shape. weights: of a layer over d². spent: (6,) coefficients of ln D + ln N less ln of the
    budget over size and depth, which is smooth; NaN where the tokens are not known."""

    frame: Frame
    weights: float
    spent: np.ndarray

    @classmethod
    def of(cls, frame: Frame, budgets: Sequence[Shapes]) -> Sizes:
        x, depth, width = (np.concatenate([vars(b.curves)[name] for b in budgets]) for name in ("x", "depth", "width"))
        spent = np.concatenate([one.spent - math.log(one.value) for one in budgets])
        known, terms = np.isfinite(spent), _quadratic(frame, x, np.log(depth))
        found = np.linalg.lstsq(terms[known], spent[known], rcond=1e-9)[0] if known.any() else np.full(6, np.nan)
        return cls(frame, float(np.median(np.exp(x) / (depth * width**2))), found)

    def ln_width(self, x: np.ndarray, y: np.ndarray | float) -> np.ndarray:
        """ln d; NaN where size and depth are both beyond those tried."""
        with np.errstate(invalid="ignore"):
            return (x - y - math.log(self.weights)) / 2.0  # type: ignore[no-any-return]

    def ln_tokens(self, x: np.ndarray, y: np.ndarray, value: float) -> np.ndarray:
        """ln D at a budget; ±inf where x is."""
        inside = np.clip(x, self.frame.low, self.frame.high)
        return _quadratic(self.frame, inside, y) @ self.spent + math.log(value) - x


def _quadratic(frame: Frame, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    u, v = np.broadcast_arrays(frame.u(x), frame.v(np.clip(y, frame.first, frame.last)))
    return np.stack([np.ones_like(u), u, v, u * u, u * v, v * v], axis=-1)


@dataclass(frozen=True)
class Question:
    """Best shape at one budget, put to the posterior. tried: (depths,) places of the tried depths in the grid."""

    posterior: Posterior
    nets: Nets
    sizes: Sizes
    tried: np.ndarray
    confidence: float

    @classmethod
    def of(cls, posterior: Posterior, sizes: Sizes, place: int, shapes: Shapes, confidence: float) -> Question:
        ln_depths = np.log(np.array(shapes.curves.depths, dtype=float))
        grid = Grid.of(shapes.curves.x, np.log(shapes.curves.depth.astype(float)))
        nets = Nets(grid, posterior.losses(*grid.flat, {str(place): 1.0}))
        return cls(posterior, nets, sizes, np.abs(grid.y[:, None] - ln_depths).argmin(axis=0), confidence)

    @property
    def flat(self) -> bool:
        return bool(self.posterior.weighed.weights["none"] >= 1.0 - self.confidence)

    def interval(self, drawn: np.ndarray, **given: Any) -> Interval:
        return interval(self.posterior, drawn, self.confidence, **given)

    def above(self, k: int, best: bool) -> Interval:
        """Excess of the k-th tried depth at its best size over the best depth, nats, or over the best tried depth if
        ``best`` is unknown; unbounded if either may lie beyond the tried sizes."""
        _, edge, loss = self.nets.of_depths
        confined = (np.median(edge[:, self.tried], axis=0) == 0.0) & np.isfinite(loss[0, self.tried])
        if not confined[k] or not (best or (confined.all() and len(confined) > 1)):
            return Interval()
        own, others = loss[:, self.tried[k]], loss if best else loss[:, self.tried]
        value = float(own.mean() - others.mean(axis=0).min())
        low, middle, high = quantiles(own - others.min(axis=1), self.confidence)
        # by chance the least loss of a draw is lower than the mean's: the end on that side moves by as much
        found = Interval(value, low + min(value - middle, 0.0), high + max(value - middle, 0.0))
        return found.map(lambda nats: max(nats, 0.0))


def status_of(found: Interval) -> str:
    """Status of a minimum, by the finite ends of its interval."""
    if found.value is not None and found.bounded:
        return REACHED
    if (found.low is None) == (found.high is None):
        return UNDECIDED
    return NOT_REACHED_LOW if found.low is None else NOT_REACHED_HIGH


Drawn = dict[str, np.ndarray]  # quantity → (D,) its logarithm


def answered(
    axis: str, measured: Mapping[float, Measured], confidence: float
) -> tuple[tuple[Budget, ...], tuple[BudgetTrend, ...], HeldOut | None] | None:
    """(budgets, the smallest first, trends, prediction of each shape by the others); None if no budget has a usable
    loss. With fewer than nine shapes or three sizes at all budgets there is no model: the best tried shape is given."""
    given = sorted(measured.items())
    budgets = [Shapes.of(axis, value, runs, curves) for value, (runs, curves) in given if curves is not None]
    if not budgets:
        return None
    every = [one.curves for one in budgets]
    shapes, sizes = sum(len(one.x) for one in every), distinct_sizes(np.concatenate([one.x for one in every]))
    unknown = next((one.noise.why_unknown for one in every if one.noise.why_unknown), "")
    if shapes < FEWEST_CELLS or sizes < FEWEST_SIZES or unknown:
        why = f"{shapes} shapes of {sizes} sizes at all budgets, a best depth needs nine shapes of three sizes"
        return tuple(_budget(one, None, unknown or why, confidence)[0] for one in budgets), (), None
    posterior = posterior_of(budgets)
    depth, width = (np.concatenate([vars(one)[name] for one in every]) for name in ("depth", "width"))
    of_shape = Sizes.of(posterior.frame, budgets)
    found = [
        _budget(one, Question.of(posterior, of_shape, k, one, confidence), "", confidence)
        for k, one in enumerate(budgets)
    ]
    trends = tuple(_trends(found, confidence))
    return tuple(budget for budget, _ in found), trends, held_out(depth, width, posterior)


def _budget(shapes: Shapes, asked: Question | None, why_none: str, confidence: float) -> tuple[Budget, Drawn]:
    """A budget, and draws of ln of its best depth, size, width and tokens."""
    depths = shapes.curves.depths

    def row(where: np.ndarray, of_depth: int | None) -> AtBudget:
        tried = where[int(shapes.mean[where].argmin())]
        return AtBudget(
            axis=shapes.axis,
            budget=shapes.value,
            of_depth=of_depth,
            status=TOO_FEW,
            tried_depth=int(shapes.curves.depth[tried]),
            tried_width=number(round(shapes.curves.width[tried], 6)),
            tried_loss=float(shapes.mean[tried]),
            confidence=confidence,
            reason=why_none,
        )

    best = row(np.arange(len(shapes.mean)), None)
    rows = [row(shapes.curves.at(depth), depth) for depth in depths]
    if asked is None:
        return Budget(best=best, depths=tuple(rows), profile=None), {}
    best, drawn = _best(best, shapes, asked)
    reached = best.status == REACHED
    rows = [_of_depth(row, shapes, asked, k, reached) for k, row in enumerate(rows)]
    if reached and best.loss:
        worst = max(rows, key=lambda row: row.above_best or 0.0)
        if above := worst.above_best:
            more = worst.above_best_interval.columns("above_best")
            best = replace(best, worst_depth=float(depths[rows.index(worst)]), worst_percent=100.0 * above / best.loss)
            best = replace(best, **more)
    profile, loss = None, asked.nets.of_depths[2]
    if len(depths) >= FEWEST_DEPTHS:
        low, high = np.quantile(loss, [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0], axis=0)
        depth = numbers(np.exp(asked.nets.grid.y))
        profile = DepthProfile(depth=depth, loss=numbers(loss.mean(axis=0)), half=numbers((high - low) / 2.0))
    return Budget(best=best, depths=tuple(rows), profile=profile), drawn


def _of_depth(row: AtBudget, shapes: Shapes, asked: Question, k: int, best: bool) -> AtBudget:
    """Best size of the k-th tried depth."""
    at, y = asked.tried[k], math.log(shapes.curves.depths[k])
    drawn, edge, loss = (part[:, at] for part in asked.nets.of_depths)
    low, *_, high = asked.nets.grid.x[at].tolist()
    size = asked.interval(drawn, edge=edge, shape=False, ends=(low, high))
    status = status_of(size)
    if status != REACHED:
        size = replace(size, value=None)
    x = np.array(math.nan if size.value is None else size.value)
    tokens = float(asked.sizes.ln_tokens(x, np.array(y), shapes.value))
    return replace(
        row,
        status=status,
        depth=float(shapes.curves.depths[k]),
        **size.map(math.exp).columns("n_params"),
        **size.map(lambda x: float(np.exp(asked.sizes.ln_width(np.array(x), y)))).columns("width"),
        tokens=math.exp(tokens) if math.isfinite(tokens) else None,
        loss=float(np.median(loss)) if status == REACHED else None,
        **asked.above(k, best).columns("above_best"),
        reason=WHY[status].format(**OF_SIZES),
    )


def _best(row: AtBudget, shapes: Shapes, asked: Question) -> tuple[AtBudget, Drawn]:
    """Best shape of a budget, and draws of its quantities."""
    if (count := len(shapes.curves.depths)) < FEWEST_DEPTHS:
        return replace(row, reason=f"{count} depth{'s' if count > 1 else ''}; a best depth needs three"), {}
    if asked.flat:
        p = asked.posterior.weighed.weights["none"]
        return replace(row, status=UNDECIDED, reason=f"no effect of depth is shown (p = {p:.2g})"), {}
    x, y, edge = asked.nets.best
    low, *_, high = asked.nets.grid.y.tolist()
    depth, beyond = asked.interval(y, ends=(low, high)), float(np.median(np.where(edge == 0.0, x, edge)))
    if depth.value is not None and not math.isfinite(beyond):
        end = OF_SIZES["low" if beyond < 0 else "high"]
        return replace(row, status=UNDECIDED, reason=f"the best size may lie beyond the {end} tried"), {}
    status = status_of(depth)
    row = replace(row, status=status, reason=WHY[status].format(**OF_DEPTHS))
    if status != REACHED:
        return replace(row, **replace(depth, value=None).map(math.exp).columns("depth")), {}
    size = np.where(edge == 0.0, x, edge)
    width, tokens = asked.sizes.ln_width(size, y), asked.sizes.ln_tokens(size, y, shapes.value)
    drawn = {"depth": y, "n_params": size, "width": width, "tokens": tokens}
    drawn = {name: values for name, values in drawn.items() if not np.isnan(values).any()}
    found = {name: asked.interval(values).map(math.exp) for name, values in drawn.items()}
    ends: dict[str, Any] = {}
    for name in ("depth", "n_params", "width"):  # a draw without a best size and depth has no width
        ends |= found.get(name, Interval()).columns(name)
    ends["tokens"] = found["tokens"].value if "tokens" in found else None
    return replace(row, **ends, loss=float(asked.nets.of_depths[2].mean(axis=0).min())), drawn


def _trends(every: Sequence[tuple[Budget, Drawn]], confidence: float) -> Iterator[BudgetTrend]:
    """ln quantity = k + a·ln C by weighted least squares in every draw, over the budgets that reach it; none with fewer
    than three."""
    for name in TRENDS:
        having = [(b.best.budget, drawn[name]) for b, drawn in every if name in drawn]
        finite = [drawn[np.isfinite(drawn)] for _, drawn in having]
        if len(having) < FEWEST_BUDGETS or min(map(len, finite)) < (1.0 + confidence) / 2.0 * len(having[0][1]):
            continue
        x = np.log([value for value, _ in having])
        y = np.array([np.clip(drawn, few.min(), few.max()) for (_, drawn), few in zip(having, finite, strict=True)])
        weight = 1.0 / y.var(axis=1)
        weight /= weight.sum()
        away = x - float(weight @ x)
        low, middle, high = quantiles((weight * away) @ y / float(weight @ away**2), confidence)
        ends = Interval(middle, low, high).columns("exponent")
        yield BudgetTrend(quantity=name, **ends, budgets=len(x))


@dataclass(frozen=True)
class AtBudgets:
    """Part of a fit at equal budgets. record: None if no run has a loss.

    The runs of each budget are selected, judged and averaged by themselves, since a shape that was trained at several
    budgets is as many cells. One model then takes the losses of all budgets together.
    """

    trained: TrainedBudgets
    parts: Mapping[float, TokenGroup]
    record: EqualBudgets | None
    held_out: HeldOut | None = None

    @classmethod
    def of(cls, trained: TrainedBudgets, parts: Mapping[float, TokenGroup], confidence: float) -> AtBudgets:
        measured = {value: Measured(part.selection.runs, part.curves) for value, part in parts.items()}
        found = answered(trained.axis, measured, confidence)
        if found is None:
            return cls(trained, parts, None)
        budgets, trends, foretold = found
        given: dict[str, Any] = {name: vars(trained)[name] for name in ("axis", "known_from", "only")}
        return cls(trained, parts, EqualBudgets(**given, budgets=budgets, trends=trends), foretold)

    @property
    def one_variable(self) -> str:
        """Reason why no shape is better than another; empty if depth and width vary by themselves."""
        return width_follows([run for part in self.parts.values() for run in part.selection.runs])

    @property
    def why_no_law(self) -> str:
        axis = self.trained.axis
        return (
            f"every shape of a budget was trained with the same {axis}, so that no loss curve runs over {axis} and no "
            f"two depths cross; the answer is the best depth at each budget"
        )

    @property
    def warnings(self) -> list[str]:
        main = self.parts[self.trained.main]
        others = [part for part in self.parts.values() if part is not main]
        return [*self._own_warnings(), *_merged([part.warnings for part in (main, *others)])]

    def _own_warnings(self) -> Iterator[str]:
        trained, axis = self.trained, self.trained.axis
        if trained.only and trained.left_out:
            yield f"{trained.left_out} finished run(s) belong to no budget ({trained.known_from}) and are left out"
        off = [
            float(run.row[axis]) / value - 1.0
            for value, part in self.parts.items()
            for run in part.selection.runs
            if run.row.get(axis)
        ]
        worst = max((abs(share) for share in off), default=0.0)
        span = f"{100 * min(off, default=0.0):+.1f} … {100 * max(off, default=0.0):+.1f} %"
        if axis == FLOPS and worst > FAR_OFF:
            yield (
                f"flops: runs miss their budget by {span}; losses are corrected by {-LENGTH_SLOPE:g} of the loss per "
                f"unit of ln tokens, an assumption whose error is in the intervals"
            )
        if axis != FLOPS and worst > LATE:
            yield (
                f"device_seconds: runs miss their budget by {span}; shapes are compared at the requested time, and one "
                f"per cent more time lowers the loss by about {-LENGTH_SLOPE:g} %"
            )
        if self.held_out and self.held_out.too_few:
            yield held_out_line(self.held_out)

    def cells(self) -> list[Cell]:
        """Cells of all budgets; ``axis_value`` says of which. A shape may stand there once per budget."""
        rows = [
            cell if cell.excluded else replace(cell, axis_value=_axis_value(self.trained, value, part, cell))
            for value, part in self.parts.items()
            for cell in part.cells()
        ]
        return sorted(rows, key=lambda row: (row.depth, row.width, row.axis_value or 0.0))


def _axis_value(trained: TrainedBudgets, value: float, part: TokenGroup, cell: Cell) -> float:
    """The mean over the runs of a cell; the budget itself where they have none."""
    own: list[Any] = [
        run.row.get(trained.axis) for run in part.selection.runs if run.shape == (cell.depth, cell.width, cell.block)
    ]
    known = [float(v) for v in own if v]
    return math.fsum(known) / len(known) if known else value


def _merged(lists: Iterable[Sequence[str]]) -> list[str]:
    """Warnings of several budgets, each once: warnings that begin alike differ in their numbers only."""
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
