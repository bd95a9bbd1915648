"""Laws of width: forms with two constants each, and the best depth at a budget by each.

d is the width of the shallower net where depth L stops being the better one, and N = 12·L·d². A new form is a class and
an entry of ``FORMS``: the losses weigh it (model.py), and text and figures show it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dwsweep import published_law
from dwsweep.interval import NORMAL_95

DEPTH_LIMIT = 1.0e5
# factor outside the transitions beyond which a law gives no number; 1T is 1,667 times the published range
EXTRAPOLATION_LIMIT = 2000.0
AS_PRINTED = 1.005  # tolerance of a size given with three digits
# ASSUMPTION: factor in N by which another recipe may shift the transition of a depth, at 95 %
RECIPE_FACTOR = 4.0
GRID_STEP = float(np.median(np.diff(published_law.DEPTHS)))  # layers between neighbouring depths of the published law


class LawForm(ABC):
    """A form of the width law: d(L) for two constants theta = (a, b), which is (..., 2) everywhere and broadcasts. left
    and right: the two sides of the equation without the constants."""

    name: str
    left: str
    right: str
    least_b = 0.0  # slope at which N stops growing with L

    def sentence(self, a: str, b: str) -> str:
        """State the law with its constants as text: ``ln d_x = 5.039 + 0.0555·L``."""
        return f"{self.left}_x = {a} {'−' if b.startswith('-') else '+'} {b.lstrip('-')}·{self.right}"

    def right_of(self, depth: np.ndarray | float) -> np.ndarray:
        """The right side at ``depth``: L."""
        return np.asarray(depth, dtype=float)

    def left_of(self, ln_width: np.ndarray) -> np.ndarray:
        """The left side at ``ln_width``: ln d."""
        return ln_width

    def ln_width(self, theta: np.ndarray, depth: np.ndarray | float) -> np.ndarray:
        """ln d at ``depth``; NaN where the form gives no positive width."""
        theta = np.asarray(theta)
        return theta[..., 0] + theta[..., 1] * self.right_of(depth)

    def through(self, ln_width: np.ndarray, depth: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
        """theta of the law by least squares of its two sides: ln d (…, M) at ``depth`` (…, M), of ``weight`` (M,), by
        default alike; not finite of one depth."""
        left, weight = self.left_of(ln_width), np.ones(ln_width.shape[-1]) if weight is None else weight
        share = weight / weight.sum()
        right = np.broadcast_to(self.right_of(depth), left.shape)
        middle, centre = left @ share, right @ share
        away = right - centre[..., None]
        with np.errstate(divide="ignore", invalid="ignore"):  # of points of one depth
            b = (away * (left - middle[..., None])) @ share / (away**2 @ share)
        return np.stack([middle - b * centre, b], axis=-1)

    def share(self, y: np.ndarray, span: tuple[float, float]) -> np.ndarray:
        """J: 0 to 1 over the ``span`` of y = ln L, as the right side grows."""
        first, last = (self.right_of(math.exp(end)) for end in span)
        return (self.right_of(np.exp(y)) - first) / (last - first)

    def parts(self, y: np.ndarray, span: tuple[float, float], ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """k and J of ln N(L) = x_T(y) = k + (1 − J)·x_lo + J·x_hi, where x_lo and x_hi are x_T at the ends of ``span``.
        ends: (x_lo, x_hi) about which a form that is not linear in them is linearised."""
        J = self.share(y, span)
        return y - (1.0 - J) * span[0] - J * span[1], J

    @abstractmethod
    def depth_of(self, theta: np.ndarray, n_params: float) -> np.ndarray:
        """Solve 12·L·d(L)² = N, where N grows with L."""

    def optimal_depth(self, theta: np.ndarray, n_params: float) -> np.ndarray:
        """L*(N): the depth with 12·L·d(L)² = N; NaN where N(L) does not grow with L, or beyond 1e5 layers."""
        theta = np.asarray(theta, dtype=float)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            depth = self.depth_of(theta, n_params)
        return np.where((theta[..., 1] > self.least_b) & (depth < DEPTH_LIMIT), depth, np.nan)


class ExponentialLaw(LawForm):
    """Levine et al. 2020. L* = W(2b·N·e^(−2a)/12)/(2b), W the Lambert function."""

    name, left, right = "exponential", "ln d", "L"

    def depth_of(self, theta: np.ndarray, n_params: float) -> np.ndarray:
        from scipy.special import lambertw

        a, b = theta[..., 0], theta[..., 1]
        return lambertw(2.0 * b * (n_params * np.exp(-2.0 * a) / 12.0)).real / (2.0 * b)


class LinearLaw(LawForm):
    """A constant aspect ratio in the limit; Liu et al. 2026: width grows with depth."""

    name, left, right = "linear", "d", "L"

    def ln_width(self, theta: np.ndarray, depth: np.ndarray | float) -> np.ndarray:
        theta = np.asarray(theta)
        width = theta[..., 0] + theta[..., 1] * depth
        return np.log(np.where(width > 0, width, np.nan))

    def left_of(self, ln_width: np.ndarray) -> np.ndarray:
        return np.exp(ln_width)

    def parts(self, y: np.ndarray, span: tuple[float, float], ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        J = self.share(y, span)
        ln_d = (ends - np.array(span)) / 2.0
        low, high = np.exp(ln_d - ln_d.mean())
        width = np.maximum(low + (high - low) * J, 0.02 * min(low, high))
        x_T = y + 2.0 * (np.log(width) + ln_d.mean())
        share = np.clip(high * J / width, -1.0, 3.0)
        return x_T - (1.0 - share) * ends[0] - share * ends[1], share

    def depth_of(self, theta: np.ndarray, n_params: float) -> np.ndarray:
        """L = N/12d², d the positive root of d³ − a·d² = b·N/12: Newton's steps fall to it from above."""
        a, b = theta[..., 0], theta[..., 1]
        target = np.maximum(b, 0.0) * n_params / 12.0
        width = np.maximum(a, 0.0) + np.cbrt(target)
        for _ in range(100):
            before, width = width, width - (width**2 * (width - a) - target) / (width * (3.0 * width - 2.0 * a))
            if not np.any(width < before):  # only rounding is left
                break
        depth = n_params / 12.0 / width**2
        return np.where(depth > SHALLOWEST, depth, np.nan)


