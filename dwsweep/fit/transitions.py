"""Where the deeper net of a pair overtakes, and how two depths differ at equal size.

A pair's difference curve gets a status from its simultaneous band, a root, and the root's interval. Three estimators
stand side by side as rows of transitions.csv:

surface the crossing of the joint model of all depths (surface.py), which is the verdict on the pair.

pchip   the crossing of the pair's own two curves, which is the check.

levine  the two-width rule of Levine et al. 2020: the first trained width of the shallower net that is significantly
        worse, averaged with its left neighbour, where the two are indistinguishable. The noisier the losses, the later
        a width counts as worse: biased to larger widths.

Contrasts are differences of any two depths at equal size, for tables that give no curves to cross. Two shapes within
TOLERANCE of each other's size are compared as measured, corrected to the size between them by the slope of the loss;
the correction's error is the spread of that slope over the table. Depths without such shapes are compared by the losses
of all depths together, where they share a range of sizes. Each pair has at most three sizes: the ends and the middle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from dwsweep.fit.curves import Curves, Difference, difference, distinct, from_values, pchip, shared_grid
from dwsweep.fit.noise import DEFAULT, DOCUMENTS, FLOOR_NATS, SEPARABLE_SIZES, t_two_sided
from dwsweep.fit.surface import LossSurface
from dwsweep.records.fit import NO_FORM_FITS
from dwsweep.records.transitions import REFERENCE, Contrast, Transition
from dwsweep.text import format_count

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
    root: float | None = None
    low: float | None = None
    high: float | None = None
    se: float | None = None
    slope: float | None = None
    t_left: float | None = None
    t_right: float | None = None
    critical: float | None = None
    left: float | None = None
    right: float | None = None
    sign_changes: int = 0
    reason: str = ""
    tie_low: float | None = None
    tie_high: float | None = None
    cause: str = ""


def classify(d: Difference, confidence: float) -> Crossing:
    """Status, root and interval of g = 0.

    crossed: the shallower is significantly (sup-t) ahead on the left and the deeper on the right. not_reached: only the
    shallower ever is. already_crossed: only the deeper. undecided: neither. ambiguous: any other pattern.

    The interval is the set {x : |g(x)| ≤ t_df·se(x)} (Fieller 1954, by band inversion) between the two significant
    parts; where one part is missing, that end is unbounded.
    """
    band = d.band(confidence)
    g, se, x = d.g, band.se, d.x
    t = g / se
    pointwise = t_two_sided(confidence, d.df)
    below, above = np.flatnonzero(band.sign < 0), np.flatnonzero(band.sign > 0)
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
    tie = _tie(x, low if status == "not_reached" else None, high if status == "already_crossed" else None)
    t_left = float(np.max(-t if root is None else -t[x <= root]))
    t_right = float(np.max(t if root is None else t[x >= root]))
    return Crossing(
        status,
        root,
        low,
        high,
        root_se,
        slope,
        t_left,
        t_right,
        band.critical,
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
    return Crossing("undecided", reason=reason, cause=cause)


def of_few_sizes(crossing: Crossing, sizes: int) -> Crossing:
    """The crossing, undecided where so few sizes cannot tell it from the scatter of a shape."""
    if crossing.status not in ("crossed", "ambiguous"):
        return crossing
    return replace(
        no_crossing(
            f"{sizes} sizes per depth and no losses per document: scatter per shape cannot be told from a crossing; "
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


ALL_LOSSES = "all losses together"  # what a contrast rests on
SURFACE, LEVINE = "surface", "levine"  # estimators beside the reference
SURFACE_POINTS = 61
FAR_APART = 3.0  # standard errors between two estimates of a crossing that rest on the same losses


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair of consecutive depths. difference: None where they share no range of sizes. crossing: the reference
    (pchip). others: (estimator, crossing)."""

    shallow: int
    deep: int
    difference: Difference | None
    crossing: Crossing
    others: tuple[tuple[str, Crossing], ...]


