"""Random effects: a curve that all recipes share, and the departure of each recipe from it.

Of recipe s, with x = ln(N / 1e8), t = ln(tokens / 20·N), y the logarithm of the best depth:

    y_s(x) = a + (1 + r_s)·u(x) + g·t + a_s + w_s(x) + error
    u + k·(e^(p·u) − 1)/p = x,  k = 1/b − 1,  for x > 0;  u = b·x  for x ≤ 0

a_s is the recipe's offset, which does not fade; r_s its own slope; w_s a process without memory (Ornstein-Uhlenbeck)
with correlation exp(−|x − x'| / 2). The bend p is the form of the curve, from a power of N (p = 0, so that width grows
as a power of depth; b = 1/3 is a constant ratio of the two) to the logarithm of theory (p = 1: ln d = A + B·L).

The price of a wrong depth is counted in size: L layers do as well as the best depth at N·exp(−κ·(ln L − y)²), where κ
is the curvature c of the loss over its slope −dloss/d ln N, both of one source, on each side of y by itself:

    ln κ_s(x) = α + β·x + γ_s + σ_s·x + v_s(x) + error

σ_s, the recipe's own slope, and v_s, a process as w_s is, keep one table's trend from becoming the trend of all.

Priors (ASSUMED)

    a   N(2.8, 0.6²)      b   N(0.30, 0.12²) in 0.10 … 0.60      g   N(0.05, 0.08²)     p   0, ¼, ½, ¾, 1 alike
    a_s N(0, τ²)          τ   half-normal, 0.4                   α   N(−1.8, 1)
    r_s N(0, ρ²)          ρ   half-normal, 0.3                   β   N(0.03, 0.05²)
    w_s sd ω              ω   half-normal, 0.15                  γ_s N(0, τ_κ²), τ_κ half-normal, 0.5
    σ_s N(0, 0.12²)       v_s sd 0.2

Given the bend, b and the standard deviations all is normal. They are summed over a grid, on which each source is a
3 × 3 matrix of products (``_products``) that is added to those of the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache
from statistics import NormalDist
from typing import Self

import numpy as np

CENTRE = math.log(1e8)
TOKENS_PER_PARAM = 20.0  # compute-optimal training (Hoffmann et al. 2022)
LENGTH = 2.0  # correlation length of w, in ln N
DRAWS = 1000  # as many draws as a fit has
BENDS, SLOPES = (0.0, 0.25, 0.5, 0.75, 1.0), tuple(np.linspace(0.10, 0.60, 11))
OFFSETS, OWN_SLOPES, LOCALS = (0.08, 0.15, 0.25, 0.4, 0.6), (0.03, 0.12, 0.25, 0.45), (0.04, 0.12, 0.25)
PRICE_OFFSETS = (0.1, 0.25, 0.4, 0.6)
LEVEL, SLOPE, TOKENS = (2.8, 0.6), (0.30, 0.12), (0.05, 0.08)  # mean, sd
PRICE_LEVEL, PRICE_SLOPE = (-1.8, 1.0), (0.03, 0.05)
PRICE_OWN_SLOPE, PRICE_LOCAL = 0.12, 0.2
HALF_NORMAL = {"offset": 0.4, "own_slope": 0.3, "local": 0.15, "price": 0.5}
STRAIGHT = 1e-9  # bend of a power of N: (e^(p·u) − 1)/p is u
NEWTON_STEPS = 6
# bases of the draws' axes: two constants, the scores of three quantities, and three axes of own losses (joined.py)
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19)
SCORES = 2  # index of the first axis of the scores
TINY = 1e-4
CURVES = 16  # most curves that a population keeps
JITTER = 1e-9  # variance of a value that is known without error, so that a covariance can be inverted


@dataclass(frozen=True)
class Quantity:
    """One quantity of a source at K sizes: its natural logarithm ``value`` and the covariance (K, K) of their errors.
    n_params: (K,) weights of the blocks. tokens_per_param: (K,) tokens of training over n_params."""

    n_params: tuple[float, ...]
    tokens_per_param: tuple[float, ...]
    value: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]

    def __len__(self) -> int:
        return len(self.value)

    @cached_property
    def x(self) -> np.ndarray:
        return np.log(self.n_params) - CENTRE

    @cached_property
    def t(self) -> np.ndarray:
        return np.log(np.array(self.tokens_per_param) / TOKENS_PER_PARAM)


class Drawn:
    """A record of (D,) arrays, one number per draw."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    def taken(self, which: np.ndarray) -> Self:
        """Draws at the indices ``which``."""
        return type(self)(*(getattr(self, one.name)[which] for one in fields(self)))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Population(Drawn):
    """Draws of the shared curve and of the sds between recipes: p, b, a, g, τ, ρ and ω."""

    bend: np.ndarray
    slope: np.ndarray
    level: np.ndarray
    tokens: np.ndarray
    offset: np.ndarray
    own_slope: np.ndarray
    local: np.ndarray

    def curve(self, x: np.ndarray | float) -> np.ndarray:
        """(D, K) u at sizes x (K,), x = ln(N / 1e8); kept, since means and covariances ask for the same sizes."""
        return self._curves(tuple(np.atleast_1d(x).tolist()))

    @cached_property
    def _curves(self) -> Callable[[tuple[float, ...]], np.ndarray]:
        return lru_cache(CURVES)(lambda x: curve(np.array(x)[None], self.slope[:, None], self.bend[:, None]))

    def mean(self, x: np.ndarray | float, t: np.ndarray | float) -> np.ndarray:
        """(D, K) of all recipes."""
        return self.level[:, None] + self.curve(x) + self.tokens[:, None] * np.atleast_1d(t)

    def covariance(self, x: np.ndarray, other: np.ndarray) -> np.ndarray:
        """(D, K, M) of one recipe's departures from the mean, between sizes x (K,) and ``other`` (M,)."""
        products = self.curve(x)[:, :, None] * self.curve(other)[:, None, :]
        tau, rho, omega = (sd[:, None, None] ** 2 for sd in (self.offset, self.own_slope, self.local))
        return tau + rho * products + omega * _local(x, other)


