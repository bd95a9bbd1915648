"""Own losses and public evidence as one posterior: pairs of a draw of each, weighed by how well the two agree.

The likelihood of a recipe's best depths y = (y₁ … y_K) at K of its own sizes is the fit's own draws. A draw inside the
depths tried gives y_k; one beyond them says only on which side of them y_k lies. With θ a draw of the population, the
weight of a pair is the density of the known y_k times the probability of the sides of the others, given θ, where the
others are drawn one after the other (Geweke, Hajivassiliou and Keane). So a bound at one size moves other sizes as far
as offset, slope and local part of a recipe are shared, and no further.

A draw beyond the depths tried also has a slope of the loss there. With the price κ of a public recipe it says how far
away the best depth is, if the loss is about a parabola: a heavy-tailed likelihood of the ratio of both rises.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dwsweep.evidence.random_effects import DRAWS, JITTER, SCORES, Recipe, Sampled, normal_scores, recipe, resampled
from dwsweep.evidence.summary import Populations

PAIRS = 200_000  # pairs that are weighed
PRIOR_SD = 0.92  # ASSUMED: sd of ln L of a fit's own prior, against which known depths are weighed with bounds
SHAPE_SD, TAILS = 0.5, 4.0  # ASSUMED: ln of a rise over that of a parabola, and the degrees of freedom of its t
LITTLE = 0.02  # ln N: a rise of the loss over the depths tried below which it says nothing
RESIDUAL = 5  # axis of the scores between and beyond the known sizes
UNLIKELY = 3.0  # standard deviations of public evidence beyond which losses contradict it
SURE = 0.05


@dataclass(frozen=True)
class OwnDepths:
    """Draws of a fit at K of its sizes, x = ln(N / 1e8). low, high: (K,) ln of the shallowest and the deepest net.
    best: (D, K) ln of the best depth, beyond these ends if unknown. rise: (D, K) price in ln N by which the worse end
    lies above the better. known: (D,) False for a draw without an effect of depth."""

    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    best: np.ndarray
    rise: np.ndarray
    known: np.ndarray

    @property
    def inside(self) -> np.ndarray:
        """(D, K) True for a best depth between the depths tried."""
        return (self.best > self.low) & (self.best < self.high)

    def among(self, kept: np.ndarray) -> OwnDepths:
        """Draws at the sizes ``kept``."""
        return OwnDepths(
            self.x[kept], self.low[kept], self.high[kept], self.best[:, kept], self.rise[:, kept], self.known
        )


@dataclass(frozen=True)
class JointPosterior:
    """Draws of the joint posterior. which: (D,) draw of the fit. depth: ln of the recipe's best depth at any size.
    prices: (D,) draws of the public prices. ess: effective number of pairs."""

    which: np.ndarray
    depth: Recipe
    prices: np.ndarray
    ess: float


def joined(everyone: Populations, own: OwnDepths) -> JointPosterior:
    """Joint posterior of own losses and public evidence: DRAWS draws of equal weight."""
    from scipy.special import log_ndtr, ndtri_exp

    rng = np.random.default_rng(0)
    population, count = everyone.depth, len(own.x)
    which, person, price = (rng.integers(n, size=PAIRS) for n in (len(own.best), len(population), DRAWS))
    order = np.argsort(-own.inside.mean(axis=0), kind="stable")  # the best known size first
    x = own.x[order]
    mean = population.mean(x, np.zeros(count))[person]
    root = np.linalg.cholesky(population.covariance(x, x) + JITTER * np.eye(count))
    usual = np.append(PRIOR_SD, root[:, np.arange(1, count), np.arange(1, count)].mean(axis=0))
    root, uniform = root[person], rng.random((PAIRS, count))
    free, score, ln_weight = ~own.known[which], np.zeros((PAIRS, count)), np.zeros(PAIRS)
    for k, at in enumerate(order):
        middle, sd = mean[:, k] + np.einsum("pj,pj->p", root[:, k, :k], score[:, :k]), root[:, k, k]
        best, inside = own.best[which, at], own.inside[which, at]
        sign = np.where(best >= own.high[at], -1.0, 1.0)  # beyond the deepest net: the same, mirrored
        end = np.where(sign < 0, -(own.high[at] - middle), own.low[at] - middle) / sd
        end = np.where(free, np.inf, end)
        share = log_ndtr(end)
        beyond = sign * ndtri_exp(share + np.log(uniform[:, k]))
        inside &= ~free
        z = (np.where(inside, best, middle) - middle) / sd
        score[:, k] = np.where(inside, z, beyond)
        ln_weight += np.where(inside, -0.5 * z**2 + np.log(usual[k] / sd), share)
    values = np.empty((PAIRS, count))
    values[:, order] = mean + np.einsum("pkj,pj->pk", root, score)
    ln_weight += _rises(everyone, own, which, price, values)
    kept = resampled(ln_weight, DRAWS)
    weight = np.exp(ln_weight - ln_weight.max())
    known = Sampled(own.x, np.zeros(count), values[kept])
    recipe_of = Recipe(population.taken(person[kept]), normal_scores(DRAWS, RESIDUAL), known)
    return JointPosterior(which[kept], recipe_of, price[kept], float(weight.sum() ** 2 / (weight**2).sum()))


def _rises(
    everyone: Populations, own: OwnDepths, which: np.ndarray, price: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """(P,) ln likelihood of the rise of the loss over the depths tried, where the best depth lies beyond them: a mean
    over such sizes, since their prices are alike."""
    total, beyond = np.zeros(len(which)), np.zeros(len(which))
    for k, x in enumerate(own.x):
        best = own.best[which, k]
        above = best >= own.high[k]
        sides = enumerate((everyone.shallow, everyone.deep))
        ln_price = np.where(above, *(recipe(part, SCORES + 1 + side).at(x)[price] for side, part in sides))
        middle, apart = (own.high[k] + own.low[k]) / 2.0, own.high[k] - own.low[k]
        parabola = 2.0 * np.exp(ln_price) * apart * np.abs(values[:, k] - middle)
        ratio = np.log((own.rise[which, k] + LITTLE) / (parabola + LITTLE))
        counts = own.known[which] & (above | (best <= own.low[k]))
        total += np.where(counts, np.log1p((ratio / SHAPE_SD) ** 2 / TAILS), 0.0)
        beyond += counts
    return -0.5 * (TAILS + 1.0) * total / np.maximum(beyond, 1.0)


def contradicted(everyone: Populations, own: OwnDepths) -> tuple[float, float] | None:
    """The two sizes (or one, twice) between which own best depths differ most from what public evidence allows, as
    x = ln(N / 1e8), or None if all agree. A best depth beyond the depths tried counts as their end."""
    population, count = everyone.depth, len(own.x)
    mean, covariance = population.mean(own.x, np.zeros(count)), population.covariance(own.x, own.x)
    best = own.best[own.known]
    least = np.where(best <= own.low, -np.inf, np.minimum(best, own.high))
    most = np.where(best >= own.high, np.inf, np.maximum(best, own.low))
    farthest, found = UNLIKELY, None
    for k in range(count):
        for j in range(k, count):
            weight = np.zeros(count)
            weight[j] += 1.0
            weight[k] -= j != k
            public = mean @ weight
            sd = np.sqrt((covariance @ weight @ weight).mean() + public.var())
            low, high = (least[:, j], most[:, j]) if j == k else (least[:, j] - most[:, k], most[:, j] - least[:, k])
            low, high = np.sort(low)[int(SURE * len(low))], np.sort(high)[int((1.0 - SURE) * len(high))]
            away = max(low - public.mean(), public.mean() - high) / sd
            if away > farthest:
                farthest, found = float(away), (float(own.x[k]), float(own.x[j]))
    return found
