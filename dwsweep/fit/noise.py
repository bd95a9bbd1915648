"""Cell means by two-way least squares, and how far they can be trusted: σ, τ, degrees of freedom, covariance."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit.shape_noise import scatter

POOLING_P_VALUE = 0.05
MIN_DF = 3.0


@dataclass(frozen=True)
class CellMeans:
    """Least squares of loss = cell + seed.

    mean: (K,) nats. weights: (K, n) with mean = weights · losses. residual, leverage: (n,). paired: seeds are shared
    between cells, so that their common part cancels.
    """

    mean: np.ndarray
    weights: np.ndarray
    residual: np.ndarray
    leverage: np.ndarray
    paired: bool


@dataclass(frozen=True)
class Noise:
    """Noise of one run and of a fitted cell mean.

    source: what the numbers rest on. sigma: depth → sd of one run's loss, nats (None where replicates cannot tell).
    df: depth → degrees of freedom of the variance of a mean. pooled: one σ for all depths. bartlett_p: p-value of
    equal σ. tau: sd of a cell mean about a smooth curve (scatter.py), nats; tau_df its degrees of freedom.
    shape_variance: nats², what a mean varies beyond its replicates. known: some noise estimate exists.
    why_unknown: a reason other than too few runs.
    """

    source: str
    sigma: dict[int, float | None]
    df: dict[int, float]
    pooled: bool
    bartlett_p: float | None
    tau: float | None
    tau_df: float
    shape_variance: float
    known: bool
    why_unknown: str = ""

    def of_few_documents(self, count: int) -> Noise:
        """The same for a held-out set of few documents: a variance that rests on them has one degree of freedom less
        than there are, and with a single one it is not known (unless it was declared)."""
        if count > 1:
            return replace(self, df={depth: min(df, count - 1.0) for depth, df in self.df.items()})
        if self.source == "declared":
            return self
        return replace(self, known=False, why_unknown="a single held-out document: another text may say otherwise")

    def df_of(self, depths: Sequence[int], variances: Sequence[float]) -> float:
        """Satterthwaite's degrees of freedom of a sum of independent variance estimates."""
        if self.pooled or not self.known:
            return self.df[depths[0]]
        total = sum(variances)
        denominator = sum(v * v / self.df[d] for d, v in zip(depths, variances, strict=True) if np.isfinite(self.df[d]))
        return total * total / denominator if denominator > 0 else np.inf


def cell_means(losses: np.ndarray, cells: np.ndarray, seeds: Sequence[Hashable], n_cells: int) -> CellMeans:
    """Least squares of losses (n,) on ``n_cells`` cells and on seeds whose effects sum to zero.

    With missing runs, a cell's fitted mean is what it would be over all seeds, so a missing seed does not break the
    pairing. Where seeds do not link the cells (or are not named), the model is loss = cell alone.
    """
    n = len(losses)
    X_cell = np.zeros((n, n_cells))
    X_cell[np.arange(n), cells] = 1.0
    levels = list(dict.fromkeys(seeds))
    paired = len(levels) > 1 and None not in levels and _linked(cells, seeds, n_cells)
    X = X_cell
    if paired:
        codes = np.array([levels.index(seed) for seed in seeds])
        effects = np.zeros((n, len(levels) - 1))
        for j in range(len(levels) - 1):
            effects[codes == j, j] = 1.0
            effects[codes == len(levels) - 1, j] = -1.0
        both = np.hstack([X_cell, effects])
        if n - both.shape[1] >= 1:
            X = both
        else:
            paired = False
    hat = _inverse(X.T @ X, n_cells) @ X.T
    coefficients = hat @ losses
    leverage = (X * hat.T).sum(axis=1)
    residual = losses - X @ coefficients
    residual[np.abs(residual) < 1e-12] = 0.0
    return CellMeans(coefficients[:n_cells], hat[:n_cells], residual, leverage, paired)


def _inverse(gram: np.ndarray, k: int) -> np.ndarray:
    """Inverse of XᵀX whose first k columns are cells: that block is diagonal, so only the few seeds need solving."""
    counts, both = np.diagonal(gram)[:k], gram[:k, k:]
    scaled = both / counts[:, None]
    seeds = np.linalg.inv(gram[k:, k:] - both.T @ scaled)
    corner = scaled @ seeds
    return np.block([[np.diag(1.0 / counts) + corner @ scaled.T, -corner], [-corner.T, seeds]])


