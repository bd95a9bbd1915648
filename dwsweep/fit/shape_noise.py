"""Noise that replicates do not show: how far cell means scatter about smooth curves of ln N.

Tuning, width-dependent luck and, with one seed, everything else. Third differences remove parabolas, but what is left
of a curve that bends counts as noise: on curves that bend within a factor of 10 in N the intervals were 1.7 times too
wide. So the contrasts z that annihilate a parabola at each depth, and higher powers of ln N that all depths share, are
split by restricted likelihood into

    z ~ N(0, τ²·I + s²·C K_ℓ Cᵀ),   K_ℓ(x, x') = exp(−(x − x')²/2ℓ²) within a depth

a rough part τ, wanted, and a smooth part (s, ℓ), shared by all depths and profiled away. With fewer than six sizes at
every depth the two cannot be told apart: all of z counts as noise, too wide rather than too narrow, and is used only
where there are no replicates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# two losses closer than this are the same number in float32; also keeps noise-free tables from dividing by zero
FLOOR_NATS = 1e-7
LENGTHS = (1.2, 2.0, 3.5)
SEPARABLE_SIZES = 6
SHARED_POWERS = (3, 4, 5, 6)
SMOOTH_STEPS = np.concatenate([[0.0], np.geomspace(1e-1, 1e5, 19)])
# eigenvalues of a kernel below this share of the largest are rounding
ROUNDING = 1e-15
ROUGH_STEPS = np.geomspace(1e-3, 4.0, 25)
LUCK_STEPS = np.geomspace(0.03, 6.0, 40)
# nats: reruns of Levine et al. 2020 agree to 0.001, shapes of public sweeps scatter by 0.002 to 0.004 about curves
LIKELY_LUCK = 0.004


@dataclass(frozen=True)
class Scatter:
    """tau: sd of a cell mean about its curve, nats, at its most likely. df: its degrees of freedom. excess: nats², what
    a mean may vary by beyond the variance already known, see ``_excess``; excess_df: degrees of freedom of the sum of
    the two. contrasts: how many there were. separable: rough and smooth could be told apart."""

    tau: float
    df: float
    excess: float
    excess_df: float
    contrasts: int
    separable: bool


def scatter(mean: np.ndarray, depth: np.ndarray, x: np.ndarray, known: np.ndarray) -> Scatter | None:
    """τ of the cell means (K,) at depth (K,) and ln axis x (K,), where ``known`` (K, K) is the covariance that is
    already explained. None where no contrast is left (fewer than four sizes at every depth, or one depth of four).

    df: −2 times the curvature of the profile likelihood in ln τ², which for contrasts of pure noise is their number.
    """
    used = _usable(depth, x)
    if not len(used):
        return None
    C = contrasts(depth[used], x[used])
    if not len(C):
        return None
    count = len(C)
    z, S = C @ mean[used], C @ known[np.ix_(used, used)] @ C.T
    explained = float(np.trace(S)) / count
    problem = _Contrasts.of(z, S, [C @ kernel_root(depth[used], x[used], length) for length in LENGTHS])
    top = max(float(z @ z) / count, explained, FLOOR_NATS**2)
    separable = bool(np.unique(depth[used], return_counts=True)[1].max() >= SEPARABLE_SIZES)
    smooth = top * (SMOOTH_STEPS if separable else SMOOTH_STEPS[:1])
    tau2 = np.maximum(top * ROUGH_STEPS, FLOOR_NATS**2)
    best = 0
    for steps in (9, 9, 1):
        best = int(_profile(problem, explained, tau2, smooth).argmax())
        low, high = tau2[max(best - 1, 0)], tau2[min(best + 1, len(tau2) - 1)]
        if steps == 1 or high <= low:
            break
        tau2 = np.geomspace(low, high, steps)
    value = float(tau2[best])
    spread = 0.35
    p = _profile(problem, explained, value * np.exp(np.array([-spread, 0.0, spread])), smooth)
    df = float(np.clip(-2.0 * (p[0] - 2.0 * p[1] + p[2]) / spread**2, 1.0, count))
    excess, excess_df = _excess(problem, explained, smooth, top)
    return Scatter(max(float(np.sqrt(value)), FLOOR_NATS), df, excess, excess_df, count, separable)


def _excess(problem: _Contrasts, explained: float, smooth: np.ndarray, top: float) -> tuple[float, float]:
    """s² beyond the ``explained`` variance (nats²) and degrees of freedom of v = explained + s².

    The most likely s is zero in about half of all sweeps whose luck is as large as their other noise, so s is averaged
    over what it may be: flat in s with a Cauchy tail from LIKELY_LUCK on, and every smooth part of the grid as likely
    before the data. A scaled inverse χ² stands for the result, with the mean and variance of ln v.
    """
    from scipy.special import digamma, polygamma

    s = np.sqrt(top) * LUCK_STEPS
    if explained > 0:
        s = np.concatenate([[0.0], s])
    log = _marginal(problem, explained, explained + s**2, smooth)
    weight = np.exp(log - log.max()) * np.gradient(s) / (1.0 + (s / LIKELY_LUCK) ** 2)
    weight /= weight.sum()
    ln_v = np.log(explained + s**2 + FLOOR_NATS**2)
    mean = float(weight @ ln_v)
    spread = float(weight @ (ln_v - mean) ** 2)
    half = np.geomspace(0.5, 1e6, 400)  # of the degrees of freedom
    df_half = float(np.exp(np.interp(-spread, -polygamma(1, half), np.log(half))))
    return max(0.0, float(np.exp(mean - np.log(df_half) + digamma(df_half))) - explained), 2.0 * df_half


def contrasts(depth: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(C, K) orthonormal rows that annihilate any parabola in x at each depth, and x³ … x⁶ with the same coefficient
    at every depth: what all depths share is the scaling law, not noise."""
    z = (x - x.mean()) / (np.ptp(x) / 2.0)
    columns = [np.where(depth == d, z**p, 0.0) for d in np.unique(depth) for p in range(3)]
    columns += [z**p for p in SHARED_POWERS] if len(np.unique(depth)) > 1 else []
    u, s, _ = np.linalg.svd(np.stack(columns, axis=1) / np.linalg.norm(columns, axis=1), full_matrices=True)
    rank = int(np.count_nonzero(s > 1e-6 * s[0]))
    return u[:, rank:].T


