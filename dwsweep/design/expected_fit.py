"""Expected errors of a planned sweep, by the posterior of ``fit``: its data are the prior's losses,
free of noise, and the noise of the planned runs is declared.

The spread of its draws predicts the intervals that ``fit`` will state, of the best depth at a size and of the crossing
of two depths; the distance of their middle from the truth is the bias of the forms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dwsweep.design.prior import AssumedTruth
from dwsweep.fit.answers.width_law import FEWEST_POINTS
from dwsweep.fit.statistics.ask import ONE_SD, ROWS, at_depths, inside_depths, quantiles
from dwsweep.fit.statistics.laws import FORMS
from dwsweep.fit.statistics.model import declared
from dwsweep.fit.statistics.nodes import weigh
from dwsweep.fit.statistics.posterior import Posterior
from dwsweep.interval import NORMAL_95
from dwsweep.records.cells import Cells

Planned = Mapping[tuple[int, int], frozenset[int]]
"""Seeds to run by shape (depth, width)."""
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
    """Expected errors of one transition under a design. n_params, width: of the shallower net at the expected crossing.
    inside: both depths have sizes on both sides of it. bias_ln_n: of the forms. power: probability that `fit` will find
    `crossed`."""

    shallow: int
    deep: int
    n_params: float
    width: float
    inside: bool
    se_ln_n: float | None
    bias_ln_n: float | None
    power: float | None


def expected_posterior(prior: AssumedTruth, cells: Planned, precise: bool = False) -> Posterior:
    """Posterior of the planned runs, with the prior's losses, free of noise, as data."""
    depth = np.array([depth for depth, _ in cells], dtype=float)
    x = prior.ln_size(depth, np.array([width for _, width in cells]))
    own = prior.noise**2 / np.array([len(seeds) for seeds in cells.values()], dtype=float)
    values, vectors = np.linalg.eigh(covariance(cells, prior.noise, prior.seed_sd) - np.diag(own))
    kept = values > 1e-6 * max(float(values.max()), 1e-300)
    factors = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, kept]
    given = Cells(x, np.log(depth), prior.losses(depth, x), own, factors, math.inf, declared(prior.shape_sd))
    enough, draws = PRECISE if precise else ROUGH
    return Posterior(given, weigh(given, enough=enough, draws=draws)[0])


def law_errors(prior: AssumedTruth, posterior: Posterior) -> tuple[float | None, float | None]:
    """Sds of the two constants of the prior's form of the law; None where too few sizes have a best depth inside."""
    frame = posterior.frame
    sizes = np.linspace(frame.low, frame.high, ROWS).tolist()
    x, y, sd = inside_depths(posterior, dict.fromkeys(sizes, (frame.first, frame.last)))
    if len(x) < FEWEST_POINTS:
        return None, None
    ln_width = (x - math.log(prior.layer_weights) - y) / 2.0
    theta = FORMS[prior.law.form].through(ln_width, np.exp(y), sd**-2.0)
    a, b = (float(high - low) / 2.0 for low, _, high in (quantiles(one, ONE_SD) for one in theta.T))
    return a, b


def pair_error(prior: AssumedTruth, cells: Planned, posterior: Posterior | None, shallow: int, deep: int) -> PairError:
    """Expected error of the transition of two depths: a crossing is found with the probability that noise leaves the
    lead of the deeper net sure at the farthest shared sizes, or half-way to them, on both sides."""
    from scipy.special import ndtr  # norm.cdf without importing scipy.stats

    x = prior.crossing(shallow, deep)
    n = math.exp(x)
    width = math.sqrt(n / (prior.layer_weights * shallow))
    sizes = [prior.ln_size(depth, np.array([w for d, w in cells if d == depth])) for depth in (shallow, deep)]
    inside = all(len(at) > 1 and at.min() < x < at.max() for at in sizes)
    if not inside or posterior is None:
        return PairError(shallow, deep, n, width, inside, None, None, None)
    ends = max(at.min() for at in sizes), min(at.max() for at in sizes)
    at = np.array([x, *(place for end in ends for place in (end, (end + x) / 2.0))])
    rows = at_depths(posterior, at, np.array([shallow, deep], dtype=float))
    lead = rows[:, :, 0] - rows[:, :, 1]
    mean, sd, slope = lead.mean(axis=0), lead.std(axis=0), prior.slope(shallow, deep)
    sure = np.abs(mean / sd)
    power = float(np.prod([ndtr(sure[k : k + 2].max() - NORMAL_95) for k in (1, 3)]))
    return PairError(shallow, deep, n, width, True, float(sd[0] / slope), float(-mean[0] / slope), power)
