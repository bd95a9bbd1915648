"""Prices of shapes: off their budget, at budgets of training, by measured latency; the shape that wastes least at its
worst, from 1e5 to 1e12 parameters."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import LAPTOP
from cli_tools import Command
from sentences import says

from dwsweep.errors import InputError
from dwsweep.guide import Options, advice, answer, fitted_source, public_source, published_source
from dwsweep.guide.answers import AT, BALANCED, TRADED, BudgetAnswer
from dwsweep.guide.costs import Budget, _decoding, best_of
from dwsweep.guide.latency import Latency
from dwsweep.guide.shapes import BUDGET_TOLERANCE, FARTHEST, shapes_near
from dwsweep.guide.sources import Source

SOURCES = {
    "evidence": cache(public_source),
    "published": cache(published_source),
    "laptop": cache(lambda: fitted_source(LAPTOP)),
}


@pytest.fixture(scope="module", params=SOURCES)
def source(request: pytest.FixtureRequest) -> Source:
    return SOURCES[request.param]()


def test_a_size_that_no_width_meets_is_not_answered_by_a_deeper_net() -> None:
    """At 40,000 parameters one layer is ahead of two by 0.17 nats; 2 × 40 is nearer to the budget than 1 × 56."""
    for n, width in ((4.0e4, 56), (1.0e5, 92)):
        row = answer([n], fit=LAPTOP, source=SOURCES["laptop"]()).budgets[0]
        assert row.recommended and (row.recommended.depth, row.recommended.width) == (1, width)
        two = next(c for c in row.candidates if c.depth == 2)
        assert two.size.nats > row.recommended.size.nats + 0.05


def test_a_smaller_shape_has_the_loss_of_its_own_size(source: Source) -> None:
    """Its cost is what its depth loses at its own size and the price of its distance from the budget."""
    n = 1.0e6
    loss, row = source.loss(n), advice.budget(n, source, Options(head_size=128))
    assert any(c.mismatch < -BUDGET_TOLERANCE for c in row.candidates)
    for c in row.candidates:
        assert 1 / FARTHEST <= c.n_params / n <= FARTHEST
        off = abs(math.log(c.n_params / n))
        missing = loss.slope * (off - 0.75 * min(off, math.log(1.0 + BUDGET_TOLERANCE)))
        depth = source.loss(c.n_params).penalties(np.array([float(c.depth)]))[0]
        assert c.missing_nats == pytest.approx(missing, abs=1e-12)
        assert c.size.nats == pytest.approx(depth + missing, rel=5e-3, abs=1e-4)  # prices lie between shared sizes


def test_flops_and_hours_pay_for_parameters_and_tokens() -> None:
    found = answer(flops=1e21)
    (row,) = found.budgets
    n, tokens = row.optimum.n_params, found.assumptions.tokens
    assert tokens == pytest.approx(20 * n)
    # 6·N·D and, above it, attention and the unembedding
    assert 0.6e21 < 6 * n * tokens < 1e21
    best = min(row.candidates, key=lambda c: abs(c.depth - row.optimum.depth))
    assert best.flops_per_token / best.n_params * n * tokens == pytest.approx(1e21, rel=0.02)
    fewer = answer(flops=1e21, options=Options(tokens_per_param=200.0)).budgets[0].optimum.n_params
    assert fewer == pytest.approx(n / math.sqrt(10), rel=0.1)
    one, eight = (answer(hours=24.0, options=Options(device=name)) for name in ("H100", "H100:8"))
    assert eight.budgets[0].optimum.n_params == pytest.approx(math.sqrt(8) * one.budgets[0].optimum.n_params, rel=0.25)
    assert says(eight.afforded, "guide: budget of device time")


# The recommended shape


def test_a_shape_to_build_is_near_the_least_waste_of_every_depth() -> None:
    """Against all depths, and not those of the table alone."""
    n, source = 3e9, public_source()
    row = advice.budget(n, source, Options())
    every = Budget(n, source, Options()).candidates(shapes_near(n, 8, 200, Options()))
    least = best_of(every, BALANCED)
    assert least and row.recommended and least.label == row.recommended.label


def test_latency_is_the_loss_of_the_shape_grown_until_it_is_as_slow() -> None:
    """The growth starts at the shape's own size: 4.8 % less than the budget was a gift of 4.8 %."""
    n, source, options = 4e9, public_source(), Options()
    budget = Budget(n, source, options)
    rows = [c for c in budget.candidates(shapes_near(n, 20, 90, options)) if c.within_budget and c.cost("decode")]
    loss, powers = budget.loss, np.array([1.0, 0.5, 1.0 / 3.0])
    shapes = [options.shape(c.depth, c.width) for c in rows]
    target = 4e-3  # seconds that every shape may take; the differences do not depend on it
    nats = []
    for c, shape in zip(rows, shapes, strict=True):
        parts, low, high = np.array(_decoding(shape, options)), -5.0, 5.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if (parts * np.exp(powers * middle)).sum() < target else (low, middle)
        ln_size = math.log(shape.n_params / n) + low
        depth = source.loss(float(c.n_params)).penalties(np.array([c.depth]))[0]
        off = abs(math.log(shape.n_params / n))
        nats.append(depth + loss.slope * (off - 0.75 * min(off, math.log(1.05)) - ln_size))
    for c, loss_of_shape in zip(rows, nats, strict=True):
        nats_of = c.cost("decode").nats
        assert nats_of == pytest.approx(loss_of_shape - min(nats), abs=0.15 * nats_of + 3e-4)
    smaller = [c for c in rows if c.mismatch < -0.03]
    assert smaller and best_of(rows, "decode") not in smaller


