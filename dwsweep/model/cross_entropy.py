"""Next-token cross-entropy over the vocabulary, in nats.

Dimension key: N tokens, D width, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dwsweep.model.ops import product, weight_gradient


def token_nll(logits_NxV: jax.Array, targets_N: jax.Array) -> jax.Array:
    """−log softmax(logits)[target], shape (N,), float32. Any leading axes in place of N."""
    logits = logits_NxV.astype(jnp.float32)
    target = jnp.take_along_axis(logits, targets_N[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - target


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def mean_nll(x_NxD: jax.Array, table_VxD: jax.Array, targets_N: jax.Array, dtype: str) -> jax.Array:
    """Mean of ``token_nll`` over logits x·tableᵀ, the product in ``dtype``.

    The derivative of a mean is known up to a factor, so the forward pass of a differentiated call makes it at once:
    ∂/∂logits = (softmax(logits) − onehot(target))/N. Logits are never read a second time, nor kept.
    """
    return jnp.mean(token_nll(product(x_NxD, table_VxD, dtype, (-1, -1)), targets_N))


def _forward(x: jax.Array, table: jax.Array, targets: jax.Array, dtype: str) -> Any:
    N, V = x.shape[0], table.shape[0]
    logits = product(x, table, dtype, (-1, -1))
    top = jnp.max(logits, axis=-1, keepdims=True)
    e = jnp.exp(logits - top)
    total = jnp.sum(e, axis=-1, keepdims=True)
    chosen = jnp.take_along_axis(logits, targets[:, None], axis=-1)
    loss = jnp.mean(top + jnp.log(total) - chosen)
    onehot = targets[:, None] == jnp.arange(V, dtype=targets.dtype)
    g = e * (1.0 / (total * N)) - jnp.where(onehot, 1.0 / N, 0.0)
    return loss, (product(g, table, dtype), weight_gradient(x, g, dtype).T)


def _backward(dtype: str, saved: Any, scale: jax.Array) -> Any:
    dx, dtable = saved
    return scale * dx, scale * dtable, None


mean_nll.defvjp(_forward, _backward)