def _linked(cells: np.ndarray, seeds: Sequence[Hashable], n_cells: int) -> bool:
    """True where every cell can be reached from every other through shared seeds."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    levels = {seed: i for i, seed in enumerate(dict.fromkeys(seeds))}
    columns = np.array([levels[seed] for seed in seeds]) + n_cells
    size = n_cells + len(levels)
    graph = coo_matrix((np.ones(len(cells)), (cells, columns)), shape=(size, size))
    count, _ = connected_components(graph, directed=False)
    return count == 1


def estimate_noise(
    means: CellMeans,
    run_depth: np.ndarray,
    chosen: np.ndarray,
    chosen_depth: np.ndarray,
    chosen_x: np.ndarray,
    declared: float | Mapping[int, float] | None = None,
    extra: np.ndarray | None = None,
) -> tuple[Noise, np.ndarray]:
    """The noise model and the covariance (K, K) of the fitted cell means, nats².

    run_depth: (n,) depth of each run. chosen: (K',) indices of the cells on the curves; chosen_depth, chosen_x: (K',).
    declared: sd of one run's loss in nats (or one per depth), instead of any estimate. extra: (K, K) covariance that is
    known from elsewhere (documents), nats².

    σ_d² = Σ r² / Σ (1 − h) over the runs of a depth, pooled unless Bartlett's test rejects equal variances at 5 %.
    τ² is the scatter of the cell means about smooth curves of ln N (scatter.py); what it exceeds the replicates'
    variance by is shape noise (tuning, width-dependent luck), added to every mean: Var = max(σ²/S, τ²) for equal cells.
    """
    depths = [int(d) for d in np.unique(chosen_depth)]
    extra = np.zeros((len(means.mean),) * 2) if extra is None else extra
    if declared is not None:
        values = declared if isinstance(declared, Mapping) else dict.fromkeys(depths, declared)
        if not all(isinstance(v, int | float) and 1e-12 <= v <= 100 for v in values.values()):
            raise InputError(
                f"{argument('noise')}: {declared!r}; the standard deviation of one run's loss in nats, above 0 "
                "(1e-12), at most 100"
            )
        variance = np.array([values[int(d)] ** 2 for d in run_depth])
        covariance = (means.weights * variance) @ means.weights.T + extra
        scattered = scatter(means.mean[chosen], chosen_depth, chosen_x, covariance[np.ix_(chosen, chosen)])
        noise = Noise(
            "declared",
            {d: float(values[d]) for d in depths},
            dict.fromkeys(depths, np.inf),
            True,
            None,
            scattered.tau if scattered else None,
            scattered.df if scattered else 0.0,
            0.0,
            True,
        )
        return noise, covariance
    sigma2, df, pooled, p_value = _sigma(means, run_depth, depths)
    variance = np.array([sigma2.get(int(d), 0.0) for d in run_depth])
    covariance = (means.weights * variance) @ means.weights.T + extra
    shape_variance = 0.0
    source = "replicates" if sigma2 else "none"
    scattered = scatter(means.mean[chosen], chosen_depth, chosen_x, covariance[np.ix_(chosen, chosen)])
    tau, tau_df = (scattered.tau, scattered.df) if scattered else (None, 0.0)
    if scattered is not None and not sigma2:
        shape_variance = scattered.excess
        source, df, pooled = "scatter", dict.fromkeys(depths, tau_df), True
    elif scattered is not None and scattered.separable:
        shape_variance = scattered.excess
        if shape_variance > 0:
            source, df, pooled = "replicates and scatter", dict.fromkeys(depths, tau_df), True
    sigma: dict[int, float | None] = {d: float(np.sqrt(sigma2[d])) if d in sigma2 else None for d in depths}
    known = source != "none"
    df = {d: df.get(d, 0.0) for d in depths}
    return Noise(source, sigma, df, pooled, p_value, tau, tau_df, shape_variance, known), covariance


def _sigma(
    means: CellMeans, run_depth: np.ndarray, depths: list[int]
) -> tuple[dict[int, float], dict[int, float], bool, float | None]:
    """σ² and df per depth from the residuals; empty where there are no replicates."""
    free = 1.0 - means.leverage
    total_df = float(free.sum())
    if total_df < 0.5:
        return {}, {}, True, None
    ss = {d: float((means.residual[run_depth == d] ** 2).sum()) for d in depths}
    df = {d: float(free[run_depth == d].sum()) for d in depths}
    pooled_variance = sum(ss.values()) / total_df
    p_value = bartlett(ss, df)
    each = p_value is not None and p_value < POOLING_P_VALUE and all(v >= MIN_DF for v in df.values())
    if each:
        return {d: ss[d] / df[d] for d in depths}, df, False, p_value
    return dict.fromkeys(depths, pooled_variance), dict.fromkeys(depths, total_df), True, p_value


def bartlett(ss: dict[int, float], df: dict[int, float]) -> float | None:
    """p-value of Bartlett's test that the variances ss/df are equal; None where fewer than two can be compared."""
    used = [d for d in ss if df[d] >= 1.0 and ss[d] > 0]
    if len(used) < 2:
        return None
    nu = np.array([df[d] for d in used])
    s2 = np.array([ss[d] / df[d] for d in used])
    pooled = float((nu * s2).sum() / nu.sum())
    statistic = nu.sum() * np.log(pooled) - (nu * np.log(s2)).sum()
    correction = 1.0 + ((1.0 / nu).sum() - 1.0 / nu.sum()) / (3.0 * (len(used) - 1))
    return chi2_tail(statistic / correction, len(used) - 1)


# Quantiles and tails of the usual distributions, from scipy.special: importing scipy.stats costs about a second.
# Degrees of freedom may be infinite, where t becomes normal and F becomes χ²/dfn.


def t_two_sided(confidence: float, df: float) -> float:
    """t with P(|T| ≤ t) = ``confidence``."""
    from scipy.special import ndtri, stdtrit

    level = 0.5 + confidence / 2.0
    return float(stdtrit(df, level) if math.isfinite(df) else ndtri(level))


def chi2_quantile(p: np.ndarray | float, df: float) -> np.ndarray:
    """x with P(χ²_df ≤ x) = p."""
    from scipy.special import gammaincinv

    return 2.0 * gammaincinv(df / 2.0, p)


def chi2_tail(x: float, df: float) -> float:
    """P(χ²_df > x)."""
    from scipy.special import chdtrc

    return float(chdtrc(df, x))


def f_quantile(p: float, dfn: float, dfd: float) -> float:
    """x with P(F(dfn, dfd) ≤ x) = p."""
    from scipy.special import fdtri

    return float(fdtri(dfn, dfd, p)) if math.isfinite(dfd) else float(chi2_quantile(p, dfn)) / dfn


def f_tail(x: float, dfn: float, dfd: float) -> float:
    """P(F(dfn, dfd) > x)."""
    from scipy.special import fdtrc

    return float(fdtrc(dfn, dfd, x)) if math.isfinite(dfd) else chi2_tail(x * dfn, dfn)
