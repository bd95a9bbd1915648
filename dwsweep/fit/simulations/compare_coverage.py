"""The intervals of a comparison against arms whose truths are known:
``python -m dwsweep.fit.simulations.compare_coverage --out DIR [--n 200] [--processes 2] [--fast] [SCENARIO …]``.

Every simulation is one line of DIR/<scenario>.jsonl, as in coverage.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.bad_runs import without_bad_runs
from dwsweep.fit.cells import select_runs
from dwsweep.fit.compare.arm_comparison import Estimate, compare, middle, ratio
from dwsweep.fit.compare.loss_apart import losses_apart
from dwsweep.fit.curves import build_curves
from dwsweep.fit.pairing import Arm, pair_arms
from dwsweep.fit.pairs import analyse_pairs
from dwsweep.fit.simulations.coverage import Simulated, command_line, covers, run_simulations
from dwsweep.fit.simulations.simulated_arms import Drawn, TwoArms, draw_arms, two_arms
from dwsweep.fit.surface.loss_model import fit_with_gains
from dwsweep.records.comparison import BEST_DEPTH, LOSS, TRANSITION, ComparedRow
from dwsweep.records.fit_result import FitOptions
from dwsweep.records.fit_rows import FitPart

CONFIDENCE = 0.95
DRAWS = 400
OPTIONS = FitOptions(
    axis="n_params", noise=None, columns=None, where=(), draws=DRAWS, seed=0, confidence=CONFIDENCE, documents=True
)
KINDS = (TRANSITION, BEST_DEPTH, LOSS)


@dataclass(frozen=True, kw_only=True)
class Found(FitPart):
    """One compared number, and the same without what the arms share."""

    kind: str
    truth: float
    change: float | None
    low: float | None
    high: float | None
    alone_low: float | None  # unpaired
    alone_high: float | None
    correlation: float | None

    @property
    def covered(self) -> bool:
        return covers(self.low, self.high, self.truth)

    def claims(self, nothing: float) -> bool:
        return not covers(self.low, self.high, nothing)


@dataclass(frozen=True, kw_only=True)
class Simulation(Simulated):
    """rows: every number compared. headline: that of the answer, None where there is none."""

    rows: tuple[Found, ...]
    headline: Found | None


@dataclass(frozen=True, kw_only=True)
class KindSummary(FitPart):
    """One kind of number over all simulations; shares from 0 to 1 of the numbers with a bound."""

    kind: str
    compared: int
    with_value: float  # share that has an estimate, not bounds alone
    coverage: float | None
    changed: float | None  # share whose interval leaves out no change
    bias: float | None  # of ln, or nats; of those with an estimate
    width: float | None  # median of those bounded on both sides, over that of the unpaired interval
    correlation: float | None  # median


def fitted(drawn: Drawn, label: str, surface: bool = True) -> Arm:
    """An arm as ``fit_table`` leaves it, without the estimators that a comparison does not use."""
    runs = without_bad_runs(select_runs(drawn.rows))[0].runs
    curves = build_curves(runs, None, DRAWS, np.random.default_rng(0), drawn.documents)
    found = fit_with_gains(curves, CONFIDENCE) if surface else None
    record, gains = found or (None, {})
    pairs = analyse_pairs(curves, CONFIDENCE, estimators=False)
    return Arm(label, label, "", runs, curves, pairs, record, gains, drawn.documents)


def one(name: str, index: int) -> Simulation:
    """Simulation ``index`` of a scenario."""
    return simulation(two_arms()[name], np.random.default_rng([index, *name.encode()]), index)


def without_surface(name: str, index: int) -> Simulation:
    """The same without best depths: transitions and losses, in a tenth of the time."""
    return simulation(two_arms()[name], np.random.default_rng([index, *name.encode()]), index, surface=False)


def simulation(scenario: TwoArms, rng: np.random.Generator, index: int = 0, surface: bool = True) -> Simulation:
    """One study drawn, fitted and compared; ``surface``: with the best depths, which take most of the time."""
    base, other = (fitted(drawn, label, surface) for drawn, label in zip(draw_arms(scenario, rng), "AB", strict=True))
    rows = compare(base, other, OPTIONS).rows
    pairing = replace(pair_arms(base, other), cross=np.zeros((len(base.curves.x), len(other.curves.x))), noise=None)
    losses = iter(losses_apart(base, other, pairing, OPTIONS).rows)
    found = {id(row): _found(scenario, row, next(losses) if row.quantity == LOSS else row_alone(row)) for row in rows}
    headline = middle([row for row in rows if row.quantity == BEST_DEPTH])
    return Simulation(index=index, rows=tuple(found.values()), headline=found[id(headline)] if headline else None)


def row_alone(row: ComparedRow) -> ComparedRow:
    """The ratio with the interval of two estimates that share nothing."""
    base, other = (
        Estimate(_log(value), _log(low), _log(high))
        for value, low, high in (
            (row.base, row.base_low, row.base_high),
            (row.other, row.other_low, row.other_high),
        )
    )
    alone = ratio(base, other, np.zeros((0, 0)))
    return replace(row, change_low=alone.low, change_high=alone.high)


def _log(value: float | None) -> float | None:
    return None if value is None else math.log(value)


def _found(scenario: TwoArms, row: ComparedRow, alone: ComparedRow) -> Found:
    return Found(
        kind=row.quantity,
        truth=_truth(scenario, row),
        change=row.change,
        low=row.change_low,
        high=row.change_high,
        alone_low=alone.change_low,
        alone_high=alone.change_high,
        correlation=row.correlation,
    )


def _truth(scenario: TwoArms, row: ComparedRow) -> float:
    base, other = scenario.truth, scenario.other
    if row.quantity == TRANSITION:
        assert row.depth and row.deep
        return math.exp(other.crossing(row.depth, row.deep) - base.crossing(row.depth, row.deep))
    assert row.n_params
    if row.quantity == BEST_DEPTH:
        return other.best_depth(row.n_params) / base.best_depth(row.n_params)
    assert row.depth
    return scenario.loss_difference(row.depth, math.log(row.n_params))


def summarise(rows: Iterable[Found], kind: str) -> KindSummary:
    """Coverage of all that have a bound; widths of those bounded on both sides, with and without pairing."""
    known = [row for row in rows if row.kind == kind and (row.low is not None or row.high is not None)]
    nothing = 0.0 if kind == LOSS else 1.0
    valued = [row for row in known if row.change is not None]
    size = (lambda v: v) if kind == LOSS else math.log
    errors = [size(row.change) - size(row.truth) for row in valued if row.change is not None]
    widths = [
        (size(row.high) - size(row.low)) / (size(row.alone_high) - size(row.alone_low))
        for row in valued
        if row.low is not None and row.high is not None and row.alone_low is not None and row.alone_high is not None
    ]
    together = [row.correlation for row in valued if row.correlation is not None]
    return KindSummary(
        kind=kind,
        compared=len(known),
        with_value=len(valued) / len(known) if known else 0.0,
        coverage=float(np.mean([row.covered for row in known])) if known else None,
        changed=float(np.mean([row.claims(nothing) for row in known])) if known else None,
        bias=float(np.mean(errors)) if errors else None,
        width=float(np.median(widths)) if widths else None,
        correlation=float(np.median(together)) if together else None,
    )


def table(name: str, simulations: Sequence[Simulation]) -> str:
    """Markdown rows of a scenario: one per kind of number, and one for the answer's."""
    lines = []
    every = [row for simulation in simulations for row in simulation.rows]
    answers = [simulation.headline for simulation in simulations if simulation.headline]
    for label, rows in (*((kind, every) for kind in KINDS), ("answer", answers)):
        s = summarise(rows, BEST_DEPTH if label == "answer" else label)
        percent = lambda v: "–" if v is None else f"{100 * v:.1f}"  # noqa: E731
        number = lambda v: "–" if v is None else f"{v:.3g}"  # noqa: E731
        lines.append(
            f"| {name} | {label} | {s.compared} | {percent(s.with_value)} | {percent(s.coverage)} "
            f"| {percent(s.changed)} | {number(s.bias)} | {number(s.width)} | {number(s.correlation)} |"
        )
    return "\n".join(lines)


HEAD = (
    "| scenario | number | compared | with a value, % | covered, % | changed, % | bias | width / unpaired | r |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> None:
    parser = command_line(__doc__, two_arms(), 200)
    parser.add_argument("--fast", action="store_true", help="transitions and losses alone")
    args = parser.parse_args()
    simulate = without_surface if args.fast else one
    results = run_simulations(args.out, args.names, args.n, args.processes, simulate, Simulation)
    print("\n".join([HEAD, *(table(name, rows) for name, rows in results.items())]))


if __name__ == "__main__":
    main()
