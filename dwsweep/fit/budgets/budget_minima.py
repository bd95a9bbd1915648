"""The best size of each depth and the best depth at equal compute: approach 2 of Hoffmann et al. 2022, for every depth.

At one budget, what is spent on size is not spent on tokens, so that the loss of a depth has a minimum in ln N. Each
depth's curve gives its minimum by itself; a curve through the minima over ln L gives the best depth, and the size and
the tokens that go with it. Both curves are expansions about their minimum (expansions.py), and every interval is the
set of places where the slope may be zero. What is not bracketed by what was tried is not reached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.budgets.expansions import FREE, Expansion, Minimum, expand, misfit
from dwsweep.fit.budgets.trained_budgets import FLOPS
from dwsweep.fit.cells import Run
from dwsweep.fit.curves import Curves
from dwsweep.fit.noise import t_two_sided

# rates of the expansions: c₃/c₂ of compute-optimal laws is β − α, at most 0.4 in size; of a depth that moves away from
# its best one −0.8 … −1.6, by public transitions (tests/simulations) and by penalties of either side that are powers
RATE_SIZE, RATE_DEPTH = 0.5, 1.5
# what a run whose budget is not quite that of the others would have lost or gained: nats per nat of loss and unit of ln
# tokens, and how far that may be wrong. Assumed; β·B/D^β of published laws is 0.03 … 0.09 of the loss.
LENGTH_SLOPE, LENGTH_SLOPE_SD = -0.06, 0.04
MISFIT_P_VALUE = 0.05


@dataclass(frozen=True)
class Points:
    """The cells of one budget.

    curves: with x = ln N. mean (K,), covariance (K, K): corrected to the exact budget, luck of a shape included, nats.
    ln_tokens (K,): NaN where they are not known. critical: t of the intervals. seed_variance: of what the seeds share,
    in a mean over them, nats², with seed_df; 0 where it cannot be told.
    """

    curves: Curves
    mean: np.ndarray
    covariance: np.ndarray
    ln_tokens: np.ndarray
    df: float
    confidence: float
    seed_variance: float
    seed_df: float

    @property
    def critical(self) -> float:
        return t_two_sided(self.confidence, self.df)

    def ln_tokens_at(self, one: DepthMinimum, x: float) -> float:
        """ln of the tokens that a depth is trained on at ln N = x; NaN where they are not known."""
        return float(np.interp(x, self.curves.x[one.where], self.ln_tokens[one.where]))

    def level_half(self, variance: float) -> float:
        """Half the interval of a loss: the noise of the shapes and the luck of the seeds."""
        # each with the t of its own degrees of freedom: of few seeds the variance is hardly known
        seeds = t_two_sided(self.confidence, self.seed_df) ** 2 * self.seed_variance if self.seed_variance else 0.0
        return math.sqrt(self.critical**2 * variance + seeds)


@dataclass(frozen=True, eq=False)
class DepthMinimum:
    """A depth's curve and its minimum; both None with fewer than three sizes or where the noise is not known."""

    depth: int
    where: np.ndarray
    curve: Expansion | None
    minimum: Minimum | None

    @property
    def x(self) -> float | None:
        return self.minimum.x if self.minimum else None


def points_of(axis: str, value: float, runs: Sequence[Run], curves: Curves, confidence: float) -> Points:
    shapes = list(zip(curves.depth.tolist(), curves.width.tolist(), strict=True))
    off, ln_tokens = np.zeros(len(shapes)), np.full(len(shapes), np.nan)
    for k, shape in enumerate(shapes):
        rows = [run.row for run in runs if run.shape == shape]
        if axis == FLOPS:
            off[k] = np.mean([math.log(row[axis] / value) for row in rows])
        tokens = [row["tokens"] for row in rows if row.get("tokens")]
        ln_tokens[k] = np.mean(np.log(tokens)) if tokens else np.nan
    noise = curves.noise
    length = LENGTH_SLOPE_SD * curves.mean * off
    covariance = curves.total_covariance + np.outer(length, length)
    seeds, seed_df = _seed_variance(runs) if curves.paired else (0.0, math.inf)
    return Points(
        curves=curves,
        mean=curves.mean - LENGTH_SLOPE * curves.mean * off,
        covariance=covariance,
        ln_tokens=ln_tokens,
        df=min(noise.df.values()),
        confidence=confidence,
        seed_variance=seeds,
        seed_df=seed_df,
    )


def _seed_variance(runs: Sequence[Run]) -> tuple[float, float]:
    """(variance of a mean over the seeds of what a seed shares over all shapes, its degrees of freedom)."""
    seeds = sorted({run.seed for run in runs}, key=str)
    cells: dict[tuple[int, float, float | None], dict[object, float]] = {}
    for run in runs:
        cells.setdefault(run.candidate, {})[run.seed] = run.loss
    whole = np.array([[losses[s] for s in seeds] for losses in cells.values() if len(losses) == len(seeds)])
    if len(seeds) < 2 or not len(whole):
        return 0.0, math.inf
    effects = (whole - whole.mean(axis=1, keepdims=True)).mean(axis=0)
    return float(effects.var(ddof=1)) / len(seeds), len(seeds) - 1.0


