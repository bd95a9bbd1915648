"""The model of the loss of all depths together, as a function of size and depth: what it is made of.

With x = ln N and y = ln L

    loss(x, y) = f0(x) + h(x, y; θ) + δ(x, y)

f0   what all depths share: a parabola in x, and higher Legendre polynomials that are shrunk.
h    what depth does if the transition follows a form of the law: one more layer gains κ·S(x − x_T), so that

         dh/dl = −c·(L/L_m)^(1−p)·(N/N_m)^(−a)·S(x − x_T(y)),    S(u) = u / √(1 + s·u²),    h = 0 at depth L_m

     with N_m and L_m in the middle and x_T(y) = ln 12L + 2·ln d(L) the size at which depth L is the best one (its
     inverse is the best depth), ln d exponential, power or linear in L (laws.py). κ falls with depth as L^(−p), and
     with the size as N^(−a), as all losses get closer: in three public and own sets of losses a is 0.2 to 0.6, and h
     with it e⁵ to e⁹ times as probable as without. s lets a lead level off far from x_T.
δ    how the data depart from that form: products of Legendre polynomials in x and y, shrunk.

θ = (x_T at the shallowest depth, at the deepest, c in nats per unit of x and y, p, a, s): P numbers.

h is estimated, and drawn, in φ = (c·(x_T − x₀) at the two ends, c, p, a, s), x₀ = ln N_m: where one depth is ahead at
all sizes, the data know how far, which is c·(x_T − x₀), and neither c nor x_T alone. h is linear in the first three but
for s and the linear form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from dwsweep.records.fit_result import THETA

P = len(THETA)
ENDS = slice(-P, 2 - P)  # of the terms and θ: x_T at both ends
HIGHEST_X, HIGHEST_L = 8, 8
QUADRATURE = 8
FARTHEST = 40.0  # from the middle of x, of a transition at either end of the depths
LEAST_GAIN = 1e-5
GAIN_POWERS = (-3.0, 7.0)
GAIN_FALLS = (-0.5, 2.0)
DERIVATIVE_STEPS = np.array([1e-3, 1e-3, 1e-5, 1e-3, 1e-4, 1e-4])  # of the derivatives with respect to θ


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


def to_leads(theta: np.ndarray, frame: Frame) -> np.ndarray:
    """φ (…, P) of θ (…, P)."""
    phi = np.array(theta, dtype=float)
    phi[..., :2] = theta[..., 2:3] * (theta[..., :2] - frame.centre[0])
    return phi


def least_gain(phi: np.ndarray) -> np.ndarray:
    """(…,) the gain c at which the transitions of φ (…, P) are as far away as they may be."""
    return np.maximum(np.abs(phi[..., :2]).max(axis=-1) / FARTHEST, LEAST_GAIN)


def from_leads(phi: np.ndarray, frame: Frame) -> np.ndarray:
    """θ (…, P) of φ (…, P); a gain below the least is raised to it."""
    theta = np.array(phi, dtype=float)
    theta[..., 2] = np.maximum(phi[..., 2], least_gain(phi))
    theta[..., :2] = frame.centre[0] + phi[..., :2] / theta[..., 2:3]
    return theta


def by_leads(theta: np.ndarray, frame: Frame) -> np.ndarray:
    """(P, P) dθ/dφ at θ (P,)."""
    D = np.eye(len(theta))
    D[0, 0] = D[1, 1] = 1.0 / theta[2]
    D[:2, 2] = -(theta[:2] - frame.centre[0]) / theta[2]
    return D


def transition(form: str, theta: np.ndarray, depth: np.ndarray, frame: Frame) -> np.ndarray:
    """x_T at ``depth`` for theta (..., P), broadcast: ln of the size at which that depth is the best one."""
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
    """dh/dl for theta (..., P), x and y broadcast; beyond the sizes of the frame gains have fallen as at its edge."""
    fallen = fall(theta, np.clip(x, frame.low, frame.high), frame)
    return -speed(theta, y, frame) * fallen * levelled(x - transition(form, theta, np.exp(y), frame), theta[..., 5])


def speed(theta: np.ndarray, y: np.ndarray, frame: Frame) -> np.ndarray:
    """c·(L/L_m)^(1−p) at y = ln L for theta (..., P)."""
    return theta[..., 2] * np.exp((1.0 - theta[..., 3]) * (y - frame.centre[1]))


def levelled(lead: np.ndarray, saturation: np.ndarray) -> np.ndarray:
    """S of the lead x − x_T."""
    return lead / np.sqrt(1.0 + np.maximum(saturation, 0.0) * lead**2)


def fall(theta: np.ndarray, x: np.ndarray | float, frame: Frame) -> np.ndarray:
    """(N/N_m)^(−a) at x = ln N for theta (..., P)."""
    return np.exp(-theta[..., 4] * (np.asarray(x) - frame.centre[0]))


@cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(QUADRATURE)


def height(form: str, theta: np.ndarray, x: np.ndarray, y: np.ndarray, frame: Frame) -> np.ndarray:
    """(…, K) h at x (K,) and y (K,) for theta (…, P), by Gauss–Legendre quadrature from the middle depth."""
    at, weight = _quadrature()
    theta, out = np.asarray(theta), np.empty((*np.shape(theta)[:-1], len(x)))
    for depth in np.unique(y):  # what depends on the depth alone is the same for all its sizes
        here = y == depth
        half = (depth - frame.centre[1]) / 2.0
        points = frame.centre[1] + half * (at + 1.0)
        pace = speed(theta[..., None, :], points, frame) * (weight * half)
        lead = x[here][:, None] - transition(form, theta[..., None, :], np.exp(points), frame)[..., None, :]
        out[..., here] = (levelled(lead, theta[..., 5, None, None]) @ pace[..., None])[..., 0]
    return -out * fall(theta[..., None, :], x, frame)


def linearised(
    form: str, theta: np.ndarray, x: np.ndarray, y: np.ndarray, frame: Frame
) -> tuple[np.ndarray, np.ndarray]:
    """h (K,) at ``theta`` and its derivatives with respect to it (K, P)."""
    steps = np.diag(DERIVATIVE_STEPS)
    there = np.concatenate([theta + steps, theta - steps])
    there[-1, 5] = max(there[-1, 5], 0.0)  # saturation is not negative
    value = height(form, np.concatenate([theta[None], there]), x, y, frame)
    return value[0], (
        (value[1 : P + 1] - value[P + 1 :]) / (np.diagonal(there[:P]) - np.diagonal(there[P:]))[:, None]
    ).T
