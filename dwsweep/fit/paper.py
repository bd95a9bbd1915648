"""Paper's comparison of two depths, by their own two curves alone. A check beside the verdict of all losses together.

Levine et al. 2020 look at each pair of depths by itself. Two rows of transitions.csv do so:

pchip   the crossing of the pair's own two curves, each interpolated (monotone cubic) between its cells.

levine  the paper's two-width rule: the first trained width of the shallower net that is significantly worse, averaged
        with its left neighbour, where the two are indistinguishable. The noisier the losses, the later a width counts
        as worse: biased to larger widths.

Without a model of all depths the first of them is the only estimate, and the verdict names it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.crossing import (
    FEW_SIZES,
    NO_CURVE,
    NO_SHARED_RANGE,
    NOISE_UNKNOWN,
    Crossing,
    classify,
    looked_at,
)
from dwsweep.fit.curves import GRID_POINTS, Curves, Difference, from_values, side_by_side
from dwsweep.fit.interpolation import pchip
from dwsweep.fit.noise import SEPARABLE_SIZES, t_two_sided


@dataclass(frozen=True, eq=False)
class OwnCurves:
    """Pair of depths by its own two curves. difference: None if they share no range of sizes. crossing: of the two
    curves. two_widths: by the two-width rule, where it has an answer."""

    difference: Difference | None
    crossing: Crossing
    two_widths: Crossing | None = None


def own_curves(curves: Curves, shallow: int, deep: int, confidence: float) -> OwnCurves:
    """Verdicts of the paper's rules on a pair."""
    d, noise = difference(curves, shallow, deep), curves.noise
    if d is None:
        single = next((depth for depth in (shallow, deep) if len(curves.sizes(depth)) < 2), None)
        if single is not None:
            reason, cause = f"depth {single} has a single size: no curve", NO_CURVE
        else:
            reason, cause = "the two depths share no range of sizes", NO_SHARED_RANGE
        return OwnCurves(None, Crossing("undecided", reason=reason, cause=cause))
    if not noise.known:
        reason = noise.why_unknown or "no estimate of the noise: more seeds, four sizes per depth, or a declared noise"
        return OwnCurves(d, Crossing("undecided", reason=reason, cause=NOISE_UNKNOWN))
    crossing, two_widths = classify(d, confidence), two_width_rule(curves, d, confidence)
    sizes = min(len(curves.sizes(shallow)), len(curves.sizes(deep)))
    if sizes < SEPARABLE_SIZES and noise.documents is None:
        crossing, two_widths = _of_few_sizes(crossing, sizes), two_widths and _of_few_sizes(two_widths, sizes)
    return OwnCurves(d, crossing, two_widths)


def _of_few_sizes(crossing: Crossing, sizes: int) -> Crossing:
    """Crossing, undecided if too few sizes separate it from the scatter of a shape."""
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


def difference(curves: Curves, shallow: int, deep: int) -> Difference | None:
    """PCHIP difference curve of two depths, or None if they share no range of sizes."""
    found = side_by_side(curves.losses(shallow), curves.losses(deep), GRID_POINTS)
    if found is None:
        return None
    grid, (one, two), error = found
    values = one - two
    # one number per draw: where the true curve bulges at one point between two sizes, it does at the next
    values[1:] += _normal_scores(len(values) - 1, shallow) * error
    return from_values(curves, shallow, deep, grid, values)


def _normal_scores(n: int, key: int) -> np.ndarray:
    """(n, 1) standard normal draws that belong to one pair."""
    return np.random.default_rng([key, n]).standard_normal((n, 1))


def two_width_rule(curves: Curves, pair: Difference, confidence: float) -> Crossing | None:
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
    said = looked_at(d.g, t, pointwise)
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
