"""The bounds, recomputed; the example that the equations give; bottlenecks; the published law's constants."""

from __future__ import annotations

import json
import math

import pytest
from shown import printed

from dwsweep import published_law
from dwsweep.errors import InputError
from dwsweep.report import theory_report
from dwsweep.shapes import BlockForm, HeadRule
from dwsweep.theory import bottlenecks, separation_rank

LN3 = math.log(3)


def log3(x: float) -> float:
    return math.log(x) / LN3


def test_the_threshold_and_the_published_law_against_their_tables() -> None:
    assert separation_rank.summary(width=3**7)["threshold_depth"] == pytest.approx(7)
    assert published_law.transition_depth(512) == pytest.approx(21.6, abs=0.05)
    assert published_law.transition_n_params(80.5) == pytest.approx(12 * 96 * 12288**2, rel=0.01)


@pytest.mark.parametrize(("depth", "width", "heads"), [(6, 1000, 16), (3, 64, 2), (2, 4096, 8)])
def test_equation_7(depth: int, width: int, heads: int) -> None:
    low, high = separation_rank.bounds(depth, width, heads)
    a = -depth + 2 - log3(2)
    assert low == pytest.approx(max(0, 3 ** (depth - 2) * (log3(width - heads) + a)))
    assert high == pytest.approx((3**depth - 1) / 2 * log3(width + heads))
    assert low < high


@pytest.mark.parametrize(("depth", "width", "heads"), [(24, 1024, 16), (48, 512, 2), (12, 128, 2)])
def test_equation_8(depth: int, width: int, heads: int) -> None:
    low, high = separation_rank.bounds(depth, width, heads)
    b = -depth * (heads / 2 + 1) - width * (1 + 0.5 * log3((width - heads) / 2))
    c = depth - 2 * width * log3(width / (2 * math.sqrt(2 * math.e))) + log3(width)
    assert low == pytest.approx(max(0, 0.5 * width * depth + b))
    assert high == pytest.approx(2 * width * depth + c)
    assert low < high


def test_the_example_is_what_equation_7_gives_not_what_is_printed() -> None:
    """d_x = 1000, H = 16, L = 6: 7.3e15 at L = 2 and 7.6e4 at L = 3 (the paper prints 2e17 and 2e5)."""
    assert 10 ** separation_rank.width_needed(2, 6, 1000, 16) == pytest.approx(7.3e15, rel=0.01)
    assert 10 ** separation_rank.width_needed(3, 6, 1000, 16) == pytest.approx(7.6e4, rel=0.01)


@pytest.mark.parametrize(("shallow", "depth", "width", "heads"), [(2, 6, 1000, 16), (3, 24, 64, 2), (12, 24, 1024, 16)])
def test_a_needed_width_reaches_the_bound_and_no_less_does(shallow: int, depth: int, width: int, heads: int) -> None:
    target = separation_rank.bounds(depth, width, heads)[0]
    need = 10 ** separation_rank.width_needed(shallow, depth, width, heads)
    assert separation_rank.bounds(shallow, need * 1.001, heads)[1] >= target
    assert separation_rank.bounds(shallow, need * 0.98, heads)[1] < target


def test_beyond_floats_the_exponent_is_kept() -> None:
    assert 1000 < separation_rank.width_needed(1, 24, 1024, 16) < 10_000


def test_summary_is_plain_json_and_readable() -> None:
    for width, depth, heads, shallower in (
        (512, None, 2, []),
        (1000, 6, 16, [1, 2, 3, 5]),
        (3, 1, 1, []),
        (64, 500, 2, None),
    ):
        facts = separation_rank.summary(width=width, depth=depth, heads=heads)
        assert json.loads(json.dumps(facts, allow_nan=False)) == facts
        assert shallower in (None, [row["depth"] for row in facts.get("widths_needed", [])])
        text = printed(theory_report.render_theory(facts))
        assert "log_3 d_x" in text and max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"width": 0, "depth": -1, "heads": 0}, ["width: 0", "depth: -1", "heads: 0"]),
        ({"width": 2, "heads": 2}, ["width: 2"]),
        ({"width": 64, "depth": 501}, ["depth: 501"]),
    ],
)
def test_sizes_that_are_none(arguments: dict, lines: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        separation_rank.summary(**arguments)
    assert [line.split(";")[0] for line in caught.value.lines] == lines


def test_bottlenecks() -> None:
    cap = bottlenecks.embedding_cap
    assert cap(1001, 1000, None) == bottlenecks.EmbeddingCap(1000, is_vocabulary=True) and cap(1000, 1000, None) is None
    assert cap(17, 1000, 16) == bottlenecks.EmbeddingCap(16, is_vocabulary=False) and cap(16, 1000, 16) is None
    assert cap(301, 300, 512) == bottlenecks.EmbeddingCap(300, is_vocabulary=True) and cap(10**6, None, None) is None
    assert bottlenecks.head_below_window(127, 128) and not bottlenecks.head_below_window(128, 128)
    shape = BlockForm(HeadRule(count=2), 1000, 128).shape(6, 118)
    assert bottlenecks.embedding_share(shape) == pytest.approx((2000 + 128) * 118 / shape.n_params_total)
