"""The truth that a sweep is planned against: where the best depth is expected, what a layer gains, and the noise.

What ``fit`` is expected to leave open, from runs that do not exist yet: the covariance of their cell means, the
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
from pathlib import Path

import numpy as np

from dwsweep.errors import InputError
from dwsweep.fit import laws
from dwsweep.fit.guideline import guides, map_law
from dwsweep.fit.laws import FORMS, Law
from dwsweep.fit.surface import DEEPEST_FACTOR, LARGEST_SHIFT, SHIFT_POINTS, Expected
from dwsweep.fit.surface_model import (
    BRIDGE_WAVES,
    DERIVATIVE_STEPS,
    LN_TURN_MEAN,
    SATURATION,
    Frame,
    P,
    bridges,
    fall,
    gradient,
    height,
    transition,
)
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult, Surface

NOISE = 0.003  # ASSUMPTION: nats, sd of one run's loss without what its seed shares with other shapes
SHAPE_RATIO = 0.5  # ASSUMPTION: sd of what all seeds of a shape share off the curve (tuning), in units of the noise
SEED_RATIO = 1.5  # ASSUMPTION: sd of what a seed shares over all shapes, in units of the noise


@dataclass(frozen=True)
class Gain:
    """Gain of one more layer at depth l and x = ln N: at_six·(l/6)^(−power)·e^(−fall·(x − size))·S(x − x_T(l)) nats,
    S(u) = u·exp(skew·u/√(u² + turn²))/√(1 + saturation·u²).

    The assumed numbers are slopes in ln N where two depths cross, which is what a design has to resolve. ``guide``
    prices a depth at a fixed size instead, by 0.024·(ln L/L*)² nats of newer public data. About the published law
    these slopes make that factor 0.125 at 6 layers, 0.060 at 24 and 0.048 at 48. A cost must not be read off
    them.
    """

    # ASSUMPTION: a power law through the slopes of the loss differences of 4/8, 8/12 and 16/24 layers in public data,
    # 0.106, 0.030 and 0.016 nats per unit of ln N
    at_six: float = 0.025
    power: float = 2.1
    # ASSUMPTION; three public tables say 0.02 to 0.07, each ± 0.2. Without any, a fifth of the law's errors is left
    # out, since what a fit must find of the skew is then of second order
    skew: float = 0.0
    ln_turn: float = LN_TURN_MEAN  # of ln N
    saturation: float = 0.0
    fall: float = 0.0  # ASSUMED with the rest: public slopes are those where depths cross
    size: float = 0.0  # ln N


@dataclass(frozen=True)
class Prior:
    """A truth to plan against.

    law: x_T(L) = ln 12L + 2·ln d(L) is the ln N at which depth L is the best one. noise, seed_sd: nats. shape_sd: nats,
    what all seeds of a shape share in addition to the curve. basis: where each comes from.
    """

    law: Law
    noise: float
    seed_sd: float
    shape_sd: float
    basis: tuple[str, ...]
    gain: Gain = Gain()

    def theta(self, frame: Frame) -> np.ndarray:
        """(P,) the parameters of ``fit``'s model of the loss (surface_model.py)."""
        ends = np.array([frame.shallowest, frame.deepest])
        x_t = np.log(12.0 * ends) + 2.0 * self.law.equation.ln_width(np.asarray(self.law.theta), ends)
        middle = math.exp(frame.centre[1])
        speed = self.gain.at_six * (middle / 6.0) ** -self.gain.power * middle
        speed *= math.exp(-self.gain.fall * (frame.centre[0] - self.gain.size))
        return np.array(
            [*x_t, speed, self.gain.power, self.gain.fall, self.gain.skew, self.gain.ln_turn, self.gain.saturation]
        )

    def losses(self, depth: np.ndarray, x: np.ndarray, frame: Frame) -> np.ndarray:
        """(K,) losses without noise at depth (K,) and x = ln N (K,)."""
        rise = height(self.law.form, self.theta(frame), x, np.log(depth), frame)
        return 1.5 + 8.0 * np.exp(-0.1 * x) + rise


