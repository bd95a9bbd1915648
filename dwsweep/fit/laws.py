"""The forms that a width law may take, all with two parameters, and what each says about a budget.

exponential  ln d = a + b·L      (Levine et al. 2020)
linear       d = a + b·L         (a constant aspect ratio in the limit; Liu et al. 2026: width grows with depth)
power        ln d = a + b·ln L   (D_crit ∝ d^0.44 in "The Depth Delusion", 2026)

d is the width of the shallower net where depth L stops being the better one, and N = 12·L·d².
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from dwsweep import published_law

FORMS = ("exponential", "linear", "power")
DEPTH_LIMIT = 1.0e5
# beyond this factor outside the range of its transitions a law gives no number; 1T is 1,667 times the published range
EXTRAPOLATION_LIMIT = 2000.0
AS_PRINTED = 1.005  # a size with three digits is the size that it stands for
REFIT_DEPTHS = (6, 12, 18, 24, 30, 36)  # of the published law, by which its rivals are fitted


def ln_width(form: str, theta: np.ndarray, depth: np.ndarray | float) -> np.ndarray:
    """ln d at ``depth`` for theta (..., 2), broadcast; NaN where a linear law gives no positive width."""
    a, b = np.asarray(theta)[..., 0], np.asarray(theta)[..., 1]
    if form == "exponential":
        return a + b * depth
    if form == "power":
        return a + b * np.log(depth)
    width = a + b * depth
    return np.log(np.where(width > 0, width, np.nan))


def from_ends(form: str, ends: np.ndarray, first: float, last: float) -> np.ndarray:
    """theta (..., 2) of the law with ln d = ends[..., 0] at depth ``first`` and ends[..., 1] at depth ``last``."""
    u, v = ends[..., 0], ends[..., 1]
    if form == "exponential":
        b = (v - u) / (last - first)
        return np.stack([u - b * first, b], axis=-1)
    if form == "power":
        b = (v - u) / np.log(last / first)
        return np.stack([u - b * np.log(first), b], axis=-1)
    slope = (np.exp(v) - np.exp(u)) / (last - first)
    return np.stack([np.exp(u) - slope * first, slope], axis=-1)


def optimal_depth(form: str, theta: np.ndarray, n_params: float) -> np.ndarray:
    """L*(N) for theta (..., 2): the depth with 12·L·d(L)² = N; NaN where N(L) does not grow with L, or beyond 1e5.

    exponential: L = W(2b·N·e^(−2a)/12)/(2b), W the Lambert function. power: L = (N·e^(−2a)/12)^(1/(1 + 2b)). linear: by
    bisection.
    """
    theta = np.asarray(theta, dtype=float)
    a, b = theta[..., 0], theta[..., 1]
    grows = (b > 0) if form != "power" else (b > -0.5)
    if form != "linear":
        from scipy.special import lambertw

        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            scaled = n_params * np.exp(-2.0 * a) / 12.0
            if form == "power":
                depth = scaled ** (1.0 / (1.0 + 2.0 * b))
            else:
                depth = lambertw(2.0 * b * scaled).real / (2.0 * b)
        return np.where(grows & (depth < DEPTH_LIMIT), depth, np.nan)
    target = np.log(n_params / 12.0)
    low = np.full(theta.shape[:-1], -6.0)
    high = np.full(theta.shape[:-1], np.log(DEPTH_LIMIT))

    def excess(ln_depth: np.ndarray) -> np.ndarray:
        depth = np.exp(ln_depth)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            value = ln_depth + 2.0 * ln_width(form, theta, depth) - target
        return np.where(np.isnan(value), -np.inf, value)

    valid = grows & (excess(low) < 0) & (excess(high) > 0)
    for _ in range(60):
        middle = (low + high) / 2.0
        above = excess(middle) > 0
        high = np.where(above, middle, high)
        low = np.where(above, low, middle)
    return np.where(valid, np.exp((low + high) / 2.0), np.nan)


def outside(n_params: float, valid_from: float, valid_to: float) -> float:
    """Factor by which a size lies outside a range; 1 inside, and where it is an end of it as printed."""
    factor = max(n_params / valid_to, valid_from / n_params)
    return factor if factor > AS_PRINTED else 1.0


@dataclass(frozen=True)
class Law:
    """A law with its uncertainty.

    theta: (a, b) of ``form``. valid_from, valid_to: non-embedding parameters that its transitions span. region: (R, 2)
    parameter pairs on or inside the confidence region, whose extremes give every profile interval. error_tag: where
    the errors come from, when not from this fit.
    """

    name: str
    form: str
    theta: tuple[float, float]
    valid_from: float
    valid_to: float
    region: np.ndarray = field(repr=False)
    error_tag: str = ""

    @property
    def limit(self) -> float:
        """Factor outside the range from which on there is no number."""
        return EXTRAPOLATION_LIMIT

    def depth(self, n_params: float) -> tuple[float | None, float | None, float | None]:
        """(L*, low, high) at ``n_params``; None for a value that does not exist, or an end without a bound."""
        best = float(optimal_depth(self.form, np.asarray(self.theta), n_params))
        around = optimal_depth(self.form, self.region, n_params)
        finite = around[np.isfinite(around)]
        if not np.isfinite(best):
            return None, None, None
        low = float(min(best, finite.min())) if len(finite) else None
        high = float(max(best, finite.max())) if len(finite) == len(around) and len(finite) else None
        return best, low, high

    def ln_width_band(self, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ln d, low, high) at depths (M,): at fixed depth, not at fixed budget."""
        best = ln_width(self.form, np.asarray(self.theta), depth)
        around = ln_width(self.form, self.region[:, None, :], depth)
        # fmin and fmax skip NaN, and stay NaN where no law of the region gives a width
        return best, np.fmin.reduce(around, axis=0), np.fmax.reduce(around, axis=0)

    def extrapolation(self, n_params: float) -> float:
        """Factor by which ``n_params`` lies outside the range of validity; 1 inside."""
        return outside(n_params, self.valid_from, self.valid_to)


