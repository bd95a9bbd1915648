"""Losses within one group, compared: with the best value, with the first one, and with another arm, simultaneously.

With m_j the mean loss at value j, corrected to the size of the group, every difference m_j − m_i has a band that holds
for all pairs at once (sup-t over the draws of all cells). From L_ji ≤ μ_j − μ_i ≤ U_ji for all pairs follows, whichever
value is the best one and however it was chosen (Hsu 1996, Multiple Comparisons),

    max_i L_ji ≤ μ_j − min_i μ_i ≤ max_i U_ji            above the best
    max_ji L_ji ≤ max_j μ_j − min_i μ_i ≤ max_ji U_ji    the spread

The spread of noisy means is larger than that of the true ones; what the draws add to it once more is taken off its
estimate. Shapes are not quite of one size: with s the slope of the loss in ln N, m = mean − s·(x − x_group), and the
error of s is drawn, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dwsweep.fit.curves import Curves, gaussian
from dwsweep.fit.pairing import Arm, Pairing, summed
from dwsweep.fit.shape_noise import FLOOR_NATS
from dwsweep.fit.transitions import sup_t_quantile

SLOPE_ERROR = 0.5  # of the slope, where fewer than three show its spread
# d ln loss / d ln N where one size says nothing of it: alpha_N of Kaplan et al. 2020, with an error as large as itself
DEFAULT_SLOPE = -0.076
SAME_SIZE = 1e-3  # in ln N, below which nothing is corrected


@dataclass(frozen=True)
class Slope:
    """dloss/dx at a group's size, nats per unit of ln N. common: its error, of all cells alike; own: of each cell's own
    slope. measured: by the neighbouring sizes of the curves."""

    value: float
    common: float
    own: float
    measured: bool


@dataclass(frozen=True)
class Losses:
    """The cells of a group, J values. mean (J,); deviations (D, J): draws of their errors; se (J,); df: degrees of
    freedom; correction (J,): what was added to the means; gap: the largest |x − x_group|; known: errors are."""

    mean: np.ndarray
    deviations: np.ndarray
    df: float
    correction: np.ndarray
    gap: float
    slope: Slope | None
    known: bool

    @property
    def se(self) -> np.ndarray:
        return np.maximum(self.deviations.std(axis=0), FLOOR_NATS)


@dataclass(frozen=True)
class Bands:
    """value, low, high (J,) each; without low and high where the noise is not known."""

    value: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None

    def at(self, k: int) -> tuple[float, float | None, float | None]:
        if self.low is None or self.high is None:
            return float(self.value[k]), None, None
        return float(self.value[k]), float(self.low[k]), float(self.high[k])


@dataclass(frozen=True)
class Ranking:
    """above_best, above_first: (J,). spread, low, high: of the worst over the best, nats."""

    above_best: Bands
    above_first: Bands
    spread: float
    low: float | None
    high: float | None


def losses_of(curves: Curves, cells: Sequence[int], x: float | None, rng: np.random.Generator) -> Losses:
    """The cells of one group at ln axis ``x``; None: as they are, for the sizes are what is compared."""
    where = np.array(cells)
    mean, deviations = curves.mean[where], curves.draws[:, where] - curves.mean[where]
    df = min(curves.noise.df.get(int(d), math.inf) for d in curves.depth[where]) if curves.noise.known else 0.0
    gaps = np.zeros(len(where)) if x is None else curves.x[where] - x
    correction = np.zeros(len(where))
    slope = None
    if np.abs(gaps).max() > SAME_SIZE:
        slope = slope_at(curves, where)
        correction = -slope.value * gaps
        n = len(deviations)
        errors = slope.common * rng.standard_normal((n, 1)) + slope.own * rng.standard_normal((n, len(where)))
        deviations = deviations - errors * gaps
    return Losses(mean + correction, deviations, df, correction, float(np.abs(gaps).max()), slope, curves.noise.known)


def slope_at(curves: Curves, cells: np.ndarray) -> Slope:
    """The middle of the slopes to the neighbouring sizes of each cell's curve."""
    found = []
    for k in cells:
        near = curves.at(int(curves.depth[k]))
        place = int(np.flatnonzero(near == k)[0])
        beside = [near[j] for j in (place - 1, place + 1) if 0 <= j < len(near)]
        steps = [curves.x[k] - curves.x[j] for j in beside]
        own = [
            (curves.mean[k] - curves.mean[j]) / step for j, step in zip(beside, steps, strict=True) if abs(step) > 0.1
        ]
        if own:
            found.append(float(np.mean(own)))
    if not found:
        value = DEFAULT_SLOPE * float(curves.mean[cells].mean())
        return Slope(value, abs(value), 0.0, False)
    middle = float(np.median(found))
    own_error = float(np.std(found, ddof=1)) if len(found) > 2 else SLOPE_ERROR * abs(middle)
    return Slope(middle, own_error / math.sqrt(len(found)), own_error, True)


