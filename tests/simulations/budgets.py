"""The best depth and size at equal compute, of sweeps whose minima are known: are they covered?

``python -m tests.simulations.budgets --out DIR [--n 200] [--processes 2] [SCENARIO …]``

The loss has the form of
compute-optimal laws (Hoffmann et al. 2022), with a number of useful parameters that depends on the shape:

    loss(L, N, D) = E + A/(N·g)^α + B/D^β,    ln g = −s·((r^(−a) − 1)/a + (r^b − 1)/b),    r = L / L*(N)

g is 1 at the depth L*(N) = L_0·(N/N_0)^p and falls on either side of it, at different speeds. The loss is therefore no
parabola in ln L, and none in ln N. D = C/(FLOPs per token), of blocks, attention and unembedding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from scipy.optimize import minimize_scalar

from dwsweep.fit.analysis import fit_table
from dwsweep.fit.data.rows import Row
from tests.simulations.harness import Point, Simulated, Study, covers, mean, median, percent
from tests.simulations.sweeps import widths


@dataclass(frozen=True)
class BudgetTruth:
    """irreducible E, a, b in nats; alpha, beta: powers; depth_0 at size_0, depth_power: of L*(N); penalty s; shallow,
    deep: the powers a and b of the penalty on either side. seq_len, vocab_size: of the FLOPs per token."""

    irreducible: float = 1.69
    a: float = 406.4
    b: float = 410.7
    alpha: float = 0.34
    beta: float = 0.28
    depth_0: float = 12.0
    size_0: float = 1.0e8
    depth_power: float = 0.25
    penalty: float = 0.6
    shallow: float = 1.5
    deep: float = 0.5
    seq_len: int = 1024
    vocab_size: int = 32_000

    def flops_per_token(self, depth: float, width: float) -> float:
        """Of training: 3·(2·12·L·d² + 4·L·d·n + 2·V·d), as dwsweep/cost counts."""
        return 6.0 * width * (12.0 * depth * width + 2.0 * depth * self.seq_len + self.vocab_size)

    def loss(self, depth: float, width: float, tokens: float) -> float:
        """Nats per token."""
        n = 12.0 * depth * width**2
        r = depth / (self.depth_0 * (n / self.size_0) ** self.depth_power)
        ln_g = -self.penalty * ((r**-self.shallow - 1.0) / self.shallow + (r**self.deep - 1.0) / self.deep)
        useful = self.a * math.exp(-self.alpha * (math.log(n) + ln_g))
        return self.irreducible + useful + self.b / tokens**self.beta

    def at(self, flops: float, depth: float, n_params: float) -> float:
        """Nats per token of a depth and a size, trained with ``flops``."""
        width = math.sqrt(n_params / (12.0 * depth))
        return self.loss(depth, width, flops / self.flops_per_token(depth, width))

    def best_size(self, flops: float, depth: float) -> tuple[float, float]:
        """(N, loss) of the size at which a depth is best."""
        x = np.linspace(math.log(1e4), math.log(1e12), 400)
        k = int(np.argmin([self.at(flops, depth, math.exp(v)) for v in x]))
        found = minimize_scalar(
            lambda v: self.at(flops, depth, math.exp(v)), bounds=(x[k] - 0.1, x[k] + 0.1), method="bounded",
            options={"xatol": 1e-7},
        )  # fmt: skip
        return math.exp(found.x), float(found.fun)

    def best_shape(self, flops: float) -> tuple[float, float, float]:
        """(L, N, loss) of the best shape of all."""
        found = minimize_scalar(
            lambda y: self.best_size(flops, math.exp(y))[1], bounds=(0.0, math.log(300.0)), method="bounded",
            options={"xatol": 1e-6},
        )  # fmt: skip
        depth = math.exp(found.x)
        return depth, *self.best_size(flops, depth)


@dataclass(frozen=True)
class BudgetSweep:
    """5 depths, 7 sizes each over a factor of 20 about the best ones, 3 seeds, σ 0.002 nats, one budget, unless it says
    otherwise.

    smallest, largest: N at the first budget; the sizes grow with its square root. sigma: sd of one run, nats.
    shape_sd: sd of the error that a shape's seeds share. seed_sd: sd of the error that a seed adds to all shapes.
    scattered: whether each depth has two sizes alone, which move with it. spread: by how much the budget of a shape may
    be off, to either side.
    """

    truth: BudgetTruth = field(default_factory=BudgetTruth)
    budgets: tuple[float, ...] = (1.0e18,)
    depths: tuple[int, ...] = (4, 8, 12, 18, 28)
    smallest: float = 2.0e7
    largest: float = 4.0e8
    sizes: int = 7
    seeds: int = 3
    sigma: float = 0.002
    shape_sd: float = 0.0
    seed_sd: float = 0.003
    scattered: bool = False
    width_multiple: int = 16
    batch_tokens: int = 65_536
    spread: float = 0.0

    def rows(self, rng: np.random.Generator) -> list[Row]:
        """A simulated table: one row per budget, shape and seed, with whole steps."""
        shared = rng.normal(0.0, self.seed_sd, self.seeds)
        grid = np.geomspace(self.smallest, self.largest, self.sizes)
        rows = []
        for budget in self.budgets:
            scale = math.sqrt(budget / self.budgets[0])
            for place, depth in enumerate(self.depths):
                wanted = [n * scale for k, n in enumerate(grid) if not self.scattered or (k + 2 * place) % 5 < 2]
                for width in widths(depth, wanted, self.width_multiple):
                    per_token = self.truth.flops_per_token(depth, width)
                    spent = budget * math.exp(rng.uniform(-self.spread, self.spread)) if self.spread else budget
                    steps = max(1, round(spent / per_token / self.batch_tokens))
                    tokens = steps * self.batch_tokens
                    run: Row = {"depth": depth, "width": width, "n_params": 12 * depth * width**2}
                    run |= {"tokens": tokens, "steps": steps, "flops": per_token * tokens}
                    loss = self.truth.loss(depth, width, tokens) + rng.normal(0.0, self.shape_sd)
                    rows += [
                        {**run, "seed": seed, "loss": loss + shared[seed] + rng.normal(0.0, self.sigma)}
                        for seed in range(self.seeds)
                    ]
        return rows


def scenarios() -> dict[str, BudgetSweep]:
    """One change each."""
    base = BudgetSweep()
    four = (3.0e17, 1.0e18, 3.0e18, 1.0e19)
    small = BudgetTruth(depth_0=4.0, size_0=8.0e5, seq_len=128, vocab_size=1000)
    return {
        "base": base,
        "luck 0.002": replace(base, shape_sd=0.002),
        "5 sizes, luck 0.004": replace(base, sizes=5, shape_sd=0.004),
        "3 sizes": replace(base, sizes=3),
        "noisy": replace(base, sigma=0.01, shape_sd=0.004),
        "lopsided": replace(
            base, truth=BudgetTruth(alpha=0.5, beta=0.2, a=7.75e3, b=94.0), smallest=4.0e7, largest=1.0e9
        ),
        "weak optimum": replace(base, truth=BudgetTruth(penalty=0.1)),
        "3 depths": replace(base, depths=(6, 12, 24)),
        "depths 2 … 64": replace(base, depths=(2, 4, 8, 16, 32, 64)),
        "sizes end below": replace(base, smallest=1.0e7, largest=1.1e8),
        "all depths too deep": replace(base, depths=(16, 24, 36, 48)),
        "small nets": replace(
            base, truth=small, budgets=(3.0e13,), depths=(2, 3, 4, 6, 10), smallest=2.0e5, largest=4.0e6,
            width_multiple=4, batch_tokens=2048,
        ),
        "two sizes a depth, 4 budgets": replace(
            base, budgets=four, depths=(5, 7, 10, 13, 17, 24), sizes=5, scattered=True, seeds=1, seed_sd=0.0,
            spread=0.05,
        ),
        "4 budgets": replace(base, budgets=four),
    }  # fmt: skip


@cache
def truth_of(name: str) -> tuple[tuple[float, float, float], ...]:
    """(L, N, loss) of the best shape at each budget."""
    scenario = scenarios()[name]
    return tuple(scenario.truth.best_shape(c) for c in scenario.budgets)


@dataclass(frozen=True, kw_only=True)
class Simulation(Simulated):
    """One item per budget."""

    depth: tuple[Point, ...]
    best_size: tuple[Point, ...]
    exponent: Point


def simulation(scenario: BudgetSweep, rng: np.random.Generator, index: int = 0) -> Simulation:
    """One sweep drawn and fitted."""
    found = fit_table(scenario.rows(rng)).adjusted
    assert found is not None
    power = next((row for row in found.growth if row.column == "n_params"), None)
    return Simulation(
        index=index,
        depth=tuple((row.depth, row.depth_low, row.depth_high) for row in found.at_budgets),
        best_size=tuple((row.n_params, row.n_params_low, row.n_params_high) for row in found.at_budgets),
        exponent=(power.estimate, power.estimate_low, power.estimate_high) if power else (None, None, None),
    )


def score(points: Sequence[Point], truths: Sequence[float], ln: bool) -> dict[str, float | None]:
    """Share of all intervals, open ones too, that hold the truth; bias and median width of those that are reached, of
    ln of it or of an exponent itself."""
    scale = math.log if ln else float
    pairs = list(zip(points, truths, strict=True))
    whole = [[scale(v) for v in (*p, true)] for p, true in pairs if None not in p]  # type: ignore[arg-type]
    return {
        "coverage": mean(covers(low, high, true) for (_, low, high), true in pairs),
        "bias": mean(value - true for value, _, _, true in whole),
        "width": median(high - low for _, low, high, _ in whole),
    }


def summarise(name: str, rows: Sequence[Simulation]) -> dict[str, dict[str, float | None]]:
    """Everything of a scenario against its truth: depth and size of the best shape, and the exponent of N*."""
    scenario, truths = scenarios()[name], truth_of(name)
    over = [(row, b) for row in rows for b in range(len(truths))]
    depth, n = ([truths[b][k] for _, b in over] for k in range(2))
    exponent = math.nan
    if len(truths) > 1:
        exponent = float(np.polyfit(np.log(scenario.budgets), np.log([n for _, n, _ in truths]), 1)[0])
    return {
        "depth": score([row.depth[b] for row, b in over], depth, True),
        "best_size": score([row.best_size[b] for row, b in over], n, True),
        "exponent": score([row.exponent for row in rows], [exponent] * len(rows), False),
    }


HEAD = "scenario | n | best depth: covered, bias, width, % | its N | exponent"


def cells(name: str, rows: Sequence[Simulation]) -> list[list[str]]:
    return [[name, str(len(rows)), *(percent(*of.values()) for of in summarise(name, rows).values())]]


STUDY = Study(__doc__, scenarios(), simulation, Simulation, 200, HEAD, cells)

if __name__ == "__main__":
    STUDY.main()
