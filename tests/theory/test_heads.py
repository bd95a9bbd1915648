"""The attention matrices that one head can represent (Bhojanapalli et al. 2020, arXiv 2002.07028, Theorem 1): by
construction, by rank, and by a search.

A head of size d_p sees n positions X (d × n, of full column rank, d ≥ n). Its attention matrix is the softmax of each
column of (W_k·X)ᵀ·(W_q·X)/√d_p, and P is a positive matrix whose columns sum to one.

    d_p ≥ n        every P has a W_k and a W_q that produce it: the logits may be log P itself
    d_p < n        the logits have rank at most d_p, and a softmax ignores a constant added to a column. A head produces
                   P if and only if log P less its column means has rank at most d_p.

The rank is n − 1 for a random P: heads of size n − 2 or less cannot produce P. (A head of size n − 1 can. The theorem,
as a secondary source prints it, excludes every head smaller than n.)
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize


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


def drawn(n: int, seed: int) -> np.ndarray:
    """Columns sum to one."""
    return np.random.default_rng(seed).dirichlet(np.ones(n), n).T


def least_error(target: np.ndarray, inputs: np.ndarray, head_size: int) -> float:
    """Sum of squares, by a search over W_k and W_q that knows nothing of ranks, from many starts."""
    d = len(inputs)

    def residuals(flat: np.ndarray) -> np.ndarray:
        w_k, w_q = flat.reshape(2, head_size, d)
        return (attention(inputs, w_k, w_q) - target).ravel()

    rng = np.random.default_rng(5)
    starts = rng.normal(size=(4, 2 * head_size * d))
    return min(2 * scipy.optimize.least_squares(residuals, start).cost for start in starts)


@pytest.mark.parametrize("seed", range(5))
def test_a_head_as_large_as_the_window_represents_every_matrix(seed: int) -> None:
    target, inputs = drawn(6, seed), np.random.default_rng(seed).normal(size=(9, 6))
    for size in (6, 7, 12):
        found = attention(inputs, *fitted_head(target, inputs, size))
        np.testing.assert_allclose(found, target, atol=1e-12)
        np.testing.assert_allclose(found.sum(axis=0), 1.0)


def test_a_small_head_cannot_and_a_search_finds_the_same_limit() -> None:
    target, inputs = drawn(4, 0), np.random.default_rng(0).normal(size=(4, 4))
    assert needed_head_size(target) == 3
    assert least_error(target, inputs, 1) > 1e-3
    assert least_error(target, inputs, 2) > 1e-5
    assert least_error(target, inputs, 3) < 1e-12  # one below the window: a softmax does not see a column's mean


def test_what_a_small_head_makes_it_can_make_again() -> None:
    rng = np.random.default_rng(3)
    inputs = rng.normal(size=(7, 7))
    target = attention(inputs, rng.normal(size=(2, 7)), rng.normal(size=(2, 7)))
    assert needed_head_size(target) == 2
    np.testing.assert_allclose(attention(inputs, *fitted_head(target, inputs, 2)), target, atol=1e-9)
    assert np.abs(attention(inputs, *fitted_head(target, inputs, 1)) - target).max() > 0.01


def test_a_random_matrix_of_n_positions_needs_a_head_of_n_less_one() -> None:
    target, inputs = drawn(5, 0), np.random.default_rng(1).normal(size=(6, 5))
    errors = [np.abs(attention(inputs, *fitted_head(target, inputs, size)) - target).max() for size in range(1, 7)]
    assert needed_head_size(target) == 4
    assert [error < 1e-10 for error in errors] == [False, False, False, True, True, True]
