"""The minimum of a smooth curve that is known at a few noisy points, without the bias of a parabola.

A parabola through a wide range misses the minimum of a lopsided curve. So the curve is expanded about a point near its
minimum, with t = x − x₀,

    f = c₀ + c₁·t + c₂·t²/2 + Σ_{k ≥ 3} c_k·t^k/k!,    c_k ~ N(0, (s·r^(k−2))²) for k ≥ 3

c₀, c₁ and c₂ are free, s is the curvature. That is how the derivatives of sums of exponentials with rates near r fall
off, and a loss is one: powers of N and of D are exponentials in ln N. (For A/N^α + B·(N/C)^β it is c₃/c₂ = β − α at the
minimum.) Far points count for less, since what is unknown of the series grows as t^k, so that no window has to be
chosen, and the interval holds the error of the series. r is averaged over what restricted likelihood allows.

The best size of each depth and the best depth at equal compute: approach 2 of Hoffmann et al. 2022, for every depth.

At one budget, what is spent on size is not spent on tokens, so that the loss of a depth has a minimum in ln N. Each
depth's curve gives its minimum by itself; a curve through the minima over ln L gives the best depth, and the size and
the tokens that go with it. Both curves are expansions about their minimum (expansions.py), and every interval is the
set of places where the slope may be zero. What is not bracketed by what was tried is not reached.

With which power of the budget the best size, tokens, depth and width grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from dwsweep.fit.cells import Run
from dwsweep.fit.curves import Curves
from dwsweep.fit.noise import FLOOR_NATS, chi2_tail, t_two_sided
from dwsweep.records.studies import FLOPS, BestAtBudget, BudgetTrend

FREE, ORDER = 3, 8  # terms that are not shrunk; all terms
RATE_STEPS = np.array([0.45, 0.67, 1.0, 1.5, 2.2])  # of r, about the one that is expected …
RATE_SD = 0.4  # … and the sd of its logarithm before the data
GRID_POINTS = 241
ROUNDS = 3  # of x₀ and s
LARGEST_STEP = 1.0  # of x₀ in a round
REJECTED_P_VALUE = 0.01  # of one curve


@dataclass(frozen=True)
class Minimum:
    """Of a curve inside its points.

    x: of the lowest point, None where that is an end. low, high: ends of the set of x at which the slope may be zero
    (Fieller's set of its root); None where the curve need not rise on that side. se: of x.
    """

    x: float | None
    low: float | None
    high: float | None
    se: float | None


@dataclass(frozen=True)
class Expansion:
    """origin: x₀. first, last: of the points. mean (P,), covariance: of the coefficients, nats. weights (P, K): mean =
    weights · losses. squares, df: χ² of the points about the curve. misfit: factor by which the errors were widened,
    because the points miss the curve by more than their errors; 1 where they do not."""

    origin: float
    first: float
    last: float
    mean: np.ndarray
    covariance: np.ndarray
    weights: np.ndarray
    squares: float
    df: int
    misfit: float = 1.0

    @property
    def rejected(self) -> bool:
        """Whether no smooth curve passes the points, by themselves."""
        return misfit([self], REJECTED_P_VALUE) > 1.0

    def widened(self, factor: float) -> Expansion:
        return replace(self, covariance=self.covariance * factor**2, misfit=self.misfit * factor)

    def row(self, x: np.ndarray | float, derivative: int = 0) -> np.ndarray:
        """(…, P): what the coefficients are multiplied with in the curve, or in a derivative of it, at x."""
        return _powers(np.asarray(x, dtype=float) - self.origin, derivative)

    def at(self, x: np.ndarray | float, derivative: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The curve (or a derivative of it) at x and its standard error, nats per unit of x to that power."""
        row = self.row(x, derivative)
        variance = np.einsum("...i,ij,...j->...", row, self.covariance, row)
        return row @ self.mean, np.sqrt(np.maximum(variance, 0.0))

    def minimum(self, critical: float) -> Minimum:
        """critical: t that the slope is held against."""
        x = np.linspace(self.first, self.last, GRID_POINTS)
        slope, se = self.at(x, 1)
        t = slope / np.maximum(se, 1e-300)
        falls, rises = np.flatnonzero(t < -critical), np.flatnonzero(t > critical)
        left = falls[0] if len(falls) and not (len(rises) and rises[0] < falls[0]) else None
        right = rises[-1] if len(rises) and not (len(falls) and falls[-1] > rises[-1]) else None
        low = high = root = error = None
        if left is not None:  # the last place where it surely falls, before it surely rises
            k = falls[falls < rises[0]][-1] if len(rises) else falls[-1]
            low = _zero(x, t + critical, k)
        if right is not None:
            k = rises[rises > falls[-1]][0] if len(falls) else rises[0]
            high = _zero(x, t - critical, k - 1)
        lowest = int(self.at(x)[0].argmin())
        if 0 < lowest < len(x) - 1:
            root = _zero(x, slope, lowest - 1 if slope[lowest] > 0 else lowest)
            bend = float(self.at(root, 2)[0])
            error = float(self.at(root, 1)[1]) / bend if bend > 0 else None
        return Minimum(root, low, high, error)

    def lowest(self, x: float) -> float:
        """The loss at a minimum, nats. The lowest point of a noisy curve is too low: by half the curvature times the
        variance of its place."""
        _, se = self.at(x, 1)
        return float(self.at(x)[0] + 0.5 * se**2 / max(float(self.at(x, 2)[0]), 1e-12))


def _zero(x: np.ndarray, y: np.ndarray, k: int) -> float:
    """Between x[k] and x[k + 1], where the line through y is zero."""
    if k < 0 or k + 1 >= len(x) or y[k] == y[k + 1]:
        return float(x[min(max(k, 0), len(x) - 1)])
    return float(x[k] + np.clip(-y[k] / (y[k + 1] - y[k]), 0.0, 1.0) * (x[k + 1] - x[k]))


@cache
def _factorials() -> np.ndarray:
    return np.array([float(math.factorial(k)) for k in range(ORDER)])


def _powers(t: np.ndarray, derivative: int = 0) -> np.ndarray:
    """(…, P): the derivative of t^k/k! for k = 0 … P − 1."""
    k = np.arange(ORDER - derivative)
    out = np.zeros((*t.shape, ORDER))
    out[..., derivative:] = t[..., None] ** k / _factorials()[: ORDER - derivative]
    return out


def expand(x: np.ndarray, y: np.ndarray, covariance: np.ndarray, rate: float) -> Expansion:
    """The curve through losses y (K,) nats at x (K,), at least three distinct ones. rate: the r that is expected.

    x₀ and s come from a parabola and are settled in a few rounds.
    """
    first, last = float(x.min()), float(x.max())
    root = np.linalg.cholesky(covariance + FLOOR_NATS**2 * np.eye(len(y)))
    z, origin, scale = np.linalg.solve(root, y), (first + last) / 2.0, 0.0
    for _ in range(ROUNDS):
        X = np.linalg.solve(root, _powers(x - origin))
        b, C, _ = _solve(X, z, scale, rate)
        bend = float(b[2])
        step = -b[1] / bend if bend > 0 else -math.copysign(LARGEST_STEP, b[1])
        origin = float(np.clip(origin + np.clip(step, -LARGEST_STEP, LARGEST_STEP), first, last))
        scale = math.hypot(bend, math.sqrt(max(float(C[2, 2]), 0.0)))
    X = np.linalg.solve(root, _powers(x - origin))
    fits = [_solve(X, z, scale, rate * step) for step in RATE_STEPS]
    log = np.array([likelihood for *_, likelihood in fits]) - 0.5 * (np.log(RATE_STEPS) / RATE_SD) ** 2
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = sum(w * b for w, (b, _, _) in zip(weight, fits, strict=True))
    C = sum(w * (C + np.outer(b - mean, b - mean)) for w, (b, C, _) in zip(weight, fits, strict=True))
    maps = sum(w * C for w, (_, C, _) in zip(weight, fits, strict=True)) @ X.T
    squares = _squares(X, z, scale, rate * float(RATE_STEPS[weight.argmax()]))
    return Expansion(origin, first, last, mean, C, np.linalg.solve(root.T, maps.T).T, squares, len(y) - FREE)


def misfit(curves: Sequence[Expansion], p_value: float) -> float:
    """√(χ²/df) of all ``curves`` together where that is improbable, else 1."""
    squares, df = sum(curve.squares for curve in curves), sum(curve.df for curve in curves)
    return math.sqrt(squares / df) if df > 0 and chi2_tail(squares, df) < p_value else 1.0


def _prior(scale: float, rate: float) -> np.ndarray:
    """(P − FREE,) variances of the shrunk coefficients."""
    return (scale * rate ** (np.arange(FREE, ORDER) - 2.0)) ** 2


def _solve(X: np.ndarray, z: np.ndarray, scale: float, rate: float) -> tuple[np.ndarray, np.ndarray, float]:
    """(coefficients, their covariance, restricted log likelihood) of whitened losses; scale 0: a parabola."""
    shrunk = _prior(scale, rate)
    sd = np.concatenate([np.ones(FREE), np.sqrt(shrunk)])
    A = X * sd
    precision = A.T @ A
    precision.flat[:: ORDER + 1] += np.arange(ORDER) >= FREE
    C = np.linalg.inv(precision)
    u = C @ (A.T @ z)
    residual = z - A @ u
    squares = residual @ residual + u[FREE:] @ u[FREE:]
    # the free coefficients have no prior: |precision| is the restricted likelihood's determinant
    return sd * u, C * sd * sd[:, None], -0.5 * float(np.linalg.slogdet(precision)[1] + squares)


def _squares(X: np.ndarray, z: np.ndarray, scale: float, rate: float) -> float:
    """χ² of whitened losses about the curve with this rate, what is shrunk included."""
    b, _, _ = _solve(X, z, scale, rate)
    residual = z - X @ b
    return float(residual @ residual + (b[FREE:] ** 2 / np.maximum(_prior(scale, rate), 1e-300)).sum())


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


QUANTITIES = ("n_params", "tokens", "depth", "width")
FEWEST_BUDGETS = 3


def trends(rows: Sequence[BestAtBudget], confidence: float) -> list[BudgetTrend]:
    """ln quantity = k + a·ln C by weighted least squares over the budgets that reach it; none with fewer than three.

    Where the points miss the line by more than their errors, those are widened, and Student's t takes the degrees of
    freedom of the line.
    """
    found = []
    for name in QUANTITIES:
        having = [row for row in rows if None not in (row[name], row[f"{name}_low"], row[f"{name}_high"])]
        if len(having) >= FEWEST_BUDGETS:
            found.append(_trend(name, having, confidence))
    return found


def _trend(name: str, rows: Sequence[BestAtBudget], confidence: float) -> BudgetTrend:
    x, y = np.log([row.budget for row in rows]), np.log([row[name] for row in rows])
    normal = t_two_sided(confidence, math.inf)
    # the intervals hold the degrees of freedom of the noise already
    sd = np.array([math.log(row[f"{name}_high"] / row[f"{name}_low"]) for row in rows]) / (2.0 * normal)
    middle = float(x.mean())
    A = np.stack([np.ones(len(x)), x - middle], axis=1) / sd[:, None]
    C = np.linalg.inv(A.T @ A)
    b = C @ A.T @ (y / sd)
    squares, df = float((((y / sd) - A @ b) ** 2).sum()), len(x) - 2
    rejected = chi2_tail(squares, df) < MISFIT_P_VALUE
    misfit = math.sqrt(squares / df) if rejected else 1.0
    half = (t_two_sided(confidence, df) if rejected else normal) * misfit * math.sqrt(float(C[1, 1]))
    return BudgetTrend(
        quantity=name,
        exponent=float(b[1]),
        exponent_low=float(b[1]) - half,
        exponent_high=float(b[1]) + half,
        budgets=len(x),
        at_budget=math.exp(middle),
        value=math.exp(float(b[0])),
        misfit=misfit,
    )
