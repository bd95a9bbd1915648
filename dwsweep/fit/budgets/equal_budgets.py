"""What a table trained at equal compute says, as records: per budget the best size of each depth and the best depth
(budget_minima.py), over the budgets the powers with which they grow (budget_trends.py)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dwsweep.fit.budgets.budget_minima import DepthMinimum, OverDepths, Points, minima, points_of
from dwsweep.fit.budgets.budget_trends import trends
from dwsweep.fit.budgets.expansions import FREE, Minimum
from dwsweep.fit.budgets.trained_budgets import TrainedBudgets
from dwsweep.fit.cells import Run, number
from dwsweep.fit.curves import Curves
from dwsweep.records.budget_rows import (
    NOT_REACHED_HIGH,
    NOT_REACHED_LOW,
    REACHED,
    TOO_FEW,
    UNDECIDED,
    BestAtBudget,
    Budget,
    BudgetCurve,
    DepthAtBudget,
    DepthProfile,
    EqualBudgets,
)
from dwsweep.records.fit_rows import numbers

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


def _exp(value: float | None) -> float | None:
    return None if value is None else math.exp(value)


def _around(value: float | None, half: float | None) -> tuple[float | None, float | None]:
    return (None, None) if value is None or half is None else (value - half, value + half)


def _above_zero(value: float | None, half: float | None) -> tuple[float | None, float | None]:
    """The same for what is never negative."""
    return (None, None) if value is None or half is None else (max(value - half, 0.0), value + half)


def _depth_row(axis: str, value: float, points: Points, one: DepthMinimum, over: OverDepths) -> DepthAtBudget:
    curves = points.curves
    lowest = one.where[int(points.mean[one.where].argmin())]
    sizes = curves.sizes(one.depth)
    status, reason = TOO_FEW, f"{len(sizes)} size{'s' if len(sizes) > 1 else ''}, a minimum needs three"
    if len(sizes) >= FREE and one.minimum is None:
        status, reason = UNDECIDED, NOISE_UNKNOWN
    low = high = x = loss = half = tokens = above = above_half = None
    if one.minimum and one.curve:
        low, high, status = one.minimum.low, one.minimum.high, status_of(one.minimum)
        reason = WHY[status].format(**SIZES)
        if status == REACHED and one.minimum.x is not None:
            x, loss = one.minimum.x, one.curve.lowest(one.minimum.x)
            half = points.level_half(float(one.curve.at(x)[1]) ** 2)
            tokens = _finite(points.ln_tokens_at(one, x))
    width, narrow, wide = (
        None if v is None else float(np.exp(curves.ln_width_of(one.depth, v))) for v in (x, low, high)
    )
    found = over.apart(one)
    if found:
        above, above_half = max(found[0], 0.0), points.critical * found[1]
    ends, apart = _around(loss, half), _above_zero(above, above_half)
    return DepthAtBudget(
        axis=axis,
        budget=value,
        depth=one.depth,
        status=status,
        n_params=_exp(x),
        n_params_low=_exp(low),
        n_params_high=_exp(high),
        width=width,
        width_low=narrow,
        width_high=wide,
        tokens=tokens,
        tokens_per_param=tokens / math.exp(x) if tokens and x is not None else None,
        loss=loss,
        loss_low=ends[0],
        loss_high=ends[1],
        above_best=above,
        above_best_low=apart[0],
        above_best_high=apart[1],
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
    best = low = high = None
    if over.minimum:
        low, high, status = over.minimum.low, over.minimum.high, status_of(over.minimum)
        reason = WHY[status].format(**DEPTHS)
        best = over.at_best() if status == REACHED else None
    worst = _worst(over, points.critical) if best else None
    t = points.critical
    size = _around(best.x, t * best.x_sd) if best else (None, None)
    width = _around(best.ln_width, t * best.ln_width_sd) if best else (None, None)
    at = (best.x if best else None, *size)
    tokens = [_finite(best.ln_spent - x) if best and x is not None else None for x in at]
    loss = _around(best.loss, best.loss_half) if best else (None, None)
    return BestAtBudget(
        axis=axis,
        budget=value,
        spread=max(own) / min(own) - 1.0 if own else 0.0,
        runs=len(runs),
        shapes=len(curves.x),
        depths=len(curves.depths),
        status=status,
        depth=math.exp(best.y) if best else None,
        depth_low=_exp(low),
        depth_high=_exp(high),
        n_params=math.exp(best.x) if best else None,
        n_params_low=_exp(size[0]),
        n_params_high=_exp(size[1]),
        width=math.exp(best.ln_width) if best else None,
        width_low=_exp(width[0]),
        width_high=_exp(width[1]),
        tokens=tokens[0],
        tokens_low=tokens[2],
        tokens_high=tokens[1],
        tokens_per_param=tokens[0] / math.exp(best.x) if best and tokens[0] else None,
        loss=best.loss if best else None,
        loss_low=loss[0],
        loss_high=loss[1],
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
