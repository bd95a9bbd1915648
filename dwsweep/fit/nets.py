"""Nets of many sizes and depths inside the hull of the shapes tried, and the best one of each draw of their losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dwsweep.fit.ask import hull
from dwsweep.fit.model import SAME_BUDGET
from dwsweep.fit.parabola import lowest

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

    def best(self, losses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ln N, ln L, edge) of the best net of each draw of ``losses`` (D, M·S), nats, (D,) each. ln L is ±inf at an
        end of the depths, edge is ±inf where the size is an end of those allowed, else 0. Losses are inf where a net is
        not allowed, in all draws alike."""
        rows, sizes = losses.reshape(-1, *self.x.shape), self.x.shape[1]
        usable = np.isfinite(rows[0])
        first, last = usable.argmax(axis=1), sizes - 1 - usable[:, ::-1].argmax(axis=1)
        place, loss, _ = lowest(np.arange(sizes), rows)
        at, each, k = rows.argmin(axis=2), np.arange(len(rows)), loss.argmin(axis=1)
        edge = np.where(at <= first, -np.inf, np.where(at >= last, np.inf, 0.0))
        size = self.x[:, 0] + (self.x[:, -1] - self.x[:, 0]) * place / (sizes - 1.0)
        deep = np.flatnonzero(np.isfinite(loss[0]))
        depth = least(self.y[deep], loss[:, deep]) if len(deep) >= LEAST_POINTS else np.full(len(loss), np.inf)
        return size[each, k], depth, edge[each, k]


def least(y: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(D,) where ``rows`` (D, n) are least over y (n,); ±inf at an end."""
    found = lowest(y, rows)
    return np.where(found.edge == 0, found.place, np.copysign(np.inf, found.edge))
