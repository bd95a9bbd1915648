"""Crossing: size above which the deeper of two nets is the better one, in every draw of their losses.

With g(x) the loss of the shallower less the loss of the deeper net at x = ln axis, a draw crosses where ∫ g up to x is
least: there g turns from below zero to above it, and nobody loses less by another choice of one size from which on to
build the deeper net. A draw whose integral is least at an end of the sizes crosses beyond it. The draws may come from
all losses together or from the two depths alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dwsweep.fit.statistics.ask import answer
from dwsweep.fit.statistics.curves import Curves, SimultaneousBand
from dwsweep.fit.statistics.noise import FLOOR_NATS
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
    of the causes above. error: largest Monte-Carlo standard error of root, low and high. drawn: (D,) of the draws.
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
    drawn: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False)

    @property
    def interval(self) -> Interval:
        """Root with its ends, ln of the axis."""
        return Interval(self.root, self.low, self.high, error=self.error)


APART = Crossing("undecided", reason="no size lies within the shapes of both depths", cause=NO_SHARED_RANGE)


def crossings(x: np.ndarray, lead: np.ndarray) -> np.ndarray:
    """(D,) x at which each draw of the ``lead`` (D, M) of the deeper net over x (M,) crosses; ±inf beyond an end. Draws
    without a difference cross beyond either end in turn."""
    total = np.cumsum((lead[:, 1:] + lead[:, :-1]) * np.diff(x), axis=1)
    k, each = np.concatenate([np.zeros((len(lead), 1)), total], axis=1).argmin(axis=1), np.arange(len(lead))
    before = k - (lead[each, k] > 0.0)
    i = np.clip(before, 0, len(x) - 2)
    low, high = lead[each, i], lead[each, i + 1]
    found = x[i] - low * (x[i + 1] - x[i]) / np.where(high > low, high - low, 1.0)
    found = np.where(before < 0, -np.inf, np.where(before > len(x) - 2, np.inf, found))
    return np.where((lead == 0.0).all(axis=1), np.where(each % 2, np.inf, -np.inf), found)


def classify(x: np.ndarray, band: SimultaneousBand, scramble: np.ndarray | None = None) -> Crossing:
    """Status, root and interval of the crossing at x (G,), evenly rising, by the draws of a band of the lead of the
    deeper net.

    A low end of the interval needs a lead of the shallower net over the smallest sizes, a high end one of the deeper
    net over the largest, which ``_leads`` shows. crossed: both. not_reached: the first alone. already_crossed: the
    second alone. undecided: neither. ambiguous: the lead surely changes hands the other way about. scramble: (D,) of
    the draws, whose spread is the Monte-Carlo error.
    """
    g, t = band.value, band.value / band.se
    found, sure = looked_at(g, t), [np.flatnonzero(band.sign == side) for side in (-1, 1)]
    if all(map(len, sure)) and sure[0][-1] >= sure[1][0]:
        return replace(found, status="ambiguous", reason=_REASONS["ambiguous"])
    drawn, (shallow, deep) = crossings(x, band.drawn), _leads(band)
    one = np.zeros(len(drawn)) if scramble is None else scramble
    at = answer(np.clip(drawn, x[0], x[-1]), one, band.confidence)
    low = at.low if shallow and at.low is not None and at.low > x[0] else None
    high = at.high if deep and at.high is not None and at.high < x[-1] else None
    if low is None and high is None:
        return replace(found, reason=_REASONS["undecided"], cause=NOISE)
    found = replace(found, low=low, high=high, error=at.error or 0.0, drawn=drawn)
    if low is None or high is None or at.value is None:
        status = "not_reached" if high is None else "already_crossed"
        return replace(found, status=status, reason=_REASONS[status])
    slope = float(np.interp(at.value, x, np.gradient(g, x)))
    return replace(
        found,
        status="crossed",
        root=at.value,
        se=float(np.interp(at.value, x, band.se)) / slope if slope > 0.0 else None,
        slope=slope,
        t_left=float(np.max(-t[x <= at.value])),
        t_right=float(np.max(t[x >= at.value])),
    )


def _leads(band: SimultaneousBand) -> tuple[bool, bool]:
    """(the shallower net surely leads over the smallest sizes, the deeper one over the largest): on average up to some
    size, or from one on. Each is wrong as often as one end of an interval."""
    count = np.arange(1.0, len(band.value) + 1.0)

    def shown(sign: float, step: int) -> bool:
        value, away, drawn = (
            sign * np.cumsum(rows[..., ::step], axis=-1) / count for rows in (band.value, band.deviations, band.errors)
        )
        se = np.maximum(away.std(axis=0), FLOOR_NATS)
        critical = np.quantile((drawn / se).max(axis=1), (1.0 + band.confidence) / 2.0)
        return bool((value / se > critical).any())

    return shown(-1.0, 1), shown(1.0, -1)


def looked_at(g: np.ndarray, t: np.ndarray) -> Crossing:
    """Undecided crossing, before its leads are judged."""
    changes = int(np.count_nonzero(np.diff(np.sign(g[g != 0.0]))))
    return Crossing("undecided", t_left=float(np.max(-t)), t_right=float(np.max(t)), sign_changes=changes)


_REASONS = {
    "not_reached": "the shallower net leads the smaller sizes, and no lead of the deeper one is shown above them",
    "already_crossed": "the deeper net leads the larger sizes, and no lead of the shallower one is shown below them",
    "undecided": "no lead of the shallower net is shown below a size, nor one of the deeper net above it",
    "ambiguous": "the lead changes hands in more than one place, or from the deeper net to the shallower",
}
