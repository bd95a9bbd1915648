"""Runs at equal compute: which they are, the best depth and size at each budget, against losses whose minima are
known and which are no parabolas."""

from __future__ import annotations

import math
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from bowls import net, standard
from sentences import says

from dwsweep import guide
from dwsweep.errors import InputError
from dwsweep.fit.analysis import fit_table
from dwsweep.fit.data.lengths import trained_budgets
from dwsweep.fit.data.table import read_table
from dwsweep.guide.own import OwnBudgets
from dwsweep.report.fit_report import answer
from dwsweep.text import format_count
from tests.simulations import budgets
from tests.simulations.budgets import BudgetSweep, BudgetTruth

pytestmark = pytest.mark.usefixtures("surfaces_again")

TRUTH, DEPTHS = BudgetTruth(), (4, 8, 12, 18, 28)
N = int(os.environ.get("DWSWEEP_COVERAGE_N", "100")) // 5


def drawn(flops=(1e18,), depths=DEPTHS, sizes=7, low=2e7, high=4e8, seed=0, **options):
    sweep = BudgetSweep(TRUTH, flops, depths, low, high, sizes, **{"seeds": 2, **options})
    return sweep.rows(np.random.default_rng(seed))


def fitted(rows, axis="flops", **options):
    return fit_table(rows, axis=axis, **options)


def at_budgets(rows, axis="flops"):
    return fitted(rows, axis).adjusted.at_budgets


TWO = (1e18, 4e18)


@pytest.fixture(scope="module")
def two():
    return fitted(drawn(TWO))


@pytest.fixture(scope="module")
def exact():
    """One budget, without any noise."""
    return fitted(drawn(sigma=0.0, seed_sd=0.0))


def assert_true(row, depths=0.08, sizes=0.06):
    depth, n, _ = TRUTH.best_shape(row.cost)
    assert row.depth_low < depth < row.depth_high and row.depth == pytest.approx(depth, rel=depths)
    assert row.n_params_low < n < row.n_params_high and row.n_params == pytest.approx(n, rel=sizes)


# ---- which runs were trained at equal compute ----


def recognised(rows):
    return trained_budgets(read_table(rows))


def spread(column):
    """Budgets a factor of four apart, each with values within 5 % to either side; asked or measured."""
    rng = np.random.default_rng(1)
    rows = [{**row, column: row["flops"] * rng.uniform(0.95, 1.05)} for row in drawn(TWO, sizes=5)]
    return rows if column == "flops" else [{**row, "flops": None} for row in rows]


def at_tokens(tokens, **more):
    """Tokens by the size of a net, and what they cost."""
    rows = [{**row, "tokens": tokens(row["n_params"])} for row in drawn(depths=(8, 12))]
    return [{**row, "flops": 6 * row["n_params"] * row["tokens"], **more} for row in rows]


ALIKE = at_tokens(lambda n: 10**9)
RECOGNISED = {
    # sizes a factor of 2 apart: tokens repeat over the budgets, too
    "flops": (lambda: drawn(TWO, sizes=5, low=2e7, high=3.2e8), [1e18, 4e18]),
    "flops that spread": (lambda: spread("flops"), [1e18, 4e18]),
    "flops that were asked for": (lambda: spread("flops_budget"), [1e18, 4e18]),
    "equal tokens": (lambda: ALIKE, None),
    "twenty tokens per parameter": (lambda: at_tokens(lambda n: 20 * n), None),
}


@pytest.mark.parametrize("name", RECOGNISED)
def test_equal_compute_is_recognised(name):
    rows, values = RECOGNISED[name]
    found = recognised(rows())
    assert (found is None) == (values is None)
    if found:
        assert sorted(found.rows) == pytest.approx(values, rel=0.05)
        assert sum(map(len, found.rows.values())) == len(rows())


def test_a_promise_that_is_no_number_is_refused():
    with pytest.raises(InputError, match=r"train_flops: 'much' in row 1"):
        fitted([{**row, "train_flops": "much"} for row in drawn(seeds=1)])


