"""Truths of the loss from outside the fit's own family of models.

Every one is, with x = ln N, l = ln L and u = l − ln L*(N), in nats,

    loss = level(x) + effect·(N/N₀)^(−decay)·penalty(u) − gain(ln d − ln d₀),    d = √(N/(12·L))

The penalty vanishes at u = 0. The gain of width, where there is one, moves the best depth away from L*. The best depth
is therefore found on a grid of ln L, exact to 2e-4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

Penalty = Callable[[np.ndarray], np.ndarray]  # nats, of ln L − ln L*
Optimum = Callable[[float], float]  # L*(N)/L*(N₀), of ln N − ln N₀
Gain = Callable[[np.ndarray], np.ndarray]  # nats, of ln d − ln d₀

DEEPEST, DEPTHS = 400.0, 40_001
GOLDEN_RATIO, MOVED = (1.0 + math.sqrt(5.0)) / 2.0, 0.2


@dataclass(frozen=True)
class Bent:
    """Two half parabolas: their slopes meet at the optimum, their curvatures do not. Both in nats per (ln L)²."""

    shallow: float = 0.25
    deep: float = 0.12

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return np.where(u < 0.0, self.shallow, self.deep) * u**2


@dataclass(frozen=True)
class Skewed:
    """A smooth valley, steeper on the shallow side: curvature·u²·(1 − skew·u/3 + …)."""

    curvature: float = 0.18
    skew: float = 0.7

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return 2.0 * self.curvature / self.skew**2 * (np.exp(-self.skew * u) + self.skew * u - 1.0)


@dataclass(frozen=True)
class Edged:
    """A corner at the optimum: the loss rises in proportion to the distance. Nats per unit of ln L."""

    shallow: float = 0.10
    deep: float = 0.07

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return np.where(u < 0.0, -self.shallow * u, self.deep * u)


@dataclass(frozen=True)
class Plateau:
    """Hardly any effect within ``half`` of the optimum, a parabola beyond."""

    half: float = 0.25
    inside: float = 0.01
    curvature: float = 0.18

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return self.inside * u**2 + self.curvature * np.maximum(np.abs(u) - self.half, 0.0) ** 2


@dataclass(frozen=True)
class TwoMinima:
    """Two valleys ``apart`` in ln L with a ridge of ``ridge`` nats between; the shallower valley, at u = 0, is lower by
    ``lower``."""

    apart: float = 0.8
    ridge: float = 0.012
    lower: float = 0.006

    def __call__(self, u: np.ndarray) -> np.ndarray:
        v = 2.0 * u / self.apart - 1.0
        outside = np.maximum(np.abs(v) - 1.0, 0.0)
        inner = self.ridge * (1.0 - np.minimum(np.abs(v), 1.0) ** 2) ** 2
        return inner + 0.18 * (outside * self.apart / 2.0) ** 2 + self.lower * np.clip(u / self.apart, 0.0, 1.0)


def flat(u: np.ndarray) -> np.ndarray:
    """Depth does nothing: the curves of all depths are identical."""
    return np.zeros_like(u)


@dataclass(frozen=True)
class Power:
    """L* ∝ N^exponent."""

    exponent: float = 0.25

    def __call__(self, x: float) -> float:
        return math.exp(self.exponent * x)


@dataclass(frozen=True)
class Saturating:
    """L* grows as a power at first and levels off at ``limit`` times its value at N₀."""

    exponent: float = 0.4
    limit: float = 1.6

    def __call__(self, x: float) -> float:
        grown = math.exp(self.exponent * x) / (self.limit - 1.0)
        return self.limit * grown / (1.0 + grown)


def no_gain(w: np.ndarray) -> np.ndarray:
    return np.zeros_like(w)


@dataclass(frozen=True)
class Kink:
    """A gain that sets in at a width: ``slope`` nats per unit of ln d above it."""

    slope: float = 0.1

    def __call__(self, w: np.ndarray) -> np.ndarray:
        return self.slope * np.maximum(w, 0.0)


@dataclass(frozen=True)
class Step:
    """A net at least ``beyond`` times as wide as d₀ is better by ``height`` nats."""

    height: float = 0.015
    beyond: float = 1.15

    def __call__(self, w: np.ndarray) -> np.ndarray:
        return np.where(w >= math.log(self.beyond), self.height, 0.0)


@dataclass(frozen=True)
class Truth:
    """A loss of size and depth.

    size, depth: N₀ and L*(N₀); d₀ is the width that they make. effect: a factor on the penalty and on the gain.
    decay: what depth does goes as (N/N₀)^(−decay).
    """

    penalty: Penalty = Skewed()
    optimum: Optimum = Power()
    gain: Gain = no_gain
    size: float = 3.0e7
    depth: float = 17.0
    effect: float = 1.0
    decay: float = 0.0

    def valley(self, n_params: float) -> float:
        """L*: where the penalty vanishes."""
        return self.depth * self.optimum(math.log(n_params / self.size))

    def above(self, depth: np.ndarray, n_params: float) -> np.ndarray:
        """What depth does to the loss, in nats up to a constant of the size."""
        y, x = np.log(np.asarray(depth, dtype=float)), math.log(n_params / self.size)
        w = (x - (y - math.log(self.depth))) / 2.0
        effect = self.penalty(y - math.log(self.valley(n_params))) - self.gain(w)
        return self.effect * math.exp(-self.decay * x) * effect

    def loss(self, depth: float, x: float) -> float:
        """Nats per token of ``depth`` at x = ln N."""
        n_params = math.exp(x)
        level = 1.9 + 3.0 * (n_params / 1.0e7) ** -0.08
        return level + float(self.above(np.array(depth), n_params))

    def numbered(self, index: int) -> Truth:
        """That of simulation ``index``, with L* at another place, by up to MOVED in ln L, since what an interval holds
        depends on where the depths trained lie; places fill their range evenly."""
        place = 2.0 * (index * GOLDEN_RATIO % 1.0) - 1.0
        return replace(self, depth=self.depth * math.exp(MOVED * place))

    def best_depth(self, n_params: float) -> float | None:
        """The depth at which the loss of this size is least; None where depth does nothing."""
        depths = np.geomspace(1.0, DEEPEST, DEPTHS)
        above = self.above(depths, n_params)
        return float(depths[above.argmin()]) if np.ptp(above) > 0.0 else None


TRUTHS = {
    "bent": Truth(Bent()),
    "asymmetric": Truth(),
    "kinked": Truth(gain=Kink()),
    "stepped": Truth(gain=Step()),
    "V": Truth(Edged()),
    "plateau": Truth(Plateau()),
    "two minima": Truth(TwoMinima()),
    "saturating": Truth(optimum=Saturating()),
    "flat": Truth(flat),
}
