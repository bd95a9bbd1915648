"""Nets of many sizes and depths: the best one of each draw of their losses, inside the hull of the shapes tried.

A best depth or size at an edge of the nets that are allowed is a bound and no answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dwsweep.fit.ask import hull, quantiles
from dwsweep.fit.model import SAME_BUDGET
from dwsweep.fit.parabola import lowest
from dwsweep.fit.posterior import Posterior
from dwsweep.interval import Interval

ACROSS, UP = 41, 41  # sizes of a depth, and depths; fewer sizes move bounds at an edge of the tokens tried
LEAST_POINTS = 3  # fewest points of a curve with an inner minimum


@dataclass(frozen=True)
class Grid:
    """Sizes of each depth. y: (M,) ln L, rising. x: (M, S) ln N, from the smallest to the largest inside the hull."""

    y: np.ndarray
    x: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray) -> Grid:
        """Grid over shapes at ln N = x, ln L = y (K,), which holds their depths."""
        edges = hull((b, a + room) for a, b in zip(x, y, strict=True) for room in (-SAME_BUDGET, SAME_BUDGET))
        between = np.unique(np.concatenate([np.unique(y), np.linspace(y.min(), y.max(), UP)]).round(9))
        # a level beyond the sizes tried is its asymptote's alone, without the waves that bent it among them
        low, high = (np.clip(np.interp(between, *edge), x.min(), x.max()) for edge in edges)
        return cls(between, low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, ACROSS))

    @property
    def flat(self) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of all nets, (M·S,) each."""
        return self.x.ravel(), np.repeat(self.y, self.x.shape[1])


@dataclass(frozen=True)
class Nets:
    """Losses (D, M·S) of the nets of a grid, nats; inf where a net is not allowed, in all draws alike."""

    grid: Grid
    losses: np.ndarray

    @cached_property
    def of_depths(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(best size of each depth, ±inf where it lies beyond the sizes allowed and 0 elsewhere, loss), (D, M) each."""
        x, rows = self.grid.x, self.losses.reshape(-1, *self.grid.x.shape)
        usable = np.isfinite(rows[0])
        first, last = usable.argmax(axis=1), x.shape[1] - 1 - usable[:, ::-1].argmax(axis=1)
        place, loss, _ = lowest(np.arange(x.shape[1]), rows)
        at = rows.argmin(axis=2)
        edge = np.where(at <= first, -np.inf, np.where(at >= last, np.inf, 0.0))
        return x[:, 0] + (x[:, -1] - x[:, 0]) * place / (x.shape[1] - 1.0), edge, loss

    @cached_property
    def best(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(size, depth, ``edge`` of the size) of the best net, (D,) each: logarithms, the depth ±inf at an end."""
        size, edge, loss = self.of_depths
        deep = np.flatnonzero(np.isfinite(loss[0]))
        depth = least(self.grid.y[deep], loss[:, deep]) if len(deep) >= LEAST_POINTS else np.full(len(loss), np.inf)
        each, k = np.arange(len(loss)), loss.argmin(axis=1)
        return size[each, k], depth, edge[each, k]


def least(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(D,) where ``rows`` (D, n) are least over y (n,); ±inf at an end."""
    found = lowest(y, rows)
    return np.where(found.edge == 0, found.place, np.copysign(np.inf, found.edge))


def interval(
    posterior: Posterior,
    drawn: np.ndarray,
    confidence: float,
    edge: np.ndarray | float = 0.0,
    ends: tuple[float, float] = (-math.inf, math.inf),
    of_depth: bool = True,
) -> Interval:
    """The interval of draws (D,) of a logarithm, of which some may be infinite: no value where more than half are.

    edge: (D,) ±inf where a draw is only a bound. ends: of what was tried, which bound a quantity that lies surely
    beyond one of them. of_depth: True for a net that depth tells: draws without an effect of depth have none.
    """
    if of_depth:
        side = np.where(np.arange(len(drawn)) % 2, np.inf, -np.inf)
        drawn = np.where(posterior.without_effect, side, drawn)
    below, above = np.where(edge == -np.inf, -np.inf, drawn), np.where(edge == np.inf, np.inf, drawn)
    middle = np.where(edge == 0.0, drawn, edge)
    low, high = quantiles(below, confidence)[0], quantiles(above, confidence)[2]
    low, high = low if low == -math.inf else min(low, ends[1]), high if high == math.inf else max(high, ends[0])
    return Interval(*(v if math.isfinite(v) else None for v in (quantiles(middle, confidence)[1], low, high)))
