"""What an answer costs: the error of the best depth at one size, per FLOP, under four ways to choose the shapes.

``python -m tests.simulations.design_cost --out DIR [--n 20] [--processes 1] [SCENARIO …]``

A scenario is a truth and the size that is asked for. Every arm trains two seeds per shape on the same tokens, so that
the cost of a run goes with its FLOPs per token:

- *uniform*: depths 4, 8, 12, 18, 27 at K sizes, evenly spaced in ln N from 1e6 to 1e8, whatever is asked;
- *aimed*: the same depths at K sizes from a sixteenth of the size asked for to 1.5 times it;
- *design*: of a family of grids at equal FLOPs, the one to which ``dwsweep design`` (``Judge``) gives the least error;
- *sequential*: the depths at three sizes up to the one asked for, then rounds of fit and choice (``chosen``).

The noise is that of sweeps/results/laptop. Truth, simulation, shape and seed fix the noise of a run, so that arms
which train the same shape see the same loss.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from dwsweep.cost.arithmetic import training_flops
from dwsweep.design import Judge, make_prior
from dwsweep.fit.ask import LossSurface, fit_loss_model
from dwsweep.fit.cells import select_runs, without_bad_runs
from dwsweep.fit.curves import Curves, build_curves
from dwsweep.fit.data.rows import Row
from dwsweep.fit.scatter import judged
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
CANDIDATE_DEPTHS = (4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 23, 27)
CANDIDATE_SIZES = 9
FAMILY_DEPTHS = (DEPTHS, (4, 8, 16, 27), (8, 12, 18, 27), (6, 12, 18, 24, 30), (4, 6, 9, 12, 18, 27))
MOST_SIZES = 24
ASKED = (1.15, 1.25)  # how far both ends of the interval may lie from its middle, at which a sequence stops

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


def fitted(asked: Request, shapes: Iterable[Shape], index: int) -> tuple[Curves, LossSurface]:
    """The surface of all depths, by the fit of today."""
    runs = without_bad_runs(select_runs(asked.rows(shapes, index)))[0].runs
    curves = build_curves(runs, None, DRAWS, np.random.default_rng(0))
    record = fit_loss_model(curves, CONFIDENCE)
    assert record is not None, "every grid here has nine shapes or more"
    surface = LossSurface(record)
    return judged(curves, surface.posterior), surface


def answer(arm: str, shapes: Sequence[Shape], surface: LossSurface, target: float) -> Answer:
    found = surface.at(target)
    return arm, cost(shapes), len(shapes), found.value, found.low, found.high


def chosen(curves: Curves, surface: LossSurface, target: float, trained: Iterable[Shape], budget: float) -> list[Shape]:
    """New shapes within ``budget`` FLOPs, each the one that lowers the variance of ln L* at ``target`` most per FLOP.

    A linear Gaussian update over the fit's draws: a shape whose loss has, over the draws, covariance c with ln L* and
    variance s, and whose mean would be known to v, lowers the variance by c²/(s + v). What it also tells of the losses
    of the other shapes is taken off before the next one is chosen. v is the noise that the fit found.
    """
    present = set(trained)
    shapes = [shape for shape in _candidates(target) if shape not in present]
    ln_depth = np.clip(surface.drawn_depths(math.log(target)), surface.grid[0], surface.grid[-1])
    columns = [ln_depth]
    for depth, width in shapes:
        y, losses = surface.losses(math.log(n_params(depth, width)))
        columns.append(losses[:, int(np.abs(y - math.log(depth)).argmin())])
    C = np.cov(np.array(columns))
    tau = sum(form.weight * form.tau**2 for form in surface.record.forms)
    noise = tau + float(np.median(np.diagonal(curves.covariance)))
    prices = np.array([flops(shape) for shape in shapes])
    found: list[Shape] = []
    left = np.ones(len(shapes), dtype=bool)
    while (within := left & (prices <= budget)).any():
        gain = C[0, 1:] ** 2 / (np.diagonal(C)[1:] + noise) / prices
        k = int(np.where(within, gain, -1.0).argmax())
        found.append(shapes[k])
        budget, left[k] = budget - prices[k], False
        line = C[:, k + 1]
        C = C - np.outer(line, line) / (line[k + 1] + noise)
    return found


@functools.cache
def _candidates(target: float) -> tuple[Shape, ...]:
    return grid(CANDIDATE_DEPTHS, CANDIDATE_SIZES, (target / BELOW, ABOVE * target))


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


def sequence(asked: Request, index: int, budgets: Sequence[float]) -> list[Answer]:
    """The answer after the first grid, and after each of the ``budgets`` is spent."""
    shapes = list(grid(DEPTHS, 3, (asked.target / BELOW, asked.target)))
    answers = []
    for budget in (*budgets, None):
        curves, surface = fitted(asked, shapes, index)
        answers.append(answer("sequential", shapes, surface, asked.target))
        if budget is not None:
            shapes += chosen(curves, surface, asked.target, shapes, budget - cost(shapes))
    return answers


@functools.lru_cache(maxsize=len(UNIFORM_SIZES))  # it serves every target of a truth
def _uniform(asked: Request, index: int, sizes: int) -> tuple[tuple[Shape, ...], LossSurface]:
    shapes = grid(DEPTHS, sizes, RANGE)
    return shapes, fitted(asked, shapes, index)[1]


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
    answers += [answer(arm, shapes, fitted(asked, shapes, index)[1], target) for arm, shapes in static.items()]
    ends = [cost(static[f"aimed {sizes}"]) for sizes in SIZES]
    budgets = [ends[0], math.sqrt(ends[0] * ends[1]), *ends[1:]]
    answers += sequence(asked, index, budgets)
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
STEPS = ("start", *(f"{k}" for k in range(1, 5)))


def _by_arm(rows: Iterable[Simulation]) -> dict[str, list[tuple[Answer, float, float | None]]]:
    """Answers of each arm, the truth and the regret beside each; a sequence's are numbered by their rounds."""
    found: dict[str, list[tuple[Answer, float, float | None]]] = {}
    for row in rows:
        steps = iter(STEPS)
        for one, regret in zip(row.answers, row.costs, strict=True):
            name = f"sequential {next(steps)}" if one[0] == "sequential" else one[0]
            found.setdefault(name, []).append((one, row.best, regret))
    return found


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
    return [_row(name, arm, found) for arm, found in _by_arm(rows).items()]


