"""Questions put to the posterior: functions from its draws to intervals.

Every function takes a ``Posterior`` (posterior.py) and answers from its draws, without another estimator.
A draw in which depth does nothing has no best depth and no crossing: half of such draws count as below everything and
half as above, so that they widen an interval and move no median.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep.errors import InputError
from dwsweep.fit.data.shape import SAME_SIZE
from dwsweep.fit.statistics.model import FORMS, ROUNDING, SAME_BUDGET, distinct_sizes, is_one_size
from dwsweep.fit.statistics.nodes import SCRAMBLES, standard_error, weigh, with_odd_depths
from dwsweep.fit.statistics.parabola import vertex
from dwsweep.fit.statistics.posterior import Posterior, Setting, between
from dwsweep.interval import NORMAL_95, Interval
from dwsweep.records.answers import ABOVE, BELOW, BEST_DEPTH, AnswerRow
from dwsweep.records.cells import Cells
from dwsweep.records.fit import FEWEST_SHARED_DEPTHS, DepthSpan, HeldOut, Surface

if TYPE_CHECKING:
    from dwsweep.fit.statistics.curves import Curves

WHOLE = 16  # layers, beyond which grid points lie closer than whole numbers of layers
FEWEST_DEPTHS, FEWEST_CELLS, FEWEST_SIZES = 3, 9, 3
FEWEST_ALONE = 7  # shapes of one size without replicates: four show the noise beside a parabola
ROWS = 9
LEVELS = 9  # sizes of the data's range that a polynomial of the level goes through
MOST_CELLS = 4000  # most shapes on which a posterior is conditioned: more change no printed digit
EDGE = 1e-6  # distance in ln L up to which a best depth lies on the outermost net
MOST_READ = 3  # limit of posteriors that are kept
ONE_SD = 0.6827  # share of a normal distribution within one sd


def quantiles(drawn: np.ndarray, confidence: float) -> tuple[float, float, float]:
    """Lower end, median and upper end of draws (D,), possibly infinite, between two order statistics."""
    tail = (1.0 - confidence) / 2.0
    ordered = np.sort(drawn)
    found = []
    for q in (tail, 0.5, 1.0 - tail):
        place = min(max(q * len(ordered) - 0.5, 0.0), len(ordered) - 1.0)
        k = min(int(place), len(ordered) - 2)
        a, b, share = ordered[k], ordered[k + 1], place - k
        finite = math.isfinite(a) and math.isfinite(b)
        found.append(float(a + (b - a) * share if finite else a if share < 0.5 else b))
    low, middle, high = found
    return low, middle, high


def answer(drawn: np.ndarray, scramble: np.ndarray, confidence: float) -> Interval:
    """Interval of draws (D,), with the largest Monte-Carlo error of its numbers, by the spread over scrambles."""
    each = np.array(
        [quantiles(drawn[scramble == k], confidence) for k in range(SCRAMBLES) if (scramble == k).sum() > 1]
    )
    with np.errstate(invalid="ignore"):
        # one answer has no standard deviation
        spread = standard_error(each) if len(each) > 1 else np.full(3, math.nan)
    low, middle, high = (v if math.isfinite(v) else None for v in quantiles(drawn, confidence))
    return Interval(middle, low, high, error=max((float(v) for v in spread if math.isfinite(v)), default=0.0))


def best_depths(posterior: Posterior, x: float, setting: Setting | None = None) -> np.ndarray:
    """(D,) ln of the best depth at x = ln axis; ±inf where the loss falls up to an end of the grid.

    A draw whose lowest loss lies between the depths trained has its best depth there, whatever its form does far
    outside; beyond an end of the trained depths the search goes on. One layer is the least where it was trained.
    """
    rows, grid, inside = posterior.profile(x, setting), posterior.grid, posterior.inside
    first, deepest = inside.start, inside.stop - 1
    best = rows[:, inside].argmin(axis=1) + first
    beyond = rows[:, deepest:].argmin(axis=1) + deepest
    before = rows[:, : first + 1].argmin(axis=1)
    best = np.where(best == deepest, beyond, np.where(best == first, before, best))
    each, last = np.arange(len(rows)), len(grid) - 1
    k = np.clip(best, 1, last - 1)
    turn = np.where((best > 0) & (best < last), vertex(grid, rows, k)[0], grid[best])
    least = 0.0 if first == 0 else -np.inf
    found = np.where(best == last, np.inf, np.where(best == 0, least, turn))
    # without an effect of depth there is no best depth
    side = np.where(each % 2 == 0, -np.inf, np.inf)
    return np.where(posterior.without_effect, side, found)


def inside_depths(
    posterior: Posterior, nets: Mapping[float, tuple[float, float]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x (M,), ln of the best depth (D, M), its sd (M,)) at the sizes whose best depth surely lies between the nets:
    the central 68 % of the draws. A draw beyond them counts as at their end. nets: ln of the shallowest and of the
    deepest one by ln axis x."""
    found = []
    for size, (first, last) in nets.items():
        drawn = best_depths(posterior, size)
        low, _, high = quantiles(drawn, ONE_SD)
        if first < low and high < last:
            found.append((size, np.clip(drawn, first, last), (high - low) / 2.0))
    sizes, depths, sds = zip(*found, strict=True) if found else ((), (), ())
    return np.array(sizes), np.array(depths).reshape(len(sizes), posterior.n_draws).T, np.array(sds)


