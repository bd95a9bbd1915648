"""Two simulated arms whose truths are known, and what their noise shares: what a comparison is held against.

Each loss is that of a ``SmoothTruth`` plus, in nats,

    seed    what a seed adds to all shapes and both arms, and a part of its own in each arm
    run     noise of a run, correlated between the two runs of one shape and seed
    luck    what all seeds of a shape share, correlated between the arms
    text    the mean over held-out documents of what each adds: to all losses, to one shape, to one shape of one arm

The other arm's truth has its transitions at ``factor`` times the size, its losses lie lower by ``gain``, and its shapes
are not quite of the same size (as a gated MLP's are not).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dwsweep.fit.row_selection import Row
from dwsweep.fit.simulations.simulated_sweeps import SmoothTruth, widths
from dwsweep.fit.sweep_evidence import Documents, of_influences

TWIN = 0.97  # size of the other arm's shapes over the base's, before rounding


@dataclass(frozen=True)
class TwoArms:
    """truth: of the base. factor: sizes of the other arm's transitions over the base's. bend: of the other arm's
    transitions, see SmoothTruth. gain: nats by which the other arm is better. budgets, seeds, sigma, seed_sd, luck: as
    in a Scenario. shared: correlation of run noise, luck and seeds between the arms, 0 to 1. documents: how many held-
    out ones (0: the losses are exact), text_sd: nats, of what one document adds for a reason of its shape, half of its
    variance shared by the arms where anything is.
    """

    truth: SmoothTruth = field(default_factory=lambda: SmoothTruth((6, 12, 18)))
    factor: float = 1.0
    bend: float = 0.0
    gain: float = 0.03
    budgets: tuple[float, ...] = tuple(np.geomspace(1.0e6, 1.0e8, 8))
    seeds: int = 3
    sigma: float = 0.002
    seed_sd: float = 0.003
    luck: float = 0.0
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
    """The base and the other arm, of one study."""
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
    influences: tuple[dict[tuple, np.ndarray], ...] = ({}, {})
    for depth in scenario.truth.depths:
        for budget in scenario.budgets:
            noise, luck = both(scenario.sigma, scenario.seeds), both(scenario.luck, 1)
            read = both(scenario.text_sd, n) if n else None
            for k, truth in enumerate((scenario.truth, scenario.other)):
                (width,) = widths(depth, [budget * (TWIN if k else 1.0)], 4)
                loss = float(truth.loss(depth, math.log(12.0 * depth * width**2))) - (scenario.gain if k else 0.0)
                loss += float(luck[k][0])
                if read is not None:
                    adds = text + read[k]
                    loss += float(adds.mean())
                    influences[k][depth, width, None] = (adds - adds.mean()) / n
                arms[k].extend(
                    {"depth": depth, "width": width, "seed": s, "loss": loss + float(seeds[k][s] + noise[k][s])}
                    for s in range(scenario.seeds)
                )
    held = [of_influences(_sorted(found), np.ones(n)) if n else None for found in influences]
    return Drawn(arms[0], held[0]), Drawn(arms[1], held[1])


def _sorted(influence: Mapping[tuple, np.ndarray]) -> dict[tuple, np.ndarray]:
    return {key: influence[key] for key in sorted(influence, key=lambda key: key[:2])}


def two_arms() -> dict[str, TwoArms]:
    """The scenarios on which coverage is reported: 3 depths, 8 sizes, 3 seeds, σ 0.002 nats; one change each."""
    base = TwoArms()
    return {
        "same": base,
        "moved by 1.5": replace(base, factor=1.5),
        "same, nothing shared": replace(base, shared=0.0),
        "moved by 1.5, nothing shared": replace(base, factor=1.5, shared=0.0),
        "same, luck 0.002": replace(base, luck=0.002),
        "same, documents": replace(base, documents=200, sigma=0.001),
        "moved by 1.5, documents": replace(base, documents=200, sigma=0.001, factor=1.5),
        "same, one seed": replace(base, seeds=1),
        "same, 4 sizes, documents": replace(base, documents=200, budgets=tuple(np.geomspace(1.0e6, 1.0e8, 4))),
        "bent": replace(base, truth=SmoothTruth((6, 12, 18, 24)), bend=0.25, factor=1.3),
    }
