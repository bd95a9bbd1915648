"""One answer from many sources: a line that all share, and how far each recipe lies from it.

For a quantity y (ln of the best depth, or of a curvature) of source s at ln N = x, with t = ln(tokens / 20·N):

    y = a + b·x + q·x² + g·t + u_s(x) + error,    u_s a Gaussian process, sd τ, correlation exp(−|x − x'| / ℓ)

x is counted from 1e8 parameters. The errors have the covariance of the source's own fit. a, b, q and g have normal
priors. τ and ℓ are averaged over a grid by their posterior. A recipe that nobody measured has a u of its own. A process
with this correlation has no memory (Ornstein-Uhlenbeck). So beyond the sizes of one's own losses only the nearest size
counts, and its departure from the line fades as exp(−|x − x'| / ℓ).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np

CENTRE = math.log(1e8)
TOKENS_PER_PARAM = 20.0  # of compute-optimal training (Hoffmann et al. 2022)
DRAWS = 1000  # as many as a fit has
# ASSUMED: τ beforehand has a Rayleigh density of this scale, since recipes surely differ; ℓ, in ln N, is one of these
SPREAD = 0.5
SPREADS = tuple(np.geomspace(0.06, 1.5, 14))
LENGTHS = (1.5, 3.0, 6.0, 12.0)
SMALLEST, LARGEST = math.log(1e4), math.log(1e13)  # between them the line must rise


@dataclass(frozen=True)
class Estimates:
    """One quantity of a source at K sizes, with the covariance of their errors.

    n_params: (K,) weights of the blocks, 12·L·d². tokens_per_param: (K,) tokens of training over n_params. value: (K,)
    the quantity's natural logarithm. covariance: (K, K).
    """

    n_params: tuple[float, ...]
    tokens_per_param: tuple[float, ...]
    value: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...]

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True)
class Prior:
    """Means and standard deviations of a, b, q and g. rising: y grows with N at every size."""

    mean: tuple[float, float, float, float]
    sd: tuple[float, float, float, float]
    rising: bool = False


# ASSUMED. Depth: at equal d_x/L it grows as N^(1/3), and half or twice as fast is likely as well. Bend: a power law has
# none, the logarithm of the law of 2020 has −0.010; halfway between the two, and either, or twice the law's, is likely.
DEPTH = Prior((3.0, 0.28, -0.005, 0.0), (1.5, 0.15, 0.008, 0.15), rising=True)
# ASSUMED. Curvature: some hundredths of a nat, falling with the loss that is left to gain
CURVATURE = Prior((-3.7, -0.1, 0.0, 0.0), (1.0, 0.15, 0.01, 0.1))


@dataclass(frozen=True)
class Neighbour:
    """One's own losses: draws (D,) of the quantity at the smallest and the largest size that they answer, in ln N."""

    low: float
    high: float
    at_low: np.ndarray
    at_high: np.ndarray


@dataclass(frozen=True)
class Prediction:
    """D draws of the quantity for one recipe, at any size.

    line: (D, 4) a, b, q and g. spread, length: (D,) τ and ℓ. own: (D,) normal numbers that say where among the recipes
    this one lies. They are the same at every size, so that no answer jumps from one size to the next.
    """

    line: np.ndarray
    spread: np.ndarray
    length: np.ndarray
    own: np.ndarray
    neighbour: Neighbour | None = None

    def mean_line(self, x: float, t: float = 0.0) -> np.ndarray:
        """(D,) the line at ln N = x and t = ln(tokens / 20·N)."""
        return self.line @ _regressors(np.array([x]), np.array([t]))[0]

    def at(self, x: float, t: float = 0.0) -> np.ndarray:
        """(D,) draws of the quantity at ln N = x for a recipe like one's own."""
        line = self.mean_line(x, t)
        memory = self.memory(x)
        if self.neighbour is None:
            return line + self.spread * self.own
        edge, known = self._edge(x)
        # own losses were trained on the tokens that they were trained on: t moves the answer by the line alone
        departure = known - self.mean_line(edge)
        return line + memory * departure + self.spread * np.sqrt(1.0 - memory**2) * self.own

    def memory(self, x: float) -> np.ndarray:
        """(D,) share of the departure of one's own losses that is left at ln N = x; 0 without losses."""
        if self.neighbour is None:
            return np.zeros_like(self.length)
        return np.exp(-abs(x - self._edge(x)[0]) / self.length)

    def _edge(self, x: float) -> tuple[float, np.ndarray]:
        near = self.neighbour
        assert near is not None
        share = np.clip((x - near.low) / max(near.high - near.low, 1e-9), 0.0, 1.0)
        return min(max(x, near.low), near.high), near.at_low * (1.0 - share) + near.at_high * share


