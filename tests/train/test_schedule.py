"""Schedules and phases: plain functions of the step."""

from __future__ import annotations

import random

import numpy as np
import optax
import pytest

from dwsweep.plan.schedule import Phase, cooldown_start, multipliers, phases
from dwsweep.spec import TrainSpec


def spec(**keys: object) -> TrainSpec:
    return TrainSpec(steps=100, **keys)


def test_wsd_is_flat_then_linear_to_zero_and_constant_stays() -> None:
    train = spec(schedule="wsd", warmup_steps=5, cooldown_fraction=0.2)
    rates = multipliers(0, 101, 100, train)
    assert cooldown_start(100, train) == 80
    assert (rates[5:81] == 1).all()
    np.testing.assert_allclose(rates[80:], np.linspace(1, 0, 21), atol=1e-6)
    assert (multipliers(5, 1000, None, train) == 1).all()  # the trunk has no end
    assert (multipliers(0, 50, 100, spec(schedule="constant")) == 1).all()


def test_cosine_with_warmup_equals_optax() -> None:
    """Ours counts the step that is being taken: the first one already has a rate, and no step is wasted at zero."""
    reference = optax.warmup_cosine_decay_schedule(0.0, 1.0, 10, 100)
    ours = multipliers(0, 100, 100, spec(warmup_steps=10, schedule="cosine"))
    np.testing.assert_allclose(ours[:10], [reference(s + 1) for s in range(10)], atol=1e-6)
    np.testing.assert_allclose(ours[10:], [reference(s) for s in range(10, 100)], atol=1e-6)


def test_any_part_of_a_schedule_is_that_part_of_the_whole() -> None:
    for schedule in ("cosine", "wsd", "constant"):
        train = spec(schedule=schedule, warmup_steps=7)
        whole = multipliers(0, 100, 100, train)
        np.testing.assert_array_equal(np.concatenate([multipliers(k, 1, 100, train) for k in range(100)]), whole)


@pytest.mark.parametrize(
    ("ends", "cooldown", "found"),
    [
        ((100,), 0.2, [(0, 100, 0, False)]),
        (  # branches leave the trunk and come back
            (20, 50, 100),
            0.2,
            [
                *((0, 16, None, False), (16, 20, 0, True), (16, 40, None, False)),
                *((40, 50, 1, True), (40, 80, None, False), (80, 100, 2, False)),
            ],
        ),
        # their cool-downs overlap
        ((90, 100), 0.5, [(0, 45, None, False), (45, 90, 0, True), (45, 50, None, False), (50, 100, 1, False)]),
    ],
)
def test_a_run_is_its_phases(ends: tuple[int, ...], cooldown: float, found: list[tuple]) -> None:
    assert phases(ends, spec(schedule="wsd", cooldown_fraction=cooldown)) == tuple(Phase(*one) for one in found)


def test_no_branch_misses_the_trunk() -> None:
    """One that is at most as long as the full run forks no later than that cools down, whatever else."""
    rng = random.Random(0)
    for _ in range(200):
        full = rng.randint(1, 400)
        ends = (*sorted({rng.randint(1, full) for _ in range(rng.randint(0, 4))} - {full}), full)
        fraction = rng.choice([0.01, 0.07, 0.1, 0.2, 1 / 3, 0.5, 0.99, 1.0, rng.uniform(0.001, 1)])
        warmup = rng.choice([0, rng.randint(0, full), 2 * full])
        found = phases(ends, spec(schedule="wsd", cooldown_fraction=fraction, warmup_steps=warmup))
        assert tuple(phase.stop for phase in found if phase.branch is not None) == ends
