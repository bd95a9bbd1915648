"""The model of the loss of all depths together, and its estimate at given hyperparameters.

With x = ln N and y = ln L

    loss(x, y) = f0(x) + h(x, y; θ) + δ(x, y)

f0   what all depths share: a parabola in x, and a smooth Gaussian process in x.
h    what depth does if the transition follows a form of the law: one more layer gains κ·S(x − x_T), so that

         dh/dl = −c·(L/L_m)^(1−p)·(N/N_m)^(−a)·S(x − x_T(y)),    h = 0 at depth L_m,
         S(u) = u·exp(k·u / √(u² + w²)) / √(1 + s·u²)

     with N_m and L_m in the middle and x_T(y) = ln 12L + 2·ln d(L) the size at which depth L is the best one (its
     inverse is the best depth), ln d exponential, power or linear in L (laws.py). κ falls with depth as L^(−p), and
     with the size as N^(−a), as all losses get closer: in three public and own sets of losses a is 0.2 to 0.6, and h
     with it e⁵ to e⁹ times as probable as without. k is the skew: the loss rises up to e^2k times as steeply on the
     shallow side of the best depth as on the deep side, from a distance w on. s lets a lead level off far from x_T.
δ    how the data depart from that form: a Gaussian process, smooth in x (Gaussian kernel) and rough in y (Matérn-3/2,
     whose slope may turn at any depth). Its sd is believed to be a share of the effect of depth.

A fourth mean, ``free``, has no law: its best depth is a power of the size, which may fall.

Both processes are sums of cosine waves whose prior sd is their spectral density (Solin and Särkkä 2020), so the model
stays linear in its coefficients and its cost grows with the number of shapes, not with its cube.

θ = (x_T at the shallowest depth, at the deepest, c in nats per unit of x and y, p, a, k, ln w, s): P numbers.

h is estimated, and drawn, in φ = (c·(x_T − x₀) at the two ends, c, p, a, k, ln w, s), x₀ = ln N_m: where one depth is
ahead at all sizes, the data know how far, which is c·(x_T − x₀), and neither c nor x_T alone. h is linear in the first
three but for k, w, s and the linear form.

Given θ and the hyperparameters the model is linear. Its other coefficients are Gaussian, and integrating over them
leaves a density of the P numbers of φ (``GivenLeads``). ``Linear`` is the mixed model linearised at θ: its restricted
likelihood, and the Gauss–Newton steps of θ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from dwsweep.fit.laws import FORMS, POWER, LawForm
from dwsweep.records.fit import THETA

P = len(THETA)
SKEW, LN_TURN, SATURATION = map(THETA.index, ("skew", "ln_turn", "saturation"))
LN_TURNS = (-3.0, 2.0)  # of ln w
ENDS = slice(-P, 2 - P)  # of the terms and θ: x_T at both ends
ALL = -1  # budgets
PARABOLA = 3  # terms of f0 that are not shrunk: the Legendre polynomials of x up to its square
WAVES_X, WAVES_L = 7, 12  # the highest frequencies, in half periods of the box
BOX = 1.5  # half its side, where the data reach from −1 to 1
PACE = math.pi / (2.0 * BOX)  # of the lowest frequency
QUADRATURE = 10
FARTHEST = 40.0  # from the middle of x, of a transition at either end of the depths
LEAST_GAIN = 1e-5
GAIN_POWERS = (-3.0, 7.0)
GAIN_FALLS = (-0.5, 2.0)
DERIVATIVE_STEPS = np.array([1e-3, 1e-3, 1e-5, 1e-3, 1e-4, 1e-4, 1e-3, 1e-4])  # of the derivatives with respect to θ


@dataclass(frozen=True)
class Frame:
    """Where the data lie. low, high: ends of x; shallowest, deepest: of the depths. budgets: how many f0 there are, one
    for each budget of equal compute."""

    low: float
    high: float
    shallowest: float
    deepest: float
    budgets: int = 1

    @property
    def centre(self) -> tuple[float, float]:
        """(x, y) in the middle."""
        return (self.low + self.high) / 2.0, math.log(self.shallowest * self.deepest) / 2.0

    @property
    def scale(self) -> tuple[float, float]:
        """Half the span of x and of y."""
        return max(self.high - self.low, 1e-6) / 2.0, max(math.log(self.deepest / self.shallowest), 1e-6) / 2.0

    @property
    def n_free(self) -> int:
        """Count of the first terms, the parabolas, which are not shrunk."""
        return PARABOLA + 2 * (self.budgets - 1)

    @cached_property
    def terms(self) -> np.ndarray:
        """(T, 3) of every term: j, k and the budget that it belongs to, ALL for what the budgets share.

        The first are the parabolas of f0, powers (j, −1): an offset and a slope per budget, and one curvature. The
        others are waves, products of cosines with j and k half periods in the box; k = 0 belongs to f0.
        """
        own = range(self.budgets)
        parabola = [(0, -1, 0), (1, -1, 0), (2, -1, ALL), *((j, -1, b) for b in own[1:] for j in range(2))]
        shared = [(j, 0, b) for b in own for j in range(1, WAVES_X + 1)]
        waves = [(j, k, ALL) for k in range(1, WAVES_L + 1) for j in range(WAVES_X + 1)]
        return np.array(parabola + shared + waves)

    def basis(
        self, x: np.ndarray | float, y: np.ndarray | float, derivative: bool = False, budget: np.ndarray | int = 0
    ) -> np.ndarray:
        """(…, T) the terms at x, y and a budget, or their derivatives with respect to y."""
        x, y = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
        in_x, in_l = self.in_size(x), self.in_depth(y, derivative)
        u = (x - self.centre[0]) / self.scale[0]
        parabola = np.stack([np.ones_like(u), u, 1.5 * u * u - 0.5], axis=-1) * (0.0 if derivative else 1.0)
        j, k, own = self.terms.T
        n = self.n_free
        found = np.concatenate([parabola[..., j[:n]], in_x[..., j[n:]] * in_l[..., k[n:]]], axis=-1)
        if self.budgets > 1:
            found *= (own == ALL) | (own == np.asarray(budget)[..., None])
        return found

    def in_size(self, x: np.ndarray | float) -> np.ndarray:
        """(…, WAVES_X + 1) the waves' cosines of x."""
        u = (np.asarray(x, dtype=float) - self.centre[0]) / self.scale[0]
        return np.cos(PACE * np.arange(WAVES_X + 1) * (u[..., None] + BOX))

    def in_depth(self, y: np.ndarray, derivative: bool = False) -> np.ndarray:
        """(…, WAVES_L + 1) the waves' cosines of y, or their derivatives."""
        frequency = PACE * np.arange(WAVES_L + 1)
        phase = frequency * ((y - self.centre[1]) / self.scale[1] + BOX)[..., None]
        return -frequency * np.sin(phase) / self.scale[1] if derivative else np.cos(phase)

    def departure_slopes(self, coefficients: np.ndarray, x: float, y: np.ndarray) -> np.ndarray:
        """(D, M) dδ/dl of coefficients (D, T) at one size and y (M,): a wave is a product, so its size comes first."""
        waves = coefficients[:, -WAVES_L * (WAVES_X + 1) :].reshape(-1, WAVES_L, WAVES_X + 1)
        return waves @ self.in_size(x) @ self.in_depth(y, derivative=True)[:, 1:].T


