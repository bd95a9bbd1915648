"""A loss surface over (ln N, ln L): the optimum between the depths of the grid, and what another depth would cost.

loss = Σ c_jk X^j Y^k, X and Y the standardised ln N (or ln of the axis) and ln L, fitted to the cell means weighted by
their variance. At the transition of depth L the depths L and the next one tie, so the best depth lies between them:
this is where the surface puts it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.curves import Curves
from dwsweep.fit.noise import chi2_tail
from dwsweep.records import fit_result
from dwsweep.records.fit_curves import Optimum, SizedOptimum
from dwsweep.records.fit_rows import numbers

# (highest power of X, of Y, highest total): from a paraboloid to what a dense grid can bear
ORDERS = ((2, 2, 2), (3, 2, 3), (3, 3, 4), (4, 3, 5), (5, 3, 6), (5, 4, 6), (6, 4, 7))
DEPTH_POINTS = 241
ROWS = 9


@dataclass(frozen=True)
class Penalty:
    """The columns of the guideline on what the trained depth loses."""

    loss_penalty: float  # nats
    penalty_low: float
    penalty_high: float
    equivalent_size_percent: float | None


@dataclass(frozen=True)
class FittedSurface:
    """terms: (j, k) powers of X and Y. coefficients: (T,); draws: (D, T). centre, scale: of (ln axis, ln L). spans:
    depth → (lowest, highest ln axis) of its cells. inflation: factor on the errors where the form fits worse than the
    noise allows. confidence: of the intervals."""

    terms: tuple[tuple[int, int], ...]
    coefficients: np.ndarray
    draws: np.ndarray
    centre: tuple[float, float]
    scale: tuple[float, float]
    spans: dict[int, tuple[float, float]]
    chi2: float
    df: int
    p_value: float
    inflation: float
    confidence: float

    def basis(self, x: float, y: np.ndarray) -> np.ndarray:
        """(…, T) terms at ln axis x and ln depth y."""
        return basis(self.terms, self.centre, self.scale, x, y)

    def depths_at(self, x: float) -> np.ndarray | None:
        """ln L of the depths that the data span at ln axis ``x`` (a fine grid), None where fewer than three do."""
        present = [d for d, (low, high) in self.spans.items() if low - 1e-9 <= x <= high + 1e-9]
        if len(present) < 3:
            return None
        return np.linspace(math.log(min(present)), math.log(max(present)), DEPTH_POINTS)

    def optimum(self, x: float) -> Optimum | None:
        """Best depth at ln axis x with its interval; an end at the edge of the depths tried is None (unbounded)."""
        y = self.depths_at(x)
        if y is None:
            return None
        B = self.basis(x, y)
        loss = B @ self.coefficients
        best = int(loss.argmin())
        drawn = y[(B @ self.draws.T).argmin(axis=0)]
        tail = (1.0 - self.confidence) / 2.0
        low, high = np.quantile(drawn, [tail, 1.0 - tail])
        edge = "below" if best == 0 else "above" if best == len(y) - 1 else None
        return Optimum(
            ln_x=x,
            depth=None if edge else math.exp(y[best]),
            depth_low=None if low <= y[1] else math.exp(low),
            depth_high=None if high >= y[-2] else math.exp(high),
            loss=float(loss[best]),
            at_edge=edge,
            depth_min=math.exp(y[0]),
            depth_max=math.exp(y[-1]),
        )

    def penalty(self, n_params: float, depth: float) -> Penalty | None:
        """Nats that ``depth`` loses at a budget against the best depth, with its interval, and the size in percent at
        which the best depth would have the same loss; None outside the range of the data."""
        x = math.log(n_params)
        y = self.depths_at(x)
        if y is None or not y[0] - 1e-9 <= math.log(depth) <= y[-1] + 1e-9:
            return None
        B = self.basis(x, y)
        here = self.basis(x, np.array([math.log(depth)]))[0]
        own, best = float(here @ self.coefficients), float((B @ self.coefficients).min())
        drawn = self.draws @ here - (B @ self.draws.T).min(axis=0)
        tail = (1.0 - self.confidence) / 2.0
        low, high = np.quantile(drawn, [tail, 1.0 - tail])
        return Penalty(own - best, max(0.0, float(low)), float(high), self._equivalent(x, own))

    def _equivalent(self, x: float, loss: float) -> float | None:
        low = min(span[0] for span in self.spans.values())
        grid = np.linspace(x, low, 200)
        for point in grid:
            y = self.depths_at(float(point))
            if y is None:
                return None
            if float((self.basis(point, y) @ self.coefficients).min()) >= loss:
                return 100.0 * math.exp(point - x)
        return None

    def record(self) -> fit_result.Surface:
        """As fit.json has it, with the optimum at a few sizes."""
        xs = list(self.spans.values())
        low, high = min(s[0] for s in xs), max(s[1] for s in xs)
        found = [row for row in (self.optimum(float(x)) for x in np.linspace(low, high, ROWS)) if row is not None]
        return fit_result.Surface(
            form="polynomial in X = (ln N − centre)/scale and Y = (ln L − centre)/scale",
            terms=self.terms,
            coefficients=tuple(self.coefficients.tolist()),
            cov=tuple(numbers(row) for row in np.cov(self.draws.T)),
            centre=self.centre,
            scale=self.scale,
            chi2=self.chi2,
            df=self.df,
            p_value=self.p_value,
            error_inflation=self.inflation,
            optima=tuple(SizedOptimum(**vars(row), n_params=math.exp(row.ln_x)) for row in found),
        )


def basis(
    terms: Sequence[tuple[int, int]], centre: Sequence[float], scale: Sequence[float], x: float, y: np.ndarray
) -> np.ndarray:
    """(…, T) X^j·Y^k at ln axis x and ln depth y, both standardised."""
    X, Y = (np.asarray(x) - centre[0]) / scale[0], (np.asarray(y) - centre[1]) / scale[1]
    return np.stack([X**j * Y**k for j, k in terms], axis=-1)


def fit_surface(curves: Curves, confidence: float) -> FittedSurface | None:
    """The polynomial of the lowest χ² + T·ln K among a few orders; None with fewer than three depths, without a noise
    estimate, or with too few cells (three more than terms)."""
    if len(curves.depths) < 3 or not curves.noise.known:
        return None
    y = np.log(curves.depth)
    centre = (float(curves.x.mean()), float(y.mean()))
    scale = (float(curves.x.std()) or 1.0, float(y.std()) or 1.0)
    X, Y = (curves.x - centre[0]) / scale[0], (y - centre[1]) / scale[1]
    weight = 1.0 / np.maximum(curves.se, 1e-6)
    K = len(X)
    best = None
    sizes = max(len(curves.sizes(d)) for d in curves.depths)
    for top_x, top_y, total in ORDERS:
        terms = tuple((j, k) for k in range(top_y + 1) for j in range(top_x + 1) if j + k <= total)
        if len(terms) + 3 > K or top_y >= len(curves.depths) or top_x >= sizes:
            continue
        B = np.stack([X**j * Y**k for j, k in terms], axis=1)
        solve = np.linalg.pinv(B * weight[:, None]) * weight
        coefficients = solve @ curves.mean
        value = float((((curves.mean - B @ coefficients) * weight) ** 2).sum())
        score = value + len(terms) * math.log(K)
        if best is None or score < best[0]:
            best = (score, terms, coefficients, solve, value)
    if best is None:
        return None
    _, terms, coefficients, solve, value = best
    df = K - len(terms)
    inflation = math.sqrt(max(1.0, value / df))
    draws = coefficients + inflation * (curves.draws - curves.mean) @ solve.T
    spans = {d: (float(curves.x[curves.at(d)][0]), float(curves.x[curves.at(d)][-1])) for d in curves.depths}
    p_value = chi2_tail(value, df)
    return FittedSurface(terms, coefficients, draws, centre, scale, spans, value, df, p_value, inflation, confidence)
