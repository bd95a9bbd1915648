"""Simulated sweeps of a given effect of depth, for the tests of the guide and of the evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


def bowl(best: float, rise: float = 0.06) -> Callable[[float, int], float]:
    """Nats above the best depth, which is best·(N/3e7)^¼, at N and a depth."""
    return lambda n, depth: rise * math.log(depth / (best * (n / 3e7) ** 0.25)) ** 2


def swept(
    sizes: Iterable[float],
    depths: Sequence[int],
    effect: Callable[[float, int], float],
    *,
    noise: float = 0.003,
    seeds: int = 1,
    weights: float = 12.0,
    **more: float,
) -> list[dict[str, Any]]:
    """Rows of nets of ``weights``·L·d² parameters: a law of the size, ``effect`` of N and depth, and noise, in nats."""
    rng, rows = np.random.default_rng(5), []
    for size in sizes:
        for depth in depths:
            width = max(4, 4 * round(math.sqrt(size / weights / depth) / 4))
            n = weights * depth * width**2
            level = 1.8 + 1.9 * (n / 3e7) ** -0.14 + effect(n, depth)
            net = {"depth": depth, "width": width, "n_params": round(n), **more}
            rows += [{**net, "seed": seed, "loss": level + noise * rng.standard_normal()} for seed in range(seeds)]
    return rows
