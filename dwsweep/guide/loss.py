"""How much a depth costs at a fixed size: from one's own loss surface, or from an assumption that says so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from dwsweep.fit.laws import Law, ln_width, optimal_depth
from dwsweep.fit.surface import basis
from dwsweep.records.fit_result import FitResult, Surface

# Kaplan et al. 2020 (arXiv 2001.08361), eq. (1.1): L(N) = (N_c / N)^α_N, N non-embedding, nats per token
KAPLAN_N_C = 8.8e13
KAPLAN_ALPHA = 0.076

# ASSUMPTION: how fast a layer gains with ln N, in nats per unit of ln N and layer: 0.025·(L/6)^−2.1. It is a power law
# through the slopes of the loss differences of 4/8, 8/12 and 16/24 in public data: 0.106, 0.030 and 0.016.
SLOPE_DENSITY_AT_SIX = 0.025
SLOPE_DENSITY_POWER = -2.1
GRID = 400
DRAWS = 400
INTEGRATION_POINTS = 2001


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

        penalty(L, N) = ∫_L^{L*} κ(l)·(ln N − x_T(l)) dl,   κ(l) = 0.025·(l/6)^−2.1  (assumption)

    which is zero at L* and positive on both sides. The level is that of Kaplan et al. 2020.
    """

    law: Law

    @property
    def tag(self) -> str:
        return (
            f"ASSUMED: nats from the law ({self.law.name}) and slopes of public data at depths 4 to 24, "
            "0.025·(L/6)^−2.1 per layer; level of loss from Kaplan et al. 2020"
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
        return self._penalties(np.asarray(self.law.region), n_params, depths)

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
        density = SLOPE_DENSITY_AT_SIX * (depth / 6.0) ** SLOPE_DENSITY_POWER
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
    """Penalties of one's own sweep: the surface over (ln N, ln L) of a fit.json, inside the sizes it was fitted on."""

    surface: Surface
    spans: dict[int, tuple[float, float]]  # depth → (lowest, highest ln N) of its cells
    confidence: float

    @property
    def tag(self) -> str:
        return "the loss surface fitted to this sweep"

    @classmethod
    def of(cls, fit: FitResult) -> SurfaceLoss | None:
        """From a fit on the axis n_params; None where it holds no surface."""
        if fit.surface is None or fit.curves.axis != "n_params":
            return None
        sizes = {curve.depth: np.log(np.array(curve.x, dtype=float)) for curve in fit.curves.depths if curve.x}
        spans = {depth: (float(x.min()), float(x.max())) for depth, x in sizes.items()}
        return cls(fit.surface, spans, fit.curves.confidence)

    @cached_property
    def _coefficients(self) -> np.ndarray:
        return np.array(self.surface.coefficients)

    @cached_property
    def _draws(self) -> np.ndarray:
        covariance = np.array(self.surface.cov, dtype=float)
        return np.random.default_rng(0).multivariate_normal(self._coefficients, covariance, DRAWS, method="svd")

    def _basis(self, ln_n: float, depths: np.ndarray) -> np.ndarray:
        return basis(self.surface.terms, self.surface.centre, self.surface.scale, ln_n, np.log(depths))

    def _present(self, n_params: float) -> list[int]:
        x = math.log(n_params)
        return sorted(depth for depth, (low, high) in self.spans.items() if low - 1e-9 <= x <= high + 1e-9)

    def covers(self, n_params: float) -> bool:
        return len(self._present(n_params)) >= 3

    def depths(self, n_params: float) -> np.ndarray:
        present = self._present(n_params)
        return np.geomspace(present[0], present[-1], GRID)

    def level(self, n_params: float) -> float:
        return self._least(math.log(n_params))

    def slope(self, n_params: float) -> float:
        x, step = math.log(n_params), 0.05
        return (self._least(x - step) - self._least(x + step)) / (2 * step)

    def _least(self, ln_n: float) -> float:
        depths = np.geomspace(min(self.spans), max(self.spans), GRID)
        return float((self._basis(ln_n, depths) @ self._coefficients).min())

    def penalties(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        return self._above_best(n_params, depths, self._coefficients[None])[0]

    def drawn(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        return self._above_best(n_params, depths, self._draws)

    def _above_best(self, n_params: float, depths: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        x = math.log(n_params)
        best = (self._basis(x, self.depths(n_params)) @ coefficients.T).min(axis=0)
        return (self._basis(x, depths) @ coefficients.T - best).T

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """Quantiles: the rows of ``drawn`` are draws from the surface's distribution."""
        tail = (1 - self.confidence) / 2
        low, high = np.nanquantile(values, [tail, 1 - tail])
        return float(low), float(high)


def smaller_percent(model: LossModel, n_params: float, nats: float) -> float:
    """By how many percent a best-shaped model would be smaller that is ``nats`` worse: 100·(1 − exp(−nats / slope))."""
    return 100.0 * (1.0 - math.exp(-nats / model.slope(n_params)))
