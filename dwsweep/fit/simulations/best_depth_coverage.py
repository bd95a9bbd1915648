"""The best depth against losses whose best depth is known, by simulation:
``python -m dwsweep.fit.simulations.best_depth_coverage --out DIR [--n 150] [--processes 2] [SCENARIO …]``.

So are the transitions of neighbouring depths by the same losses (estimator ``surface``). Every simulation is one line
of DIR/<scenario>.jsonl, as in coverage.py. The oracle knows the form of the law, the noise and the luck, and that
nothing departs from the form.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dwsweep.fit.bad_runs import without_bad_runs
from dwsweep.fit.cells import select_runs
from dwsweep.fit.curves import Curves, build_curves
from dwsweep.fit.guideline import OwnGuide, own_guide
from dwsweep.fit.laws import from_ends
from dwsweep.fit.pairs import analyse_pairs, with_surface
from dwsweep.fit.row_selection import Row
from dwsweep.fit.simulations.coverage import Simulated, command_line, covers, run_simulations
from dwsweep.fit.simulations.simulated_sweeps import SmoothTruth, draw, through_published_widths
from dwsweep.fit.surface.loss_model import fit_loss_model, known_form
from dwsweep.fit.surface.loss_surface import LossSurface
from dwsweep.records.fit_rows import FitPart

SIZES = (1.0e7, 3.0e7, 1.0e8, 1.0e9)  # the last one lies outside the data
CONFIDENCE = 0.95
DRAWS = 400
GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))
LAPTOP_WIDTHS = (116.0, 274.0)  # at which one layer and four are the best ones, about as in sweeps/results/laptop
SKIPPED = 3  # an uneven grid lacks every third size, another third at each depth


@dataclass(frozen=True)
class Sweep:
    """What is simulated: 5 depths, 9 sizes from 1e6 to 6e8, 3 seeds, σ 0.002 nats, unless it says otherwise; and the
    sizes that it is asked for, of which the last lies outside the data.

    Where the truth makes a wave about its form, each simulation has another phase of it: what a fit misses between two
    depths is then missed at other sizes in each.
    """

    truth: SmoothTruth = field(default_factory=SmoothTruth)
    sizes: int = 9
    seeds: int = 3
    sigma: float = 0.002
    luck: float = 0.0
    bad: float = 0.0  # nats, on one run
    uneven: bool = False
    span: tuple[float, float] = (1.0e6, 6.0e8)
    at: tuple[float, ...] = SIZES

    def with_phase(self, index: int) -> Sweep:
        """That of simulation ``index``; phases fill the circle evenly."""
        return replace(self, truth=replace(self.truth, phase=index * GOLDEN_ANGLE)) if self.truth.bend else self

    @property
    def smooth(self) -> SmoothTruth:
        """The curves without their waves, which count as the luck of the shapes: what a smooth model is asked for."""
        return replace(self.truth, wiggle=0.0)

    def rows(self, rng: np.random.Generator) -> list[Row]:
        budgets = tuple(np.geomspace(*self.span, self.sizes))

        def of(depth: int) -> Sequence[float]:
            place = self.truth.depths.index(depth) % SKIPPED
            return [n for k, n in enumerate(budgets) if not self.uneven or k % SKIPPED != place]

        rows = draw(self.truth, rng, budgets=of, seeds=self.seeds, sigma=self.sigma, luck=self.luck)
        if self.bad:
            rows[int(rng.integers(len(rows)))]["loss"] += self.bad
        return rows


def sweeps() -> dict[str, Sweep]:
    """The scenarios, one change each."""
    base = Sweep()

    def truth(**changes: Any) -> Sweep:
        return replace(base, truth=replace(base.truth, **changes))

    return {
        "exponential": base,
        "power": truth(form="power", theta=through_published_widths("power")),
        "linear": truth(form="linear", theta=through_published_widths("linear")),
        "no form holds": truth(bend=0.25),
        "no form holds, 4 depths": truth(bend=0.25, depths=(6, 12, 18, 24)),
        "no form holds, 7 depths": truth(bend=0.25, depths=(6, 9, 12, 15, 18, 24, 30)),
        "no form holds, wave of 10 %": truth(bend=0.1),
        "gains fall as N^-0.4": truth(fall=0.4),
        "leads level off": truth(level_off=2.0),
        "wiggly curves": truth(wiggle=0.002),
        "uneven depths": truth(depths=(6, 9, 18, 36, 48)),
        "uneven grids": replace(base, sizes=13, uneven=True),
        "one seed": replace(base, seeds=1),
        "luck 0.002": replace(base, luck=0.002),
        "luck 0.004": replace(base, luck=0.004),
        "one bad run": replace(base, bad=5.0),
        "3 sizes": replace(base, sizes=3),
        "4 sizes, luck 0.002": replace(base, sizes=4, luck=0.002),
        "5 sizes, luck 0.004": replace(base, sizes=5, luck=0.004),
        "6 sizes": replace(base, sizes=6),
        "17 sizes": replace(base, sizes=17),
        "identical curves": truth(effect=0.0),
        "laptop": _laptop(),
        "laptop, power": _laptop("power"),
        "laptop, linear": _laptop("linear"),
        "laptop, no form holds": _laptop(bend=0.25),
        "laptop, identical curves": _laptop(effect=0.0),
    }


def _laptop(form: str = "exponential", bend: float = 0.0, effect: float = 0.14) -> Sweep:
    """As sweeps/results/laptop: few layers, small nets, and shapes whose luck is what neighbours in depth differ by."""
    first, last = from_ends(form, np.log(LAPTOP_WIDTHS), 1.0, 4.0)
    truth = SmoothTruth(depths=(1, 2, 3, 4), form=form, theta=(float(first), float(last)), bend=bend, effect=effect)
    return Sweep(
        truth=replace(truth, fall=0.25, power=-1.2),
        sizes=8,
        sigma=0.012,
        luck=0.013,
        span=(4.0e4, 2.0e6),
        at=(1.0e5, 3.0e5, 8.0e5, 5.0e6),
    )


Claim = tuple[int, int, str, float | None, float | None]  # a pair of depths, its status, ln N of the ends
Depth = tuple[float | None, float | None, float | None]  # best depth and the ends of its interval; None: there is none


@dataclass(frozen=True, kw_only=True)
class Simulation(Simulated):
    """Best depths at ``SIZES``; None where the sweep has no guide, or the oracle does not apply."""

    depths: tuple[Depth, ...] | None
    oracle: tuple[Depth, ...] | None
    rejected: tuple[str, ...]  # forms of the law
    transitions: tuple[Claim, ...]


@dataclass(frozen=True, kw_only=True)
class SizeSummary(FitPart):
    """The best depth at one size, over all simulations."""

    n_params: float
    best: float  # the true one; the median of several
    answers: float  # share of the sweeps that have one
    bias: float | None  # of ln L
    rmse: float | None  # of ln L
    coverage: float | None  # share of the answers
    cost: float | None  # loss of the depth named above the least, nats: the 95th percentile
    ratio: float | None  # median width of the interval in ln L over the oracle's


@dataclass(frozen=True, kw_only=True)
class Summary(FitPart):
    """A scenario over all simulations."""

    scenario: str
    n: int
    sizes: tuple[SizeSummary, ...]
    true_form_rejected: float  # share of the sweeps
    crossed: float  # share of all pairs of neighbours that are called crossed
    crossed_covered: float | None  # share of these whose interval holds the true transition; None: there is none


def one(name: str, index: int) -> Simulation:
    """Simulation ``index`` of a scenario: (depth, low, high) at each size, the oracle's, and each form's weight."""
    sweep = sweeps()[name].with_phase(index)
    rows = sweep.rows(np.random.default_rng([index, *name.encode()]))
    runs = without_bad_runs(select_runs(rows))[0].runs
    curves = build_curves(runs, None, DRAWS, np.random.default_rng(0))
    surface = fit_loss_model(curves, CONFIDENCE)
    guide = own_guide(surface)
    truth = sweep.truth
    known = None
    if surface and truth.effect and not truth.bend and not truth.wiggle and not sweep.bad:
        variances = np.full(len(curves.x), sweep.sigma**2 / sweep.seeds)
        record = known_form(curves, truth.form, variances, sweep.luck, CONFIDENCE)
        known = OwnGuide(LossSurface(record), "oracle", *sweep.span)
    return Simulation(
        index=index,
        depths=tuple(guide.depth(n) for n in sweep.at) if guide else None,
        oracle=tuple(known.depth(n) for n in sweep.at) if known else None,
        rejected=tuple(form.form for form in surface.forms if form.rejected) if surface else (),
        transitions=_transitions(curves, LossSurface(surface)) if surface else (),
    )


def _transitions(curves: Curves, surface: LossSurface) -> tuple[Claim, ...]:
    """What the losses of all depths say of each pair of neighbours."""
    pairs = with_surface(analyse_pairs(curves, CONFIDENCE, estimators=False), curves, surface, CONFIDENCE)
    return tuple(
        (pair.shallow, pair.deep, crossing.status, crossing.low, crossing.high)
        for pair in pairs
        for name, _, crossing in pair.others
        if name == "surface"
    )


def summarise(name: str, rows: Sequence[Simulation]) -> Summary:
    """Per size: true best depth, share of sweeps with an answer, bias and rmse of ln L, coverage of all sweeps that
    answer, and the median width of the interval in ln L over the oracle's."""
    sweep = sweeps()[name]
    sizes = []
    for i, n in enumerate(sweep.at):
        best = [sweep.with_phase(row.index).truth.best_depth(n) for row in rows]
        # identical curves have no best depth
        given = [(k, row.depths[i]) for k, row in enumerate(rows) if row.depths and sweep.truth.effect]
        found = [(best[k], *answer) for k, answer in given]
        errors = np.array([math.log(depth / true) for true, depth, _, _ in found if depth])
        costs = [
            _cost(sweep.with_phase(rows[k].index).smooth, n, depth, best[k]) for k, (depth, _, _) in given if depth
        ]
        widths = [_width(row.depths[i]) for row in rows if row.depths and row.oracle]
        known = [_width(row.oracle[i]) for row in rows if row.depths and row.oracle]
        ratio = float(np.median(widths) / np.median(known)) if widths and math.isfinite(np.median(widths)) else None
        sizes.append(
            SizeSummary(
                n_params=n,
                best=float(np.median(best)),
                answers=sum(row.depths is not None for row in rows) / len(rows),
                bias=float(errors.mean()) if len(errors) else None,
                rmse=float(np.sqrt((errors**2).mean())) if len(errors) else None,
                coverage=float(np.mean([covers(low, high, true) for true, _, low, high in found])) if found else None,
                cost=float(np.quantile(costs, 0.95)) if costs else None,
                ratio=ratio,
            )
        )
    rejected = float(np.mean([sweep.truth.form in row.rejected for row in rows]))
    held = [
        bool(sweep.truth.effect) and covers(low, high, sweep.with_phase(row.index).smooth.crossing(shallow, deep))
        for row in rows
        for shallow, deep, status, low, high in row.transitions
        if status == "crossed"
    ]
    return Summary(
        scenario=name,
        n=len(rows),
        sizes=tuple(sizes),
        true_form_rejected=rejected,
        crossed=len(held) / (len(rows) * (len(sweep.truth.depths) - 1)),
        crossed_covered=float(np.mean(held)) if held else None,
    )


