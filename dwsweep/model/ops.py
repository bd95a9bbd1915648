"""The operations of the model, most with hand-written derivatives: fewer passes over memory, fewer saved activations.

Left to itself, automatic differentiation saves every intermediate of a softmax or a GELU for the backward pass, and a
scan over layers then copies each of them twice. Here each operation saves its inputs and recomputes the rest; in
bfloat16 the cotangents of matrix products are rounded like their operands, so that backward products are bfloat16 too.
Each is tested against automatic differentiation of its plain form.

Dimension key: N rows (B·T) or tokens, B batch, T sequence, H query heads, K key/value heads (a divisor of H), P head
size, D, I and O widths, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

NORM_EPSILON = 1e-5
MASKED = -1e30
"""Logit of a masked position: far below any real one, and finite, so that no row can turn into NaN."""


def product(a: jax.Array, b: jax.Array, dtype: str, contract: tuple[int, int] = (-1, -2)) -> jax.Array:
    """Batched product of the last two axes in ``dtype``, float32 result; leading axes are batch axes."""
    a, b = a.astype(dtype), b.astype(dtype)
    batch = tuple(range(a.ndim - 2))
    dims = (((contract[0] % a.ndim,), (contract[1] % b.ndim,)), (batch, batch))
    return jax.lax.dot_general(a, b, dims, preferred_element_type=jnp.float32)


def weight_gradient(x_NxI: jax.Array, g_NxO: jax.Array, dtype: str) -> jax.Array:
    """xᵀ·g, (I, O). The CPU transposes the left operand in memory, so the smaller one goes there."""
    if x_NxI.shape[1] <= g_NxO.shape[1]:
        return product(x_NxI, g_NxO, dtype, (-2, -2))
    return product(g_NxO, x_NxI, dtype, (-2, -2)).T


def _column_sum(g_NxO: jax.Array) -> jax.Array:
    """Σ over rows as a product with ones: faster than the CPU's reduction along columns, and exact in float32 too."""
    return product(jnp.ones((1, g_NxO.shape[0]), jnp.float32), g_NxO, "float32")[0]


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def linear(x: jax.Array, w_IxO: jax.Array, b_O: jax.Array | None, dtype: str, out: str) -> jax.Array:
    """x·W (+ b) for x (…, I): the product in ``dtype`` with float32 accumulation, the result (…, O) in ``out``."""
    y = product(x.reshape(-1, x.shape[-1]), w_IxO, dtype)
    y = y if b_O is None else y + b_O
    return y.astype(out).reshape(*x.shape[:-1], w_IxO.shape[1])


def _linear_forward(x: jax.Array, w: jax.Array, b: jax.Array | None, dtype: str, out: str) -> Any:
    return linear(x, w, b, dtype, out), (x.astype(dtype), w, b, jnp.zeros((), x.dtype))


def _linear_backward(dtype: str, out: str, saved: Any, g: jax.Array) -> Any:
    x, w, b, like = saved
    g_NxO = g.reshape(-1, g.shape[-1])
    dx = product(g_NxO, w, dtype, (-1, -1)).astype(like.dtype).reshape(x.shape)
    dw = weight_gradient(x.reshape(-1, x.shape[-1]), g_NxO, dtype)
    return dx, dw, None if b is None else _column_sum(g_NxO)


linear.defvjp(_linear_forward, _linear_backward)


def _activate(h: jax.Array, activation: str) -> jax.Array:
    return jax.nn.relu(h) if activation == "relu" else jax.nn.gelu(h)


def _inner(h: jax.Array, activation: str, gated: bool) -> jax.Array:
    h = h.astype(jnp.float32)
    if not gated:
        return _activate(h, activation)
    gate, value = jnp.split(h, 2, axis=-1)
    return _activate(gate, activation) * value


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def activated_linear(
    h: jax.Array, w_IxO: jax.Array, b_O: jax.Array | None, activation: str, gated: bool, dtype: str
) -> jax.Array:
    """act(h)·W (+ b), float32; if ``gated``, act(h₁) ⊙ h₂ in place of act(h) for the halves of h. Saves h only."""
    return linear(_inner(h, activation, gated), w_IxO, b_O, dtype, "float32")


def _activated_forward(
    h: jax.Array, w: jax.Array, b: jax.Array | None, activation: str, gated: bool, dtype: str
) -> Any:
    return activated_linear(h, w, b, activation, gated, dtype), (h, w, b)


