"""What an answer costs: the error of the best depth at one size, per FLOP, under three ways to choose the shapes.

``python -m tests.simulations.design_cost --out DIR [--n 20] [--processes 1] [SCENARIO …]``

A scenario is a truth and the size that is asked for. Every arm trains two seeds per shape on the same tokens, so that
the cost of a run goes with its FLOPs per token:

- *uniform*: depths 4, 8, 12, 18, 27 at K sizes, evenly spaced in ln N from 1e6 to 1e8, whatever is asked;
- *aimed*: the same depths at K sizes from a sixteenth of the size asked for to 1.5 times it;
- *design*: of a family of grids at equal FLOPs, the one to which ``dwsweep design`` (``Judge``) gives the least error.

The noise is that of sweeps/results/laptop. Truth, simulation, shape and seed fix the noise of a run, so that arms
which train the same shape see the same loss.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from dwsweep.cost.arithmetic import training_flops
from dwsweep.design import Judge, make_prior
from dwsweep.fit.ask import LossSurface, fit_loss_model
from dwsweep.fit.cells import select_runs, without_bad_runs
from dwsweep.fit.curves import build_curves
from dwsweep.fit.data.rows import Row
from dwsweep.shapes import Block, HeadRule
from tests.simulations.harness import CONFIDENCE, Simulated, Study, covers, mean, median, percent, rms, shown
from tests.simulations.scenarios import GOLDEN_RATIO, Shape, grid, n_params
from tests.simulations.sweeps import SmoothTruth, through_published_widths
from tests.simulations.truths import TRUTHS, Truth

DEPTHS = (4, 8, 12, 18, 27)
RANGE = (1.0e6, 1.0e8)
TARGETS = (1.0e7, 5.0e7)
SIZES = (4, 8, 16)  # per depth, of the aimed grid
UNIFORM_SIZES = (4, 8)
BELOW, ABOVE = 16.0, 1.5  # times the size asked for: where aimed sizes begin and end
SEEDS, SIGMA, SHAPE_SD, SEED_SD = 2, 0.012, 0.013, 0.003  # nats
TOKENS = 6_000_000
MOVED = 0.15  # of ln L*: by up to this much its place differs between simulations
DRAWS = 400
LAW_EFFECT = 2.5  # what the effect of depth of a law form is multiplied by: as large as that of the other truths
FAMILY_DEPTHS = (DEPTHS, (4, 8, 16, 27), (8, 12, 18, 27), (6, 12, 18, 24, 30), (4, 6, 9, 12, 18, 27))
MOST_SIZES = 24

BLOCK = Block(HeadRule(count=2), vocab_size=1000, seq_len=128)


@functools.cache
def flops(shape: Shape) -> float:
    """Of all seeds of a shape."""
    return float(SEEDS * training_flops(BLOCK.shape(*shape), TOKENS))


def cost(shapes: Iterable[Shape]) -> float:
    return sum(map(flops, shapes))


@dataclass(frozen=True)
class Request:
    """A truth, its number among them, and the size at which its best depth is wanted."""

    truth: Truth | SmoothTruth
    number: int
    target: float

    def numbered(self, index: int) -> Request:
        """That of simulation ``index``; the places of L* fill their range evenly."""
        shift = MOVED * (2.0 * (index * GOLDEN_RATIO % 1.0) - 1.0)
        if isinstance(self.truth, Truth):
            return replace(self, truth=replace(self.truth, depth=self.truth.depth * math.exp(shift)))
        law, n = self.truth, Truth.size
        a, b = law.theta  # of ln d, half of ln N
        a += (math.log(n) - float(law.x_t(law.best_depth(n) * math.exp(shift)))) / 2.0
        return replace(self, truth=replace(law, theta=(a, b)))

    @property
    def best(self) -> float:
        found = self.truth.best_depth(self.target)
        assert found is not None, "depth does something in every truth here"
        return found

    def loss(self, depth: float, n: float) -> float:
        """Nats per token, without noise."""
        return float(self.truth.loss(depth, n if isinstance(self.truth, Truth) else math.log(n)))

    def excess(self, depth: float) -> float:
        """Nats that a depth loses to the best one at the size asked for."""
        return max(self.loss(depth, self.target) - self.loss(self.best, self.target), 0.0)

    def rows(self, shapes: Iterable[Shape], index: int) -> list[Row]:
        """The runs of some shapes. The same shape has the same losses in every arm."""
        shared = np.random.default_rng([self.number, index]).normal(0.0, SEED_SD, SEEDS)
        rows = []
        for depth, width in sorted(set(shapes)):
            shape_error, *noise = np.random.default_rng([self.number, index, depth, width]).normal(
                0.0, [SHAPE_SD, *[SIGMA] * SEEDS]
            )
            mean_loss = self.loss(depth, n_params(depth, width)) + shape_error
            rows += [
                {"depth": depth, "width": width, "seed": seed, "loss": float(mean_loss + shared[seed] + noise[seed])}
                for seed in range(SEEDS)
            ]
        return rows


def scenarios() -> dict[str, Request]:
    law = SmoothTruth(effect=LAW_EFFECT)
    truths: dict[str, Truth | SmoothTruth] = {
        "exponential": law,
        "power": replace(law, form="power", theta=through_published_widths("power")),
        **{name: TRUTHS[name] for name in ("asymmetric", "bent, ln N", "stepped")},
    }
    return {
        f"{name}, {target:.0e}": Request(truth, number, target)
        for number, (name, truth) in enumerate(truths.items())
        for target in TARGETS
    }


Answer = tuple[str, float, int, float | None, float | None, float | None]
"""Arm, FLOPs, shapes, and the best depth with its interval; None where the fit gives none."""


@dataclass(frozen=True, kw_only=True)
class Simulation(Simulated):
    """best: the true one. costs: nats of the depth named above it; one per answer."""

    best: float
    answers: tuple[Answer, ...]
    costs: tuple[float | None, ...]


def fitted(asked: Request, shapes: Iterable[Shape], index: int) -> LossSurface:
    """The surface of all depths, by the fit of today."""
    runs = without_bad_runs(select_runs(asked.rows(shapes, index)))[0].runs
    curves = build_curves(runs, None, DRAWS, np.random.default_rng(0))
    record = fit_loss_model(curves, CONFIDENCE)
    assert record is not None, "every grid here has nine shapes or more"
    return LossSurface(record)


def answer(arm: str, shapes: Sequence[Shape], surface: LossSurface, target: float) -> Answer:
    found = surface.at(target)
    return arm, cost(shapes), len(shapes), found.value, found.low, found.high


def aimed(target: float, sizes: int) -> tuple[Shape, ...]:
    return grid(DEPTHS, sizes, (target / BELOW, ABOVE * target))


@functools.cache
def designed(target: float, budget: float) -> tuple[Shape, ...]:
    """Of grids with as many sizes as the budget allows, the one with the least error at the target by ``Judge``, which
    knows the published law and the noise of one run."""
    prior = make_prior(None, SIGMA)[0]
    spans = product((RANGE[0], target / BELOW, target / 4.0), (target, ABOVE * target, 4.0 * target, RANGE[1]))

    def largest(depths: tuple[int, ...], span: tuple[float, float]) -> tuple[Shape, ...]:
        within = [s for n in range(3, MOST_SIZES + 1) if cost(s := grid(depths, n, span)) <= budget]
        return within[-1] if within else ()

    family = [shapes for depths, span in product(FAMILY_DEPTHS, spans) if (shapes := largest(depths, span))]

    def error(shapes: tuple[Shape, ...]) -> float:
        cells = dict.fromkeys(shapes, frozenset(range(SEEDS)))
        return Judge(prior, {depth for depth, _ in shapes}, target).judge(cells).rms

    return min(family, key=error)


@functools.lru_cache(maxsize=len(UNIFORM_SIZES))  # it serves every target of a truth
def _uniform(asked: Request, index: int, sizes: int) -> tuple[tuple[Shape, ...], LossSurface]:
    shapes = grid(DEPTHS, sizes, RANGE)
    return shapes, fitted(asked, shapes, index)


def simulation(scenario: Request, rng: np.random.Generator, index: int = 0) -> Simulation:
    """All arms on one draw of the noise, which the truth and ``index`` fix."""
    asked = scenario.numbered(index)
    target = asked.target
    answers = [
        answer(f"uniform {sizes}", *_uniform(replace(asked, target=TARGETS[0]), index, sizes), target)
        for sizes in UNIFORM_SIZES
    ]
    static = {f"aimed {sizes}": aimed(target, sizes) for sizes in SIZES}
    static["design, FLOPs of aimed 8"] = designed(target, cost(static["aimed 8"]))
    answers += [answer(arm, shapes, fitted(asked, shapes, index), target) for arm, shapes in static.items()]
    return Simulation(
        index=index,
        best=asked.best,
        answers=tuple(answers),
        costs=tuple(asked.excess(depth) if (depth := found[3]) else None for found in answers),
    )


HEAD = (
    "asked | arm | sweeps | FLOPs, 1e15 | ln(high/low) | rmse, % of L | covered, % "
    "| regret, 1e-4 nats (mean, worst 5 %) | unbounded, %"
)


def width(found: Answer) -> float:
    """ln(high/low); inf without a bound."""
    low, high = found[4:]
    return math.log(high / low) if low and high else math.inf


def _error(found: Iterable[tuple[Answer, float, float | None]]) -> float | None:
    return rms(math.log(one[3] / best) for one, best, _ in found if one[3])


def _row(asked: str, arm: str, found: Sequence[tuple[Answer, float, float | None]]) -> list[str]:
    regrets = [regret for *_, regret in found if regret is not None]
    return [
        *(asked, arm, str(len(found))),
        shown(median(one[1] for one, *_ in found), scale=1e-15),
        shown(median(width(one) for one, *_ in found), digits=".2f"),
        percent(_error(found)),
        percent(mean(covers(*one[4:], best) for one, best, _ in found), digits=".0f"),
        shown(mean(regrets), float(np.quantile(regrets, 0.95)) if regrets else None, scale=1e4),
        percent(mean(math.isinf(width(one)) for one, *_ in found), digits=".0f"),
    ]


def cells(name: str, rows: Sequence[Simulation]) -> list[list[str]]:
    """One row per arm; an answer without a depth counts in the last column, and covers."""
    found: dict[str, list[tuple[Answer, float, float | None]]] = {}
    for row in rows:
        for one, regret in zip(row.answers, row.costs, strict=True):
            found.setdefault(one[0], []).append((one, row.best, regret))
    return [_row(name, arm, answers) for arm, answers in found.items()]


STUDY = Study(__doc__, scenarios(), simulation, Simulation, 20, HEAD, cells)

if __name__ == "__main__":
    STUDY.main()
