"""Where the deeper net of a pair overtakes: status by simultaneous bands, the root, and its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.curves import Difference
from dwsweep.fit.noise import chi2_quantile, t_two_sided
from dwsweep.fit.shape_noise import SEPARABLE_SIZES
from dwsweep.records.fit_rows import Transition

NOISE, NOISE_UNKNOWN, NO_CURVE, NO_SHARED_RANGE = "noise", "noise unknown", "no curve", "no shared range"
FEW_SIZES = "few sizes"
CAUSES = (NOISE, NOISE_UNKNOWN, NO_CURVE, NO_SHARED_RANGE, FEW_SIZES)


@dataclass(frozen=True)
class Crossing:
    """The crossing of one pair at one threshold; x is ln of the axis, None where it does not exist.

    status: see ``classify``. root, low, high: crossing and ends of its interval (None = unbounded, or no root).
    se: standard error of the root. slope: g' there, nats per unit of x. t_left, t_right: largest t of the shallower's
    lead left of the crossing and of the deeper's lead right of it. critical: sup-t quantile they are held against.
    left, right: last x where the shallower, first where the deeper is significantly ahead. sign_changes: of g.
    tie_low, tie_high: ends of the stretch beyond a lead, up to the end of the shared range, where the two do not differ
    (of ``not_reached`` and ``already_crossed``; None without one). cause: why it is undecided, one of CAUSES.
    """

    status: str
    root: float | None
    low: float | None
    high: float | None
    se: float | None
    slope: float | None
    t_left: float | None
    t_right: float | None
    critical: float | None
    left: float | None
    right: float | None
    sign_changes: int
    reason: str = ""
    tie_low: float | None = None
    tie_high: float | None = None
    cause: str = ""


def sup_t_quantile(
    deviations: np.ndarray, se: np.ndarray, df: float, confidence: float, one_sided: bool = False
) -> float:
    """Quantile of max_x |g* − g|/se over draws (D, G), each divided by √(χ²_df/df): a simultaneous t band. one_sided:
    without the bars, for a band that has only one end.

    The χ² factors are quantiles in a fixed order, so that the value repeats exactly.
    """
    sup = np.max((deviations if one_sided else np.abs(deviations)) / se, axis=1)
    if math.isfinite(df):
        n = len(sup)
        levels = (np.arange(n) + 0.5) / n
        sup = sup / np.sqrt(chi2_quantile(levels, df) / df)[_scatter(n)]
    return float(np.quantile(sup, confidence))


def _scatter(n: int) -> np.ndarray:
    """A fixed permutation, unrelated to the order of the draws."""
    return np.random.default_rng(0).permutation(n)


def classify(d: Difference, confidence: float, threshold: float = 0.0) -> Crossing:
    """Status, root and interval of g = ``threshold`` (nats by which the deeper net must be ahead).

    crossed: the shallower is significantly (sup-t) ahead on the left and the deeper on the right. not_reached: only the
    shallower ever is. already_crossed: only the deeper. undecided: neither. ambiguous: any other pattern.

    The interval is the set {x : |g(x)| ≤ t_df·se(x)} (Fieller 1954, by band inversion) between the two significant
    parts; where one part is missing, that end is unbounded.
    """
    g, se, x = d.g - threshold, d.se, d.x
    t = g / se
    critical = sup_t_quantile(d.deviations, se, d.df, confidence)
    pointwise = t_two_sided(confidence, d.df)
    below, above = np.flatnonzero(t < -critical), np.flatnonzero(t > critical)
    changes = int(np.count_nonzero(np.diff(np.sign(g[g != 0.0]))))
    left = int(below[-1]) if len(below) else None
    right = int(above[0]) if len(above) else None
    if left is None and right is None:
        status = "undecided"
    elif right is None:
        status = "not_reached"
    elif left is None:
        status = "already_crossed"
    else:
        status = "crossed" if left < right else "ambiguous"
    low = high = root = slope = root_se = None
    if status in ("crossed", "not_reached"):
        low = _edge(x, -t - pointwise, left, 1)
    if status in ("crossed", "already_crossed"):
        high = _edge(x, t - pointwise, right, -1)
    if status == "crossed":
        root, slope, root_se = _root(x, g, se, left, right)
    split = root if root is not None else None
    tie = _tie(x, low if status == "not_reached" else None, high if status == "already_crossed" else None)
    t_left = float(np.max(-t if split is None else -t[x <= split]))
    t_right = float(np.max(t if split is None else t[x >= split]))
    return Crossing(
        status,
        root,
        low,
        high,
        root_se,
        slope,
        t_left,
        t_right,
        critical,
        None if left is None else float(x[left]),
        None if right is None else float(x[right]),
        changes,
        reason=_TIED[status] if tie else _REASONS.get(status, ""),
        tie_low=tie[0] if tie else None,
        tie_high=tie[1] if tie else None,
        cause=NOISE if status == "undecided" else "",
    )


def _tie(x: np.ndarray, low: float | None, high: float | None) -> tuple[float, float] | None:
    """From where the last lead ends to the end of the range, where that is more than the last step of the grid."""
    step = x[1] - x[0]
    if low is not None and x[-1] - low > step:
        return low, float(x[-1])
    if high is not None and high - x[0] > step:
        return float(x[0]), high
    return None


_REASONS = {
    "not_reached": "the shallower net is ahead wherever the two differ: the crossing lies above",
    "already_crossed": "the deeper net is ahead wherever the two differ: the crossing lies below",
    "undecided": "the two nets nowhere differ by more than the noise",
    "ambiguous": "the lead changes hands in more than one place, or from the deeper net to the shallower",
}


_TIED = {
    "not_reached": "the shallower net is ahead at small sizes, and from the bound to the end of the shared range the "
    "two tie: the crossing may lie there or above",
    "already_crossed": "the deeper net is ahead at large sizes, and from the start of the shared range to the bound "
    "the two tie: the crossing may lie there or below",
}


def no_crossing(reason: str, cause: str) -> Crossing:
    """A pair about which nothing can be said, and why."""
    return Crossing("undecided", None, None, None, None, None, None, None, None, None, None, 0, reason, cause=cause)


def of_few_sizes(crossing: Crossing, sizes: int) -> Crossing:
    """A crossing of depths with so few sizes that the luck of a shape, known from nowhere else, could have made it."""
    if crossing.status not in ("crossed", "ambiguous"):
        return crossing
    return replace(
        no_crossing(
            f"{sizes} sizes per depth and no losses per document: luck per shape cannot be told from a crossing; "
            f"{SEPARABLE_SIZES} are needed",
            FEW_SIZES,
        ),
        t_left=crossing.t_left,
        t_right=crossing.t_right,
        critical=crossing.critical,
        sign_changes=crossing.sign_changes,
    )


def _edge(x: np.ndarray, excess: np.ndarray, start: int | None, step: int) -> float:
    """Walking from ``start``, the first x where ``excess`` falls to zero (interpolated); else the end of x."""
    assert start is not None
    i = start
    while 0 <= i + step < len(x):
        if excess[i + step] <= 0.0:
            fraction = excess[i] / (excess[i] - excess[i + step]) if excess[i] > 0 else 0.0
            return float(x[i] + fraction * (x[i + step] - x[i]))
        i += step
    return float(x[i])


def _root(
    x: np.ndarray, g: np.ndarray, se: np.ndarray, left: int | None, right: int | None
) -> tuple[float, float, float]:
    """(root, slope, se of the root) between two indices of opposite sign; the middle one where noise made several."""
    assert left is not None and right is not None
    inside = np.arange(left, right + 1)
    up = [i for i in inside[:-1] if g[i] < 0.0 <= g[i + 1]]
    i = up[len(up) // 2]
    root = float(x[i] - g[i] * (x[i + 1] - x[i]) / (g[i + 1] - g[i]))
    gradient = np.gradient(g, x)
    slope = float(np.interp(root, x, gradient))
    spread = float(np.interp(root, x, se))
    return root, slope, spread / abs(slope) if slope else math.inf


def size_ratio(row: Transition, other: Transition) -> tuple[float, float | None, float | None] | None:
    """(N / N, low, high) of the crossings of one pair in two sweeps that share no run; None where one has not crossed.

    The interval of a difference of ln N from the intervals of the two, which may be lopsided or open (Zou and Donner
    2008, Statistics in Medicine 27): each end goes as far as the root of the sum of squares of the two distances.
    """
    if row.n_params is None or other.n_params is None:
        return None
    ratio = row.n_params / other.n_params
    down = _distance(row.n_params, row.n_params_low, other.n_params, other.n_params_high)
    up = _distance(row.n_params, row.n_params_high, other.n_params, other.n_params_low)
    return ratio, None if down is None else ratio * math.exp(-down), None if up is None else ratio * math.exp(up)


def _distance(n: float, end: float | None, other: float, other_end: float | None) -> float | None:
    return None if end is None or other_end is None else math.hypot(math.log(n / end), math.log(other / other_end))