def to_leads(theta: np.ndarray, frame: Frame) -> np.ndarray:
    """φ (…, P) of θ (…, P)."""
    phi = np.array(theta, dtype=float)
    phi[..., :2] = theta[..., 2:3] * (theta[..., :2] - frame.centre[0])
    return phi


def least_gain(phi: np.ndarray) -> np.ndarray:
    """(…,) the gain c at which the transitions of φ (…, P) are as far away as they may be."""
    return np.maximum(np.abs(phi[..., :2]).max(axis=-1) / FARTHEST, LEAST_GAIN)


def bounded(phi: np.ndarray, form: str) -> np.ndarray:
    """φ (…, P) moved to where its prior allows it: a gain of another sign or a saturation below zero is mirrored."""
    phi = np.array(phi)
    phi[..., LN_TURN] = np.clip(phi[..., LN_TURN], *LN_TURNS)
    phi[..., SATURATION] = np.abs(phi[..., SATURATION])
    phi[..., 4] = np.clip(phi[..., 4], *GAIN_FALLS)
    phi[..., 3] = np.clip(phi[..., 3], *GAIN_POWERS)
    size = np.maximum(np.abs(phi[..., 2]), least_gain(phi))
    phi[..., 2] = np.copysign(size, phi[..., 2]) if MEANS[form].falls else size
    return phi


