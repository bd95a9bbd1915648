"""Attention and positions.

Dimension key: B batch, T sequence, H query heads, K key/value heads (a divisor of H), P head size, D width.

Conditioning of a block's attention: the condition number of its heads' outputs.

Saratchandran, Teney and Lucey 2025 (arXiv 2505.20802, read in secondary sources) take the heads' outputs of one
sequence side by side, A = [A_1, …, A_H] of N × H·d_p, before the matrix that mixes them, and κ(A) = σ_1 / σ_min. The
first ``SEQUENCES`` held-out windows are our sample, and the mean is that of ln κ. A is float32, which resolves no
singular value below ε·max(N, H·d_p)·σ_1: the smallest is raised to that.

The singular values are found on the host: LAPACK inside a program of several of a CPU's cores can wait for ever.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dwsweep.model.ops import in_tiles, product

MASKED = -1e30
"""Logit of a masked position: far below any real one, and finite, so that no row can turn into NaN."""


def _scores(q: jax.Array, k: jax.Array, scale: float, masked: float = MASKED) -> jax.Array:
    """Masked logits of queries and keys (…, T, P)."""
    T = q.shape[-2]
    s = product(q, k, str(q.dtype), (-1, -1)) * scale
    return jnp.where(jnp.tril(jnp.ones((T, T), bool)), s, masked)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def attend(
    q_BxHxTxP: jax.Array, k_BxHxTxP: jax.Array, v_BxHxTxP: jax.Array, scale: float, keep: bool = False
) -> jax.Array:
    """softmax(scale·q·kᵀ + causal mask)·v, (B, H, T, P), in the dtype of q; softmax statistics in float32.

    With ``keep`` it saves the weights, (B, H, T, T) in the dtype of q. Without, the output and the log of each row's
    sum, and computes the weights again (Dao et al. 2022, the backward pass of FlashAttention).
    """
    return _attend_forward(q_BxHxTxP, k_BxHxTxP, v_BxHxTxP, scale, keep)[0]


def _attend_forward(q: jax.Array, k: jax.Array, v: jax.Array, scale: float, keep: bool) -> Any:
    dtype = str(q.dtype)
    s = _scores(q, k, scale)
    top = jnp.max(s, axis=-1, keepdims=True)
    e = jnp.exp(s - top)
    total = jnp.sum(e, axis=-1, keepdims=True)
    if keep:
        weights = (e / total).astype(dtype)
        return product(weights, v, dtype, out=dtype), (q, k, v, weights)
    out = (product(e, v, dtype) / total).astype(dtype)
    return out, (q, k, v, out, top + jnp.log(total))


def _attend_backward(scale: float, keep: bool, saved: Any, g: jax.Array) -> Any:
    q, k, v, *rest = saved
    dtype = str(q.dtype)
    dw = product(g, v, dtype, (-1, -1))
    if keep:
        weights = rest[0].astype(jnp.float32)
        delta = jnp.sum(weights * dw, axis=-1, keepdims=True)
    else:
        out, lse = rest
        weights = jnp.exp(_scores(q, k, scale) - lse)
        delta = jnp.sum(g.astype(jnp.float32) * out.astype(jnp.float32), axis=-1, keepdims=True)
    ds = weights * (dw - delta) * scale
    dq, dk = product(ds, k, dtype, out=dtype), product(ds, q, dtype, (-2, -2), dtype)
    return dq, dk, product(weights, g, dtype, (-2, -2), dtype)


attend.defvjp(_attend_forward, _attend_backward)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def attend_linearly(q_BxHxTxP: jax.Array, k_BxHxTxP: jax.Array, v_BxHxTxP: jax.Array, scale: float) -> jax.Array:
    """Attention without a softmax: mean over positions s ≤ t of scale·(q_t·k_s)·v_s.

    That is the attention of the network that Levine et al. 2020 analyse (their eq. 3), causal, as a mean in place of
    a sum. Saves q, k and v.
    """
    q, k, v = q_BxHxTxP, k_BxHxTxP, v_BxHxTxP
    return product(_linear_weights(q, k, scale), v, str(q.dtype)).astype(q.dtype)


def _linear_weights(q: jax.Array, k: jax.Array, scale: float) -> jax.Array:
    return _scores(q, k, scale, masked=0.0) / _visible(q.shape[-2])


def _visible(T: int) -> jax.Array:
    """Number of positions that each query sees, (T, 1)."""
    return jnp.arange(1.0, T + 1.0)[:, None]


def _linear_forward(q: jax.Array, k: jax.Array, v: jax.Array, scale: float) -> Any:
    return attend_linearly(q, k, v, scale), (q, k, v)


def _linear_backward(scale: float, saved: Any, g: jax.Array) -> Any:
    q, k, v = saved
    dtype = str(q.dtype)
    dv = product(_linear_weights(q, k, scale), g, dtype, (-2, -2), dtype)
    ds = _scores(g, v, scale, masked=0.0) / _visible(q.shape[-2])
    dq, dk = product(ds, k, dtype, out=dtype), product(ds, q, dtype, (-2, -2), dtype)
    return dq, dk, dv


attend_linearly.defvjp(_linear_forward, _linear_backward)


def causal_attention(
    q_BxTxHxP: jax.Array,
    k_BxTxKxP: jax.Array,
    v_BxTxKxP: jax.Array,
    scale: float,
    kernel: str = "xla",
    kind: str = "softmax",
    keep: bool = False,
) -> jax.Array:
    """softmax(scale·q·kᵀ + causal mask)·v, shape (B, T, H, P), in the dtype of q; query head h reads key head ⌊h·K/H⌋.

    ``kernel``: ``xla``, or ``cudnn`` (flash attention; an NVIDIA GPU, bfloat16; heads are padded with zeros to a size
    that it takes). ``kind``: ``softmax``, or ``linear`` (see ``attend_linearly``; by XLA only). ``keep``: see
    ``attend``.
    """
    if kernel == "cudnn":
        P = q_BxTxHxP.shape[-1]
        q, k, v = (in_tiles(x, (-1,)) for x in (q_BxTxHxP, k_BxTxKxP, v_BxTxKxP))
        out = jax.nn.dot_product_attention(q, k, v, scale=scale, is_causal=True, implementation="cudnn")
        return out[..., :P]
    groups = q_BxTxHxP.shape[2] // k_BxTxKxP.shape[2]
    if groups > 1:
        k_BxTxKxP, v_BxTxKxP = (jnp.repeat(x, groups, axis=2) for x in (k_BxTxKxP, v_BxTxKxP))
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q_BxTxHxP, k_BxTxKxP, v_BxTxKxP))
    out = attend(q, k, v, scale, keep) if kind == "softmax" else attend_linearly(q, k, v, scale)
    return jnp.swapaxes(out, 1, 2)


def rotary(x_BxTxHxP: jax.Array, base: float = 10_000.0) -> jax.Array:
    """Rotary positions (Su et al. 2021): pair (i, i + P/2) turned by t·base^(−2i/P). The head size P is even."""
    T, P = x_BxTxHxP.shape[1], x_BxTxHxP.shape[-1]
    angles_TxP2 = jnp.arange(T)[:, None] * base ** (-jnp.arange(P // 2) * 2.0 / P)
    cos, sin = jnp.cos(angles_TxP2)[:, None, :], jnp.sin(angles_TxP2)[:, None, :]
    first, second = jnp.split(x_BxTxHxP.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return turned.astype(x_BxTxHxP.dtype)


def sinusoids(T: int, D: int) -> jax.Array:
    """Fixed positions (Vaswani et al. 2017), shape (T, D): sines, then cosines, wavelengths 2π … 10,000·2π."""
    half = (D + 1) // 2
    angles = jnp.arange(T)[:, None] * 10_000.0 ** (-jnp.arange(half) / max(half - 1, 1))
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)[:, :D]


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
