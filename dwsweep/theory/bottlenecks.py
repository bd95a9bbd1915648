"""Limits that width meets whatever the depth: the embedding's rank, the heads' rank, the embedding's share."""

from __future__ import annotations

from dwsweep.shapes import Shape

EMBEDDING_SHARE_LIMIT = 0.10

VOCABULARY_REASON = (
    "the embedding's rank is at most the vocabulary, so width beyond it adds less than its parameters suggest "
    "(Wies et al. 2021)"
)
HEAD_SIZE_REASON = (
    "a head smaller than the window cannot represent every attention pattern (Bhojanapalli et al. 2020), and how many "
    "can changes with the width"
)
EMBEDDING_SHARE_REASON = "curves matched in non-embedding parameters then differ in all parameters, wide nets more"


def width_exceeds_vocabulary(width: int, vocab_size: int) -> bool:
    """Whether d_x > V: the embedding-rank bottleneck, rank ≤ min(V, d_x) (Wies et al. 2021, arXiv 2105.03928)."""
    return width > vocab_size


def head_below_window(head_size: int, seq_len: int) -> bool:
    """Whether d_p < n: the low-rank bottleneck of one head (Bhojanapalli et al. 2020, arXiv 2002.07028, Theorem 1)."""
    return head_size < seq_len


def embedding_share(shape: Shape) -> float:
    """Share of token embedding, unembedding and learned positions in all parameters."""
    return shape.embedding_params / shape.n_params_total