def from_leads(phi: np.ndarray, frame: Frame) -> np.ndarray:
    """θ (…, P) of φ (…, P); a gain nearer to zero than the least is moved to it."""
    theta = np.array(phi, dtype=float)
    theta[..., 2] = np.copysign(np.maximum(np.abs(phi[..., 2]), least_gain(phi)), phi[..., 2])
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
    return MEANS[form].law.transition(theta, depth, frame.shallowest, frame.deepest)


def gradient(form: str, theta: np.ndarray, x: np.ndarray | float, y: np.ndarray, frame: Frame) -> np.ndarray:
    """dh/dl for theta (..., P), x and y broadcast; beyond the sizes of the frame gains have fallen as at its edge."""
    fallen = fall(theta, np.clip(x, frame.low, frame.high), frame)
    return -speed(theta, y, frame) * fallen * levelled(x - transition(form, theta, np.exp(y), frame), theta)


def speed(theta: np.ndarray, y: np.ndarray, frame: Frame) -> np.ndarray:
    """c·(L/L_m)^(1−p) at y = ln L for theta (..., P)."""
    return theta[..., 2] * np.exp((1.0 - theta[..., 3]) * (y - frame.centre[1]))


def levelled(lead: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """S of the lead x − x_T for theta (..., P), broadcast: a third of the time of a fit, so in place."""
    squared = np.asarray(lead * lead)  # of one number too
    turned = np.asarray(np.exp(2.0 * theta[..., LN_TURN]) + squared)
    np.sqrt(turned, out=turned)
    found = np.asarray(theta[..., SKEW] * lead)
    found /= turned
    np.exp(found, out=found)
    found *= lead
    squared *= np.maximum(theta[..., SATURATION], 0.0)
    squared += 1.0
    found /= np.sqrt(squared, out=squared)
    return found


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
        out[..., here] = (levelled(lead, theta[..., None, None, :]) @ pace[..., None])[..., 0]
    return -out * fall(theta[..., None, :], x, frame)


def linearised(
    form: str, theta: np.ndarray, x: np.ndarray, y: np.ndarray, frame: Frame
) -> tuple[np.ndarray, np.ndarray]:
    """h (K,) at ``theta`` and its derivatives with respect to it (K, P)."""
    steps = np.diag(DERIVATIVE_STEPS)
    there = np.concatenate([theta + steps, theta - steps])
    there[-1, SATURATION] = max(there[-1, SATURATION], 0.0)  # saturation is not negative
    value = height(form, np.concatenate([theta[None], there]), x, y, frame)
    return value[0], (
        (value[1 : P + 1] - value[P + 1 :]) / (np.diagonal(there[:P]) - np.diagonal(there[P:]))[:, None]
    ).T


# Priors of φ: sd of c·(x_T − x₀) at the ends in nats, 6 units of ln N at a gain of 0.05; of c, p, a, k, ln w, s.
# κ's power 2.1 and a gain of 0.02 nats per unit of ln N and ln L are those of public data (design/expected_fit.py), as
# are gains that fall as N^(−0.3).
GAIN, GAIN_POWER, GAIN_FALL = 0.02, 2.1, 0.3
SKEW_SD = 0.15  # two curvatures that differ by a factor of 1.35
LN_TURN_MEAN, LN_TURN_SD = -2.0, 1.5  # of ln N: the skew may set in between a depth and the next, or over several


@dataclass(frozen=True)
class Mean:
    """What depth does before anything departs from it: the form of the transition, and the prior of φ.

    prior, sd: (P,). falls: whether the best depth may fall with the size (the gain c may be negative).
    """

    law: LawForm
    prior: np.ndarray
    sd: np.ndarray
    falls: bool = False


FREE = "free"
PINNED = 1e-4  # sd of a parameter that a mean does not have
_LAW_PRIOR = np.array([0.0, 0.0, GAIN, GAIN_POWER, GAIN_FALL, 0.0, LN_TURN_MEAN, 0.0])
_LAW_SD = np.array([0.3, 0.3, 0.05, 0.8, 0.3, SKEW_SD, LN_TURN_SD, 0.25])
# no law: the transition is straight in ln L, as that of the power law, and may fall; gains are the same at every depth
# and size, so that the loss is a quadratic in ln N and ln L but for its skew.
MEANS = {name: Mean(law, _LAW_PRIOR, _LAW_SD) for name, law in FORMS.items()} | {
    FREE: Mean(
        POWER,
        np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, LN_TURN_MEAN, 0.0]),
        np.array([0.3, 0.3, 0.1, PINNED, PINNED, SKEW_SD, LN_TURN_SD, PINNED]),
        falls=True,
    )
}

