"""Attention kernel of a pack: the fastest that can run here, measured at the pack's own shape.

XLA's attention runs everywhere. cuDNN's flash attention takes 16-bit operands on NVIDIA GPUs and head sizes up to
``CUDNN_HEAD_SIZE``; at short sequences and few heads it may be the slower one. Where it fails, XLA's runs, and the
reason is kept.
"""

from __future__ import annotations

import timeit
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from dwsweep.model.attention import causal_attention
from dwsweep.shapes import Shape
from dwsweep.text import one_line

XLA, CUDNN = "xla", "cudnn"
CUDNN_HEAD_SIZE, CUDNN_EVERYWHERE = 256, 128
"""Largest head size that cuDNN takes on a Hopper, and on every device since Ampere, which refuse larger ones."""
REPEATS, PASSES = 5, 16  # calls that are timed, and passes of each
MEASURED_TOKENS = 1 << 17
"""Most tokens that are timed: enough to fill a device, little beside the pack's own memory."""


@dataclass(frozen=True)
class Choice:
    kernel: str
    why: str


def choose_kernel(asked: str, shape: Shape, precision: str, sequences: int, device: jax.Device) -> Choice:
    """The kernel for ``sequences`` sequences of ``shape`` at a time on ``device``.

    ``asked``: ``xla``, ``cudnn`` or ``auto``. A requested kernel that cannot run is replaced by ``xla``, with the
    reason in ``why``.
    """
    if asked == XLA:
        return Choice(XLA, "asked for")
    if obstacle := _obstacle(shape, precision, platform_of(device)):
        return Choice(XLA, f"cudnn cannot be used: {obstacle}" if asked == CUDNN else obstacle)
    rows = max(1, min(sequences, MEASURED_TOKENS // shape.seq_len))
    return _measured(asked, rows, shape.seq_len, shape.heads, shape.kv_heads, shape.head_size, precision, device)


def platform_of(device: jax.Device) -> str:
    """Platform of a device that is here: ``cuda`` for an NVIDIA GPU, which JAX calls ``gpu`` as it does ROCm's."""
    return "cuda" if "cuda" in device.client.platform_version.lower() else device.platform


def unmeasured(asked: str, shape: Shape, precision: str, platform: str) -> Choice:
    """The kernel of a device that is not here, for which JAX compiles no head that only some devices take."""
    if asked != CUDNN:
        return Choice(XLA, "asked for" if asked == XLA else "the device is not here to measure others on")
    cuda = "cuda" if platform == "gpu" else platform  # there are compilers of NVIDIA's GPUs alone
    obstacle = _obstacle(shape, precision, cuda, largest=CUDNN_EVERYWHERE)
    return Choice(XLA, f"cudnn cannot be used: {obstacle}") if obstacle else Choice(CUDNN, "asked for")


def _obstacle(shape: Shape, precision: str, platform: str, largest: int = CUDNN_HEAD_SIZE) -> str | None:
    if platform != "cuda":
        return f"the only kernel on {platform}"
    if shape.attention != "softmax":
        return f"model.attention {shape.attention}; cudnn's is softmax"
    if precision != "bfloat16":
        return f"train.precision {precision}; cudnn takes bfloat16"
    if shape.head_size > largest:
        return f"head size {shape.head_size}; cudnn takes at most {largest}"
    return None


@cache
def _measured(asked: str, B: int, T: int, H: int, K: int, P: int, dtype: str, device: jax.Device) -> Choice:
    try:
        cudnn = _seconds(CUDNN, B, T, H, K, P, dtype, device)
    except Exception as error:  # no cuDNN, an old one, or a shape that it refuses: all mean the same here
        return Choice(XLA, f"cudnn failed: {one_line(error, 200)}")
    if asked == CUDNN:
        return Choice(CUDNN, "asked for")
    xla = _seconds(XLA, B, T, H, K, P, dtype, device)
    found = f"forward and backward: cudnn {cudnn * 1e3:.3f} ms, xla {xla * 1e3:.3f} ms"
    return Choice(CUDNN if cudnn < xla else XLA, found)


def _seconds(kernel: str, B: int, T: int, H: int, K: int, P: int, dtype: str, device: jax.Device) -> float:
    """Seconds of attention's forward and backward pass, the best of several.

    Each call makes ``PASSES`` of them, one after another as in training: starting a single one takes a host as long as
    the device takes for it.
    """

    def total(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.sum(causal_attention(q, k, v, P**-0.5, kernel, keep=True).astype(jnp.float32))

    def one(_: int, inputs: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        gradients = jax.grad(total, argnums=(0, 1, 2))(*inputs)
        return tuple(x + 1e-6 * g for x, g in zip(inputs, gradients, strict=True))

    def passes(*inputs: jax.Array) -> tuple[jax.Array, ...]:
        return jax.lax.fori_loop(0, PASSES, one, inputs)

    # numbers of no pattern: products of equal ones run faster
    draws = np.random.default_rng(0)
    inputs = [
        jax.device_put(jnp.asarray(draws.standard_normal((B, T, heads, P), np.float32), dtype), device)
        for heads in (H, K, K)
    ]
    run = jax.jit(passes).lower(*inputs).compile()
    jax.block_until_ready(run(*inputs))
    return min(timeit.repeat(lambda: jax.block_until_ready(run(*inputs)), repeat=REPEATS, number=1)) / PASSES