def _usable(depth: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Indices of the cells at depths with four or more distinct sizes."""
    kept = [np.flatnonzero(depth == d) for d in np.unique(depth)]
    kept = [where for where in kept if len(np.unique(np.round(x[where], 9))) >= 4]
    return np.concatenate(kept) if kept else np.array([], dtype=int)


def kernel_root(depth: np.ndarray, x: np.ndarray, length: float) -> np.ndarray:
    """F (K, R) with F·Fᵀ = K_ℓ to rounding. K_ℓ has one block per depth, each of low rank: R is about 15 per depth at
    any number of sizes."""
    columns = []
    for d in np.unique(depth):
        where = np.flatnonzero(depth == d)
        values, vectors = np.linalg.eigh(np.exp(-((x[where][:, None] - x[where]) ** 2) / (2.0 * length**2)))
        kept = values > ROUNDING * values[-1]
        block = np.zeros((len(depth), int(kept.sum())))
        block[where] = vectors[:, kept] * np.sqrt(values[kept])
        columns.append(block)
    return np.hstack(columns)


@dataclass(frozen=True)
class _Contrasts:
    """The contrasts in the basis where their known covariance S is diagonal: z (C,), variances (C,), and for each
    length the root of the smooth part's covariance (C, R), of orthogonal columns, R at most C."""

    z: np.ndarray
    variances: np.ndarray
    roots: list[np.ndarray]

    @classmethod
    def of(cls, z: np.ndarray, S: np.ndarray, roots: list[np.ndarray]) -> _Contrasts:
        values, Q = np.linalg.eigh(S)
        return cls(Q.T @ z, np.maximum(values, 0.0), [_orthogonal(Q.T @ root) for root in roots])


def _orthogonal(root: np.ndarray) -> np.ndarray:
    """Orthogonal columns G with G·Gᵀ = F·Fᵀ to rounding."""
    U, s, _ = np.linalg.svd(root, full_matrices=False)
    kept = s**2 > ROUNDING * s[0] ** 2
    return U[:, kept] * s[kept]


def _profile(problem: _Contrasts, explained: float, tau2: np.ndarray, smooth: np.ndarray) -> np.ndarray:
    """(T,) restricted log likelihood at each τ² (T,), maximised over the smooth part's variance and length."""
    return _likelihood(problem, explained, tau2, smooth).max(axis=(1, 2))


def _marginal(problem: _Contrasts, explained: float, tau2: np.ndarray, smooth: np.ndarray) -> np.ndarray:
    """(T,) the same, averaged over the smooth part's variance and length."""
    log = _likelihood(problem, explained, tau2, smooth)
    top = log.max(axis=(1, 2), keepdims=True)
    return top[:, 0, 0] + np.log(np.exp(log - top).mean(axis=(1, 2)))


def _likelihood(problem: _Contrasts, explained: float, tau2: np.ndarray, smooth: np.ndarray) -> np.ndarray:
    """(T, lengths, smooth) restricted log likelihood at each τ² (T,) and smooth part.

    The known covariance S is scaled to τ² below its own level, so that τ² runs over all values with the same shape.
    With W the inverse of the (diagonal) rough covariance and A = Fᵀ·W·F = U·diag(a)·Uᵀ, every s² costs R steps:
    ln|V| = ln|W⁻¹| + Σ ln(1 + s²·a),  zᵀV⁻¹z = zᵀWz − s²·Σ (UᵀFᵀWz)² / (1 + s²·a)  (Woodbury).
    """
    log = np.empty((len(tau2), len(problem.roots), len(smooth)))
    for k, value in enumerate(tau2):
        share = min(1.0, value / explained) if explained > 0 else 0.0
        rough = share * problem.variances + (max(value - explained, 0.0) if explained > 0 else value) + FLOOR_NATS**2
        weighted = problem.z / rough
        for j, F in enumerate(problem.roots):
            projected = F.T @ weighted
            if np.ptp(rough) <= 1e-9 * rough[0]:  # as many replicates everywhere: orthogonal as they are
                a = (F**2).sum(axis=0) / rough[0]
            else:
                a, U = np.linalg.eigh(F.T @ (F / rough[:, None]))
                projected = U.T @ projected
            gain = 1.0 + smooth[:, None] * np.maximum(a, 0.0)
            fitted = smooth[:, None] * projected**2 / gain
            log[k, j] = -0.5 * (np.log(gain) - fitted).sum(axis=1)
        log[k] -= 0.5 * float(np.log(rough).sum() + problem.z @ weighted)
    return log
