"""The intervals along a column against losses whose truths are known:
``python -m dwsweep.fit.simulations.along_coverage --out DIR [--n 500] [--processes 2] [SCENARIO …]``.

Every simulation is one line of DIR/<scenario>.jsonl, as in coverage.py. What is promised for all values of a group
together counts as covered only where all of them are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.along.along import compared
from dwsweep.fit.simulations.coverage import Simulated, command_line, covers, run_simulations
from dwsweep.fit.simulations.simulated_along import LOSS, SLOPE, AlongStudy, along_studies, draw_along
from dwsweep.fit.table import read_table
from dwsweep.records.along_rows import BASE, NEITHER, OTHER, AlongCurve, ArmsParting, EqualToBaseline
from dwsweep.records.fit_result import FitOptions
from dwsweep.records.fit_rows import FitPart

CONFIDENCE = 0.95
MARGIN = 0.02  # nats, of the shapes that equal the baseline
OPTIONS = FitOptions(
    axis="n_params", noise=None, columns=None, where=(), draws=2000, seed=0, confidence=CONFIDENCE, documents=True
)


@dataclass(frozen=True, kw_only=True)
class FoundGroup(FitPart):
    """One group of one arm. Each is whether it holds for all values of the group at once."""

    best: bool  # what every value is above the best
    first: bool  # … above the first value
    degrades: bool  # whether anything is said to be worse from some value on
    degrades_wrongly: bool
    spread: bool
    spread_error: float  # of its estimate, nats
    naive_error: float  # of the plain difference of the largest and the smallest mean
    spread_width: float
    apart: bool | None = None  # what the arm is above the first one; None for the first
    parted: bool | None = None  # whether the arms are said to part
    parted_wrongly: bool | None = None  # one is said to be ahead where it is not, or the place is not between the ends


@dataclass(frozen=True, kw_only=True)
class AlongSimulation(Simulated):
    """equal: shapes that are said to equal the baseline; equal_wrongly: one of them does not."""

    groups: tuple[FoundGroup, ...]
    equal: int
    equal_wrongly: bool


def one(name: str, index: int) -> AlongSimulation:
    """Simulation ``index`` of a scenario."""
    return simulation(along_studies()[name], np.random.default_rng([index, *name.encode()]), index)


def simulation(study: AlongStudy, rng: np.random.Generator, index: int = 0) -> AlongSimulation:
    """One study drawn and compared."""
    tables = [read_table(rows) for rows in draw_along(study, rng)]
    largest = study.budgets[-1]
    baseline = f"{study.column} == {study.values[0]} and budget == {largest!r}"
    _, along = compared(tables, ["first", "second"][: len(tables)], study.column, OPTIONS, baseline, MARGIN)
    places = {(one.arm, one.depth, one.budget): one for one in along.partings}
    groups = tuple(
        _group(study, curve, places.get((curve.arm, curve.depth, curve.budget)), along.arms.index(curve.arm))
        for curve in along.curves
    )
    wrong = [_equal_wrongly(study, one, arm) for arm, one in enumerate(along.equal)]
    return AlongSimulation(
        index=index,
        groups=groups,
        equal=sum(row.equal for one in along.equal for row in one.rows),
        equal_wrongly=any(wrong),
    )


def _group(study: AlongStudy, curve: AlongCurve, parting: ArmsParting | None, arm: int) -> FoundGroup:
    truth = np.array(study.arms[arm])
    rows = curve.rows
    worse = truth - truth.min()
    means = np.array([row.loss for row in rows], dtype=float)
    tail = [k for k, value in enumerate(study.values) if curve.worse_from is not None and value >= curve.worse_from]
    spread, low, high = (v if v is not None else np.nan for v in (curve.spread, curve.spread_low, curve.spread_high))
    found = {}
    if parting is not None:
        gaps = truth - np.array(study.first)
        pairs = zip(rows, gaps, strict=True)
        found["apart"] = all(covers(row.above_base_low, row.above_base_high, float(gap)) for row, gap in pairs)
        found["parted"] = parting.ahead != NEITHER
        found["parted_wrongly"] = _parted_wrongly(study.values, gaps, parting)
    return FoundGroup(
        best=all(covers(r.above_best_low, r.above_best_high, float(t)) for r, t in zip(rows, worse, strict=True)),
        first=all(
            covers(r.above_first_low, r.above_first_high, float(t)) for r, t in zip(rows, truth - truth[0], strict=True)
        ),
        degrades=bool(tail),
        degrades_wrongly=any(worse[k] <= 0.0 for k in tail),
        spread=bool(low - 1e-12 <= np.ptp(truth) <= high),
        spread_error=float(spread - np.ptp(truth)),
        naive_error=float(np.ptp(means) - np.ptp(truth)),
        spread_width=float(high - low),
        **found,
    )


def _parted_wrongly(values: Sequence[int], gaps: np.ndarray, parting: ArmsParting) -> bool:
    """Against the truth: from ``start`` on the arm that is said to be ahead is, and at ``after`` the other one."""
    sign = {OTHER: -1.0, BASE: 1.0, NEITHER: 0.0}[parting.ahead]
    return any(
        (parting.start is not None and value >= parting.start and gap * sign <= 0.0)
        or (parting.after == value and gap * sign >= 0.0)
        for value, gap in zip(values, gaps, strict=True)
    )


def _equal_wrongly(study: AlongStudy, one: EqualToBaseline, arm: int) -> bool:
    effects = dict(zip(study.values, study.arms[arm], strict=True))

    def true_loss(n_params: float, value: int) -> float:
        return LOSS + SLOPE * float(np.log(n_params / 1e5)) + effects[value]

    base = true_loss(one.n_params, study.values[0])
    return any(
        row.equal and true_loss(row.n_params, getattr(row, study.column)) - base >= MARGIN - 1e-12 for row in one.rows
    )


def summary(simulations: Sequence[AlongSimulation]) -> dict[str, float | None]:
    """Shares of all groups; the spread's errors in 10⁻³ nats."""
    groups = [group for found in simulations for group in found.groups]
    second = [group for group in groups if group.apart is not None]
    share = lambda values: float(np.mean(list(values))) if values else None  # noqa: E731
    return {
        "best": share([g.best for g in groups]),
        "first": share([g.first for g in groups]),
        "degrades": share([g.degrades for g in groups]),
        "wrongly": share([g.degrades_wrongly for g in groups]),
        "spread": share([g.spread for g in groups]),
        "bias": 1e3 * float(np.mean([g.spread_error for g in groups])),
        "plain bias": 1e3 * float(np.mean([g.naive_error for g in groups])),
        "width": 1e3 * float(np.median([g.spread_width for g in groups])),
        "apart": share([bool(g.apart) for g in second]),
        "part": share([bool(g.parted) for g in second]),
        "part wrongly": share([bool(g.parted_wrongly) for g in second]),
        "equal wrongly": share([found.equal_wrongly for found in simulations]),
    }


PERCENT = ("best", "first", "degrades", "wrongly", "spread", "apart", "part", "part wrongly", "equal wrongly")


def table(name: str, simulations: Sequence[AlongSimulation]) -> str:
    """A Markdown row."""
    cells = [
        "–" if value is None else f"{100 * value:.1f}" if key in PERCENT else f"{value:.1f}"
        for key, value in summary(simulations).items()
    ]
    return f"| {name} | {len(simulations)} | {' | '.join(cells)} |"


HEAD = (
    "| scenario | n | above the best, % | above the first, % | degrades, % | wrongly, % | spread, % | its bias, 10⁻³ "
    "| of the plain one | width, 10⁻³ | arms apart, % | part, % | wrongly, % | equal wrongly, % |\n"
    + "| --- " * 14
    + "|"
)


def main() -> None:
    args = command_line(__doc__, along_studies(), 500).parse_args()
    results = run_simulations(args.out, args.names, args.n, args.processes, one, AlongSimulation)
    print("\n".join([HEAD, *(table(name, rows) for name, rows in results.items())]))


if __name__ == "__main__":
    main()
