"""Truths from outside the fit's family, and the sweeps that are drawn from them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dwsweep.fit.data.table import read_table
from tests.simulations.scenarios import Scenario, scenarios
from tests.simulations.truths import TRUTHS, Bent, Kink, Truth

EXACT = 3e-4  # of ln L, on the truth's grid of depths


@pytest.mark.parametrize("name", ["bent", "bent, ln N", "asymmetric"])
def test_the_loss_of_a_size_is_least_where_the_valley_is(name):
    truth = TRUTHS[name]
    for n in (1e7, 3e7, 1e9):
        assert math.log(truth.best_depth(n) / truth.valley(n)) == pytest.approx(0.0, abs=EXACT)
        assert truth.excess(truth.best_depth(n), n) == 0.0
    assert truth.valley(truth.size) == truth.depth


def test_a_bend_has_one_slope_and_two_curvatures():
    """By finite differences on either side of the optimum."""
    step = 1e-3
    below, here, above = Bent()(np.array([-step, 0.0, step]))
    assert here == 0.0 and (above - below) / (2 * step) == pytest.approx(0.0, abs=1e-3)
    assert (below / step**2, above / step**2) == pytest.approx((0.25, 0.12))


def test_a_gain_above_a_width_makes_wide_nets_shallower():
    truth, kinked = Truth(), Truth(gain=Kink())
    assert kinked.best_depth(3e6) == truth.best_depth(3e6)
    assert kinked.best_depth(1e8) < 0.95 * truth.best_depth(1e8)


@pytest.mark.parametrize("name", scenarios())
def test_a_scenario_asks_for_three_sizes_inside_its_data_and_one_outside(name):
    sweep = scenarios()[name].numbered(1)
    rows = sweep.rows(np.random.default_rng(0))
    assert len(read_table(rows).rows) == len(rows) == len(sweep.shapes) * sweep.seeds
    trained = [row["n_params"] for row in rows]
    *inside, outside = sweep.at
    assert len(inside) == 3 and all(min(trained) < n < max(trained) for n in inside)
    assert outside == pytest.approx(1.7 * max(trained))
    if "flat" in name:
        assert {sweep.best_depth(n) for n in sweep.at} == {None}
        return
    depths = [depth for depth, _ in sweep.shapes]
    assert all(min(depths) < sweep.best_depth(n) < max(depths) for n in inside)


def test_noise_is_what_it_says():
    truth = TRUTHS["flat"]
    noisy = scenarios()["a seed worse when deep"]
    rows = Scenario(truth, noise=noisy.noise, seeds=3).rows(np.random.default_rng(0))
    left = {(r["depth"], r["width"], r["seed"]): r["loss"] - truth.loss(r["depth"], r["n_params"]) for r in rows}
    worse = [left[depth, width, 0] - left[depth, width, 1] for depth, width, seed in left if depth == 30]
    level = [left[depth, width, 0] - left[depth, width, 1] for depth, width, seed in left if depth == 6]
    assert np.mean(worse) - np.mean(level) == pytest.approx(0.02, abs=0.004)
