"""FLOPs and memory of training a shape, by formula, with each convention in one place.

A product of (m × n) and (n × k) counts 2·m·n·k. Forward, per token:

    blocks        2 · n_params
    attention     4 · L · H · d_p · n      scores and weighted sum over all n positions of the window: the full square,
                                           not its causal half, as in Chowdhery et al. 2022 (PaLM), Appendix B
    unembedding   2 · V · d_x              the embedding's look-up counts nothing
    embedding     2 · r · d_x              where it is factored; the unembedding is then, if tied, 2 · r · (V + d_x)

Training counts 3 × forward (the backward pass has two products for each one of the forward). Norms, softmax,
activations, the optimizer and the evaluation on held-out text are not counted, and recomputation (``remat``) is not
either: these are the FLOPs of the model, which MFU is measured against.

Device memory and checkpoint size of a pack: arithmetic on its arrays, an estimate to plan with.

The same functions decide whether a program fits for `plan`, from estimates, and for the trainer, from measurements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dwsweep.shapes import Shape

if TYPE_CHECKING:
    from dwsweep.records.pack import Pack

CONVENTION = "3 × forward; 2·m·n·k a product; attention over the full window, not its causal half; unembedding counted"


def forward_flops_per_token(shape: Shape) -> int:
    """FLOPs of the forward pass per token in a window of ``shape.seq_len`` positions."""
    attention = 4 * shape.depth * shape.heads * shape.head_size * shape.seq_len
    return 2 * shape.n_params + attention + _embedding_flops_per_token(shape)


def _embedding_flops_per_token(shape: Shape) -> int:
    full, rank = 2 * shape.vocab_size * shape.width, shape.embedding_rank
    if rank is None:
        return full
    unembedding = 2 * rank * (shape.vocab_size + shape.width) if shape.tied_embeddings else full
    return 2 * rank * shape.width + unembedding


def training_flops_per_token(shape: Shape) -> int:
    """FLOPs of the forward and backward pass per token."""
    return 3 * forward_flops_per_token(shape)


def training_flops(shape: Shape, tokens: int) -> int:
    """FLOPs of training on ``tokens``."""
    return training_flops_per_token(shape) * tokens


def flops_6nd(shape: Shape, tokens: int) -> int:
    """6·N·D with N the matched non-embedding count (Kaplan et al. 2020, without their attention term)."""
    return 6 * shape.n_params * tokens


def decode_bytes_per_token(shape: Shape, context: int, bytes_per_value: int = 2) -> int:
    """Bytes read by one decoding step of one sequence: all weights, and the cached keys and values."""
    weights = shape.n_params + _embedding_flops_per_token(shape) // 2
    cache = 2 * shape.depth * shape.kv_heads * shape.head_size * context
    return bytes_per_value * (weights + cache)


FLOAT32 = 4
PROGRAM_SHARE = 0.92
"""Share of the memory JAX may use that the training program may take; the evaluation runs beside it."""
TOKEN_STORE_SHARE = 0.2
"""Share of the same memory above which the token store stays on the host and batches are streamed."""
ASSUMED_MEMORY_BYTES = 16 << 30
"""Memory assumed for the token store where a device does not report its own."""
INDEXABLE_TOKENS = 1 << 31
"""Most tokens that 32-bit indices on the device can address."""


@dataclass(frozen=True)
class Memory:
    """Bytes on one device while a pack trains."""

    parameters: int  # float32 masters, and the 16-bit copy the products read
    optimizer: int  # moments of the optimizer
    gradients: int  # gradients and their clipped copy
    activations: int  # values kept for the backward pass, at the microbatch
    data: int  # token store on the device, if any
    microbatch: int  # sequences of each replica in one forward pass

    @property
    def total(self) -> int:
        return self.parameters + self.optimizer + self.gradients + self.activations + self.data


def activation_bytes_per_token(
    shape: Shape, precision: str, remat: bool, keep_weights: bool = False
) -> tuple[int, int]:
    """Bytes per token for the backward pass: (kept in every block, alive in one block at a time).

    The operations of this model keep, with p = 2 or 4 bytes per operand of a product:

        residual stream              2 · 4 · d_x
        operands of products         3 · p · d_x
        q, k, v, attention's output  4 · p · H · d_p, and 4 · H for the softmax
        q and k before their norm    p · (H + H_kv) · d_p, where they are normalised
        MLP, before the activation   p a unit, twice that if gated
        attention's weights          p · H · T, with ``keep_weights``

    Activations, and attention's weights without it, are computed again in the backward pass, of one block at a time:
    they live once, with the gradient of that block's inner values, the logits and their gradient. With ``remat`` only a
    block's input is kept, and the rest of one block lives at a time.
    """
    product = 2 if precision == "bfloat16" else FLOAT32
    width, query = shape.width, shape.heads * shape.head_size
    inner = shape.mlp_hidden * (2 if shape.mlp == "gated" else 1)
    block = (2 * FLOAT32 + 3 * product) * width + 4 * product * query + FLOAT32 * shape.heads + product * inner
    if keep_weights and shape.attention == "softmax":
        block += product * shape.heads * shape.seq_len
    if shape.qk_norm:
        block += product * (shape.heads + shape.kv_heads) * shape.head_size
    once = 2 * FLOAT32 * shape.vocab_size + (FLOAT32 + product) * width + recomputed_bytes_per_token(shape)
    if shape.embedding_rank is not None:  # input of the r × d_x matrix, and its gradient; if tied, a second time
        once += (2 if shape.tied_embeddings else 1) * (FLOAT32 + product) * shape.embedding_rank
    if remat:
        return FLOAT32 * width, once + block
    return block, once


def recomputed_bytes_per_token(shape: Shape, fused: bool = False) -> int:
    """Bytes per token of recomputed values in a block: inner values and attention probabilities, two float32 each.

    fused: by a kernel of attention that leaves no probabilities in memory (Dao et al. 2022).
    """
    inner = shape.mlp_hidden * (2 if shape.mlp == "gated" else 1)
    return 2 * FLOAT32 * (inner + (0 if fused else shape.heads * shape.seq_len))


def moments(shape: Shape, optimizer: str) -> int:
    """Number of values that an optimizer keeps of one replica between steps."""
    from dwsweep.spec import OPTIMIZERS  # the models of a spec take long to make, and most costs need none

    facts, others = OPTIMIZERS[optimizer], shape.n_params_total - shape.n_params
    return facts.block_moments * shape.n_params + facts.other_moments * others


def estimate(
    pack: Pack, microbatch: int, *, remat: bool = False, keep_weights: bool = False, data_bytes: int = 0
) -> Memory:
    """Estimated memory of a pack that runs ``microbatch`` sequences of each replica at a time on one device."""
    shape, precision, replicas = pack.shape, pack.train.precision, len(pack.replicas)
    block, once = activation_bytes_per_token(shape, precision, remat, keep_weights)
    values = replicas * shape.n_params_total
    tokens = replicas * microbatch * shape.seq_len
    return Memory(
        parameters=values * (FLOAT32 + (2 if precision == "bfloat16" else 0)),
        optimizer=FLOAT32 * replicas * moments(shape, pack.train.optimizer),
        gradients=2 * FLOAT32 * values,
        activations=tokens * (shape.depth * block + once),
        data=data_bytes,
        microbatch=microbatch,
    )


def program_fits(program_bytes: float, memory_bytes: float) -> bool:
    """True if a training program fits on a device on which JAX may use ``memory_bytes``."""
    return program_bytes <= PROGRAM_SHARE * memory_bytes


def resident_bytes(n_train_tokens: int, size: int, memory_bytes: float | None, asked: bool | None) -> int:
    """Device memory taken by the training tokens, ``size`` bytes each; 0 if they are streamed instead.

    ``asked`` is ``execution.data_on_device``; held-out text is always streamed.
    """
    total = n_train_tokens * size
    if asked is False or n_train_tokens >= INDEXABLE_TOKENS:
        return 0
    return total if asked or total <= TOKEN_STORE_SHARE * (memory_bytes or ASSUMED_MEMORY_BYTES) else 0


def halved(batch: int, microbatch: int, multiple_of: int = 1) -> int | None:
    """Largest divisor of the batch that is at most half the microbatch, or None.

    ``multiple_of``: the devices that share each microbatch in whole sequences.
    """
    small = [n for n in range(1, math.isqrt(batch) + 1) if batch % n == 0]
    fitting = (n for n in {*small, *(batch // n for n in small)} if n <= microbatch // 2 and n % multiple_of == 0)
    return max(fitting, default=None)


def fitting_microbatch(pack: Pack, data_bytes: int, memory_bytes: float | None) -> Memory:
    """Estimated memory of the program that the trainer will choose for ``pack``, if JAX may use ``memory_bytes``.

    The search begins at ``execution.microbatch`` sequences (default: the whole batch). While the program does not fit,
    the search halves the microbatch, then recomputes attention's weights, then all activations. It returns the first
    program if the memory is unknown, and the last one, whose total exceeds the memory, if none fits.
    """
    size, remat = pack.execution.microbatch or pack.train.batch_size, pack.execution.remat
    keep_weights = memory_bytes is not None  # a CPU computes the weights again
    while True:
        memory = estimate(pack, size, remat=remat, keep_weights=keep_weights, data_bytes=data_bytes)
        smaller = halved(pack.train.batch_size, size)
        nothing_left = remat and not keep_weights and smaller is None
        if memory_bytes is None or program_fits(memory.total, memory_bytes) or nothing_left:
            return memory
        if smaller:
            size = smaller
        else:
            keep_weights, remat = False, remat or not keep_weights


def checkpoint_bytes(shape: Shape, replicas: int, optimizer: str = "adamw") -> int:
    """Bytes of one checkpoint of a pack: float32 parameters and the optimizer's moments of every replica."""
    return FLOAT32 * (shape.n_params_total + moments(shape, optimizer)) * replicas
