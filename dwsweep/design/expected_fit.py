"""What ``fit`` is expected to leave open, from runs that do not exist yet: the covariance of their cell means, the
error of the crossing of two neighbouring depths, and what it will say about the best depth at a size.

The error of a crossing is linear in the noise (the delta method): cell means → loss difference of a pair at its
crossing, g = Σ w_i·mean_i, where w is the derivative of the PCHIP interpolation at the true curves; its bias is the
interpolation's error there → sd(ln N) = sd(g) / slope.

For the best depth ``fit`` estimates one linear mixed model of the loss of all depths per form of the transition law
(fit/surface). Its covariance does not depend on the losses, so with the losses of the prior in place of data:

1. every form is fitted to the noise-free means: its θ, its best depth at the target, its evidence;
2. where dloss/dl(x, y*) = 0 at x = ln N of the target, y* = ln L*, the parameters q move it by
   dy*/dq = −(d²loss/dl dq) / (d²loss/dl dy); the slope is that of fit/surface: with the departures from the
   form inside the data, by the form alone outside, which then misses by as much as it does inside;
3. the forms are averaged by their evidence, as in ``fit``: half of the central 68 % is what it will state. What it
   will say is their median, which noise moves by the sampling part of the covariance, and by what it does to the
   evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dwsweep.design.prior import Curves
from dwsweep.fit.laws import from_ends
from dwsweep.fit.surface.loss_forms import DERIVATIVE_STEPS, Frame, P, gradient, transition
from dwsweep.fit.surface.loss_model import Expected
from dwsweep.fit.surface.loss_surface import DEEPEST_FACTOR, LARGEST_SHIFT, SHIFT_POINTS

Cells = Mapping[tuple[int, int], frozenset[int]]
"""(depth, width) → the seeds that are run."""

SUP_T = 2.9  # typical critical value of the sup-t band at 95 %

INSIDE, OUTSIDE = 121, 121  # points of the grid of depths, within those trained and beyond
ONE_SD = (0.15865, 0.84135)
LOST = 1.0  # ln L; what counts as the error of a best depth that is not found


def covariance(cells: Cells, noise: float, seed_sd: float) -> np.ndarray:
    """(K, K) of the cell means, in the order of ``cells``, nats²: loss = cell + seed + noise.

    With n_i runs of cell i, and z_s the cells that seed s covers (m_s of them), the information is
    C⁻¹ = diag(n_i)/σ² − Σ_s τ²/(σ²(σ² + m_s τ²))·z_s z_sᵀ, τ the sd of what a seed shares. What all seeds of a shape
    share comes on top.
    """
    counts = np.array([len(seeds) for seeds in cells.values()], dtype=float)
    information = np.diag(counts / noise**2)
    for index in set().union(*cells.values()):
        covers = np.array([index in seeds for seeds in cells.values()], dtype=float)
        share = seed_sd**2 / (noise**2 * (noise**2 + covers.sum() * seed_sd**2))
        information -= share * np.outer(covers, covers)
    return np.linalg.inv(information)


@dataclass(frozen=True)
class PairError:
    """What a design leaves on one transition."""

    shallow: int
    deep: int
    n_params: float  # of the expected crossing
    width: float  # of the shallower net there
    inside: bool  # whether both depths have sizes on both sides of it
    se_ln_n: float | None
    bias_ln_n: float | None  # of interpolating between these sizes
    power: float | None  # probability that `fit` will say `crossed`


@dataclass(frozen=True)
class Design:
    """Shapes (depth, width), sorted, and the covariance C (K, K) of their means, luck of a shape included."""

    curves: Curves
    shapes: Sequence[tuple[int, int]]
    C: np.ndarray

    @cached_property
    def nodes(self) -> Mapping[int, np.ndarray]:
        """ln N of every depth's shapes, rising."""
        return {
            depth: np.array([math.log(12 * d * w**2) for d, w in self.shapes if d == depth])
            for depth in self.curves.depths
        }

    def pairs(self) -> tuple[PairError, ...]:
        """One row per pair of neighbouring depths."""
        return tuple(
            self._pair(shallow, deep, x)
            for (shallow, deep), x in zip(pairwise(self.curves.depths), self.curves.crossings, strict=True)
        )

    def _pair(self, shallow: int, deep: int, x: float) -> PairError:
        n = math.exp(x)
        width = math.sqrt(n / (12 * shallow))
        if not all(len(at) > 1 and at[0] < x < at[-1] for at in (self.nodes[shallow], self.nodes[deep])):
            return PairError(shallow, deep, n, width, False, None, None, None)
        weights, bias = self.difference(shallow, deep, x)
        slope = self.curves.slope(shallow, deep)
        error = math.sqrt(float(weights @ self.C @ weights)) / slope
        # the crossing found is where the interpolated difference vanishes
        return PairError(shallow, deep, n, width, True, error, -bias / slope, self._power(shallow, deep, x))

    def difference(self, shallow: int, deep: int, x: float) -> tuple[np.ndarray, float]:
        """(weights (K,) of all cells in the interpolated difference at ``x``, its interpolation error in nats)."""
        weights, bias = np.zeros(len(self.shapes)), 0.0
        for depth, sign in ((shallow, 1.0), (deep, -1.0)):
            own, error = self._interpolation(depth, x)
            weights[[i for i, shape in enumerate(self.shapes) if shape[0] == depth]] += sign * own
            bias += sign * error
        return weights, bias

    def _interpolation(self, depth: int, x: float) -> tuple[np.ndarray, float]:
        """Derivative of the interpolated loss of ``depth`` at ``x`` to each of its cells, and its error there."""
        from scipy.interpolate import PchipInterpolator

        nodes = self.nodes[depth]
        values = self.curves.loss(depth, nodes)
        K, step = len(nodes), 1e-5
        stack = np.vstack([values, values + step * np.eye(K), values - step * np.eye(K)])
        at = PchipInterpolator(nodes, stack, axis=1)(x)
        return (at[1 : K + 1] - at[K + 1 :]) / (2 * step), float(at[0] - self.curves.loss(depth, x))

    def _power(self, shallow: int, deep: int, crossing: float) -> float:
        """Chance that the difference is significant on both sides: at the farthest sizes shared, and half-way there."""
        from scipy.stats import norm

        a, b = self.nodes[shallow], self.nodes[deep]
        chance = 1.0
        for end in (max(a[0], b[0]), min(a[-1], b[-1])):
            best = 0.0
            for x in (end, (end + crossing) / 2):
                weights, _ = self.difference(shallow, deep, x)
                best = max(best, abs(self.curves.lead(shallow, deep, x)) / math.sqrt(float(weights @ self.C @ weights)))
            chance *= float(norm.cdf(best - SUP_T))
        return chance


