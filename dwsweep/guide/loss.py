"""How much a depth costs at a fixed size: from one's own loss surface, or from an assumption that says so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dwsweep.fit.laws import Law, optimal_depth
from dwsweep.fit.surface.loss_surface import LossSurface

# Kaplan et al. 2020 (arXiv 2001.08361), eq. (1.1): L(N) = (N_c / N)^α_N, N non-embedding, nats per token
KAPLAN_N_C = 8.8e13
KAPLAN_ALPHA = 0.076

# ASSUMPTION: c of penalty = c·(ln L − ln L*)², nats, and the ends between which it is taken to lie. A quadratic in
# ln N, ln L and ln tokens through the public Gemstones runs has 0.023 to 0.025. CompleteP's shapes within 1 % of the
# best loss give 0.018 to 0.042 (see LawLoss).
CURVATURE = 0.024
CURVATURE_ENDS = (0.02, 0.055)
GRID = 400
LAW_REACH, LAW_GRID = 16, 600  # factor in depth from the best, and points
DRAWS = 400
REGION_STEP = 4  # every fourth of 360 points of a law's region has its extremes to 0.1 %


class LossModel(Protocol):
    """Loss at a size N as a function of depth, relative to the best depth."""

    @property
    def tag(self) -> str:
        """Where it comes from, for the reader."""

    def covers(self, n_params: float) -> bool: ...

    def level(self, n_params: float) -> float:
        """Loss of the best depth, nats per token."""

    def slope(self, n_params: float) -> float:
        """−d loss / d ln N of the best depth, nats."""

    def depths(self, n_params: float) -> np.ndarray:
        """(M,) depths that it can speak of, rising."""

    def penalties(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """(M,) nats above the best depth."""

    def drawn(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """(D, M) the same for parameters inside the confidence region."""

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """(low, high) of a quantity that was computed for each of the D rows of ``drawn``."""


@dataclass(frozen=True)
class LawLoss:
    """Penalties of a law's best depth L*(N), with a curvature seen in public data.

        penalty(L, N) = c·(ln L − ln L*(N))²,   c = 0.024 nats, 0.02 to 0.055   (ASSUMED)

    c multiplies the square itself: it is half the second derivative of the loss by ln L. CompleteP (Dey et al. 2025,
    arXiv 2505.01618) decides between the two readings of "nats per (ln L)²". Its best widths per layer are 40, 50 and
    62 at 5e7, 3e8 and 1.5e9 parameters. Its losses are about 2.7, 2.4 and 2.2 there, and down to 12, 15 and 11.8 widths
    per layer they are within 1 % of the best. At equal N = 12·L·d² a ratio r of d/L is −⅔·ln r in ln L. So c is 0.042,
    0.037 and 0.018. This range holds the 0.023 to 0.025 of a quadratic through the Gemstones runs (McLeish et al. 2025,
    arXiv 2502.06857). As second derivatives the three would be 0.084, 0.075 and 0.036, which does not hold it. The
    level of loss is that of Kaplan et al. 2020, eq. (1.1).
    """

    law: Law

    @property
    def tag(self) -> str:
        low, high = CURVATURE_ENDS
        return (
            f"ASSUMED: {CURVATURE}·(ln L/L*)² from the best depth L* of the law ({self.law.name}), "
            f"with {low} to {high} for {CURVATURE} as public data have it; level of loss from Kaplan et al. 2020"
        )

    def covers(self, n_params: float) -> bool:
        return self.law.depth(n_params)[0] is not None

    def level(self, n_params: float) -> float:
        return (KAPLAN_N_C / n_params) ** KAPLAN_ALPHA

    def slope(self, n_params: float) -> float:
        return KAPLAN_ALPHA * self.level(n_params)

    def depths(self, n_params: float) -> np.ndarray:
        best = self.law.depth(n_params)[0]
        assert best is not None
        return np.geomspace(max(1.0, best / LAW_REACH), max(2.0, best * LAW_REACH), LAW_GRID)

    def penalties(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        return CURVATURE * self._squares(np.asarray(self.law.theta)[None], n_params, depths)[0]

    def drawn(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """Every law of the region, and the likeliest, with each of the curvatures."""
        laws = np.concatenate([np.asarray(self.law.theta)[None], np.asarray(self.law.region)[::REGION_STEP]])
        squares = self._squares(laws, n_params, depths)
        return np.concatenate([c * squares for c in (CURVATURE, *CURVATURE_ENDS)])

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """The extremes: the rows of ``drawn`` lie on the edges of the law's region and of the curvature's range."""
        return float(np.nanmin(values)), float(np.nanmax(values))

    def _squares(self, theta: np.ndarray, n_params: float, depths: np.ndarray) -> np.ndarray:
        """(R, M) of (ln L − ln L*)² for theta (R, 2); a law without a best depth says nothing: NaN."""
        best = optimal_depth(self.law.form, theta, n_params)
        return (np.log(depths)[None] - np.log(best)[:, None]) ** 2


@dataclass(frozen=True)
class SurfaceLoss:
    """Penalties of one's own sweep: its loss surface, by its forms outside the data. The level outside the sizes of the
    data is that of Kaplan et al. 2020, moved to meet the surface at its edge.

    trained: it speaks of the depths between those trained alone, where the data do not bound the best depth.
    """

    surface: LossSurface
    trained: bool = False

    @property
    def tag(self) -> str:
        return "from the loss surface fitted to this sweep"

    def covers(self, n_params: float) -> bool:
        return self.surface.at(n_params).depth is not None

    def depths(self, n_params: float) -> np.ndarray:
        found = self.surface.at(n_params)
        frame = self.surface.frame
        if self.trained:
            return np.geomspace(frame.shallowest, frame.deepest, GRID)
        best = found.depth or frame.deepest
        return np.geomspace(
            max(1.0, min(frame.shallowest, best / 8)), min(max(frame.deepest, best * 8), self._deepest), GRID
        )

    @property
    def _deepest(self) -> float:
        return math.exp(float(self.surface.grid[-1]))

    def level(self, n_params: float) -> float:
        x = math.log(n_params)
        inside = min(max(x, self.surface.record.low), self.surface.record.high)
        ratio = (KAPLAN_N_C / n_params) ** KAPLAN_ALPHA / (KAPLAN_N_C / math.exp(inside)) ** KAPLAN_ALPHA
        return self.surface.level(inside) * ratio

    def slope(self, n_params: float) -> float:
        x, step = math.log(n_params), 0.05
        return (self.level(math.exp(x - step)) - self.level(math.exp(x + step))) / (2 * step)

    def penalties(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """Of the mean loss of all draws: zero at its own best whole number of layers."""
        mean = self.surface.profile(math.log(n_params)).mean(axis=0, keepdims=True)
        return self.surface.above_best(mean, depths, self.trained)[0]

    def drawn(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        return self.surface.penalties(n_params, depths, self.trained)

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """Quantiles: the rows of ``drawn`` are draws from the surface's distribution."""
        tail = (1 - self.surface.record.confidence) / 2
        low, high = np.nanquantile(values, [tail, 1 - tail])
        return float(low), float(high)


def smaller_percent(model: LossModel, n_params: float, nats: float) -> float:
    """By how many percent a best-shaped model would be smaller that is ``nats`` worse: 100·(1 − exp(−nats / slope))."""
    return percent_of(nats, model.slope(n_params))


def percent_of(nats: float, slope: float) -> float:
    """``smaller_percent`` where the slope is known already."""
    return 100.0 * (1.0 - math.exp(-nats / slope))
