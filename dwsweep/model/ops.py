"""Products, norms, activations and the loss, most with hand-written derivatives: fewer passes over memory, fewer saved
activations.

Left to itself, automatic differentiation saves every intermediate of a softmax or a GELU for the backward pass, and a
scan over layers then copies each of them twice. Here each operation saves its inputs, or little more, and recomputes
the rest; in bfloat16 the cotangents of matrix products are rounded like their operands, so that backward products are
bfloat16 too. Each is tested against automatic differentiation of its plain form.

Dimension key: N rows (B·T) or tokens, D, I and O widths, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

NORM_EPSILON = 1e-5


TILE = 8
"""Numbers of 16 bits in 16 bytes, at whose multiples the rows of a GPU's bulk copies begin."""


def product(
    a: jax.Array, b: jax.Array, dtype: str, contract: tuple[int, int] = (-1, -2), out: str = "float32"
) -> jax.Array:
    """Batched product of the last two axes in ``dtype``, the result in ``out``; leading axes are batch axes.

    Sums are float32 for any ``out``, the type written to memory. An NVIDIA GPU multiplies 16-bit operands whose rows
    are no multiple of ``TILE`` at less than half of its rate, so there they are padded with zeros, which add nothing.
    """
    a, b = a.astype(dtype), b.astype(dtype)
    axes = contract[0] % a.ndim, contract[1] % b.ndim
    multiply, padded = (partial(f, axes=axes, out=out) for f in (_product, _padded_product))
    is_whole = all(n % TILE == 0 for x in (a, b) for n in x.shape[-2:])
    if is_whole or a.dtype.itemsize != 2:
        return multiply(a, b)
    return jax.lax.platform_dependent(a, b, cuda=padded, default=multiply)


def _product(a: jax.Array, b: jax.Array, axes: tuple[int, int], out: str) -> jax.Array:
    batch = tuple(range(a.ndim - 2))
    dims = (((axes[0],), (axes[1],)), (batch, batch))
    return jax.lax.dot_general(a, b, dims, preferred_element_type=jnp.dtype(out))


def _padded_product(a: jax.Array, b: jax.Array, axes: tuple[int, int], out: str) -> jax.Array:
    whole = _product(in_tiles(a, (-2, -1)), in_tiles(b, (-2, -1)), axes, out)
    rows, columns = (x.shape[2 * x.ndim - 3 - axis] for x, axis in zip((a, b), axes, strict=True))  # their other axes
    return whole[..., :rows, :columns]


