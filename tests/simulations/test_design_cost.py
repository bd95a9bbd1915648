"""What the study of a sweep's cost rests on: truths that move as it says, shared noise, choices that can be paid."""

from __future__ import annotations

import math

import pytest

from tests.simulations.design_cost import (
    Simulation,
    aimed,
    chosen,
    cost,
    fitted,
    flops,
    scenarios,
    spared,
    stopped,
)


@pytest.mark.parametrize("name", ["exponential, 1e+07", "power, 1e+07", "asymmetric, 1e+07"])
def test_the_best_depth_of_a_truth_moves_by_up_to_what_it_says(name):
    asked = scenarios()[name]
    moved = [math.log(asked.numbered(i).truth.best_depth(3e7) / asked.truth.best_depth(3e7)) for i in range(20)]
    assert max(map(abs, moved)) <= 0.151
    assert max(moved) > 0.1 and min(moved) < -0.1


def test_a_shape_has_the_same_losses_in_every_arm():
    asked = scenarios()["stepped, 1e+07"]
    alone, among = asked.rows([(8, 128)], 3), asked.rows([(4, 64), (8, 128), (12, 128)], 3)
    assert alone == [row for row in among if row["depth"] == 8]
    assert asked.rows([(8, 128)], 4) != alone


def test_shapes_are_chosen_that_are_new_and_can_be_paid():
    asked = scenarios()["asymmetric, 1e+07"]
    trained = aimed(asked.target, 3)
    curves, surface = fitted(asked, trained, 0)
    budget = 0.5 * cost(trained)
    found = chosen(curves, surface, asked.target, trained, budget)
    assert found and len(set(found)) == len(found) and not set(found) & set(trained)
    assert 0.5 * budget < cost(found) <= budget
    assert chosen(curves, surface, asked.target, trained, min(map(flops, found)) / 100.0) == []


def answers(arm, cost, error, half_width=0.1):
    depth = 10.0 * math.exp(error)
    return (arm, cost, 15, depth, depth * math.exp(-half_width), depth * math.exp(half_width))


def test_what_an_arm_spares_is_read_off_the_line_of_the_aimed_grids():
    arms = {
        f"aimed {k}": [(answers(f"aimed {k}", cost, 0.1 * cost**-0.5), 10.0, 0.0)] for k, cost in ((4, 1.0), (16, 4.0))
    }
    arms["cheap"] = [(answers("cheap", 1.0, 0.1 * 2.0**-0.5), 10.0, 0.0)]
    arms["better than any"] = [(answers("cheap", 1.0, 0.01), 10.0, 0.0)]
    assert spared(arms, "cheap") == pytest.approx(0.5)
    assert spared(arms, "better than any") is None


def test_a_sequence_stops_at_the_first_interval_that_is_narrow_enough():
    steps = tuple(answers("sequential", cost, 0.0, half) for cost, half in ((1.0, 0.3), (2.0, 0.13), (3.0, 0.05)))
    row = Simulation(index=0, best=10.0, answers=steps, costs=(0.0,) * 3)
    assert [one[1] for one, _ in stopped([row], 1.15)] == [2.0]
    assert [one[1] for one, _ in stopped([row], 1.4)] == [1.0]
    assert stopped([row], 1.01) == []
