"""Where the deeper net of a pair overtakes, and how two depths differ at equal size.

A pair's difference curve gets a status from its simultaneous band, a root, and the root's interval. Three estimators
stand side by side as rows of transitions.csv:

surface the crossing of the joint model of all depths (surface.py), which is the verdict on the pair.

pchip   the crossing of the pair's own two curves, which is the check.

levine  the two-width rule of Levine et al. 2020: the first trained width of the shallower net that is significantly
        worse, averaged with its left neighbour, where the two are indistinguishable. The noisier the losses, the later
        a width counts as worse: biased to larger widths.

Contrasts are differences of any two depths at equal size by that model, at the ends and in the middle of the sizes at
which the data compare the two. A table without a surface has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, pairwise

import numpy as np

from dwsweep.fit.curves import Curves, Difference, difference, from_values, pchip, shared_grid
from dwsweep.fit.noise import DEFAULT, DOCUMENTS, SEPARABLE_SIZES, t_two_sided
from dwsweep.fit.surface import LossSurface
from dwsweep.interval import Interval
from dwsweep.records.fit import NO_FORM_FITS
from dwsweep.records.transitions import REFERENCE, Contrast, Transition
from dwsweep.text import format_count

NOISE, NOISE_UNKNOWN, NO_CURVE, NO_SHARED_RANGE = "noise", "noise unknown", "no curve", "no shared range"
FEW_SIZES = "few sizes"
STRUCTURAL = (NO_CURVE, NO_SHARED_RANGE, FEW_SIZES)  # causes that lie in which shapes were trained
CAUSES = (NOISE, NOISE_UNKNOWN, *STRUCTURAL)


@dataclass(frozen=True)
class Crossing:
    """The crossing of one pair; x is ln of the axis, None where it does not exist.

    status: see ``classify``. root, low, high: crossing and ends of its interval (None = unbounded, or no root).
    se: standard error of the root. slope: g' there, nats per unit of x. t_left, t_right: largest t of the shallower's
    lead left of the crossing and of the deeper's lead right of it. critical: sup-t quantile they are held against.
    sign_changes: of g. tie_low, tie_high: ends of the stretch beyond a lead, up to the end of the shared range, where
    the two do not differ (of ``not_reached`` and ``already_crossed``; None without one). cause: why it is undecided,
    one of CAUSES.
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
    t, pointwise = g / se, t_two_sided(confidence, d.df)
    below, above = np.flatnonzero(band.sign < 0), np.flatnonzero(band.sign > 0)
    found = _looked_at(g, t, band.critical)
    if not len(below) and not len(above):
        return replace(found, reason=_REASONS["undecided"], cause=NOISE)
    if not len(above):
        low = _edge(x, -t - pointwise, int(below[-1]), 1)
        return _bounded(found, "not_reached", x, low=low)
    if not len(below):
        high = _edge(x, t - pointwise, int(above[0]), -1)
        return _bounded(found, "already_crossed", x, high=high)
    left, right = int(below[-1]), int(above[0])
    if left >= right:
        return replace(found, status="ambiguous", reason=_REASONS["ambiguous"])
    root, slope, root_se = _root(x, g, se, left, right)
    return replace(
        found,
        status="crossed",
        root=root,
        low=_edge(x, -t - pointwise, left, 1),
        high=_edge(x, t - pointwise, right, -1),
        se=root_se,
        slope=slope,
        t_left=float(np.max(-t[x <= root])),
        t_right=float(np.max(t[x >= root])),
    )


def _looked_at(g: np.ndarray, t: np.ndarray, critical: float) -> Crossing:
    """What is known of a pair before its leads are: undecided so far."""
    changes = int(np.count_nonzero(np.diff(np.sign(g[g != 0.0]))))
    return Crossing(
        "undecided", t_left=float(np.max(-t)), t_right=float(np.max(t)), critical=critical, sign_changes=changes
    )


