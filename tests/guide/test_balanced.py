"""The recommended shape wastes least at its worst of size, FLOPs and time; latency has the growth of every shape."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cli_tools import Command

from dwsweep.guide import Options, advice, answer, public_source
from dwsweep.guide.answers import BALANCED
from dwsweep.guide.costs import Budget, _decoding, best_of
from dwsweep.guide.shapes import shapes_near


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
        assert best is not None
        hours = best.training_seconds_per_token * tokens / found.assumptions.devices / 3600
        assert hours <= asked.get("hours", math.inf) and best.flops_per_token * tokens <= asked.get("flops", math.inf)


def test_the_command_takes_a_layer_time_and_says_that_its_own_is_assumed(dwsweep: Command) -> None:
    plain = dwsweep("guide", "3B")
    assert "20 µs per layer (ASSUMED; transformers took 0.67 ms" in " ".join(plain.stdout.split())
    given = dwsweep("guide", "3B", "--layer-time", "0.67ms")
    assert "670 µs per layer (--layer-time)" in " ".join(given.stdout.split())
    wrong = dwsweep("guide", "3B", "--layer-time", "99s")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: --layer-time: 99; must be from 0 to 10 seconds")
