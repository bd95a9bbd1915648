"""Truths from outside the fit's family, the sweeps that are drawn from them, and the scorer of any estimator."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dwsweep.fit.data.table import read_table
from tests.simulations import best_depths
from tests.simulations.scenarios import GEMSTONES, Scenario, scenarios
from tests.simulations.scores import NOTHING, score, summarise
from tests.simulations.truths import TRUTHS, Bent, Kink, Power, Truth

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


def test_more_tokens_want_deeper_nets_on_the_shapes_of_gemstones():
    sweep = scenarios()["bent, gemstones, tokens"]
    assert sweep.best_depth(3e8, 11e9) == pytest.approx(20.0, rel=1e-3)
    assert sweep.best_depth(3e8, 100e9) == pytest.approx(29.0, rel=1e-3)
    assert len(set(GEMSTONES)) == 22 and len(sweep.rows(np.random.default_rng(0))) == 66


@pytest.mark.parametrize("name", scenarios())
def test_a_scenario_asks_for_three_sizes_inside_its_data_and_one_outside(name):
    sweep = scenarios()[name].numbered(1)
    rows = sweep.rows(np.random.default_rng(0))
    assert len(read_table(rows).rows) == len(rows) == len(sweep.shapes) * sweep.seeds * max(len(sweep.tokens), 1)
    trained = [row["n_params"] for row in rows]
    *inside, outside = sweep.sizes
    assert len(inside) == 3 and all(min(trained) < n < max(trained) for n in inside)
    assert outside == pytest.approx(1.7 * max(trained))
    if "flat" in name:
        assert {sweep.best_depth(*at) for at in sweep.at} == {None}
        return
    depths = [depth for depth, _ in sweep.shapes]
    assert all(min(depths) < sweep.best_depth(n, t) < max(depths) for n, t in sweep.at if n != outside)


def test_noise_is_what_it_says():
    truth = TRUTHS["flat"]
    noisy = scenarios()["a seed worse when deep"]
    rows = Scenario(truth, noise=noisy.noise, seeds=3).rows(np.random.default_rng(0))
    left = {(r["depth"], r["width"], r["seed"]): r["loss"] - truth.loss(r["depth"], r["n_params"]) for r in rows}
    worse = [left[depth, width, 0] - left[depth, width, 1] for depth, width, seed in left if depth == 30]
    level = [left[depth, width, 0] - left[depth, width, 1] for depth, width, seed in left if depth == 6]
    assert np.mean(worse) - np.mean(level) == pytest.approx(0.02, abs=0.004)


def _knows(sweep, *, off=0.0, width=0.5):
    def answer(rows, sizes, tokens=None):
        best = [sweep.best_depth(*at) for at in zip(sizes, tokens or [None] * len(sizes), strict=True)]
        return [(d * math.exp(off), d * math.exp(off - width / 2), d * math.exp(off + width / 2)) for d in best]

    return answer


def test_scores_of_an_estimator_that_knows():
    sweep = scenarios()["asymmetric, gemstones, tokens"]
    for off, covered in ((0.1, 1.0), (0.3, 0.0)):
        found = [score(_knows(sweep, off=off), sweep, np.random.default_rng(k), k) for k in range(3)]
        summary = summarise(found)
        assert len(summary) == 8
        for point in summary:
            assert point["bias"] == pytest.approx(off) and point["rmse"] == pytest.approx(off)
            assert point["coverage"] == covered and point["answers"] == point["bounded"] == 1.0
            assert point["width"] == pytest.approx(0.5) and point["cost"] > 0.0


def test_open_ends_no_answers_and_errors_are_told_apart():
    sweep = Scenario(TRUTHS["bent"])

    def fails(rows, sizes):
        raise ArithmeticError("no minimum")

    def half_open(rows, sizes):
        return [(None, 5.0, math.inf), (None, None, None), (np.nan, 400.0, None), (1.0, None, None)], "weights"

    failed = score(fails, sweep, np.random.default_rng(0))
    assert failed.failure == "ArithmeticError: no minimum" and set(failed.answers) == {NOTHING}
    points = summarise([score(half_open, sweep, np.random.default_rng(0))])
    assert [point["answers"] for point in points] == [0.0, 0.0, 0.0, 1.0]
    assert [point["bounded"] for point in points] == [1.0, 0.0, 1.0, 0.0]
    assert [point["coverage"] for point in points] == [1.0, None, 0.0, 1.0]
    assert [point["width"] for point in points] == [math.inf, None, math.inf, math.inf]


def test_flat_curves_have_nothing_to_cover():
    answer = _knows(Scenario(Truth(optimum=Power())))
    summary = summarise([score(answer, Scenario(TRUTHS["flat"]), np.random.default_rng(0))])
    assert all(p["best"] is p["coverage"] is p["cost"] is None and p["bounded"] == 1.0 for p in summary)


@pytest.mark.slow
def test_dwsweep_and_the_module_s_own_sweeps_are_scored_too():
    study = best_depths.by_estimator("fit")
    found = {name: [study.one(name, 0)] for name in ("exponential", "bent, gemstones, tokens")}
    assert study.table(found).count("\n") == 3
    own, gemstones = (rows[0] for rows in found.values())
    assert own.failure is None and own.answers[1][0] == pytest.approx(own.best[1], rel=0.05)
    assert gemstones.failure is None and len(gemstones.answers) == 8
