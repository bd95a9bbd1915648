"""Answers of ``guide --fit`` beyond own sizes: intervals, stated regret and trust against truths of many recipes.

A sweep of 35 nets, κ (the price of a wrong depth) from 0.08 to 2, its best depth inside, above or below the depths
tried; recipes of the population of public evidence, and powers and logarithms of other curvature. Asked at 3, 10 and
28 times its largest size. The table has one row per scenario and trust:

    python -m tests.simulations.far --out DIR

All scenarios together, 58 sweeps:

| trust | answers | held, % | regret above its bound, % | mean regret, true and stated, nats |
| --- | --- | --- | --- | --- |
| medium | 79 | 96.2 | 5.1 | 0.0065 0.0051 |
| low | 95 | 97.9 | 21.1 | 0.0261 0.0626 |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dwsweep.evidence import read_populations
from dwsweep.evidence.random_effects import CENTRE
from dwsweep.fit.analysis import fit_table
from dwsweep.guide import Source, source_of
from dwsweep.guide.sources import judge
from tests.simulations.harness import Simulated, Study, mean, percent, shown

SMALL, LARGE = (1e6, 4e7), (1e7, 1e9)
FACTORS = (3.0, 10.0, 28.0)
PRICES = (0.08, 2.0)
SIZES, DEPTHS, NOISE, SPAN = 7, 5, 0.002, 4.0  # of a sweep; nats; the deepest over the shallowest net
MARGIN = 1.1  # factor between the best depths and the depths tried, where they lie apart
REGRET = 0.95


@dataclass(frozen=True)
class Truth:
    """Best depth y(ln N), ln layers, and price κ on either side of it; nats by the slope of the level."""

    x: np.ndarray
    y: np.ndarray
    shallow: float
    deep: float

    def best(self, n: float) -> float:
        return float(np.interp(math.log(n), self.x, self.y))

    def above(self, depth: float, n: float) -> float:
        """Nats of a depth above the best."""
        apart = math.log(depth) - max(0.0, self.best(n))
        return slope(n) * (self.shallow if apart < 0 else self.deep) * apart**2


def level(n: float) -> float:
    return 1.5 + 3.0 * (n / 1e7) ** -0.08


def slope(n: float) -> float:
    """−dloss/d ln N, nats."""
    return 0.24 * (n / 1e7) ** -0.08


@dataclass(frozen=True)
class Scenario:
    """Sizes of a sweep, its truth (``recipe``, ``power`` or ``logarithm``) and the place of its best depths."""

    sizes: tuple[float, float]
    truth: str
    place: str

    def drawn(self, rng: np.random.Generator) -> tuple[Truth, list[int]]:
        """A truth, and depths of which the best depth lies ``inside``, ``above`` or ``below`` at all sizes."""
        x = np.log(np.geomspace(self.sizes[0], 100.0 * self.sizes[1], 60))
        while True:
            y = self._depths(x, rng)
            low, high = (float(np.interp(math.log(n), x, y)) for n in self.sizes)
            shallowest = {
                "inside": (low + high) / 2.0 - math.log(SPAN) / 2.0 + rng.uniform(-0.3, 0.3),
                "above": low - math.log(MARGIN * SPAN),
                "below": high + math.log(MARGIN),
            }[self.place]
            depths = np.unique(np.exp(shallowest + np.linspace(0.0, math.log(SPAN), DEPTHS)).round().astype(int))
            if depths[0] >= 1 and len(depths) >= 4 and y.max() < math.log(400.0):
                break
        price = math.exp(rng.uniform(*np.log(PRICES)))
        bent = math.exp(rng.normal(0.0, 0.2))
        return Truth(x, y, price * bent, price / bent), depths.tolist()

    def _depths(self, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """(K,) ln of the best depth at x = ln N (K,)."""
        away = x - CENTRE
        if self.truth == "recipe":
            everyone = read_populations().depth
            one = everyone.taken(rng.integers(len(everyone), size=1))
            departures = rng.multivariate_normal(np.zeros(len(x)), one.covariance(away, away)[0], method="eigh")
            found: np.ndarray = one.mean(away, np.zeros(len(x)))[0] + departures
            return found
        offset = 2.75 + rng.normal(0.0, 0.3)
        if self.truth == "power":
            return offset + rng.uniform(0.12, 0.42) * away
        return offset + np.log(np.maximum(1.0 + rng.uniform(0.1, 0.3) * away, 0.2))

    def rows(self, truth: Truth, depths: Sequence[int], rng: np.random.Generator) -> list[dict[str, float]]:
        rows = []
        for n in np.geomspace(*self.sizes, SIZES):
            for depth in depths:
                width = max(4, 4 * round(math.sqrt(n / 12 / depth) / 4))
                size = 12 * depth * width**2
                loss = level(size) + truth.above(depth, size) + rng.normal(0.0, NOISE)
                rows.append({"depth": depth, "width": width, "loss": loss})
        return rows


@dataclass(frozen=True, kw_only=True)
class Answers(Simulated):
    """Answers at FACTORS times the largest size: trust; whether the interval holds the best depth; regret in nats:
    true, stated in expectation and at 95 %."""

    trust: tuple[str, ...]
    held: tuple[bool, ...]
    regret: tuple[float, ...]
    stated: tuple[float, ...]
    worst: tuple[float, ...]


def asked(source: Source, truth: Truth, sizes: Sequence[float], index: int) -> Answers:
    rows = []
    for n in sizes:
        loss = source.loss(n)
        best, low, high = loss.best_depth
        whole = np.unique(np.maximum(1.0, np.geomspace(best / 6.0, best * 6.0, 120).round()))
        chosen = float(whole[loss.penalties(whole).argmin()])
        drawn = loss.drawn(np.array([chosen]))[:, 0]
        # a level of its own: the regret in ln N, in nats by the true slope
        scale = slope(n) / loss.slope
        held = low <= max(1.0, math.exp(truth.best(n))) <= high
        stated, worst = scale * float(drawn.mean()), scale * float(np.quantile(drawn, REGRET))
        rows.append((judge(source, n).level, held, truth.above(chosen, n), stated, worst))
    trust, holds, regret, expected, bound = zip(*rows, strict=True)
    return Answers(index=index, trust=trust, held=holds, regret=regret, stated=expected, worst=bound)


def simulate(scenario: Scenario, rng: np.random.Generator, index: int) -> Answers:
    truth, depths = scenario.drawn(rng)
    fit = fit_table(scenario.rows(truth, depths, rng), noise=NOISE)
    return asked(source_of(fit, "own"), truth, [scenario.sizes[1] * factor for factor in FACTORS], index)


def cells(name: str, lines: Sequence[Answers]) -> Iterable[Sequence[str]]:
    """One row per trust."""
    for level in ("medium", "low"):
        rows = list(of_trust(lines, level))
        held, beyond = mean(row[0] for row in rows), mean(row[1] > row[3] + 1e-6 for row in rows)
        true, stated = mean(row[1] for row in rows), mean(row[2] for row in rows)
        yield name, level, str(len(rows)), percent(held), percent(beyond), shown(true, stated, digits=".4f")


def of_trust(lines: Sequence[Answers], level: str) -> Iterator[tuple[bool, float, float, float]]:
    """(held, regret, stated, worst) of all answers with a trust."""
    for line in lines:
        for trust, *row in zip(line.trust, line.held, line.regret, line.stated, line.worst, strict=True):
            if trust == level:
                yield tuple(row)


SCENARIOS = {
    f"{name}, {truth}, {place}": Scenario(sizes, truth, place)
    for name, sizes in (("small", SMALL), ("large", LARGE))
    for truth in ("recipe", "power", "logarithm")
    for place in ("inside", "above", "below")
}
HEAD = "scenario | trust | answers | held, % | regret above its bound, % | mean regret, true and stated, nats"
STUDY = Study(__doc__, SCENARIOS, simulate, Answers, 6, HEAD, cells)

if __name__ == "__main__":
    STUDY.main()