@dataclass(frozen=True)
class Curves:
    """The prior's loss curves of some depths, and where neighbours cross."""

    prior: Prior
    depths: tuple[int, ...]

    @cached_property
    def frame(self) -> Frame:
        return Frame(0.0, 1.0, float(self.depths[0]), float(self.depths[-1]))

    def loss(self, depth: int, x: np.ndarray | float) -> np.ndarray:
        """Nats per token of ``depth`` at x = ln N (any shape)."""
        at = np.asarray(x, dtype=float)
        flat = at.ravel()
        return self.prior.losses(np.full(len(flat), float(depth)), flat, self.frame).reshape(at.shape)

    def lead(self, shallow: int, deep: int, x: float) -> float:
        """Loss of the shallower depth above that of the deeper one, nats."""
        return float(self.loss(shallow, x) - self.loss(deep, x))

    def crossing(self, shallow: int, deep: int) -> float:
        """ln N at which two depths lose the same."""
        from scipy.optimize import brentq

        x_t = self.prior.theta(Frame(0.0, 1.0, float(shallow), float(deep)))[:2]
        return float(brentq(lambda x: self.lead(shallow, deep, x), min(x_t) - 0.1, max(x_t) + 0.1))

    @cached_property
    def crossings(self) -> list[float]:
        """Crossings of all neighbours, shallow to deep."""
        return [self.crossing(a, b) for a, b in pairwise(self.depths)]

    def slope(self, shallow: int, deep: int) -> float:
        """Slope of the difference at the crossing, nats per unit of ln N."""
        x, step = self.crossing(shallow, deep), 1e-3
        return (self.lead(shallow, deep, x + step) - self.lead(shallow, deep, x - step)) / (2 * step)


def make_prior(fit: str | Path | None, noise: float | None) -> tuple[Prior, dict[tuple[int, int], int]]:
    """The prior, and the finished runs by shape (depth, width) → how many.

    Args:
        fit: a fit's directory or fit.json: its most probable form (or the published law for want of an own), its
            gains, its noise, and its finished runs. None: the published law, assumed gains, nothing finished.
        noise: sd of one run in nats; None: measured in the fit, else assumed.

    Raises:
        InputError: a noise that is not positive, or no fit at ``fit``.
    """
    if noise is not None and not 1e-9 <= noise < 10:
        raise InputError(f"--noise: {noise}; must be nats above 0 (1e-9) and below 10, such as 0.003")
    found = fit_record.read(fit) if fit is not None else None
    own = guides(found) if found else None
    law, gain = laws.published(), Gain()
    if own and found and found.surface:
        fitted = map_law(own[0])
        if fitted is not None:
            law, gain = fitted, _gain(found.surface, fitted.form)
    basis = [f"law: {law.name}"]
    if own:
        basis.append(f"gain of a layer: {_power_law(gain)}, as fitted")
    else:
        basis.append(f"gain of a layer: ASSUMED, {_power_law(gain)}, from public data at depths 4 to 24")
    measured = _measured_noise(found)
    if noise is not None:
        sigma = noise
        basis.append(f"noise: {sigma:g} nats per run, as given")
    elif measured is not None:
        sigma = measured
        basis.append(f"noise: {sigma:.2g} nats per run, measured in the fit")
    else:
        sigma = NOISE
        basis.append(f"noise: {sigma:g} nats per run, ASSUMED; give --noise, or --fit with runs of several seeds")
    if found is not None and found.noise.shape_sd is not None:
        shape_sd = found.noise.shape_sd
        basis.append(f"noise of a shape, which seeds do not average out: {shape_sd:.2g} nats, measured in the fit")
    else:
        shape_sd = SHAPE_RATIO * sigma
        basis.append(f"noise of a shape, which seeds do not average out: {shape_sd:.2g} nats, ASSUMED")
    cells = found.cells if found else []
    done = {(cell.depth, int(cell.width)): cell.n for cell in cells if cell.n and not cell.excluded}
    return Prior(law, sigma, SEED_RATIO * sigma, shape_sd, tuple(basis), gain), done


