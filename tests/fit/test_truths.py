"""Losses of simple truths: straight in ln L, best beyond the nets tried, one odd depth, two wells, a jump."""

from __future__ import annotations

import math
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from bowls import level

import dwsweep
from dwsweep.evidence import levels
from dwsweep.fit.data.runs import select_runs
from dwsweep.fit.statistics import ask
from dwsweep.fit.statistics.curves import build_curves
from dwsweep.fit.statistics.nodes import with_odd_depths
from dwsweep.fit.statistics.posterior import Posterior
from dwsweep.guide.sources import source_of
from tests.simulations.sweeps import draw, widths

ONE, TWO, THREE, EIGHT = (7e7,), (4e7, 1.6e8), (2e7, 5e7, 1.2e8), tuple(np.geomspace(5e6, 3e8, 8).tolist())
SIX_DEPTHS = (5, 8, 12, 16, 22, 30)
GROWN = 0.25  # power of N with which the best depth grows


def table(effect, depths, sizes):
    """Three runs of each depth at each size, with noise of 0.0015 nats of a run and 0.001 nats of a shape; effect: nats
    of ln L and ln N."""
    truth = SimpleNamespace(loss=lambda depth, x: level(math.exp(x)) + effect(math.log(depth), x))
    shapes = [(depth, width) for depth in depths for width in widths(depth, sizes, 8)]
    rng = np.random.default_rng(0)
    return draw(truth, rng, shapes=shapes, sigma=0.0015, shape_sd=0.001, seed_sd=0.0)


def curves(rows):
    return build_curves(select_runs(rows).runs, None, np.random.default_rng(0))


def best(rows, sizes, confidence=0.95):
    """Best depth, layers, at each of ``sizes``."""
    found = Posterior.of(curves(rows).cells)
    at = [float(found.cells.x.mean())] if len(sizes) == 1 else [math.log(n) for n in sizes]
    return [ask.best_depth_interval(found, x, confidence).map(math.exp) for x in at]


def optimum(n, at=13.0):
    return at * (n / 4e7) ** GROWN


def bowl(curvature, at=13.0):
    return lambda y, x: curvature * (y - math.log(optimum(math.exp(x), at))) ** 2


def odd(effect, depth, off):
    return lambda y, x: effect(y, x) + (off if abs(y - math.log(depth)) < 1e-9 else 0.0)


def wells(ridge=0.03):
    """At 6 and 22 layers."""
    middle, half = math.log(6.0 * 22.0) / 2.0, math.log(22.0 / 6.0) / 2.0

    def effect(y, x):
        v = abs(y - middle) / half
        return ridge * (1.0 - min(v, 1.0) ** 2) ** 2 + 0.1 * (max(v - 1.0, 0.0) * half) ** 2

    return effect


@pytest.mark.parametrize(
    ("effect", "depths", "sizes", "side"),
    [
        (lambda y, x: -0.09 * y, (4, 6, 8, 11, 16), ONE, "above"),
        (lambda y, x: 0.08 * abs(y - math.log(22.0)) ** 1.3, (4, 6, 8, 10, 12, 16), THREE, "above"),
        (lambda y, x: 0.05 * y, (4, 6, 9, 12, 18), THREE, "below"),
    ],
    ids=["straight", "best beyond", "straight up"],
)
def test_where_every_further_net_is_better_the_best_depth_is_beyond_the_last(effect, depths, sizes, side):
    for found in best(table(effect, depths, sizes), sizes):
        assert found.value is None
        if side == "above":
            assert found.high is None and depths[-2] < (found.low or 0.0) <= depths[-1] * (1.0 + 1e-9)
        else:
            assert found.low is None and depths[0] * (1.0 - 1e-9) <= (found.high or math.inf) < depths[1]


@pytest.mark.parametrize(("sizes", "seeds"), [(ONE, 1), (ONE, 3), (TWO, 3)], ids=["one, alone", "one", "two"])
def test_one_and_two_sizes_have_a_best_depth_that_guides(sizes, seeds):
    rows = [row for row in table(bowl(0.06), (4, 6, 8, 11, 15, 20, 28, 38), sizes) if row["seed"] < seeds]
    result = dwsweep.fit_table(rows)
    optima = result.surface.optima
    assert len(optima) == (1 if sizes == ONE else 9)
    for row in (optima[0], optima[-1]):
        assert row.depth_low < optimum(row.n_params) < row.depth_high < 1.6 * row.depth_low
    assert seeds > 1 or any("estimated from the scatter of shapes" in line for line in result.warnings)
    own, n = source_of(result, "runs").own, optima[0].n_params
    assert own.bounds_both(n) and 0.3 < own.slope(n) / levels.slope(n) < 3.0


