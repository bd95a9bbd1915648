"""From 1e5 to 1e12 parameters under every constraint: best depths rise, and none is dominated."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from checkout import ROOT

from dwsweep.guide import Options, advice, fitted_source, public_source, published_source
from dwsweep.guide.answers import AT, BALANCED, TRADED, BudgetAnswer

LAPTOP = ROOT / "sweeps" / "results" / "laptop"
SIZES = tuple(float(n) for n in np.geomspace(1e5, 1e12, 300))
OPTIONS: dict[str, dict[str, Any]] = {
    "as they are": {},
    "grouped and gated": {"kv_heads": 8, "mlp": "gated"},
    "dealt out": {"kv_heads": 8, "tensor_parallel": 8, "mlp": "gated", "mlp_multiple": 256},
    "heads of 128": {"vocab_size": 32_000, "head_size": 128},
}
SOURCES = {
    "evidence": cache(public_source),
    "published": cache(published_source),
    "laptop": cache(lambda: fitted_source(LAPTOP)),
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
            assert mine is not None
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