def _gain(surface: Surface, form: str) -> Gain:
    speed, power, fall, skew, ln_turn, saturation = next(f for f in surface.forms if f.form == form).mode[-6:]
    depths = [span.depth for span in surface.spans]
    middle = math.sqrt(min(depths) * max(depths))
    return Gain(
        max(speed, 1e-5) / middle * (middle / 6.0) ** power,
        power,
        skew,
        ln_turn,
        max(saturation, 0.0),
        fall,
        (surface.low + surface.high) / 2.0,
    )


def _power_law(gain: Gain) -> str:
    return f"{gain.at_six:.2g}·(L/6)^{-gain.power:.2g} nats per unit of ln N"


def _measured_noise(fit: FitResult | None) -> float | None:
    """Root mean square over depths of the fit's noise of one run."""
    values = [sigma for sigma in (fit.noise.sigma or {}).values() if sigma] if fit else []
    return float(np.sqrt(np.mean(np.square(values)))) if values else None


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
    """Expected errors of one transition under a design."""

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
    """Shapes (depth, width), sorted, and the covariance C (K, K) of their means, scatter between shapes included."""

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
        from scipy.special import ndtr  # norm.cdf without the import of scipy.stats

        a, b = self.nodes[shallow], self.nodes[deep]
        chance = 1.0
        for end in (max(a[0], b[0]), min(a[-1], b[-1])):
            best = 0.0
            for x in (end, (end + crossing) / 2):
                weights, _ = self.difference(shallow, deep, x)
                best = max(best, abs(self.curves.lead(shallow, deep, x)) / math.sqrt(float(weights @ self.C @ weights)))
            chance *= float(ndtr(best - SUP_T))
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
    """The best depth by all forms together at ``target`` (non-embedding parameters).

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
    # the weight of a form without a best depth lies above everything
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
        down[SATURATION] = max(down[SATURATION], 0.0)
        difference = gradient(form, up, x, np.array(optimum), frame) - gradient(form, down, x, np.array(optimum), frame)
        move[i - P] = float(difference) / (up[i] - down[i])
    stated, sampling = (max(float(move @ V @ move), 0.0) / bend**2 for V in (fit.covariance, fit.sampling))
    stated += (float(fall(theta, at, frame)) * fit.between / bend) ** 2 * _bending(optimum, fit.depths)
    if x != at:
        point, step = np.array(optimum), 1e-4
        rise = gradient(form, theta, x + step, point, frame) - gradient(form, theta, x - step, point, frame)
        stated += (float(rise) / (2.0 * step) / bend * min(1.0, abs(x - at))) ** 2 * _misfit(form, fit, frame)
    return FormDepth(form, weight, optimum, math.sqrt(stated), math.sqrt(sampling))


def _bending(y: float, depths: np.ndarray) -> float:
    """Variance of the slope of a unit bridge between ``depths`` at y = ln L."""
    waves = (len(depths) - 1) * BRIDGE_WAVES
    slopes, _ = bridges(np.array([y]), depths, np.eye(waves).reshape(waves, -1, BRIDGE_WAVES))
    return float((slopes**2).sum())


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
    law = FORMS[form].from_ends
    J = np.stack([law(ends + s, first, last) - law(ends - s, first, last) for s in shift], -1)
    J = J / (2.0 * step) / 2.0  # ln d is half of x_T
    n = len(fit.mean) - P
    a, b = np.sqrt(np.diagonal(J @ fit.sampling[n : n + 2, n : n + 2] @ J.T))
    return float(a), float(b)
