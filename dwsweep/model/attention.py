"""Causal softmax attention with grouped key/value heads, and rotary positions.

Dimension key: B batch, T sequence, H query heads, K key/value heads, G = H / K query heads a key/value head, P head
size.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

MASKED = -1e30
"""Logit of a masked position: far below any real one, and finite, so that no row can turn into NaN."""


def causal_attention(
    q_BxTxHxP: jax.Array, k_BxTxKxP: jax.Array, v_BxTxKxP: jax.Array, scale: float, kernel: str = "xla"
) -> jax.Array:
    """softmax(scale·q·kᵀ + causal mask)·v, shape (B, T, H, P), in the dtype of ``v``.

    Softmax statistics are float32 whatever the dtype of the inputs. ``kernel``: ``xla``, or ``cudnn`` (flash attention;
    an NVIDIA GPU, bfloat16, a head size that is a multiple of 8).
    """
    if kernel == "cudnn":
        return jax.nn.dot_product_attention(
            q_BxTxHxP, k_BxTxKxP, v_BxTxKxP, scale=scale, is_causal=True, implementation="cudnn"
        )
    B, T, H, P = q_BxTxHxP.shape
    K = k_BxTxKxP.shape[2]
    q_BxTxKxGxP = q_BxTxHxP.reshape(B, T, K, H // K, P)
    logits = jnp.einsum("btkgp,bskp->bkgts", q_BxTxKxGxP, k_BxTxKxP, preferred_element_type=jnp.float32)
    causal = jnp.tril(jnp.ones((T, T), bool))
    weights = jax.nn.softmax(jnp.where(causal, logits * scale, MASKED), axis=-1).astype(v_BxTxKxP.dtype)
    out = jnp.einsum("bkgts,bskp->btkgp", weights, v_BxTxKxP, preferred_element_type=jnp.float32)
    return out.astype(v_BxTxKxP.dtype).reshape(B, T, H, P)


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
