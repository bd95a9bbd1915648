"""The fitted loss of all depths together: its estimate, its draws, and the best depth at any size.

``surface_model`` says what the model is made of. The terms enter a mixed linear model of the cell means,

    mean = F·b + P·u + e,    u ~ N(0, 1),    e ~ N(0, C + τ²·I)

F: the parabola of f0, free. P: the waves of the two processes, each with its prior sd, and the derivatives with respect
to θ, linearised at the optimum (Gauss–Newton) with wide priors. C: the covariance of the means (seeds, documents). τ:
what the seeds of a shape share, its own hyperparameter. The hyperparameters maximise restricted likelihood times weak
priors; their uncertainty is a quasi-random sample of the Laplace approximation, weighed by importance. Each form is
fitted by itself, and the forms are weighed by their evidence. A form that the data contradict is not lost: δ makes up
for it inside the data, at a wider interval; its evidence says how much less probable it is.

Between two depths that were trained each draw also bends by a Brownian bridge: no shape shows what the loss does there,
and a corner would move the best depth and nothing that was trained.

The coefficients and θ are drawn from the model as it is, not linearised. A population of chains samples φ, each
stepping along the difference of two others, one half of them at a time (differential evolution Markov chains, ter Braak
2006). The chains are spread over the hyperparameters in proportion to their weights, and over the noise where its
variance was estimated.

One definition of the best depth holds inside and outside the data. For each draw of the parameters from the forms in
proportion to their weights,

    dloss/dl = dh/dl(x, y; θ) + dδ/dl(x, y)

where δ, what the data say beyond the form, is kept at its value on the edge for sizes outside the data, as is what
gains have fallen to there, and ends at the edges of the depths trained; beyond the largest size both fall on. The best
depth is where the integral of it is least: inside the data the profile of the loss itself, outside what the forms say,
averaged. Beyond the sizes of the data each draw also misses by as much as the surface departs from its form inside (an
error of the form, in ln N).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dwsweep.fit.curves import Curves
from dwsweep.fit.noise import chi2_quantile
from dwsweep.fit.surface_model import (
    BETWEEN,
    BRIDGE_WAVES,
    MEANS,
    PARABOLA,
    TAU_AND_NOISE,
    Frame,
    GivenLeads,
    Linear,
    P,
    Problem,
    bounded,
    bridges,
    fall,
    from_leads,
    in_theta,
    levelled,
    newton_steps,
    speed,
    start_theta,
    to_leads,
    transition,
)
from dwsweep.interval import Interval
from dwsweep.records.fit import LOSS_FORM, DepthSpan, HeldOut, LossForm, Surface
from dwsweep.records.transitions import Optimum, SizedOptimum

DRAWS = 1000
LEAST_DRAWS = 96  # that are kept of a form, however improbable it is
INSIDE, OUTSIDE = 101, 40  # points of the grid of depths, inside those trained and on either side
DEEPEST_FACTOR = 64.0  # the grid ends this many times deeper than the deepest net
ROWS = 9
KEPT_SIZES = 4
SAME_BUDGET = 0.1  # in ln N: widths are rounded, so that shapes of one budget differ by up to a tenth
FEWEST_SHARED_DEPTHS = 3  # that have shapes of a size, for a best depth among them
SHIFT_POINTS = 9
LARGEST_SHIFT = 3.0
ONE_SD = 0.6827  # of a normal distribution
WHOLE = 16  # layers, from which on the points of the grid lie close enough for whole numbers of them


@dataclass(frozen=True)
class _Group:
    """The draws of one form: theta (D, P), coefficients (D, T), shift (D,) of ln N outside the sizes of the data;
    transition (D, G) and speed (D, G) on the grid of depths, which are the same for every size."""

    theta: np.ndarray
    coefficients: np.ndarray
    shift: np.ndarray
    transition: np.ndarray
    speed: np.ndarray


class LossSurface:
    """The model of a fit.json's ``surface``: its forms that are not rejected, in proportion to their weights.

    only: one of its forms alone, whatever its weight.
    """

    def __init__(self, record: Surface, only: str | None = None) -> None:
        self.record = record
        depths = [span.depth for span in record.spans]
        self.frame = Frame(record.low, record.high, float(min(depths)), float(max(depths)))
        self.only = only
        self._kept: dict[float, tuple[np.ndarray, np.ndarray]] = {}
        # a few numbers of each size, which tables of shapes ask for again and again
        self._levels: dict[float, float] = {}
        self._depths: dict[float, Interval] = {}

    @cached_property
    def groups(self) -> list[_Group]:
        forms = [f for f in self.record.forms if f.form == self.only or (self.only is None and not f.rejected)]
        weights = np.array([1.0 if self.only else f.weight for f in forms])
        draws = len(forms[0].draws) if self.only else DRAWS
        exact = draws * weights / weights.sum()
        counts = np.floor(exact).astype(int)
        # the largest remainders get what is missing
        for k in np.argsort(counts - exact)[: draws - int(counts.sum())]:
            counts[k] += 1
        return [self._group(form, n) for form, n in zip(forms, counts, strict=True) if n]

    def _group(self, form: LossForm, n: int) -> _Group:
        rows = np.resize(
            np.array(form.draws), (n, len(self.record.terms) + P)
        )  # from the first again if there are more
        coefficients, theta = rows[:, :-P], rows[:, -P:]
        rng = np.random.default_rng(2 * self.record.seed)
        shift = self._misfit(form.form, theta, coefficients) * rng.standard_normal(n)
        of_draws, y = theta[:, None, :], self.grid
        return _Group(
            theta,
            coefficients,
            shift,
            transition(form.form, of_draws, np.exp(y), self.frame),
            speed(of_draws, y, self.frame),
        )

    def _misfit(self, form: str, theta: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """(D,) root mean square over the depths of how far δ moves the transition away from the form's, in ln N."""
        y = np.linspace(math.log(self.frame.shallowest), math.log(self.frame.deepest), SHIFT_POINTS)
        x = transition(form, theta[:, None, :], np.exp(y), self.frame)
        inside = (x >= self.record.low) & (x <= self.record.high)
        at = np.clip(x, self.record.low, self.record.high)
        slope = np.einsum("dgt,dt->dg", self.frame.basis(at, y, derivative=True), coefficients)
        gain = np.maximum(theta[:, 2:3], 1e-6) * np.exp((1.0 - theta[:, 3:4]) * (y - self.frame.centre[1]))
        gain *= fall(theta[:, None, :], at, self.frame)
        moved = np.clip(slope / gain, -LARGEST_SHIFT, LARGEST_SHIFT) ** 2
        count = inside.sum(axis=1)
        return np.sqrt(np.where(count > 0, (moved * inside).sum(axis=1) / np.maximum(count, 1), LARGEST_SHIFT**2))

    @cached_property
    def grid(self) -> np.ndarray:
        """ln L: dense over the depths trained, wider steps outside."""
        low, high = math.log(self.frame.shallowest), math.log(self.frame.deepest)
        inside = np.linspace(low, high, INSIDE)
        below = np.linspace(0.0, low, OUTSIDE, endpoint=False) if low > 1e-9 else np.zeros(0)
        above = np.linspace(high, high + math.log(DEEPEST_FACTOR), 2 * OUTSIDE + 1)[1:]
        return np.concatenate([below, inside, above])

    def _at(self, x: float) -> tuple[np.ndarray, np.ndarray]:
        """(D, G) dloss/dl on the grid at x = ln axis, and its integral from the grid's first depth; the last few sizes
        are kept, since a row of a table asks several things about one."""
        if x not in self._kept:
            if len(self._kept) >= KEPT_SIZES:
                del self._kept[next(iter(self._kept))]
            slope = self._slopes(x, slice(0, len(self.grid)))
            running = _integral(self.grid, slope)
            slopes, heights = self._bridges
            fallen = self._fallen(x)
            slope += fallen * slopes
            running += fallen * heights
            self._kept[x] = slope, running
        return self._kept[x]

    @cached_property
    def _bridges(self) -> tuple[np.ndarray, np.ndarray]:
        """(slopes, heights), (D, G) each, of what the loss may do between the depths trained, in the middle of the
        sizes; their mean over the draws is zero."""
        depths = np.array([span.depth for span in self.record.spans])
        draws = sum(len(group.theta) for group in self.groups)
        z = np.random.default_rng(2 * self.record.seed + 1).standard_normal((draws, len(depths) - 1, BRIDGE_WAVES))
        slopes, heights = bridges(self.grid, depths, self.record.between * (z - z.mean(axis=0)))
        return slopes, heights

    def _fallen(self, x: float) -> np.ndarray:
        """(D, 1) what all that depth does has fallen to at x = ln axis, from the middle of the sizes."""
        at = self._within(x)
        rows = [fall(g.theta, at, self.frame)[:, None] * self._beyond(g, x) for g in self.groups]
        return np.concatenate(rows)

    def _within(self, x: float) -> float:
        """The size of the data that is next to x = ln axis."""
        return min(max(x, self.record.low), self.record.high)

    def _beyond(self, group: _Group, x: float) -> np.ndarray:
        """(D, 1) what it falls to from the largest size to x: it does not rise there."""
        return np.exp(-np.maximum(group.theta[:, 4:5], 0.0) * max(x - self.record.high, 0.0))

    @cached_property
    def inside(self) -> slice:
        """The points of the grid at the depths trained."""
        first, last = (math.log(depth) for depth in (self.frame.shallowest, self.frame.deepest))
        return slice(*np.searchsorted(self.grid, (first - 1e-9, last + 1e-9)).tolist())

    def _slopes(self, x: float, part: slice) -> np.ndarray:
        """(D, ·) dloss/dl at x = ln axis on a part of the grid that holds the depths trained."""
        at = self._within(x)
        outside = min(1.0, abs(x - at))
        depths = self.grid[self.inside]
        trained = slice(self.inside.start - part.start, self.inside.stop - part.start)
        rows = []
        for group in self.groups:
            lead = (x + outside * group.shift[:, None]) - group.transition[:, part]
            slope = levelled(lead, group.theta[:, None, :])
            slope *= group.speed[:, part]
            slope *= -fall(group.theta, at, self.frame)[:, None]
            slope[:, trained] += self.frame.departure_slopes(group.coefficients, at, depths)
            if x > at:  # all that depth does goes on falling, which moves no best depth
                slope *= self._beyond(group, x)
            rows.append(slope)
        return np.concatenate(rows) if len(rows) > 1 else rows[0]

    def profile(self, x: float) -> np.ndarray:
        """(D, G) loss on the grid above that of the grid's first depth, nats."""
        return self._at(x)[1]

    def above_best(self, rows: np.ndarray, depths: np.ndarray, trained: bool = False) -> np.ndarray:
        """(D, M) nats of ``rows`` (D, G) on the grid at ``depths``, above the best whole number of layers of each row:
        between the depths trained, or beyond their end where it is the best of them (``drawn_depths``)."""
        grid, inside = self.grid, self.inside
        first, deepest = inside.start, inside.stop - 1
        best = lowest(grid[inside], rows[:, inside])
        if trained:
            grid, rows = grid[inside], rows[:, inside]
        else:
            at = rows[:, inside].argmin(axis=1) + first
            for edge, beyond in ((deepest, slice(deepest, None)), (first, slice(0, first + 1))):
                if edge != 0 and (here := at == edge).any():
                    best[here] = np.minimum(best[here], lowest(grid[beyond], rows[here][:, beyond]))
        values = _between(grid, rows, np.log(np.asarray(depths, dtype=float)))
        return np.maximum(values - best, 0.0)

    def drawn_depths(self, x: float) -> np.ndarray:
        """(D,) ln of the best depth at x = ln axis; ±inf where the loss falls up to an end of the grid, but 0 where one
        layer was trained and is the best.

        A draw whose lowest loss lies between the depths trained has its best depth there, whatever its form does far
        outside, where a draw with a gain below zero falls without end; only from an end of the depths it goes on."""
        slope, running = self._at(x)
        step = np.diff(self.grid)
        first, deepest = self.inside.start, self.inside.stop - 1
        inside = running[:, self.inside].argmin(axis=1) + first
        below, above = running[:, : first + 1].argmin(axis=1), running[:, deepest:].argmin(axis=1) + deepest
        best = np.where(inside == deepest, above, np.where(inside == first, below, inside))
        rows, last = np.arange(len(running)), len(self.grid) - 1
        # the zero of the slope beside the lowest point of the grid
        here = slope[rows, best]
        left = np.clip(np.where(here > 0, best - 1, best), 0, last - 1)
        low, high = slope[rows, left], slope[rows, left + 1]
        crosses = (low <= 0) & (high > 0)
        share = np.where(crosses, -low / np.where(crosses, high - low, 1.0), best - left)
        found = self.grid[left] + share * step[left]
        # the grid begins at one layer: where that was trained nothing lies below it, else the form has no bound there
        least = 0.0 if first == 0 else -np.inf
        return np.where(best == last, np.inf, np.where((best == 0) & (here > 0), least, found))

    def at(self, n: float) -> Interval:
        """The best depth at a size (a value of the axis), with the interval of the fit's confidence; None where more
        than half of the draws have none."""
        if self.record.flat:
            return Interval()
        if n not in self._depths:
            self._depths[n] = summary(self.drawn_depths(math.log(n)), self.record.confidence)
        return self._depths[n]

    def spread(self, x: float) -> float:
        """sd of ln L* at x = ln axis: half the width of the central 68 %; inf without a bound, or where draws end at a
        single layer and have no spread towards less."""
        found = summary(self.drawn_depths(x), ONE_SD)
        return math.log(found.high / found.low) / 2.0 if found.low and found.high and found.low > 1.0 else math.inf

    def optimum(self, x: float) -> Optimum | None:
        """Best depth at ln axis x among the depths that have shapes of that size; an end beyond them is None. None with
        fewer than three such depths."""
        present = self.present(x)
        if len(present) < FEWEST_SHARED_DEPTHS:
            return None
        drawn = self.drawn_depths(x)
        low, centre, high = quantiles(drawn, self.record.confidence)
        if self.record.flat:
            low, high = -math.inf, math.inf
        first, last = float(min(present)), float(max(present))
        middle = math.exp(centre) if math.isfinite(centre) else None
        edge = None
        if middle is None or not first < middle < last:
            edge = "below" if centre <= math.log(first) else "above"
        return Optimum(
            ln_x=x,
            depth=None if edge or self.record.flat else middle,
            # an infinite end on the side of a best depth beyond those tried: it is bounded by how far they reach
            depth_low=None if edge == "below" or low <= math.log(first) else math.exp(low) if low < math.inf else last,
            depth_high=None if edge == "above" or high >= math.log(last) else math.exp(high) or first,
            loss=self.level(x),
            at_edge=edge,
            depth_min=first,
            depth_max=last,
        )

    def worst(self, x: float) -> dict[str, Any]:
        """The depth, of those with shapes at ln axis x, that has the highest loss, and by how many percent it is
        above that of the best depth between them, with the interval of the fit's confidence; nothing where a loss is
        not positive, which has no percent."""
        present = self.present(x)
        y, drawn = self.losses(x)
        inside = (y >= math.log(min(present)) - 1e-9) & (y <= math.log(max(present)) + 1e-9)
        rows = np.concatenate([drawn.mean(axis=0)[None], drawn])
        at, best = _between(y, rows, np.log(present)), lowest(y[inside], rows[:, inside])
        if not (best > 0.0).all():
            return {}
        percent = 100.0 * np.maximum(at - best, 0.0) / best
        k = int(percent[0].argmax())
        tail = (1.0 - self.record.confidence) / 2.0
        low, high = np.quantile(percent[1:, k], [tail, 1.0 - tail])
        return {
            "worst_depth": float(present[k]),
            "worst_percent": float(percent[0, k]),
            "worst_percent_low": float(low),
            "worst_percent_high": float(high),
        }

    def present(self, x: float) -> list[int]:
        """The depths among which the data can compare at that size."""
        least, most = self.reach(x)
        return [span.depth for span in self.record.spans if least - 1e-9 <= math.log(span.depth) <= most + 1e-9]

    def reach(self, x: float) -> tuple[float, float]:
        """ln of the shallowest and of the deepest depth inside the hull of all shapes at ln axis x; (inf, −inf) beyond
        the sizes of the data."""
        shallow, deep = self._hull
        if not shallow[0][0] <= x <= shallow[0][-1]:
            return math.inf, -math.inf
        return float(np.interp(x, *shallow)), float(np.interp(x, *deep))

    @cached_property
    def _hull(self) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        # rounded widths move a shape by some percent: without that much room a size of the grid would have one depth
        reached = ((span.low - SAME_BUDGET, span.high + SAME_BUDGET, span.depth) for span in self.record.spans)
        return hull((end, math.log(depth)) for *both, depth in reached for end in both)

    def penalties(self, n: float, depths: np.ndarray, trained: bool = False) -> np.ndarray:
        """(D, M) nats that ``depths`` lose at a size against the best whole number of layers, or against the best
        between those trained."""
        return self.above_best(self.profile(math.log(n)), depths, trained)

    def losses(self, x: float) -> tuple[np.ndarray, np.ndarray]:
        """(ln L of the depths trained (M,), losses there (D, M) in nats) at ln axis x inside the data."""
        middle = self.frame.centre[1]
        running = self.profile(x)
        # the terms say the loss of the middle depth as it is without what no shape shows
        there = np.array([middle])
        unseen = self._fallen(x) * _between(self.grid, self._bridges[1], there)
        at_middle = (_between(self.grid, running, there) - unseen)[:, 0]
        shared = np.concatenate([group.coefficients @ self.frame.basis(x, middle) for group in self.groups])
        return self.grid[self.inside], running[:, self.inside] + (shared - at_middle)[:, None]

    def differences(self, x: np.ndarray, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        """(P, 1 + D, M) loss of the shallower less loss of the deeper net of each pair at ln axis x (M,): the mean of
        the draws first."""
        shallow, deep = np.log(np.array(pairs, dtype=float)).T
        out = np.empty((len(pairs), 1 + sum(len(group.theta) for group in self.groups), len(x)))
        trained = self.grid[self.inside]
        # (G, G) what the slope at each point of the grid adds to the integral at every other
        added = _integral(trained, np.eye(len(trained)))
        weights = _between(trained, added, shallow) - _between(trained, added, deep)
        for m, value in enumerate(x):
            out[:, 1:, m] = (self._slopes(float(value), self.inside) @ weights).T
        out[:, 0] = out[:, 1:].mean(axis=1)
        return out

    def level(self, x: float) -> float:
        """Loss of the best depth among those trained at ln axis x, nats per token; not of whole numbers alone,
        so that it falls smoothly."""
        if x not in self._levels:
            trained, middle = self.grid[self.inside], self.frame.centre[1]
            # the mean of all draws is that of their slopes, of which one row is to be integrated
            mean = _integral(trained, self._slopes(x, self.inside).mean(axis=0, keepdims=True))
            at_middle = _between(trained, mean, np.array([middle]))[0, 0]
            basis = self.frame.basis(x, middle)
            shared = np.concatenate([group.coefficients @ basis for group in self.groups]).mean()
            self._levels[x] = float(mean.min() - at_middle + shared)
        return self._levels[x]

    @property
    def measured(self) -> bool:
        """Whether the data themselves bound the best depth on both sides, at two sizes: one says nothing of growth."""
        return sum(None not in (row.depth, row.depth_low, row.depth_high) for row in self.record.optima) >= 2


def hull(points: Iterable[tuple[float, float]]) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """(a, b) of the corners of the lower and of the upper half of the convex hull of ``points`` (a, b)."""
    halves, every = [], list(points)
    for side in (1.0, -1.0):
        outermost: dict[float, float] = {}
        for x, y in sorted(every, key=lambda point: side * point[1]):
            outermost.setdefault(x, y)
        corners: list[tuple[float, float]] = []
        for x, y in sorted(outermost.items()):
            while len(corners) > 1:
                (x0, y0), (x1, y1) = corners[-2:]
                if side * ((x1 - x0) * (y - y0) - (x - x0) * (y1 - y0)) > 0.0:
                    break
                corners.pop()
            corners.append((x, y))
        halves.append((np.array([x for x, _ in corners]), np.array([y for _, y in corners])))
    return halves[0], halves[1]


def _integral(grid: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """(D, G) of ``slope`` (D, G) over the grid (G,), from its first point."""
    running = np.zeros_like(slope)
    areas = slope[:, 1:] + slope[:, :-1]
    areas *= np.diff(grid) / 2.0
    np.cumsum(areas, axis=1, out=running[:, 1:])
    return running


def lowest(grid: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(D, 1) the least of ``rows`` (D, G) over the whole numbers of layers on the ``grid`` (G,) of ln L: between two
    that were trained a smooth curve dips below both, and no net has 1.4 layers."""
    first, last = np.exp(grid[[0, -1]])
    whole = np.log(np.arange(math.ceil(first - 1e-9), min(WHOLE, math.floor(last + 1e-9)) + 1))
    deep = grid >= math.log(WHOLE)
    return np.concatenate([_between(grid, rows, whole), rows[:, deep]], axis=1).min(axis=1, keepdims=True)


def _between(grid: np.ndarray, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(D, M) ``rows`` (D, G), which stand on ``grid`` (G,), at y (M,): linear between its points, constant beyond."""
    left = np.clip(np.searchsorted(grid, y - 1e-9) - 1, 0, len(grid) - 2)
    share = np.clip((y - grid[left]) / (grid[left + 1] - grid[left]), 0.0, 1.0)
    return rows[:, left] * (1.0 - share) + rows[:, left + 1] * share


def quantiles(drawn: np.ndarray, confidence: float) -> tuple[float, float, float]:
    """Lower end, median and upper end of draws, of which some may be infinite."""
    tail = (1.0 - confidence) / 2.0
    ordered = np.sort(drawn)
    low, middle, high = (float(ordered[round(q * (len(ordered) - 1))]) for q in (tail, 0.5, 1.0 - tail))
    return low, middle, high


def summary(ln_depths: np.ndarray, confidence: float) -> Interval:
    """Median and ends of draws of the best depth; what is infinite has no bound."""
    low, middle, high = (math.exp(v) if math.isfinite(v) else None for v in quantiles(ln_depths, confidence))
    return Interval(middle, low, high)


def with_optima(record: Surface) -> Surface:
    """The record with the best depths at a few sizes, from the smallest to the largest one that three depths have, and
    what shape matters there."""
    surface = LossSurface(record)
    ends = (x for span in record.spans for x in (span.low, span.high))
    shared = [x for x in ends if len(surface.present(x)) >= FEWEST_SHARED_DEPTHS] or [record.low, record.high]
    rows = []
    for x in np.linspace(min(shared), max(shared), ROWS):
        found = surface.optimum(float(x))
        if found is not None:
            rows.append(SizedOptimum(**vars(found), n_params=math.exp(found.ln_x), **surface.worst(float(x))))
    return replace(record, optima=tuple(rows))


def accepted_forms(record: Surface) -> Sequence[LossForm]:
    """The forms that are not rejected, the most probable first."""
    return sorted((f for f in record.forms if not f.rejected), key=lambda f: -f.weight)


TWO_SIDED = 1.959964  # standard deviations of a normal distribution that hold 95 %
MANY_CELLS = 14  # from which on a cubic in ln N leaves enough of them to tell what depth does
FLOOR = 1e-12  # nats²
FEWEST_DEPTHS, FEWEST_CELLS, FEWEST_SIZES = 3, 9, 3
# a form whose evidence is 100 times less than the best form's is rejected
REJECTED_DEFICIT = math.log(100.0)

# medians over fits of simulated sweeps (tests/simulations/sweeps.py), all but τ: what a fit is expected to find
TYPICAL = (-3.8, 0.0, -2.1, 0.0, 0.85)
# of δ, ln shares of the effect of depth: fits find −2.1 with the true form and −2.0 with others, each within 0.2, and
# the prior alone says −1.6 within 0.5
AMPLITUDES = (-2.9, -2.5, -2.1, -1.7, -1.2)
ROUNDS = 12  # at most, of θ given the hyperparameters, and they given θ
SETTLED = 0.01  # change of the log posterior from one round to the next, at which they end
NODES = 40
LEAST_CURVATURE = 0.25  # of the log posterior along an axis: its sd is at most 2


def fit_loss_model(curves: Curves, confidence: float, seed: int = 0) -> Surface | None:
    """The model with every form; None with fewer than nine shapes, three depths or three sizes. The shapes may lie
    anywhere. seed: of the draws."""
    found = fit_with_gains(curves, confidence, seed)
    return found[0] if found else None


def fit_with_gains(curves: Curves, confidence: float, seed: int = 0) -> tuple[Surface, dict[str, np.ndarray]] | None:
    """The model, and of each form (T + P, K + W) how the errors of its coefficients and θ follow those of the cell
    means, in nats, and the waves of δ that the cells do not show, in units of their prior sd. seed: of the draws."""
    if len(curves.x) < FEWEST_CELLS or distinct_sizes(curves.x) < FEWEST_SIZES or len(curves.depths) < FEWEST_DEPTHS:
        return None
    frame = surface_frame(curves)
    problem = Problem.of(curves.x, curves.depth, curves.mean, curves.covariance, frame)
    noise = curves.noise
    if noise.declared_shape_sd is not None:
        problem = problem.with_shape_sd(noise.declared_shape_sd, noise.known)
    df = noise.replicate_df
    noise_df = df if 0.0 < df < math.inf else None
    fits = fit_forms(problem, noise_df, noise.known, seed)
    likely = max(fits, key=lambda fit: fit.log_evidence)
    record = replace(
        surface_record(curves, frame, fits, noise_df, confidence),
        between=BETWEEN * problem.effect,
        seed=seed,
        effect_p=effect_of_depth(problem, noise.shape_variance, noise.declared),
        held_out=held_out(curves.depth, curves.width, likely.held_out),
    )
    record = with_optima(record)
    return record, {fit.form: fit.gain for fit in fits if fit.gain is not None}


def distinct_sizes(x: np.ndarray) -> int:
    """Count of the sizes, with those of one rounded budget counted once."""
    count, last = 0, -math.inf
    for value in np.sort(x):
        if value - last > SAME_BUDGET:
            count, last = count + 1, value
    return count


def held_out(depth: np.ndarray, width: np.ndarray, z: np.ndarray) -> HeldOut:
    """Record of how well each shape is foretold by the others. z: (K,) its distance in standard deviations."""
    k = int(np.abs(z).argmax())
    return HeldOut(
        shapes=len(z),
        inside=int((np.abs(z) < TWO_SIDED).sum()),
        worst_depth=int(depth[k]),
        worst_width=float(width[k]),
        worst=float(z[k]),
    )


def effect_of_depth(problem: Problem, shape_variance: float, declared: bool = False) -> float:
    """p of depth doing nothing: an F test of the cell means. A polynomial in x = ln axis (at several budgets with an
    offset and a slope of each) stands against one with y = ln L, y² and x·y beside it. It knows no law, and takes the
    noise from the scatter about the larger one, and no less than was declared. shape_variance: nats², of what the seeds
    of a shape share. declared: the noise was.
    """
    from scipy.special import fdtrc

    (x0, y0), (dx, dy) = problem.frame.centre, problem.frame.scale
    x, y = (problem.x - x0) / dx, (problem.y - y0) / dy
    more = np.column_stack([y, y * y, x * y])
    if len(x) > MANY_CELLS + problem.frame.n_free - PARABOLA and distinct_sizes(problem.x) > FEWEST_SIZES:
        more = np.column_stack([more, x**3])
    every = np.hstack([problem.B[:, : problem.frame.n_free], problem.rotated(more)])
    weight = 1.0 / np.sqrt(problem.variances + shape_variance + FLOOR)
    loss, both = weight * problem.means, weight[:, None] * every
    sides = np.delete(both, problem.frame.n_free + np.arange(3), axis=1), both
    left = [float(np.sum((loss - side @ np.linalg.lstsq(side, loss, rcond=None)[0]) ** 2)) for side in sides]
    free = len(x) - both.shape[1]
    if free <= 0:
        return 1.0
    scale = max(left[1] / free, 1.0 if declared else 1e-300)
    return float(fdtrc(3, free, max(left[0] - left[1], 0.0) / 3 / scale))


def surface_frame(curves: Curves) -> Frame:
    return Frame(float(curves.x.min()), float(curves.x.max()), float(curves.depths[0]), float(curves.depths[-1]))


def fit_forms(problem: Problem, noise_df: float | None, noise_known: bool, seed: int = 0) -> list[_Fit]:
    """The model with every form. noise_df: degrees of freedom of the noise; None: many."""
    if not noise_known:  # the scatter of the shapes about the surface is all the noise that there is
        problem = replace(problem, tau_prior=TAU_AND_NOISE)
    return [_fit_form(form, problem, noise_df, seed) for form in MEANS]


def shares(fits: Sequence[_Fit]) -> np.ndarray:
    """(F,) what the forms weigh by their evidence."""
    evidence = np.array([fit.log_evidence for fit in fits])
    weights = np.exp(evidence - evidence.max())
    return weights / weights.sum()


def surface_record(
    curves: Curves, frame: Frame, fits: Sequence[_Fit], noise_df: float | None, confidence: float
) -> Surface:
    best = max(fit.log_evidence for fit in fits)
    return Surface(
        form=LOSS_FORM,
        terms=tuple((int(j), int(k)) for j, k, _ in frame.terms),
        low=frame.low,
        high=frame.high,
        spans=tuple(
            DepthSpan(depth=d, low=float(curves.sizes(d)[0]), high=float(curves.sizes(d)[-1])) for d in curves.depths
        ),
        noise_df=noise_df,
        confidence=confidence,
        forms=tuple(
            LossForm(
                form=fit.form,
                weight=float(share),
                log_evidence=fit.log_evidence,
                rejected=best - fit.log_evidence >= REJECTED_DEFICIT,
                tau=fit.tau,
                mode=tuple(_short(v, 9) for v in fit.mode),
                draws=tuple(
                    (*row[:-P].round(5).tolist(), *(_short(v, 5) for v in row[-P:]))
                    for row in fit.draws[: max(LEAST_DRAWS, 2 * math.ceil(share * DRAWS / 2))]
                ),
            )
            for fit, share in zip(fits, shares(fits), strict=True)
        ),
        between=0.0,
        optima=(),
    )


def _short(value: float, digits: int) -> float:
    """Keep as many digits as the file needs to give the same depths."""
    return float(f"{value:.{digits}g}")


@dataclass(frozen=True)
class _Fit:
    """mode (T + P,): the coefficients of all terms and θ at the most probable θ. draws (D, T + P) of them. gain
    (T + P, K + W): how their errors follow those of the cell means there, and the waves of δ (``Linear.gain``,
    ``Linear.unseen``)."""

    form: str
    log_evidence: float
    tau: float
    mode: np.ndarray
    draws: np.ndarray
    gain: np.ndarray
    held_out: np.ndarray  # (K,) standard deviations of each mean from what the others predict


@dataclass(frozen=True)
class Expected:
    """Expected outcome of fitting one form.

    mean, covariance: of the coefficients of all terms and of θ. sampling: the part of the covariance that the noise of
    the runs makes; the rest is what the model allows for departures from the form. depths, between: those trained,
    and what the loss may do between them, as in ``Surface``. log_evidence: up to a constant that the forms share.
    """

    log_evidence: float
    theta: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    sampling: np.ndarray
    depths: np.ndarray
    between: float


def expected_fits(
    frame: Frame,
    x: np.ndarray,
    depth: np.ndarray,
    means: np.ndarray,
    covariance: np.ndarray,
    tau: float,
    start: Mapping[str, np.ndarray],
    steps: int,
) -> dict[str, Expected]:
    """The model of every form in ``start`` with typical hyperparameters on noise-free means (K,), for designs.

    The covariances do not depend on the losses but for θ, about which the form is linearised: it takes ``steps`` steps
    from ``start``. covariance: (K, K) of the means, without the scatter τ of a shape (nats).
    """
    problem, h = Problem.of(x, depth, means, covariance, frame), np.array([*TYPICAL, math.log(max(tau, 1e-6))])
    found = {}
    for form, theta in start.items():
        theta = newton_steps(form, problem, theta, h, steps)
        model = Linear(problem, form, theta)
        # a fit averages over its hyperparameters, and the amplitude of δ is the one that tells a true form from others
        nodes = [np.concatenate([h[:2], [amplitude], h[3:]]) for amplitude in AMPLITUDES]
        evidence, *moments = (np.array(each) for each in zip(*map(model.expected, nodes), strict=True))
        weights = np.exp(evidence - evidence.max())
        mean, C, sampling = (np.tensordot(weights / weights.sum(), each, 1) for each in moments)
        mean = np.concatenate([mean[:-P], from_leads(mean[-P:], frame)])
        C, sampling = (in_theta(mean[-P:], in_theta(mean[-P:], V, frame).T, frame) for V in (C, sampling))
        log_evidence = evidence.max() + math.log(weights.sum())
        found[form] = Expected(log_evidence, theta, mean, C, sampling, np.unique(depth), BETWEEN * problem.effect)
    return found


def _fit_form(form: str, problem: Problem, noise_df: float | None, seed: int) -> _Fit:
    from scipy.optimize import minimize

    def uphill(v: np.ndarray, model: Linear) -> tuple[float, np.ndarray]:
        value, gradient = model.value_and_gradient(v)
        return -value, -gradient

    theta = start_theta(form, problem.frame)
    h = problem.start
    before = -math.inf
    for turn in range(ROUNDS):
        theta = newton_steps(form, problem, theta, h, 6 if turn == 0 else 3)
        found = minimize(
            uphill,
            h,
            (Linear(problem, form, theta),),
            method="L-BFGS-B",
            jac=True,
            bounds=problem.bounds,
            options={"maxiter": 60},
        )
        h = found.x
        if abs(-found.fun - before) < SETTLED:
            break
        before = -found.fun
    model = Linear(problem, form, theta)
    nodes, weights, log_evidence = _nodes(model, h)
    return with_draws(model, h, nodes, weights, log_evidence, noise_df, seed)


def with_draws(
    model: Linear,
    h: np.ndarray,
    nodes: np.ndarray,
    weights: np.ndarray,
    log_evidence: float = 0.0,
    noise_df: float | None = None,
    seed: int = 0,
) -> _Fit:
    problem, form = model.problem, model.form
    means, covariances = zip(*(model.leads(node) for node in nodes), strict=True)
    mean = np.einsum("n,ni->i", weights, means)
    spread = np.array(means) - mean
    covariance = np.einsum("n,nij->ij", weights, covariances) + np.einsum("n,ni,nj->ij", weights, spread, spread)
    draws = draw_model(form, problem, nodes, weights, (mean, covariance), noise_df, seed)
    given = GivenLeads(form, problem, h[None])
    mode = np.concatenate([given.coefficients(to_leads(model.theta, problem.frame)[None])[0], model.theta])
    # what linearising θ gave, put right
    log_evidence += log_likelihood(given, draws[:, -P:], seed) - model.log_likelihood(h)
    gain = in_theta(model.theta, np.hstack([model.gain(h), model.unseen(h)]), problem.frame)
    return _Fit(form, log_evidence, math.exp(h[5]), mode, draws, gain, model.held_out(h))


def _nodes(model: Linear, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Hyperparameters (N, 6) about their optimum, their importance weights, and the log evidence (Laplace)."""
    from scipy.special import ndtri

    step, size = 0.05, len(h)
    here = model.log_posterior(h)
    H = np.array([model.value_and_gradient(h + s)[1] - model.value_and_gradient(h - s)[1] for s in np.eye(size) * step])
    H = (H + H.T) / (4.0 * step)
    curvature, axes = np.linalg.eigh(-H)
    curvature = np.maximum(curvature, LEAST_CURVATURE)
    # points that fill the unit cube evenly (an additive recurrence, Roberts 2018)
    golden = 2.0
    for _ in range(50):
        golden = (1.0 + golden) ** (1.0 / (size + 1))
    cube = (0.5 + np.arange(1, NODES + 1)[:, None] * golden ** -np.arange(1.0, size + 1)) % 1.0
    z = ndtri(cube * 0.998 + 0.001)
    nodes = np.clip(h + (z / np.sqrt(curvature)) @ axes.T, *np.array(model.problem.bounds).T)
    log_weight = np.array([model.log_posterior(node) for node in nodes]) + 0.5 * (z**2).sum(axis=1)
    weights = np.exp(log_weight - log_weight.max())
    return nodes, weights / weights.sum(), here - 0.5 * float(np.log(curvature).sum())


DRAW_NODES = 16  # hyperparameters that the chains are spread over
CHAINS = 384  # a multiple of 2·NODES
STEPS = 60
LONG_STEP = 10  # every so many steps a chain may go from one mode to another
STRIDE = 2.38 / math.sqrt(2.0 * P)  # of the difference of two chains, the best one for a Gaussian
EVIDENCE_DRAWS, TAILS = 2000, 5.0
LEAST_SPREAD = 1e-6
JITTER = 1e-3  # of the prior's sd


def draw_model(
    form: str,
    problem: Problem,
    nodes: np.ndarray,
    weights: np.ndarray,
    start: tuple[np.ndarray, np.ndarray],
    noise_df: float | None,
    seed: int = 0,
) -> np.ndarray:
    """(CHAINS, T + P) the coefficients of all terms, and θ, in an order of which any part is a fair sample.

    nodes (N, 6): hyperparameters, weights (N,) theirs, which add up to 1. start: mean (P,) and covariance (P, P) of φ
    in the linearised model. noise_df: degrees of freedom of the estimated noise; None: the noise is known.
    """
    rng = np.random.default_rng(seed)
    # the middles of equal shares of the weight
    picks = np.searchsorted(np.cumsum(weights), (np.arange(DRAW_NODES) + 0.5) / DRAW_NODES)
    model = GivenLeads(form, problem, nodes[np.minimum(picks, len(nodes) - 1)])
    precision = np.ones(CHAINS)  # of the noise, over that estimated
    if noise_df is not None:
        pairs = CHAINS // 2
        precision = rng.permutation(chi2_quantile((np.arange(pairs) + 0.5) / pairs, noise_df) / noise_df).repeat(2)
    mean, covariance = start
    values, vectors = np.linalg.eigh(covariance)
    wide = rng.standard_normal((CHAINS, len(mean))) * np.sqrt(np.clip(values, 0.0, None))
    phi = bounded(mean + wide @ vectors.T, form)
    halves = phi[0::2], phi[1::2]  # views
    here = [model.density(half) for half in halves]
    for step in range(STEPS):
        stride = 1.0 if step % LONG_STEP == LONG_STEP - 1 else STRIDE
        for k, (own, others) in enumerate((halves, halves[::-1])):
            a, b = rng.integers(len(others), size=(2, len(own)))
            tried = own + stride * (others[a] - others[b]) + JITTER * MEANS[form].sd * rng.standard_normal(own.shape)
            there = model.density(tried)
            taken = np.log(rng.random(len(own))) < precision[k::2] * (there - here[k])
            own[taken], here[k][taken] = tried[taken], there[taken]
    out = np.empty((CHAINS, problem.B.shape[1] + len(mean)))
    noise = rng.standard_normal((CHAINS // 2, problem.B.shape[1])) / np.sqrt(precision[::2])[:, None]
    for k, half in enumerate(halves):  # the noise of one half is the other's with its sign changed: their mean has none
        coefficients = model.coefficients(half, -noise if k else noise)
        out[k::2] = np.hstack([coefficients, from_leads(half, problem.frame)])
    return out


def log_likelihood(model: GivenLeads, draws: np.ndarray, seed: int = 0) -> float:
    """Restricted log likelihood at the one node of ``model``, θ integrated out under its prior.

    Up to the constant of ``Linear.log_likelihood``; by importance sampling from a Student t that is as wide as the
    ``draws`` (D, P) of θ.
    """
    rng = np.random.default_rng(seed)
    phi = to_leads(draws, model.problem.frame) / MEANS[model.form].sd
    centre, covariance = phi.mean(axis=0), np.cov(phi, rowvar=False) + LEAST_SPREAD**2 * np.eye(phi.shape[1])
    root = np.linalg.cholesky(covariance)
    z = rng.standard_normal((EVIDENCE_DRAWS, len(root)))
    t = z / np.sqrt(rng.chisquare(TAILS, len(z)) / TAILS)[:, None]
    proposed = -0.5 * (TAILS + len(root)) * np.log1p((t**2).sum(axis=1) / TAILS) - np.log(np.diagonal(root)).sum()
    weight = model.density((centre + t @ root.T) * MEANS[model.form].sd) - proposed
    largest = float(weight.max())
    size = len(root)
    # the t's density, and the normal's of the prior, at their middles
    middle = math.lgamma((TAILS + size) / 2.0) - math.lgamma(TAILS / 2.0) - 0.5 * size * math.log(0.5 * TAILS)
    determinants = 0.5 * float(np.log(model.precisions).sum()) + float(np.log(np.diagonal(model.half[0])).sum())
    return determinants - middle + largest + math.log(np.exp(weight - largest).mean())
