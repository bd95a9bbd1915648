"""Simulated losses along a column whose truths are known: what ``fit_along`` is held against.

Each loss is, in nats, a law of the size (its slope a little different for every curve), an effect of the value, what a
seed adds to all runs of an arm, the luck of a shape and the noise of a run. Sizes miss their budgets. Seeds, luck and
noise are correlated between two arms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.row_selection import Row

LOSS, SLOPE = 4.0, -0.12  # nats at 1e5 parameters, and per unit of ln N


@dataclass(frozen=True)
class AlongStudy:
    """first, second: effect of each value under either arm, nats; second is empty where there is one arm. off: largest
    miss of a budget, ln N. slope_sd: of the curves' slopes. shared: correlation of the arms' errors, 0 to 1."""

    first: tuple[float, ...] = (0.0,) * 5
    second: tuple[float, ...] = ()
    column: str = "heads"
    values: tuple[int, ...] = (1, 2, 4, 8, 16)
    budgets: tuple[float, ...] = (1e5, 3e5)
    seeds: int = 3
    sigma: float = 0.004
    seed_sd: float = 0.006
    luck: float = 0.004
    off: float = 0.08
    slope_sd: float = 0.02
    shared: float = 0.5

    @property
    def arms(self) -> list[tuple[float, ...]]:
        return [self.first, *([self.second] if self.second else [])]


def draw_along(study: AlongStudy, rng: np.random.Generator) -> list[list[Row]]:
    """One table per arm."""

    def correlated(sd: float, *size: int) -> np.ndarray:
        """(arms, …)"""
        together = math.sqrt(study.shared) * rng.standard_normal(size)
        own = math.sqrt(1.0 - study.shared) * rng.standard_normal((len(study.arms), *size))
        return sd * (together + own)

    seeds = correlated(study.seed_sd, study.seeds)
    tables: list[list[Row]] = [[] for _ in study.arms]
    for k, value in enumerate(study.values):
        slopes = SLOPE + study.slope_sd * rng.standard_normal(len(study.arms))
        for budget in study.budgets:
            noise, luck = correlated(study.sigma, study.seeds), correlated(study.luck)
            for arm, effects in enumerate(study.arms):
                miss = rng.uniform(-study.off, study.off)
                loss = LOSS + SLOPE * math.log(budget / 1e5) + slopes[arm] * miss + effects[k] + float(luck[arm])
                shape: Row = {"depth": 2, "heads": 2, "width": round(math.sqrt(budget / 24.0)) + k}
                shape |= {study.column: value, "n_params": budget * math.exp(miss), "budget": budget}
                tables[arm] += [
                    {**shape, "seed": s, "loss": loss + float(seeds[arm][s] + noise[arm][s])}
                    for s in range(study.seeds)
                ]
    return tables


def along_studies() -> dict[str, AlongStudy]:
    """The scenarios on which coverage is reported: five values, two sizes, three seeds; one change each."""
    base = AlongStudy()
    degrades = (0.01, 0.0, 0.005, 0.03, 0.06)
    two = AlongStudy(degrades, (0.012, 0.008, 0.0, 0.0, 0.004))
    return {
        "identical": base,
        "identical depths": replace(base, column="depth"),
        "identical, no luck": replace(base, luck=0.0),
        "identical, one size": replace(base, budgets=(1e5,)),
        "spread 0.02": replace(base, first=(0.02, 0.012, 0.006, 0.0, 0.004)),
        "spread 0.02 over depths": replace(base, first=(0.02, 0.012, 0.006, 0.0, 0.004), column="depth"),
        "degrades": replace(base, first=degrades),
        "two arms part": two,
        "two arms part, six sizes": replace(two, budgets=tuple(np.geomspace(1e5, 3e6, 6).tolist()), luck=0.003),
        "two arms alike": replace(two, second=degrades),
        "two arms alike, nothing shared": replace(two, second=degrades, shared=0.0),
        "at the margin": replace(base, first=(0.0, *(0.02,) * 4), budgets=(1e5,), off=0.0),
    }