def analyse_pairs(curves: Curves, confidence: float, estimators: bool = True) -> list[Pair]:
    """Every pair of consecutive depths, shallow to deep."""
    pairs = []
    for shallow, deep in zip(curves.depths[:-1], curves.depths[1:], strict=True):
        d = difference(curves, shallow, deep)
        if d is None:
            pairs.append(Pair(shallow, deep, None, _no_range(curves, shallow, deep), ()))
            continue
        if not curves.noise.known:
            reason = (
                curves.noise.why_unknown
                or "no estimate of the noise: more seeds, four sizes per depth, or a declared noise"
            )
            pairs.append(Pair(shallow, deep, d, no_crossing(reason, NOISE_UNKNOWN), ()))
            continue
        levine = levine_crossing(curves, shallow, deep, confidence) if estimators else None
        others = [] if levine is None else [(LEVINE, levine)]
        crossing = classify(d, confidence)
        sizes = min(len(curves.sizes(shallow)), len(curves.sizes(deep)))
        if sizes < SEPARABLE_SIZES and curves.noise.shape_source != DOCUMENTS:
            crossing = of_few_sizes(crossing, sizes)
            others = [(name, of_few_sizes(found, sizes)) for name, found in others]
        pairs.append(Pair(shallow, deep, d, crossing, tuple(others)))
    return pairs


def with_surface(pairs: Sequence[Pair], curves: Curves, surface: LossSurface, confidence: float) -> list[Pair]:
    """The pairs with the verdict of the losses of all depths together, estimator ``surface``, where both depths lie
    inside the data. It holds what the pair's own two curves say beside it."""
    grid = np.linspace(surface.record.low, surface.record.high, SURFACE_POINTS)
    values = surface.differences(grid, [(pair.shallow, pair.deep) for pair in pairs])
    within = np.array([surface.reach(x) for x in grid])
    found = []
    for pair, drawn in zip(pairs, values, strict=True):
        if pair.difference is None:
            inside = (within[:, 0] <= math.log(pair.shallow) + 1e-9) & (within[:, 1] >= math.log(pair.deep) - 1e-9)
        else:
            inside = (grid >= pair.difference.x[0] - 1e-9) & (grid <= pair.difference.x[-1] + 1e-9)
        if np.count_nonzero(inside) > 1:
            joint = from_values(curves, pair.shallow, pair.deep, grid[inside], drawn[:, inside])
            verdict = _holding(classify(joint, confidence), pair.crossing)
            pair = replace(pair, others=(*pair.others, (SURFACE, verdict)))
        found.append(pair)
    return found


def _holding(joint: Crossing, own: Crossing) -> Crossing:
    """The verdict by all losses, its interval wide enough for what the pair's own two curves say where the two are
    further apart than their errors allow."""
    if joint.status != "crossed" or joint.low is None or joint.high is None:
        return joint
    if _apart(joint, own) > FAR_APART:
        return replace(joint, low=min(joint.low, own.low or -math.inf), high=max(joint.high, own.high or math.inf))
    if own.status == "not_reached" and own.low is not None and own.low > joint.high:
        return replace(joint, high=None)
    if own.status == "already_crossed" and own.high is not None and own.high < joint.low:
        return replace(joint, low=None)
    return joint


def _apart(joint: Crossing, own: Crossing) -> float:
    """Standard errors between two crossings; 0 where one of them is none."""
    if joint.root is None or own.root is None or not joint.se or not own.se:
        return 0.0
    return abs(joint.root - own.root) / math.hypot(joint.se, own.se)


def disagreements(pairs: Sequence[Pair]) -> list[str]:
    """A line for each pair whose crossing by all losses is more than two standard errors from that of its own curves:
    no form fits there."""
    return [
        f"surface: {pair.shallow}→{pair.deep} at {format_count(math.exp(joint.root))}, by the pair alone at "
        f"{format_count(math.exp(pair.crossing.root))}, {apart:.1f} standard errors apart: {NO_FORM_FITS} there"
        for pair in pairs
        for name, joint in pair.others
        if name == SURFACE and (apart := _apart(joint, pair.crossing)) > FAR_APART
        if joint.root is not None and pair.crossing.root is not None
    ]


def _no_range(curves: Curves, shallow: int, deep: int) -> Crossing:
    for depth in (shallow, deep):
        if len(curves.sizes(depth)) < 2:
            return no_crossing(f"depth {depth} has a single size: no curve", NO_CURVE)
    return no_crossing("the two depths share no range of sizes", NO_SHARED_RANGE)


def transition_rows(curves: Curves, pairs: Sequence[Pair], confidence: float) -> list[Transition]:
    """Rows of transitions.csv: per pair ``pchip`` first, then ``levine`` and ``surface``. Widths are the shallower
    net's; a None end is unbounded."""
    return [
        _transition_row(curves, pair, estimator, crossing, confidence)
        for pair in pairs
        for estimator, crossing in ((REFERENCE, pair.crossing), *pair.others)
    ]