class PowerLaw(LawForm):
    """D_crit ∝ d^0.44 in "The Depth Delusion", 2026. L* = (N·e^(−2a)/12)^(1/(1 + 2b))."""

    name, left, right = "power", "ln d", "ln L"
    least_b = -0.5

    def right_of(self, depth: np.ndarray | float) -> np.ndarray:
        return np.log(depth)

    def depth_of(self, theta: np.ndarray, n_params: float) -> np.ndarray:
        return (n_params * np.exp(-2.0 * theta[..., 0]) / 12.0) ** (1.0 / (1.0 + 2.0 * theta[..., 1]))


SHALLOWEST = math.exp(-6.0)  # fewest layers of a linear law, whose N(L) may be positive at one layer
EXPONENTIAL, LINEAR, POWER = ExponentialLaw(), LinearLaw(), PowerLaw()
FORMS: Mapping[str, LawForm] = {form.name: form for form in (EXPONENTIAL, POWER, LINEAR)}


def outside(n_params: float, valid_from: float, valid_to: float) -> float:
    """Factor by which a size lies outside a range; 1 inside, and at an end as printed."""
    factor = max(n_params / valid_to, valid_from / n_params)
    return factor if factor > AS_PRINTED else 1.0


@dataclass(frozen=True)
class Law:
    """A law with its uncertainty.

    form: a name in FORMS, theta: its (a, b). valid_from, valid_to: non-embedding parameters that its transitions span.
    region: (R, 2) pairs on the edge of its confidence region, whose extremes are the ends of every interval.
    """

    name: str
    form: str
    theta: tuple[float, float]
    valid_from: float
    valid_to: float
    region: np.ndarray | None = field(default=None, repr=False)

    @property
    def equation(self) -> LawForm:
        return FORMS[self.form]

    def depth(self, n_params: float) -> tuple[float | None, float | None, float | None]:
        """(L*, low, high) at ``n_params``; None for a value that does not exist, or an end without a bound."""
        best = float(self.equation.optimal_depth(np.asarray(self.theta), n_params))
        if not np.isfinite(best):
            return None, None, None
        if self.region is None:
            return best, None, None
        around = self.equation.optimal_depth(self.region, n_params)
        finite = around[np.isfinite(around)]
        low = float(min(best, finite.min())) if len(finite) else None
        high = float(max(best, finite.max())) if len(finite) == len(around) and len(finite) else None
        return best, low, high

    def extrapolation(self, n_params: float) -> float:
        """Factor by which ``n_params`` lies outside the range of validity; 1 inside."""
        return outside(n_params, self.valid_from, self.valid_to)


def law_interval(laws: Sequence[Law], n_params: float, spacing: float) -> tuple[float | None, float | None]:
    """(low, high) of the best depth by laws that fit the same points; None: no bound.

    Over their own intervals, over recipes that have a transition at up to RECIPE_FACTOR times smaller or larger sizes,
    and up to the next depth of the law's grid, ``spacing`` layers deeper, with which a depth ties.
    """
    lows, highs = [], []
    for law in laws:
        depth, low, _ = law.depth(n_params / RECIPE_FACTOR)
        lows.append(depth if low is None else low)
        depth, _, high = law.depth(n_params * RECIPE_FACTOR)
        highs.append(None if depth is None or high is None else high + spacing)
    low = min((value for value in lows if value is not None), default=None)
    return low, None if None in highs else max(value for value in highs if value is not None)


def published() -> Law:
    """The published law, with 95 % intervals from the recalled covariance."""
    theta = (published_law.A, published_law.B)
    region = ellipse(theta, np.asarray(published_law.COVARIANCE), NORMAL_95**2)
    low, high = published_law.TRAINED_N_PARAMS
    return Law(published_law.NAME, EXPONENTIAL.name, theta, low, high, region)


def published_alternatives() -> tuple[Law, ...]:
    """The linear and the power form through points of the published law, by least squares in ln d_x at its depths 6 to
    36; without errors.

    They show how far forms diverge that are indistinguishable on the trained depths.
    """
    return tuple(
        Law(
            f"{form.name} form through the published law's points",
            form.name,
            theta,
            *published_law.TRAINED_N_PARAMS,
            np.asarray(theta)[None],
        )
        for form, theta in ((LINEAR, (48.605338, 24.338509)), (POWER, (3.5770174, 0.90969821)))
    )


def ellipse(centre: tuple[float, float], covariance: np.ndarray, level: float, points: int = 360) -> np.ndarray:
    """(points, 2) boundary of {θ : (θ − c)ᵀ Σ⁻¹ (θ − c) ≤ level}."""
    angle = np.linspace(0.0, 2.0 * np.pi, points, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.asarray(centre) + math.sqrt(level) * circle @ np.linalg.cholesky(covariance).T
