"""The minimum of a smooth curve that is known at a few noisy points, without the bias of a parabola.

A parabola through a wide range misses the minimum of a lopsided curve. So the curve is expanded about a point near its
minimum, with t = x − x₀,

    f = c₀ + c₁·t + c₂·t²/2 + Σ_{k ≥ 3} c_k·t^k/k!,    c_k ~ N(0, (s·r^(k−2))²) for k ≥ 3

c₀, c₁ and c₂ are free, s is the curvature. That is how the derivatives of sums of exponentials with rates near r fall
off, and a loss is one: powers of N and of D are exponentials in ln N. (For A/N^α + B·(N/C)^β it is c₃/c₂ = β − α at the
minimum.) Far points count for less, since what is unknown of the series grows as t^k, so that no window has to be
chosen, and the interval holds the error of the series. r is averaged over what restricted likelihood allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from dwsweep.fit.noise import chi2_tail
from dwsweep.fit.shape_noise import FLOOR_NATS

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
