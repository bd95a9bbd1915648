"""Pairs of neighbouring depths with one verdict each.

The verdict is the crossing by the joint model of all depths (posterior.py) wherever that compares the two. Elsewhere it
is the crossing of the pair's own two curves (paper.py), otherwise a check that is listed on request. Each is a row of
transitions.csv, the verdict's first; ``estimator`` names the losses that a row rests on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from dwsweep.fit.ask import LossSurface
from dwsweep.fit.crossing import NOISE, Crossing, classify, monte_carlo
from dwsweep.fit.curves import Curves, Difference, shared_grid
from dwsweep.fit.paper import OwnCurves, own_curves
from dwsweep.interval import Interval
from dwsweep.records.fit import Surface
from dwsweep.records.transitions import LEVINE, PCHIP, SURFACE, Transition

SURFACE_POINTS = 61


@dataclass(frozen=True, eq=False)
class Judged:
    """Difference curve, and its crossing. difference: None if there is no curve."""

    difference: Difference | None
    crossing: Crossing


@dataclass(frozen=True, eq=False)
class Pair:
    """Two neighbouring depths of ``curves``. joint: by the joint model of all depths, where that compares the two."""

    shallow: int
    deep: int
    curves: Curves
    confidence: float
    joint: Judged | None = None

    @cached_property
    def own(self) -> OwnCurves:
        """Crossing by the two depths' own curves alone, computed when a fit shows it as a check."""
        return own_curves(self.curves, self.shallow, self.deep, self.confidence)

    @property
    def judged(self) -> Judged:
        """Curve and crossing of the verdict."""
        return self.joint or Judged(self.own.difference, self.own.crossing)

    @property
    def verdict(self) -> Crossing:
        return self.judged.crossing

    @property
    def estimator(self) -> str:
        return SURFACE if self.joint else PCHIP

    def estimates(self) -> Iterator[tuple[str, Judged]]:
        """(estimator, its transition), the verdict first."""
        yield self.estimator, self.judged
        if self.joint:
            yield PCHIP, Judged(self.own.difference, self.own.crossing)
        if self.own.two_widths:
            yield LEVINE, Judged(self.own.difference, self.own.two_widths)


def analyse_pairs(curves: Curves, confidence: float, surface: LossSurface | None = None) -> list[Pair]:
    """Every pair of consecutive depths, shallow to deep. surface: the joint model, None if there is none."""
    pairs = [Pair(*depths, curves, confidence) for depths in pairwise(curves.depths)]
    if surface is None or not pairs:
        return pairs
    grid, depths = surface_grid(surface), [(pair.shallow, pair.deep) for pair in pairs]
    found = []
    for pair, drawn, inside in zip(
        pairs, surface.differences(grid, depths), _compared(curves, surface, grid, depths), strict=True
    ):
        if len(inside) > 1:
            joint = of_draws(pair.shallow, pair.deep, grid[inside], drawn[:, inside])
            crossing = classify(joint, confidence)
            crossing = replace(crossing, error=monte_carlo(crossing, joint, surface.posterior.scramble, confidence))
            pair = replace(pair, joint=Judged(joint, _without_effect(crossing, surface.record) or crossing))
        found.append(pair)
    return found


def of_draws(shallow: int, deep: int, x: np.ndarray, drawn: np.ndarray) -> Difference:
    """A difference from its mean and draws (1 + D, M). The draws include the uncertainty of the noise: no degrees of
    freedom are added."""
    return Difference(shallow, deep, x, drawn[0], drawn[1:] - drawn[0], math.inf)


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
        shared = shared_grid(curves.sizes(shallow), curves.sizes(deep))
        if shared is None:
            inside = (least <= math.log(shallow)) & (most >= math.log(deep))
        else:
            inside = (grid >= shared[0] - 1e-9) & (grid <= shared[-1] + 1e-9)
        found.append(np.flatnonzero(inside))
    return found


def _without_effect(joint: Crossing, record: Surface) -> Crossing | None:
    """Undecided crossing, if no effect of depth is shown. None elsewhere."""
    if not record.flat:
        return None
    return Crossing(
        "undecided",
        t_left=joint.t_left,
        t_right=joint.t_right,
        critical=joint.critical,
        sign_changes=joint.sign_changes,
        reason=f"no effect of depth is shown (p = {record.effect_p:.2g})",
        cause=NOISE,
    )


def transition_rows(curves: Curves, pairs: Sequence[Pair], confidence: float, paper: bool = False) -> list[Transition]:
    """Rows of transitions.csv: per pair the verdict first, then the paper's own estimates with ``paper``. Widths are
    the shallower net's; a None end is unbounded."""
    return [
        _transition_row(curves, pair, estimator, found, confidence)
        for pair in pairs
        for estimator, found in pair.estimates()
        if paper or estimator == pair.estimator
    ]


def _transition_row(curves: Curves, pair: Pair, estimator: str, found: Judged, confidence: float) -> Transition:
    c = found.crossing
    both = np.concatenate([curves.at(pair.shallow), curves.at(pair.deep)])
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
        sigma=curves.noise.tau if curves.noise.sigma is None else curves.noise.sigma,
        df=None if found.difference is None else found.difference.df,
        confidence=confidence,
        interval_method="" if c.critical is None else "two trained widths" if estimator == LEVINE else "band inversion",
        sup_t_critical=c.critical,
        axis_value=axis.value,
        axis_low=axis.low,
        axis_high=axis.high,
        reason=c.reason,
        cause=c.cause,
        tie_low=tie.map(n_params).low,
        tie_high=tie.map(n_params).high,
        n_params_error=c.error,
    )


def n_params_at(curves: Curves, depth: int, x: float) -> float:
    """N of the net of ``depth`` at ln-axis ``x``: e^x itself on the default axis, interpolated on the others."""
    where = curves.at(depth)
    offset = np.log(curves.n_params[where]) - curves.x[where]
    return float(math.exp(x + np.interp(x, curves.x[where], offset)))


def size_ratio(row: Transition, other: Transition) -> tuple[float, float | None, float | None] | None:
    """(N / N, low, high) of the crossings of one pair in two sweeps that share no run; None if one has not crossed.

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