# Hyperparameters, in units of half the span of x and of y: ln sd and ln length of f0's waves; ln sd, ln length in x
# and ln length in y of δ; ln τ. (mean, sd) of the normal prior, and bounds. The sd of δ is counted in units of the
# effect of depth (``Problem.effect``): a form holds to within a share of what it describes. A table that is too noisy
# to show departures has them all the same. τ: scatter of a shape, 0.001 nats within a factor of 3: reruns agree to
# 0.001, shapes of public sweeps scatter by 0.002 to 0.004.
SHARE = 0.2
PRIOR = (
    (math.log(0.02), 1.5),
    (0.0, 0.5),
    (math.log(SHARE), 0.5),
    (math.log(0.9), 0.5),
    (0.0, 0.6),
    (math.log(1.0e-3), 1.1),
)
BOUNDS = ((-12.0, 2.0), (-1.5, 2.0), (-4.0, 1.5), (-1.0, 2.0), (-1.6, 2.0), (-14.0, -2.0))
DECLARED_SD = 0.01  # of the prior of ln τ where τ was declared
LEAST_TAU = 1e-6  # nats
TAU_AND_NOISE = (math.log(2.0e-3), 1.5)  # the prior of τ where nothing else says how noisy the losses are
START = (math.log(0.02), 0.0, math.log(SHARE), math.log(1.2), 0.0, math.log(7e-4))
# No shape shows what the loss does between two depths that were trained. A corner there moves the best depth, and
# nothing that was trained. The sd of such a bend, in units of the effect of depth, grows as the square root of the
# distance in ln L.
BETWEEN = 0.04
BRIDGE_WAVES = 2
LEAST_EFFECT = 1e-4  # nats: losses that are equal to that leave no room for departures
HARDLY = 1e-8  # precision of the parabola of f0, nats⁻²: three sizes that nearly are two leave it almost without any
JITTER = 1e-10  # nats²: losses are hardly ever written to more digits, and the model is solved to no more


