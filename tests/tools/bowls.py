"""Simulated sweeps and heaps of a given effect of depth: losses whose best depth is known at every size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

DEPTHS = (4, 6, 8, 12, 16, 24, 32)
Row = dict[str, Any]


def level(n: float) -> float:
    """Nats of the best net of a size."""
    return 1.8 + 1.9 * (n / 3e7) ** -0.14


def best(n: float, at: float = 17.8) -> float:
    """The best depth, ``at`` layers of 3e7 parameters."""
    return at * (n / 3e7) ** 0.25


def bowl(at: float, rise: float = 0.06) -> Callable[[float, int], float]:
    """Nats above the best depth, at N and a depth."""
    return lambda n, depth: rise * math.log(depth / best(n, at)) ** 2


def loss(n: float, depth: float, at: float = 17.8) -> float:
    return level(n) + 0.06 * math.log(depth / best(n, at)) ** 2


def net(depth: int, n: float, multiple: int = 16) -> Row:
    """The net of a depth with about ``n`` parameters."""
    return {"depth": depth, "width": multiple * max(2, round(math.sqrt(n / 12 / depth) / multiple))}


def standard(row: Mapping[str, Any]) -> int:
    """N of a net of plain blocks."""
    return int(12 * row["depth"] * row["width"] ** 2)


def piled(
    runs: int = 48,
    seed: int = 0,
    more: Callable[[Row, np.random.Generator], tuple[Row, float]] = lambda row, rng: ({}, 0.0),
    at: float = 17.8,
    noise: float = 0.003,
) -> list[Row]:
    """Nets of all sizes and depths. more: (further columns, nats) of a row."""
    rng, rows = np.random.default_rng(seed), []
    for k in range(runs):
        row = net(DEPTHS[k % len(DEPTHS)], 4e6 * 40 ** rng.random())
        columns, nats = more(row, rng)
        own = loss(standard(row), row["depth"], at) + nats + rng.normal(0.0, noise)
        rows.append({**row, **columns, "loss": own})
    return rows


def swept(
    sizes: Iterable[float],
    depths: Sequence[int],
    effect: Callable[[float, int], float],
    *,
    noise: float = 0.003,
    seeds: int = 1,
    weights: float = 12.0,
    draw: int = 5,
    **more: float,
) -> list[Row]:
    """Rows of nets of ``weights``·L·d² parameters: a law of the size, ``effect`` of N and depth, and noise, in nats."""
    rng, rows = np.random.default_rng(draw), []
    for size in sizes:
        for depth in depths:
            width = max(4, 4 * round(math.sqrt(size / weights / depth) / 4))
            n = weights * depth * width**2
            own = {"depth": depth, "width": width, "n_params": round(n), **more}
            true = level(n) + effect(n, depth)
            rows += [{**own, "seed": seed, "loss": true + noise * rng.standard_normal()} for seed in range(seeds)]
    return rows
