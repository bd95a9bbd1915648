"""Simulated sweeps whose truth is known.

``Truth`` has a loss curve for each depth of a grid, and known transitions. ``SmoothTruth`` has a best depth that is
known at every size. Depth is continuous in it, so that its truth does not depend on the grid. With x = ln N,

    dloss/dL = −κ(L)·S(x − x_T(L)),    κ(L) = 0.025·(L/6)^(−2.1)

so that the loss of every size is least where x_T(L) = ln N. x_T(L) = ln(12·L·d(L)²) for any width d(L). κ is that of
public data (slopes of the loss differences 4/8, 8/12, 16/24). S(u) = u, or w·tanh(u/w) where a lead levels off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import brentq

from dwsweep import published_law
from dwsweep.fit.data.rows import Row
from dwsweep.fit.laws import FORMS

# κ in nats per layer and unit of ln N; between two depths the loss difference grows by its integral: 0.073 for 6/12,
# 0.011 for 18/24, 0.0065 for 24/30
SPEED_AT_SIX, SPEED_POWER = 0.025, -2.1
WIGGLES = 2.5  # radians per unit of ln N of a wiggly truth
DEPTH_POINTS = 400
DECAY_FROM = 3.0e7


@dataclass(frozen=True)
class Truth:
    """Losses whose consecutive depths cross exactly on a width law.

    The shallowest depth has loss 1.5 + 8·N^(−0.1). Each deeper one is below its predecessor by
    s·w·tanh((x − x_k)/w), x = ln N, which vanishes at the transition x_k = ln(12·L_k·d(L_k)²) alone.
    form, theta: the law (``laws.py``). width: w, how far in ln N the difference grows before it levels off. slopes: s
    per pair in nats per unit ln N; None for those of public data. effect: factor on every difference (0: identical
    curves). wiggle: the difference's share that oscillates with ln N.
    """

    depths: tuple[int, ...]
    form: str = "exponential"
    theta: tuple[float, float] = (published_law.A, published_law.B)
    width: float = 2.0
    slopes: tuple[float, ...] | None = None
    effect: float = 1.0
    wiggle: float = 0.0

    def transition(self, depth: float) -> float:
        """x_k = ln N at which ``depth`` loses to the next depth."""
        return math.log(12.0 * depth) + 2.0 * float(FORMS[self.form].ln_width(np.asarray(self.theta), depth))

    def slope(self, k: int) -> float:
        if self.slopes is not None:
            return self.slopes[k]
        power = SPEED_POWER + 1.0
        shallow, deep = ((depth / 6.0) ** power for depth in self.depths[k : k + 2])
        return 6.0 * SPEED_AT_SIX * (deep - shallow) / power

    def loss(self, depth: int, x: np.ndarray | float) -> np.ndarray:
        """Nats per token of ``depth`` (one of ``depths``) at x = ln N."""
        value = 1.5 + 8.0 * np.exp(-0.1 * np.asarray(x, dtype=float))
        for k in range(self.depths.index(depth)):
            beyond = np.asarray(x) - self.transition(self.depths[k])
            lead = np.tanh(beyond / self.width) + self.wiggle * np.sin(WIGGLES * beyond)
            value = value - self.effect * self.slope(k) * self.width * lead
        return value


@dataclass(frozen=True)
class Scenario:
    """A sweep to draw: shapes, seeds and every source of noise, in nats.

    budgets: target N. sigma: sd of one run. seed_sd: sd of the part that a seed adds to all shapes. tails: "normal" or
    "t3" (scaled to the same sd). shape_sd: sd of the part that the seeds of a shape share. missing: share of runs that
    are not there. rates: offsets of losses over learning rates tried.
    """

    truth: Truth
    budgets: tuple[float, ...] = tuple(np.geomspace(1.0e6, 6.0e8, 9))
    seeds: int = 3
    sigma: float = 0.002
    seed_sd: float = 0.003
    tails: str = "normal"
    shape_sd: float = 0.0
    missing: float = 0.0
    width_multiple: int = 4
    rates: tuple[float, ...] = field(default=())
    bad: float = 0.0
    uneven: bool = False

    def budgets_of(self, depth: int) -> list[float]:
        skipped = self.truth.depths.index(depth) % 3 if self.uneven else None
        return [n for k, n in enumerate(self.budgets) if skipped is None or k % 3 != skipped]


def simulate(scenario: Scenario, rng: np.random.Generator) -> list[Row]:
    """One simulated table of runs: depth, width, seed, loss (and learning_rate where rates are tried)."""
    rows = []
    seed_effect = rng.normal(0.0, scenario.seed_sd, scenario.seeds)
    for depth in scenario.truth.depths:
        for width in widths(depth, scenario.budgets_of(depth), scenario.width_multiple):
            loss = float(scenario.truth.loss(depth, math.log(12.0 * depth * width**2)))
            loss += rng.normal(0.0, scenario.shape_sd) if scenario.shape_sd else 0.0
            for rate, offset in enumerate(scenario.rates or (0.0,)):
                for seed in range(scenario.seeds):
                    noise = rng.normal() if scenario.tails == "normal" else rng.standard_t(3) / math.sqrt(3.0)
                    row = {
                        "depth": depth,
                        "width": width,
                        "seed": seed,
                        "loss": loss + offset + seed_effect[seed] + scenario.sigma * noise,
                    }
                    if scenario.rates:
                        row["learning_rate"] = 1e-3 * 2.0**rate
                    if rng.random() >= scenario.missing:
                        rows.append(row)
    if scenario.bad:
        rows[int(rng.integers(len(rows)))]["loss"] += scenario.bad
    return rows


def widths(depth: int, budgets: Sequence[float], multiple: int) -> list[int]:
    """Distinct widths nearest to the budgets at ``depth``, multiples of ``multiple``."""
    ideal = (math.sqrt(n / (12.0 * depth)) for n in budgets)
    return sorted({max(multiple, multiple * round(d / multiple)) for d in ideal})


def scenarios() -> dict[str, Scenario]:
    """5 depths, 9 budgets, 3 seeds, σ = 0.002 nats; one change each."""
    depths = (6, 12, 18, 24, 30)
    base = Scenario(Truth(depths))
    # a linear law through the published widths at depths 6 and 30
    ends = np.exp(published_law.A + published_law.B * np.array([6.0, 30.0]))
    slope = float((ends[1] - ends[0]) / 24.0)
    linear = Truth(depths, form="linear", theta=(float(ends[0]) - 6.0 * slope, slope))
    return {
        "base": base,
        "one_seed": replace(base, seeds=1),
        "t3_tails": replace(base, tails="t3"),
        "missing_20_percent": replace(base, missing=0.2),
        "truncated_top": replace(base, budgets=tuple(np.geomspace(1.0e6, 1.2e8, 9))),
        "learning_rates": replace(base, rates=(0.0, 0.0, 0.0, 0.002, 0.01)),
        "no_effect": replace(base, truth=replace(base.truth, effect=0.0)),
        "rival_law": replace(base, truth=linear),
        "bad_run": replace(base, bad=5.0),
        "uneven_grids": replace(base, budgets=tuple(np.geomspace(1.0e6, 6.0e8, 13)), uneven=True),
        "wiggly": replace(base, truth=replace(base.truth, wiggle=0.25)),
    }


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

    def crossing(self, shallow: int, deep: int) -> float:
        """ln N at which the two lose the same."""
        return float(brentq(lambda x: float(self.loss(shallow, x) - self.loss(deep, x)), 5.0, 40.0))


def through_published_widths(form: str, first: float = 6.0, last: float = 30.0) -> tuple[float, float]:
    """theta of another form through the widths of the published law at two depths."""
    ends = np.array([published_law.A + published_law.B * first, published_law.A + published_law.B * last])
    theta = FORMS[form].from_ends(ends, first, last)
    return float(theta[0]), float(theta[1])


def draw(
    truth: SmoothTruth,
    rng: np.random.Generator,
    *,
    budgets: Sequence[float] | Callable[[int], Sequence[float]] = tuple(np.geomspace(1.0e6, 6.0e8, 9)),
    seeds: int = 3,
    sigma: float = 0.002,
    shape_sd: float = 0.0,
    seed_sd: float = 0.003,
) -> list[Row]:
    """One simulated table of runs: depth, width, seed, loss. shape_sd: sd of what the seeds of a shape share, nats.
    budgets: target N, or a function that gives them for a depth."""
    shared = rng.normal(0.0, seed_sd, seeds)
    rows = []
    for depth in truth.depths:
        for width in widths(depth, budgets(depth) if callable(budgets) else budgets, 4):
            loss = float(truth.loss(depth, math.log(12.0 * depth * width**2))) + rng.normal(0.0, shape_sd)
            rows += [
                {"depth": depth, "width": width, "seed": s, "loss": loss + shared[s] + rng.normal(0.0, sigma)}
                for s in range(seeds)
            ]
    return rows