@dataclass(frozen=True)
class _Posterior:
    """Of the line given τ and ℓ, with the weight of the two."""

    spread: float
    length: float
    ln_weight: float
    mean: np.ndarray
    covariance: np.ndarray


class _Data:
    """All estimates of a quantity, one under the other."""

    def __init__(self, sources: Sequence[Estimates]) -> None:
        given = [source for source in sources if len(source)]
        self.x = np.concatenate([np.log(source.n_params) for source in given])
        t = np.concatenate([np.log(np.array(source.tokens_per_param) / TOKENS_PER_PARAM) for source in given])
        self.value = np.concatenate([np.array(source.value) for source in given])
        self.regressors = _regressors(self.x, t)
        self.source = np.concatenate([np.full(len(source), k) for k, source in enumerate(given)])
        self.errors = np.zeros((len(self.x), len(self.x)))
        for k, source in enumerate(given):
            own = np.flatnonzero(self.source == k)
            self.errors[np.ix_(own, own)] = source.covariance

    @cached_property
    def apart(self) -> np.ndarray:
        """(K, K) distances in ln N; inf between sources."""
        return np.where(self.source[:, None] == self.source[None], np.abs(self.x[:, None] - self.x[None]), np.inf)

    def posteriors(self, prior: Prior) -> Iterator[_Posterior]:
        mean, precision = np.array(prior.mean), np.diag(1.0 / np.array(prior.sd) ** 2)
        rest = self.value - self.regressors @ mean
        for spread in SPREADS:
            for length in LENGTHS:
                covariance = self.errors + spread**2 * np.exp(-self.apart / length)
                whole = covariance + self.regressors @ np.diag(np.array(prior.sd) ** 2) @ self.regressors.T
                _, ln_det = np.linalg.slogdet(whole)
                fit = float(rest @ np.linalg.solve(whole, rest))
                weighed = np.linalg.solve(covariance, self.regressors)
                posterior = np.linalg.inv(precision + self.regressors.T @ weighed)
                # the density, and the grid's steps, grow with τ
                ln_prior = -0.5 * (spread / SPREAD) ** 2 + 2.0 * math.log(spread)
                yield _Posterior(
                    spread, length, ln_prior - 0.5 * (ln_det + fit), mean + posterior @ (weighed.T @ rest), posterior
                )


def _regressors(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """(K, 4) 1, x, x² and t, x from CENTRE."""
    x = x - CENTRE
    return np.stack([np.ones_like(x), x, x**2, t], axis=1)


def predict(sources: Sequence[Estimates], prior: Prior, neighbour: Neighbour | None = None) -> Prediction:
    """The quantity for a recipe that none of the sources has, or, with a ``neighbour``, for that of one's own losses.

    Draws are the same whenever they are made. With ``prior.rising`` lines that fall at some size are left out.
    """
    found = list(_Data(sources).posteriors(prior))
    weights = np.exp(np.array([one.ln_weight for one in found]) - max(one.ln_weight for one in found))
    rng = np.random.default_rng(0)
    count = 4 * DRAWS
    # each pair of τ and ℓ as often as it weighs, in an order that says nothing
    places = (np.arange(count) + 0.5) / count
    which = rng.permutation(np.searchsorted(np.cumsum(weights) / weights.sum(), places).clip(max=len(found) - 1))
    roots = [np.linalg.cholesky(one.covariance) for one in found]
    normal = rng.standard_normal((count, 4))
    line = np.array([found[k].mean + roots[k] @ z for k, z in zip(which, normal, strict=True)])
    if prior.rising:
        ends = [line[:, 1] + 2.0 * line[:, 2] * (end - CENTRE) for end in (SMALLEST, LARGEST)]
        keep = np.flatnonzero((ends[0] >= 0.0) & (ends[1] >= 0.0))
        # too few lines rise where the sources contradict that: the nearest to rising are kept
        keep = keep if len(keep) >= DRAWS else np.argsort(-np.minimum(*ends))[:DRAWS]
    else:
        keep = np.arange(count)
    keep = keep[np.linspace(0, len(keep) - 1, DRAWS).round().astype(int)]
    own = _normal_scores(DRAWS)[rng.permutation(DRAWS)]
    spread, length = (np.array([getattr(found[k], name) for k in which[keep]]) for name in ("spread", "length"))
    return Prediction(line[keep], spread, length, own, neighbour)


def _normal_scores(count: int) -> np.ndarray:
    """``count`` numbers that are as normal as so many can be."""
    inverse = NormalDist().inv_cdf
    return np.array([inverse((k + 0.5) / count) for k in range(count)])
