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

Effect = Callable[[np.ndarray], np.ndarray]  # nats, of ln L − ln L* or of ln d − ln d₀

DEEPEST, DEPTHS = 400.0, 40_001
GOLDEN_RATIO, MOVED = (1.0 + math.sqrt(5.0)) / 2.0, 0.2


def bent(u: np.ndarray) -> np.ndarray:
    """Two half parabolas: their slopes meet at the optimum, their curvatures do not."""
    return np.where(u < 0.0, 0.25, 0.12) * u**2


def halves(u: np.ndarray) -> np.ndarray:
    """Two half parabolas of curvatures 4 : 1; 1.7 to 10 : 1 are read off Kaplan et al. 2020, figure 5."""
    return np.where(u < 0.0, 0.06, 0.015) * u**2


def skewed(u: np.ndarray) -> np.ndarray:
    """A smooth valley, steeper on the shallow side: 0.18·u²·(1 − 0.7·u/3 + …)."""
    return 2.0 * 0.18 / 0.7**2 * (np.exp(-0.7 * u) + 0.7 * u - 1.0)


def edged(u: np.ndarray) -> np.ndarray:
    """A corner at the optimum: the loss rises in proportion to the distance."""
    return np.where(u < 0.0, -0.10 * u, 0.07 * u)


def plateau(u: np.ndarray) -> np.ndarray:
    """Hardly any effect within 0.25 of the optimum, a parabola beyond."""
    return 0.01 * u**2 + 0.18 * np.maximum(np.abs(u) - 0.25, 0.0) ** 2


def two_minima(u: np.ndarray) -> np.ndarray:
    """Two valleys 0.8 apart in ln L with a ridge of 0.012 nats between; the shallower valley, at u = 0, is lower by
    0.006."""
    v = 2.0 * u / 0.8 - 1.0
    outside = np.maximum(np.abs(v) - 1.0, 0.0)
    inner = 0.012 * (1.0 - np.minimum(np.abs(v), 1.0) ** 2) ** 2
    return inner + 0.18 * (outside * 0.4) ** 2 + 0.006 * np.clip(u / 0.8, 0.0, 1.0)


def nothing(u: np.ndarray) -> np.ndarray:
    """The curves of all depths are identical, or width gains nothing."""
    return np.zeros_like(u)


def kink(w: np.ndarray) -> np.ndarray:
    """A gain that sets in at a width."""
    return 0.1 * np.maximum(w, 0.0)


def step(w: np.ndarray) -> np.ndarray:
    """A net at least 1.15 times as wide as d₀ is better by 0.015 nats."""
    return np.where(w >= math.log(1.15), 0.015, 0.0)


@dataclass(frozen=True)
class Truth:
    """A loss of size and depth.

    size, depth: N₀ and L*(N₀); d₀ is the width that they make. exponent: L* goes as N^exponent, and levels off at
    ``limit`` times its value at N₀. effect: a factor on the penalty and on the gain. decay: what depth does goes as
    (N/N₀)^(−decay).
    """

    penalty: Effect = skewed
    gain: Effect = nothing
    exponent: float = 0.25
    limit: float | None = None
    size: float = 3.0e7
    depth: float = 17.0
    effect: float = 1.0
    decay: float = 0.0

    def valley(self, n_params: float) -> float:
        """L*: where the penalty vanishes."""
        grown = (n_params / self.size) ** self.exponent
        if self.limit:
            grown = self.limit * grown / (self.limit - 1.0 + grown)
        return self.depth * grown

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
    "bent": Truth(bent),
    "asymmetric": Truth(),
    "kinked": Truth(gain=kink),
    "stepped": Truth(gain=step),
    "V": Truth(edged),
    "plateau": Truth(plateau),
    "two minima": Truth(two_minima),
    "saturating": Truth(exponent=0.4, limit=1.6),
    "flat": Truth(nothing),
}
