"""Surface of losses at equal compute: one model of all budgets, and the best shape at each by its draws.

At one budget compute spent on size is not spent on tokens: the loss has a minimum over size and depth. With
x = ln N, y = ln L, and the terms of model.py,

    loss(x, y) at budget b = f_b(x) + h(x, y; θ) + δ(x, y)

f_b level common to all depths at a budget: an offset and a slope of its own, a curvature that the budgets share, and a
     smooth Gaussian process of its own. It includes the effect of tokens, and is no parabola.
h, δ effect of depth, the same at every budget: a budget with few shapes, or a depth with few sizes, leans on the rest.

Every answer is a question to the draws of that model, within the convex hull of the shapes of a budget: where the loss
is least over size and depth; over the size of one depth; by how much that depth is above the best one; with which power
of the budget the best shape grows. A draw whose least loss lies on the edge of the hull has its minimum beyond it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dwsweep.fit.ask import (
    FEWEST_CELLS,
    FEWEST_DEPTHS,
    FEWEST_SIZES,
    SAME_BUDGET,
    distinct_sizes,
    held_out,
    hull,
    quantiles,
)
from dwsweep.fit.cells import Run, Shape, number
from dwsweep.fit.curves import Curves
from dwsweep.fit.lengths import LENGTH_SLOPE, LENGTH_SLOPE_SD
from dwsweep.fit.model import PRIORS, UNREPLICATED, Frame, budget_column, curved
from dwsweep.fit.model import Cells as FittedCells
from dwsweep.fit.noise import seed_level
from dwsweep.fit.parabola import lowest
from dwsweep.fit.posterior import Posterior
from dwsweep.interval import Interval
from dwsweep.records.equal_budgets import (
    FLOPS,
    NOT_REACHED_HIGH,
    NOT_REACHED_LOW,
    REACHED,
    TOO_FEW,
    TRENDS,
    UNDECIDED,
    BestAtBudget,
    Budget,
    BudgetCurve,
    BudgetTrend,
    DepthAtBudget,
    DepthProfile,
)
from dwsweep.records.fit import HeldOut
from dwsweep.records.transitions import numbers

SIZES, DEPTHS = 41, 61  # points of the grids over the sizes of a depth and over the depths of a budget
STEEP = 1.0  # dx/dy of a hull's edge above which a depth lies beyond it, and no size
FEWEST_BUDGETS = 3
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
class Cells:
    """The shapes of one budget. value: the budget. mean (K,): corrected to the exact budget, nats; length (K,): how
    far that correction may be wrong. se (K,): None if the noise is not known. spent (K,): ln D + ln N, NaN where the
    tokens are not known. seed_sd: error that a seed shares over shapes, in a mean over seeds, with seed_df degrees of
    freedom."""

    axis: str
    value: float
    runs: Sequence[Run]
    curves: Curves
    mean: np.ndarray
    length: np.ndarray
    se: np.ndarray | None
    spent: np.ndarray
    seed_sd: float
    seed_df: float

    @classmethod
    def of(cls, axis: str, value: float, runs: Sequence[Run], curves: Curves) -> Cells:
        of_shape: dict[Shape, list[Run]] = defaultdict(list)
        for run in runs:
            of_shape[run.shape].append(run)
        shapes = [of_shape[curves.shape(k)] for k in range(len(curves.x))]
        off, tokens = np.zeros(len(shapes)), np.full(len(shapes), np.nan)
        for k, found in enumerate(shapes):
            if axis == FLOPS:
                off[k] = np.mean([math.log(run.row[axis] / value) for run in found])
            if known := [run.row["tokens"] for run in found if run.row.get("tokens")]:
                tokens[k] = np.mean(np.log(known))
        length = LENGTH_SLOPE_SD * curves.mean * off
        variances = curves.means.variances() + curves.noise.shape_variance + length**2
        return cls(
            axis,
            value,
            runs,
            curves,
            curves.mean - LENGTH_SLOPE * curves.mean * off,
            length,
            np.sqrt(variances) if curves.noise.known else None,
            tokens + curves.x,
            *(_seeds(runs) if curves.paired else (0.0, math.inf)),
        )

    @cached_property
    def hull(self) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """(y, x) of the corners of its lower and of its upper edge over y."""
        both = zip(self.curves.x.tolist(), np.log(self.curves.depth).tolist(), strict=True)
        return hull((y, x + room) for x, y in both for room in (-SAME_BUDGET, SAME_BUDGET))

    def grid(self, y: np.ndarray) -> np.ndarray:
        """(M, SIZES) of x, from the lower to the upper edge of the hull at y (M,)."""
        low, high = (np.interp(y, *edge) for edge in self.hull)
        return low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, SIZES)


def _seeds(runs: Sequence[Run]) -> tuple[float, float]:
    """(sd of a mean over the seeds of what a seed adds to all shapes alike, its degrees of freedom)."""
    places = {candidate: k for k, candidate in enumerate(dict.fromkeys(run.candidate for run in runs))}
    cell = np.array([places[run.candidate] for run in runs])
    variance, df = seed_level(np.array([run.loss for run in runs]), cell, [run.seed for run in runs]) or (0.0, math.inf)
    return math.sqrt(variance), df


@dataclass(frozen=True)
class Pooled:
    """The posterior of all budgets: every budget but the first is a column with a level of its own.

    widths, spent: coefficients (6,) of x − 2·ln d and of ln D + ln N less ln of the budget over size and depth: they
    are known but for rounding, and smooth. held_out: whether the others foretell a shape.
    """

    posterior: Posterior
    held_out: HeldOut
    widths: np.ndarray
    spent: np.ndarray

    @property
    def frame(self) -> Frame:
        return self.posterior.frame

    @property
    def effect_p(self) -> float:
        """Probability that depth does nothing."""
        return self.posterior.weighed.weights["none"]

    @classmethod
    def of(cls, budgets: Sequence[Cells]) -> Pooled:
        from scipy.linalg import block_diag

        curves = [cells.curves for cells in budgets]
        x, depth, width = (np.concatenate([vars(one)[name] for one in curves]) for name in ("x", "depth", "width"))
        mean, length, spent = (np.concatenate([vars(c)[name] for c in budgets]) for name in ("mean", "length", "spent"))
        place = np.repeat(np.arange(len(budgets)), [len(one.x) for one in curves])
        each = [FittedCells.of(one) for one in curves]
        factors = np.hstack([block_diag(*(one.factors for one in each)), length[:, None]])
        known = all(one.df > 0.0 for one in each)
        cells = FittedCells(
            x=x,
            y=np.log(depth.astype(float)),
            mean=mean,
            variance=np.concatenate([one.variance for one in each]) if known else np.zeros(len(x)),
            factors=factors[:, factors.any(axis=0)],
            df=sum(one.df for one in each) if known else 0.0,
            scatter=PRIORS["scatter"] if known else UNREPLICATED,
            columns=tuple((budget_column if k else curved)(str(k), place == k) for k in range(len(budgets))),
        )
        posterior = Posterior.of(cells)
        smooth, ln_budgets = _smooth(posterior.frame, x, cells.y), np.log([cells.value for cells in budgets])
        return cls(
            posterior,
            held_out(depth, width, posterior),
            _least_squares(smooth, x - 2.0 * np.log(width)),
            _least_squares(smooth, spent - ln_budgets[place]),
        )

    def losses(self, x: np.ndarray, y: np.ndarray, budget: int) -> np.ndarray:
        """(D, …) at x and y (…), nats."""
        depths = np.broadcast_to(y, x.shape).ravel()
        found = self.posterior.losses(x.ravel(), depths, {str(budget): 1.0})
        return found.reshape(-1, *x.shape)

    def ln_width(self, x: np.ndarray, y: np.ndarray, middle: np.ndarray) -> np.ndarray:
        """ln d of size x at depth y, where ``middle`` is a finite size near x."""
        return (x - _smooth(self.frame, middle, y) @ self.widths) / 2.0

    def ln_tokens(self, x: np.ndarray, y: np.ndarray, middle: np.ndarray, value: float) -> np.ndarray:
        """ln D of size x at depth y; NaN where the tokens are not known."""
        return _smooth(self.frame, middle, y) @ self.spent + math.log(value) - x


def _smooth(frame: Frame, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(…, 6) the terms of a quadratic in x and y."""
    u, v = np.broadcast_arrays(frame.u(x), frame.v(y))
    return np.stack([np.ones_like(u), u, v, u * u, u * v, v * v], axis=-1)