@dataclass(frozen=True)
class FormDepth:
    """ln of the best depth at the target by one form. weight: by evidence. sd: what the form's fit states. sampling:
    the part of it that noise makes."""

    form: str
    weight: float
    ln_depth: float  # inf: the loss falls with depth up to the end of the grid
    sd: float
    sampling: float


@dataclass(frozen=True)
class ExpectedDepth:
    """stated: half of the central 68 % of the forms' mixture, in ln L. sampling: sd that noise gives ln L*.

    ln_depths, chances (Z,): what `fit` will say, the forms' median, and how likely; noise also moves the evidence, and
    so the weights, of the forms. inf: no best depth.
    """

    stated: float
    sampling: float
    ln_depths: np.ndarray
    chances: np.ndarray
    forms: tuple[FormDepth, ...]

    def error(self, true_depth: float) -> tuple[float, float]:
        """(rms, bias) of ln L* about the truth. A median that does not exist misses by LOST."""
        misses = np.clip(self.ln_depths - math.log(true_depth), -LOST, LOST)
        return math.sqrt(self.sampling**2 + float(self.chances @ misses**2)), float(self.chances @ misses)


def expected_depth(fits: Mapping[str, Expected], frame: Frame, target: float) -> ExpectedDepth:
    """Of all forms together at ``target`` (non-embedding parameters).

    The log evidence of a form that is less probable by Δ is taken to vary by √Δ about −Δ: between what simulated sweeps
    showed (1.3 at Δ = 3.6) and √(2Δ), that of two Gaussians whose means differ.
    """
    from scipy.special import ndtr

    best = max(fit.log_evidence for fit in fits.values())
    deficit = np.array([best - fit.log_evidence for fit in fits.values()])
    z, chances = np.polynomial.hermite_e.hermegauss(9)
    weights = np.exp(-deficit + np.sqrt(deficit) * np.concatenate([[0.0], z])[:, None])
    weights /= weights.sum(axis=1, keepdims=True)
    forms = tuple(
        _form_depth(form, fit, float(weight), frame, math.log(target))
        for (form, fit), weight in zip(fits.items(), weights[0], strict=True)
    )
    known = [i for i, form in enumerate(forms) if math.isfinite(form.ln_depth)]
    if not known:
        return ExpectedDepth(math.inf, math.inf, np.full(1, math.inf), np.ones(1), forms)
    centre, sd = (np.array([getattr(forms[i], name) for i in known]) for name in ("ln_depth", "sd"))
    at = np.linspace((centre - 6.0 * sd).min(), (centre + 6.0 * sd).max(), 2001)
    # what a form without a best depth weighs lies above everything
    below = weights[:, known] @ ndtr((at - centre[:, None]) / np.maximum(sd, 1e-9)[:, None])
    low, high = (float(np.interp(q, below[0], at, right=math.inf)) for q in ONE_SD)
    medians = np.array([np.interp(0.5, row, at, right=math.inf) for row in below[1:]])
    share = weights[0, known] / weights[0, known].sum()
    sampling = math.sqrt(float(share @ np.array([forms[i].sampling ** 2 for i in known])))
    return ExpectedDepth((high - low) / 2.0, sampling, medians, chances / chances.sum(), forms)


