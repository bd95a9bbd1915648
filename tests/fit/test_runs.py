"""Rows, points and runs: which rows are one run's, and what every output counts."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from dwsweep import fit_table, guide
from dwsweep.errors import InputError
from dwsweep.fit.arms import compare_arms
from dwsweep.records import fit as fit_record
from dwsweep.records.answers import DIFFERENCE

SHAPES = tuple(product((2, 4, 8), (32, 48, 64, 96, 128)))
NOISE = 0.003


def loss(depth, width, tokens=math.inf):
    n = 12.0 * depth * width**2
    level = 1.7 + 40.0 * n**-0.22 + 0.03 * math.log(depth / (2.0 * (n / 1e5) ** 0.25)) ** 2
    return level + 20.0 * tokens**-0.2


def row(rng, depth, width, above=0.0, tokens=math.inf, **others):
    return {"depth": depth, "width": width, "loss": loss(depth, width, tokens) + above + NOISE * rng.normal(), **others}


def said(found):
    return found.provenance.account.sentence


def test_runs_of_their_own_names_or_nearly_equal_steps_are_no_curve_of_one_run():
    rng = np.random.default_rng(0)
    rates = ((3e-4, 1000), (1e-3, 1500), (3e-3, 2000))
    rows = [
        row(rng, *at, Name=f"{at}-{lr}", lr=lr, _step=step + int(rng.integers(20)))
        for at in SHAPES
        for lr, step in rates
    ]
    assert said(fit_table(rows)) == "45 rows read, all used"
    rows = [row(rng, *at, step=int(rng.integers(1011, 1040))) for at in SHAPES for _ in range(3)]
    found = fit_table(rows)
    assert said(found) == "45 rows read, all used" and {cell.n for cell in found.cells} == {3}


def test_the_rate_of_a_schedule_is_no_rate_of_a_run_and_its_peak_is():
    rng = np.random.default_rng(0)
    rows = [
        row(rng, *at, above + 1000 / step - 1, name=f"{at}-{peak}", lr=peak * (1 - step / 1100), step=step)
        for at in SHAPES
        for peak, above in ((1e-3, 0.0), (3e-3, 0.05))
        for step in (250, 500, 750, 1000)
    ]
    found = fit_table(rows)
    assert said(found).startswith("120 rows read, 30 used: 90 lie earlier on the curve")
    assert all(abs(cell.mean - loss(cell.depth, cell.width)) < 5 * NOISE for cell in found.cells)


@pytest.mark.parametrize("named", [True, False])
def test_points_of_two_runs_of_a_shape_are_read_between_those_of_one(named):
    """A second run 0.3 above the first: mixing their points would read some losses 0.3 off the mean of both."""
    rng = np.random.default_rng(0)
    tokens = ((1e8, 3e8), (1.2e8, 2.7e8)) if named else ((1e8, 3e8), (1e8, 3e8))
    rows = [
        row(rng, *at, 0.3 * k, tokens=count) | ({"run_id": f"{at}-{k}"} if named else {}) | {"tokens": count}
        for at in SHAPES
        for k in (0, 1)
        for count in tokens[k]
    ]
    found = fit_table(rows, at_tokens=2e8)
    assert said(found) == "60 rows read, 30 used: 30 are other points of a run's curve"
    for cell in found.cells:
        assert abs(cell.mean - loss(cell.depth, cell.width, 2e8) - 0.15) < 0.01 and cell.n == 2


def test_a_divergence_after_the_tokens_asked_for_is_none_before():
    rng = np.random.default_rng(0)
    rows = [row(rng, *at, seed=s, tokens=t) | {"tokens": t} for at in SHAPES for s in (0, 1) for t in (1e8, 2e8, 4e8)]
    next(one for one in rows if (one["depth"], one["width"], one["tokens"]) == (4, 64, 4e8))["loss"] = math.inf
    found = fit_table(rows, at_tokens=1.5e8)
    assert said(found) == "90 rows read, 30 used: 60 are other points of a run's curve"
    assert not found.warnings and not any(cell.excluded for cell in found.cells)


def test_a_cell_has_the_cost_of_the_rate_that_it_shows():
    rng = np.random.default_rng(0)
    rates = ((3e-4, 1e8), (1e-3, 8e8), (3e-3, 1e8))
    rows = [
        row(rng, d, w, 0.05 * math.log(lr / 1e-3) ** 2, t, lr=lr, flops=72 * d * w**2 * t) | {"tokens": t}
        for d, w in SHAPES
        for lr, t in rates
    ]
    for cell in fit_table(rows, axis="flops").cells:
        assert cell.learning_rate == 1e-3 and cell.axis_value == pytest.approx(72 * cell.depth * cell.width**2 * 8e8)


def test_arms_of_other_steps_or_of_other_budgets_are_no_comparison_of_recipes():
    rng = np.random.default_rng(0)
    steps = {"a": (100, 200, 300, 400), "b": (100, 200, 300)}
    rows = [
        row(rng, *at, tokens=step * 1e6, arm=arm, seed=seed, step=step)
        for arm, every in steps.items()
        for at in SHAPES
        for seed in (0, 1)
        for step in every
    ]
    assert "NOT AT EQUAL DATA: a and b differ in steps 400 and 300" in compare_arms(rows).comparisons[0].answer[0]
    rows = [
        row(rng, d, w, tokens=flops / (72 * d * w**2), arm=arm, seed=seed, flops=flops)
        | {"tokens": flops / (72 * d * w**2)}
        for arm, flops in (("a", 1e15), ("b", 4e15))
        for d, w in SHAPES
        for seed in (0, 1)
    ]
    found = compare_arms(rows)
    assert "NOT AT EQUAL DATA: a and b differ in tokens" in found.comparisons[0].answer[0]
    assert said(found) == "60 rows read, 30 used: 30 are of other arms"


def test_losses_that_are_no_number_are_not_called_diverged():
    rng = np.random.default_rng(0)
    rows = [row(rng, *at, arm=arm) | ({"loss": math.nan} if arm == "b" else {}) for arm in "ab" for at in SHAPES]
    assert "loss is NaN" in compare_arms(rows).comparisons[0].answer[0]


def test_every_row_that_is_not_used_has_a_reason_in_the_account():
    rng = np.random.default_rng(0)
    rows = [row(rng, *at, tokens=t) | {"tokens": t} for at in SHAPES for t in (1e8, 2e8, 3e8)]
    rows[0]["tokens"] = rows[4]["tokens"] = None
    rows[7] |= {"loss": None, "status": "oom"}
    account = fit_table(rows).provenance.account
    assert account.used + sum(one.rows for one in account.left_out) == len(rows)
    why = "; ".join(one.why for one in account.left_out)
    assert "oom" in why and "no count of tokens" in why


def test_guide_has_the_context_and_the_tokens_of_a_heap(tmp_path):
    """Settings that all runs share describe the nets; tokens that differ are those at which the losses are compared."""
    rng = np.random.default_rng(0)
    rows = [
        row(rng, *at, 0.01 * math.log(batch / 64) ** 2, tokens, batch_size=batch, seq_len=512) | {"tokens": tokens}
        for at in SHAPES
        for batch in (32, 64, 128)
        for tokens in (1e9, 2e9)
    ]
    found = fit_table(rows)
    fit_record.write(found, tmp_path)
    assert found.nets.seq_len == 512
    assert guide([2e5], fit=tmp_path).assumptions.positions == 512


@pytest.mark.parametrize("batches", [(64,), (32, 64, 128)])
@pytest.mark.parametrize(
    ("rates", "said_of"), [((1e-3,), "several learning rates, of b one"), ((3e-4, 1e-3, 3e-3), "")]
)
def test_an_arm_at_one_learning_rate_is_not_at_equal_tuning(batches, rates, said_of):
    """Arms of equal losses at their best rates, 1e-3 and 3e-3; a heap, where batches differ, adjusts for these."""
    rng = np.random.default_rng(0)
    rows = [
        row(rng, *at, 0.05 * math.log(lr / best) ** 2, arm=arm, batch_size=batch, learning_rate=lr)
        for arm, best, every in (("a", 1e-3, (3e-4, 1e-3, 3e-3)), ("b", 3e-3, rates))
        for at in SHAPES
        for batch in batches
        for lr in every
    ]
    said = [line for line in compare_arms(rows).comparisons[0].answer if line.startswith("NOT AT EQUAL TUNING: ")]
    assert bool(said) is bool(said_of) and all(said_of in line for line in said)


def test_arms_of_one_learning_rate_each_are_told_if_it_differs():
    rng = np.random.default_rng(0)
    rows = [row(rng, *at, arm=arm, lr=lr) for arm, lr in (("a", 1e-3), ("b", 2e-3)) for at in SHAPES]
    first = compare_arms(rows).comparisons[0].answer[0]
    assert first.startswith("NOT AT EQUAL TUNING: most shapes of a have one learning rate, of b another one:")


def logged(**more):
    """18 named runs with a decaying rate and four steps each."""
    rng = np.random.default_rng(0)
    ends = ((250, 9e-4), (500, 5.5e-4), (750, 3e-4), (1000, 1e-4))
    return [
        row(rng, *at, 0.3 * math.log(1000 / step), seed=seed, run_id=f"{at}-{seed}", step=step, lr=lr)
        | {name: step * each for name, each in more.items()}
        for at in SHAPES
        for seed in (0, 1)
        for step, lr in ends
    ]


def test_a_resumed_run_with_a_step_twice_is_still_one_run():
    rows = logged()
    again = "(2, 32)-0", "(4, 64)-1", "(8, 48)-0", "(8, 96)-1"
    rows += [one | {"loss": one["loss"] + 0.001} for one in rows if one["run_id"] in again and one["step"] == 500]
    found = fit_table(rows)
    assert said(found).startswith("124 rows read, 30 used: 94 lie earlier on the curve")
    assert not found.adjusted


def test_a_scheduled_rate_makes_no_runs_of_the_points_of_one():
    found = fit_table(logged(tokens=1e6), at_tokens=6e8)
    assert said(found) == "120 rows read, 30 used: 90 are other points of a run's curve"
    assert not found.adjusted


def random_rates(rng, arm, shift=0.0, best=1e-3, **more):
    rows = []
    for at in SHAPES * 3:
        rate, batch = float(rng.choice((3e-4, 1e-3, 3e-3))), int(rng.choice((32, 64, 128)))
        above = shift + 0.05 * math.log(rate / best) ** 2 + 0.01 * math.log(batch / 64) ** 2
        rows.append(row(rng, *at, above, arm=arm, lr=rate, batch_size=batch) | more)
    return rows


@pytest.mark.parametrize(("column", "values"), [("tokens", (1e9, 4e9)), ("dataset", ("c4", "pile"))])
def test_arms_of_a_heap_at_unequal_data_are_no_comparison_of_recipes(column, values):
    rng = np.random.default_rng(0)
    rows = [one for arm, value in zip("ab", values, strict=True) for one in random_rates(rng, arm, **{column: value})]
    first = compare_arms(rows).comparisons[0].answer[0]
    assert first.startswith(f"NOT AT EQUAL DATA: a and b differ in {column} ")


def test_an_arm_of_a_heap_without_learning_rates_has_its_losses_as_they_are():
    rng = np.random.default_rng(0)
    bare = [{name: value for name, value in one.items() if name != "lr"} for one in random_rates(rng, "b", best=1e-3)]
    for one in bare:  # as if each was trained at its best rate
        one["loss"] = loss(one["depth"], one["width"]) - 0.03 + NOISE * rng.normal()
    (found,) = compare_arms(random_rates(rng, "a") + bare).comparisons
    changes = [one.estimate_interval for one in found.of(DIFFERENCE)]
    assert changes and all(abs(change.value + 0.03) < 0.015 for change in changes)
    assert found.pairing.startswith("both, as far as their runs tell, at each net's best learning rate")


def test_tokens_that_an_arm_does_not_tell_are_not_asked_for():
    rng = np.random.default_rng(0)
    told = [{**one, "tokens": float(rng.choice((5e8, 1e9, 2e9)))} for one in random_rates(rng, "a")]
    for one in told:
        one["loss"] += 20.0 * one["tokens"] ** -0.2
    with pytest.raises(InputError, match="no run of b has a count of tokens"):
        compare_arms(told + random_rates(rng, "b"), at_tokens=1e9)
