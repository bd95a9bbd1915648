"""Course of the loss over sizes: the loss of the best net of each size, and its continuation beyond the data.

A law of N holds for nets of the best shape, and not for nets of one depth, from which the best depth moves away: at ten
times the largest size the level at the middle depth, continued by its own asymptote, lies 0.05 nats too low in
simulated heaps. So the prior of a level, an asymptote and smooth waves, is taken here for the course, and each draw of
it inside the sizes is continued by universal kriging (Matheron 1969, "Le krigeage universel"): with ℓ the course at J
sizes, B = (1, φ_α) there, φ_α the asymptote of model.py, K the kernel of the waves and s their sd,

    mean      b'β + k'K⁻¹(ℓ − Bβ),      β = (B'K⁻¹B)⁻¹B'K⁻¹ℓ
    variance  s²·(1 − k'K⁻¹k + r'(B'K⁻¹B)⁻¹r),      r = b − B'K⁻¹k

with b and k at the new size. α is drawn by its prior times the restricted likelihood of ℓ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dwsweep.fit.statistics.model import LEVEL_LENGTH, PRIORS, Frame, asymptotic

POINTS = 7  # sizes at which the course is read
NUGGET = 1e-3  # variance of the course about its waves, over theirs: kinks of a minimum over depths
ALPHAS = np.linspace(-3.0, 3.0, 241)  # exponents tried, in prior sds


@dataclass(frozen=True)
class Course:
    """Loss of the best depth. sizes: (POINTS,) ln axis. rows: (D, POINTS) nats there. sd: (D,) of the waves, nats.
    seed: of the draws."""

    frame: Frame
    sizes: np.ndarray
    rows: np.ndarray
    sd: np.ndarray
    seed: int

    def at(self, x: float) -> np.ndarray:
        """(D,) loss at x beyond the sizes, nats; the same error at each x of one side."""
        end = 0 if x < self.frame.low else -1
        mean, variance = self._kriged(x)
        there, least = self._kriged(float(self.sizes[end]))
        normal = np.random.default_rng([self.seed, 17, end + 1]).standard_normal(len(mean))
        spread = self.sd * np.sqrt(np.maximum(variance - least, 0.0))
        # from the course itself at the last size, which the nugget leaves by a hair
        return self.rows[:, end] + mean - there + spread * (normal - normal.mean())

    def _kernel(self, x: np.ndarray) -> np.ndarray:
        """(n, POINTS) correlations of the waves at x (n,) with the waves at the sizes."""
        away = (x[:, None] - self.sizes) / (LEVEL_LENGTH * self.frame.xs)
        return np.exp(-0.5 * away**2)

    @cached_property
    def _inverse(self) -> np.ndarray:
        """K⁻¹ (POINTS, POINTS)."""
        return np.linalg.inv(self._kernel(self.sizes) + NUGGET * np.eye(POINTS))

    def _basis(self, alpha: np.ndarray, x: np.ndarray) -> np.ndarray:
        """B (A, n, 2) of exponents (A,) at x (n,)."""
        level = asymptotic(alpha[:, None], x, self.frame)
        return np.stack([np.ones_like(level), level], axis=2)

    @cached_property
    def _alpha(self) -> np.ndarray:
        """(D,) exponents drawn."""
        prior, rng = PRIORS["alpha"], np.random.default_rng([self.seed, 17])
        B = self._basis(np.exp(prior.mean + prior.sd * ALPHAS), self.sizes)
        BK = np.swapaxes(B, 1, 2) @ self._inverse
        inner = BK @ B
        P = self._inverse - np.swapaxes(BK, 1, 2) @ np.linalg.solve(inner, BK)
        rest = np.einsum("dj,ajk,dk->da", self.rows, P, self.rows, optimize=True) / self.sd[:, None] ** 2
        log = -0.5 * (rest + np.linalg.slogdet(inner)[1] + ALPHAS**2)
        weight = np.cumsum(np.exp(log - log.max(axis=1, keepdims=True)), axis=1)
        place = (weight < rng.random((len(log), 1)) * weight[:, -1:]).sum(axis=1)
        z = ALPHAS[place] + (rng.random(len(log)) - 0.5) * (ALPHAS[1] - ALPHAS[0])
        return np.exp(prior.mean + prior.sd * z)

    @cached_property
    def _fitted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """B'K⁻¹ (D, 2, POINTS), (B'K⁻¹B)⁻¹ (D, 2, 2), β (D, 2) and K⁻¹(ℓ − Bβ) (D, POINTS)."""
        B = self._basis(self._alpha, self.sizes)
        BK = np.swapaxes(B, 1, 2) @ self._inverse
        inner = np.linalg.inv(BK @ B)
        beta = np.einsum("dij,djk,dk->di", inner, BK, self.rows, optimize=True)
        return BK, inner, beta, (self.rows - np.einsum("dji,di->dj", B, beta)) @ self._inverse

    def _kriged(self, x: float) -> tuple[np.ndarray, np.ndarray]:
        """(mean, variance in units of ``sd``²) of the course at x, (D,) each."""
        BK, inner, beta, rest = self._fitted
        k, b = self._kernel(np.array([x]))[0], self._basis(self._alpha, np.array([x]))[:, 0]
        r = b - BK @ k
        variance = 1.0 - k @ self._inverse @ k + np.einsum("di,dij,dj->d", r, inner, r)
        return (b * beta).sum(axis=1) + rest @ k, variance
