"""Next-token cross-entropy over the vocabulary, in nats."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def token_nll(logits_BxTxV: jax.Array, targets_BxT: jax.Array) -> jax.Array:
    """−log softmax(logits)[target], shape (B, T), float32."""
    logits = logits_BxTxV.astype(jnp.float32)
    target = jnp.take_along_axis(logits, targets_BxT[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - target
