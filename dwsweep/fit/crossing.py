"""Crossing: size at which the loss difference of two depths changes its sign, with status and interval.

The status is read from the simultaneous band of the difference curve, and the interval from the pointwise one. The
curve may come from all losses together or from the two depths alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.curves import Curves, SimultaneousBand
from dwsweep.fit.lattice import standard_error
from dwsweep.fit.noise import t_two_sided
from dwsweep.interval import Interval

NOISE, NOISE_UNKNOWN, FEW_SHAPES, NO_SHARED_RANGE = "noise", "noise unknown", "few shapes", "no shared range"


def shared_sizes(curves: Curves, shallow: int, deep: int) -> tuple[float, float] | None:
    """Smallest and largest x that the curves of two depths both span; None if they share none, or one has a single
    size."""
    one, two = curves.sizes(shallow), curves.sizes(deep)
    low, high = max(one[0], two[0]), min(one[-1], two[-1])
    return None if min(len(one), len(two)) < 2 or high - low < 1e-6 else (float(low), float(high))


@dataclass(frozen=True)
class Crossing:
    """The crossing of one pair; x is ln of the axis, None if it does not exist.

    status: see ``classify``. root, low, high: crossing and ends of its interval (None = unbounded, or no root).
    se: standard error of the root. slope: g' there, nats per unit of x. t_left, t_right: largest t of the shallower's
    lead left of the crossing and of the deeper's lead right of it. sign_changes: of g. cause: why it is undecided, one
    of the causes above. error: largest Monte-Carlo standard error of root, low and high.
    """

    status: str
    root: float | None = None
    low: float | None = None
    high: float | None = None
    se: float | None = None
    slope: float | None = None
    t_left: float | None = None
    t_right: float | None = None
    sign_changes: int = 0
    reason: str = ""
    cause: str = ""
    error: float = 0.0

    @property
    def interval(self) -> Interval:
        """Root with its ends, ln of the axis."""
        return Interval(self.root, self.low, self.high, error=self.error)


APART = Crossing("undecided", reason="no size lies within the shapes of both depths", cause=NO_SHARED_RANGE)


def classify(x: np.ndarray, band: SimultaneousBand) -> Crossing:
    """Status, root and interval of g = 0, with g = loss of the shallower − loss of the deeper at x (G,) in a band.

    crossed: the shallower is significantly (sup-t) ahead on the left and the deeper on the right. not_reached: only the
    shallower ever is. already_crossed: only the deeper. undecided: neither. ambiguous: any other pattern.

    The interval is the set {x : |g(x)| ≤ t_df·se(x)} (Fieller 1954, by band inversion) between the two significant
    parts; if one part is missing, that end is unbounded.
    """
    g, se = band.value, band.se
    t, pointwise = g / se, t_two_sided(band.confidence, band.df)
    below, above = np.flatnonzero(band.sign < 0), np.flatnonzero(band.sign > 0)
    found = looked_at(g, t)
    low = _edge(x, -t - pointwise, int(below[-1]), 1) if len(below) else None
    high = _edge(x, t - pointwise, int(above[0]), -1) if len(above) else None
    if low is None and high is None:
        return replace(found, reason=_REASONS["undecided"], cause=NOISE)
    if low is None or high is None:
        status = "not_reached" if high is None else "already_crossed"
        return replace(found, status=status, low=low, high=high, reason=_REASONS[status])
    left, right = int(below[-1]), int(above[0])
    if left >= right:
        return replace(found, status="ambiguous", reason=_REASONS["ambiguous"])
    root, slope, root_se = _root(x, g, se, left, right)
    return replace(
        found,
        status="crossed",
        root=root,
        low=low,
        high=high,
        se=root_se,
        slope=slope,
        t_left=float(np.max(-t[x <= root])),
        t_right=float(np.max(t[x >= root])),
    )


def monte_carlo(found: Crossing, x: np.ndarray, band: SimultaneousBand, scramble: np.ndarray) -> float:
    """Largest standard error of root, low and high by the scrambles (D,) of the draws of a band: each is an answer.

    A root is where g is zero, an end where g ± t·se is. An end of the sizes has no error.
    """
    pointwise = t_two_sided(band.confidence, band.df)
    parts = [band.deviations[scramble == k] for k in np.unique(scramble)]
    parts, errors = [part for part in parts if len(part) > 1], [0.0]
    for at, side in ((found.root, 0.0), (found.low, 1.0), (found.high, -1.0)):
        if at is None or not x[0] < at < x[-1] or len(parts) < 2:
            continue
        ends = [part.mean(axis=0) + side * pointwise * part.std(axis=0) for part in parts]
        spread = float(standard_error(np.array([np.interp(at, x, end) for end in ends])))
        slope = float(np.interp(at, x, np.gradient(band.value + side * pointwise * band.se, x)))
        errors.append(spread / abs(slope) if slope else 0.0)
    return max(errors)


def looked_at(g: np.ndarray, t: np.ndarray) -> Crossing:
    """Undecided crossing, before its leads are judged."""
    changes = int(np.count_nonzero(np.diff(np.sign(g[g != 0.0]))))
    return Crossing("undecided", t_left=float(np.max(-t)), t_right=float(np.max(t)), sign_changes=changes)


_REASONS = {
    "not_reached": "the shallower net is ahead wherever the two are told apart: the crossing lies above the bound",
    "already_crossed": "the deeper net is ahead wherever the two are told apart: the crossing lies below the bound",
    "undecided": "the two nets differ by no more than the noise at any size",
    "ambiguous": "the lead changes hands in more than one place, or from the deeper net to the shallower",
}


def _edge(x: np.ndarray, excess: np.ndarray, start: int, step: int) -> float:
    """Walking from ``start``, the first x where ``excess`` falls to zero (interpolated); else the end of x."""
    i = start
    while 0 <= i + step < len(x):
        if excess[i + step] <= 0.0:
            fraction = excess[i] / (excess[i] - excess[i + step]) if excess[i] > 0 else 0.0
            return float(x[i] + fraction * (x[i + step] - x[i]))
        i += step
    return float(x[i])


def _root(x: np.ndarray, g: np.ndarray, se: np.ndarray, left: int, right: int) -> tuple[float, float, float]:
    """(root, slope, se of the root) between two indices of opposite sign; the middle one if noise made several."""
    up = [i for i in range(left, right) if g[i] < 0.0 <= g[i + 1]]
    i = up[len(up) // 2]
    root = float(x[i] - g[i] * (x[i + 1] - x[i]) / (g[i + 1] - g[i]))
    slope, spread = float(np.interp(root, x, np.gradient(g, x))), float(np.interp(root, x, se))
    return root, slope, spread / abs(slope) if slope else math.inf
