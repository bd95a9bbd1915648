"""Noise of cell means: σ, degrees of freedom, covariance; declared noise.

Two-way least squares splits the losses into cell and seed; σ comes from its residuals. *Scatter between shapes* is
noise that these do not show: the posterior of the losses tells it (scatter.py), or it is ``LIKELY_SHAPE_SD``.
*Documents* (documents.py) add what another sample of held-out text would change.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.text import BITS_PER_TOKEN, NATS

MOST_SEEDS = 500  # most paired seeds: with more, their error in a mean is small beside the rest
SCATTER, DECLARED, DEFAULT = "scatter", "declared", "default"  # sources of the error that seeds of a shape share
# nats: reruns of Levine et al. 2020 agree to 0.001, shapes of public sweeps scatter by 0.002 to 0.004 about curves
LIKELY_SHAPE_SD = 0.004
# two losses closer than this are the same number in float32; also keeps noise-free tables from dividing by zero
FLOOR_NATS = 1e-7


@dataclass(frozen=True)
class MeanCovariance:
    """Covariance of K cell means, nats²: diag(``diagonal``) + ``factors``·``factors``ᵀ.

    diagonal: (K,) variance of each mean alone. factors: (K, R) errors that seeds and documents add to all means.
    """

    diagonal: np.ndarray
    factors: np.ndarray

    def at(self, where: np.ndarray) -> MeanCovariance:
        """The covariance of the means ``where``."""
        return MeanCovariance(self.diagonal[where], self.factors[where])

    def draws(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """(n, K) draws of a centred Gaussian."""
        drawn = rng.standard_normal((n, len(self.diagonal)))
        drawn *= np.sqrt(self.diagonal)
        drawn += rng.standard_normal((n, self.factors.shape[1])) @ self.factors.T
        return drawn


@dataclass(frozen=True)
class CellMeans:
    """Least squares of loss = cell + seed, n runs in K cells.

    mean: (K,) nats. residual: (n,). paired: seeds are shared between cells, so that their common part
    cancels. cells, codes: (n,) the cell and the seed of each run. shares: (K, S) of the seeds in each cell. gain:
    (S, S), the seeds' effects are gain · Σ (losses − mean of their cell). S = 0 if they are not paired. points: losses
    of each run, in as many cells, which share its error: they tell no more of noise and seeds than one.
    """

    mean: np.ndarray
    residual: np.ndarray
    paired: bool
    cells: np.ndarray
    codes: np.ndarray
    shares: np.ndarray
    gain: np.ndarray
    points: float = 1.0

    @property
    def of_run(self) -> tuple[float | None, float]:
        """σ² of a run and its degrees of freedom, from the residuals of all runs; None without replicates."""
        free = len(self.cells) - len(self.mean) - max(len(self.gain) - 1, 0)
        return (float((self.residual**2).sum()) / free, free / self.points) if free else (None, 0.0)

    def covariance(self, variance: np.ndarray) -> MeanCovariance:
        """The covariance of the means, for runs of ``variance`` (K,) nats² in each cell.

        The seeds' effects rest on differences within cells, which are independent of the cells' averages: the one part
        is diagonal, the other has the rank of the seeds.
        """
        counts = np.bincount(self.cells, minlength=len(self.mean))
        of_seeds = self.points * self.gain @ _within(self.shares, variance * counts) @ self.gain
        return MeanCovariance(variance / counts, self.shares @ root(of_seeds))


def seed_level(losses: np.ndarray, cell: np.ndarray, seeds: Sequence[Hashable]) -> tuple[float, float] | None:
    """(variance of the error that seeds add to all cells alike, its degrees of freedom); None with a single seed.

    The mean over cells of each seed's deviation has variance s² + σ²/K; the second part is in the cells' own noise
    already. Runs without seeds, or whose seeds do not link the cells, have all of it there.
    """
    if len(names := set(seeds)) == 1 and None not in names:
        return None
    means = cell_means(losses, cell, seeds)
    if not means.paired:
        return 0.0, math.inf
    of_seeds = averages(losses - averages(losses, cell)[cell], means.codes)
    own = (means.of_run[0] or 0.0) / len(means.mean)
    spread = float(of_seeds @ of_seeds) / (len(names) - 1)
    return max(0.0, spread - own) / len(names), len(names) - 1.0


def averages(values: Sequence[float] | np.ndarray, of: np.ndarray) -> np.ndarray:
    """(K,) averages of ``values`` (n,) by group ``of`` (n,)."""
    return np.bincount(of, values) / np.bincount(of)


def _within(shares: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(S, S) scatter of the seeds within cells, whose ``shares`` (K, S) count ``weight`` (K,)."""
    weighted = shares * weight[:, None]
    return np.diag(weighted.sum(axis=0)) - weighted.T @ shares