@pytest.mark.parametrize(
    ("asked", "device"), [({"hours": 24.0}, "H100:8"), ({"hours": 3.0}, "TPU-v5e:4"), ({"flops": 1e21}, "H100:8")]
)
def test_a_budget_of_training_is_never_exceeded(asked: dict[str, float], device: str) -> None:
    """24 hours recommended a shape of 24.3."""
    found = answer(**asked, options=Options(device=device))
    row, tokens = found.budgets[0], found.assumptions.tokens
    assert tokens and row.recommended
    for best in row.best.values():
        hours = best.training_seconds_per_token * tokens / found.assumptions.devices / 3600
        assert hours <= asked.get("hours", math.inf) and best.flops_per_token * tokens <= asked.get("flops", math.inf)


def test_the_command_takes_a_layer_time_and_says_that_its_own_is_assumed(dwsweep: Command) -> None:
    plain = dwsweep("guide", "3B")
    assert "20 µs per layer (ASSUMED; transformers took 0.67 ms" in " ".join(plain.stdout.split())
    given = dwsweep("guide", "3B", "--layer-time", "0.67ms")
    assert "670 µs per layer (--layer-time)" in " ".join(given.stdout.split())
    wrong = dwsweep("guide", "3B", "--layer-time", "99s")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: --layer-time: 99; must be from 0 to 10 seconds")


# Measured decode latency


SHAPES = [(12, 768), (24, 1024), (24, 2048), (32, 2560), (32, 4096), (48, 1600)]


def rows(per_layer: float = 0.67, per_weight: float = 0.30, unit: str = "ms") -> list[dict[str, float]]:
    return [
        {"layers": L, "hidden_size": d, f"decode_{unit}": 1.3 + per_layer * L + per_weight * 12 * L * d * d / 1e9}
        for L, d in SHAPES
    ]


def test_the_line_of_a_table_is_found_again_in_seconds() -> None:
    found = Latency.of(rows())
    assert (found.any_net, found.per_layer, found.per_weight) == pytest.approx((1.3e-3, 0.67e-3, 0.30e-12), rel=1e-6)
    assert "1.3 ms + 0.67 ms per layer + 0.3 ms per 1e9 weights (measured, 6 shapes, ± 0%)" in found.said
    assert Latency.of(rows(unit="us")).per_layer == pytest.approx(0.67e-6)