def _transition_row(curves: Curves, pair: Pair, estimator: str, c: Crossing, confidence: float) -> Transition:
    both = np.concatenate([curves.at(pair.shallow), curves.at(pair.deep)])
    sigmas = [curves.noise.sigma.get(d) for d in (pair.shallow, pair.deep)]
    known = [s for s in sigmas if s is not None]
    x = (c.root, c.low, c.high, c.tie_low, c.tie_high)
    n = [None if v is None else n_params_at(curves, pair.shallow, v) for v in x]
    width = [None if v is None else float(np.exp(curves.ln_width_of(pair.shallow, v))) for v in x]
    axis = [None if v is None else math.exp(v) for v in x]
    return Transition(
        shallow=pair.shallow,
        deep=pair.deep,
        estimator=estimator,
        status=c.status,
        n_params=n[0],
        n_params_low=n[1],
        n_params_high=n[2],
        width=width[0],
        width_low=width[1],
        width_high=width[2],
        se_ln_n=c.se,
        slope_difference=c.slope,
        sup_t_left=c.t_left,
        sup_t_right=c.t_right,
        sign_changes=c.sign_changes,
        n_seeds=int(curves.n[both].min()),
        sigma=math.sqrt(sum(s * s for s in known) / len(known)) if known else curves.noise.tau,
        df=None if pair.difference is None else pair.difference.df,
        confidence=confidence,
        interval_method="" if c.critical is None else "two trained widths" if estimator == LEVINE else "band inversion",
        threshold=0.0,
        sup_t_critical=c.critical,
        axis_value=axis[0],
        axis_low=axis[1],
        axis_high=axis[2],
        reason=c.reason,
        cause=c.cause,
        tie_low=n[3],
        tie_high=n[4],
    )


def n_params_at(curves: Curves, depth: int, x: float) -> float:
    """N of the net of ``depth`` at ln-axis ``x``: e^x itself on the default axis, interpolated on the others."""
    where = curves.at(depth)
    offset = np.log(curves.n_params[where]) - curves.x[where]
    return float(math.exp(x + np.interp(x, curves.x[where], offset)))


def levine_crossing(curves: Curves, shallow: int, deep: int, confidence: float) -> Crossing | None:
    """The two-width rule at the trained widths of the shallower net inside the shared range.

    Both nets are compared at equal x; the deeper one's loss there is interpolated, since its widths need not match. The
    interval runs between the two widths; a pair that is not reached lies beyond the last width at which the shallower
    net is significantly ahead. None without a noise estimate or a shared range.
    """
    grid = shared_grid(curves, shallow, deep)
    if grid is None or not curves.noise.known:
        return None
    a, b = curves.at(shallow), curves.at(deep)
    keep = a[(curves.x[a] >= grid[0] - 1e-9) & (curves.x[a] <= grid[-1] + 1e-9)]
    values = np.vstack([curves.mean, curves.draws])
    x, shallower = distinct(curves.x[keep], values[:, keep])
    if len(x) < 2:
        return None
    d = from_values(curves, shallow, deep, x, shallower - pchip(*distinct(curves.x[b], values[:, b]), x))
    pointwise = t_two_sided(confidence, d.df)
    t = d.g / d.se
    worse = np.flatnonzero(t > pointwise)
    said: dict[str, Any] = {"t_left": float(np.max(-t)), "t_right": float(np.max(t)), "critical": pointwise}
    said["sign_changes"] = int(np.count_nonzero(np.diff(np.sign(d.g[d.g != 0.0]))))
    if not len(worse):
        better = np.flatnonzero(t < -pointwise)
        status = "not_reached" if len(better) else "undecided"
        low = float(x[better[-1]]) if len(better) else None
        return Crossing(status, low=low, **said)
    first = int(worse[0])
    if first == 0:
        return Crossing("already_crossed", high=float(x[0]), right=float(x[0]), **said)
    low, high = float(x[first - 1]), float(x[first])
    ln_d = curves.ln_width_of(shallow, np.array([low, high]))
    middle = float(curves.x_of_ln_width(shallow, math.log(np.exp(ln_d).mean())))
    slope = float((d.g[first] - d.g[first - 1]) / (high - low))
    return Crossing("crossed", middle, low, high, slope=slope, left=low, right=high, **said)


TOLERANCE = math.log(1.1)  # in ln of the size
SLOPE_ERROR = 0.5  # of the slope, where fewer than three show its spread


def contrasts(curves: Curves, confidence: float, surface: LossSurface | None = None) -> list[Contrast]:
    """At most three rows per pair of depths, shallow to deep, small to large.

    surface: what compares depths without shapes of equal size; its draws hold the error of going between the shapes.
    """
    slope, slope_error = _slope(curves)
    rows = []
    for shallow, deep in combinations(curves.depths, 2):
        matched = _matched(curves, shallow, deep)
        if matched:
            rows += [_measured(curves, a, b, slope, slope_error, confidence) for a, b in _three(matched)]
        else:
            rows += _by_surface(curves, surface, shallow, deep, confidence)
    return rows


