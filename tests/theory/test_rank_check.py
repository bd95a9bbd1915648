"""The bounds of the theorems against exact separation ranks of small random networks of the analysed kind.

The network of Levine et al. 2020, eq. (3), has neither softmax nor activation, norm or residual. A layer is

    y^i = Σ_j Σ_h ⟨W^Q_h x^i, W^K_h x^j⟩ W^O_h W^V_h x^j = M(G)·x^i
    G = Σ_j x^j x^jᵀ,    M(G) = Σ_h W^O_h W^V_h · G · W^K_hᵀ W^Q_h

so a layer is one matrix that depends on the inputs through G alone, and the next layer's G is M·G·Mᵀ. An output is a
polynomial of the inputs, with integer coefficients where the weights are integers.

The separation rank for a partition of the positions into two halves is the rank of a matrix: entry (a, b) is the output
when the first half holds its a-th assignment of vectors and the second half its b-th (the paper's grid tensor). Random
weights and vectors reach the separation rank with probability one once the assignments outnumber it. The singular
values span so many decades that rounding in floating point hides the last ones, so the arithmetic is exact, on integers
modulo a prime: the computed rank never exceeds the rank over the reals, and falls below it with probability of about
degree / prime.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pytest

from dwsweep.theory.separation_rank import bounds

PRIME = 2**31 - 1  # the product of two residues fits into 64 bits
NETWORKS = ((1, 2, 1), (1, 3, 1), (1, 4, 1), (1, 4, 2), (2, 2, 1), (2, 3, 1), (3, 2, 1))
"""Shapes (L, d_x, H) whose ranks take seconds to compute."""
PARTITIONS = 3
Ranks = dict[tuple[int, int, int], tuple[int, ...]]
Weights = tuple[np.ndarray, np.ndarray]
"""W^O_h W^V_h and W^K_hᵀ W^Q_h, (L, H, d, d) modulo the prime."""


def random_weights(depth: int, width: int, heads: int, rng: np.random.Generator) -> Weights:
    """Of uniformly random matrices with heads of size d_x / H."""
    tall, wide = (depth, heads, width, width // heads), (depth, heads, width // heads, width)
    left, right = (product(rng.integers(0, PRIME, tall), rng.integers(0, PRIME, wide)) for _ in range(2))
    return left, right


def outputs(weights: Weights, gram: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Coordinate 0 (…) of the output at the position of input x (…, d), given ``gram`` = Σ_j x^j x^jᵀ (…, d, d)."""
    for left, right in zip(*weights, strict=True):
        heads = [product(product(u, gram), v) for u, v in zip(left, right, strict=True)]
        layer = np.sum(heads, axis=0) % PRIME
        x = product(layer, x[..., None])[..., 0]
        gram = product(product(layer, gram), np.swapaxes(layer, -1, -2))
    return x[..., 0]


def separation_rank(weights: Weights, half: Sequence[int], rng: np.random.Generator) -> int:
    """Separation rank of the output at position 0 of 2 d_x, for the partition into ``half`` and the others."""
    width, assignments = weights[0].shape[-1], 16
    found = assignments
    while found == assignments:  # full rank: double the sample
        assignments *= 2
        x = rng.integers(0, PRIME, (2 * width, assignments, width))
        squares = product(x[..., :, None], x[..., None, :])
        first = np.isin(np.arange(2 * width), half)
        here, there = squares[first].sum(axis=0) % PRIME, squares[~first].sum(axis=0) % PRIME
        gram = (here[:, None] + there[None]) % PRIME
        own = np.broadcast_to(x[0][:, None] if first[0] else x[0][None], (assignments, assignments, width))
        found = rank(outputs(weights, gram, own))
    return found


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matrix product (…, m, k) × (…, k, n) modulo the prime."""
    terms = (a[..., :, k, None] * b[..., None, k, :] % PRIME for k in range(a.shape[-1]))
    return functools.reduce(lambda total, term: (total + term) % PRIME, terms)


def rank(matrix: np.ndarray) -> int:
    """Rank of a matrix of residues, by elimination."""
    rows = matrix % PRIME
    found = 0
    for column in range(rows.shape[1]):
        below = np.flatnonzero(rows[found:, column]) + found
        if not len(below):
            continue
        rows[[found, below[0]]] = rows[[below[0], found]]
        pivot = rows[found, column:] * pow(int(rows[found, column]), -1, PRIME) % PRIME
        factors = rows[found + 1 :, column, None]
        rows[found + 1 :, column:] = (rows[found + 1 :, column:] - factors * pivot % PRIME) % PRIME
        found += 1
        if found == len(rows):
            break
    return found


def ranks_of(networks: Sequence[tuple[int, int, int]]) -> Ranks:
    """Rank of a random network of each shape, for several balanced partitions."""
    rng = np.random.default_rng(0)
    found = {}
    for depth, width, heads in networks:
        weights = random_weights(depth, width, heads, rng)
        halves = [rng.permutation(2 * width)[:width].tolist() for _ in range(PARTITIONS)]
        found[depth, width, heads] = tuple(separation_rank(weights, half, rng) for half in halves)
    return found


@pytest.fixture(scope="module")
def ranks() -> Ranks:
    return ranks_of(NETWORKS)


def test_one_layer_has_rank_width_plus_one(ranks: Ranks) -> None:
    """Derivation by hand: one term of the position's own half, and d_x terms of the other half's G."""
    assert all(set(found) == {width + 1} for (depth, width, _), found in ranks.items() if depth == 1)


def test_two_layers_have_the_rank_of_the_equation_at_real_numbers(ranks: Ranks) -> None:
    """18 singular values of eq. (3), position by position in float64, stand out of the rounding."""
    assert set(ranks[2, 2, 1]) == {18}


def test_every_network_is_as_the_theorems_say(ranks: Ranks) -> None:
    """Each rank lies between the bounds, is the same for every partition, and exceeds those of smaller networks."""
    for (depth, width, heads), found in ranks.items():
        lower, upper = bounds(depth, width, heads)
        assert len(set(found)) == 1 and 3**lower - 1e-9 <= found[0] <= 3**upper + 1e-9
        smaller = [
            other
            for (fewer, narrower, same), (other, *_) in ranks.items()
            if same == heads and (fewer, narrower) != (depth, width) and fewer <= depth and narrower <= width
        ]
        assert all(other < found[0] for other in smaller)
