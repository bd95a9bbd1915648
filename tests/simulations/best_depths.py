"""The best depth of sweeps whose best depth is known, and the transitions by the same losses: are they covered?

``python -m tests.simulations.best_depths --out DIR [--n 150] [--processes 2] [SCENARIO …]``

The transitions are those of neighbouring depths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dwsweep.fit.ask import LossSurface, fit_loss_model
from dwsweep.fit.cells import select_runs, without_bad_runs
from dwsweep.fit.curves import Curves, build_curves
from dwsweep.fit.data.rows import Row
from dwsweep.fit.laws import FORMS
from dwsweep.fit.scatter import judged
from dwsweep.fit.transitions import analyse_pairs
from tests.simulations.harness import CONFIDENCE, Point, Simulated, Study, covers, mean, median, percent, rms, shown
from tests.simulations.sweeps import SmoothTruth, draw, through_published_widths

SIZES = (1.0e7, 3.0e7, 1.0e8, 1.0e9)  # the last one lies outside the data
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
    shape_sd: float = 0.0
    bad: float = 0.0  # nats, on one run
    uneven: bool = False
    span: tuple[float, float] = (1.0e6, 6.0e8)
    at: tuple[float, ...] = SIZES

    def numbered(self, index: int) -> Sweep:
        """That of simulation ``index``; phases fill the circle evenly."""
        return replace(self, truth=replace(self.truth, phase=index * GOLDEN_ANGLE)) if self.truth.bend else self

    @property
    def smooth(self) -> SmoothTruth:
        """The curves without their waves, which count as errors of the shapes: what a smooth model is asked for."""
        return replace(self.truth, wiggle=0.0)

    def best_depth(self, n: float) -> float | None:
        """The true one; None where depth does nothing."""
        return self.truth.best_depth(n) if self.truth.effect else None

    def rows(self, rng: np.random.Generator) -> list[Row]:
        budgets = tuple(np.geomspace(*self.span, self.sizes))

        def of(depth: int) -> Sequence[float]:
            place = self.truth.depths.index(depth) % SKIPPED
            return [n for k, n in enumerate(budgets) if not self.uneven or k % SKIPPED != place]

        rows = draw(self.truth, rng, budgets=of, seeds=self.seeds, sigma=self.sigma, shape_sd=self.shape_sd)
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
        "gains fall as N^-0.4": truth(decay=0.4),
        "leads level off": truth(level_off=2.0),
        "wiggly curves": truth(wiggle=0.002),
        "uneven depths": truth(depths=(6, 9, 18, 36, 48)),
        "uneven grids": replace(base, sizes=13, uneven=True),
        "one seed": replace(base, seeds=1),
        "luck 0.002": replace(base, shape_sd=0.002),
        "luck 0.004": replace(base, shape_sd=0.004),
        "one bad run": replace(base, bad=5.0),
        "3 sizes": replace(base, sizes=3),
        "4 sizes, luck 0.002": replace(base, sizes=4, shape_sd=0.002),
        "5 sizes, luck 0.004": replace(base, sizes=5, shape_sd=0.004),
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
    """As sweeps/results/laptop: few layers, small nets, errors of shapes as large as effects of depth."""
    first, last = FORMS[form].from_ends(np.log(LAPTOP_WIDTHS), 1.0, 4.0)
    truth = SmoothTruth((1, 2, 3, 4), form, (float(first), float(last)), bend, decay=0.25, effect=effect, power=-1.2)
    span, at = (4.0e4, 2.0e6), (1.0e5, 3.0e5, 8.0e5, 5.0e6)
    return Sweep(truth, sizes=8, sigma=0.012, shape_sd=0.013, span=span, at=at)


Claim = tuple[int, int, str, float | None, float | None]  # a pair of depths, its status, ln N of the ends


@dataclass(frozen=True, kw_only=True)
class Simulation(Simulated):
    """Best depths at the sizes asked for; None where the sweep has no guide."""

    depths: tuple[Point, ...] | None
    transitions: tuple[Claim, ...]


def simulation(scenario: Sweep, rng: np.random.Generator, index: int = 0) -> Simulation:
    """One sweep drawn, fitted and asked for its best depths."""
    sweep = scenario.numbered(index)
    runs = without_bad_runs(select_runs(sweep.rows(rng)))[0].runs
    curves = judged(build_curves(runs, None, DRAWS, np.random.default_rng(0)))
    surface = fit_loss_model(curves, CONFIDENCE)
    return Simulation(
        index=index,
        depths=_depths(LossSurface(surface), sweep) if surface else None,
        transitions=_transitions(curves, LossSurface(surface)) if surface else (),
    )


def _depths(surface: LossSurface, sweep: Sweep) -> tuple[tuple[float | None, float | None, float | None], ...]:
    found = (surface.at(n) for n in sweep.at)
    return tuple((one.value, one.low, one.high) for one in found)


def _transitions(curves: Curves, surface: LossSurface) -> tuple[Claim, ...]:
    """What the losses of all depths say of each pair of neighbours."""
    pairs = analyse_pairs(curves, CONFIDENCE, surface)
    return tuple(
        (pair.shallow, pair.deep, pair.verdict.status, pair.verdict.low, pair.verdict.high)
        for pair in pairs
        if pair.joint
    )


def summarise(name: str, rows: Sequence[Simulation]) -> dict[str, Any]:
    """The best depth per size, and shares of the sweeps and pairs from 0 to 1.

    crossed: of all pairs of neighbours, those called crossed. crossed_covered: of these, those whose interval holds the
    true transition.
    """
    sweep = sweeps()[name]
    drawn = [sweep.numbered(row.index) for row in rows]
    held = [
        bool(sweep.truth.effect) and covers(low, high, true.smooth.crossing(shallow, deep))
        for row, true in zip(rows, drawn, strict=True)
        for shallow, deep, status, low, high in row.transitions
        if status == "crossed"
    ]
    return {
        "sizes": [_at_size(i, drawn, rows) for i in range(len(sweep.at))],
        "crossed": len(held) / (len(rows) * (len(sweep.truth.depths) - 1)),
        "crossed_covered": mean(held),
    }


def _at_size(i: int, drawn: Sequence[Sweep], rows: Sequence[Simulation]) -> dict[str, float | None]:
    """At one of the sizes asked for: the median of the true best depths, the share of the sweeps that have an answer,
    bias and rmse of ln L, the share of the answers that are covered, and the 95th percentile of what the depth named
    loses to the best one in nats."""
    n = drawn[0].at[i]
    best = [sweep.truth.best_depth(n) for sweep in drawn]
    # identical curves have no best depth
    asked = [k for k, row in enumerate(rows) if row.depths and drawn[k].truth.effect]
    found = [(drawn[k].smooth, best[k], *rows[k].depths[i]) for k in asked]  # type: ignore[index]
    errors = [math.log(depth / true) for _, true, depth, _, _ in found if depth]
    x = math.log(n)
    costs = [float(smooth.loss(depth, x) - smooth.loss(true, x)) for smooth, true, depth, _, _ in found if depth]
    return {
        "best": median(best),
        "answers": mean(row.depths is not None for row in rows),
        "bias": mean(errors),
        "rmse": rms(errors),
        "coverage": mean(covers(low, high, true) for _, true, _, low, high in found),
        "cost": float(np.quantile(costs, 0.95)) if costs else None,
    }


HEAD = (
    "scenario | n | answers, % | true best depth | rmse, % of L | covered, % | costs, 1e-4 nats "
    "| pairs crossed, % | covered, %"
)


def cells(name: str, rows: Sequence[Simulation]) -> list[list[str]]:
    """One row: four numbers per column, at 1e7, 3e7, 1e8 and 1e9 (outside the data), and the transitions."""
    s = summarise(name, rows)
    best, rmse, coverage, cost = ([size[key] for size in s["sizes"]] for key in ("best", "rmse", "coverage", "cost"))
    return [
        [
            *(name, str(len(rows)), percent(s["sizes"][0]["answers"], digits=".0f")),
            *(shown(*best), percent(*rmse), percent(*coverage, digits=".0f"), shown(*cost, scale=1e4)),
            *(percent(s[key], digits=".0f") for key in ("crossed", "crossed_covered")),
        ]
    ]


STUDY = Study(__doc__, sweeps(), simulation, Simulation, 150, HEAD, cells)

if __name__ == "__main__":
    STUDY.main()
