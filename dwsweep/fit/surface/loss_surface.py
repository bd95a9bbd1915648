"""The fitted loss of all depths together: the best depth at any size, what another depth costs. ``loss_forms`` says
what it is made of, ``loss_model`` estimates it.

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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dwsweep.fit.surface.loss_forms import (
    Frame,
    P,
    fall,
    levelled,
    speed,
    transition,
)
from dwsweep.records.fit_curves import Optimum, SizedOptimum
from dwsweep.records.fit_result import LossForm, Surface

DRAWS = 1000
INSIDE, OUTSIDE = 101, 40  # points of the grid of depths, inside those trained and on either side
DEEPEST_FACTOR = 64.0  # the grid ends this many times deeper than the deepest net
ROWS = 9
KEPT_SIZES = 4
SAME_BUDGET = 0.05  # in ln N: widths are rounded, so that shapes of one budget differ by some percent
FEWEST_DEPTHS = 3  # that have shapes of a size, for a best depth among them
SHIFT_POINTS = 9
LARGEST_SHIFT = 3.0
ONE_SD = 0.6827  # of a normal distribution
WHOLE = 16  # layers, from which on the points of the grid lie close enough for whole numbers of them


@dataclass(frozen=True)
class Depth:
    """A best depth. An end without a bound is None; depth is None where more than half of the draws have none."""

    depth: float | None
    low: float | None
    high: float | None


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
        self._depths: dict[float, Depth] = {}

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
        shift = self._misfit(form.form, theta, coefficients) * np.random.default_rng(0).standard_normal(n)
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
        slope = np.einsum("dgt,dt->dg", self._departures(at, y), coefficients)
        gain = np.maximum(theta[:, 2:3], 1e-6) * np.exp((1.0 - theta[:, 3:4]) * (y - self.frame.centre[1]))
        gain *= fall(theta[:, None, :], at, self.frame)
        moved = np.clip(slope / gain, -LARGEST_SHIFT, LARGEST_SHIFT) ** 2
        count = inside.sum(axis=1)
        return np.sqrt(np.where(count > 0, (moved * inside).sum(axis=1) / np.maximum(count, 1), LARGEST_SHIFT**2))

    def _departures(self, x: np.ndarray | float, y: np.ndarray) -> np.ndarray:
        """(…, T) dδ/dl of the terms; those of f0 have none."""
        return self.frame.basis(x, y, derivative=True)

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
            self._kept[x] = slope, _integral(self.grid, slope)
        return self._kept[x]

    @cached_property
    def inside(self) -> slice:
        """The points of the grid at the depths trained."""
        first, last = (math.log(depth) for depth in (self.frame.shallowest, self.frame.deepest))
        return slice(*np.searchsorted(self.grid, (first - 1e-9, last + 1e-9)).tolist())

    def _slopes(self, x: float, part: slice) -> np.ndarray:
        """(D, ·) dloss/dl at x = ln axis on a part of the grid that holds the depths trained."""
        at = min(max(x, self.record.low), self.record.high)
        outside = min(1.0, abs(x - at))
        terms = self._departures(at, self.grid[self.inside])
        trained = slice(self.inside.start - part.start, self.inside.stop - part.start)
        rows = []
        for group in self.groups:
            lead = (x + outside * group.shift[:, None]) - group.transition[:, part]
            slope = levelled(lead, group.theta[:, 5:])
            slope *= -group.speed[:, part]
            slope *= fall(group.theta, at, self.frame)[:, None]
            slope[:, trained] += group.coefficients @ terms.T
            if x > at:  # all that depth does goes on falling, which moves no best depth
                slope *= np.exp(-np.maximum(group.theta[:, 4:5], 0.0) * (x - at))
            rows.append(slope)
        return np.concatenate(rows) if len(rows) > 1 else rows[0]

    def profile(self, x: float) -> np.ndarray:
        """(D, G) loss on the grid above that of the grid's first depth, nats."""
        return self._at(x)[1]

    def profile_over(self, x: float, trained: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """(ln L (M,), the ``profile`` there (D, M)), over the whole grid or the depths trained."""
        part = self.inside if trained else slice(None)
        return self.grid[part], self.profile(x)[:, part]

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

    def at(self, n: float) -> Depth:
        """The best depth at a size (a value of the axis), with the interval of the fit's confidence."""
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
        if len(present) < FEWEST_DEPTHS:
            return None
        drawn = self.drawn_depths(x)
        low, centre, high = quantiles(drawn, self.record.confidence)
        first, last = float(min(present)), float(max(present))
        middle = math.exp(centre) if math.isfinite(centre) else None
        edge = None
        if middle is None or not first < middle < last:
            edge = "below" if centre <= math.log(first) else "above"
        return Optimum(
            ln_x=x,
            depth=None if edge else middle,
            # an infinite end on the side of a best depth beyond those tried: it is bounded by how far they reach
            depth_low=None if edge == "below" or low <= math.log(first) else math.exp(low) if low < math.inf else last,
            depth_high=None if edge == "above" or high >= math.log(last) else math.exp(high) or first,
            loss=self.level(x),
            at_edge=edge,
            depth_min=first,
            depth_max=last,
        )

    def worst(self, x: float) -> dict[str, Any]:
        """Of the depths that have shapes at ln axis x, the one with the highest loss, and by how many percent it is
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
        """The depths that have shapes of that size."""
        return [d.depth for d in self.record.spans if d.low - SAME_BUDGET <= x <= d.high + SAME_BUDGET]

    def penalties(self, n: float, depths: np.ndarray, trained: bool = False) -> np.ndarray:
        """(D, M) nats that ``depths`` lose at a size against the best whole number of layers, or against the best
        between those trained."""
        return self.above_best(self.profile(math.log(n)), depths, trained)

    def losses(self, x: float) -> tuple[np.ndarray, np.ndarray]:
        """(ln L of the depths trained (M,), losses there (D, M) in nats) at ln axis x inside the data."""
        middle = self.frame.centre[1]
        running = self.profile(x)
        at_middle = _between(self.grid, running, np.array([middle]))[:, 0]
        shared = np.concatenate([group.coefficients @ self.frame.basis(x, middle)[0] for group in self.groups])
        return self.grid[self.inside], running[:, self.inside] + (shared - at_middle)[:, None]

    def differences(self, x: np.ndarray, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        """(P, 1 + D, M) loss of the shallower less loss of the deeper net of each pair at ln axis x (M,): the mean of
        the draws first."""
        shallow, deep = np.log(np.array(pairs, dtype=float)).T
        out = np.empty((len(pairs), 1 + sum(len(group.theta) for group in self.groups), len(x)))
        trained = self.grid[self.inside]
        for m, value in enumerate(x):
            running = _integral(trained, self._slopes(float(value), self.inside))
            out[:, 1:, m] = (_between(trained, running, shallow) - _between(trained, running, deep)).T
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
            basis = self.frame.basis(x, middle)[0]
            shared = np.concatenate([group.coefficients @ basis for group in self.groups]).mean()
            self._levels[x] = float(mean.min() - at_middle + shared)
        return self._levels[x]

    @property
    def measured(self) -> bool:
        """Whether the data themselves bound the best depth on both sides, at two sizes: one says nothing of growth."""
        return sum(None not in (row.depth, row.depth_low, row.depth_high) for row in self.record.optima) >= 2


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


def summary(ln_depths: np.ndarray, confidence: float) -> Depth:
    """Median and ends of draws of the best depth; what is infinite has no bound."""
    low, middle, high = (math.exp(v) if math.isfinite(v) else None for v in quantiles(ln_depths, confidence))
    return Depth(middle, low, high)


def with_optima(record: Surface) -> Surface:
    """The record with the best depths at a few sizes, from the smallest to the largest one that three depths have, and
    what shape matters there."""
    surface = LossSurface(record)
    ends = (x for span in record.spans for x in (span.low, span.high))
    shared = [x for x in ends if len(surface.present(x)) >= FEWEST_DEPTHS] or [record.low, record.high]
    rows = []
    for x in np.linspace(min(shared), max(shared), ROWS):
        found = surface.optimum(float(x))
        if found is not None:
            rows.append(SizedOptimum(**vars(found), n_params=math.exp(found.ln_x), **surface.worst(float(x))))
    return replace(record, optima=tuple(rows))


def forms_left(record: Surface) -> Sequence[LossForm]:
    """The forms that are not rejected, the most probable first."""
    return sorted((f for f in record.forms if not f.rejected), key=lambda f: -f.weight)