def spared(arms: dict[str, list[tuple[Answer, float, float | None]]], arm: str) -> float | None:
    """The share of FLOPs that an arm spares against the aimed grid of equal rmse: that on the line through ln rmse and
    ln FLOPs of the aimed grids; None where its rmse lies outside theirs."""
    lines = [(_error(found), found[0][0][1]) for name, found in arms.items() if name.startswith("aimed")]
    error = _error(arms[arm])
    known = sorted((math.log(e), math.log(f)) for e, f in lines if e)
    if not error or len(known) < 2 or not known[0][0] <= math.log(error) <= known[-1][0]:
        return None
    slope, level = np.polyfit(*zip(*known, strict=True), 1)
    return 1.0 - arms[arm][0][0][1] / math.exp(level + slope * math.log(error))


def stopped(rows: Iterable[Simulation], asked: float) -> list[tuple[Answer, float]]:
    """The first answer of each sequence whose ends lie within ``asked``² of each other, and the truth. A sequence that
    never gets there is left out."""
    found = []
    for row in rows:
        sequence = [one for one in row.answers if one[0] == "sequential"]
        enough = [one for one in sequence if width(one) <= 2.0 * math.log(asked)]
        found += [(enough[0], row.best)] if enough else []
    return found


class Cost(Study[Simulation]):
    """The study, with what all truths together say below its table."""

    def table(self, results: Mapping[str, Sequence[Simulation]]) -> str:
        groups = {
            f"{target:.0e}, {kind}": [
                row
                for name, rows in results.items()
                if self.scenarios[name].target == target and isinstance(self.scenarios[name].truth, of)
                for row in rows
            ]
            for target, (kind, of) in product(TARGETS, (("law", SmoothTruth), ("no law", Truth), ("all", object)))
        }
        lines = [*_markdown([*HEAD.split(" | "), "spared at equal rmse, %"])]
        for name, rows in groups.items():
            arms = _by_arm(rows)
            lines += [
                _line([*_row(name, arm, found), percent(spared(arms, arm), digits=".0f")])
                for arm, found in arms.items()
            ]
        stops = _markdown(
            ["stop within", "asked", "sequences", "stopped, %", "covered at the stop, %", "rmse, % of L", "FLOPs, 1e15"]
        )
        for asked, (name, rows) in product(ASKED, groups.items()):
            found = stopped(rows, asked)
            stops.append(
                _line(
                    [
                        *(f"{asked - 1.0:.0%}", name, str(len(rows))),
                        percent(len(found) / len(rows) if rows else None, digits=".0f"),
                        percent(mean(covers(*one[4:], best) for one, best in found), digits=".0f"),
                        percent(rms(math.log(one[3] / best) for one, best in found if one[3])),
                        shown(median(one[1] for one, _ in found), scale=1e-15),
                    ]
                )
            )
        return "\n".join([super().table(results), "", *lines, "", *stops])


def _line(row: Iterable[str]) -> str:
    return f"| {' | '.join(row)} |"


def _markdown(heads: Sequence[str]) -> list[str]:
    return [_line(heads), _line(["---"] * len(heads))]


STUDY = Cost(__doc__, scenarios(), simulation, Simulation, 20, HEAD, cells)

if __name__ == "__main__":
    STUDY.main()
