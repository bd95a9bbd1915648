"""Check of the heads' bottleneck: attention matrices that one head can represent (Bhojanapalli et al. 2020, arXiv
2002.07028, Theorem 1).

A head of size d_p sees n positions X (d × n, of full column rank, d ≥ n). Its attention matrix is the softmax of each
column of (W_k·X)ᵀ·(W_q·X)/√d_p, and P is a positive matrix whose columns sum to one.

    d_p ≥ n        every P has a W_k and a W_q that produce it: the logits may be log P itself
    d_p < n        the logits have rank at most d_p, and a softmax ignores a constant added to a column. A head produces
                   P if and only if log P less its column means has rank at most d_p.

The rank is n − 1 for a random P: heads of size n − 2 or less cannot produce P. (A head of size n − 1 can. The theorem,
as a secondary source prints it, excludes every head smaller than n.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

POSITIONS, WIDTH = 8, 12
EXACT = 1e-10
"""Largest error of an attention weight that counts as float64 rounding."""


@dataclass(frozen=True)
class HeadCheck:
    """Verdict on one head size: its best approximation of a random attention matrix."""

    head_size: int
    positions: int
    needed: int  # rank of log P less its column means
    error: float  # largest error of an attention weight under the logits' best approximation of the head's rank
    wrong: tuple[str, ...] = ()


def check_heads(positions: int = POSITIONS, width: int = WIDTH, *, seed: int = 0) -> list[HeadCheck]:
    """Verdicts on the head sizes 1 … positions + 1, for one random P, by the theorem."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(width, positions))
    target = rng.dirichlet(np.ones(positions), positions).T
    needed = needed_head_size(target)
    found = []
    for size in range(1, positions + 2):
        error = float(np.abs(attention(inputs, *fitted_head(target, inputs, size)) - target).max())
        possible, exact = size >= needed, error < EXACT
        wrong = () if possible == exact else ("not as the rank predicts",)
        found.append(HeadCheck(size, positions, needed, error, wrong))
    return found


def needed_head_size(target: np.ndarray) -> int:
    """Smallest head size that represents ``target`` (n, n; columns sum to one): the rank of log P less its column
    means."""
    return int(np.linalg.matrix_rank(_logits(target)))


def fitted_head(target: np.ndarray, inputs: np.ndarray, head_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights (W_k, W_q), each (head_size, d), whose logits approximate log ``target`` best; exact for a large enough
    head.

    ``target`` (n, n): positive, columns sum to one. ``inputs`` (d, n): of full column rank.
    """
    n = target.shape[0]
    left, values, right = np.linalg.svd(_logits(target) * np.sqrt(head_size))
    rank = min(head_size, n)
    keys, queries = np.zeros((head_size, n)), np.zeros((head_size, n))
    keys[:rank] = (left[:, :rank] * np.sqrt(values[:rank])).T
    queries[:rank] = np.sqrt(values[:rank])[:, None] * right[:rank]
    back = np.linalg.pinv(inputs)  # X⁺·X = 1
    return keys @ back, queries @ back


def attention(inputs: np.ndarray, w_k: np.ndarray, w_q: np.ndarray) -> np.ndarray:
    """Attention matrix (n, n) of a head: the softmax of each column of (W_k·X)ᵀ·(W_q·X)/√d_p."""
    logits = (w_k @ inputs).T @ (w_q @ inputs) / np.sqrt(len(w_k))
    weights = np.exp(logits - logits.max(axis=0))
    return weights / weights.sum(axis=0)


def _logits(target: np.ndarray) -> np.ndarray:
    """Logits of smallest rank that produce P: log P less its column means."""
    logs = np.log(target)
    return logs - logs.mean(axis=0)
