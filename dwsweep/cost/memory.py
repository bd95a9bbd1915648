"""Device memory and checkpoint size of a pack: arithmetic on its arrays, an estimate to plan with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwsweep.shapes import Shape

FLOAT32 = 4


@dataclass(frozen=True)
class Memory:
    """Bytes on one device while a pack trains."""

    parameters: int  # float32 masters, and the 16-bit copy the products read
    optimizer: int  # Adam's two moments
    gradients: int  # and the copy that is clipped
    activations: int  # what the forward pass keeps for the backward pass, at the microbatch
    data: int  # the token store, where it lies on the device
    microbatch: int  # sequences of each replica in one forward pass

    @property
    def total(self) -> int:
        return self.parameters + self.optimizer + self.gradients + self.activations + self.data


def activation_bytes_per_token(shape: Shape, precision: str, remat: bool) -> tuple[int, int]:
    """(bytes a token kept in every block, bytes a token that live once) for the backward pass.

    Counted from what this model's operations keep, with p = 2 or 4 bytes for an operand of a product:

        residual stream              2 · 4 · d_x
        operands of products         3 · p · d_x
        q, k, v, attention's output  4 · p · H · d_p, and 4 · H for the softmax
        MLP, before the activation   p a unit, twice that if gated

    Attention probabilities and activations are computed again in the backward pass, of one block at a time: they live
    once, with the gradient of that block's inner values, the logits and their gradient. With ``remat`` only a block's
    input is kept, and the rest of one block lives at a time.
    """
    product = 2 if precision == "bfloat16" else FLOAT32
    width, query = shape.width, shape.heads * shape.head_size
    inner = shape.mlp_hidden * (2 if shape.mlp == "gated" else 1)
    block = (2 * FLOAT32 + 3 * product) * width + 4 * product * query + FLOAT32 * shape.heads + product * inner
    once = 2 * FLOAT32 * shape.vocab_size + (FLOAT32 + product) * width + recomputed_bytes_per_token(shape)
    if remat:
        return FLOAT32 * width, once + block
    return block, once


def recomputed_bytes_per_token(shape: Shape) -> int:
    """Bytes a token that a block computes again: attention probabilities and inner values, two float32 of each."""
    inner = shape.mlp_hidden * (2 if shape.mlp == "gated" else 1)
    return 2 * FLOAT32 * (shape.heads * shape.seq_len + inner)


def estimate(
    shape: Shape, *, replicas: int, microbatch: int, precision: str, remat: bool = False, data_bytes: int = 0
) -> Memory:
    """Memory of a pack of ``replicas`` that runs ``microbatch`` sequences of each at a time on one device."""
    block, once = activation_bytes_per_token(shape, precision, remat)
    values = replicas * shape.n_params_total
    tokens = replicas * microbatch * shape.seq_len
    return Memory(
        parameters=values * (FLOAT32 + (2 if precision == "bfloat16" else 0)),
        optimizer=2 * FLOAT32 * values,
        gradients=2 * FLOAT32 * values,
        activations=tokens * (shape.depth * block + once),
        data=data_bytes,
        microbatch=microbatch,
    )


def fitting_microbatch(
    shape: Shape,
    *,
    replicas: int,
    batch_size: int,
    precision: str,
    remat: bool,
    data_bytes: int,
    memory_bytes: float | None,
) -> Memory:
    """The estimate at the largest divisor of ``batch_size`` that leaves a tenth of the memory free.

    The whole batch where the memory is unknown; 1 sequence where nothing fits, and then the total says so.
    """
    small = [n for n in range(1, math.isqrt(batch_size) + 1) if batch_size % n == 0]
    divisors = sorted({*small, *(batch_size // n for n in small)}, reverse=True)
    for microbatch in divisors:
        memory = estimate(
            shape,
            replicas=replicas,
            microbatch=microbatch,
            precision=precision,
            remat=remat,
            data_bytes=data_bytes,
        )
        if memory_bytes is None or memory.total <= 0.9 * memory_bytes:
            break
    return memory


def checkpoint_bytes(shape: Shape, replicas: int) -> int:
    """One checkpoint of a pack: float32 parameters and Adam's two moments of every replica."""
    return 3 * FLOAT32 * shape.n_params_total * replicas
