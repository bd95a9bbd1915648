"""The loss of all depths together, as a function of size and depth: what it is made of, the best depth at any size,
what another depth costs. ``loss_model`` estimates it.

With x = ln N and y = ln L

    loss(x, y) = f0(x) + h(x, y; θ) + δ(x, y)

f0   what all depths share: a parabola in x, and higher Legendre polynomials that are shrunk.
h    what depth does if the transition follows a form of the law: one more layer gains κ·S(x − x_T), so that

         dh/dl = −c·(L/L_m)^(1−p)·S(x − x_T(y)),    S(u) = u / √(1 + s·u²),    h = 0 at the middle depth L_m

     with x_T(y) = ln 12L + 2·ln d(L) the size at which depth L is the best one (its inverse is the best depth), ln d
     exponential, power or linear in L (laws.py). κ falls with depth as L^(−p); s lets a lead level off far from x_T.
δ    how the data depart from that form: products of Legendre polynomials in x and y, shrunk.

θ = (x_T at the shallowest depth, at the deepest, c in nats per unit of x and y, p, s).

One definition of the best depth holds inside and outside the data. For each draw of the parameters from the forms in
proportion to their weights,

    dloss/dl = dh/dl(x, y; θ) + dδ/dl(x, y)

where δ, what the data say beyond the form, is kept at its value on the edge for sizes outside the data, and ends at the
edges of the depths trained. The best depth is where the integral of it is least: inside the data the profile of the
loss itself, outside what the forms say, averaged. Beyond the sizes of the data each draw also misses by as much as the
surface departs from its form inside (an error of the form, in ln N).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from dwsweep.fit.noise import chi2_quantile
from dwsweep.records.fit_curves import Optimum, SizedOptimum
from dwsweep.records.fit_result import LossForm, Surface

THETA = ("x_t_shallowest", "x_t_deepest", "gain", "gain_power", "saturation")
HIGHEST_X, HIGHEST_L = 8, 6
QUADRATURE = 10
DERIVATIVE_STEPS = np.array([1e-3, 1e-3, 1e-5, 1e-3, 1e-4])  # of the derivatives with respect to θ

DRAWS, DRAWS_OF_A_FORM = 1000, 400
INSIDE, OUTSIDE = 101, 40  # points of the grid of depths, inside those trained and on either side
DEEPEST_FACTOR = 64.0  # the grid ends this many times deeper than the deepest net
ROWS = 9
KEPT_SIZES = 4
FARTHEST = 40.0  # from the data in ln N, of a transition at either end of the depths
GAIN_POWERS = (-3.0, 7.0)
SHIFT_POINTS = 9
LARGEST_SHIFT = 3.0


@dataclass(frozen=True)
class Frame:
    """Where the data lie. low, high: ends of x; shallowest, deepest: of the depths."""

    low: float
    high: float
    shallowest: float
    deepest: float

    @property
    def centre(self) -> tuple[float, float]:
        """(x, y) in the middle."""
        return (self.low + self.high) / 2.0, math.log(self.shallowest * self.deepest) / 2.0

    @property
    def scale(self) -> tuple[float, float]:
        """Half the span of x and of y."""
        return max(self.high - self.low, 1e-6) / 2.0, math.log(self.deepest / self.shallowest) / 2.0

    @cached_property
    def terms(self) -> np.ndarray:
        """(T, 2) powers (j, k) of the Legendre polynomials in x and y; k = 0 belongs to f0."""
        return np.array(
            [(j, k) for k in range(HIGHEST_L + 1) for j in range(HIGHEST_X + 1) if j + k <= max(HIGHEST_X, HIGHEST_L)]
        )

    def basis(self, x: np.ndarray | float, y: np.ndarray | float, derivative: bool = False) -> np.ndarray:
        """(…, T) the polynomials at x and y, or their derivatives with respect to y."""
        from numpy.polynomial import legendre

        (x0, l0), (dx, dl) = self.centre, self.scale
        in_x = legendre.legvander((np.asarray(x, dtype=float) - x0) / dx, HIGHEST_X)
        in_l = legendre.legvander((np.asarray(y, dtype=float) - l0) / dl, HIGHEST_L)
        if derivative:
            matrix = np.zeros((HIGHEST_L + 1, HIGHEST_L + 1))
            for k in range(1, HIGHEST_L + 1):
                matrix[:k, k] = legendre.legder(np.eye(HIGHEST_L + 1)[k])[:k]
            in_l = in_l @ matrix / dl
        return in_x[..., self.terms[:, 0]] * in_l[..., self.terms[:, 1]]


def transition(form: str, theta: np.ndarray, depth: np.ndarray, frame: Frame) -> np.ndarray:
    """x_T at ``depth`` for theta (..., 5), broadcast: ln of the size at which that depth is the best one."""
    first, last = frame.shallowest, frame.deepest
    low = theta[..., 0] - np.log(12.0 * first)  # 2·ln d at the ends
    high = theta[..., 1] - np.log(12.0 * last)
    if form == "linear":
        at_first = np.exp(low / 2.0)
        width = at_first + (np.exp(high / 2.0) - at_first) * (depth - first) / (last - first)
        # a width that would be none: far below every size
        return np.log(12.0 * depth) + 2.0 * np.log(np.maximum(width, 1e-3 * at_first))
    if form == "power":
        share = np.log(depth / first) / math.log(last / first)
    else:
        share = (depth - first) / (last - first)
    return np.log(12.0 * depth) + low + (high - low) * share


def gradient(form: str, theta: np.ndarray, x: np.ndarray | float, y: np.ndarray, frame: Frame) -> np.ndarray:
    """dh/dl for theta (..., 5), x and y broadcast."""
    return _gradient(x - transition(form, theta, np.exp(y), frame), _speed(theta, y, frame), theta[..., 4])


def _speed(theta: np.ndarray, y: np.ndarray, frame: Frame) -> np.ndarray:
    return theta[..., 2] * np.exp((1.0 - theta[..., 3]) * (y - frame.centre[1]))


def _gradient(lead: np.ndarray, speed: np.ndarray, saturation: np.ndarray) -> np.ndarray:
    return -speed * lead / np.sqrt(1.0 + np.maximum(saturation, 0.0) * lead**2)


@cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(QUADRATURE)


def height(form: str, theta: np.ndarray, x: np.ndarray, y: np.ndarray, frame: Frame) -> np.ndarray:
    """(K,) h at x (K,) and y (K,) for theta (5,), by Gauss–Legendre quadrature from the middle depth."""
    at, weight = _quadrature()
    half = (y - frame.centre[1]) / 2.0
    points = frame.centre[1] + half[:, None] * (at + 1.0)
    return (gradient(form, theta, x[:, None], points, frame) * weight).sum(axis=1) * half


def linearised(
    form: str, theta: np.ndarray, x: np.ndarray, y: np.ndarray, frame: Frame
) -> tuple[np.ndarray, np.ndarray]:
    """h (K,) at ``theta`` and its derivatives with respect to it (K, 5)."""
    here = theta
    value = height(form, here, x, y, frame)
    columns = []
    for i, step in enumerate(DERIVATIVE_STEPS):
        shift = np.eye(len(DERIVATIVE_STEPS))[i] * step
        above = height(form, here + shift, x, y, frame)
        if i == 4 and here[4] <= step:  # saturation is not negative
            columns.append((above - value) / step)
        else:
            columns.append((above - height(form, here - shift, x, y, frame)) / (2.0 * step))
    return value, np.stack(columns, axis=1)


@dataclass(frozen=True)
class Depth:
    """A best depth. An end without a bound is None; depth is None where more than half of the draws have none."""

    depth: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class _Group:
    """The draws of one form: theta (D, 5), coefficients (D, T), shift (D,) of ln N outside the sizes of the data;
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

    @cached_property
    def groups(self) -> list[_Group]:
        forms = [f for f in self.record.forms if f.form == self.only or (self.only is None and not f.rejected)]
        weights = np.array([1.0 if self.only else f.weight for f in forms])
        draws = DRAWS_OF_A_FORM if self.only else DRAWS
        exact = draws * weights / weights.sum()
        counts = np.floor(exact).astype(int)
        # the largest remainders get what is missing
        for k in np.argsort(counts - exact)[: draws - int(counts.sum())]:
            counts[k] += 1
        return [self._drawn(form, n) for form, n in zip(forms, counts, strict=True) if n]

    def _drawn(self, form: LossForm, n: int) -> _Group:
        mean, lower = np.array(form.mean), np.zeros((len(form.mean),) * 2)
        for i, row in enumerate(form.cov):
            lower[i, : i + 1] = row
        values, vectors = np.linalg.eigh(lower + np.tril(lower, -1).T)
        rng = np.random.default_rng(0)
        # antithetic pairs: the mean of the draws is the mean
        half = rng.standard_normal(((n + 1) // 2, len(mean)))
        z = np.concatenate([half, -half])[:n]
        deviations = (z * np.sqrt(np.clip(values, 0.0, None))) @ vectors.T
        if self.record.noise_df is not None:
            df = self.record.noise_df
            levels = (rng.permutation(len(half)) + 0.5) / len(half)  # the same for both of a pair
            deviations /= np.sqrt(np.tile(chi2_quantile(levels, df) / df, 2)[:n])[:, None]
        parameters = mean + deviations
        coefficients, theta = parameters[:, :-5], parameters[:, -5:]
        # a t with one degree of freedom has draws beyond what floats hold
        reach = np.array([self.frame.high - self.frame.low + FARTHEST] * 2)
        theta[:, :2] = np.clip(theta[:, :2], self.frame.low - reach, self.frame.high + reach)
        theta[:, 3] = np.clip(theta[:, 3], *GAIN_POWERS)
        shift = self._misfit(form.form, theta, coefficients) * rng.standard_normal(n)
        of_draws, y = theta[:, None, :], self.grid
        return _Group(
            theta,
            coefficients,
            shift,
            transition(form.form, of_draws, np.exp(y), self.frame),
            _speed(of_draws, y, self.frame),
        )

    def _misfit(self, form: str, theta: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        """(D,) root mean square over the depths of how far δ moves the transition away from the form's, in ln N."""
        y = np.linspace(math.log(self.frame.shallowest), math.log(self.frame.deepest), SHIFT_POINTS)
        x = transition(form, theta[:, None, :], np.exp(y), self.frame)
        inside = (x >= self.record.low) & (x <= self.record.high)
        at = np.clip(x, self.record.low, self.record.high)
        slope = np.einsum("dgt,dt->dg", self._departures(at, y), coefficients)
        speed = np.maximum(theta[:, 2:3], 1e-6) * np.exp((1.0 - theta[:, 3:4]) * (y - self.frame.centre[1]))
        moved = np.clip(slope / speed, -LARGEST_SHIFT, LARGEST_SHIFT) ** 2
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
            slope, half_step = self._slopes(x), np.diff(self.grid) / 2.0
            running = np.zeros_like(slope)
            areas = slope[:, 1:] + slope[:, :-1]
            areas *= half_step
            np.cumsum(areas, axis=1, out=running[:, 1:])
            self._kept[x] = slope, running
        return self._kept[x]

    @cached_property
    def _inside(self) -> slice:
        """The points of the grid at the depths trained."""
        first, last = (math.log(depth) for depth in (self.frame.shallowest, self.frame.deepest))
        return slice(*np.searchsorted(self.grid, (first - 1e-9, last + 1e-9)).tolist())

    def _slopes(self, x: float) -> np.ndarray:
        at = min(max(x, self.record.low), self.record.high)
        outside = min(1.0, abs(x - at))
        terms = self._departures(at, self.grid[self._inside])
        rows = []
        for group in self.groups:
            lead = (x + outside * group.shift[:, None]) - group.transition
            slope = _gradient(lead, group.speed, group.theta[:, 4:5])
            slope[:, self._inside] += group.coefficients @ terms.T
            rows.append(slope)
        return np.concatenate(rows) if len(rows) > 1 else rows[0]

    def profile(self, x: float) -> np.ndarray:
        """(D, G) loss on the grid above that of the grid's first depth, nats."""
        return self._at(x)[1]

    def drawn_depths(self, x: float) -> np.ndarray:
        """(D,) ln of the best depth at x = ln axis; ±inf where the loss falls up to an end of the grid."""
        slope, running = self._at(x)
        step = np.diff(self.grid)
        best, rows, last = running.argmin(axis=1), np.arange(len(running)), len(self.grid) - 1
        # the zero of the slope beside the lowest point of the grid
        here = slope[rows, best]
        left = np.clip(np.where(here > 0, best - 1, best), 0, last - 1)
        low, high = slope[rows, left], slope[rows, left + 1]
        crosses = (low <= 0) & (high > 0)
        share = np.where(crosses, -low / np.where(crosses, high - low, 1.0), best - left)
        found = self.grid[left] + share * step[left]
        return np.where(best == last, np.inf, np.where((best == 0) & (here > 0), -np.inf, found))

    def at(self, n: float) -> Depth:
        """The best depth at a size (a value of the axis), with the interval of the fit's confidence."""
        return summary(self.drawn_depths(math.log(n)), self.record.confidence)

    def optimum(self, x: float) -> Optimum | None:
        """Best depth at ln axis x among the depths that have shapes of that size; an end beyond them is None. None with
        fewer than three such depths."""
        present = [span.depth for span in self.record.spans if span.low - 1e-9 <= x <= span.high + 1e-9]
        if len(present) < 3:
            return None
        found = summary(self.drawn_depths(x), self.record.confidence)
        first, last = float(min(present)), float(max(present))
        middle = found.depth
        edge = None
        if middle is None or not first < middle < last:
            edge = "below" if middle is not None and middle <= first else "above"
        return Optimum(
            ln_x=x,
            depth=None if edge else middle,
            depth_low=found.low if found.low is not None and found.low > first and edge != "below" else None,
            depth_high=found.high if found.high is not None and found.high < last and edge != "above" else None,
            loss=self.level(x),
            at_edge=edge,
            depth_min=first,
            depth_max=last,
        )

    def penalties(self, n: float, depths: np.ndarray) -> np.ndarray:
        """(D, M) nats that ``depths`` lose at a size against the best depth."""
        running = self.profile(math.log(n))
        values = self._between(running, np.log(np.asarray(depths, dtype=float)))
        return np.maximum(values - running.min(axis=1, keepdims=True), 0.0)

    def losses(self, x: float) -> tuple[np.ndarray, np.ndarray]:
        """(ln L of the depths trained (M,), losses there (D, M) in nats) at ln axis x inside the data."""
        middle = self.frame.centre[1]
        running = self.profile(x)
        at_middle = self._between(running, np.array([middle]))[:, 0]
        shared = np.concatenate([group.coefficients @ self.frame.basis(x, middle)[0] for group in self.groups])
        return self.grid[self._inside], running[:, self._inside] + (shared - at_middle)[:, None]

    def differences(self, x: np.ndarray, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
        """(P, 1 + D, M) loss of the shallower less loss of the deeper net of each pair at ln axis x (M,): the mean of
        the draws first."""
        shallow, deep = np.log(np.array(pairs, dtype=float)).T
        out = np.empty((len(pairs), 1 + sum(len(group.theta) for group in self.groups), len(x)))
        for m, value in enumerate(x):
            running = self.profile(float(value))
            out[:, 1:, m] = (self._between(running, shallow) - self._between(running, deep)).T
        out[:, 0] = out[:, 1:].mean(axis=1)
        return out

    def _between(self, running: np.ndarray, y: np.ndarray) -> np.ndarray:
        """(D, M) the running integral (D, G) at y (M,), linear between the points of the grid, constant beyond."""
        left = np.clip(np.searchsorted(self.grid, y - 1e-9) - 1, 0, len(self.grid) - 2)
        share = np.clip((y - self.grid[left]) / (self.grid[left + 1] - self.grid[left]), 0.0, 1.0)
        return running[:, left] * (1.0 - share) + running[:, left + 1] * share

    def level(self, x: float) -> float:
        """Loss of the best depth among those trained at ln axis x, nats per token."""
        return float(self.losses(x)[1].mean(axis=0).min())

    @property
    def measured(self) -> bool:
        """Whether the data themselves bound the best depth on both sides at some size."""
        return any(None not in (row.depth, row.depth_low, row.depth_high) for row in self.record.optima)


def summary(ln_depths: np.ndarray, confidence: float) -> Depth:
    """Median and ends of draws of the best depth; what is infinite has no bound."""
    tail = (1.0 - confidence) / 2.0
    ordered = np.sort(ln_depths)
    picks = (ordered[round(q * (len(ordered) - 1))] for q in (0.5, tail, 1.0 - tail))
    middle, low, high = (math.exp(v) if math.isfinite(v) else None for v in picks)
    return Depth(middle, low, high)


def with_optima(record: Surface) -> Surface:
    """The record with the best depths at a few sizes."""
    surface = LossSurface(record)
    found = [row for row in (surface.optimum(float(x)) for x in np.linspace(record.low, record.high, ROWS)) if row]
    return replace(record, optima=tuple(SizedOptimum(**vars(row), n_params=math.exp(row.ln_x)) for row in found))


def forms_left(record: Surface) -> Sequence[LossForm]:
    """The forms that are not rejected, the most probable first."""
    return sorted((f for f in record.forms if not f.rejected), key=lambda f: -f.weight)
