"""The transitions and the width law of sweeps whose depths cross exactly on a law: are they covered?

``python -m tests.simulations.crossings --out DIR [--n 400] [--processes 2] [SCENARIO …]``

The oracle knows the noise of each run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwsweep.fit.ask import LossSurface, fit_loss_model
from dwsweep.fit.cells import select_runs, without_bad_runs
from dwsweep.fit.curves import build_curves
from dwsweep.fit.data.rows import Row
from dwsweep.fit.laws import FORMS
from dwsweep.fit.scatter import judged
from dwsweep.fit.transitions import analyse_pairs
from dwsweep.fit.width_law import fit_laws
from dwsweep.records.record import Record
from tests.simulations.harness import CONFIDENCE, Interval, Simulated, Study, covers, mean, median, percent, shown
from tests.simulations.sweeps import Scenario, scenarios, simulate

DRAWS = 2000
ORACLE_SIMULATIONS = 100  # the oracle is only asked for its median width


@dataclass(frozen=True, kw_only=True)
class FoundPair(Record):
    """The crossing of a pair, in ln N."""

    status: str
    root: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True)
class FoundLaw(Record):
    """The exponential law of the pairs."""

    a: float
    b: float
    interval_a: Interval
    interval_b: Interval


@dataclass(frozen=True, kw_only=True)
class Found(Record):
    """What one fit says."""

    pairs: tuple[FoundPair, ...]
    law: FoundLaw | None
    winner: str | None = None  # the form that the losses weigh clearly more than the others


@dataclass(frozen=True, kw_only=True)
class Simulation(Simulated, Found):
    """A sweep as it was fitted, and as the oracle fits it."""

    noise: str  # what the errors rest on
    oracle: Found | None = None


def simulation(scenario: Scenario, rng: np.random.Generator, index: int = 0, draws: int = DRAWS) -> Simulation:
    """Statuses, intervals and laws of one sweep, and the oracle's intervals."""
    rows = simulate(scenario, rng)
    noise, found = _analyse(rows, None, draws)
    oracle = _analyse(rows, scenario.oracle_sigma(), draws)[1] if index < ORACLE_SIMULATIONS else None
    return Simulation(index=index, noise=noise, pairs=found.pairs, law=found.law, winner=found.winner, oracle=oracle)


def _analyse(rows: list[Row], declared: float | None, draws: int) -> tuple[str, Found]:
    """(what the errors rest on, what the fit says)."""
    runs = without_bad_runs(select_runs(rows))[0].runs
    shape_sd = None if declared is None else 0.0  # the oracle's σ holds it
    curves = build_curves(runs, declared, draws, np.random.default_rng(0), shape_sd=shape_sd)
    model = fit_loss_model(curves, CONFIDENCE)
    surface = LossSurface(model) if model else None
    curves = judged(curves, surface.posterior if surface else None)
    pairs = analyse_pairs(curves, CONFIDENCE)
    law = fit_laws(curves, surface, analyse_pairs(curves, CONFIDENCE, surface), CONFIDENCE)
    crossings, names = [pair.own.crossing for pair in pairs], FoundLaw.keys()
    return curves.noise.source, Found(
        pairs=tuple(FoundPair(status=c.status, root=c.root, low=c.low, high=c.high) for c in crossings),
        law=FoundLaw(**{name: law.pairs_law[name] for name in names}) if law.pairs_law else None,
        winner=next((row.form for row in law.rivals if row.winner), None),
    )


def summarise(name: str, rows: Sequence[Simulation]) -> dict[str, Any]:
    """Shares from 0 to 1 of all simulations, and the median widths of the bounded intervals over the oracle's.

    claimed: pairs of which anything is said. law: a width law was fitted. winner: by form. coverage_a, coverage_b: None
    where the truth is no exponential law.
    """
    truth = scenarios()[name].truth
    known = [row.oracle for row in rows if row.oracle]
    pairs = []
    for k, depth in enumerate(truth.depths[:-1]):
        found = [row.pairs[k] for row in rows]
        ends = [(pair.low, pair.high) for pair in found]
        pairs.append(
            {
                "crossed": mean(pair.status == "crossed" for pair in found),
                "coverage": mean(covers(*e, truth.transition(depth)) for e in ends),
                "unbounded": mean(None in e for e in ends),
                "ratio": _ratio(ends, [(oracle.pairs[k].low, oracle.pairs[k].high) for oracle in known]),
            }
        )
    laws = [row.law for row in rows]
    summary = {
        "pairs": pairs,
        "crossed": float(np.mean([pair["crossed"] for pair in pairs])),
        "claimed": mean(pair.status != "undecided" for row in rows for pair in row.pairs),
        "law": mean(law is not None for law in laws),
        "winner": {form: mean(row.winner == form for row in rows) for form in FORMS},
    }
    for which, true in zip("ab", truth.theta, strict=True):
        ends = [law[f"interval_{which}"] if law else (None, None) for law in laws]
        exponential = truth.form == "exponential"
        summary[f"coverage_{which}"] = mean(covers(*e, true) for e in ends) if exponential else None
        summary[f"ratio_{which}"] = _ratio(ends, [oracle.law[f"interval_{which}"] for oracle in known if oracle.law])
    return summary


def _ratio(ends: Iterable[Interval], oracle: Iterable[Interval]) -> float | None:
    ours, theirs = (
        median(high - low for low, high in each if low is not None and high is not None) for each in (ends, oracle)
    )
    return None if ours is None or theirs is None else ours / theirs


HEAD = (
    "scenario | n | any claim | crossed by pair | transitions covered by pair | unbounded by pair "
    "| width / oracle by pair | a | b | a, b width / oracle | law"
)


def cells(name: str, rows: Sequence[Simulation]) -> list[list[str]]:
    """One row; transitions per pair."""
    s = summarise(name, rows)
    by_pair = [percent(*(pair[key] for pair in s["pairs"])) for key in ("crossed", "coverage", "unbounded")]
    ratios = shown(*(pair["ratio"] for pair in s["pairs"]), digits=".2f")
    law = [percent(s["coverage_a"]), percent(s["coverage_b"]), shown(s["ratio_a"], s["ratio_b"], digits=".2f")]
    return [[name, str(len(rows)), percent(s["claimed"]), *by_pair, ratios, *law, percent(s["law"])]]


STUDY = Study(__doc__, scenarios(), simulation, Simulation, 400, HEAD, cells)

if __name__ == "__main__":
    STUDY.main()