def test_runs_that_failed_or_diverged_belong_to_the_budget_of_their_shape_and_tokens():
    rows = drawn(TWO, sizes=5, low=2e7, high=3.2e8)
    twice = [row for row in rows if row["depth"] == 12 and row["seed"] == 0]
    shared = {row["width"] for row in twice if sum(other["width"] == row["width"] for other in twice) == 2}
    lost = [row for row in rows if row["width"] in shared and row["depth"] == 12 and row["seed"] == 1]
    assert len(lost) >= 4
    for row in lost:
        row |= {"status": "diverged", "flops": None, "loss": None}
    found = recognised(rows)
    for row in lost:
        per_token = TRUTH.flops_per_token(row["depth"], row["width"])
        true = min(found.rows, key=lambda value: abs(math.log(value / per_token / row["tokens"])))
        assert any(member is row or member == row for member in found.rows[true])


# ---- what a fit says ----


def test_the_best_depth_and_size_at_each_budget_are_the_true_ones(two, exact):
    rows = two.adjusted.at_budgets
    assert [(row.equal, row.cost) for row in rows] == [("flops", pytest.approx(flops, rel=0.01)) for flops in TWO]
    for row in (*rows, *exact.adjusted.at_budgets):
        assert_true(row)
        depth, n, _ = TRUTH.best_shape(row.cost)
        assert row.tokens == pytest.approx(row.cost / TRUTH.flops_per_token(depth, math.sqrt(n / 12 / depth)), rel=0.1)


def test_nets_of_all_budgets_answer_at_equal_size_too_whatever_the_axis(two):
    """Tokens are a column: the best depth of a size is the true one, from which tokens take nothing."""
    known = [row for row in two.surface.optima if row.depth is not None]
    assert len(known) > 5 and two.provenance.account.used == two.provenance.account.read
    for row in known:
        true = TRUTH.depth_0 * (row.n_params / TRUTH.size_0) ** TRUTH.depth_power
        assert (row.depth_low or 0.0) < true < (row.depth_high or math.inf)
    assert guide("100M", fit=two).budgets[0].optimum.source.startswith("your losses")
    assert at_budgets(drawn(TWO), "n_params") == two.adjusted.at_budgets
    assert answer(two)[0].startswith("At 1e18 FLOPs: ") and answer(two)[2].startswith("The best depth grows with N")


def test_guide_builds_the_size_that_the_fit_finds_at_a_budget(two, exact):
    """Twenty tokens for each parameter stood in place of the user's own runs: 120M beside the 152M of the fit."""
    for fit in (two, exact):
        row = fit.adjusted.at_budgets[-1]
        found = guide(flops=row.cost, fit=fit)
        assert found.budgets[0].optimum.n_params == pytest.approx(row.n_params, rel=0.01)
        assert found.assumptions.tokens == pytest.approx(row.tokens, rel=0.01)
        assert f"the best size at {row.n_params_interval.ends(format_count)}, by" in found.afforded
        assert found.budgets[0].recommended.n_params == pytest.approx(row.n_params, rel=0.06)
    beyond = guide(flops=1e20, fit=two)
    assert beyond.budgets[0].optimum.n_params == pytest.approx(TRUTH.best_shape(1e20)[1], rel=0.25)
    assert "by those of 1e18 to 4e18 FLOPs and a growth of FLOPs^0.50 beyond, assumed" in beyond.afforded
    for flops in (1e16, 1e17, 2e18, 1e20, 1e21):
        assert TRUTH.best_shape(flops)[1] in OwnBudgets.of(two).at(flops)[0]
    far = guide(flops=1e24, fit=two)
    assert far.assumptions.tokens == pytest.approx(20.0 * far.budgets[0].optimum.n_params)


def test_the_price_of_a_depth_at_one_budget_is_no_multiple_of_the_true_one(exact):
    """Losses along N at equal FLOPs are flat near the best size; divided by their slope, 12 layers in place of 14
    wasted 17 % of compute and not 2 %."""
    depth, n, _ = TRUTH.best_shape(1e18)
    found = guide(n, fit=exact).budgets[0]
    tokens = 1e18 / TRUTH.flops_per_token(depth, math.sqrt(n / 12 / depth))

    def loss(layers, size):
        return TRUTH.loss(layers, math.sqrt(size / 12 / layers), tokens)

    slope = (loss(depth, n * 0.9) - loss(depth, n * 1.1)) / math.log(1.1 / 0.9)
    ends = found.near_best.depth_low, found.near_best.depth_high
    wastes = [100.0 * -math.expm1((loss(depth, n) - loss(end, n)) / slope) for end in ends]
    assert min(wastes) > 1.0 and max(wastes) < 12.0


