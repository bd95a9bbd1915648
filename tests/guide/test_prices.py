"""Prices of shapes off their budget, budgets of training, and what the published law alone is worth."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from checkout import ROOT
from sentences import says

from dwsweep.cost.duration import Calibration, Rate
from dwsweep.errors import InputError
from dwsweep.guide import Options, advice, answer, fitted_source, public_source, published_source
from dwsweep.guide.shapes import BUDGET_TOLERANCE, FARTHEST
from dwsweep.guide.sources import Source

LAPTOP = ROOT / "sweeps" / "results" / "laptop"


@cache
def laptop() -> Source:
    return fitted_source(LAPTOP)


@pytest.fixture(scope="module", params=["published", "evidence", "laptop"])
def source(request: pytest.FixtureRequest) -> Source:
    return {"published": published_source, "evidence": public_source, "laptop": laptop}[request.param]()


def test_a_size_that_no_width_meets_is_not_answered_by_a_deeper_net() -> None:
    """At 40,000 parameters one layer is ahead of two by 0.17 nats; 2 × 40 is nearer to the budget than 1 × 56."""
    for n, width in ((4.0e4, 56), (1.0e5, 92)):
        row = answer([n], fit=LAPTOP, source=laptop()).budgets[0]
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


def test_times_are_of_the_device_that_was_measured() -> None:
    """`--hours 24 --bench` of an A100 paid for a net by its rates and said: on H100, with an H100's latency."""
    a100 = Calibration("NVIDIA A100-SXM4-80GB", (Rate(24, 1024, 1e14),))
    found = answer(hours=24.0, options=Options(calibration=a100))
    assert "24 hours on NVIDIA A100-SXM4-80GB pay for" in str(found.afforded)
    assert found.assumptions.found_device.name == "A100-80GB"
    assert Options(calibration=a100, device="A100-80GB:8").devices == 8
    with pytest.raises(InputError, match=r"device: 'H100:8'; calibration has rates of NVIDIA A100-SXM4-80GB"):
        Options(calibration=a100, device="H100:8")
