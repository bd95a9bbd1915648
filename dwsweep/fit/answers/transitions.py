"""Pairs of neighbouring depths with one verdict each: the crossing by the model of all depths (posterior.py).

Each verdict is a row of transitions.csv. The paper's own estimates (paper.py) are further rows on request;
``estimator`` names the losses that a row rests on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from dwsweep.fit.answers.crossing import APART, FEW_SHAPES, NOISE, Crossing, classify, shared_sizes
from dwsweep.fit.answers.paper import own_curves
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.fit.statistics.curves import Curves, SimultaneousBand
from dwsweep.interval import Interval
from dwsweep.records.fit import Surface
from dwsweep.records.transitions import LEVINE, SURFACE, Transition

Pair = tuple[int, int]  # the shallower and the deeper of two neighbouring depths
SURFACE_POINTS = 61  # number of sizes at which a crossing is looked for
NO_MODEL = Crossing("undecided", reason="too few shapes for a model of all depths", cause=FEW_SHAPES)


def analyse_pairs(curves: Curves, confidence: float, surface: LossSurface | None = None) -> dict[Pair, Crossing]:
    """Crossing of every pair of consecutive depths, shallow to deep. surface: the model of all depths, None if there is
    none."""
    pairs = list(pairwise(curves.depths))
    if surface is None or not pairs:
        return dict.fromkeys(pairs, NO_MODEL)
    grid, found = np.linspace(surface.record.low, surface.record.high, SURFACE_POINTS), dict.fromkeys(pairs, APART)
    compared = _compared(curves, surface, grid, pairs)
    for pair, drawn, inside in zip(pairs, surface.differences(grid, pairs), compared, strict=True):
        if len(inside) > 1:
            x, mean, errors = grid[inside], drawn[0, inside], drawn[1:, inside] - drawn[0, inside]
            # the draws include the uncertainty of the noise
            band = SimultaneousBand(mean, errors, math.inf, confidence)
            found[pair] = _without_effect(classify(x, band, surface.posterior.scramble), surface.record)
    return found


def _compared(curves: Curves, surface: LossSurface, grid: np.ndarray, pairs: Sequence[Pair]) -> list[np.ndarray]:
    """For each pair, the places on ``grid`` at which the data compare the two depths: where both curves run, or inside
    the hull of all shapes where they share no range."""
    least, most = np.array([surface.reach(x) for x in grid]).T + np.array([[-1e-9], [1e-9]])
    found = []
    for shallow, deep in pairs:
        shared = shared_sizes(curves, shallow, deep)
        if shared is None:
            inside = (least <= math.log(shallow)) & (most >= math.log(deep))
        else:
            inside = (grid >= shared[0] - 1e-9) & (grid <= shared[1] + 1e-9)
        found.append(np.flatnonzero(inside))
    return found


def _without_effect(found: Crossing, record: Surface) -> Crossing:
    """The crossing, undecided if no effect of depth is shown."""
    if not record.flat:
        return found
    reason = f"no effect of depth is shown (p = {record.effect_p:.2g})"
    own = Crossing("undecided", reason=reason, cause=NOISE)
    return replace(own, t_left=found.t_left, t_right=found.t_right, sign_changes=found.sign_changes)


def transition_rows(
    curves: Curves, pairs: Mapping[Pair, Crossing], confidence: float, paper: bool = False
) -> list[Transition]:
    """Rows of transitions.csv: per pair the verdict first, then the paper's own estimates with ``paper``. Widths are
    the shallower net's; a None end is unbounded."""
    rows = []
    for pair, crossing in pairs.items():
        of_paper = own_curves(curves, *pair, confidence) if paper else ()
        for estimator, one in ((SURFACE, crossing), *of_paper):
            rows.append(_transition_row(curves, pair, one, estimator, confidence))
    return rows


def _transition_row(curves: Curves, pair: Pair, c: Crossing, estimator: str, confidence: float) -> Transition:
    shallow, deep = pair
    both = np.concatenate([curves.at(shallow), curves.at(deep)])
    at, n_params = c.interval, partial(n_params_at, curves, shallow)
    width, axis = at.map(lambda x: float(np.exp(curves.ln_width_of(shallow, x)))), at.map(math.exp)
    return Transition(
        shallow=shallow,
        deep=deep,
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
        sigma=curves.noise.tau if curves.noise.sigma is None else curves.noise.sigma,
        df=curves.noise.df if estimator != SURFACE and curves.noise.known else None,
        confidence=confidence,
        interval_method="" if c.t_left is None else "two trained widths" if estimator == LEVINE else "draws",
        axis_value=axis.value,
        axis_low=axis.low,
        axis_high=axis.high,
        reason=c.reason,
        cause=c.cause,
        n_params_error=c.error,
    )


def n_params_at(curves: Curves, depth: int, x: float) -> float:
    """N of the net of ``depth`` at ln-axis ``x``: e^x itself on the default axis, interpolated on the others."""
    where = curves.at(depth)
    offset = np.log(curves.n_params[where]) - curves.x[where]
    return float(math.exp(x + np.interp(x, curves.x[where], offset)))


def size_ratio(row: Transition, other: Transition) -> Interval:
    """Ratio N / N of the crossings of one pair in two sweeps that share no run; nothing if one has not crossed.

    The interval of a difference of ln N from the intervals of the two, which may be lopsided or open (Zou and Donner
    2008, Statistics in Medicine 27): each end goes as far as the root of the sum of squares of the two distances.
    """
    one, two = (each.n_params_interval.map(math.log) for each in (row, other))
    if one.value is None or two.value is None:
        return Interval()
    a, b = one.value, two.value
    ends = (one.low, two.high, -1.0), (one.high, two.low, 1.0)
    low, high = (None if x is None or y is None else a - b + sign * math.hypot(a - x, b - y) for x, y, sign in ends)
    return Interval(a - b, low, high).map(math.exp)