WITHOUT = {
    "tokens, which are those of 6N": lambda row, k: {"tokens": None, "steps": None},
    "FLOPs, where budgets were asked for": lambda row, k: {"train_flops": TWO[row["flops"] > 2e18], "flops": None},
    "FLOPs in every third row": lambda row, k: {"flops": None if k % 3 == 1 else row["flops"]},
}


@pytest.mark.parametrize("without", WITHOUT)
def test_budgets_whose_runs_lack_a_column_have_the_true_answers(without):
    result = fitted([{**row, **WITHOUT[without](row, k)} for k, row in enumerate(drawn(TWO))])
    assert result.provenance.account.used == len(drawn(TWO))
    assert any("6N" in note for note in result.provenance.account.notes) == ("6N" in without)
    for row, flops in zip(result.adjusted.at_budgets, TWO, strict=True):
        assert row.cost == pytest.approx(flops, rel=0.01)
        assert_true(row, 0.1, 0.1)


def test_a_minimum_beyond_what_was_tried_is_not_reached():
    """Sizes that end below the best ones, or hardly above them (N > 123M was claimed of 91M, by a level that fell
    beyond the largest net); depths that are all too deep."""
    for high in (6e7, 1.1e8):
        (short,) = at_budgets(drawn(low=1e7, high=high))
        assert short.n_params is None and short.n_params_high is None and short.n_params_low < TRUTH.best_shape(1e18)[1]
    (deep,) = at_budgets(drawn(depths=(16, 24, 36, 48)))
    assert deep.depth is None and deep.depth_low is None and TRUTH.best_shape(1e18)[0] < deep.depth_high
    assert "at an edge" in deep.reason and deep.n_params_interval.unbounded, (
        "N of 16 layers is not that of the best net"
    )


def test_too_few_shapes_for_a_best_depth_are_refused_along_the_budget_and_stand_beside_a_table():
    rows = drawn(TWO, depths=(8,))
    with pytest.raises(InputError, match=r"axis: flops; every shape of .* was trained to one of 2 values of it"):
        fitted(rows)
    result = fitted(rows, "n_params", beside=[drawn(TWO, depths=(8, 12))])
    assert result.adjusted is None and result.surface is None
    assert says(result.warnings[0], "fit: trained at equal FLOPs") and "uses the runs at 4e18" in result.warnings[0]
    assert result.provenance.account.used == len(rows) // 2
    assert [(row.shallow, row.deep) for row in result.others[0].transitions] == [(8, 12)]


def test_the_power_of_the_budget(two):
    """That of the true best shapes; two budgets show none."""
    budgets = (3e17, 1.5e18, 8e18)
    rows = drawn(budgets, depths=(6, 9, 14, 22), sizes=5, low=1.5e7, high=2.4e8, seeds=1)
    found = {row.column: row for row in fitted(rows).adjusted.growth}
    assert set(found) == {"n_params", "tokens", "depth"} and two.adjusted.growth == ()
    best = [TRUTH.best_shape(budget) for budget in budgets]
    for name, values in (("n_params", [n for _, n, _ in best]), ("depth", [depth for depth, *_ in best])):
        true = np.polyfit(np.log(budgets), np.log(values), 1)[0]
        assert found[name].estimate_low < true < found[name].estimate_high < found[name].estimate_low + 0.4


def test_the_power_of_tokens_is_known_where_some_draws_of_the_size_are_only_bounds():
    """It was not reached: those draws had no tokens."""
    rows = hoffmann(
        lambda _: [(depth, 12 * depth * width**2) for depth, width in product((4, 6, 8, 12, 16), (256, 384, 512, 768))],
        lambda depth, n: 0.03 * (math.log(depth) - 0.3 * math.log(n / 1e7) - 1.9) ** 2,
        1e17 * 1.5 ** np.arange(4),
    )
    found = {row.column: row for row in fitted(rows, "n_params").adjusted.growth}
    assert found["tokens"].estimate_low < 0.34 / 0.62 < found["tokens"].estimate_high
    assert found["n_params"].estimate + found["tokens"].estimate == pytest.approx(1.0, abs=0.02)


