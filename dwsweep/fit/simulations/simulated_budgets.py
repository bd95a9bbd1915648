"""Simulated sweeps at equal compute whose truth is known: what the intervals of ``equal_budgets`` are held against.

The loss has the form of compute-optimal laws (Hoffmann et al. 2022), with a number of useful parameters that depends on
the shape:

    loss(L, N, D) = E + A/(N·g)^α + B/D^β,    ln g = −s·((r^(−a) − 1)/a + (r^b − 1)/b),    r = L / L*(N)

g is 1 at the depth L*(N) = L_0·(N/N_0)^p and falls on either side of it, at different speeds: no parabola in ln L, and
no parabola in ln N. D = C/(FLOPs per token), of blocks, attention and unembedding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.row_selection import Row


@dataclass(frozen=True)
class BudgetTruth:
    """irreducible E, a, b in nats; alpha, beta: powers; depth_0 at size_0, depth_power: of L*(N); penalty s; shallow,
    deep: the powers a and b of the penalty on either side. seq_len, vocab_size: of the FLOPs per token. wiggle:
    amplitude in nats of waves in ln N, of another phase at each depth."""

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
    wiggle: float = 0.0

    def flops_per_token(self, depth: float, width: float) -> float:
        """Of training: 3·(2·12·L·d² + 4·L·d·n + 2·V·d), as dwsweep/cost counts."""
        return 6.0 * width * (12.0 * depth * width + 2.0 * depth * self.seq_len + self.vocab_size)

    def loss(self, depth: float, width: float, tokens: float) -> float:
        """Nats per token."""
        n = 12.0 * depth * width**2
        r = depth / (self.depth_0 * (n / self.size_0) ** self.depth_power)
        ln_g = -self.penalty * ((r**-self.shallow - 1.0) / self.shallow + (r**self.deep - 1.0) / self.deep)
        wave = self.wiggle * math.sin(2.0 * math.pi * math.log(n) / 1.7 + 2.4 * depth)
        useful = self.a * math.exp(-self.alpha * (math.log(n) + ln_g))
        return self.irreducible + useful + self.b / tokens**self.beta + wave

    def at(self, flops: float, depth: float, n_params: float) -> float:
        """Nats per token of a depth and a size, trained with ``flops``."""
        width = math.sqrt(n_params / (12.0 * depth))
        return self.loss(depth, width, flops / self.flops_per_token(depth, width))

    def best_size(self, flops: float, depth: float) -> tuple[float, float]:
        """(N, loss) of the size at which a depth is best."""
        from scipy.optimize import minimize_scalar

        x = np.linspace(math.log(1e4), math.log(1e12), 400)
        k = int(np.argmin([self.at(flops, depth, math.exp(v)) for v in x]))
        found = minimize_scalar(
            lambda v: self.at(flops, depth, math.exp(v)), bounds=(x[k] - 0.1, x[k] + 0.1), method="bounded",
            options={"xatol": 1e-7},
        )  # fmt: skip
        return math.exp(found.x), float(found.fun)

    def best_shape(self, flops: float) -> tuple[float, float, float]:
        """(L, N, loss) of the best shape of all."""
        from scipy.optimize import minimize_scalar

        found = minimize_scalar(
            lambda y: self.best_size(flops, math.exp(y))[1], bounds=(0.0, math.log(300.0)), method="bounded",
            options={"xatol": 1e-6},
        )  # fmt: skip
        depth = math.exp(found.x)
        return depth, *self.best_size(flops, depth)


def draw_budgets(
    truth: BudgetTruth,
    rng: np.random.Generator,
    *,
    flops: Sequence[float],
    depths: Sequence[int],
    sizes: Sequence[Sequence[float]],
    seeds: int = 3,
    sigma: float = 0.002,
    seed_sd: float = 0.003,
    luck: float = 0.0,
    width_multiple: int = 16,
    batch_tokens: int = 65_536,
) -> list[Row]:
    """A simulated table: one row per budget, shape and seed, with whole steps.

    flops: the budgets. sizes: target N, one sequence per depth, for the first budget; they grow with its square root.
    sigma: sd of one run, nats; seed_sd: of what a seed shares over all shapes; luck: of what a shape's seeds share.
    """
    shared = rng.normal(0.0, seed_sd, seeds)
    rows = []
    for budget in flops:
        for depth, wanted in zip(depths, sizes, strict=True):
            scale = math.sqrt(budget / flops[0])
            ideal = (math.sqrt(n * scale / (12.0 * depth)) for n in wanted)
            for width in sorted({max(1, round(d / width_multiple)) * width_multiple for d in ideal}):
                per_token = truth.flops_per_token(depth, width)
                steps = max(1, round(budget / per_token / batch_tokens))
                tokens = steps * batch_tokens
                loss = truth.loss(depth, width, tokens) + rng.normal(0.0, luck)
                rows += [
                    {
                        "depth": depth,
                        "width": width,
                        "seed": seed,
                        "n_params": 12 * depth * width**2,
                        "tokens": tokens,
                        "steps": steps,
                        "flops": per_token * tokens,
                        "loss": loss + shared[seed] + rng.normal(0.0, sigma),
                    }
                    for seed in range(seeds)
                ]
    return rows
