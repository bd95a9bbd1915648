"""How well a block's attention is conditioned: the condition number of what its heads put out.

Saratchandran, Teney and Lucey 2025 (arXiv 2505.20802, read in secondary sources) take the heads' outputs of one
sequence side by side, before the matrix that mixes them, and the ratio of that matrix's extreme singular values:

    A = [A_1, …, A_H],  N × H·d_p,        κ(A) = σ_1(A) / σ_min(N, H·d_p)(A)

N is the number of positions. Their argument is for H·d_p ≥ N, where more columns bring κ towards 1; a narrow model has
fewer columns than positions, and κ is then the ratio over its columns. Ours are the sample, the first ``SEQUENCES``
held-out windows of the training length; the mean, that of ln κ over them; and the floor: A is computed in float32,
which resolves no singular value below ε·max(N, H·d_p)·σ_1, so the smallest is raised to that and κ is at most
1/(ε·max(N, H·d_p)).

The singular values are found on the host: LAPACK inside a program of several of a CPU's cores can wait for ever.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SEQUENCES = 4


def condition_number(A: NDArray[np.floating]) -> NDArray[np.float64]:
    """κ of matrices (…, N, C), float32; NaN of one that is zero or not finite."""
    usable = np.isfinite(A).all(axis=(-2, -1)) & (A != 0).any(axis=(-2, -1))
    safe = np.where(usable[..., None, None], A, 1.0).astype(np.float32)
    singular = np.linalg.svd(safe, compute_uv=False).astype(np.float64)
    largest, smallest = singular[..., 0], singular[..., -1]
    floor = np.finfo(np.float32).eps * max(A.shape[-2:]) * largest
    return np.where(usable, largest / np.maximum(smallest, floor), np.nan)


def mean_condition(A_BxNxC: NDArray[np.floating]) -> NDArray[np.float64]:
    """Geometric mean of κ over the sequences of (…, B, N, C)."""
    return np.exp(np.log(condition_number(A_BxNxC)).mean(axis=-1))
