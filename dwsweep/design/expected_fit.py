"""What ``fit`` is expected to say about the best depth at a size, from runs that do not exist yet.

``fit`` estimates one linear mixed model of the loss of all depths per form of the transition law (fit/loss_model.py).
Its covariance does not depend on the losses, so with the losses of the prior in place of data:

1. every form is fitted to the noise-free means: its θ, its best depth at the target, its evidence;
2. where dloss/dl(x, y*) = 0 at x = ln N of the target, y* = ln L*, the parameters q move it by
   dy*/dq = −(d²loss/dl dq) / (d²loss/dl dy); the slope is that of fit/surface.py: with the departures from the form
   inside the data, by the form alone outside, which then misses by as much as it does inside;
3. the forms are averaged by their evidence, as in ``fit``: half of the central 68 % is what it will state. What it
   will say is their median, which noise moves by the sampling part of the covariance, and by what it does to the
   evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.laws import from_ends
from dwsweep.fit.loss_model import Expected
from dwsweep.fit.loss_terms import STEPS, Frame, gradient, transition
from dwsweep.fit.surface import DEEPEST_FACTOR, LARGEST_SHIFT, SHIFT_POINTS

INSIDE, OUTSIDE = 121, 121  # points of the grid of depths, within those trained and beyond
ONE_SD = (0.15865, 0.84135)
LOST = 1.0  # ln L; what counts as the error of a best depth that is not found


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
    theta, coefficients = fit.mean[-5:], fit.mean[:-5]
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
        move[:-5] = frame.basis(at, optimum, derivative=True)
    for i, step in enumerate(STEPS):
        up, down = theta + np.eye(5)[i] * step, theta - np.eye(5)[i] * step
        down[4] = max(down[4], 0.0)
        difference = gradient(form, up, x, np.array(optimum), frame) - gradient(form, down, x, np.array(optimum), frame)
        move[-5 + i] = float(difference) / (up[i] - down[i])
    stated, sampling = (max(float(move @ V @ move), 0.0) / bend**2 for V in (fit.covariance, fit.sampling))
    if x != at:
        point, step = np.array(optimum), 1e-4
        rise = gradient(form, theta, x + step, point, frame) - gradient(form, theta, x - step, point, frame)
        stated += (float(rise) / (2.0 * step) / bend * min(1.0, abs(x - at))) ** 2 * _misfit(form, fit, frame)
    return FormDepth(form, weight, optimum, math.sqrt(stated), math.sqrt(sampling))


def _misfit(form: str, fit: Expected, frame: Frame) -> float:
    """Mean square over the depths of how far the departures move the transition away from the form's, in ln N: by as
    much each draw of ``fit`` misses outside the sizes of the data."""
    theta, terms = fit.mean[-5:], len(fit.mean) - 5
    y = np.linspace(math.log(frame.shallowest), math.log(frame.deepest), SHIFT_POINTS)
    x = transition(form, theta, np.exp(y), frame)
    inside = (x >= frame.low) & (x <= frame.high)
    if not inside.any():
        return LARGEST_SHIFT**2
    lines = frame.basis(x[inside], y[inside], derivative=True)
    second = fit.covariance[:terms, :terms] + np.outer(fit.mean[:-5], fit.mean[:-5])
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
    n = len(fit.mean) - 5
    a, b = np.sqrt(np.diagonal(J @ fit.sampling[n : n + 2, n : n + 2] @ J.T))
    return float(a), float(b)
