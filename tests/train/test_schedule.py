"""Schedules and phases: plain functions of the step."""

from __future__ import annotations

import numpy as np

from dwsweep.plan.schedule import Phase, cooldown_start, multipliers, phases
from dwsweep.spec import TrainSpec


def spec(**keys: object) -> TrainSpec:
    return TrainSpec(steps=100, **keys)


def test_wsd_is_flat_then_linear_to_zero() -> None:
    train = spec(schedule="wsd", warmup_steps=5, cooldown_fraction=0.2)
    rates = multipliers(0, 101, 100, train)
    assert cooldown_start(100, train) == 80
    assert (rates[5:81] == 1).all()
    np.testing.assert_allclose(rates[80:], np.linspace(1, 0, 21), atol=1e-6)
    assert (multipliers(5, 1000, None, train) == 1).all()  # the trunk has no end


def test_constant_stays() -> None:
    assert (multipliers(0, 50, 100, spec(schedule="constant")) == 1).all()


def test_any_part_of_a_schedule_is_that_part_of_the_whole() -> None:
    for schedule in ("cosine", "wsd", "constant"):
        train = spec(schedule=schedule, warmup_steps=7)
        whole = multipliers(0, 100, 100, train)
        np.testing.assert_array_equal(np.concatenate([multipliers(k, 1, 100, train) for k in range(100)]), whole)


def test_one_run_is_one_phase() -> None:
    assert phases((100,), spec()) == (Phase(0, 100, 0, False),)


def test_branches_leave_the_trunk_and_come_back() -> None:
    train = spec(schedule="wsd", cooldown_fraction=0.2)
    assert phases((20, 50, 100), train) == (
        Phase(0, 16, None, False),
        Phase(16, 20, 0, True),
        Phase(16, 40, None, False),
        Phase(40, 50, 1, True),
        Phase(40, 80, None, False),
        Phase(80, 100, 2, False),
    )


def test_branches_whose_cool_downs_overlap_are_told_apart() -> None:
    train = spec(schedule="wsd", cooldown_fraction=0.5)
    assert phases((90, 100), train) == (
        Phase(0, 45, None, False),
        Phase(45, 90, 0, True),
        Phase(45, 50, None, False),
        Phase(50, 100, 1, False),
    )


def test_a_run_shorter_than_its_warm_up_still_ends() -> None:
    train = spec(schedule="wsd", warmup_steps=30, cooldown_fraction=0.2)
    assert phases((20, 100), train)[1] == Phase(20, 20, 0, True)
