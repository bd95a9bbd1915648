"""The error that a set of runs leaves on the crossing of two neighbouring depths, as ``fit`` reads it off their curves.

It is linear in the noise (the delta method): cell means → loss difference of a pair at its crossing,
g = Σ w_i·mean_i, where w is the derivative of the PCHIP interpolation at the true curves; its bias is the
interpolation's error there → sd(ln N) = sd(g) / slope.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dwsweep.design.prior import Curves

SUP_T = 2.9  # typical critical value of the sup-t band at 95 %


@dataclass(frozen=True)
class PairError:
    """What a design leaves on one transition."""

    shallow: int
    deep: int
    n_params: float  # of the expected crossing
    width: float  # of the shallower net there
    inside: bool  # whether both depths have sizes on both sides of it
    se_ln_n: float | None
    bias_ln_n: float | None  # of interpolating between these sizes
    power: float | None  # probability that `fit` will say `crossed`


@dataclass(frozen=True)
class Design:
    """Shapes (depth, width), sorted, and the covariance C (K, K) of their means, luck of a shape included."""

    curves: Curves
    shapes: Sequence[tuple[int, int]]
    C: np.ndarray

    @cached_property
    def nodes(self) -> Mapping[int, np.ndarray]:
        """ln N of every depth's shapes, rising."""
        return {
            depth: np.array([math.log(12 * d * w**2) for d, w in self.shapes if d == depth])
            for depth in self.curves.depths
        }

    def pairs(self) -> tuple[PairError, ...]:
        """One row per pair of neighbouring depths."""
        return tuple(
            self._pair(shallow, deep, x)
            for (shallow, deep), x in zip(pairwise(self.curves.depths), self.curves.crossings, strict=True)
        )

    def _pair(self, shallow: int, deep: int, x: float) -> PairError:
        n = math.exp(x)
        width = math.sqrt(n / (12 * shallow))
        if not all(len(at) > 1 and at[0] < x < at[-1] for at in (self.nodes[shallow], self.nodes[deep])):
            return PairError(shallow, deep, n, width, False, None, None, None)
        weights, bias = self.difference(shallow, deep, x)
        slope = self.curves.slope(shallow, deep)
        error = math.sqrt(float(weights @ self.C @ weights)) / slope
        # the crossing found is where the interpolated difference vanishes
        return PairError(shallow, deep, n, width, True, error, -bias / slope, self._power(shallow, deep, x))

    def difference(self, shallow: int, deep: int, x: float) -> tuple[np.ndarray, float]:
        """(weights (K,) of all cells in the interpolated difference at ``x``, its interpolation error in nats)."""
        weights, bias = np.zeros(len(self.shapes)), 0.0
        for depth, sign in ((shallow, 1.0), (deep, -1.0)):
            own, error = self._interpolation(depth, x)
            weights[[i for i, shape in enumerate(self.shapes) if shape[0] == depth]] += sign * own
            bias += sign * error
        return weights, bias

    def _interpolation(self, depth: int, x: float) -> tuple[np.ndarray, float]:
        """Derivative of the interpolated loss of ``depth`` at ``x`` to each of its cells, and its error there."""
        from scipy.interpolate import PchipInterpolator

        nodes = self.nodes[depth]
        values = self.curves.loss(depth, nodes)
        K, step = len(nodes), 1e-5
        stack = np.vstack([values, values + step * np.eye(K), values - step * np.eye(K)])
        at = PchipInterpolator(nodes, stack, axis=1)(x)
        return (at[1 : K + 1] - at[K + 1 :]) / (2 * step), float(at[0] - self.curves.loss(depth, x))

    def _power(self, shallow: int, deep: int, crossing: float) -> float:
        """Chance that the difference is significant on both sides: at the farthest sizes shared, and half-way there."""
        from scipy.stats import norm

        a, b = self.nodes[shallow], self.nodes[deep]
        chance = 1.0
        for end in (max(a[0], b[0]), min(a[-1], b[-1])):
            best = 0.0
            for x in (end, (end + crossing) / 2):
                weights, _ = self.difference(shallow, deep, x)
                best = max(best, abs(self.curves.lead(shallow, deep, x)) / math.sqrt(float(weights @ self.C @ weights)))
            chance *= float(norm.cdf(best - SUP_T))
        return chance
