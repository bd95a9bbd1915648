"""Which attention matrices one head can represent (Bhojanapalli et al. 2020, arXiv 2002.07028, Theorem 1), tried.

A head of size d_p sees n positions X (d × n, of full column rank, d ≥ n). Its attention matrix is the softmax of each
column of (W_k·X)ᵀ·(W_q·X)/√d_p, and P is a positive matrix whose columns sum to one.

    d_p ≥ n        for every P there are W_k and W_q that give it: the logits may be log P itself
    d_p < n        the logits have a rank of at most d_p, and a softmax does not see what is added to a whole column. So
                   P can be had if and only if log P less its column means has a rank of at most d_p.

That rank is n − 1 for a P drawn at random: heads of n − 2 and less cannot give it. (A head of n − 1 can. The theorem as
we read it, in a secondary source, says that one below n cannot.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

POSITIONS, WIDTH = 8, 12
EXACT = 1e-10
"""Largest error of an attention weight that counts as rounding, in float64."""


@dataclass(frozen=True)
class HeadCheck:
    """One head size: what it can do with an attention matrix drawn at random."""

    head_size: int
    positions: int
    needed: int  # rank of log P less its column means
    error: float  # largest error of an attention weight, by the logits' best approximation of the head's rank
    wrong: tuple[str, ...] = ()


def check(positions: int = POSITIONS, width: int = WIDTH, *, seed: int = 0) -> list[HeadCheck]:
    """Head sizes from 1 to one more than the positions, on one random P, judged against the theorem."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(width, positions))
    target = rng.dirichlet(np.ones(positions), positions).T
    needed = needed_head_size(target)
    found = []
    for size in range(1, positions + 2):
        error = float(np.abs(attention(inputs, *fitted_head(target, inputs, size)) - target).max())
        possible, exact = size >= needed, error < EXACT
        wrong = () if possible == exact else ("not as the rank says",)
        found.append(HeadCheck(size, positions, needed, error, wrong))
    return found


def needed_head_size(target: np.ndarray) -> int:
    """The smallest head size that can give ``target`` (n, n), whose columns sum to one: the rank of its logits with the
    freedom of a softmax taken out."""
    return int(np.linalg.matrix_rank(_logits(target)))


def fitted_head(target: np.ndarray, inputs: np.ndarray, head_size: int) -> tuple[np.ndarray, np.ndarray]:
    """(W_k, W_q), each (head_size, d): exact where the head is large enough, else by the nearest logits of its rank.

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
    """The head's attention matrix (n, n): the softmax of each column of (W_k·X)ᵀ·(W_q·X)/√d_p."""
    logits = (w_k @ inputs).T @ (w_q @ inputs) / np.sqrt(len(w_k))
    weights = np.exp(logits - logits.max(axis=0))
    return weights / weights.sum(axis=0)


def _logits(target: np.ndarray) -> np.ndarray:
    """log P less its column means: of all logits that give P, those of the smallest rank."""
    logs = np.log(target)
    return logs - logs.mean(axis=0)
