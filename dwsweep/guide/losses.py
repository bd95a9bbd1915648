"""Losses of other depths at a size, by draws of the best depth and of the price of a wrong one.

A wrong depth is priced in size: L layers do as well as the best depth at N·exp(−w). Nats are w times the slope
−dloss/d ln N, so the percent of compute that a shape wastes, 100·(1 − e^(−w)), needs no level of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dwsweep.evidence.random_effects import TOKENS_PER_PARAM, quantiles
from dwsweep.guide.answers import Cost, NearBest, Risk
from dwsweep.interval import Interval
from dwsweep.text import format_count

TAIL = 0.025
GRID = 600  # points of the grid of depths
REACH = 16.0  # factor in depth from the best
WITHIN, TRIED = 4.0, 200  # ratio to the best depth of the layers that are priced, and their count: every one to 70


@dataclass(frozen=True)
class TrainingTokens:
    """Tokens of training: a total, or a number per parameter of the blocks; None: 20 (Hoffmann et al. 2022)."""

    count: float | None = None
    per_param: float | None = None

    @property
    def ratio(self) -> float:
        return TOKENS_PER_PARAM if self.per_param is None else self.per_param

    def at(self, n_params: float) -> float:
        return self.ratio * n_params if self.count is None else self.count

    def __str__(self) -> str:
        if self.count is not None:
            return f"{format_count(self.count)} tokens"
        return f"{self.ratio:g} tokens per parameter"


def parabola(shallow: np.ndarray, deep: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """(D, M) κ·apart², with κ (D,) of its own on either side of the best depth."""
    return np.where(apart < 0, shallow[:, None], deep[:, None]) * apart**2


@dataclass(frozen=True)
class LossAt:
    """Loss at a size as a function of depth, in expectation over D draws. best_depth: L* and its 95 % interval.
    ln_depth: (D,) draws of ln L*. priced: prices (D, M) in ln N of depths (M,) above the best depth of each draw.
    slope: −dloss/d ln N of best-shaped nets. tag: origin of prices and slope."""

    best_depth: tuple[float, float | None, float | None]
    ln_depth: np.ndarray
    priced: Callable[[np.ndarray], np.ndarray]
    slope: float
    tag: str

    @cached_property
    def depths(self) -> np.ndarray:
        """Depths (GRID,) among which the best ones are looked for, rising."""
        best = self.best_depth[0]
        return np.geomspace(max(1.0, best / REACH), max(2.0, best * REACH), GRID)

    def interval(self, confidence: float = 1.0 - 2.0 * TAIL) -> Interval:
        """Best depth with its interval."""
        tail = (1.0 - confidence) / 2.0
        if math.isclose(tail, TAIL):  # a published law states its interval, which no draws have
            return Interval(*self.best_depth)
        return Interval(self.best_depth[0], *np.exp(quantiles(self.ln_depth, [tail, 1.0 - tail])).tolist())

    def drawn(self, depths: np.ndarray) -> np.ndarray:
        """Draws (D, M): nats of ``depths`` above the best depth of each draw."""
        return self.slope * self.priced(np.asarray(depths, dtype=float))

    def penalties(self, depths: np.ndarray) -> np.ndarray:
        """Expected penalties (M,): nats above the whole number of layers that is best in expectation."""
        prices = self._expected(np.asarray(depths, dtype=float))
        return np.maximum(self.slope * (prices - self._least), 0.0)

    def _expected(self, depths: np.ndarray) -> np.ndarray:
        """Mean prices (M,) of ``depths``."""
        rows = self.priced(depths)
        return np.ones(len(rows)) @ rows / len(rows)  # a sum as a product: a fifth of the time of `mean`

    @cached_property
    def _least(self) -> float:
        """Least expected price of a whole number of layers."""
        layers = np.geomspace(self.best_depth[0] / WITHIN, self.best_depth[0] * WITHIN, TRIED)
        return float(self._expected(np.unique(np.maximum(1.0, layers.round()))).min())

    def cost(self, nats: float, *interval: float) -> Cost:
        """Cost of ``nats`` above the best, also as wasted compute."""
        return Cost(nats, 100.0 * (1.0 - math.exp(-nats / self.slope)), *interval)

    def risk(self, depth: float) -> Risk:
        """Regret of a depth."""
        return self.regret(self.drawn(np.array([float(depth)]))[:, 0])

    def regret(self, drawn: np.ndarray) -> Risk:
        """Regret in expectation and at 95 %, from the nats that one choice loses in each draw (D,); the expectation,
        where rare draws lose so much that it is larger: 95 % of the draws lose no more than that either."""
        expected = float(drawn.mean())
        return Risk(self.cost(expected), self.cost(max(expected, float(quantiles(drawn, [0.95])[0]))))

    def cost_of(self, depth: float) -> Cost:
        """Cost of a depth against the best one."""
        at = np.array([float(depth)])
        nats = float(self.penalties(at)[0])
        low, high = quantiles(self.drawn(at)[:, 0], [TAIL, 1.0 - TAIL]).tolist()
        return self.cost(nats, min(max(0.0, low), nats), max(high, nats))

    @cached_property
    def _prices(self) -> np.ndarray:
        return self._expected(self.depths)

    @property
    def best(self) -> float:
        """Depth of least expected price."""
        return float(self.depths[self._prices.argmin()])

    def stretch(self, share: float) -> tuple[float, float]:
        """Ends (shallow, deep) of the depths that waste at most a ``share`` of compute (0.05: 5 %)."""
        prices, best = self._prices, int(self._prices.argmin())
        above = np.flatnonzero(prices - self._least > -math.log1p(-share))
        low = above[above < best].max(initial=-1) + 1
        high = above[above > best].min(initial=len(prices)) - 1
        return float(self.depths[low]), float(self.depths[high])

    def near_best(self, share: float) -> NearBest:
        """Numbers of layers that waste at most a share of compute (0.05: 5 %): by their own prices, since the ends of
        ``stretch`` lie on a grid."""
        low, high = self.stretch(share)
        layers = np.unique(np.maximum(1.0, np.floor([low, low + 1.0, high, high + 1.0])))
        prices = self._expected(layers)
        good = layers[prices <= max(self._least - math.log1p(-share), float(prices.min()))]
        first, last = low <= self.depths[0] * 1.000001, high >= self.depths[-1] * 0.999999
        ends = int(good.min()), int(good.max())
        return NearBest(100.0 * share, None if first else ends[0], None if last else ends[1])
