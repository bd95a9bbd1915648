"""Expected errors of a planned sweep: covariance of cell means, crossings of neighbouring depths, the best depth at a
size.

The error of a crossing is linear in the noise (the delta method): cell means → loss difference of a pair at its
crossing, g = Σ w_i·mean_i, where w is the derivative of the PCHIP interpolation at the true curves; its bias is the
interpolation's error there → sd(ln N) = sd(g) / slope.

The error of the best depth comes from the posterior of ``fit`` (fit/posterior.py), with the prior's losses, free of
noise, as data, and the noise of the planned runs declared. The spread of the draws predicts the interval that ``fit``
will state; the distance of their median from the truth is the bias of the forms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dwsweep.design.prior import Curves, Prior
from dwsweep.fit.ask import ONE_SD, best_depths, law, quantiles
from dwsweep.fit.interpolation import pchip
from dwsweep.fit.laws import FORMS
from dwsweep.fit.model import Cells, declared
from dwsweep.fit.posterior import Posterior, weigh

Planned = Mapping[tuple[int, int], frozenset[int]]
"""Seeds to run by shape (depth, width)."""
SUP_T = 2.9  # typical critical value of the sup-t band at 95 %
# effective nodes and draws of an expectation: of a design that is compared with many others, whose stated error is
# then known to 5 %; and of one that is printed, to 1.5 %
ROUGH, PRECISE = (150.0, 1024), (2400.0, 4096)


def covariance(cells: Planned, noise: float, seed_sd: float) -> np.ndarray:
    """Covariance (K, K) of the cell means, in the order of ``cells``, nats²: loss = cell + seed + noise.

    With n_i runs of cell i, and z_s the cells that seed s covers (m_s of them), the information is
    C⁻¹ = diag(n_i)/σ² − Σ_s τ²/(σ²(σ² + m_s τ²))·z_s z_sᵀ, τ the sd of a seed's effect on all shapes. The scatter of
    shapes is added elsewhere.
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
    n_params: float  # ln N of the expected crossing
    width: float  # width of the shallower net at the crossing
    inside: bool  # True if both depths have sizes on both sides of the crossing
    se_ln_n: float | None
    bias_ln_n: float | None  # error of interpolation between these sizes
    power: float | None  # probability that `fit` will find `crossed`


@dataclass(frozen=True)
class Design:
    """Shapes (depth, width), sorted, and the covariance C (K, K) of their means, scatter between shapes included."""

    curves: Curves
    shapes: Sequence[tuple[int, int]]
    C: np.ndarray

    @cached_property
    def nodes(self) -> Mapping[int, np.ndarray]:
        """Sizes of every depth's shapes as ln N, rising."""
        return {
            depth: self.curves.prior.ln_size(depth, np.array([w for d, w in self.shapes if d == depth]))
            for depth in self.curves.depths
        }

    def pairs(self) -> tuple[PairError, ...]:
        """Expected errors, one row per pair of neighbouring depths."""
        return tuple(
            self._pair(shallow, deep, x)
            for (shallow, deep), x in zip(pairwise(self.curves.depths), self.curves.crossings, strict=True)
        )

    def _pair(self, shallow: int, deep: int, x: float) -> PairError:
        n = math.exp(x)
        width = math.sqrt(n / (self.curves.prior.layer_weights * shallow))
        if not all(len(at) > 1 and at[0] < x < at[-1] for at in (self.nodes[shallow], self.nodes[deep])):
            return PairError(shallow, deep, n, width, False, None, None, None)
        weights, bias = self.difference(shallow, deep, x)
        slope = self.curves.slope(shallow, deep)
        error = math.sqrt(float(weights @ self.C @ weights)) / slope
        # the interpolated difference vanishes at the found crossing
        return PairError(shallow, deep, n, width, True, error, -bias / slope, self._power(shallow, deep, x))

    def difference(self, shallow: int, deep: int, x: float) -> tuple[np.ndarray, float]:
        """Weights (K,) of all cells in the interpolated difference at ``x``, and the interpolation error in nats."""
        weights, bias = np.zeros(len(self.shapes)), 0.0
        for depth, sign in ((shallow, 1.0), (deep, -1.0)):
            own, error = self._interpolation(depth, x)
            weights[[i for i, shape in enumerate(self.shapes) if shape[0] == depth]] += sign * own
            bias += sign * error
        return weights, bias

    def _interpolation(self, depth: int, x: float) -> tuple[np.ndarray, float]:
        """Derivative of the interpolated loss of ``depth`` at ``x`` by each of its cells, and the interpolation
        error."""
        nodes = self.nodes[depth]
        values = self.curves.loss(depth, nodes)
        K, step = len(nodes), 1e-5
        stack = np.vstack([values, values + step * np.eye(K), values - step * np.eye(K)])
        at = pchip(nodes, stack, np.array([x]))[:, 0]
        return (at[1 : K + 1] - at[K + 1 :]) / (2 * step), float(at[0] - self.curves.loss(depth, x))

    def _power(self, shallow: int, deep: int, crossing: float) -> float:
        """Probability that the difference is significant on both sides: at the farthest shared sizes, and half-way to
        them."""
        from scipy.special import ndtr  # norm.cdf without importing scipy.stats

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
class ExpectedDepth:
    """Expected best depth at a size, by the estimator of ``fit``.

    ln_depth: median of ln L. stated: half of the central 68 % of the draws. a, b: sd of the constants of the prior's
    form of the law; None without draws of that form.
    """

    ln_depth: float
    stated: float
    a: float | None
    b: float | None


def expected_posterior(prior: Prior, cells: Planned, precise: bool = False) -> Posterior:
    """Posterior of the planned runs, with the prior's losses, free of noise, as data."""
    depth = np.array([depth for depth, _ in cells], dtype=float)
    x = prior.ln_size(depth, np.array([width for _, width in cells]))
    own = prior.noise**2 / np.array([len(seeds) for seeds in cells.values()], dtype=float)
    values, vectors = np.linalg.eigh(covariance(cells, prior.noise, prior.seed_sd) - np.diag(own))
    kept = values > 1e-6 * max(float(values.max()), 1e-300)
    factors = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, kept]
    given = Cells(x, np.log(depth), prior.losses(depth, x), own, factors, math.inf, declared(prior.shape_sd))
    enough, draws = PRECISE if precise else ROUGH
    return Posterior(given, weigh(given, enough=enough, draws=draws))


def expected_depth(prior: Prior, cells: Planned, target: float, precise: bool = False) -> ExpectedDepth:
    """Expected best depth at ``target`` (non-embedding parameters), by the estimator of ``fit``."""
    posterior = expected_posterior(prior, cells, precise)
    low, middle, high = quantiles(best_depths(posterior, math.log(target)), ONE_SD)
    ties = law(posterior, prior.law.form)
    a, b = None, None
    if len(ties) > 1 and ties.shape[1] > 1:
        depths = np.exp(posterior.depths)[[0, -2]]
        ends = (ties[:, [0, -1]] - np.log(12.0 * depths)) / 2.0
        theta = FORMS[prior.law.form].from_ends(ends, *depths)
        a, b = (float(sd) for sd in theta.std(axis=0))
    return ExpectedDepth(middle, (high - low) / 2.0, a, b)