def hoffmann(shapes, effect=lambda depth, n: 0.0, budgets=(1e17, 3e17, 1e18, 3e18)):
    """Runs at these budgets; shapes: (depth, size) of a budget."""
    rng, rows = np.random.default_rng(0), []
    for flops in budgets:
        for row in (net(*shape) for shape in shapes(flops)):
            n = standard(row)
            tokens = flops / 6.0 / n
            loss = 1.7 + 400 / n**0.34 + 410 / tokens**0.28 + effect(row["depth"], n) + rng.normal(0, 0.002)
            rows.append({**row, "flops": flops, "tokens": tokens, "loss": loss})
    return rows


def best_size(flops):
    return ((0.34 * 400) / (0.28 * 410) * (flops / 6.0) ** 0.28) ** (1.0 / 0.62)


@pytest.mark.parametrize("apart", [1.3, pytest.param(1.0, marks=pytest.mark.slow)])
def test_budgets_of_nets_whose_depth_follows_the_size_have_a_best_size_each(apart):
    """The commonest table at equal compute: one shape at each size, or one of two, alike at all budgets. Its best
    sizes were never named, since no depth is the best one."""

    def shapes(flops):
        for k, times in enumerate((0.2, 0.35, 0.6, 1.0, 1.6, 2.6, 4.2)):
            size = 0.1 * math.sqrt(flops / 6.0) * times
            yield round(6.0 * (size / 1e7) ** 0.3 * apart ** (1 if k % 2 else -1)), size

    result = fitted(hoffmann(shapes))
    rows = result.adjusted.at_budgets
    assert [row.cost for row in rows] == pytest.approx([1e17, 3e17, 1e18, 3e18]) and not any(row.depth for row in rows)
    for row in rows:
        assert row.n_params_low < best_size(row.cost) < row.n_params_high < 1.6 * row.n_params_low
        assert row.tokens == pytest.approx(row.cost / 6.0 / row.n_params, rel=0.05)
    power = next(row for row in result.adjusted.growth if row.column == "n_params")
    assert power.estimate_low < 0.28 / 0.62 < power.estimate_high
    assert answer(result)[0].startswith("At 1e17 FLOPs: N = ")
    afforded = guide(flops=1e18, fit=result).afforded
    assert f"your own runs put the best size at {format_count(rows[2].n_params_low)}" in afforded


def test_shapes_that_are_alike_at_all_budgets_count_at_each():
    """One set of shapes at several budgets was taken for curves of its runs, and a part of them was used."""
    sizes = 6e6 * 2.2 ** np.arange(5)
    true = lambda n: 8.0 * (n / 1e7) ** 0.2  # noqa: E731
    rows = hoffmann(
        lambda flops: [(depth, n) for depth in (4, 8, 12, 20) for n in sizes],
        lambda depth, n: 0.04 * math.log(depth / true(n)) ** 2,
        (1e17, 3e17, 1e18),
    )
    result = fitted(rows)
    assert result.provenance.account.used == len(rows)
    for row in result.adjusted.at_budgets:
        n = best_size(row.cost)
        assert row.n_params_low < n < row.n_params_high and row.depth_low < true(n) < row.depth_high


# ---- coverage ----


@pytest.mark.slow
@pytest.mark.parametrize("name", budgets.scenarios())
def test_minima_are_covered(name, tmp_path_factory):
    """94 % or more of all intervals of 95 %, less three binomial standard errors of the sweeps taken; biases below half
    of the median interval."""
    folder = Path(os.environ.get("DWSWEEP_COVERAGE_DIR") or tmp_path_factory.mktemp("coverage")) / "budgets"
    results = budgets.STUDY.run(folder, [name], N, os.cpu_count() or 1)
    print("\n" + budgets.STUDY.table(results))
    found = budgets.summarise(name, results[name])
    for score in found.values():
        assert score["coverage"] >= 0.94 - 3.0 * np.sqrt(0.94 * 0.06 / N)
        if score["bias"] is not None:
            assert abs(score["bias"]) <= 0.5 * score["width"]