def test_few_shapes_without_a_second_seed_claim_nothing():
    rows = [row for row in table(bowl(0.06), (4, 6, 8, 11, 15, 20), ONE) if not row["seed"]]
    result = dwsweep.fit_table(rows)
    assert result.surface is None and {row.status for row in result.verdicts} == {"undecided"}


@pytest.mark.parametrize(
    ("curvature", "depth", "off"),
    [(0.028, 16, 0.03), (0.05, 12, -0.02), (0.1, 30, 0.04)],
    ids=["above", "below", "the deepest"],
)
def test_one_odd_depth_leaves_the_best_depth_to_the_others(curvature, depth, off):
    rows = table(odd(bowl(curvature), depth, off), SIX_DEPTHS, EIGHT)
    ((y, sd),) = with_odd_depths(curves(rows).cells).odd
    assert math.exp(y) == pytest.approx(depth) and sd == pytest.approx(abs(off), abs=0.004)
    sizes = (1e7, 4e7, 1.5e8)
    for n, found in zip(sizes, best(rows, sizes, 0.99), strict=True):
        assert found.bounded and optimum(n) in found


def test_an_odd_depth_is_named_and_differences_of_depths_are_the_smooth_ones():
    result = dwsweep.fit_table(table(odd(bowl(0.028), 16, 0.03), SIX_DEPTHS, EIGHT))
    (line,) = (line for line in result.warnings if "depth 16 lies 0.0" in line)
    assert "above the others" in line
    x, pairs = np.log([1e7, 4e7, 1.5e8]), list(combinations(SIX_DEPTHS, 2))
    held = []
    for pair, drawn in zip(pairs, ask.LossSurface(result.surface).differences(x, pairs), strict=True):
        for at, draws in zip(x, drawn[1:].T, strict=True):
            low, high = np.quantile(draws, [0.025, 0.975])
            shallow, deep = (bowl(0.028)(math.log(depth), at) for depth in pair)
            held.append(low <= shallow - deep <= high)
    assert np.mean(held) >= 0.9


@pytest.mark.parametrize("effect", [bowl(0.05), bowl(0.15, 10.0), wells()], ids=["bowl", "steep bowl", "two wells"])
def test_no_depth_is_odd_where_losses_are_smooth_in_depth(effect):
    assert not with_odd_depths(curves(table(effect, SIX_DEPTHS, EIGHT)).cells).odd


def test_two_wells_are_an_effect_of_depth_and_both_are_held():
    found = Posterior.of(curves(table(wells(ridge=0.02), (4, 6, 12, 22, 32), EIGHT)).cells)
    assert {one.form: one.weight for one in found.weighed}["none"] < 0.05
    drawn = np.exp(ask.best_depths(found, math.log(4e7)))
    near = [np.mean((drawn > well / 1.35) & (drawn < well * 1.35)) for well in (6.0, 22.0)]
    assert sum(near) > 0.9


def jump(sharp):
    """The best depth grows from 6 to 30 layers about 4e7."""
    share = lambda x: 0.5 + 0.5 * math.tanh((x - math.log(4e7)) / sharp)  # noqa: E731
    return lambda y, x: 0.06 * (y - math.log(6.0) - share(x) * math.log(5.0)) ** 2


@pytest.mark.parametrize(
    ("effect", "depths"),
    [
        (jump(0.01), (3, 5, 8, 12, 18, 26, 40)),
        pytest.param(jump(0.3), (3, 5, 8, 12, 18, 26, 40), marks=pytest.mark.slow),
        (bowl(0.05), SIX_DEPTHS),
        pytest.param(lambda y, x: 0.0, SIX_DEPTHS, marks=pytest.mark.slow),
    ],
    ids=["jump", "steep", "even growth", "no effect"],
)
def test_a_jump_of_the_best_depth_is_named_and_even_growth_is_none(effect, depths):
    found = ask.fit_loss_model(curves(table(effect, depths, EIGHT)), 0.95).held_out
    assert found.jumps == (len(depths) == 7)
    assert not found.jumps or 1e7 < (found.steepest_at or 0.0) < 1.5e8
