"""Two arms whose truths are known, and what their noise shares: are the intervals of their comparison covered?

``python -m tests.simulations.arms --out DIR [--n 200] [--processes 2] [SCENARIO …]``

Each loss is that of a ``SmoothTruth`` plus, in nats,

    seed    what a seed adds to all shapes and both arms, and a part of its own in each arm
    run     noise of a run, correlated between the two runs of one shape and seed
    shape   error that all seeds of a shape share, correlated between the arms
    text    the mean over held-out documents of what each adds: to all losses, to one shape, to one shape of one arm

The other arm's truth has its transitions at ``factor`` times the size. Its losses lie lower by ``gain``, and its shapes
are not quite of the same size (as a gated MLP's are not).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dwsweep.fit.arms import Together
from dwsweep.fit.data.impossible import without_bad_runs
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.runs import Setup, TableShape, select_runs
from dwsweep.fit.pairing import Arm
from dwsweep.fit.statistics.curves import build_curves
from dwsweep.fit.statistics.documents import Documents, of_influences
from dwsweep.fit.statistics.scatter import judged
from dwsweep.records.answers import BEST_DEPTH, DIFFERENCE, TRANSITION, AnswerRow
from dwsweep.records.record import Record
from tests.simulations.harness import OPTIONS, Simulated, Study, covers, mean, median, percent, shown
from tests.simulations.sweeps import SmoothTruth, widths

TWIN = 0.97  # size of the other arm's shapes over the base's, before rounding


@dataclass(frozen=True)
class TwoArms:
    """truth: of the base. factor: sizes of the other arm's transitions over the base's. bend: of the other arm's
    transitions, see SmoothTruth. gain: nats by which the other arm is better. budgets, seeds, sigma, seed_sd,
    shape_sd: as in a Scenario. shared: correlation of run noise, shape errors and seeds between the arms, 0 to 1.
    documents: number of held-out documents (0: the losses are exact). text_sd: nats, sd of the part of a loss that one
    document adds for a reason of its shape; half of its variance is shared by the arms where anything is.
    """

    truth: SmoothTruth = field(default_factory=lambda: SmoothTruth((6, 12, 18)))
    factor: float = 1.0
    bend: float = 0.0
    gain: float = 0.03
    budgets: tuple[float, ...] = tuple(np.geomspace(1.0e6, 1.0e8, 8))
    seeds: int = 3
    sigma: float = 0.002
    seed_sd: float = 0.003
    shape_sd: float = 0.0
    shared: float = 0.8
    documents: int = 0
    text_sd: float = 0.03

    @property
    def other(self) -> SmoothTruth:
        a, b = self.truth.theta
        return replace(self.truth, theta=(a + math.log(self.factor) / 2.0, b), bend=self.bend)

    def loss_difference(self, depth: int, x: float) -> float:
        """Other − base at ln axis ``x``."""
        return float(self.other.loss(depth, x) - self.truth.loss(depth, x)) - self.gain


@dataclass(frozen=True)
class Drawn:
    """A table of runs, and the held-out losses per document where the scenario has them."""

    rows: list[Row]
    documents: Documents | None


def draw_arms(scenario: TwoArms, rng: np.random.Generator) -> tuple[Drawn, Drawn]:
    """The base and the other arm of one study."""
    common, own = math.sqrt(scenario.shared), math.sqrt(1.0 - scenario.shared)

    def both(sd: float, *size: int) -> tuple[np.ndarray, np.ndarray]:
        """Two normal arrays that are correlated by ``shared``."""
        together = rng.standard_normal(size)
        one, other = (sd * (common * together + own * rng.standard_normal(size)) for _ in range(2))
        return one, other

    seeds = both(scenario.seed_sd, scenario.seeds)
    n = scenario.documents
    text = rng.normal(0.0, 0.5, n)
    arms: tuple[list[Row], list[Row]] = ([], [])
    influences: tuple[dict[Setup, np.ndarray], ...] = ({}, {})
    for depth in scenario.truth.depths:
        for budget in scenario.budgets:
            noise, shape_error = both(scenario.sigma, scenario.seeds), both(scenario.shape_sd, 1)
            read = both(scenario.text_sd, n) if n else None
            for k, truth in enumerate((scenario.truth, scenario.other)):
                (width,) = widths(depth, [budget * (TWIN if k else 1.0)], 4)
                loss = float(truth.loss(depth, math.log(12.0 * depth * width**2))) - (scenario.gain if k else 0.0)
                loss += float(shape_error[k][0])
                if read is not None:
                    adds = text + read[k]
                    loss += float(adds.mean())
                    influences[k][Setup(TableShape(depth, width), None)] = (adds - adds.mean()) / n
                arms[k].extend(
                    {"depth": depth, "width": width, "seed": s, "loss": loss + float(seeds[k][s] + noise[k][s])}
                    for s in range(scenario.seeds)
                )
    ordered = [dict(sorted(found.items(), key=lambda item: item[0].order)) for found in influences]
    held = [of_influences(found, np.ones(n)) if n else None for found in ordered]
    return Drawn(arms[0], held[0]), Drawn(arms[1], held[1])


def two_arms() -> dict[str, TwoArms]:
    """The scenarios on which coverage is reported: 3 depths, 8 sizes, 3 seeds, σ 0.002 nats; one change each."""
    base = TwoArms()
    return {
        "same": base,
        "moved by 1.15": replace(base, factor=1.15),
        "moved by 1.5": replace(base, factor=1.5),
        "one size": replace(base, factor=1.3, budgets=(3e7,)),
        "two sizes": replace(base, factor=1.3, budgets=(1e7, 1e8)),
        "bent": replace(base, truth=SmoothTruth((6, 12, 18, 24)), bend=0.25, factor=1.3),
    }


@dataclass(frozen=True)
class Found(Record):
    """One compared number: a ratio, or a difference in nats."""

    kind: str
    truth: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class Simulation(Simulated):
    rows: tuple[Found, ...]


def fitted(drawn: Drawn, label: str) -> Arm:
    """An arm as a comparison has it."""
    selection, _ = without_bad_runs(select_runs(drawn.rows))
    curves = judged(build_curves(selection.runs, None, np.random.default_rng(0), drawn.documents))
    return Arm(label, selection, curves, held_out=drawn.documents)


def simulation(scenario: TwoArms, rng: np.random.Generator, index: int = 0) -> Simulation:
    """One study drawn, fitted and compared: every number that the comparison has."""
    base, other = (fitted(drawn, label) for drawn, label in zip(draw_arms(scenario, rng), "AB", strict=True))
    rows = [row for row in Together.of([base, other], OPTIONS).compare(other).rows if row.question != BEST_DEPTH]
    kinds = [row.column or row.question for row in rows]
    found = (
        Found(kind, true_change(scenario, row), row.estimate_low, row.estimate_high)
        for kind, row in zip(kinds, rows, strict=True)
    )
    return Simulation(index=index, rows=tuple(found))


def true_change(scenario: TwoArms, row: AnswerRow) -> float:
    base, other = scenario.truth, scenario.other
    if row.column == TRANSITION:
        pair = [int(depth) for depth in str(row.value).split(" → ")]
        return math.exp(other.crossing(*pair) - base.crossing(*pair))
    assert row.n_params
    if row.column == BEST_DEPTH:
        return other.best_depth(row.n_params) / base.best_depth(row.n_params)
    assert row.depth
    return scenario.loss_difference(int(row.depth), math.log(row.n_params))


def summarise(rows: Iterable[Found], kind: str) -> dict[str, float | None]:
    """One kind of number over all simulations: shares of the numbers with a bound that are covered, and that are said
    to differ; median of ln(high/low), or of nats, of those with both bounds."""
    known = [row for row in rows if row.kind == kind and (row.low is not None or row.high is not None)]
    nothing, size = (0.0, float) if kind == DIFFERENCE else (1.0, math.log)
    return {
        "coverage": mean(covers(row.low, row.high, row.truth) for row in known),
        "changed": mean(not covers(row.low, row.high, nothing) for row in known),
        "wide": median(size(row.high) - size(row.low) for row in known if None not in (row.low, row.high)),
    }


HEAD = "scenario | studies | number | covered, % | said to differ, % | width of the interval"


def cells(name: str, simulations: Sequence[Simulation]) -> list[list[str]]:
    """One row per kind of number."""
    rows = [row for simulation in simulations for row in simulation.rows]
    found = []
    for kind in (TRANSITION, BEST_DEPTH, DIFFERENCE):
        s = summarise(rows, kind)
        shares = percent(s["coverage"]), percent(s["changed"])
        found.append([name, str(len(simulations)), kind, *shares, shown(s["wide"], digits=".3g")])
    return found


STUDY = Study(__doc__, two_arms(), simulation, Simulation, 40, HEAD, cells)

if __name__ == "__main__":
    STUDY.main()