def _least_squares(A: np.ndarray, values: np.ndarray) -> np.ndarray:
    known = np.isfinite(values)
    return np.linalg.lstsq(A[known], values[known], rcond=1e-9)[0] if known.any() else np.full(A.shape[1], np.nan)


class OverSizes(NamedTuple):
    """The losses of M depths over their sizes. grid (M, SIZES): of x. losses (D, M, SIZES), nats. x, loss (D, M): the
    minimum of each draw in the hull. beyond (D, M): x, or ±inf where that lies on an end of the sizes."""

    grid: np.ndarray
    losses: np.ndarray
    x: np.ndarray
    beyond: np.ndarray
    loss: np.ndarray


class AtBudget:
    """Questions to the posterior at one budget."""

    def __init__(self, pooled: Pooled, place: int, cells: Cells) -> None:
        self.pooled, self.place, self.cells = pooled, place, cells
        ln_depths = np.log(np.array(cells.curves.depths, dtype=float))
        self.tried = self._over_sizes(ln_depths)
        self.y = np.linspace(ln_depths[0], ln_depths[-1], DEPTHS)
        self.between = self._over_sizes(self.y)
        # an error that all seeds of the budget share moves every loss alike
        scale_free = np.random.default_rng(0).standard_t(min(cells.seed_df, 1e6), len(self.tried.loss))
        self.seed_error = cells.seed_sd * scale_free

    def _over_sizes(self, y: np.ndarray) -> OverSizes:
        grid = self.cells.grid(y)
        losses = self.pooled.losses(grid, y[:, None], self.place)
        place, loss, _ = lowest(np.arange(SIZES), losses)
        x = grid[:, 0] + (grid[:, -1] - grid[:, 0]) * place / (SIZES - 1.0)
        return OverSizes(grid, losses, x, _beyond(place, x, SIZES), loss)

    @cached_property
    def best(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(x, y, both with ±inf where they lie beyond what was tried) of the best shape of each draw, (D,) each."""
        found = self.between
        place, *_ = lowest(np.arange(DEPTHS), found.loss)
        rows, left = np.arange(len(place)), np.minimum(place.astype(int), DEPTHS - 2)
        share, nearest = place - left, np.rint(place).astype(int)
        x = found.x[rows, left] * (1.0 - share) + found.x[rows, left + 1] * share
        y = self.y[0] + (self.y[-1] - self.y[0]) * place / (DEPTHS - 1.0)
        end = np.where(np.isinf(found.beyond[rows, nearest]), np.sign(found.beyond[rows, nearest]), 0)
        y_beyond = _beyond(place, y, DEPTHS)
        for side, edge in ((-1.0, 0), (1.0, -1)):
            slope = np.gradient(found.grid[:, edge], self.y)[nearest]
            steep = (end == side) & (np.abs(slope) > STEEP)
            y_beyond = np.where(steep, np.copysign(np.inf, -side * slope), y_beyond)
        return x, y, np.where(end == 0, x, np.copysign(np.inf, end)), y_beyond

    @cached_property
    def confined(self) -> np.ndarray:
        """(depths,) True if the best size of a tried depth lies inside the hull."""
        return np.isfinite(np.median(self.tried.beyond, axis=0))

    def above(self, k: int, best: bool, confidence: float) -> Interval:
        """Excess of a depth at its best size over the best depth, nats, or over the best tried depth if ``best`` is
        unknown; unbounded if either may lie beyond the tried sizes."""
        if not self.confined[k] or not (best or (self.confined.all() and len(self.confined) > 1)):
            return Interval()
        own, others = self.tried.loss[:, k], (self.between if best else self.tried).loss
        value = float(own.mean() - others.mean(axis=0).min())
        return _estimated(value, own - others.min(axis=1), confidence).map(lambda nats: max(nats, 0.0))


def _beyond(place: np.ndarray, value: np.ndarray, points: int) -> np.ndarray:
    """``value``, or ±inf where its ``place`` among ``points`` is an end."""
    return np.where(place <= 0.0, -np.inf, np.where(place >= points - 1.0, np.inf, value))


def _estimated(value: float, drawn: np.ndarray, confidence: float) -> Interval:
    """Estimate: mean of all draws with their interval. By chance the least loss of a draw is lower than the mean's, so
    the end on that side moves by the offset of their middle."""
    low, middle, high = quantiles(drawn, confidence)
    return Interval(value, low + min(value - middle, 0.0), high + max(value - middle, 0.0))


def _interval(
    drawn: np.ndarray, confidence: float, ends: Sequence[float] | np.ndarray = (-math.inf, math.inf)
) -> Interval:
    """Median and ends of draws; a quantile beyond the ``ends`` of the range tried is open."""
    low, middle, high = quantiles(drawn, confidence)
    return Interval(
        middle if math.isfinite(middle) else None,
        None if low == -math.inf else min(low, ends[1]),
        None if high == math.inf else max(high, ends[0]),
    )


def status_of(found: Interval) -> str:
    """Status of a minimum, by the finite ends of its interval."""
    if found.value is not None and found.bounded:
        return REACHED
    if (found.low is None) == (found.high is None):
        return UNDECIDED
    return NOT_REACHED_LOW if found.low is None else NOT_REACHED_HIGH


@dataclass(frozen=True)
class Answered:
    """The records of all budgets, the smallest first. held_out: None if there is no model."""

    budgets: tuple[Budget, ...]
    trends: tuple[BudgetTrend, ...]
    held_out: HeldOut | None


def answered(axis: str, measured: Mapping[float, Measured], confidence: float) -> Answered | None:
    """Answers of the joint model by budget; None if none of them has a usable
    loss. With fewer than nine shapes or three sizes at all budgets there is no model: only the best tried shape is
    given."""
    budgets = [
        Cells.of(axis, value, runs, curves) for value, (runs, curves) in sorted(measured.items()) if curves is not None
    ]
    if not budgets:
        return None
    shapes, sizes = (
        sum(len(cells.mean) for cells in budgets),
        distinct_sizes(np.concatenate([cells.curves.x for cells in budgets])),
    )
    unknown = next((cells.curves.noise.why_unknown for cells in budgets if cells.curves.noise.why_unknown), "")
    if shapes < FEWEST_CELLS or sizes < FEWEST_SIZES or unknown:
        why = f"{shapes} shapes of {sizes} sizes at all budgets, a best depth needs nine shapes of three sizes"
        return Answered(tuple(_budget(cells, None, unknown or why, confidence)[0] for cells in budgets), (), None)
    pooled = Pooled.of(budgets)
    every = [_budget(cells, AtBudget(pooled, k, cells), "", confidence) for k, cells in enumerate(budgets)]
    return Answered(tuple(budget for budget, _ in every), _trends(every, confidence), pooled.held_out)


Drawn = dict[str, np.ndarray]  # quantity → (D,) its logarithm


def _budget(cells: Cells, asked: AtBudget | None, why_none: str, confidence: float) -> tuple[Budget, Drawn]:
    best, drawn = _best_row(cells, asked, why_none, confidence)
    places = range(len(cells.curves.depths))
    rows = [_depth_row(cells, asked, k, best, why_none, confidence) for k in places]
    if best.status == REACHED and best.loss:
        worst = max(rows, key=lambda row: row.above_best or 0.0)
        above = worst.above_best_interval
        if above.value:
            percent = 100.0 * above.value / best.loss
            best = replace(best, worst_depth=float(worst.depth), **above.columns("worst_nats"), worst_percent=percent)
    profile = None
    if asked and len(rows) >= FEWEST_DEPTHS:
        losses = asked.between.loss
        profile = DepthProfile(
            depth=numbers(np.exp(asked.y)), loss=numbers(losses.mean(axis=0)), half=numbers(_half(losses, confidence))
        )
    curves = tuple(_curve(cells, asked, k, confidence) for k in places)
    return Budget(best=best, depths=tuple(rows), curves=curves, profile=profile), drawn


def _tried(cells: Cells, where: np.ndarray) -> dict[str, Any]:
    """Shape with the lowest mean loss among the shapes ``where``."""
    lowest = where[int(cells.mean[where].argmin())]
    return {
        "tried_width": number(round(cells.curves.width[lowest], 6)),
        "tried_n_params": number(round(cells.curves.n_params[lowest], 6)),
        "tried_loss": float(cells.mean[lowest]),
    }


def _depth_row(
    cells: Cells, asked: AtBudget | None, k: int, best: BestAtBudget, why_none: str, confidence: float
) -> DepthAtBudget:
    depth = cells.curves.depths[k]
    sizes = cells.curves.sizes(depth)
    row = DepthAtBudget(
        axis=cells.axis,
        budget=cells.value,
        depth=depth,
        status=TOO_FEW,
        sizes=len(sizes),
        smallest=math.exp(sizes[0]),
        largest=math.exp(sizes[-1]),
        **_tried(cells, cells.curves.at(depth)),
        confidence=confidence,
        reason=why_none,
    )
    if asked is None:
        return row
    found, pooled, y = asked.tried, asked.pooled, np.log(depth)
    size = _interval(found.beyond[:, k], confidence, found.grid[k, [0, -1]])
    width = _interval(pooled.ln_width(found.beyond[:, k], y, found.x[:, k]), confidence)
    status, loss, tokens = status_of(size), Interval(), None
    if status == REACHED and size.value is not None:
        loss = _interval(found.loss[:, k] + asked.seed_error, confidence)
        x = np.array(size.value)
        ln_tokens = float(pooled.ln_tokens(x, y, x, cells.value))
        tokens = math.exp(ln_tokens) if math.isfinite(ln_tokens) else None
    else:
        size, width = replace(size, value=None), replace(width, value=None)
    return replace(
        row,
        status=status,
        **size.map(math.exp).columns("n_params"),
        **width.map(math.exp).columns("width"),
        tokens=tokens,
        tokens_per_param=tokens / math.exp(size.value) if tokens and size.value is not None else None,
        **loss.columns("loss"),
        **asked.above(k, best.status == REACHED, confidence).columns("above_best"),
        reason=WHY[status].format(**OF_SIZES),
    )


def _best_row(cells: Cells, asked: AtBudget | None, why_none: str, confidence: float) -> tuple[BestAtBudget, Drawn]:
    """Best shape at a budget, and draws of ln of its depth and size."""
    curves, count = cells.curves, len(cells.curves.depths)
    own = [float(run.row[cells.axis]) for run in cells.runs if run.row.get(cells.axis)]
    row = BestAtBudget(
        axis=cells.axis,
        budget=cells.value,
        spread=max(own) / min(own) - 1.0 if own else 0.0,
        runs=len(cells.runs),
        shapes=len(curves.x),
        depths=count,
        status=TOO_FEW,
        tried_depth=int(curves.depth[int(cells.mean.argmin())]),
        **_tried(cells, np.arange(len(curves.x))),
        noise_source=curves.noise.source,
        confidence=confidence,
        reason=why_none,
    )
    if asked is None:
        return row, {}
    if count < FEWEST_DEPTHS:
        return replace(row, reason=f"{count} depth{'s' if count > 1 else ''}; a best depth needs three"), {}
    status, reason, ln_depth = _best_depth(asked, confidence)
    row = replace(row, status=status, reason=reason, **ln_depth.map(math.exp).columns("depth"))
    if status != REACHED:
        return row, {}
    x, y, beyond, _ = asked.best
    drawn = {
        "depth": y,
        "n_params": beyond,
        "width": asked.pooled.ln_width(beyond, y, x),
        "tokens": asked.pooled.ln_tokens(beyond, y, x, cells.value),
    }
    drawn = {name: values for name, values in drawn.items() if not np.isnan(values).any()}
    found = {name: _interval(values, confidence).map(math.exp) for name, values in drawn.items()}
    losses = asked.between.loss
    found["loss"] = _estimated(float(losses.mean(axis=0).min()), losses.min(axis=1) + asked.seed_error, confidence)
    tokens, size = (found.get(name, Interval()).value for name in ("tokens", "n_params"))
    ends = {column: value for name, one in found.items() for column, value in one.columns(name).items()}
    return replace(row, **ends, tokens_per_param=tokens / size if tokens and size else None), drawn


def _best_depth(asked: AtBudget, confidence: float) -> tuple[str, str, Interval]:
    """(status, reason, interval of ln L) of the best depth of a budget."""
    if asked.pooled.effect_p >= 1.0 - confidence:
        return UNDECIDED, f"no effect of depth is shown (p = {asked.pooled.effect_p:.2g})", Interval()
    _, _, sizes, depths = asked.best
    size, depth = np.median(sizes), _interval(depths, confidence, asked.y[[0, -1]])
    if depth.value is not None and not math.isfinite(size):
        end = OF_SIZES["low" if size < 0 else "high"]
        return UNDECIDED, f"the best size may lie beyond the {end} tried", Interval()
    status = status_of(depth)
    return status, WHY[status].format(**OF_DEPTHS), depth if status == REACHED else replace(depth, value=None)


def _half(drawn: np.ndarray, confidence: float) -> np.ndarray:
    """(M,) half the pointwise band of draws (D, M)."""
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(drawn, [tail, 1.0 - tail], axis=0)
    return (high - low) / 2.0


def _curve(cells: Cells, asked: AtBudget | None, k: int, confidence: float) -> BudgetCurve:
    where = cells.curves.at(cells.curves.depths[k])
    x, drawn = (asked.tried.grid[k], asked.tried.losses[:, k]) if asked else (np.zeros(0), np.zeros((1, 0)))
    return BudgetCurve(
        depth=cells.curves.depths[k],
        n_params=numbers(np.exp(cells.curves.x[where])),
        mean=numbers(cells.mean[where]),
        se=numbers(cells.se[where]) if cells.se is not None else None,
        grid=numbers(np.exp(x)),
        loss=numbers(drawn.mean(axis=0)),
        half=numbers(_half(drawn, confidence)) if asked else None,
    )


def _trends(every: Sequence[tuple[Budget, Drawn]], confidence: float) -> tuple[BudgetTrend, ...]:
    """ln quantity = k + a·ln C by weighted least squares in every draw, over the budgets that reach it; none with fewer
    than three."""
    trends = []
    for name in TRENDS:
        having = [(b.best.budget, drawn[name]) for b, drawn in every if b.best.of(name).bounded and name in drawn]
        if len(having) < FEWEST_BUDGETS:
            continue
        x = np.log([value for value, _ in having])
        finite = [drawn[np.isfinite(drawn)] for _, drawn in having]
        y = np.array([np.clip(drawn, few.min(), few.max()) for (_, drawn), few in zip(having, finite, strict=True)])
        weight = 1.0 / y.var(axis=1)
        weight /= weight.sum()
        middle = float(weight @ x)
        slope = (weight * (x - middle)) @ y / float(weight @ (x - middle) ** 2)
        trends.append(
            BudgetTrend(
                quantity=name,
                **replace(_interval(slope, confidence), value=float(np.median(slope))).columns("exponent"),
                budgets=len(x),
                at_budget=math.exp(middle),
                value=math.exp(float(np.median(weight @ y))),
            )
        )
    return tuple(trends)
