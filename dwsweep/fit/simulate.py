"""Simulated sweeps whose transitions are known: what the intervals are held against, and what ``design`` plans with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dwsweep.fit.laws import ln_width
from dwsweep.fit.row_filter import Row
from dwsweep.theory import published_law

# slope of the loss difference at a transition, nats per unit of ln N: about 0.1 for depths 4/8 and 0.016 for 16/24 in
# public data (FLOOR_SLOPE keeps the deepest pairs from becoming undecidable)
SLOPE_AT_SIX, SLOPE_DECAY, FLOOR_SLOPE = 0.05, 0.03, 0.012


@dataclass(frozen=True)
class Truth:
    """Losses whose consecutive depths cross exactly on a width law.

    The shallowest depth has loss 1.5 + 8·N^(−0.1). Each deeper one is below its predecessor by
    s·w·tanh((x − x_k)/w), x = ln N, which vanishes at the transition x_k = ln(12·L_k·d(L_k)²) alone.
    form, theta: the law (``laws.py``). width: w, how far in ln N the difference grows before it levels off. slopes: s
    per pair in nats per unit ln N; None for the default. effect: factor on every difference (0: identical curves).
    """

    depths: tuple[int, ...]
    form: str = "exponential"
    theta: tuple[float, float] = (published_law.A, published_law.B)
    width: float = 2.0
    slopes: tuple[float, ...] | None = None
    effect: float = 1.0

    def transition(self, depth: float) -> float:
        """x_k = ln N at which ``depth`` loses to the next depth."""
        return math.log(12.0 * depth) + 2.0 * float(ln_width(self.form, np.asarray(self.theta), depth))

    def slope(self, k: int) -> float:
        if self.slopes is not None:
            return self.slopes[k]
        return max(FLOOR_SLOPE, SLOPE_AT_SIX * math.exp(-SLOPE_DECAY * (self.depths[k] - 6)))

    def loss(self, depth: int, x: np.ndarray | float) -> np.ndarray:
        """Nats per token of ``depth`` (one of ``depths``) at x = ln N."""
        value = 1.5 + 8.0 * np.exp(-0.1 * np.asarray(x, dtype=float))
        for k in range(self.depths.index(depth)):
            lead = np.tanh((np.asarray(x) - self.transition(self.depths[k])) / self.width)
            value = value - self.effect * self.slope(k) * self.width * lead
        return value


@dataclass(frozen=True)
class Scenario:
    """A sweep to draw: shapes, seeds and every source of noise, in nats.

    budgets: target N. sigma: sd of one run (a mapping gives it per depth). seed_sd: sd of what a seed shares over all
    shapes. paired: seeds are shared. tails: "normal" or "t3" (scaled to the same sd). shape_sd: sd of what the seeds of
    a shape share. missing: share of runs that are not there. rates: offsets of losses over learning rates tried.
    """

    truth: Truth
    budgets: tuple[float, ...] = tuple(np.geomspace(1.0e6, 6.0e8, 9))
    seeds: int = 3
    sigma: float | Mapping[int, float] = 0.002
    seed_sd: float = 0.003
    paired: bool = True
    tails: str = "normal"
    shape_sd: float = 0.0
    missing: float = 0.0
    width_multiple: int = 4
    rates: tuple[float, ...] = field(default=())

    def sigma_of(self, depth: int) -> float:
        return self.sigma[depth] if isinstance(self.sigma, Mapping) else self.sigma

    def oracle_sigma(self) -> dict[int, float]:
        """sd of one run that gives a mean of ``seeds`` runs its true variance: shape noise, and unpaired seeds."""
        extra = self.seeds * self.shape_sd**2 + (0.0 if self.paired else self.seed_sd**2)
        return {d: math.sqrt(self.sigma_of(d) ** 2 + extra) for d in self.truth.depths}


def simulate(scenario: Scenario, rng: np.random.Generator) -> list[Row]:
    """One simulated table of runs: depth, width, seed, loss (and learning_rate where rates are tried)."""
    rows = []
    seed_effect = rng.normal(0.0, scenario.seed_sd, scenario.seeds)
    for depth in scenario.truth.depths:
        sigma = scenario.sigma_of(depth)
        for width in widths(depth, scenario.budgets, scenario.width_multiple):
            loss = float(scenario.truth.loss(depth, math.log(12.0 * depth * width**2)))
            loss += rng.normal(0.0, scenario.shape_sd) if scenario.shape_sd else 0.0
            for rate, offset in enumerate(scenario.rates or (0.0,)):
                for seed in range(scenario.seeds):
                    shared = seed_effect[seed] if scenario.paired else rng.normal(0.0, scenario.seed_sd)
                    noise = rng.normal() if scenario.tails == "normal" else rng.standard_t(3) / math.sqrt(3.0)
                    row = {"depth": depth, "width": width, "seed": seed, "loss": loss + offset + shared + sigma * noise}
                    if scenario.rates:
                        row["learning_rate"] = 1e-3 * 2.0**rate
                    if rng.random() >= scenario.missing:
                        rows.append(row)
    return rows


def widths(depth: int, budgets: Sequence[float], multiple: int) -> list[int]:
    """Distinct widths nearest to the budgets at ``depth``, multiples of ``multiple``."""
    ideal = (math.sqrt(n / (12.0 * depth)) for n in budgets)
    return sorted({max(multiple, multiple * round(d / multiple)) for d in ideal})


def scenarios() -> dict[str, Scenario]:
    """The scenarios on which coverage is reported: 5 depths, 9 budgets, 3 seeds, σ = 0.002 nats; one change each."""
    depths = (6, 12, 18, 24, 30)
    base = Scenario(Truth(depths))
    # a linear law through the published widths at depths 6 and 30
    ends = np.exp(published_law.A + published_law.B * np.array([6.0, 30.0]))
    slope = float((ends[1] - ends[0]) / 24.0)
    linear = Truth(depths, form="linear", theta=(float(ends[0]) - 6.0 * slope, slope))
    return {
        "base": base,
        "one_seed": replace(base, seeds=1),
        "unpaired_seeds": replace(base, paired=False),
        "depth_dependent_sigma": replace(base, sigma={6: 0.001, 12: 0.0015, 18: 0.002, 24: 0.003, 30: 0.004}),
        "t3_tails": replace(base, tails="t3"),
        "shape_noise": replace(base, shape_sd=0.002),
        "missing_20_percent": replace(base, missing=0.2),
        "truncated_top": replace(base, budgets=tuple(np.geomspace(1.0e6, 1.2e8, 9))),
        "learning_rates": replace(base, rates=(0.0, 0.0, 0.0, 0.002, 0.01)),
        "no_effect": replace(base, truth=replace(base.truth, effect=0.0)),
        "rival_law": replace(base, truth=linear),
    }
