"""Losses of any two depths at equal size: what an irregular table says where it gives no curves to cross.

Two shapes within TOLERANCE of each other's size are compared as measured, corrected to the size between them by the
slope of the loss; the correction's error is the spread of that slope over the table. Depths without such shapes are
compared by their curves, where they share a range of sizes. At most three sizes per pair: the ends and the middle.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np

from dwsweep.fit.curves import Curves, difference
from dwsweep.fit.noise import DEFAULT, t_two_sided
from dwsweep.fit.pairs import n_params_at
from dwsweep.fit.shape_noise import FLOOR_NATS
from dwsweep.records.fit_rows import Contrast

TOLERANCE = math.log(1.1)  # in ln of the size
SLOPE_ERROR = 0.5  # of the slope, where fewer than three show its spread


def contrasts(curves: Curves, confidence: float) -> list[Contrast]:
    """At most three rows per pair of depths, shallow to deep, small to large."""
    slope, slope_error = _slope(curves)
    rows = []
    for shallow, deep in combinations(curves.depths, 2):
        matched = _matched(curves, shallow, deep)
        if matched:
            rows += [_measured(curves, a, b, slope, slope_error, confidence) for a, b in _three(matched)]
        else:
            rows += _interpolated(curves, shallow, deep, confidence)
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
    """Each shape of ``shallow`` with its nearest of ``deep``, where they are each other's nearest and close enough."""
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
    return _row(curves, a, b, middle, g, se, confidence, "measured shapes", gap)


def _interpolated(curves: Curves, shallow: int, deep: int, confidence: float) -> list[Contrast]:
    d = difference(curves, shallow, deep)
    if d is None:
        return []
    last = len(d.x) - 1
    a, b = int(curves.at(shallow)[0]), int(curves.at(deep)[0])
    return [
        _row(curves, a, b, float(d.x[k]), float(d.g[k]), float(d.se[k]), confidence, "interpolated curves", None)
        for k in (0, last // 2, last)
    ]


def _row(
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
    source = noise.source if noise.known else "the luck of a shape"
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
