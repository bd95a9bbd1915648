"""Bottlenecks of width at any depth: the embedding's rank, the heads' rank, the embedding's share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dwsweep.shapes import Shape

EMBEDDING_SHARE_LIMIT = 0.10

EMBEDDING_REASON = (
    "it caps the embedding's rank, so width beyond it adds less than its parameters suggest and depth is favoured "
    "(Wies et al. 2021)"
)
HEAD_SIZE_REASON = (
    "a head smaller than the window cannot represent every attention pattern (Bhojanapalli et al. 2020), and the "
    "number of heads that can depends on the width"
)
EMBEDDING_SHARE_REASON = "curves matched in non-embedding parameters then differ in all parameters, most in wide nets"


@dataclass(frozen=True)
class EmbeddingCap:
    """Upper limit of the embedding's rank: the vocabulary size, or the r of a factored embedding."""

    value: float
    is_vocabulary: bool


def embedding_cap(width: float, vocab_size: float | None, rank: float | None) -> EmbeddingCap | None:
    """Cap of the embedding's rank if d_x > min(V, r), else None (Wies et al. 2021, arXiv 2105.03928).

    vocab_size: None if unknown. rank: r of a factored embedding; None for a full V × d_x embedding.
    """
    value = min(limit or math.inf for limit in (vocab_size, rank))
    return EmbeddingCap(value, value == vocab_size) if width > value else None


def head_below_window(head_size: int, seq_len: int) -> bool:
    """Test of the low-rank bottleneck of a head, d_p < n (Bhojanapalli et al. 2020, arXiv 2002.07028, Theorem 1)."""
    return head_size < seq_len


def embedding_share(shape: Shape) -> float:
    """Fraction of all parameters that the token embedding, the unembedding and learned positions hold."""
    return shape.embedding_params / shape.n_params_total
