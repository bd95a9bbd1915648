"""The width law, fitted to the difference curves themselves, so that pairs that never crossed take part.

For a law h(L; a, b) = ln d the transition of pair i lies at x_i = ln N at its shallower depth, and

    χ²(a, b) = min over μ of (g − μ)ᵀ Σ⁻¹ (g − μ),   g_i = g_i(x_i(a, b)),

with Σ the covariance of the g_i from the draws, μ_i = 0 where x_i lies inside the pair's range, and outside it μ_i only
bound in sign (the end value must not contradict the lead that the law predicts there). Intervals are profiles of χ²:
{Δχ² ≤ F(1, df)}, 3.84 at 95 % with many degrees of freedom.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.curves import Curves, Difference
from dwsweep.fit.laws import from_ends, ln_width
from dwsweep.fit.noise import f_quantile
from dwsweep.fit.shape_noise import FLOOR_NATS
from dwsweep.fit.transitions import Crossing

COARSE, FINE = 41, 81
BOX_MARGIN = 2.0
KEEP_DELTA = 14.0


@dataclass(frozen=True)
class LawFit:
    """A fitted form.

    theta: (a, b) at the minimum. chi2: there. delta: (M,) χ² − minimum and thetas (M, 2) over the final grid. level:
    Δχ² that bounds the confidence region. interval_a, interval_b: its projections (None: unbounded). cov: of (a, b).
    x: (P,) ln-axis of each pair's transition under the law. inside: (P,) whether it lies in the pair's range.
    """

    form: str
    theta: tuple[float, float]
    chi2: float
    thetas: np.ndarray
    delta: np.ndarray
    level: float
    interval_a: tuple[float | None, float | None]
    interval_b: tuple[float | None, float | None]
    cov: np.ndarray
    x: np.ndarray
    inside: np.ndarray
    bounded: bool

    @property
    def region(self) -> np.ndarray:
        return self.thetas[self.delta <= self.level]


class LawProblem:
    """χ² of any form over the pairs of one sweep, vectorised over many parameter pairs at once."""

    def __init__(self, curves: Curves, pairs: list[tuple[Difference, Crossing]], df: float, confidence: float) -> None:
        self.curves, self.pairs = curves, pairs
        self.level = f_quantile(confidence, 1, df)
        self.df = df
        self.depths = np.array([d.shallow for d, _ in pairs], dtype=float)
        G = len(pairs[0][0].x)
        self.low = np.array([d.x[0] for d, _ in pairs])
        self.high = np.array([d.x[-1] for d, _ in pairs])
        self.g = np.stack([d.g for d, _ in pairs])
        flat = np.concatenate([d.deviations for d, _ in pairs], axis=1)
        self.cov = (flat.T @ flat / len(flat)).reshape(len(pairs), G, len(pairs), G)
        self.target = np.stack([_envelope(d, c) for d, c in pairs])
        self.points = G

    def x_of(self, ln_d: np.ndarray) -> np.ndarray:
        """(M, P) ln-axis of each pair's transition for ln widths (M, P)."""
        columns = [self.curves.x_of_ln_width(int(L), ln_d[:, i]) for i, L in enumerate(self.depths)]
        return np.stack(columns, axis=1)

    def chi2(self, form: str, theta: np.ndarray) -> np.ndarray:
        """(M,) χ² for theta (M, 2); infinite where the form gives no width."""
        ln_d = np.stack([ln_width(form, theta, L) for L in self.depths], axis=1)
        bad = ~np.isfinite(ln_d).all(axis=1)
        x = self.x_of(np.where(np.isfinite(ln_d), ln_d, 0.0))
        sign = np.where(x > self.high, -1, np.where(x < self.low, 1, 0))
        g, S = self._at(x)
        value = np.empty(len(theta))
        for start in range(0, len(theta), 20_000):
            part = slice(start, start + 20_000)
            value[part] = constrained_chi2(g[part], S[part], sign[part])
        return np.where(bad, np.inf, value)

    def _at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """g (M, P) and its covariance (M, P, P) at x (M, P), moved to the envelope and to the ends of the range."""
        P = len(self.depths)
        position = (np.clip(x, self.low, self.high) - self.low) / (self.high - self.low) * (self.points - 1)
        index = np.clip(np.round(position).astype(int), 0, self.points - 1)
        envelope = self.target[np.arange(P), index]
        position = np.where(envelope == index, position, envelope)
        i0 = np.clip(position.astype(int), 0, self.points - 2)
        w = position - i0
        pair = np.arange(P)
        g = self.g[pair, i0] * (1 - w) + self.g[pair, i0 + 1] * w
        S = np.empty((len(x), P, P))
        v = 1 - w
        for a in range(P):
            for b in range(a, P):
                block, ia, ib = self.cov[a, :, b], i0[:, a], i0[:, b]
                left = v[:, b] * block[ia, ib] + w[:, b] * block[ia, ib + 1]
                right = v[:, b] * block[ia + 1, ib] + w[:, b] * block[ia + 1, ib + 1]
                S[:, a, b] = S[:, b, a] = v[:, a] * left + w[:, a] * right
        S[:, pair, pair] += FLOOR_NATS**2
        return g, S

    def fit(self, form: str) -> LawFit:
        """Minimum, confidence region and profile intervals of ``form`` on a grid that zooms in on the region.

        The grid runs over ln d at the shallowest and at the deepest pair, from which every form follows.
        """
        first, last = float(self.depths[0]), float(self.depths[-1])
        box = np.array([self._range(0), self._range(-1)])
        outer = box.copy()
        for _ in range(14):
            ends = _mesh(box, COARSE)
            value = self.chi2(form, from_ends(form, ends, first, last))
            best = int(np.argmin(value))
            near = ends[value - value[best] <= max(KEEP_DELTA, 2.0 * self.level)]
            step = (box[:, 1] - box[:, 0]) / (COARSE - 1)
            new = np.stack([near.min(axis=0) - 2 * step, near.max(axis=0) + 2 * step], axis=1)
            new = np.stack([np.maximum(new[:, 0], outer[:, 0]), np.minimum(new[:, 1], outer[:, 1])], axis=1)
            shrink = (new[:, 1] - new[:, 0]) / (box[:, 1] - box[:, 0])
            if np.all(shrink > 0.6):
                break
            box = new
        # the last box holds Δχ² ≤ 14, the region about half of it: cut to the region before the fine grid
        near = ends[value - value[best] <= 1.6 * self.level]
        box = np.stack([near.min(axis=0) - 2 * step, near.max(axis=0) + 2 * step], axis=1)
        box = np.stack([np.maximum(box[:, 0], outer[:, 0]), np.minimum(box[:, 1], outer[:, 1])], axis=1)
        ends = _mesh(box, FINE)
        theta = from_ends(form, ends, first, last)
        value = self.chi2(form, theta)
        best = int(np.argmin(value))
        delta = value - value[best]
        inside_level = ends[delta <= self.level]
        edge = np.stack([inside_level.min(axis=0), inside_level.max(axis=0)], axis=1)
        tolerance = (outer[:, 1] - outer[:, 0]) * 1e-3
        open_low = edge[:, 0] <= outer[:, 0] + tolerance
        open_high = edge[:, 1] >= outer[:, 1] - tolerance
        bounded = not (open_low.any() or open_high.any())
        region = theta[delta <= self.level]
        intervals = _intervals(region, open_low, open_high)
        x = self.x_of(np.stack([ln_width(form, theta[best : best + 1], L) for L in self.depths], axis=1))[0]
        return LawFit(
            form=form,
            theta=(float(theta[best, 0]), float(theta[best, 1])),
            chi2=float(value[best]),
            thetas=theta,
            delta=delta,
            level=self.level,
            interval_a=intervals[0],
            interval_b=intervals[1],
            cov=_covariance(theta, delta, self.df),
            x=x,
            inside=(x >= self.low) & (x <= self.high),
            bounded=bounded,
        )

    def _range(self, pair: int) -> tuple[float, float]:
        depth = int(self.depths[pair])
        low = float(self.curves.ln_width_of(depth, self.low[pair]))
        high = float(self.curves.ln_width_of(depth, self.high[pair]))
        return low - BOX_MARGIN, high + BOX_MARGIN


