"""Theory of depth and width, before anything is trained: separation-rank bounds and bottlenecks of width."""

from __future__ import annotations

from dwsweep.theory.bottlenecks import (
    EMBEDDING_REASON,
    EMBEDDING_SHARE_LIMIT,
    EMBEDDING_SHARE_REASON,
    HEAD_SIZE_REASON,
    EmbeddingCap,
    embedding_cap,
    embedding_share,
    head_below_window,
)
from dwsweep.theory.separation_rank import DEPTH_EFFICIENT, bounds, summary, width_needed

__all__ = ["EMBEDDING_REASON", "EMBEDDING_SHARE_LIMIT", "EMBEDDING_SHARE_REASON", "HEAD_SIZE_REASON", "EmbeddingCap"]
__all__ += ["DEPTH_EFFICIENT", "bounds", "embedding_cap", "embedding_share", "head_below_window", "summary"]
__all__ += ["width_needed"]