def _local(x: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(K, M) correlation of a recipe's process between sizes."""
    return np.exp(-np.abs(x[:, None] - other[None]) / LENGTH)


@dataclass(frozen=True)
class PricePopulation(Drawn):
    """Draws of α, β and τ_κ."""

    level: np.ndarray
    slope: np.ndarray
    offset: np.ndarray

    def mean(self, x: np.ndarray | float, t: np.ndarray | float) -> np.ndarray:
        return self.level[:, None] + self.slope[:, None] * np.atleast_1d(x) + 0.0 * np.atleast_1d(t)

    def covariance(self, x: np.ndarray, other: np.ndarray) -> np.ndarray:
        own = PRICE_OWN_SLOPE**2 * x[:, None] * other[None] + PRICE_LOCAL**2 * _local(x, other)
        return self.offset[:, None, None] ** 2 + own


def curve(x: np.ndarray, slope: np.ndarray, bend: np.ndarray) -> np.ndarray:
    """u of x, b and p, which broadcast: Newton's steps from the lesser of two values that are both too large."""
    p, k, above = np.maximum(bend, STRAIGHT), 1.0 / slope - 1.0, np.maximum(x, 0.0)
    u = np.minimum(slope * above, np.log1p(p * above / k) / p)
    for _ in range(NEWTON_STEPS):
        grown = np.expm1(p * u)
        u = u - (u + k * grown / p - above) / (1.0 + k * (grown + 1.0))
    return np.where(x < 0.0, slope * x, u)


def depth_population(sources: Iterable[Quantity], bends: Sequence[float] = BENDS) -> Population:
    """Posterior draws of the population of best depths."""
    grid = np.array(list(itertools.product(bends, SLOPES, OFFSETS, OWN_SLOPES, LOCALS)))
    p, b, tau, rho, omega = grid.T
    cells = Population(p, b, np.zeros(len(grid)), np.zeros(len(grid)), tau, rho, omega)
    ln_prior = -0.5 * ((b - SLOPE[0]) / SLOPE[1]) ** 2
    for sd, name in ((tau, "offset"), (rho, "own_slope"), (omega, "local")):
        ln_prior += np.log(sd) - 0.5 * (sd / HALF_NORMAL[name]) ** 2  # the grid's steps grow with the sd
    which, level, tokens = _drawn(cells, sources, "t", (LEVEL, TOKENS), ln_prior)
    return Population(p[which], b[which], level, tokens, tau[which], rho[which], omega[which])


def price_population(sources: Iterable[Quantity]) -> PricePopulation:
    """Posterior draws of the population of prices κ of a wrong depth."""
    tau = np.array(PRICE_OFFSETS)
    nothing = np.zeros(len(tau))
    cells, ln_prior = PricePopulation(nothing, nothing, tau), -0.5 * (tau / HALF_NORMAL["price"]) ** 2
    which, level, slope = _drawn(cells, sources, "x", (PRICE_LEVEL, PRICE_SLOPE), ln_prior)
    return PricePopulation(level, slope, tau[which])


def _drawn(cells, sources, regressor, prior, ln_prior):  # type: ignore[no-untyped-def]
    """(cell of each draw (D,), its level (D,), its slope (D,) in ``regressor``, t or x, of the sources): cells by their
    evidence, constants by their posterior."""
    mean, sd = np.array(prior).T
    products = np.zeros((len(cells), 3, 3))
    products[:, 1:, 1:], products[:, 0, 1:] = np.diag(sd**-2), mean / sd**2
    ln_weight = ln_prior.copy()
    for source in sources:
        if len(source):
            found, ln_det = _products(cells, source, np.stack([np.ones(len(source)), getattr(source, regressor)]))
            products, ln_weight = products + found, ln_weight - 0.5 * ln_det
    covariance = np.linalg.inv(products[:, 1:, 1:])
    centre = np.einsum("kij,kj->ki", covariance, products[:, 0, 1:])
    ln_weight += 0.5 * (np.einsum("ki,ki->k", centre, products[:, 0, 1:]) - products[:, 0, 0])
    ln_weight += 0.5 * np.linalg.slogdet(covariance)[1]
    which = resampled(ln_weight, DRAWS)
    scores = np.stack([normal_scores(DRAWS, axis) for axis in (0, 1)], axis=1)
    return which, *(centre[which] + np.einsum("dij,dj->di", np.linalg.cholesky(covariance[which]), scores)).T


def _products(cells, source: Quantity, regressors: np.ndarray):  # type: ignore[no-untyped-def]
    """Likelihood of the two constants by one source in each cell: (D, 3, 3) inner products of residuals and
    ``regressors`` (2, K) in the metric of the inverse covariance, and its ln determinant (D,)."""
    covariance = np.array(source.covariance) + cells.covariance(source.x, source.x)
    rest = np.array(source.value) - cells.mean(source.x, source.t)
    rows = np.concatenate([rest[:, None], np.broadcast_to(regressors, (len(cells), *regressors.shape))], axis=1)
    solved = np.linalg.solve(covariance, rows.transpose(0, 2, 1))
    return rows @ solved, np.linalg.slogdet(covariance)[1]


def quantiles(draws: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """(S,) quantiles of draws (D,), linear between neighbours: as `np.quantile`, which takes longer to import."""
    ordered = np.sort(draws)
    places = np.array(shares) * (len(ordered) - 1)
    left = np.minimum(places.astype(int), len(ordered) - 2)
    share = places - left
    return ordered[left] * (1.0 - share) + ordered[left + 1] * share


def resampled(ln_weight: np.ndarray, count: int) -> np.ndarray:
    """(count,) rising indices, each repeated in proportion to its weight."""
    weight = np.exp(ln_weight - ln_weight.max())
    places = (np.arange(count) + 0.5) / count
    return np.searchsorted(np.cumsum(weight) / weight.sum(), places).clip(max=len(weight) - 1)


def places(count: int, axis: int) -> np.ndarray:
    """(count,) numbers that fill 0 to 1 evenly, jointly with every other axis (Kronecker's sequence)."""
    return (0.5 + np.arange(count) * math.sqrt(PRIMES[axis])) % 1.0


@cache
def normal_scores(count: int, axis: int) -> np.ndarray:
    """Normal quantiles of ``places``."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse(min(max(place, TINY), 1.0 - TINY)) for place in places(count, axis).tolist()])


@dataclass(frozen=True)
class Sampled:
    """Known values of ln of the best depth in each draw, without error. x, t: (K,). value: (D, K)."""

    x: np.ndarray
    t: np.ndarray
    value: np.ndarray

    @property
    def covariance(self) -> np.ndarray:
        return JITTER * np.eye(len(self.x))


@dataclass(frozen=True)
class Recipe:
    """Draws (D,) of a quantity of one recipe, at any size. own: known quantities of this recipe; score: (D,) its normal
    scores among all recipes whose ``own`` values are the same."""

    everyone: Population | PricePopulation
    score: np.ndarray
    own: Quantity | Sampled | None = None

    def at(self, x: float, t: float = 0.0) -> np.ndarray:
        """(D,) draws at ln(N / 1e8) = x, t = ln(tokens / 20·N)."""
        mean, sd = self.moments(x, t)
        return mean + sd * self.score

    def beyond(self, x: float, end: np.ndarray, side: np.ndarray) -> np.ndarray:
        """(D,) draws at ln(N / 1e8) = x that lie above ``end`` (D,), or below it where ``side`` is −1."""
        from scipy.special import log_ndtr, ndtri_exp

        mean, sd = self.moments(x)
        least = side * (end - mean) / np.maximum(sd, TINY)
        return mean - side * sd * ndtri_exp(log_ndtr(-least) + log_ndtr(-side * self.score))

    def moments(self, x: float, t: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """(D,) mean and standard deviation of each draw's recipe."""
        here, everyone, own = np.array([x]), self.everyone, self.own
        mean, variance = everyone.mean(x, t)[:, 0], everyone.covariance(here, here)[:, 0, 0]
        if own is None:
            return mean, np.sqrt(variance)
        within, rest = self._known
        towards = everyone.covariance(own.x, here)[:, :, 0]
        moved = np.einsum("dk,dkj->dj", towards, within)
        left = variance - (moved * towards).sum(axis=1)
        return mean + (moved * rest).sum(axis=1), np.sqrt(np.maximum(left, 0.0))

    @cached_property
    def _known(self) -> tuple[np.ndarray, np.ndarray]:
        """Inverse covariance (D, K, K) of the ``own`` values, and their distance (D, K) from the mean recipe."""
        everyone, own = self.everyone, self.own
        assert own is not None
        within = everyone.covariance(own.x, own.x) + np.array(own.covariance)
        return np.linalg.inv(within), np.array(own.value) - everyone.mean(own.x, own.t)


def recipe(everyone: Population | PricePopulation, axis: int = SCORES) -> Recipe:
    """A new recipe, independent of the sources. Scores of two quantities are independent if their axes differ."""
    return Recipe(everyone, normal_scores(len(everyone), axis))
