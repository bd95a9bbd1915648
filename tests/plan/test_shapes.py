"""Counts of a shape, by formulas written out here a second time, and the width that matches a budget."""

from __future__ import annotations

import itertools

import pytest

from dwsweep.shapes import Block, HeadRule, match_width


def block(**changes: object) -> Block:
    options: dict = {"head_rule": HeadRule(count=2), "vocab_size": 1000, "seq_len": 128}
    return Block(**{**options, **changes})


@pytest.mark.parametrize(("depth", "width"), [(1, 8), (6, 118), (48, 42), (96, 12288)])
def test_standard_block_counts_12_l_d_squared(depth: int, width: int) -> None:
    assert block().shape(depth, width).n_params == 12 * depth * width**2


def test_head_size_apart_from_width_uses_the_true_formula() -> None:
    shape = block(head_rule=HeadRule(count=8, size=128)).shape(3, 256)
    assert shape.attention_params == 4 * 256 * 8 * 128
    assert shape.n_params == 3 * (4 * 256 * 8 * 128 + 8 * 256**2) != 12 * 3 * 256**2


def test_grouped_key_value_heads_and_gated_mlp() -> None:
    shape = block(head_rule=HeadRule(count=8), kv_heads=2, mlp="gated", mlp_ratio=8 / 3).shape(2, 96)
    d, d_p, inner = 96, 12, 256
    assert shape.mlp_hidden == inner
    assert shape.n_params == 2 * (2 * d * 8 * d_p + 2 * d * 2 * d_p + 3 * d * inner)


def test_total_of_gpt2_small() -> None:
    gpt2 = Block(HeadRule(count=12), vocab_size=50257, seq_len=1024, tied_embeddings=True).shape(12, 768)
    assert gpt2.n_params_total == 124_439_808  # as every public implementation counts it


def test_matched_width_is_the_nearest_of_all() -> None:
    for depth, budget, multiple in itertools.product((1, 6, 48), (1e5, 1e6, 3.3e7), (2, 8, 64)):
        found = match_width(depth, budget, block(), multiple)
        best = min((block().shape(depth, k * multiple) for k in range(1, 1500)), key=lambda s: abs(s.n_params - budget))
        assert found == best


def test_matched_width_serves_every_block() -> None:
    gated = block(head_rule=HeadRule(size=64), kv_heads=1, mlp="gated", mlp_ratio=2.75)
    shape = match_width(12, 8.5e7, gated, 64)
    assert shape.width % 64 == 0 and shape.heads == shape.width // 64
    neighbours = [gated.shape(12, shape.width + step).n_params for step in (-64, 64)]
    assert all(abs(n - 8.5e7) >= abs(shape.n_params - 8.5e7) for n in neighbours)


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"head_rule": HeadRule(count=3)}, "does not divide width"),
        ({"head_rule": HeadRule(size=48)}, "does not divide width"),
        ({"head_rule": HeadRule(count=4), "kv_heads": 3}, "kv_heads 3"),
        ({"head_rule": HeadRule(count=64), "positions": "rotary"}, "even head size"),
    ],
)
def test_blocks_that_cannot_be_built(changes: dict, wanted: str) -> None:
    with pytest.raises(ValueError, match=wanted):
        block(**changes).shape(2, 64)
