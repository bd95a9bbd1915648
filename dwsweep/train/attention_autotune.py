"""The attention kernel of a pack: the faster of those that can run here, measured at the pack's own shape.

XLA's attention runs everywhere. cuDNN's flash attention takes 16-bit operands on NVIDIA GPUs, head sizes that are
multiples of 8, and is refused beyond ``CUDNN_HEAD_SIZE``; at short sequences and few heads it may well be the slower
one. Whatever goes wrong with it, XLA's is the fallback, and the reason is kept.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp

from dwsweep.model.attention import causal_attention
from dwsweep.shapes import Shape

XLA, CUDNN = "xla", "cudnn"
CUDNN_HEAD_SIZE = 128
"""Largest head size whose backward pass cuDNN takes on all architectures since Ampere."""
REPEATS = 5
MEASURED_TOKENS = 1 << 17
"""At most so many tokens are timed: enough to fill a device, little beside the pack's own memory."""


@dataclass(frozen=True)
class Choice:
    kernel: str
    why: str


def choose(asked: str, shape: Shape, precision: str, sequences: int, device: jax.Device) -> Choice:
    """The kernel for ``sequences`` sequences of ``shape`` at a time on ``device``.

    ``asked``: ``xla``, ``cudnn`` or ``auto``. What was asked for and cannot be had is replaced by ``xla``, and ``why``
    says so.
    """
    if asked == XLA:
        return Choice(XLA, "asked for")
    if obstacle := _obstacle(shape, precision, device):
        return Choice(XLA, f"cudnn cannot be used: {obstacle}" if asked == CUDNN else obstacle)
    rows = max(1, min(sequences, MEASURED_TOKENS // shape.seq_len))
    return _measured(asked, rows, shape.seq_len, shape.heads, shape.kv_heads, shape.head_size, precision, device)


def _obstacle(shape: Shape, precision: str, device: jax.Device) -> str | None:
    if "cuda" not in device.client.platform_version.lower():  # ROCm's devices are of platform gpu too
        return f"the only kernel on {device.platform}"
    if shape.attention != "softmax":
        return f"model.attention {shape.attention}; cudnn's is softmax"
    if precision != "bfloat16":
        return f"train.precision {precision}; cudnn takes bfloat16"
    if shape.head_size % 8 or shape.head_size > CUDNN_HEAD_SIZE:
        return f"head size {shape.head_size}; cudnn takes multiples of 8 up to {CUDNN_HEAD_SIZE}"
    return None


@cache
def _measured(asked: str, B: int, T: int, H: int, K: int, P: int, dtype: str, device: jax.Device) -> Choice:
    try:
        cudnn = _seconds(CUDNN, B, T, H, K, P, dtype, device)
    except Exception as error:  # no cuDNN, one that is too old, a shape it refuses: all of them mean the same here
        return Choice(XLA, f"cudnn failed: {' '.join(str(error).split())[:200]}")
    if asked == CUDNN:
        return Choice(CUDNN, "asked for")
    xla = _seconds(XLA, B, T, H, K, P, dtype, device)
    found = f"forward and backward: cudnn {cudnn * 1e3:.3f} ms, xla {xla * 1e3:.3f} ms"
    return Choice(CUDNN if cudnn < xla else XLA, found)


def _seconds(kernel: str, B: int, T: int, H: int, K: int, P: int, dtype: str, device: jax.Device) -> float:
    """Of attention's forward and backward pass, the best of several."""

    def total(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.sum(causal_attention(q, k, v, P**-0.5, kernel, keep=True).astype(jnp.float32))

    inputs = [jax.device_put(jnp.ones((B, T, heads, P), dtype), device) for heads in (H, K, K)]
    gradient = jax.jit(jax.grad(total, argnums=(0, 1, 2))).lower(*inputs).compile()
    jax.block_until_ready(gradient(*inputs))
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(gradient(*inputs))
        best = min(best, time.perf_counter() - began)
    return best
