"""Losses along a column whose truths are known: are the intervals covered?

``python -m tests.simulations.along --out DIR [--n 500] [--processes 2] [SCENARIO …]``

Each loss is, in nats, a law of the size (its slope a little different for every curve), an effect of the value, what a
seed adds to all runs, the error of a shape and the noise of a run. Sizes miss their budgets. A promise for all values
of a group together counts as covered only where all of them are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.along import compared
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.table import read_table
from dwsweep.records.along import WORSE, AlongRow
from dwsweep.records.record import Record
from tests.simulations.harness import OPTIONS, Simulated, Study, covers, mean, percent

LOSS, SLOPE = 4.0, -0.12  # nats at 1e5 parameters, and per unit of ln N


@dataclass(frozen=True)
class AlongStudy:
    """effects: of each value, nats. off: largest miss of a budget, ln N. slope_sd: of the curves' slopes."""

    effects: tuple[float, ...] = (0.0,) * 5
    column: str = "heads"
    values: tuple[int, ...] = (1, 2, 4, 8, 16)
    budgets: tuple[float, ...] = (1e5, 3e5)
    seeds: int = 3
    sigma: float = 0.004
    seed_sd: float = 0.006
    shape_sd: float = 0.004
    off: float = 0.08
    slope_sd: float = 0.02


def draw_along(study: AlongStudy, rng: np.random.Generator) -> list[Row]:
    seeds, rows = rng.normal(0.0, study.seed_sd, study.seeds), list[Row]()
    for k, (value, effect) in enumerate(zip(study.values, study.effects, strict=True)):
        slope = rng.normal(SLOPE, study.slope_sd)
        for budget in study.budgets:
            miss = rng.uniform(-study.off, study.off)
            loss = LOSS + SLOPE * math.log(budget / 1e5) + slope * miss + effect + rng.normal(0.0, study.shape_sd)
            shape: Row = {"depth": 2, "heads": 2, "width": round(math.sqrt(budget / 24.0)) + k}
            # by a name that calls it a count of blocks: it misses 12·L·d² by chance
            shape |= {study.column: value, "non_embedding_params": budget * math.exp(miss), "budget": budget}
            noise = seeds + rng.normal(0.0, study.sigma, study.seeds)
            rows += [{**shape, "seed": s, "loss": loss + float(noise[s])} for s in range(study.seeds)]
    return rows


def along_studies() -> dict[str, AlongStudy]:
    """The scenarios on which coverage is reported: five values, two sizes, three seeds; one change each."""
    base = AlongStudy()
    degrades = AlongStudy((0.01, 0.0, 0.005, 0.03, 0.06))
    return {
        "identical": base,
        "identical, one size": replace(base, budgets=(1e5,)),
        "depths": replace(base, effects=(0.02, 0.012, 0.006, 0.0, 0.004), column="depth"),
        "degrades": degrades,
        "degrades, six sizes": replace(degrades, budgets=tuple(np.geomspace(1e5, 3e6, 6).tolist()), shape_sd=0.003),
    }


@dataclass(frozen=True, kw_only=True)
class FoundGroup(Record):
    """One group; each of what is covered is so for all values of the group at once."""

    best: bool  # the difference to the best value
    degrades_wrongly: bool  # a value is said to be worse that is as good as the best


@dataclass(frozen=True, kw_only=True)
class AlongSimulation(Simulated):
    groups: tuple[FoundGroup, ...]


def simulation(study: AlongStudy, rng: np.random.Generator, index: int = 0) -> AlongSimulation:
    """One study drawn and compared."""
    _, along = compared(read_table(draw_along(study, rng)), study.column, OPTIONS)
    return AlongSimulation(index=index, groups=tuple(_group(study, curve) for curve in along.curves))


def _group(study: AlongStudy, rows: Sequence[AlongRow]) -> FoundGroup:
    worse = [effect - min(study.effects) for effect in study.effects]
    return FoundGroup(
        best=all(covers(r.above_best_low, r.above_best_high, t) for r, t in zip(rows, worse, strict=True)),
        degrades_wrongly=any(t <= 0.0 and row.verdict == WORSE for t, row in zip(worse, rows, strict=True)),
    )


def summary(simulations: Sequence[AlongSimulation]) -> dict[str, float | None]:
    """Shares of all groups."""
    groups = [group for found in simulations for group in found.groups]
    return {"best": mean(g.best for g in groups), "wrongly": mean(g.degrades_wrongly for g in groups)}


HEAD = "scenario | n | above the best, % | worse, wrongly, %"


def cells(name: str, simulations: Sequence[AlongSimulation]) -> list[list[str]]:
    return [[name, str(len(simulations)), *map(percent, summary(simulations).values())]]


STUDY = Study(__doc__, along_studies(), simulation, AlongSimulation, 300, HEAD, cells)

if __name__ == "__main__":
    STUDY.main()