def _activated_backward(activation: str, gated: bool, dtype: str, saved: Any, g: jax.Array) -> Any:
    h, w, b = saved
    g_NxO = g.reshape(-1, g.shape[-1])
    a, pull = jax.vjp(lambda h: _inner(h, activation, gated), h)
    da = product(g_NxO, w, dtype, (-1, -1)).reshape(a.shape)
    dw = weight_gradient(a.reshape(-1, a.shape[-1]), g_NxO, dtype)
    return pull(da)[0], dw, None if b is None else _column_sum(g_NxO)


activated_linear.defvjp(_activated_forward, _activated_backward)


def _normalise(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + NORM_EPSILON)
    return centred * inverse, inverse


@jax.custom_vjp
def layer_norm(x: jax.Array, gain: jax.Array, bias: jax.Array | None) -> jax.Array:
    """(x − mean)/√(var + ε)·gain (+ bias) over the last axis, in float32 (Ba et al. 2016). Saves x only."""
    y = _normalise(x)[0] * gain
    return y if bias is None else y + bias


def _norm_forward(x: jax.Array, gain: jax.Array, bias: jax.Array | None) -> Any:
    return layer_norm(x, gain, bias), (x, gain, bias)


def _norm_backward(saved: Any, g: jax.Array) -> Any:
    x, gain, bias = saved
    y, inverse = _normalise(x)
    dy = g * gain
    dx = inverse * (dy - jnp.mean(dy, axis=-1, keepdims=True) - y * jnp.mean(dy * y, axis=-1, keepdims=True))
    width = x.shape[-1]
    dgain = _column_sum((g * y).reshape(-1, width))
    return dx, dgain, None if bias is None else _column_sum(g.reshape(-1, width))


layer_norm.defvjp(_norm_forward, _norm_backward)


def _scores(q: jax.Array, k: jax.Array, scale: float) -> jax.Array:
    """Masked logits of queries (…, T, P) and keys (…, S, P), S ≥ T: query t stands at position S − T + t."""
    T, S = q.shape[-2], k.shape[-2]
    s = product(q, k, str(q.dtype), (-1, -1)) * scale
    return jnp.where(jnp.tril(jnp.ones((T, S), bool), S - T), s, MASKED)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def attend(q_BxHxTxP: jax.Array, k_BxHxTxP: jax.Array, v_BxHxTxP: jax.Array, scale: float) -> jax.Array:
    """softmax(scale·q·kᵀ + causal mask)·v, (B, H, T, P), in the dtype of q; softmax statistics in float32.

    Saves the output and the log of each row's sum, and recomputes the weights (Dao et al. 2022, the backward pass of
    FlashAttention).
    """
    return _attend_forward(q_BxHxTxP, k_BxHxTxP, v_BxHxTxP, scale)[0]


def _attend_forward(q: jax.Array, k: jax.Array, v: jax.Array, scale: float) -> Any:
    s = _scores(q, k, scale)
    top = jnp.max(s, axis=-1, keepdims=True)
    e = jnp.exp(s - top)
    total = jnp.sum(e, axis=-1, keepdims=True)
    out = (product(e, v, str(q.dtype)) / total).astype(q.dtype)
    return out, (q, k, v, out, top + jnp.log(total))


def _attend_backward(scale: float, saved: Any, g: jax.Array) -> Any:
    q, k, v, out, lse = saved
    dtype = str(q.dtype)
    g32 = g.astype(jnp.float32)
    delta = jnp.sum(g32 * out.astype(jnp.float32), axis=-1, keepdims=True)
    weights = jnp.exp(_scores(q, k, scale) - lse)
    ds = weights * (product(g, v, dtype, (-1, -1)) - delta) * scale
    dq, dk = product(ds, k, dtype), product(ds, q, dtype, (-2, -2))
    dv = product(weights, g, dtype, (-2, -2))
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


attend.defvjp(_attend_forward, _attend_backward)


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


def _nll_forward(x: jax.Array, table: jax.Array, targets: jax.Array, dtype: str) -> Any:
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


def _nll_backward(dtype: str, saved: Any, scale: jax.Array) -> Any:
    dx, dtable = saved
    return scale * dx, scale * dtable, None


mean_nll.defvjp(_nll_forward, _nll_backward)
