"""Training FLOPs of a shape, with the convention in one place.

A product of (m × n) and (n × k) counts 2·m·n·k. Forward, per token:

    blocks        2 · n_params
    attention     4 · L · H · d_p · n      scores and weighted sum over all n positions of the window: the full square,
                                           not its causal half, as in Chowdhery et al. 2022 (PaLM), Appendix B
    unembedding   2 · V · d_x              the embedding's look-up counts nothing
    embedding     2 · r · d_x              where it is factored; the unembedding is then, if tied, 2 · r · (V + d_x)

Training counts 3 × forward (the backward pass has two products for each one of the forward). Norms, softmax,
activations, the optimizer and the evaluation on held-out text are not counted, and recomputation (``remat``) is not
either: these are the FLOPs of the model, which MFU is measured against.
"""

from __future__ import annotations

from dwsweep.shapes import Shape

CONVENTION = "3 × forward; 2·m·n·k a product; attention over the full window, not its causal half; unembedding counted"


def forward_flops_per_token(shape: Shape) -> int:
    """FLOPs of one token's forward pass in a window of ``shape.seq_len`` positions."""
    attention = 4 * shape.depth * shape.heads * shape.head_size * shape.seq_len
    return 2 * shape.n_params + attention + _embedding_flops_per_token(shape)


def _embedding_flops_per_token(shape: Shape) -> int:
    full, rank = 2 * shape.vocab_size * shape.width, shape.embedding_rank
    if rank is None:
        return full
    unembedding = 2 * rank * (shape.vocab_size + shape.width) if shape.tied_embeddings else full
    return 2 * rank * shape.width + unembedding


def training_flops_per_token(shape: Shape) -> int:
    """FLOPs of one token's forward and backward pass."""
    return 3 * forward_flops_per_token(shape)


def training_flops(shape: Shape, tokens: int) -> int:
    """FLOPs of training on ``tokens``."""
    return training_flops_per_token(shape) * tokens


def flops_6nd(shape: Shape, tokens: int) -> int:
    """6·N·D with N the matched non-embedding count (Kaplan et al. 2020, without their attention term)."""
    return 6 * shape.n_params * tokens


def decode_bytes_per_token(shape: Shape, context: int, bytes_per_value: int = 2) -> int:
    """Bytes one decoding step reads for one sequence: every weight, and the cached keys and values."""
    weights = shape.n_params + _embedding_flops_per_token(shape) // 2
    cache = 2 * shape.depth * shape.kv_heads * shape.head_size * context
    return bytes_per_value * (weights + cache)