def _mesh(box: np.ndarray, points: int) -> np.ndarray:
    """(points², 2) grid over box (2, 2) of lows and highs."""
    return np.stack(np.meshgrid(*(np.linspace(lo, hi, points) for lo, hi in box), indexing="ij"), axis=-1).reshape(
        -1, 2
    )


def constrained_chi2(g: np.ndarray, S: np.ndarray, sign: np.ndarray) -> np.ndarray:
    """(M,) min over μ of (g − μ)ᵀ S⁻¹ (g − μ) with μ_i = 0 where sign is 0, μ_i ≥ 0 where 1, μ_i ≤ 0 where −1.

    g: (M, P), S: (M, P, P), sign: (M, P). Coordinate descent: each step solves for one μ_i exactly.
    """
    mu = np.zeros_like(g)
    free = np.flatnonzero((sign != 0).any(axis=1))
    if len(free):
        Qf = np.linalg.inv(S[free])
        gf, sf, m = g[free], sign[free], mu[free]
        low = np.where(sf < 0, -np.inf, 0.0)
        high = np.where(sf > 0, np.inf, 0.0)
        columns = np.flatnonzero((sf != 0).any(axis=0))
        for _ in range(40):
            before = m.copy()
            for i in columns:
                step = np.einsum("mj,mj->m", Qf[:, i], gf - m) / Qf[:, i, i]
                m[:, i] = np.clip(m[:, i] + step, low[:, i], high[:, i])
            if np.max(np.abs(m - before)) < 1e-9:
                break
        mu[free] = m
    r = g - mu
    return np.einsum("mi,mi->m", r, np.linalg.solve(S, r[..., None])[..., 0])


