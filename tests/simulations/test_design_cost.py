"""Truths of the study of a sweep's cost: their best depths move as it says, and arms share their noise."""

from __future__ import annotations

import math

import pytest

from tests.simulations.design_cost import scenarios


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