@dataclass(frozen=True)
class Scatter:
    """sd: τ, nats. own: (D,) draws of τ² and scale: (D,) of the variance of a run over its estimate, which go together.
    from_bend: it can be told from the bend of a curve."""

    sd: float
    own: np.ndarray
    scale: np.ndarray
    from_bend: bool

    def df(self, variance: float) -> float:
        """Degrees of freedom of a mean's whole variance, ``variance`` (nats²) of it from the noise of its runs.

        Shared errors cancel between means, and have no degrees of freedom."""
        return chi2_df(np.log(self.scale * variance + self.own))


@dataclass(frozen=True)
class Noise:
    """Noise of one run and of a fitted cell mean.

    source: basis of the estimate. sigma: sd of one run's loss, nats (None if replicates cannot tell). df: degrees of
    freedom of the variance of a mean. replicate_df: degrees of freedom of the replicates alone, 0 without; replicated:
    a shape has several runs. known: some noise estimate exists. tau: scatter between shapes as the losses show it,
    nats; None if they show none. shape_variance: nats², variance of a mean beyond its replicates; shape_source: basis
    of it. why_unknown: a reason other than too few runs. most_df: degrees of freedom that documents allow.
    likely_shape_sd: scatter between shapes where nothing shows it.
    """

    source: str
    sigma: float | None
    df: float
    replicate_df: float
    replicated: bool
    known: bool
    tau: float | None = None
    shape_variance: float = 0.0
    shape_source: str = DECLARED
    why_unknown: str = ""
    most_df: float = math.inf
    likely_shape_sd: float = LIKELY_SHAPE_SD

    def of_few_documents(self, count: int) -> Noise:
        """Noise for a held-out set of few documents: a variance that rests on them has one degree of freedom less
        than there are, and with a single one it is not known (unless it was declared)."""
        if count > 1:
            most = count - 1.0
            return replace(self, df=min(self.df, most), replicate_df=min(self.replicate_df, most), most_df=most)
        if self.source == DECLARED:
            return self
        return replace(self, known=False, why_unknown="a single held-out document: losses on another text may differ")

    def with_scatter(self, found: Scatter | None, known: MeanCovariance) -> Noise:
        """The noise of means with the scatter between their shapes, which the losses show or which is
        ``LIKELY_SHAPE_SD``. known: covariance of the means by replicates and documents.

        A scatter that may be the bend of a curve counts if it is larger, but a declared σ of a single run per shape
        holds it.
        """
        default, own = self.likely_shape_sd**2, float(known.diagonal.mean())
        if self.source == DECLARED and not self.replicated and not (found and found.from_bend):
            return replace(self, tau=found.sd if found else None)
        if found is None:  # adding a known variance to an estimated one narrows no interval
            df = self.df * ((own + default) / own) ** 2 if own > 0.0 else self.df
            return replace(self, df=min(df, self.most_df), shape_variance=default, shape_source=DEFAULT)
        shown = found.from_bend or found.sd**2 > default
        of_replicates = "replicates and scatter" if shown else "replicates"
        return replace(
            self,
            source={"none": SCATTER, "replicates": of_replicates}.get(self.source, self.source),
            df=min(found.df(own), self.most_df),
            tau=found.sd,
            shape_variance=found.sd**2 if shown else default,
            shape_source=SCATTER if shown else DEFAULT,
            known=not self.why_unknown,
        )