def _envelope(d: Difference, c: Crossing) -> np.ndarray:
    """(G,) for each grid point the point at which a crossing there is held against the data.

    A crossing at x says that the shallower is ahead nowhere to the right and the deeper nowhere to the left. Where one
    significantly is, that point contradicts it more than g(x) ≈ 0 supports it, so that curves that coincide at
    small sizes offer no false root.
    """
    G = len(d.x)
    index = np.arange(G)
    if c.critical is None:
        return index
    t = d.g / d.se
    target = index.copy()
    against = np.maximum(np.abs(t), c.critical)
    for i in range(G):
        right, left = i + int(np.argmin(t[i:])), int(np.argmax(t[: i + 1]))
        worst = max((-t[right], right), (t[left], left))
        if worst[0] > against[i] + 1e-9:
            target[i] = worst[1]
    return target


def _intervals(
    region: np.ndarray, open_low: np.ndarray, open_high: np.ndarray
) -> tuple[tuple[float | None, float | None], tuple[float | None, float | None]]:
    """Projections of the region on a and b. An open end of either ln d leaves one end of each open: b falls where the
    first ln d is open above or the last open below, and rises where the first is open below or the last open above."""
    low, high = region.min(axis=0), region.max(axis=0)
    b_low = None if open_high[0] or open_low[1] else float(low[1])
    b_high = None if open_low[0] or open_high[1] else float(high[1])
    a_low = None if open_low[0] or open_high[1] else float(low[0])
    a_high = None if open_high[0] or open_low[1] else float(high[0])
    return (a_low, a_high), (b_low, b_high)


def _covariance(theta: np.ndarray, delta: np.ndarray, df: float) -> np.ndarray:
    """Covariance of (a, b) under the likelihood exp(−Δχ²/2) over the grid (t-shaped for few df)."""
    with np.errstate(over="ignore"):
        if math.isfinite(df) and df > 2:
            weight = (1.0 + delta / df) ** (-(df + 2.0) / 2.0)
        else:
            weight = np.exp(-delta / 2.0)
    weight = np.where(np.isfinite(delta), weight, 0.0)
    weight /= weight.sum()
    used = np.where(np.isfinite(theta), theta, 0.0)
    mean = weight @ used
    centred = used - mean
    return (centred * weight[:, None]).T @ centred
