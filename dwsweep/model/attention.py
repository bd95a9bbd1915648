"""Causal softmax attention with grouped key/value heads, and positions.

Dimension key: B batch, T sequence, H query heads, K key/value heads (a divisor of H), P head size, D width.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dwsweep.model.ops import attend


def causal_attention(
    q_BxTxHxP: jax.Array, k_BxTxKxP: jax.Array, v_BxTxKxP: jax.Array, scale: float, kernel: str = "xla"
) -> jax.Array:
    """softmax(scale·q·kᵀ + causal mask)·v, shape (B, T, H, P), in the dtype of q; query head h reads key head ⌊h·K/H⌋.

    ``kernel``: ``xla``, or ``cudnn`` (flash attention; an NVIDIA GPU, bfloat16, head sizes that it takes).
    """
    if kernel == "cudnn":
        return jax.nn.dot_product_attention(
            q_BxTxHxP, k_BxTxKxP, v_BxTxKxP, scale=scale, is_causal=True, implementation="cudnn"
        )
    groups = q_BxTxHxP.shape[2] // k_BxTxKxP.shape[2]
    if groups > 1:
        k_BxTxKxP, v_BxTxKxP = (jnp.repeat(x, groups, axis=2) for x in (k_BxTxKxP, v_BxTxKxP))
    q, k, v = (jnp.swapaxes(x, 1, 2) for x in (q_BxTxHxP, k_BxTxKxP, v_BxTxKxP))
    return jnp.swapaxes(attend(q, k, v, scale), 1, 2)


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
