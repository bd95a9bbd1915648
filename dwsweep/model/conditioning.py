"""How well a block's attention is conditioned: the condition number of what its heads put out.

Saratchandran, Teney and Lucey 2025 (arXiv 2505.20802, read in secondary sources) take the heads' outputs of one
sequence side by side, before the matrix that mixes them, and the ratio of that matrix's extreme singular values:

    A = [A_1, …, A_H],  N × H·d_p,        κ(A) = σ_1(A) / σ_min(N, H·d_p)(A)

N is the number of positions. Their argument is for H·d_p ≥ N, where more columns bring κ towards 1; a narrow model has
fewer columns than positions, and κ is then the ratio over its columns. Ours are the sample, the first ``SEQUENCES``
held-out windows of the training length; the mean, that of ln κ over them; and the floor: float32 resolves no singular
value below ε·max(N, H·d_p)·σ_1, which the smallest is raised to, so κ is at most 1/(ε·max(N, H·d_p)).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

SEQUENCES = 4


def condition_number(A: jax.Array) -> jax.Array:
    """κ of matrices (…, N, C), float32; NaN of one that is zero or not finite."""
    singular = jnp.linalg.svd(A.astype(jnp.float32), compute_uv=False)
    largest, smallest = singular[..., 0], singular[..., -1]
    return largest / jnp.maximum(smallest, jnp.finfo(jnp.float32).eps * max(A.shape[-2:]) * largest)


def log_conditions(A_BxNxC: jax.Array) -> jax.Array:
    """ln κ of each sequence, (B,)."""
    return jnp.log(condition_number(A_BxNxC))
