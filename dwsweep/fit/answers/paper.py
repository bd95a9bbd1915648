"""Paper's comparison of two depths, by their own two curves alone: listed on request beside the verdict of all losses.

Levine et al. 2020 look at each pair of depths by itself. Two rows of transitions.csv do so:

pchip   the crossing of the pair's own two curves, each interpolated (monotone cubic) between its cells. The error of
        the interpolation is not counted: with few sizes the crossing is less certain than its interval.

levine  the paper's two-width rule: the first trained width of the shallower net that is significantly worse, averaged
        with its left neighbour, where the two are indistinguishable. The noisier the losses, the later a width counts
        as worse: biased to larger widths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dwsweep.fit.answers.crossing import APART, NOISE_UNKNOWN, Crossing, classify, looked_at, shared_sizes
from dwsweep.fit.statistics.curves import Curves, SimultaneousBand
from dwsweep.fit.statistics.noise import t_two_sided
from dwsweep.records.transitions import LEVINE, PCHIP

GRID_POINTS = 161


def own_curves(curves: Curves, shallow: int, deep: int, confidence: float) -> Iterator[tuple[str, Crossing]]:
    """(estimator, crossing) of a pair by each of the paper's rules that has an answer."""
    ends = shared_sizes(curves, shallow, deep)
    if ends is None:
        yield PCHIP, APART
        return
    if not curves.noise.known:
        reason = curves.noise.why_unknown or "no estimate of the noise: more seeds, or a declared noise"
        yield PCHIP, Crossing("undecided", reason=reason, cause=NOISE_UNKNOWN)
        return
    x = np.linspace(*ends, GRID_POINTS)
    yield PCHIP, classify(x, difference(curves, shallow, deep, x, confidence))
    sizes = curves.sizes(shallow)
    inside = sizes[(sizes >= ends[0] - 1e-9) & (sizes <= ends[1] + 1e-9)]
    if len(inside) > 1:
        yield LEVINE, two_width_rule(curves, shallow, inside, difference(curves, shallow, deep, inside, confidence))


def difference(curves: Curves, shallow: int, deep: int, x: np.ndarray, confidence: float) -> SimultaneousBand:
    """Difference of the two depths' curves at x (G,)."""
    from scipy.interpolate import PchipInterpolator

    one, two = (PchipInterpolator(*curves.losses(depth), axis=1)(x) for depth in (shallow, deep))
    values = one - two
    return SimultaneousBand(values[0], values[1:] - values[1:].mean(axis=0), curves.noise.df, confidence)


def two_width_rule(curves: Curves, shallow: int, x: np.ndarray, band: SimultaneousBand) -> Crossing:
    """The two-width rule at x (G,), the trained widths of the shallower net inside the shared range.

    Both nets are compared at equal x; the deeper one's loss there is interpolated, since its widths need not match. The
    interval runs between the two widths; a pair that is not reached lies beyond the last width at which the shallower
    net is significantly ahead.
    """
    pointwise, t = t_two_sided(band.confidence, band.df), band.value / band.se
    worse = np.flatnonzero(t > pointwise)
    said = looked_at(band.value, t)
    if not len(worse):
        better = np.flatnonzero(t < -pointwise)
        return replace(said, status="not_reached", low=float(x[better[-1]])) if len(better) else said
    first = int(worse[0])
    if first == 0:
        return replace(said, status="already_crossed", high=float(x[0]))
    low, high = float(x[first - 1]), float(x[first])
    ln_d = curves.ln_width_of(shallow, np.array([low, high]))
    middle = float(np.interp(math.log(np.exp(ln_d).mean()), ln_d, [low, high]))
    slope = float((band.value[first] - band.value[first - 1]) / (high - low))
    return replace(said, status="crossed", root=middle, low=low, high=high, slope=slope)
