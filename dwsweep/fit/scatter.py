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
ROUGH_STEPS = np.geomspace(1e-3, 4.0, 25)


@dataclass(frozen=True)
class Scatter:
    """tau: sd of a cell mean about its curve, nats. df: its degrees of freedom. excess: nats², part of τ² beyond the
    variance already known. contrasts: how many there were. separable: rough and smooth could be told apart."""

    tau: float
    df: float
    excess: float
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
    same = depth[used][:, None] == depth[used][None, :]
    gap = x[used][:, None] - x[used][None, :]
    K = np.stack([C @ (same * np.exp(-(gap**2) / (2.0 * length**2))) @ C.T for length in LENGTHS])
    problem = (C @ mean[used], C @ known[np.ix_(used, used)] @ C.T, K)
    count = len(C)
    explained = float(np.trace(problem[1])) / count
    top = max(float(problem[0] @ problem[0]) / count, explained, FLOOR_NATS**2)
    separable = bool(np.unique(depth[used], return_counts=True)[1].max() >= SEPARABLE_SIZES)
    smooth = top * (SMOOTH_STEPS if separable else SMOOTH_STEPS[:1])
    tau2 = np.maximum(top * ROUGH_STEPS, FLOOR_NATS**2)
    best = 0
    for steps in (9, 9, 1):
        best = int(_profile(*problem, explained, tau2, smooth).argmax())
        low, high = tau2[max(best - 1, 0)], tau2[min(best + 1, len(tau2) - 1)]
        if steps == 1 or high <= low:
            break
        tau2 = np.geomspace(low, high, steps)
    value = float(tau2[best])
    spread = 0.35
    p = _profile(*problem, explained, value * np.exp(np.array([-spread, 0.0, spread])), smooth)
    df = float(np.clip(-2.0 * (p[0] - 2.0 * p[1] + p[2]) / spread**2, 1.0, count))
    return Scatter(max(float(np.sqrt(value)), FLOOR_NATS), df, max(0.0, value - explained), count, separable)


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


def _profile(
    z: np.ndarray, S: np.ndarray, K: np.ndarray, explained: float, tau2: np.ndarray, smooth: np.ndarray
) -> np.ndarray:
    """(T,) restricted log likelihood at each τ² (T,), maximised over the smooth part's variance and length.

    The known covariance S is scaled to τ² below its own level, so that τ² runs over all values with the same shape.
    """
    if len(tau2) > 1 and len(z) > 200:  # hundreds of cells: all τ² at once would need gigabytes
        return np.concatenate([_profile(z, S, K, explained, tau2[k : k + 1], smooth) for k in range(len(tau2))])
    share = np.minimum(1.0, tau2 / explained) if explained > 0 else np.zeros_like(tau2)
    rest = np.maximum(tau2 - explained, 0.0) if explained > 0 else tau2
    rough = share[:, None, None] * S + (rest[:, None, None] + FLOOR_NATS**2) * np.eye(len(z))
    V = rough[:, None, None] + smooth[None, None, :, None, None] * K[None, :, None]
    L = np.linalg.cholesky(V)
    solved = np.linalg.solve(L, np.broadcast_to(z[:, None], (*V.shape[:-1], 1)))[..., 0]
    logdet = 2.0 * np.log(np.diagonal(L, axis1=-2, axis2=-1)).sum(axis=-1)
    return (-0.5 * (logdet + (solved**2).sum(axis=-1))).max(axis=(1, 2))