def ranked(losses: Losses, confidence: float) -> Ranking:
    """Every value against every other."""
    m = losses.mean
    above, first = m - m.min(), m - m[0]
    spread = float(np.ptp(m))
    if not losses.known or len(m) < 2:
        return Ranking(Bands(above, None, None), Bands(first, None, None), spread, None, None)
    i, j = np.triu_indices(len(m), 1)
    low, high = np.zeros((len(m), len(m))), np.zeros((len(m), len(m)))
    low[j, i], high[j, i] = band(m[j] - m[i], losses.deviations[:, j] - losses.deviations[:, i], losses.df, confidence)
    low[i, j], high[i, j] = -high[j, i], -low[j, i]
    to_first = np.arange(1, len(m))
    ends = band(first[1:], losses.deviations[:, to_first] - losses.deviations[:, :1], losses.df, confidence)
    drawn = float(np.ptp(m + losses.deviations, axis=1).mean())
    bounds = float(low.max()), float(high.max())
    return Ranking(
        Bands(above, low.max(axis=1), high.max(axis=1)),
        Bands(first, np.append(0.0, ends[0]), np.append(0.0, ends[1])),
        float(np.clip(2.0 * spread - drawn, *bounds)),
        *bounds,
    )


def band(
    value: np.ndarray, deviations: np.ndarray, df: float, confidence: float, one_sided: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of differences (J,), simultaneous over them, from draws (D, J) of their errors. one_sided: either
    end holds by itself, and not both."""
    se = np.maximum(deviations.std(axis=0), FLOOR_NATS)
    half = sup_t_quantile(deviations, se, df, confidence, one_sided) * se
    return value - half, value + half


def apart(
    base: tuple[Arm, Losses, Sequence[int]],
    other: tuple[Arm, Losses, Sequence[int]],
    pairing: Pairing,
    confidence: float,
    rng: np.random.Generator,
) -> Bands:
    """Loss of the other arm − loss of the base at the values that both have, given in the same order: (arm, losses,
    cells). The band holds at all of them together; the errors are those of the cells, less what ``pairing`` says that
    they share, with the level that a seed adds to all."""
    (a, of_a, i), (b, of_b, j) = base, other
    value = of_b.mean - of_a.mean
    if not (of_a.known and of_b.known):
        return Bands(value, None, None)
    own = [c.total_covariance[np.ix_(k, k)] for c, k in ((a.curves, i), (b.curves, j))]
    cross = pairing.cross[np.ix_(i, j)]
    covariance = own[0] + own[1] - cross - cross.T
    n = len(of_a.deviations)
    deviations = gaussian(covariance, n, rng) + math.sqrt(pairing.level) * rng.standard_normal((n, 1))
    for losses in (of_a, of_b):  # a slope of each arm
        if losses.slope is not None:
            gaps = -losses.correction / losses.slope.value if losses.slope.value else np.zeros(len(value))
            errors = losses.slope.common * rng.standard_normal((n, 1))
            deviations = deviations + (errors + losses.slope.own * rng.standard_normal((n, len(value)))) * gaps
    labels = [int(a.curves.depth[k]) for k in i]
    if pairing.noise is not None:
        parts = [(float(np.mean(np.diagonal(covariance))), min(pairing.noise.df.get(d, math.inf) for d in labels))]
    else:
        parts = [(float(np.mean(np.diagonal(v))), losses.df) for v, losses in zip(own, (of_a, of_b), strict=True)]
    df = max(summed([*parts, (pairing.level, pairing.level_df)])[1], 1.0)
    return Bands(value, *band(value, deviations, df, confidence))
