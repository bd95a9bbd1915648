"""Separation ranks of small random networks: exact, against floating point and against the theorems."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from cli_tools import Command
from sentences import says

from dwsweep.report.figures import laws
from dwsweep.report.theory_report import render_ranks
from dwsweep.terminal import plain_text
from dwsweep.theory import rank_check
from dwsweep.theory.head_check import check_heads
from dwsweep.theory.rank_check import PRIME, Network, check_ranks, product, rank, separation_rank


@pytest.fixture(scope="module")
def checks() -> list[rank_check.RankCheck]:
    return check_ranks([(1, 2, 1), (1, 3, 1), (1, 4, 1), (1, 4, 2), (2, 2, 1), (2, 3, 1), (3, 2, 1)])


def layer(x: np.ndarray, weights: list[tuple[np.ndarray, ...]]) -> np.ndarray:
    """Eq. (3) as it stands, position by position, of x (N, d)."""
    out = np.zeros_like(x)
    for i in range(len(x)):
        for j in range(len(x)):
            for query, key, value, output in weights:
                out[i] += (query @ x[i]) @ (key @ x[j]) * (output @ (value @ x[j]))
    return out


@pytest.mark.parametrize(("depth", "width", "heads", "expected"), [(1, 3, 1, 4), (1, 4, 2, 5), (2, 2, 1, 18)])
def test_ranks_in_float64_by_the_equation_itself(depth: int, width: int, heads: int, expected: int) -> None:
    """The equation, literally, at real numbers, where the singular values still tell: the rank is the exact one."""
    rng = np.random.default_rng(1)
    size = width // heads
    shapes = ((size, width), (size, width), (size, width), (width, size))
    weights = [[tuple(rng.normal(size=s) for s in shapes) for _ in range(heads)] for _ in range(depth)]
    first, second = (rng.normal(size=(expected + 6, width, width)) for _ in range(2))  # halves of 2·d positions
    matrix = np.empty((len(first), len(second)))
    for a, here in enumerate(first):
        for b, there in enumerate(second):
            x = np.concatenate([here, there])
            for of_layer in weights:
                x = layer(x, of_layer)
            matrix[a, b] = x[0, 0]
    values = np.linalg.svd(matrix, compute_uv=False)
    assert values[expected - 1] > 1e-10 * values[0] > 1e3 * values[expected]
    exact = separation_rank(Network.random(depth, width, heads, rng), range(width), 2 * width, rng)
    assert exact == expected


def test_one_layer_has_rank_width_plus_one(checks: list[rank_check.RankCheck]) -> None:
    """Derivation by hand: one term of the position's own half, and d_x terms of the other half's G."""
    assert {(r.width, r.heads): set(r.ranks) for r in checks if r.depth == 1} == {
        (2, 1): {3},
        (3, 1): {4},
        (4, 1): {5},
        (4, 2): {5},
    }


def test_every_network_is_as_the_theorems_say(checks: list[rank_check.RankCheck]) -> None:
    assert not [row for row in checks if row.wrong]
    assert all(len(row.ranks) == rank_check.PARTITIONS for row in checks)
    text = plain_text(render_ranks(checks, check_heads()))
    assert "as stated" in text and says(text, "theory: every rank lies between")


def test_what_is_not_as_stated_is_said(checks: list[rank_check.RankCheck]) -> None:
    row = checks[1]
    for broken, words in (
        (replace(row, ranks=(4, 4, 3)), "depends on the partition"),
        (replace(row, ranks=(400, 400), upper=5.0), "outside the bounds"),
        (replace(row, ranks=(3, 3)), "no larger than a smaller network's"),
    ):
        assert words in rank_check._wrong(broken, checks)
    assert says(
        plain_text(render_ranks([replace(row, wrong=("outside the bounds",))], check_heads())),
        "theory: networks outside their bounds",
    )


def test_rank_and_product_modulo_a_prime() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, PRIME, (40, 7)), rng.integers(0, PRIME, (7, 50))
    exact = np.array(
        [[sum(int(x) * int(y) for x, y in zip(row, column, strict=True)) % PRIME for column in b.T] for row in a]
    )
    assert (product(a, b) == exact).all()
    assert (
        rank(exact) == 7 and rank(exact.T) == 7 and rank(np.zeros((3, 4), int)) == 0 and rank(np.eye(5, dtype=int)) == 5
    )
    assert rank(np.array([[0, 1], [0, 2]])) == 1


def test_figure(checks: list[rank_check.RankCheck], tmp_path) -> None:
    assert [path.name for path in laws.draw_ranks(checks, tmp_path)] == ["theory.png", "theory.svg"]


def test_command(dwsweep: Command, tmp_path) -> None:
    result = dwsweep("theory", "--check", "--json")
    found = json.loads(result.stdout)
    assert result.returncode == 0 and len(found["networks"]) == len(rank_check.NETWORKS)
    assert [row["head_size"] for row in found["heads"]] == list(range(1, 10))
