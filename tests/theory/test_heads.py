"""The attention matrices that one head can represent: by construction, by rank, and by a search."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

from dwsweep.theory.head_check import attention, check_heads, fitted_head, needed_head_size


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


def test_every_head_size_is_judged() -> None:
    found = check_heads(positions=5, width=6)
    assert [row.head_size for row in found] == [1, 2, 3, 4, 5, 6] and not [row for row in found if row.wrong]
    assert [row.error < 1e-10 for row in found] == [False, False, False, True, True, True]