def minima(points: Points) -> list[DepthMinimum]:
    """Every depth's curve. Errors are widened where its points miss a curve by more than they allow: those of one depth
    by themselves, or those of the others together."""
    curves = points.curves
    found: dict[int, Expansion] = {}
    for depth in curves.depths if curves.noise.known else ():
        where = curves.at(depth)
        if len(curves.sizes(depth)) >= FREE:
            covariance = points.covariance[np.ix_(where, where)]
            found[depth] = expand(curves.x[where], points.mean[where], covariance, RATE_SIZE)
    others = misfit([curve for curve in found.values() if not curve.rejected], MISFIT_P_VALUE)
    widened = {
        depth: curve.widened(misfit([curve], 1.0) if curve.rejected else others) for depth, curve in found.items()
    }
    return [
        DepthMinimum(depth, curves.at(depth), curve, curve.minimum(points.critical) if curve else None)
        for depth in curves.depths
        for curve in [widened.get(depth)]
    ]


@dataclass(frozen=True)
class Best:
    """The best shape between the depths tried. y: ln L; x: ln N and ln_width: ln d, each with its sd; ln_spent: ln D +
    ln N, NaN where tokens are not known; loss in nats, with half its interval."""

    y: float
    x: float
    x_sd: float
    ln_width: float
    ln_width_sd: float
    ln_spent: float
    loss: float
    loss_half: float


@dataclass(frozen=True)
class OverDepths:
    """The minima of the depths, and the curve through them over ln L.

    found: the depths whose curve has its lowest point inside the sizes tried. losses (M,) and covariance (M, M) there.
    curve: of the losses; sizes: of ln N at the minima; minimum: of the curve. None with fewer than three depths.
    """

    points: Points
    found: list[DepthMinimum]
    losses: np.ndarray
    covariance: np.ndarray
    curve: Expansion | None
    sizes: Expansion | None
    minimum: Minimum | None

    @classmethod
    def of(cls, points: Points, found: Sequence[DepthMinimum]) -> OverDepths:
        inside = [one for one in found if one.curve and one.minimum and one.minimum.se is not None]
        weights = np.zeros((len(inside), len(points.mean)))
        losses, variances, x, x_variances = (np.zeros(len(inside)) for _ in range(4))
        for i, one in enumerate(inside):
            assert one.curve and one.minimum and one.minimum.x is not None and one.minimum.se is not None
            x[i], x_variances[i] = one.minimum.x, one.minimum.se**2
            weights[i, one.where] = one.curve.row(x[i]) @ one.curve.weights
            losses[i], variances[i] = one.curve.lowest(x[i]), float(one.curve.at(x[i])[1]) ** 2
        # what one depth's minimum shares with another's: the documents; its own variance holds the expansion's error
        covariance = weights @ points.covariance @ weights.T
        np.fill_diagonal(covariance, np.maximum(variances, np.diagonal(covariance)))
        if len(inside) < FREE:
            return cls(points, inside, losses, covariance, None, None, None)
        ln_depth = np.log([one.depth for one in inside])
        curve = expand(ln_depth, losses, covariance, RATE_DEPTH)
        curve = curve.widened(misfit([curve], MISFIT_P_VALUE))
        sizes = expand(ln_depth, x, np.diag(x_variances), RATE_DEPTH)
        sizes = sizes.widened(misfit([sizes], MISFIT_P_VALUE))
        return cls(points, inside, losses, covariance, curve, sizes, curve.minimum(points.critical))

    def apart(self, one: DepthMinimum) -> tuple[float, float] | None:
        """By how many nats a depth at its best size is above the best depth, or above the best of those tried where
        that is not known, and the standard error; None where that one may be another, whose minimum is not known."""
        if one not in self.found:
            return None
        if self.curve and self.minimum and self.minimum.x is not None:
            row = self.curve.row(math.log(one.depth)) - self.curve.row(self.minimum.x)
            return float(row @ self.curve.mean), math.sqrt(max(float(row @ self.curve.covariance @ row), 0.0))
        if len(self.found) < max(len(self.points.curves.depths), 2):
            return None
        i, k = self.found.index(one), int(self.losses.argmin())
        row = np.eye(len(self.found))[i] - np.eye(len(self.found))[k]
        return float(row @ self.losses), math.sqrt(max(float(row @ self.covariance @ row), 0.0))

    def at_best(self) -> Best | None:
        """What goes with the lowest point of the curve; None where that is an end."""
        y, y_se = (self.minimum.x, self.minimum.se) if self.minimum else (None, None)
        if y is None or y_se is None or self.curve is None or self.sizes is None:
            return None
        (x, x_se), slope = (self.sizes.at(y, k) for k in (0, 1))
        curves = self.points.curves
        middles = [one.minimum.x for one in self.found if one.minimum and one.minimum.x is not None]
        # known without error at each minimum, and smooth: what ln N exceeds 2·ln d by, and ln D + ln N
        offset = [v - 2.0 * float(curves.ln_width_of(one.depth, v)) for one, v in zip(self.found, middles, strict=True)]
        spent = [self.points.ln_tokens_at(one, v) + v for one, v in zip(self.found, middles, strict=True)]
        y_of = np.log([one.depth for one in self.found])
        return Best(
            y=y,
            x=float(x),
            x_sd=math.hypot(float(x_se), float(slope[0]) * y_se),
            ln_width=(float(x) - float(np.interp(y, y_of, offset))) / 2.0,
            # at a depth beside y the offset is another: ln 12L
            ln_width_sd=math.hypot(float(x_se), (float(slope[0]) - 1.0) * y_se) / 2.0,
            ln_spent=float(np.interp(y, y_of, spent)),
            loss=self.curve.lowest(y),
            loss_half=self.points.level_half(float(self.curve.at(y)[1]) ** 2),
        )
