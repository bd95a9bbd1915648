"""Simulated sweeps whose truth is known: best depth at every size, and transitions.

Depth is continuous in a ``SmoothTruth``, so that it does not depend on the grid. With x = ln N,

    dloss/dL = −κ(L)·S(x − x_T(L)),    κ(L) = 0.025·(L/6)^(−2.1)

so that the loss of every size is least where x_T(L) = ln N. x_T(L) = ln(12·L·d(L)²) for any width d(L). κ is that of
public data (slopes of the loss differences 4/8, 8/12, 16/24). S(u) = u, or w·tanh(u/w) where a lead levels off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from dwsweep import published_law
from dwsweep.fit.data.rows import Row
from dwsweep.fit.statistics.laws import FORMS
from tests.simulations.truths import Truth

# κ in nats per layer and unit of ln N; between two depths the loss difference grows by its integral: 0.073 for 6/12,
# 0.011 for 18/24, 0.0065 for 24/30
SPEED_AT_SIX, SPEED_POWER = 0.025, -2.1
DEPTH_POINTS = 400
DECAY_FROM = 3.0e7
GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))


def widths(depth: int, budgets: Sequence[float], multiple: int) -> list[int]:
    """Distinct widths nearest to the budgets at ``depth``, multiples of ``multiple``."""
    ideal = (math.sqrt(n / (12.0 * depth)) for n in budgets)
    return sorted({max(multiple, multiple * round(d / multiple)) for d in ideal})


@dataclass(frozen=True)
class SmoothTruth:
    """form, theta: of ln d(L) (laws.py). bend, phase: amplitude in ln N of a wave that x_T makes about it over the
    depths, so that no form holds, and its phase at the shallowest. decay: κ goes as (N/DECAY_FROM)^(−decay).
    level_off: w, None for S(u) = u. wiggle: amplitude in nats of waves in ln N, of another phase at each depth, that
    each curve makes. effect: factor on every difference (0: identical curves). power: of κ in L."""

    depths: tuple[int, ...] = (6, 12, 18, 24, 30)
    form: str = "exponential"
    theta: tuple[float, float] = (published_law.A, published_law.B)
    bend: float = 0.0
    phase: float = 0.0
    decay: float = 0.0
    level_off: float | None = None
    wiggle: float = 0.0
    effect: float = 1.0
    power: float = SPEED_POWER

    def x_t(self, depth: np.ndarray | float) -> np.ndarray:
        """ln of the size at which ``depth`` is the best one."""
        depth = np.asarray(depth, dtype=float)
        wave = np.sin(2.0 * np.pi * (depth - self.depths[0]) / (self.depths[-1] - self.depths[0]) + self.phase)
        return np.log(12.0 * depth) + 2.0 * FORMS[self.form].ln_width(np.asarray(self.theta), depth) + self.bend * wave

    def loss(self, depth: float, x: np.ndarray | float) -> np.ndarray:
        """Nats per token of ``depth`` at x = ln N."""
        x = np.asarray(x, dtype=float)
        shared = 1.5 + 8.0 * np.exp(-0.1 * x)
        layers = np.geomspace(self.depths[0], depth, DEPTH_POINTS)
        lead = x[..., None] - self.x_t(layers)
        if self.level_off:
            lead = self.level_off * np.tanh(lead / self.level_off)
        speed = self.effect * SPEED_AT_SIX * (layers / 6.0) ** self.power
        gain = np.trapezoid(speed * lead, layers, axis=-1) * np.exp(-self.decay * (x - math.log(DECAY_FROM)))
        return shared - gain + self.wiggle * np.sin(2.0 * np.pi * x / 1.7 + 2.4 * depth)

    def best_depth(self, n_params: float) -> float:
        """The depth at which the loss of this size is least."""
        layers = np.linspace(1.0, 400.0, 40_001)
        return float(np.interp(math.log(n_params), self.x_t(layers), layers))

    def numbered(self, index: int) -> SmoothTruth:
        """That of simulation ``index``, with another phase of its wave, since what a fit misses between two depths is
        then missed at other sizes; phases fill the circle evenly."""
        return replace(self, phase=index * GOLDEN_ANGLE) if self.bend else self

    def crossing(self, shallow: int, deep: int) -> float:
        """ln N at which the two lose the same."""
        return float(brentq(lambda x: float(self.loss(shallow, x) - self.loss(deep, x)), 5.0, 40.0))


def through_published_widths(form: str, first: float = 6.0, last: float = 30.0) -> tuple[float, float]:
    """theta of another form through the widths of the published law at two depths."""
    ends = np.array([published_law.A + published_law.B * first, published_law.A + published_law.B * last])
    theta = FORMS[form].through(ends, np.array([first, last]))
    return float(theta[0]), float(theta[1])


def draw(
    truth: Truth | SmoothTruth,
    rng: np.random.Generator,
    *,
    shapes: Sequence[tuple[int, int]] = (),
    budgets: Sequence[float] | Callable[[int], Sequence[float]] = tuple(np.geomspace(1.0e6, 6.0e8, 9)),
    seeds: int = 3,
    sigma: float = 0.002,
    shape_sd: float = 0.0,
    seed_sd: float = 0.003,
    along: float = 0.0,
    tails: bool = False,
    rates: Sequence[float] = (),
    multiple: int = 4,
) -> list[Row]:
    """One simulated table of runs: depth, width, seed, loss (and learning_rate where rates are tried).

    shapes: (depth, width) of the nets; else budgets: target N of each of the truth's depths, or a function that gives
    them for a depth, met with widths that are multiples of ``multiple``. sigma: sd of one run; shape_sd: of what the
    seeds of a shape share; seed_sd: of what a seed adds to all shapes; in nats. along: correlation of the error
    of a shape with that of the next smaller one of its depth. tails: noise of a run by Student's t of three degrees of
    freedom, scaled to the same sd. rates: offsets of the losses over the learning rates tried, nats.
    """
    nets = list(shapes)
    if isinstance(truth, SmoothTruth) and not nets:
        sizes = {depth: budgets(depth) if callable(budgets) else budgets for depth in truth.depths}
        nets = [(depth, width) for depth in truth.depths for width in widths(depth, sizes[depth], multiple)]
    shared = rng.normal(0.0, seed_sd, seeds)
    rows, errors = list[Row](), dict[int, float]()
    for depth, width in nets:
        error = rng.normal(0.0, shape_sd)
        if depth in errors:
            error = along * errors[depth] + math.sqrt(1.0 - along**2) * error
        errors[depth] = error
        loss = float(truth.loss(depth, math.log(12.0 * depth * width**2))) + error
        for rate, offset in enumerate(rates or (0.0,)):
            of_rate = {"learning_rate": 1e-3 * 2.0**rate} if rates else {}
            for seed in range(seeds):
                noise = rng.standard_t(3) / math.sqrt(3.0) if tails else rng.standard_normal()
                row = {"depth": depth, "width": width, "seed": seed, **of_rate}
                rows.append({**row, "loss": loss + offset + shared[seed] + sigma * noise})
    return rows