def in_tiles(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """``x`` with zeros up to multiples of ``TILE`` along ``axes``."""
    fill = {axis % x.ndim: -x.shape[axis] % TILE for axis in axes}
    return jnp.pad(x, [(0, fill.get(axis, 0)) for axis in range(x.ndim)])


def weight_gradient(x_NxI: jax.Array, g_NxO: jax.Array, dtype: str) -> jax.Array:
    """xᵀ·g, (I, O). The CPU transposes the left operand in memory, so the smaller one goes there."""
    if x_NxI.shape[1] <= g_NxO.shape[1]:
        return product(x_NxI, g_NxO, dtype, (-2, -2))
    return product(g_NxO, x_NxI, dtype, (-2, -2)).T


def _column_sums(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Σ over rows of each, float32. On a CPU as a product with ones, which is faster than its reduction along columns
    and exact in float32 too. A GPU would write the operand of that product to memory first. Side by side they are
    summed in one pass; a variadic reduce would do on one device, but does not shard."""

    def as_products(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(product(jnp.ones((1, g.shape[0]), jnp.float32), g, "float32")[0] for g in arrays)

    def side_by_side(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        total = jnp.sum(jnp.concatenate([g.astype(jnp.float32) for g in arrays], axis=1), axis=0)
        return tuple(jnp.split(total, len(arrays)))

    return jax.lax.platform_dependent(*arrays, cpu=as_products, default=side_by_side)


def _column_sum(g_NxO: jax.Array) -> jax.Array:
    return _column_sums(g_NxO)[0]


def _apart(values: Any) -> Any:
    """``values``, which a GPU writes to memory before it computes from them.

    With unrolled layers its compiler would notice that the backward pass recomputes values of the forward pass, and
    keep them in float32; and it would undo a rounding between two kernels, so that they exchange float32.
    """
    barrier = jax.lax.optimization_barrier
    return jax.lax.platform_dependent(values, cuda=barrier, rocm=barrier, default=lambda values: values)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def linear(x: jax.Array, w_IxO: jax.Array, b_O: jax.Array | None, dtype: str, out: str) -> jax.Array:
    """x·W (+ b) for x (…, I): the product in ``dtype`` with float32 accumulation, the result (…, O) in ``out``."""
    y = product(x.reshape(-1, x.shape[-1]), w_IxO, dtype, out=out)
    y = y if b_O is None else (y + b_O).astype(out)
    return y.reshape(*x.shape[:-1], w_IxO.shape[1])


def _linear_forward(x: jax.Array, w: jax.Array, b: jax.Array | None, dtype: str, out: str) -> Any:
    return linear(x, w, b, dtype, out), (x.astype(dtype), w, b, jnp.zeros((), x.dtype))


def _linear_backward(dtype: str, out: str, saved: Any, g: jax.Array) -> Any:
    x, w, b, like = saved
    g_NxO = g.reshape(-1, g.shape[-1])
    dx = product(g_NxO, w, dtype, (-1, -1), like.dtype.name).reshape(x.shape)
    dw = weight_gradient(x.reshape(-1, x.shape[-1]), g_NxO, dtype)
    return dx, dw, None if b is None else _column_sum(g_NxO)


linear.defvjp(_linear_forward, _linear_backward)


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": jax.nn.gelu,  # approximated by tanh, as in GPT-2
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,  # SwiGLU if gated (Shazeer 2020)
    "relu2": lambda h: jnp.square(jax.nn.relu(h)),  # So et al. 2021, Primer
    "none": lambda h: h,
}


def _activated(inner: tuple[jax.Array, ...], biases: tuple[jax.Array, ...], activation: str) -> jax.Array:
    """act(h), or act(gate) ⊙ h of (gate, h), float32; their biases are added here."""
    rows = tuple(y.astype(jnp.float32) for y in inner)
    *gate, h = tuple(y + b for y, b in zip(rows, biases, strict=True)) if biases else rows
    return ACTIVATIONS[activation](gate[0]) * h if gate else ACTIVATIONS[activation](h)


Affine = tuple[jax.Array, jax.Array | None]
"""A matrix (I, O) and its bias (O,), or None."""


def _parts(up: Affine, gated: bool) -> tuple[tuple[jax.Array, ...], tuple[jax.Array, ...]]:
    """(gate, up) from matrices side by side and their biases, or (up,)."""
    w, b = up
    n = 2 if gated else 1
    return tuple(jnp.split(w, n, axis=1)), () if b is None else tuple(jnp.split(b, n))


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def mlp(x: jax.Array, up: Affine, down: Affine, activation: str, gated: bool, dtype: str) -> jax.Array:
    """act(x·up)·down for x (…, D), float32, biases left out; if gated (act(x·gate) ⊙ x·up)·down, ``up`` being gate and
    up side by side (Shazeer 2020). Saves x and its products, before their biases.

    Gate and up are products of their own: halves of one product are no tiles, and taking it apart cost a TPU half the
    traffic of a step (L6 d372 as compiled for a v5e:2x4: 16.7 GB, apart 8.7).
    """
    return _mlp_forward(x, up, down, activation, gated, dtype)[0]


def _mlp_forward(x: jax.Array, up: Affine, down: Affine, activation: str, gated: bool, dtype: str) -> Any:
    x_NxD = x.reshape(-1, x.shape[-1]).astype(dtype)
    ws, bs = _parts(up, gated)
    inner = tuple(product(x_NxD, w, dtype, out=dtype) for w in ws)
    matrix, bias = down
    y = product(_activated(inner, bs, activation), matrix, dtype)
    y = y if bias is None else y + bias
    return y.reshape(*x.shape[:-1], y.shape[-1]), (x_NxD, up, inner, down, jnp.zeros((), x.dtype))


def _mlp_backward(activation: str, gated: bool, dtype: str, saved: Any, g: jax.Array) -> Any:
    x_NxD, up, inner, (matrix, bias), like = saved
    g_NxD = g.reshape(-1, g.shape[-1])
    ws, bs = _parts(up, gated)
    # tied together: values recomputed from ``inner`` wait until ``da`` is there
    inner, da = _apart((inner, product(g_NxD, matrix, dtype, (-1, -1), dtype)))
    rows = tuple(y.astype(jnp.float32) for y in inner)
    a, pull = jax.vjp(lambda *rows: _activated(rows, bs, activation), *rows)
    d_inner = _apart(tuple(d.astype(dtype) for d in pull(da.astype(jnp.float32))))
    first, *more = (product(d, w, dtype, (-1, -1), like.dtype.name) for d, w in zip(d_inner, ws, strict=True))
    d_up = jnp.concatenate([weight_gradient(x_NxD, d, dtype) for d in d_inner], axis=1)
    return (
        sum(more, first).reshape(*g.shape[:-1], x_NxD.shape[-1]),
        (d_up, jnp.concatenate(_column_sums(*d_inner)) if bs else None),
        (weight_gradient(a, g_NxD, dtype), None if bias is None else _column_sum(g_NxD)),
    )


mlp.defvjp(_mlp_forward, _mlp_backward)


def _moments(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(mean, variance) over the last axis, kept with length 1.

    On an accelerator both in one pass, since each pass reads the stream: with z = x − x₀, x₀ the first of the row,
    mean = x₀ + E z and variance = E z² − (E z)². Since x₀ is one of D values, it is at most √D standard deviations away
    from their mean, and the difference loses at most log₂ D of float32's 24 bits, wherever the row lies.
    """

    def two_passes(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean = jnp.mean(x, axis=-1, keepdims=True)
        return mean, jnp.mean(jnp.square(x - mean), axis=-1, keepdims=True)

    def one_pass(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = x[..., :1]
        z = x - first
        zero, last = np.float32(0), x.ndim - 1
        sums = jax.lax.reduce((z, jnp.square(z)), (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), (last,))
        mean, square = (total[..., None] / x.shape[-1] for total in sums)
        return first + mean, jnp.maximum(square - jnp.square(mean), 0.0)

    return jax.lax.platform_dependent(x, cpu=two_passes, default=one_pass)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(x: jax.Array, gain: jax.Array, bias: jax.Array | None, out: str = "float32") -> jax.Array:
    """(x − mean)/√(var + ε)·gain (+ bias) over the last axis, in float32, rounded to ``out`` (Ba et al. 2016). Saves x
    and both statistics."""
    return _norm_forward(x, gain, bias, out)[0]


def _norm_forward(x: jax.Array, gain: jax.Array, bias: jax.Array | None, out: str) -> Any:
    mean, variance = _moments(x)
    y = (x - mean) * jax.lax.rsqrt(variance + NORM_EPSILON) * gain
    return (y if bias is None else y + bias).astype(out), (x, gain, bias, mean, variance)


def _norm_backward(out: str, saved: Any, g: jax.Array) -> Any:
    x, gain, bias, *statistics = saved
    # a CPU recomputes them, to the bits of an earlier version
    mean, variance = jax.lax.platform_dependent(
        x, *statistics, cpu=lambda x, *_: _moments(x), default=lambda _, *found: tuple(found)
    )
    g = g.astype(jnp.float32)
    inverse = jax.lax.rsqrt(variance + NORM_EPSILON)
    y = (x - mean) * inverse
    dy = g * gain
    dx = inverse * (dy - jnp.mean(dy, axis=-1, keepdims=True) - y * jnp.mean(dy * y, axis=-1, keepdims=True))
    width = x.shape[-1]
    if bias is None:
        return dx, _column_sum((g * y).reshape(-1, width)), None
    return dx, *_column_sums((g * y).reshape(-1, width), g.reshape(-1, width))


layer_norm.defvjp(_norm_forward, _norm_backward)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def rms_norm(x: jax.Array, gain: jax.Array, out: str = "float32") -> jax.Array:
    """x/√(mean x² + ε)·gain over the last axis, in float32, rounded to ``out`` (Zhang & Sennrich 2019). Saves x and its
    statistic."""
    return _rms_forward(x, gain, out)[0]


def _rms_forward(x: jax.Array, gain: jax.Array, out: str) -> Any:
    square = jnp.mean(jnp.square(x.astype(jnp.float32)), axis=-1, keepdims=True)
    return (x * jax.lax.rsqrt(square + NORM_EPSILON) * gain).astype(out), (x, gain, square)


def _rms_backward(out: str, saved: Any, g: jax.Array) -> Any:
    x, gain, square = saved
    g = g.astype(jnp.float32)
    inverse = jax.lax.rsqrt(square + NORM_EPSILON)
    y = x * inverse
    dy = g * gain
    dx = inverse * (dy - y * jnp.mean(dy * y, axis=-1, keepdims=True))
    return dx.astype(x.dtype), _column_sum((g * y).reshape(-1, x.shape[-1]))


rms_norm.defvjp(_rms_forward, _rms_backward)


def token_nll(logits_NxV: jax.Array, targets_N: jax.Array) -> jax.Array:
    """−log softmax(logits)[target], shape (N,), float32. Any leading axes in place of N."""
    logits = logits_NxV.astype(jnp.float32)
    target = jnp.take_along_axis(logits, targets_N[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - target


def softcapped(logits: jax.Array, cap: float | None) -> jax.Array:
    """cap·tanh(logits/cap), which lies within ±cap (Bello et al. 2017); the logits themselves if cap is None."""
    return logits if cap is None else cap * jnp.tanh(logits / cap)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def mean_nll(
    x_NxD: jax.Array,
    table_VxD: jax.Array,
    targets_N: jax.Array,
    dtype: str,
    softcap: float | None = None,
    z_loss: float = 0.0,
) -> jax.Array:
    """Mean of ``token_nll`` over ``softcapped`` logits x·tableᵀ, the product in ``dtype``, plus ``z_loss`` times the
    mean of (log Σ exp logits)² (Chowdhery et al. 2022, PaLM, section 5).

    The derivative of a mean is known up to a factor, so the forward pass of a differentiated call makes it at once:
    ∂/∂logits = (softmax(logits)·(1 + 2·z_loss·log Σ exp) − onehot(target))/N, times 1 − (logits/cap)² where they are
    capped. Logits are never read a second time, nor kept.
    """
    logits = softcapped(product(x_NxD, table_VxD, dtype, (-1, -1)), softcap)
    loss = jnp.mean(token_nll(logits, targets_N))
    return loss + z_loss * jnp.mean(jnp.square(jax.nn.logsumexp(logits, axis=-1))) if z_loss else loss


def _nll_forward(
    x: jax.Array, table: jax.Array, targets: jax.Array, dtype: str, softcap: float | None, z_loss: float
) -> Any:
    N, V = x.shape[0], table.shape[0]
    logits = softcapped(product(x, table, dtype, (-1, -1)), softcap)
    top = jnp.max(logits, axis=-1, keepdims=True)
    e = jnp.exp(logits - top)
    total = jnp.sum(e, axis=-1, keepdims=True)
    chosen = jnp.take_along_axis(logits, targets[:, None], axis=-1)
    loss = jnp.mean(top + jnp.log(total) - chosen)
    onehot = targets[:, None] == jnp.arange(V, dtype=targets.dtype)
    share = 1.0 / (total * N)
    if z_loss:
        log_sum = top + jnp.log(total)
        loss += z_loss * jnp.mean(jnp.square(log_sum))
        share *= 1.0 + 2.0 * z_loss * log_sum
    g = e * share - jnp.where(onehot, 1.0 / N, 0.0)
    if softcap is not None:
        g *= 1.0 - jnp.square(logits / softcap)
    return loss, (product(g, table, dtype), weight_gradient(x, g, dtype).T)


def _nll_backward(dtype: str, softcap: float | None, z_loss: float, saved: Any, scale: jax.Array) -> Any:
    dx, dtable = saved
    return scale * dx, scale * dtable, None


mean_nll.defvjp(_nll_forward, _nll_backward)