def bridges(y: np.ndarray, depths: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(slopes, heights), (D, G) each, at y = ln L (G,) of Brownian bridges between neighbouring ``depths``, for z (D,
    depths − 1, BRIDGE_WAVES) of unit variance: zero at the depths and beyond them.

    A bridge over a gap g, at its share t, is Σ_k √(2g)·sin(kπt)/(kπ)·z_k (Karhunen and Loève), of which the first waves
    stand here.
    """
    ends, k = np.log(depths), np.pi * np.arange(1, BRIDGE_WAVES + 1)
    gap = np.clip(np.searchsorted(ends, y, side="right") - 1, 0, len(ends) - 2)
    width = np.diff(ends)[gap][:, None]
    wave = k * (y - ends[gap])[:, None] / width
    scale = np.sqrt(2.0 / width) * ((y > ends[0] - 1e-9) & (y < ends[-1] + 1e-9))[:, None]
    slopes = np.einsum("dgk,gk->dg", z[:, gap], scale * np.cos(wave))
    heights = np.einsum("dgk,gk->dg", z[:, gap], scale * width * np.sin(wave) / k)
    return slopes, heights


@dataclass(frozen=True)
class Problem:
    """Cell means in the basis where their covariance is diagonal.

    rotation: (K, K), or None where it is diagonal as it stands. means, variances: (K,). B: (K, T). effect: sd in
    nats that the means keep when a parabola in x is taken out, which is what depth does.
    """

    frame: Frame
    x: np.ndarray
    y: np.ndarray
    rotation: np.ndarray | None
    means: np.ndarray
    variances: np.ndarray
    B: np.ndarray
    effect: float
    tau_prior: tuple[float, float] = PRIOR[5]
    tau_bounds: tuple[float, float] = BOUNDS[5]

    @classmethod
    def of(
        cls,
        x: np.ndarray,
        depth: np.ndarray,
        means: np.ndarray,
        C: np.ndarray,
        frame: Frame,
        budget: np.ndarray | int = 0,
    ) -> Problem:
        """Cell means (K,) with their covariance (K, K), nats; budget: (K,) which f0 is theirs."""
        y = np.log(depth.astype(float))
        B = frame.basis(x, y, budget=budget)
        parabola = B[:, : frame.n_free]
        left = means - parabola @ np.linalg.lstsq(parabola, means, rcond=None)[0]
        # offsets and slopes of further budgets take some of what depth does with them
        taken = 2 * (frame.budgets - 1) / len(means)
        effect = max(float(left.std()) / math.sqrt(max(1.0 - taken, 0.25)), LEAST_EFFECT)
        if np.allclose(C, np.diag(np.diagonal(C)), rtol=0.0, atol=1e-12):
            return cls(frame, x, y, None, means, np.diagonal(C).copy(), B, effect)
        values, Q = np.linalg.eigh((C + C.T) / 2.0)
        return cls(frame, x, y, Q.T, Q.T @ means, np.maximum(values, 0.0), Q.T @ B, effect)

    def rotated(self, columns: np.ndarray) -> np.ndarray:
        return columns if self.rotation is None else self.rotation @ columns

    def with_shape_sd(self, sd: float, noise_known: bool) -> Problem:
        """The problem for a declared scatter of a shape, ``sd`` nats: that is τ. Where nothing else says how noisy the
        losses are τ holds their noise too, and is no less."""
        least = max(math.log(max(sd, LEAST_TAU)), BOUNDS[5][0])
        if noise_known:
            return replace(self, tau_prior=(least, DECLARED_SD), tau_bounds=(least, least))
        return replace(self, tau_bounds=(least, max(BOUNDS[5][1], least)))

    @property
    def bounds(self) -> tuple[tuple[float, float], ...]:
        """Of the hyperparameters."""
        return (*BOUNDS[:5], self.tau_bounds)

    @property
    def start(self) -> np.ndarray:
        """(6,) hyperparameters to begin with."""
        return np.clip(START, *np.array(self.bounds).T)

    @property
    def prior(self) -> tuple[np.ndarray, np.ndarray]:
        """(mean, sd) of the hyperparameters, (6,) each."""
        mean, sd = np.array([*PRIOR[:5], self.tau_prior]).T
        return mean, sd

    @cached_property
    def _waves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(whether it belongs to f0, frequency in x, frequency in y) of every shrunk term."""
        j, k, _ = self.frame.terms[self.frame.n_free :].T
        return k == 0, PACE * j, PACE * k

    def prior_sd(self, h: np.ndarray) -> np.ndarray:
        """Prior sd of the waves, by the spectral density of their process: exp(−r²/2ℓ²) in x, Matérn-3/2 in y.

        Solin and Särkkä 2020, "Hilbert space methods for reduced-rank Gaussian process regression".
        """
        shared, in_x, in_l = self._waves
        ln_length = np.where(shared, h[1], h[3])
        box = np.where(in_x == 0.0, 2.0 * BOX, BOX)  # the constant wave has twice the norm
        ln_x = 0.5 * (0.5 * math.log(2.0 * math.pi) + ln_length - np.log(box) - 0.5 * (np.exp(ln_length) * in_x) ** 2)
        a = math.sqrt(3.0) * math.exp(-h[4])
        ln_l = 0.5 * (math.log(4.0) + 3.0 * math.log(a) - 2.0 * np.log(a * a + in_l**2) - math.log(BOX))
        return np.exp(np.where(shared, h[0] + ln_x, h[2] + math.log(self.effect) + ln_x + ln_l))

    def prior_slopes(self, h: np.ndarray) -> np.ndarray:
        """(S, 5) derivatives of the logarithm of :meth:`prior_sd` with respect to h[:5]."""
        shared, in_x, in_l = self._waves
        a2 = 3.0 * math.exp(-2.0 * h[4])
        by_x = [0.5 * (1.0 - (math.exp(h[i]) * in_x) ** 2) for i in (1, 3)]
        by_l = 0.5 * (4.0 * a2 / (a2 + in_l**2) - 3.0)
        own, zero = 1.0 - shared, np.zeros(len(shared))
        return np.stack([shared + zero, shared * by_x[0], own, own * by_x[1], own * by_l], axis=1)

    def scale(self, h: np.ndarray) -> np.ndarray:
        """(T,) units of the coefficients: 1 of the free ones, the prior sd of the others."""
        return np.concatenate([np.ones(self.frame.n_free), self.prior_sd(h)])

    def weighed(
        self, h: np.ndarray, columns: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(A, d, A/d, root): the columns of the coefficients of all terms in standard units, with ``columns``
        (K, …) behind them, the variances of the means, and the Cholesky factor of the coefficients' precision.

        Raises:
            np.linalg.LinAlgError: the precision is singular.
        """
        d = self.variances + math.exp(2.0 * h[5]) + JITTER
        A = self.B * self.scale(h)
        if columns is not None:
            A = np.hstack([A, columns])
        weighted = A / d[:, None]
        precision = A.T @ weighted
        precision.flat[:: len(precision) + 1] += np.where(np.arange(len(precision)) < self.frame.n_free, HARDLY, 1.0)
        return A, d, weighted, np.linalg.cholesky(precision)


class GivenLeads:
    """The model of one form given φ and hyperparameters, which is linear in its other coefficients.

    nodes (N, 6): hyperparameters. Of C·N rows of φ each takes the next node, in turn.

    Raises:
        np.linalg.LinAlgError: the precision of the coefficients is singular.
    """

    def __init__(self, form: str, problem: Problem, nodes: np.ndarray) -> None:
        self.form, self.problem = form, problem
        found = [problem.weighed(h) for h in nodes]
        self.precisions = np.array([1.0 / d for _, d, _, _ in found])  # (N, K) of the means
        roots = np.array([root for *_, root in found])
        self.half = np.linalg.inv(roots)  # (N, T, T)
        self.explaining = self.half @ np.array([weighted.T for _, _, weighted, _ in found])  # (N, T, K)
        self.scales = np.array([problem.scale(h) for h in nodes])  # (N, T)

    def _rest(self, phi: np.ndarray) -> np.ndarray:
        """(N, C, K) of each node's chains: means less h."""
        h = height(self.form, from_leads(phi, self.problem.frame), self.problem.x, self.problem.y, self.problem.frame)
        return self._by_node(self.problem.means - self.problem.rotated(h.T).T)

    def _by_node(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(-1, len(self.precisions), rows.shape[1]).swapaxes(0, 1)

    def density(self, phi: np.ndarray) -> np.ndarray:
        """(C·N,) log posterior of φ, the coefficients integrated out, up to a constant of each node."""
        mean = MEANS[self.form]
        gain = np.abs(phi[:, 2]) if mean.falls else phi[:, 2]
        inside = (phi[:, SATURATION] >= 0.0) & (gain >= least_gain(phi))
        inside &= (phi[:, 4] >= GAIN_FALLS[0]) & (phi[:, 4] <= GAIN_FALLS[1])
        inside &= (phi[:, LN_TURN] >= LN_TURNS[0]) & (phi[:, LN_TURN] <= LN_TURNS[1])
        inside &= (phi[:, 3] >= GAIN_POWERS[0]) & (phi[:, 3] <= GAIN_POWERS[1])
        rest = self._rest(phi)
        explained = rest @ self.explaining.swapaxes(1, 2)
        misfit = (rest**2 @ self.precisions[:, :, None])[..., 0] - (explained**2).sum(axis=-1)
        away = (phi - mean.prior) / mean.sd
        return np.where(inside, -0.5 * (misfit.T.reshape(-1) + (away**2).sum(axis=1)), -math.inf)

    def coefficients(self, phi: np.ndarray, noise: np.ndarray | None = None) -> np.ndarray:
        """(C·N, T) those of all terms, in their order: their mean given φ, with ``noise`` (C·N, T) of unit variance."""
        standard = self._rest(phi) @ self.explaining.swapaxes(1, 2)
        if noise is not None:
            standard += self._by_node(noise)
        found = (standard @ self.half) * self.scales[:, None, :]
        return found.swapaxes(0, 1).reshape(len(phi), -1)


LARGEST_STEP = np.array([0.1, 0.1, 0.03, 0.5, 0.2, 0.2, 0.5, 0.2])
HALVINGS = 6


class Linear:
    """The mixed model of one form linearised at θ."""

    def __init__(self, problem: Problem, form: str, theta: np.ndarray) -> None:
        self.problem, self.form, self.theta = problem, form, theta
        value, columns = linearised(form, theta, problem.x, problem.y, problem.frame)
        self.phi = to_leads(theta, problem.frame)
        self.sd = MEANS[form].sd
        self.offset = MEANS[form].prior - self.phi  # the mean of the prior, seen from here
        self.columns = problem.rotated(columns @ by_leads(theta, problem.frame)) * self.sd
        self.means = problem.means - problem.rotated(value) - self.columns @ (self.offset / self.sd)

    def log_posterior(self, h: np.ndarray) -> float:
        """Restricted log likelihood times the priors of the hyperparameters, up to a constant."""
        return self.value_and_gradient(h)[0]

    def log_likelihood(self, h: np.ndarray) -> float:
        """The first of the two, up to the same constant."""
        mean, sd = self.problem.prior
        return self.log_posterior(h) + 0.5 * float((((h - mean) / sd) ** 2).sum())

    def value_and_gradient(self, h: np.ndarray) -> tuple[float, np.ndarray]:
        """:meth:`log_posterior` and its derivative (6,) with respect to ``h``.

        With C and u the covariance and the mean of the standardised coefficients (Henderson's equations), P_m the
        projection that restricted likelihood works with and a_t = p_t·sd_t: a_t'·P_m·a_t = 1 − C_tt and
        a_t'·P_m·y = u_t, so that d ln p / d ln sd_t = u_t² − 1 + C_tt, and d ln p / d ln τ = τ²·(|P_m·y|² − tr P_m).
        """
        mean, sd = self.problem.prior
        shape_variance = math.exp(2.0 * h[5])
        try:
            A, d, root, C, u = self._solved(h)
        except np.linalg.LinAlgError:
            return -1e10, np.zeros(len(h))
        residual = self.means - A @ u
        projected = residual / d
        n_free = self.problem.frame.n_free
        # y'·P_m·y as a sum of squares: no digits are lost where there is hardly any noise
        squares = residual @ projected + u[n_free:] @ u[n_free:]
        deviance = np.log(d).sum() + 2.0 * np.log(np.diag(root)).sum() + squares
        value = -0.5 * float(deviance + (((h - mean) / sd) ** 2).sum())
        weighted = A / d[:, None]
        trace = (1.0 / d).sum() - np.einsum("km,km->", weighted @ C, weighted)
        each = (u**2 - 1.0 + np.diagonal(C))[n_free:-P]
        gradient = np.append(each @ self.problem.prior_slopes(h), shape_variance * (projected @ projected - trace))
        return value, gradient - (h - mean) / sd**2

    def _solved(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(A, d, root, C, u): the columns of all coefficients and of θ in standard units, the variances of the
        means, the Cholesky factor of the coefficients' precision, their covariance and mean."""
        A, d, weighted, root = self.problem.weighed(h, self.columns)
        half = np.linalg.inv(root)
        C = half.T @ half
        return A, d, root, C, C @ (weighted.T @ self.means)

    def held_out(self, h: np.ndarray) -> np.ndarray:
        """(K,) how far each mean lies from what the others predict for it, in standard deviations of that prediction.

        With P_m as in :meth:`value_and_gradient`, its mean and variance without mean k are those of y_k but for
        (P_m·y)_k / (P_m)_kk and 1 / (P_m)_kk (Dubrule 1983, "Cross validation of kriging in a unique neighborhood").
        """
        A, d, _, C, u = self._solved(h)
        weighted = A / d[:, None]
        projected = (self.means - A @ u) / d
        if self.problem.rotation is None:
            return projected / np.sqrt(1.0 / d - np.einsum("km,km->k", weighted @ C, weighted))
        Q = self.problem.rotation
        own = np.einsum("jk,j,jk->k", Q, 1.0 / d, Q) - np.einsum("mk,mk->k", weighted.T @ Q, C @ (weighted.T @ Q))
        return (Q.T @ projected) / np.sqrt(own)

    def gain(self, h: np.ndarray) -> np.ndarray:
        """(T + P, K) derivatives of the means of the coefficients and φ with respect to the cell means."""
        A, d, _, C, _ = self._solved(h)
        columns = C @ (A / d[:, None]).T
        if self.problem.rotation is not None:
            columns = columns @ self.problem.rotation
        return self._scale(h)[:, None] * columns

    def unseen(self, h: np.ndarray) -> np.ndarray:
        """(T + P, W) errors of the coefficients and φ for one prior sd of each wave of δ: what the cell means do not
        show of it."""
        waves = self.problem.frame.terms[:, 1] > 0
        A, d, _, C, _ = self._solved(h)
        shown = C @ ((A / d[:, None]).T @ self.problem.B[:, waves])
        error = self._scale(h)[:, None] * shown
        error[:-P][waves] -= np.eye(waves.sum())
        return error * self.problem.scale(h)[waves]

    def _scale(self, h: np.ndarray) -> np.ndarray:
        """(T + P,) units of the coefficients of all terms and of φ."""
        return np.concatenate([self.problem.scale(h), self.sd])

    def coefficients(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean, covariance) of the coefficients of all terms, in their order, and of φ."""
        _, _, _, covariance, mean = self._solved(h)
        scale = self._scale(h)
        mean = scale * mean
        mean[-P:] += self.phi + self.offset
        return mean, covariance * scale * scale[:, None]

    def expected(self, h: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """(:meth:`log_posterior`, mean, covariance, sampling) where ``means`` are free of noise, the first on average
        over the noise; the next two as :meth:`coefficients` has them. sampling: the part of the covariance C that the
        noise of the means makes; the rest is what the priors allow.

        E y'·P_m·y = m'·P_m·m + tr P_m·D, and with Q the precisions of the priors tr P_m·D = K − tr (1 − C·Q).
        """
        mean, covariance = self.coefficients(h)
        prior = np.zeros(len(mean))  # precisions
        prior[self.problem.frame.n_free : -P] = self.problem.prior_sd(h) ** -2.0
        prior[-P:] = self.sd**-2.0
        noise = len(self.means) - (1.0 - np.diagonal(covariance) * prior).sum()
        sampling = covariance - covariance @ (prior[:, None] * covariance)
        return self.log_posterior(h) - 0.5 * float(noise), mean, covariance, sampling

    def leads(self, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(mean (P,), covariance (P, P)) of φ."""
        _, _, _, covariance, mean = self._solved(h)
        return self.sd * mean[-P:] + (self.phi + self.offset), covariance[-P:, -P:] * self.sd * self.sd[:, None]


def start_theta(form: str, frame: Frame) -> np.ndarray:
    theta = from_leads(_LAW_PRIOR, frame)
    theta[3:] = MEANS[form].prior[3:]
    theta[:2] += np.array([-0.5, 0.5]) * frame.scale[0]
    return theta


def in_theta(theta: np.ndarray, rows: np.ndarray, frame: Frame) -> np.ndarray:
    """Derivatives (T + P, …) of the coefficients and φ as those of the coefficients and θ, at ``theta`` (P,)."""
    return np.concatenate([rows[:-P], by_leads(theta, frame) @ rows[-P:]])


def newton_steps(form: str, problem: Problem, theta: np.ndarray, h: np.ndarray, steps: int) -> np.ndarray:
    """θ after at most ``steps`` of Gauss–Newton with the hyperparameters ``h``, each halved until it is one uphill:
    far from the transitions a full step overshoots, to the other side and back."""
    given = GivenLeads(form, problem, h[None])
    here = given.density(to_leads(theta, problem.frame)[None])[0]
    for _ in range(steps):
        mean, covariance = Linear(problem, form, theta).leads(h)
        if mean[-1] < 0.0:  # the saturation is not negative: the others go where they belong with none
            mean = mean - covariance[:, -1] / covariance[-1, -1] * mean[-1]
        phi = to_leads(theta, problem.frame)
        step = np.clip(mean - phi, -LARGEST_STEP, LARGEST_STEP)
        for share in 0.5 ** np.arange(HALVINGS):
            there = phi + share * step
            there = bounded(there, form)
            density = given.density(there[None])[0]
            if density > here:
                break
        else:
            break
        moved = np.abs(there - phi)
        theta, here = from_leads(there, problem.frame), density
        if (moved / MEANS[form].sd).max() < 1e-4:
            break
    return theta