def _cost(smooth: SmoothTruth, n: float, depth: float, best: float) -> float:
    """Nats by which ``depth`` loses to the best one at a size."""
    return float(smooth.loss(depth, math.log(n)) - smooth.loss(best, math.log(n)))


def _width(depth: Depth) -> float:
    return math.log(depth[2] / depth[1]) if depth[1] and depth[2] else math.inf


def table(summaries: Sequence[Summary]) -> str:
    """Markdown: one row per scenario, four numbers per column, at 1e7, 3e7, 1e8 and 1e9 (outside the data);
    and the transitions by the same losses."""
    lines = [
        "| scenario | n | answers, % | true best depth | rmse, % of L | covered, % | costs, 1e-4 nats "
        "| width / oracle | pairs crossed, % | covered, % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]

    def text(values: Sequence[float | None], digits: int, scale: float = 1.0) -> str:
        return " ".join("–" if v is None else f"{scale * v:.{digits}f}" for v in values)

    for s in summaries:
        lines.append(
            f"| {s.scenario} | {s.n} | {100 * s.sizes[0].answers:.0f} | {text([size.best for size in s.sizes], 1)} "
            f"| {text([size.rmse for size in s.sizes], 1, 100)} | {text([size.coverage for size in s.sizes], 0, 100)} "
            f"| {text([size.cost for size in s.sizes], 1, 1e4)} "
            f"| {text([size.ratio for size in s.sizes], 2)} | {text([s.crossed], 0, 100)} "
            f"| {text([s.crossed_covered], 0, 100)} |"
        )
    return "\n".join(lines)


def main() -> None:
    args = command_line(__doc__, sweeps(), 150).parse_args()
    results = run_simulations(args.out, args.names, args.n, args.processes, one, Simulation)
    print(table([summarise(name, rows) for name, rows in results.items()]))


if __name__ == "__main__":
    main()