def best_depth_interval(
    posterior: Posterior,
    x: float,
    confidence: float,
    setting: Setting | None = None,
    nets: tuple[float, float] | None = None,
) -> Interval:
    """ln of the best depth at x = ln axis with its Monte-Carlo error, as far as ``nets`` (ln of the shallowest and of
    the deepest) bound it; by default all nets."""
    drawn = best_depths(posterior, x, setting)
    found = claimed(quantiles(drawn, confidence), *(nets or (posterior.frame.first, posterior.frame.last)))
    return replace(found, error=answer(drawn, posterior.scramble, confidence).error)


def claimed(found: tuple[float, float, float], first: float, last: float) -> Interval:
    """The part of ``found``, low, median and high of ln best depth, that nets from ``first`` to ``last`` (ln depth)
    bound. Beyond them a form alone speaks: a median there is no value, its bound is the outermost net at most, and
    an end there is open. One layer stays an end, since no net is shallower."""
    low, middle, high = found
    below = None if low <= first + EDGE and first > EDGE else max(low, first)
    above = None if high >= last - EDGE else max(high, first)
    if middle >= last - EDGE:
        return Interval(None, None if below is None else min(below, last), None)
    if middle <= first + EDGE and first > EDGE:
        return Interval(None, None, above)
    return Interval(max(middle, first), below, above)


def at_depths(posterior: Posterior, x: np.ndarray, depths: np.ndarray, setting: Setting | None = None) -> np.ndarray:
    """(D, M, n) losses of ``depths`` (n,) at each x (M,), inside the sizes and depths of the data, nats."""
    y = np.log(np.asarray(depths, dtype=float))
    rows = posterior.losses(np.repeat(x, len(y)), np.tile(y, len(x)), setting)
    return rows.reshape(len(rows), -1, len(y))


