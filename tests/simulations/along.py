"""Losses along a column whose truths are known: are the intervals covered?

``python -m tests.simulations.along --out DIR [--n 500] [--processes 2] [SCENARIO …]``

Each loss is, in nats, a law of the size (its slope a little different for every curve), an effect of the value, what a
seed adds to all runs of an arm, the error of a shape and the noise of a run. Sizes miss their budgets. Seeds, shape
errors and noise are correlated between two arms. A promise for all values of a group together counts as covered only
where all of them are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.along import compared
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.table import read_table
from dwsweep.interval import Interval
from dwsweep.records.along import WORSE, AlongRow
from dwsweep.records.record import Record
from tests.simulations.harness import OPTIONS, Simulated, Study, covers, mean, percent

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
    shape_sd: float = 0.004
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
            noise, shape_error = correlated(study.sigma, study.seeds), correlated(study.shape_sd)
            for arm, effects in enumerate(study.arms):
                miss = rng.uniform(-study.off, study.off)
                loss = LOSS + SLOPE * math.log(budget / 1e5) + slopes[arm] * miss + effects[k] + float(shape_error[arm])
                shape: Row = {"depth": 2, "heads": 2, "width": round(math.sqrt(budget / 24.0)) + k}
                # by a name that calls it a count of blocks: it misses 12·L·d² by chance
                shape |= {study.column: value, "non_embedding_params": budget * math.exp(miss), "budget": budget}
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
        "identical, one size": replace(base, budgets=(1e5,)),
        "depths": replace(base, first=(0.02, 0.012, 0.006, 0.0, 0.004), column="depth"),
        "two arms part": two,
        "two arms part, six sizes": replace(two, budgets=tuple(np.geomspace(1e5, 3e6, 6).tolist()), shape_sd=0.003),
        "two arms alike, nothing shared": replace(two, second=degrades, shared=0.0),
    }


@dataclass(frozen=True, kw_only=True)
class FoundGroup(Record):
    """One group of one arm; each of what is covered is so for all values of the group at once."""

    best: bool  # the difference to the best value
    degrades_wrongly: bool  # a value is said to be worse that is as good as the best
    apart: bool | None = None  # the difference to the first arm; None for the first
    parted_wrongly: bool | None = None  # one is said to be ahead where it is not


@dataclass(frozen=True, kw_only=True)
class AlongSimulation(Simulated):
    groups: tuple[FoundGroup, ...]


def simulation(study: AlongStudy, rng: np.random.Generator, index: int = 0) -> AlongSimulation:
    """One study drawn and compared."""
    tables = [read_table(rows) for rows in draw_along(study, rng)]
    _, along = compared(tables, ["first", "second"][: len(tables)], study.column, OPTIONS)
    groups = tuple(_group(study, curve, along.arms.index(curve[0].arm)) for curve in along.curves)
    return AlongSimulation(index=index, groups=groups)


def _group(study: AlongStudy, rows: Sequence[AlongRow], arm: int) -> FoundGroup:
    truth = np.array(study.arms[arm])
    worse, gaps = truth - truth.min(), truth - np.array(study.first)
    apart, parted = None, None
    if any(row.above_base is not None for row in rows):
        above = [Interval(row.above_base, row.above_base_low, row.above_base_high) for row in rows]
        apart = all(covers(one.low, one.high, float(gap)) for one, gap in zip(above, gaps, strict=True))
        parted = any(one.sign and one.sign * gap <= 0.0 for one, gap in zip(above, gaps, strict=True))
    return FoundGroup(
        best=all(covers(r.above_best_low, r.above_best_high, float(t)) for r, t in zip(rows, worse, strict=True)),
        degrades_wrongly=any(t <= 0.0 and row.verdict == WORSE for t, row in zip(worse, rows, strict=True)),
        apart=apart,
        parted_wrongly=parted,
    )


def summary(simulations: Sequence[AlongSimulation]) -> dict[str, float | None]:
    """Shares of all groups."""
    groups = [group for found in simulations for group in found.groups]
    second = [group for group in groups if group.apart is not None]
    return {
        "best": mean(g.best for g in groups),
        "wrongly": mean(g.degrades_wrongly for g in groups),
        "apart": mean(bool(g.apart) for g in second),
        "part wrongly": mean(bool(g.parted_wrongly) for g in second),
    }


HEAD = "scenario | n | above the best, % | worse, wrongly, % | arms apart, % | part, wrongly, %"


def cells(name: str, simulations: Sequence[AlongSimulation]) -> list[list[str]]:
    return [[name, str(len(simulations)), *map(percent, summary(simulations).values())]]


STUDY = Study(__doc__, along_studies(), simulation, AlongSimulation, 300, HEAD, cells)

if __name__ == "__main__":
    STUDY.main()
