"""Losses whose best depth is known at every size: what a best depth is scored against.

Depth is continuous here, so that the truth does not depend on the grid of depths. With x = ln N,

    dloss/dL = −κ(L)·S(x − x_T(L)),    κ(L) = 0.025·(L/6)^(−2.1)

so that at every size the loss is least where x_T(L) = ln N. x_T(L) = ln(12·L·d(L)²) for any width d(L); κ is that of
public data (slopes of the loss differences 4/8, 8/12, 16/24), S(u) = u, or w·tanh(u/w) where a lead levels off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.laws import ln_width
from dwsweep.fit.row_filter import Row
from dwsweep.fit.simulate import widths
from dwsweep.theory import published_law

SPEED_AT_SIX, SPEED_POWER = 0.025, -2.1
STEPS = 400


@dataclass(frozen=True)
class SmoothTruth:
    """form, theta: of ln d(L) (laws.py). bend: amplitude in ln N of a wave that x_T makes about it over the depths, so
    that no form holds. level_off: w, None for S(u) = u. wiggle: amplitude in nats of waves in ln N, of another phase at
    each depth, that each curve makes. effect: factor on every difference (0: identical curves)."""

    depths: tuple[int, ...] = (6, 12, 18, 24, 30)
    form: str = "exponential"
    theta: tuple[float, float] = (published_law.A, published_law.B)
    bend: float = 0.0
    level_off: float | None = None
    wiggle: float = 0.0
    effect: float = 1.0

    def x_t(self, depth: np.ndarray | float) -> np.ndarray:
        """ln of the size at which ``depth`` is the best one."""
        depth = np.asarray(depth, dtype=float)
        wave = np.sin(2.0 * np.pi * (depth - self.depths[0]) / (self.depths[-1] - self.depths[0]))
        return np.log(12.0 * depth) + 2.0 * ln_width(self.form, np.asarray(self.theta), depth) + self.bend * wave

    def loss(self, depth: float, x: np.ndarray | float) -> np.ndarray:
        """Nats per token of ``depth`` at x = ln N."""
        x = np.asarray(x, dtype=float)
        shared = 1.5 + 8.0 * np.exp(-0.1 * x)
        layers = np.linspace(self.depths[0], depth, STEPS)
        lead = x[..., None] - self.x_t(layers)
        if self.level_off:
            lead = self.level_off * np.tanh(lead / self.level_off)
        speed = self.effect * SPEED_AT_SIX * (layers / 6.0) ** SPEED_POWER
        gain = np.trapezoid(speed * lead, layers, axis=-1)
        return shared - gain + self.wiggle * np.sin(2.0 * np.pi * x / 1.7 + 2.4 * depth)

    def best_depth(self, n_params: float) -> float:
        """The depth at which the loss of this size is least."""
        layers = np.linspace(1.0, 400.0, 40_001)
        return float(np.interp(math.log(n_params), self.x_t(layers), layers))

    def crossing(self, shallow: int, deep: int) -> float:
        """ln N at which the two lose the same."""
        from scipy.optimize import brentq

        return float(brentq(lambda x: float(self.loss(shallow, x) - self.loss(deep, x)), 5.0, 40.0))


def through_published_widths(form: str, first: float = 6.0, last: float = 30.0) -> tuple[float, float]:
    """theta of another form through the widths of the published law at two depths."""
    from dwsweep.fit.laws import from_ends

    ends = np.array([published_law.A + published_law.B * first, published_law.A + published_law.B * last])
    theta = from_ends(form, ends, first, last)
    return float(theta[0]), float(theta[1])


def draw(
    truth: SmoothTruth,
    rng: np.random.Generator,
    *,
    budgets: Sequence[float] | Callable[[int], Sequence[float]] = tuple(np.geomspace(1.0e6, 6.0e8, 9)),
    seeds: int = 3,
    sigma: float = 0.002,
    luck: float = 0.0,
    seed_sd: float = 0.003,
) -> list[Row]:
    """One simulated table of runs: depth, width, seed, loss. luck: sd of what the seeds of a shape share, nats.
    budgets: target N, or a function that gives them for a depth."""
    shared = rng.normal(0.0, seed_sd, seeds)
    rows = []
    for depth in truth.depths:
        for width in widths(depth, budgets(depth) if callable(budgets) else budgets, 4):
            loss = float(truth.loss(depth, math.log(12.0 * depth * width**2))) + rng.normal(0.0, luck)
            rows += [
                {"depth": depth, "width": width, "seed": s, "loss": loss + shared[s] + rng.normal(0.0, sigma)}
                for s in range(seeds)
            ]
    return rows