def test_a_shape_costs_the_time_that_was_measured(tmp_path: Path) -> None:
    """At equal latency layers of 0.67 ms make a shallow net the best; by the bytes that it reads the deep one leads."""
    given = answer([3e9], options=Options(latency=Latency.of(rows())))
    for shape in given.budgets[0].candidates:
        wanted = 1.3e-3 + 0.67e-3 * shape.depth + 0.30e-12 * shape.n_params
        assert shape.decode_seconds_per_token == pytest.approx(wanted)
    assert given.assumptions.latency.said.startswith("1.3 ms + 0.67 ms per layer")
    at_decode = [answer([3e9], options=Options(at="decode", latency=one)) for one in (None, Latency.of(rows()))]
    assert at_decode[1].budgets[0].recommended.depth < at_decode[0].budgets[0].recommended.depth  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (rows()[:3], "latency: .* 3 shapes with a time; at least 4 are needed"),
        ([{"depth": L, "width": 64 * L, "ms": 1.0 * L} for L in (4, 4, 4, 4, 4)], "1 shape with a time"),
        ([{**row, "prefill_s": 1.0} for row in rows()], "must have one column of seconds per token"),
        ([{"depth": 8, "ms": 1.0}], "latency: .* column 'width' is missing"),
        ([{**row, "decode_ms": 5.0} for row in rows()], "grow with neither layers nor weights"),
    ],
)
def test_a_table_that_shows_no_line_is_refused(table: list[dict[str, float]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Latency.of(table)


def test_a_measured_latency_and_a_time_of_a_layer_exclude_each_other() -> None:
    with pytest.raises(InputError, match="both given; allowed: one of them"):
        Options(latency=Latency.of(rows()), layer_seconds=1e-3)


# From 1e5 to 1e12 parameters


SIZES = tuple(float(n) for n in np.geomspace(1e5, 1e12, 300))
OPTIONS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "grouped and gated": {"kv_heads": 8, "mlp": "gated"},
    "dealt out": {"kv_heads": 8, "tensor_parallel": 8, "mlp": "gated", "mlp_multiple": 256},
    "heads of 128": {"vocab_size": 32_000, "head_size": 128},
}
LEAST_GAIN = 0.1  # % of compute by which a shape may be better than the one recommended


def answers(source: str, options: str, sizes: Sequence[float]) -> Iterator[BudgetAnswer]:
    """The answer at every size."""
    made = SOURCES[source]()
    chosen = Options(**OPTIONS[options]).for_nets(made.nets)
    for n in sizes:
        yield advice.budget(n, made, chosen)


@pytest.mark.parametrize(
    ("source", "options", "step"),
    [
        *(("evidence", options, 120) for options in OPTIONS),
        *((source, "as they are", 120) for source in ("published", "laptop")),
        *(pytest.param(*given, 1, marks=pytest.mark.slow) for given in product(SOURCES, OPTIONS)),
    ],
)
def test_no_recommendation_is_dominated_in_its_own_table(source: str, options: str, step: int) -> None:
    # one's own losses take longest, and are of few sizes
    sizes = SIZES[40 :: step * (5 if source == "laptop" and step == 1 else 1)]
    found = list(answers(source, options, sizes))
    assert len(found) >= len(sizes) // 2
    for one, two in pairwise(row.optimum for row in found):
        assert one.depth and two.depth and two.depth > 0.999 * one.depth, "best depths rise"
    recommended = 0
    for row in found:
        assert row.recommended is row.best[BALANCED]
        assert row.risk is None or 0 <= row.risk.expected.nats <= row.risk.worst.nats
        for at in AT:
            best = row.best[at]
            if best is None:
                continue
            recommended += 1
            assert best in row.candidates
            mine = best.cost(at)
            for other in row.candidates:
                theirs = other.cost(at)
                if theirs is not None and other.within_budget:
                    assert mine.less_compute <= theirs.less_compute + LEAST_GAIN, (row.budget, at, best.label)
        if row.recommended is not None:  # none that another one beats in all three that are traded
            mine = [row.recommended.cost(one).nats for one in TRADED]
            for other in row.candidates:
                theirs = [cost.nats for one in TRADED if (cost := other.cost(one))]
                assert len(theirs) < 3 or not other.within_budget or any(map(operator.ge, theirs, mine)), other.label
    assert recommended > 0.6 * len(AT) * len(found)
