"""How much a depth costs at a fixed size: from one's own loss surface, or from an assumption that says so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dwsweep.fit.laws import Law, ln_width, optimal_depth
from dwsweep.fit.surface.loss_surface import LossSurface

# Kaplan et al. 2020 (arXiv 2001.08361), eq. (1.1): L(N) = (N_c / N)^α_N, N non-embedding, nats per token
KAPLAN_N_C = 8.8e13
KAPLAN_ALPHA = 0.076

# ASSUMPTION: how fast a layer gains with ln N, in nats per unit of ln N and layer: 0.025·(L/6)^−2.1. It is a power law
# through the slopes of the loss differences of 4/8, 8/12 and 16/24 in public data: 0.106, 0.030 and 0.016. It would
# grow twentyfold from four layers to one; in sweeps/results/laptop 1/2, 2/3 and 3/4 have 0.08, 0.04 and 0.03, so it is
# held at that of four layers, 0.06.
SLOPE_DENSITY_AT_SIX = 0.025
SLOPE_DENSITY_POWER = -2.1
SHALLOWEST_SLOPE = 4.0
GRID = 400
DRAWS = 400
INTEGRATION_POINTS = 2001
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
    """Penalties that follow from a law and an assumed speed of gain.

    With x_T(l) = ln 12l + 2·ln d(l), the transition of depth l, a layer more at depth l gains κ(l)·(ln N − x_T(l)):
    nothing at its transition, more beyond it, and a loss below it. So

        penalty(L, N) = ∫_L^{L*} κ(l)·(ln N − x_T(l)) dl,   κ(l) = 0.025·(max(l, 4)/6)^−2.1  (assumption)

    which is zero at L* and positive on both sides. The level is that of Kaplan et al. 2020.
    """

    law: Law

    @property
    def tag(self) -> str:
        return (
            f"ASSUMED: from the law ({self.law.name}) and slopes of public data at depths 4 to 24, "
            "0.025·(L/6)^−2.1 per layer, below four layers that of four; level of loss from Kaplan et al. 2020"
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
        return np.geomspace(max(1.0, best / 8), max(2.0, best * 8), GRID)

    def penalties(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        return self._penalties(np.asarray(self.law.theta)[None], n_params, depths)[0]

    def drawn(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        return self._penalties(np.asarray(self.law.region)[::REGION_STEP], n_params, depths)

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """The extremes: the rows of ``drawn`` lie on the edge of the confidence region."""
        return float(np.nanmin(values)), float(np.nanmax(values))

    def _penalties(self, theta: np.ndarray, n_params: float, depths: np.ndarray) -> np.ndarray:
        """(R, M) for theta (R, 2): the running integral of the gain over ln l, by the trapezoid rule on one grid."""
        best = optimal_depth(self.law.form, theta, n_params)  # (R,)
        known = best[np.isfinite(best)]
        ends = np.concatenate([depths, known])
        ln_l = np.linspace(math.log(ends.min()), math.log(ends.max()) + 1e-9, INTEGRATION_POINTS)
        depth = np.exp(ln_l)
        transition = np.log(12.0) + ln_l + 2.0 * ln_width(self.law.form, theta[:, None, :], depth)
        density = SLOPE_DENSITY_AT_SIX * (np.maximum(depth, SHALLOWEST_SLOPE) / 6.0) ** SLOPE_DENSITY_POWER
        # a linear law has no width, and so no transition, at very small depths: nothing is gained or lost there
        gain = np.nan_to_num(density * (math.log(n_params) - transition)) * depth
        running = np.zeros_like(gain)
        running[:, 1:] = np.cumsum((gain[:, 1:] + gain[:, :-1]) / 2, axis=1) * (ln_l[1] - ln_l[0])
        at = np.log(depths)
        # a law of the region without an optimum says nothing: NaN
        return np.stack(
            [
                np.interp(np.log(top), ln_l, row) - np.interp(at, ln_l, row) if np.isfinite(top) else at * np.nan
                for row, top in zip(running, best, strict=True)
            ]
        )


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
    return 100.0 * (1.0 - math.exp(-nats / model.slope(n_params)))