def _slope(curves: Curves) -> tuple[float, float]:
    """dloss/dx between neighbouring sizes of a depth: the middle one, and the sd over the table."""
    slopes = []
    for depth in curves.depths:
        where = curves.at(depth)
        slopes += [
            (curves.mean[b] - curves.mean[a]) / (curves.x[b] - curves.x[a])
            for a, b in pairwise(where)
            if curves.x[b] - curves.x[a] > TOLERANCE
        ]
    if not slopes:  # one size per depth: the trend over all shapes
        x = curves.x - curves.x.mean()
        spread = float(x @ x)
        trend = float(x @ (curves.mean - curves.mean.mean())) / spread if spread > TOLERANCE**2 else 0.0
        return trend, abs(trend)
    middle = float(np.median(slopes))
    return middle, float(np.std(slopes)) if len(slopes) > 2 else SLOPE_ERROR * abs(middle)


def _matched(curves: Curves, shallow: int, deep: int) -> list[tuple[int, int]]:
    """Pairs of shapes of ``shallow`` and ``deep``, where they are each other's nearest and close enough."""
    a, b = curves.at(shallow), curves.at(deep)
    gap = np.abs(curves.x[a][:, None] - curves.x[b])
    return [
        (int(a[i]), int(b[j]))
        for i, j in enumerate(gap.argmin(axis=1))
        if gap[i, j] <= TOLERANCE and gap[:, j].argmin() == i
    ]


def _three(items: Sequence) -> list:
    last = len(items) - 1
    return [items[k] for k in sorted({0, last // 2, last})]


def _measured(curves: Curves, a: int, b: int, slope: float, slope_error: float, confidence: float) -> Contrast:
    gap = float(curves.x[a] - curves.x[b])
    g = float(curves.mean[a] - curves.mean[b]) - slope * gap
    noise = float((curves.draws[:, a] - curves.draws[:, b]).std())
    se = math.hypot(noise, slope_error * gap)
    middle = float(curves.x[a] + curves.x[b]) / 2.0
    return _contrast_row(curves, a, b, middle, g, se, confidence, "measured shapes", gap)


def _by_surface(
    curves: Curves, surface: LossSurface | None, shallow: int, deep: int, confidence: float
) -> list[Contrast]:
    grid = shared_grid(curves, shallow, deep)
    if surface is None or grid is None:
        return []
    x = np.array(_three(grid.tolist()))
    drawn = surface.differences(x, [(shallow, deep)])[0]
    a, b = int(curves.at(shallow)[0]), int(curves.at(deep)[0])
    return [
        _contrast_row(curves, a, b, at, float(g[0]), float(g[1:].std()), confidence, ALL_LOSSES, None)
        for at, g in zip(x.tolist(), drawn.T, strict=True)
    ]


def _contrast_row(
    curves: Curves, a: int, b: int, x: float, g: float, se: float, confidence: float, rests_on: str, gap: float | None
) -> Contrast:
    """a, b: shapes of the two depths; ``gap`` None where the widths are those of the curves at ``x``."""
    shallow, deep = int(curves.depth[a]), int(curves.depth[b])
    variances = [float(np.mean(curves.se[curves.at(depth)] ** 2)) for depth in (shallow, deep)]
    df = curves.noise.df_of((shallow, deep), variances) if curves.noise.known else math.inf
    half = t_two_sided(confidence, df) * max(se, FLOOR_NATS)
    widths = [
        float(curves.width[k]) if gap is not None else float(np.exp(curves.ln_width_of(depth, x)))
        for k, depth in ((a, shallow), (b, deep))
    ]
    both = [a, b] if gap is not None else np.concatenate([curves.at(shallow), curves.at(deep)])
    noise = curves.noise
    source = noise.source if noise.known else "the scatter of shapes"
    return Contrast(
        shallow=shallow,
        deep=deep,
        n_params=n_params_at(curves, shallow, x),
        shallow_width=widths[0],
        deep_width=widths[1],
        difference=g,
        se=se,
        low=g - half,
        high=g + half,
        df=df,
        confidence=confidence,
        rests_on=rests_on,
        size_gap=None if gap is None else math.expm1(abs(gap)),
        n_seeds=int(curves.n[both].min()),
        noise_source=source
        + (f", {math.sqrt(noise.shape_variance):.2g} nats by default" if noise.shape_source == DEFAULT else ""),
    )