def cell_means(losses: np.ndarray, cells: np.ndarray, seeds: Sequence[Hashable]) -> CellMeans:
    """Least squares of losses (n,) on cells, numbered without a gap, and on seeds whose effects sum to zero.

    With missing runs, a cell's fitted mean is what it would be over all seeds, so a missing seed does not break the
    pairing. Where seeds do not link the cells (or are not named, or are more than ``MOST_SEEDS``), the model is loss =
    cell alone. Cells are eliminated first: no matrix is larger than cells by seeds.
    """
    names = {seed: k for k, seed in enumerate(dict.fromkeys(seeds))}
    codes, n_seeds = np.array([names[seed] for seed in seeds]), len(names)
    counts, average = np.bincount(cells), averages(losses, cells)
    n_cells = len(counts)
    enough = 1 < n_seeds <= MOST_SEEDS and None not in names and len(losses) > n_cells + n_seeds - 1
    if not (enough and _linked(cells, codes, n_cells, n_seeds)):
        residual = _but_rounding(losses - average[cells])
        nothing = np.zeros((n_cells, 0))
        return CellMeans(average, residual, False, cells, codes, nothing, np.zeros((0, 0)))
    shares = (
        np.bincount(cells * n_seeds + codes, minlength=n_cells * n_seeds).reshape(n_cells, n_seeds) / counts[:, None]
    )
    # the scatter of linked seeds lacks the direction of their sum alone, which their effects do not have
    gain = np.linalg.inv(_within(shares, counts) + 1.0 / n_seeds) - 1.0 / n_seeds
    effects = gain @ np.bincount(codes, losses - average[cells], n_seeds)
    mean = average - shares @ effects
    residual = _but_rounding(losses - mean[cells] - effects[codes])
    return CellMeans(mean, residual, True, cells, codes, shares, gain)


def _but_rounding(residual: np.ndarray) -> np.ndarray:
    return np.where(np.abs(residual) < 1e-12, 0.0, residual)


def _linked(cells: np.ndarray, codes: np.ndarray, n_cells: int, n_seeds: int) -> bool:
    """True if shared seeds link every cell to every other."""
    has = np.zeros((n_cells, n_seeds))
    has[cells, codes] = 1.0
    near, reached = has.T @ has > 0.0, np.arange(n_seeds) == 0
    while (more := near[reached].any(axis=0) & ~reached).any():
        reached = reached | more
    return bool(reached.all())


def estimate_noise(
    means: CellMeans, declared: float | None = None, extra: np.ndarray | None = None, unit: str = NATS
) -> tuple[Noise, MeanCovariance]:
    """The noise by replicates, and the covariance of the fitted cell means, nats²; both without scatter of shapes.

    declared: sd of one run's loss, in its unit, instead of any estimate. extra: (K, K) covariance that is known from
    elsewhere (documents), nats². unit: of losses; all are in it in place of nats.

    One σ for all runs: the few of one depth would leave its own unsure.
    """
    sigma2, df = means.of_run if declared is None else (declared**2, math.inf)
    source = DECLARED if declared is not None else "none" if sigma2 is None else "replicates"
    covariance = means.covariance(np.full(len(means.mean), sigma2 or 0.0))
    if extra is not None:
        covariance = replace(covariance, factors=np.hstack([covariance.factors, root(extra)]))
    noise = Noise(
        source=source,
        sigma=None if sigma2 is None else math.sqrt(sigma2),
        df=df,
        replicate_df=df,
        replicated=len(means.cells) > len(means.mean),
        known=source != "none",
        likely_shape_sd=LIKELY_SHAPE_SD / (math.log(2.0) if unit == BITS_PER_TOKEN else 1.0),
    )
    return noise, covariance


def root(covariance: np.ndarray) -> np.ndarray:
    """The symmetric F (K, K) with F·Fᵀ = ``covariance``, which may be singular.

    Eigenvectors of equal eigenvalues are arbitrary; F is not, so that draws repeat on another machine.
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2.0)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


# Quantiles and tails of the usual distributions, from scipy.special: importing scipy.stats costs about a second.
# Degrees of freedom of t may be infinite.


def t_two_sided(confidence: float, df: float) -> float:
    """t with P(|T| ≤ t) = ``confidence``."""
    from scipy.special import ndtri, stdtrit

    level = 0.5 + confidence / 2.0
    return float(stdtrit(df, level) if math.isfinite(df) else ndtri(level))


def summed(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Variance and degrees of freedom (Satterthwaite) of a sum of independent variance estimates."""
    total = sum(variance for variance, _ in parts)
    inverse = sum(variance**2 / df for variance, df in parts if math.isfinite(df))
    return total, total**2 / inverse if inverse > 0 else math.inf


def chi2_df(ln_variance: np.ndarray) -> float:
    """Degrees of freedom ν of the scaled inverse χ² whose logarithm varies as ``ln_variance`` (D,): ψ′(ν/2) is the
    variance of ln χ²_ν."""
    from scipy.special import polygamma

    half = np.geomspace(0.5, 1e6, 400)
    return 2.0 * float(np.exp(np.interp(-float(ln_variance.var()), -polygamma(1, half), np.log(half))))