def _bounded(
    found: Crossing, status: str, x: np.ndarray, low: float | None = None, high: float | None = None
) -> Crossing:
    """The crossing with a bound on one side. The two tie from there to the end of the range, where that is more than
    the last step of the grid."""
    found = replace(found, status=status, low=low, high=high, reason=_REASONS[status])
    ends = float(x[0] if low is None else low), float(x[-1] if high is None else high)
    if ends[1] - ends[0] <= x[1] - x[0]:
        return found
    return replace(found, tie_low=ends[0], tie_high=ends[1], reason=_TIED[status])


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


def _of_few_sizes(crossing: Crossing, sizes: int) -> Crossing:
    """The crossing, undecided where so few sizes cannot tell it from the scatter of a shape."""
    if crossing.status not in ("crossed", "ambiguous"):
        return crossing
    return Crossing(
        "undecided",
        t_left=crossing.t_left,
        t_right=crossing.t_right,
        critical=crossing.critical,
        sign_changes=crossing.sign_changes,
        reason=f"{sizes} sizes per depth and no losses per document: scatter per shape cannot be told from a crossing; "
        f"{SEPARABLE_SIZES} are needed",
        cause=FEW_SIZES,
    )


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
    """(root, slope, se of the root) between two indices of opposite sign; the middle one where noise made several."""
    up = [i for i in range(left, right) if g[i] < 0.0 <= g[i + 1]]
    i = up[len(up) // 2]
    root = float(x[i] - g[i] * (x[i + 1] - x[i]) / (g[i + 1] - g[i]))
    slope, spread = float(np.interp(root, x, np.gradient(g, x))), float(np.interp(root, x, se))
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


SURFACE, LEVINE = "surface", "levine"  # estimators beside the reference
SURFACE_POINTS = 61
FAR_APART = 3.0  # standard errors between two estimates of a crossing that rest on the same losses


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair of consecutive depths. difference: None where they share no range of sizes. crossing: of the pair's own
    two curves (pchip), the reference. levine, surface: by the other estimators, where they have an answer."""

    shallow: int
    deep: int
    difference: Difference | None
    crossing: Crossing
    levine: Crossing | None = None
    surface: Crossing | None = None


def analyse_pairs(curves: Curves, confidence: float) -> list[Pair]:
    """Every pair of consecutive depths, shallow to deep."""
    return [_pair(curves, *depths, confidence) for depths in pairwise(curves.depths)]


def _pair(curves: Curves, shallow: int, deep: int, confidence: float) -> Pair:
    d, noise = difference(curves, shallow, deep), curves.noise
    if d is None:
        single = next((depth for depth in (shallow, deep) if len(curves.sizes(depth)) < 2), None)
        if single is not None:
            reason, cause = f"depth {single} has a single size: no curve", NO_CURVE
        else:
            reason, cause = "the two depths share no range of sizes", NO_SHARED_RANGE
        return Pair(shallow, deep, None, Crossing("undecided", reason=reason, cause=cause))
    if not noise.known:
        reason = noise.why_unknown or "no estimate of the noise: more seeds, four sizes per depth, or a declared noise"
        return Pair(shallow, deep, d, Crossing("undecided", reason=reason, cause=NOISE_UNKNOWN))
    crossing, levine = classify(d, confidence), levine_crossing(curves, d, confidence)
    sizes = min(len(curves.sizes(shallow)), len(curves.sizes(deep)))
    if sizes < SEPARABLE_SIZES and noise.shape_source != DOCUMENTS:
        crossing, levine = _of_few_sizes(crossing, sizes), levine and _of_few_sizes(levine, sizes)
    return Pair(shallow, deep, d, crossing, levine)


def with_surface(pairs: Sequence[Pair], curves: Curves, surface: LossSurface, confidence: float) -> list[Pair]:
    """The pairs with the verdict of the losses of all depths together, estimator ``surface``, where both depths lie
    inside the data. It holds what the pair's own two curves say beside it."""
    grid, depths = surface_grid(surface), [(pair.shallow, pair.deep) for pair in pairs]
    found = []
    for pair, drawn, inside in zip(
        pairs, surface.differences(grid, depths), _compared(curves, surface, grid, depths), strict=True
    ):
        if len(inside) > 1:
            joint = from_values(curves, pair.shallow, pair.deep, grid[inside], drawn[:, inside])
            pair = replace(pair, surface=_holding(classify(joint, confidence), pair.crossing))
        found.append(pair)
    return found


def surface_grid(surface: LossSurface) -> np.ndarray:
    """The ln sizes at which the joint model compares depths."""
    return np.linspace(surface.record.low, surface.record.high, SURFACE_POINTS)


def _compared(
    curves: Curves, surface: LossSurface, grid: np.ndarray, pairs: Sequence[tuple[int, int]]
) -> list[np.ndarray]:
    """For each pair, the places on ``grid`` at which the data compare the two depths: where both curves run, or inside
    the hull of all shapes where they share no range."""
    least, most = np.array([surface.reach(x) for x in grid]).T + np.array([[-1e-9], [1e-9]])
    found = []
    for shallow, deep in pairs:
        shared = shared_grid(curves, shallow, deep)
        if shared is None:
            inside = (least <= math.log(shallow)) & (most >= math.log(deep))
        else:
            inside = (grid >= shared[0] - 1e-9) & (grid <= shared[-1] + 1e-9)
        found.append(np.flatnonzero(inside))
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
    """A line for each pair whose crossing by all losses is more than ``FAR_APART`` standard errors from that of its own
    curves: no form fits there."""
    return [
        f"surface: {pair.shallow}→{pair.deep} at {format_count(math.exp(joint.root))}, by the pair alone at "
        f"{format_count(math.exp(pair.crossing.root))}, {apart:.1f} standard errors apart: {NO_FORM_FITS} there"
        for pair in pairs
        if (joint := pair.surface) and (apart := _apart(joint, pair.crossing)) > FAR_APART
        if joint.root is not None and pair.crossing.root is not None
    ]


def transition_rows(curves: Curves, pairs: Sequence[Pair], confidence: float) -> list[Transition]:
    """Rows of transitions.csv: per pair ``pchip`` first, then ``levine`` and ``surface``. Widths are the shallower
    net's; a None end is unbounded."""
    return [
        _transition_row(curves, pair, estimator, crossing, confidence)
        for pair in pairs
        for estimator, crossing in ((REFERENCE, pair.crossing), (LEVINE, pair.levine), (SURFACE, pair.surface))
        if crossing
    ]


def _transition_row(curves: Curves, pair: Pair, estimator: str, c: Crossing, confidence: float) -> Transition:
    both = np.concatenate([curves.at(pair.shallow), curves.at(pair.deep)])
    sigmas = [curves.noise.sigma.get(d) for d in (pair.shallow, pair.deep)]
    known = [s for s in sigmas if s is not None]
    at, tie = Interval(c.root, c.low, c.high), Interval(None, c.tie_low, c.tie_high)
    n_params = partial(n_params_at, curves, pair.shallow)
    width, axis = at.map(lambda x: float(np.exp(curves.ln_width_of(pair.shallow, x)))), at.map(math.exp)
    return Transition(
        shallow=pair.shallow,
        deep=pair.deep,
        estimator=estimator,
        status=c.status,
        **at.map(n_params).columns("n_params"),
        **width.columns("width"),
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
        axis_value=axis.value,
        axis_low=axis.low,
        axis_high=axis.high,
        reason=c.reason,
        cause=c.cause,
        tie_low=tie.map(n_params).low,
        tie_high=tie.map(n_params).high,
    )


def n_params_at(curves: Curves, depth: int, x: float) -> float:
    """N of the net of ``depth`` at ln-axis ``x``: e^x itself on the default axis, interpolated on the others."""
    where = curves.at(depth)
    offset = np.log(curves.n_params[where]) - curves.x[where]
    return float(math.exp(x + np.interp(x, curves.x[where], offset)))


def levine_crossing(curves: Curves, pair: Difference, confidence: float) -> Crossing | None:
    """The two-width rule at the trained widths of the shallower net inside the shared range.

    Both nets are compared at equal x; the deeper one's loss there is interpolated, since its widths need not match. The
    interval runs between the two widths; a pair that is not reached lies beyond the last width at which the shallower
    net is significantly ahead. None with fewer than two such widths.
    """
    shallow, deep = pair.shallow, pair.deep
    x, shallower = curves.losses(shallow)
    keep = (x >= pair.x[0] - 1e-9) & (x <= pair.x[-1] + 1e-9)
    if np.count_nonzero(keep) < 2:
        return None
    x, shallower = x[keep], shallower[:, keep]
    d = from_values(curves, shallow, deep, x, shallower - pchip(*curves.losses(deep), x))
    pointwise = t_two_sided(confidence, d.df)
    t = d.g / d.se
    worse = np.flatnonzero(t > pointwise)
    said = _looked_at(d.g, t, pointwise)
    if not len(worse):
        better = np.flatnonzero(t < -pointwise)
        return replace(said, status="not_reached", low=float(x[better[-1]])) if len(better) else said
    first = int(worse[0])
    if first == 0:
        return replace(said, status="already_crossed", high=float(x[0]))
    low, high = float(x[first - 1]), float(x[first])
    ln_d = curves.ln_width_of(shallow, np.array([low, high]))
    middle = float(curves.x_of_ln_width(shallow, math.log(np.exp(ln_d).mean())))
    slope = float((d.g[first] - d.g[first - 1]) / (high - low))
    return replace(said, status="crossed", root=middle, low=low, high=high, slope=slope)


def contrasts(curves: Curves, confidence: float, surface: LossSurface) -> list[Contrast]:
    """Any two depths at equal size by the joint model: at most three rows per pair, at the smallest, the middle and the
    largest size at which the data compare the two."""
    depths, grid = curves.depths, surface_grid(surface)
    pairs = list(combinations(range(len(depths)), 2))
    inside = _compared(curves, surface, grid, [(depths[a], depths[b]) for a, b in pairs])
    chosen = [where[sorted({0, len(where) // 2, len(where) - 1})] if len(where) else where for where in inside]
    # (depths, 1 + D) loss of the shallowest less that of each depth, by place on the grid
    below = {
        k: surface.differences(grid[[k]], [(depths[0], depth) for depth in depths])[..., 0]
        for k in {int(k) for where in chosen for k in where}
    }
    rows = []
    for (a, b), where in zip(pairs, chosen, strict=True):
        if len(where):
            values = np.stack([below[k][b] - below[k][a] for k in where], axis=1)
            rows += _contrast_rows(curves, from_values(curves, depths[a], depths[b], grid[where], values), confidence)
    return rows


def _contrast_rows(curves: Curves, d: Difference, confidence: float) -> list[Contrast]:
    both = np.concatenate([curves.at(d.shallow), curves.at(d.deep)])
    noise, pointwise = curves.noise, t_two_sided(confidence, d.df)
    source = noise.source if noise.known else "the scatter of shapes"
    if noise.shape_source == DEFAULT:
        source += f", {math.sqrt(noise.shape_variance):.2g} nats by default"
    return [
        Contrast(
            shallow=d.shallow,
            deep=d.deep,
            n_params=n_params_at(curves, d.shallow, x),
            shallow_width=math.exp(curves.ln_width_of(d.shallow, x)),
            deep_width=math.exp(curves.ln_width_of(d.deep, x)),
            difference=g,
            se=se,
            low=g - pointwise * se,
            high=g + pointwise * se,
            df=d.df,
            confidence=confidence,
            n_seeds=int(curves.n[both].min()),
            noise_source=source,
        )
        for x, g, se in zip(d.x.tolist(), d.g.tolist(), d.se.tolist(), strict=True)
    ]