def _form_depth(form: str, fit: Expected, weight: float, frame: Frame, x: float) -> FormDepth:
    theta, coefficients = fit.mean[-P:], fit.mean[:-P]
    at = min(max(x, frame.low), frame.high)
    first, last = math.log(frame.shallowest), math.log(frame.deepest)
    below = np.linspace(0.0, first, INSIDE, endpoint=False) if first > 1e-9 else np.zeros(0)
    above = np.linspace(last, last + math.log(DEEPEST_FACTOR), OUTSIDE + 1)[1:]
    y = np.concatenate([below, np.linspace(first, last, INSIDE), above])
    inside = (y >= first - 1e-9) & (y <= last + 1e-9)
    slope = gradient(form, theta, x, y, frame)
    slope[inside] += frame.basis(at, y[inside], derivative=True) @ coefficients
    best = int(np.concatenate([[0.0], np.cumsum((slope[1:] + slope[:-1]) / 2.0 * np.diff(y))]).argmin())
    left = best - 1 if slope[best] > 0 else best
    if left < 0 or left >= len(y) - 1:
        return FormDepth(form, weight, math.copysign(math.inf, left), math.inf, math.inf)
    bend = (slope[left + 1] - slope[left]) / (y[left + 1] - y[left])
    optimum = float(y[left] - slope[left] / bend)
    move = np.zeros(len(fit.mean))
    if inside[left]:
        move[:-P] = frame.basis(at, optimum, derivative=True)
    for i, step in enumerate(DERIVATIVE_STEPS):
        up, down = theta + np.eye(P)[i] * step, theta - np.eye(P)[i] * step
        down[5] = max(down[5], 0.0)
        difference = gradient(form, up, x, np.array(optimum), frame) - gradient(form, down, x, np.array(optimum), frame)
        move[i - P] = float(difference) / (up[i] - down[i])
    stated, sampling = (max(float(move @ V @ move), 0.0) / bend**2 for V in (fit.covariance, fit.sampling))
    if x != at:
        point, step = np.array(optimum), 1e-4
        rise = gradient(form, theta, x + step, point, frame) - gradient(form, theta, x - step, point, frame)
        stated += (float(rise) / (2.0 * step) / bend * min(1.0, abs(x - at))) ** 2 * _misfit(form, fit, frame)
    return FormDepth(form, weight, optimum, math.sqrt(stated), math.sqrt(sampling))


def _misfit(form: str, fit: Expected, frame: Frame) -> float:
    """Mean square over the depths of how far the departures move the transition away from the form's, in ln N: by as
    much each draw of ``fit`` misses outside the sizes of the data."""
    theta, terms = fit.mean[-P:], len(fit.mean) - P
    y = np.linspace(math.log(frame.shallowest), math.log(frame.deepest), SHIFT_POINTS)
    x = transition(form, theta, np.exp(y), frame)
    inside = (x >= frame.low) & (x <= frame.high)
    if not inside.any():
        return LARGEST_SHIFT**2
    lines = frame.basis(x[inside], y[inside], derivative=True)
    second = fit.covariance[:terms, :terms] + np.outer(fit.mean[:-P], fit.mean[:-P])
    speed = max(theta[2], 1e-6) * np.exp((1.0 - theta[3]) * (y[inside] - frame.centre[1]))
    moved = np.einsum("gt,ts,gs->g", lines, second, lines) / speed**2
    return float(np.minimum(moved, LARGEST_SHIFT**2).mean())


def law_errors(form: str, fit: Expected, frame: Frame) -> tuple[float, float]:
    """sd that noise gives a and b of the form's law, from x_T at the ends."""
    first, last, step = frame.shallowest, frame.deepest, 1e-4
    ends = (fit.theta[:2] - np.log([12.0 * first, 12.0 * last])) / 2.0
    shift = np.eye(2) * step
    J = np.stack([from_ends(form, ends + s, first, last) - from_ends(form, ends - s, first, last) for s in shift], -1)
    J = J / (2.0 * step) / 2.0  # ln d is half of x_T
    n = len(fit.mean) - P
    a, b = np.sqrt(np.diagonal(J @ fit.sampling[n : n + 2, n : n + 2] @ J.T))
    return float(a), float(b)