def published() -> Law:
    """The published law, with 95 % intervals from the recalled covariance."""
    theta = (published_law.A, published_law.B)
    region = ellipse(theta, np.asarray(published_law.COVARIANCE), 1.959964**2)
    low, high = published_law.TRAINED_N_PARAMS
    return Law(published_law.NAME, "exponential", theta, low, high, region, published_law.COVARIANCE_TAG)


@cache
def published_rivals() -> tuple[Law, ...]:
    """The linear and the power form through points of the published law, by least squares in ln d_x; without errors.

    They show how far apart forms drift that could not be told apart on the trained depths.
    """
    depths = np.asarray(REFIT_DEPTHS, dtype=float)
    target = published_law.A + published_law.B * depths
    power = np.polyfit(np.log(depths), target, 1)[::-1]
    linear = _linear_in_log(depths, target)
    return tuple(
        Law(
            f"{form} form through the published law's points",
            form,
            (float(theta[0]), float(theta[1])),
            *published_law.TRAINED_N_PARAMS,
            np.asarray(theta, dtype=float)[None],
        )
        for form, theta in (("linear", linear), ("power", power))
    )


def _linear_in_log(depths: np.ndarray, ln_width_target: np.ndarray) -> np.ndarray:
    """(a, b) of d = a + b·L by least squares in ln d: Gauss–Newton from the straight line's own fit."""
    theta = np.polyfit(depths, np.exp(ln_width_target), 1, w=np.exp(-ln_width_target))[::-1].copy()
    for _ in range(50):
        width = np.exp(ln_width("linear", theta, depths))
        jacobian = np.stack([1.0 / width, depths / width], axis=1)
        theta = theta + np.linalg.lstsq(jacobian, ln_width_target - np.log(width), rcond=None)[0]
    return theta


def ellipse(centre: tuple[float, float], covariance: np.ndarray, level: float, points: int = 360) -> np.ndarray:
    """(points, 2) boundary of {θ : (θ − c)ᵀ Σ⁻¹ (θ − c) ≤ level}; extremes of a function of θ over it are its profile
    interval (exact for linear functions)."""
    angle = np.linspace(0.0, 2.0 * np.pi, points, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.asarray(centre) + math.sqrt(level) * circle @ np.linalg.cholesky(covariance).T