def lowest(grid: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(D, 1) the least of ``rows`` (D, G) over the whole numbers of layers on the ``grid`` (G,) of ln L: between two
    that were trained a smooth curve dips below both, and no net has 1.4 layers."""
    first, last = np.exp(grid[[0, -1]])
    whole = np.log(np.arange(math.ceil(first - 1e-9), min(WHOLE, math.floor(last + 1e-9)) + 1))
    deep = grid >= math.log(WHOLE)
    return np.concatenate([between(grid, rows, whole), rows[:, deep]], axis=1).min(axis=1, keepdims=True)


def effect(drawn: np.ndarray, confidence: float) -> Interval:
    """Median and interval of the finite draws (D,)."""
    low, middle, high = quantiles(drawn, confidence)
    return Interval(middle, low, high)


class LossSurface:
    """Posterior of a fit.json's ``surface``, at the fit's confidence.

    setting: values of further columns, such as an arm.
    """

    def __init__(self, record: Surface, setting: Setting | None = None) -> None:
        self.record, self.setting = record, setting
        self.posterior = read(record)

    @property
    def grid(self) -> np.ndarray:
        """(G,) ln L."""
        return self.posterior.grid

    @property
    def has_best(self) -> bool:
        """True if there are three depths, and they make a difference."""
        return self.record.has_three_depths and not self.record.flat

    @property
    def shallowest(self) -> float:
        """The shallowest and the deepest depth trained, layers."""
        return min(span.depth for span in self.record.spans)

    @property
    def deepest(self) -> float:
        return max(span.depth for span in self.record.spans)

    def profile(self, x: float) -> np.ndarray:
        """(D, G) loss on the grid above that of the middle depth, nats."""
        return self.posterior.profile(x, self.setting)

    def drawn_depths(self, x: float) -> np.ndarray:
        """(D,) ln of the best depth at x = ln axis: see ``best_depths``."""
        return best_depths(self.posterior, x, self.setting)

    def at(self, n: float, setting: Setting | None = None) -> Interval:
        """The best depth at a size (a value of the axis), layers, with the interval of the fit's confidence and its
        Monte-Carlo error: see ``claimed``; not known of two depths, or without an effect of depth. setting: values of
        further columns, in place of the surface's own."""
        if not self.has_best:
            return Interval()
        x, setting = math.log(n), self.setting if setting is None else setting
        return best_depth_interval(self.posterior, x, self.record.confidence, setting, self.nets(x)).map(math.exp)

    def nets(self, x: float) -> tuple[float, float]:
        """ln of the shallowest and of the deepest net that bound a best depth at ln axis x: among the depths with nets
        of that size if there are three, else among all."""
        present = self.present(x)
        if len(present) < FEWEST_SHARED_DEPTHS:
            return math.log(self.shallowest), math.log(self.deepest)
        return math.log(min(present)), math.log(max(present))

    def optimum(self, x: float) -> AnswerRow | None:
        """Best depth at ln axis x among depths with shapes of that size, with the Monte-Carlo error that bounds its
        digits; an end beyond them is None. None with fewer than three such depths."""
        present = self.present(x)
        if len(present) < FEWEST_SHARED_DEPTHS:
            return None
        first, last = self.nets(x)
        drawn = self.drawn_depths(x)
        found = quantiles(drawn, self.record.confidence)
        if self.record.flat:
            found = -math.inf, found[1], math.inf
        depth = claimed(found, first, last)
        # one layer, the least there is, stands at the edge
        edge = ABOVE if found[1] >= last - EDGE else BELOW if found[1] <= first + EDGE else ""
        low = None if edge == BELOW or (depth.low or 0.0) <= first + EDGE else depth.low
        error = answer(drawn, self.posterior.scramble, self.record.confidence).error
        value = None if edge or self.record.flat else depth.value
        depth = Interval(value, low, depth.high, error=error or 0.0).map(math.exp)
        return AnswerRow(
            question=BEST_DEPTH,
            n_params=math.exp(x),
            **depth.columns("depth"),
            monte_carlo_error=depth.error or None,
            at_edge=edge,
            depth_min=float(min(present)),
            depth_max=float(max(present)),
        )

    def worst(self, x: float) -> dict[str, Any]:
        """Worst depth among depths with shapes at ln axis x, and its excess over the loss of the best depth between
        them, percent, with the interval of the fit's confidence; nothing if a loss is
        not positive, which has no percent."""
        present = self.present(x)
        y, drawn = self.losses(x)
        inside = (y >= math.log(min(present)) - 1e-9) & (y <= math.log(max(present)) + 1e-9)
        rows = np.concatenate([drawn.mean(axis=0)[None], drawn])
        at, best = between(y, rows, np.log(present)), lowest(y[inside], rows[:, inside])
        if not (best > 0.0).all():
            return {}
        above = at - best
        percent = 100.0 * np.where(above > ROUNDING * best, above, 0.0) / best
        k = int(percent[0].argmax())
        low, _, high = quantiles(percent[1:, k], self.record.confidence)
        return {
            "worst_depth": float(present[k]),
            "worst_percent": float(percent[0, k]),
            "worst_percent_low": float(low),
            "worst_percent_high": float(high),
        }

    def present(self, x: float) -> list[int]:
        """Depths that the data can compare at that size."""
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
        room = SAME_SIZE if self.posterior.frame.one_size else SAME_BUDGET
        reached = ((span.low - room, span.high + room, span.depth) for span in self.record.spans)
        return hull((end, math.log(depth)) for *both, depth in reached for end in both)

    def penalties(self, n: float, depths: np.ndarray) -> np.ndarray:
        """(D, M) regret of ``depths`` at a size, nats, above the best whole number of layers of each draw: between the
        depths trained, or beyond their end where it is the best of them (``best_depths``)."""
        rows, grid, inside = self.profile(math.log(n)), self.grid, self.posterior.inside
        first, deepest = inside.start, inside.stop - 1
        best, at = lowest(grid[inside], rows[:, inside]), rows[:, inside].argmin(axis=1) + first
        for edge, beyond in ((deepest, slice(deepest, None)), (first, slice(0, first + 1))):
            if edge != 0 and (here := at == edge).any():
                best[here] = np.minimum(best[here], lowest(grid[beyond], rows[here][:, beyond]))
        return np.maximum(between(grid, rows, np.log(np.asarray(depths, dtype=float))) - best, 0.0)

    def losses(self, x: float) -> tuple[np.ndarray, np.ndarray]:
        """(ln L of the depths trained (M,), losses there (D, M) in nats) at ln axis x inside the data."""
        inside = self.posterior.inside
        rows = self.profile(x)[:, inside] + self.posterior.level(np.array([x]), self.setting)
        return self.grid[inside], rows

    def differences(self, x: np.ndarray, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        """(P, 1 + D, M) loss of the shallower less loss of the deeper net of each pair at ln axis x (M,): the mean of
        the draws first."""
        depths, place = np.unique(np.array(pairs, dtype=float), return_inverse=True)
        rows = at_depths(self.posterior, np.asarray(x, dtype=float), depths, self.setting)
        shallow, deep = place.reshape(-1, 2).T
        drawn = np.moveaxis(rows[:, :, shallow] - rows[:, :, deep], 2, 0)
        return np.concatenate([drawn.mean(axis=1, keepdims=True), drawn], axis=1)

    def level(self, x: float) -> float:
        """Loss of the best depth among those trained at ln axis x, nats per token; a fractional depth, so that it falls
        smoothly: inside the sizes of the data it is a polynomial through some of them."""
        low, high = self.record.low, self.record.high
        if low <= x <= high and not self.posterior.frame.one_size:
            kept, key = self.posterior.levels, (low, high, *sorted((self.setting or {}).items()))
            if key not in kept:
                levels = np.vectorize(self._level, otypes=[float])
                kept[key] = np.polynomial.Chebyshev.interpolate(levels, LEVELS - 1, [low, high])
            return float(kept[key](x))
        return self._level(x)

    def _level(self, x: float) -> float:
        return float(self.losses(x)[1].mean(axis=0).min())


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


def fit_loss_model(curves: Curves, confidence: float, seed: int = 0) -> Surface | None:
    """The posterior of a table's cell means, which may lie anywhere; None if they are not ``enough``."""
    if not enough(curves):
        return None
    cells = curves.cells
    if len(cells.x) > MOST_CELLS:
        where = np.sort(np.random.default_rng(seed).permutation(len(cells.x))[:MOST_CELLS])
        return surface_of(cells.at(where), curves.depth[where], curves.width[where], confidence, seed)
    return surface_of(cells, curves.depth, curves.width, confidence, seed)


def enough(curves: Curves) -> bool:
    """True if a table has enough shapes for a posterior: three depths at one size, or two depths of three sizes, whose
    noise replicates or a declaration show; else seven at one size, eight at two, nine at three or more."""
    depths, sizes = len(curves.depths), min(distinct_sizes(curves.x), FEWEST_SIZES)
    if depths < 2 or (depths == 2 and sizes < FEWEST_SIZES):
        return False
    x, room = curves.x, max(SAME_BUDGET, is_one_size(curves.x) * np.ptp(curves.x)) + EDGE
    every = (np.sort(x[curves.depth == depth]) for depth in curves.depths)
    near = [np.ptp(np.searchsorted(own, [x - room, x + room]), axis=0) > 0 for own in every]
    compared = np.sum(near, axis=0).max() >= min(depths, FEWEST_SHARED_DEPTHS)  # depths with nets of one size
    if len(curves.x) >= FEWEST_ALONE - 1 + sizes and (sizes == FEWEST_SIZES or compared):
        return True
    return bool(curves.noise.replicate_df > 0.0 and not curves.noise.why_unknown and compared)


def surface_of(
    cells: Cells,
    depth: np.ndarray,
    width: np.ndarray,
    confidence: float,
    seed: int = 0,
    own: int | None = None,
    forms: Sequence[str] = (),
) -> Surface:
    """Posterior of ``cells`` for nets of ``depth`` and ``width`` (K,), with the best depths at a few sizes and the
    effect of shape there. own: number of cells of the first arm, whose answers they are; None: all. forms: of the
    effect of depth, by default all that the depths can tell apart."""
    spans = spans_of(depth[:own], cells.x[:own])
    cells = cells if forms else with_odd_depths(cells, seed)
    weighed, ess = weigh(cells, seed, forms)
    record = Surface(spans=spans, confidence=confidence, forms=weighed, ess=ess, optima=(), cells=cells, seed=seed)
    record = replace(record, held_out=held_out(depth, width, read(record)))
    surface = LossSurface(record)
    ends = (x for span in spans for x in (span.low, span.high))
    # from the smallest to the largest size that three depths have
    shared = [x for x in ends if len(surface.present(x)) >= FEWEST_SHARED_DEPTHS] or [record.low, record.high]
    sizes = np.linspace(min(shared), max(shared), ROWS).tolist()
    rows = []
    for x in [float(np.mean(cells.x))] if surface.posterior.frame.one_size else sizes:
        if found := surface.optimum(x):
            rows.append(replace(found, **surface.worst(x)))
    return replace(record, optima=tuple(rows))


def spans_of(depth: np.ndarray, x: np.ndarray) -> tuple[DepthSpan, ...]:
    """Sizes of each depth, ln of the axis; depth, x: (K,) of the shapes."""
    return tuple(
        DepthSpan(depth=int(d), low=float(x[depth == d].min()), high=float(x[depth == d].max()))
        for d in np.unique(depth)
    )


def held_out(depth: np.ndarray, width: np.ndarray, posterior: Posterior) -> HeldOut:
    """Record of the predictions of each shape, or of each run of several points, and of each size by the others; depth,
    width: of the means (K,)."""
    first, z, slopes = posterior.held_out()
    worst = int(np.abs(z).argmax())
    k = int(first[worst])
    steepest = slopes[np.abs(slopes[:, 1]).argmax()] if len(slopes) else (None, None)
    return HeldOut(
        shapes=len(z),
        inside=int((np.abs(z) < NORMAL_95).sum()),
        worst_depth=int(depth[k]),
        worst_width=float(width[k]),
        worst=float(z[worst]),
        sizes=len(slopes),
        steepest=None if steepest[1] is None else float(steepest[1]),
        steepest_at=None if steepest[0] is None else math.exp(steepest[0]),
    )


def read(record: Surface) -> Posterior:
    """The posterior of a record. The last few are kept: a table asks one and the same posterior many questions.

    Raises:
        InputError: the record has a form that this version does not have.
    """
    for known, posterior in list(_READ):
        if known.cells is record.cells and known.forms is record.forms and known.seed == record.seed:
            return posterior
    if unknown := [form.form for form in record.forms if form.form not in FORMS]:
        raise InputError(f"surface.forms: {unknown[0]!r}; must be one of {', '.join(FORMS)}: run `dwsweep fit` again")
    posterior = Posterior(record.cells, record.forms, record.seed)
    _READ.append((record, posterior))
    return posterior


_READ: deque[tuple[Surface, Posterior]] = deque(maxlen=MOST_READ)
