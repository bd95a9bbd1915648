"""Nets of many sizes and depths inside the hull of the shapes tried, and the best one of each draw of their losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dwsweep.fit.statistics.ask import hull
from dwsweep.fit.statistics.model import SAME_BUDGET
from dwsweep.fit.statistics.parabola import lowest

ACROSS = 41  # sizes
LEAST_POINTS = 3  # fewest points of a curve with an inner minimum


@dataclass(frozen=True)
class NetGrid:
    """Sizes and depths. x: (S,) ln N, evenly rising. y: (M,) ln L, rising. inside: (M, S) True for a net inside the
    hull of the shapes tried, but for half a step of size."""

    x: np.ndarray
    y: np.ndarray
    inside: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, depths: np.ndarray) -> NetGrid:
        """Grid over shapes at ln N = x, ln L = y (K,). depths: (M,) ln L."""
        low, high = hull((b, a + room) for a, b in zip(x, y, strict=True) for room in (-SAME_BUDGET, SAME_BUDGET))
        # a level beyond the sizes tried is its asymptote's alone, without the waves that bent it among them
        sizes = np.linspace(x.min(), x.max(), ACROSS)
        room = (sizes[1] - sizes[0]) / 2.0
        first, last = (np.interp(depths, *edge)[:, None] for edge in (low, high))
        return cls(sizes, depths, (first - room <= sizes) & (sizes <= last + room))

    @property
    def nets(self) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) of the nets inside, (n,) each."""
        of_depth, of_size = np.nonzero(self.inside)
        return self.x[of_size], self.y[of_depth]

    def best(self, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ln N, ln L, edge) of the best net of each draw of ``losses`` (D, n) of the ``nets``, nats, (D,) each. ln L
        is ±inf at an end of the depths, edge is ±inf where the size is an end of those allowed, else 0. Losses are inf
        where a net is not allowed, in all draws alike."""
        rows = np.full((len(losses), *self.inside.shape), np.inf, dtype=losses.dtype)
        rows[:, self.inside] = losses
        usable = np.isfinite(rows[0])
        first, last = usable.argmax(axis=1), len(self.x) - 1 - usable[:, ::-1].argmax(axis=1)
        size, loss, _ = lowest(self.x, rows)
        at, each, k = rows.argmin(axis=2), np.arange(len(rows)), loss.argmin(axis=1)
        edge = np.where(at <= first, -np.inf, np.where(at >= last, np.inf, 0.0))
        deep = np.flatnonzero(np.isfinite(loss[0]))
        depth = least(self.y[deep], loss[:, deep]) if len(deep) >= LEAST_POINTS else np.full(len(loss), np.inf)
        return size[each, k], depth, edge[each, k]


def least(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(D,) where ``rows`` (D, n) are least over y (n,); ±inf at an end."""
    found = lowest(y, rows)
    return np.where(found.edge == 0, found.place, np.copysign(np.inf, found.edge))
