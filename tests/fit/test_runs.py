"""Rows, points and runs: which rows are one run's, losses after equally many tokens, which runs count, and what is said
about each."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from sentences import says

from dwsweep import fit_table, guide
from dwsweep.errors import InputError
from dwsweep.fit.along import fit_along
from dwsweep.fit.analysis import fit_options
from dwsweep.fit.arms import compare_arms
from dwsweep.fit.data.impossible import off_surface
from dwsweep.fit.data.lengths import at_equal_length
from dwsweep.fit.data.runs import TableShape, select_runs
from dwsweep.fit.data.table import read_table
from dwsweep.records import fit as fit_record
from dwsweep.records.answers import DIFFERENCE

SHAPES = tuple(product((2, 4, 8), (32, 48, 64, 96, 128)))
NOISE = 0.003
RATES = (3e-4, 1e-3, 3e-3)


def loss(depth, width, tokens=math.inf):
    n = 12.0 * depth * width**2
    level = 1.7 + 40.0 * n**-0.22 + 0.03 * math.log(depth / (2.0 * (n / 1e5) ** 0.25)) ** 2
    return level + 20.0 * tokens**-0.2


def runs(*each, above=lambda one: 0.0, shapes=SHAPES):
    """A row of every shape for ``each`` of some columns, which may go by depth and width. above: nats of a row."""
    rng, rows = np.random.default_rng(0), []
    for (depth, width), columns in product(shapes, each):
        one = {"depth": depth, "width": width, **(columns(depth, width) if callable(columns) else columns)}
        own = loss(depth, width, one.get("tokens") or math.inf) + above(one) + NOISE * rng.normal()
        rows.append({**one, "loss": one.get("loss", own)})
    return rows


def each(**values):
    """Columns of all combinations of values."""
    return [dict(zip(values, one, strict=True)) for one in product(*values.values())]


def off_rate(one, best=1e-3):
    return 0.05 * math.log(one["lr"] / best) ** 2


def said(found):
    return found.provenance.account.sentence


POINTS = "{} rows read, 30 used: {} are other points of a run's curve"


def test_runs_of_their_own_names_or_nearly_equal_steps_are_no_curve_of_one_run():
    rng = np.random.default_rng(0)
    rates = [
        lambda d, w, lr=lr, step=step: {"Name": f"{d}-{w}-{lr}", "lr": lr, "_step": step + int(rng.integers(20))}
        for lr, step in zip(RATES, (1000, 1500, 2000), strict=True)
    ]
    assert said(fit_table(runs(*rates))) == "45 rows read, all used"
    found = fit_table(runs(*[lambda d, w: {"step": int(rng.integers(1011, 1040))}] * 3))
    assert said(found) == "45 rows read, all used" and {cell.n for cell in found.cells} == {3}


@pytest.mark.parametrize(("time", "name"), [("step", "name"), ("tokens", "run_id"), ("step", "")])
def test_the_rate_of_a_schedule_is_no_rate_of_a_run_and_its_peak_is(time, name):
    """Without a name nothing joins the points of runs of one shape."""
    points = [
        lambda d, w, peak=peak, step=step: (
            {time: step * 1e6, "lr": peak * (1 - step / 1100)} | ({name: f"{d}-{w}-{peak}"} if name else {})
        )
        for peak in (1e-3, 3e-3)
        for step in (250, 500, 750, 1000)
    ]

    def above(one):
        step, of_tokens = one[time] / 1e6, 20.0 * one.get("tokens", math.inf) ** -0.2
        return 0.05 * (one["lr"] > 2e-3 * (1 - step / 1100)) + 1000 / step - 1 - of_tokens

    if not name:
        with pytest.raises(InputError, match="several rates that fall with step, and no column names the runs"):
            fit_table(runs(*points, above=above))
        return
    found = fit_table(runs(*points, above=above))
    assert said(found).startswith("120 rows read, 30 used: 90 lie earlier on the curve")
    assert all(abs(cell.mean - loss(cell.depth, cell.width)) < 5 * NOISE for cell in found.cells)


@pytest.mark.parametrize("named", [True, False])
def test_points_of_two_runs_of_a_shape_are_read_between_those_of_one(named):
    """A second run 0.3 above the first: mixing their points would read some losses 0.3 off the mean of both."""
    tokens = ((1e8, 3e8), (1.2e8, 2.7e8)) if named else ((1e8, 3e8), (1e8, 3e8))
    points = [(k, count) for k in (0, 1) for count in tokens[k]]
    rows = runs(*({"tokens": count, "run": k} for k, count in points), above=lambda one: 0.3 * one["run"])
    for one in rows:
        k = one.pop("run")
        one |= {"run_id": f"{one['depth']}-{one['width']}-{k}"} if named else {}
    found = fit_table(rows, at_tokens=2e8)
    assert said(found) == POINTS.format(60, 30)
    for cell in found.cells:
        assert abs(cell.mean - loss(cell.depth, cell.width, 2e8) - 0.15) < 0.01 and cell.n == 2


@pytest.mark.parametrize("tokens", [3e9, 4e9])  # between two counts, and at one
def test_flops_and_time_are_read_between_two_points_too(tokens):
    rows = runs(*each(tokens=(2e9, 4e9, 8e9)))
    for one in rows:
        one |= {
            name: one["width"] * one["tokens"] * scale for name, scale in (("flops", 1e6), ("device_seconds", 1e-9))
        }
    for one in at_equal_length(read_table(rows), fit_options(at_tokens=tokens)).rows:
        spent = one["width"] * tokens
        assert (one["tokens"], one["flops"], one["device_seconds"]) == pytest.approx(
            (tokens, 1e6 * spent, 1e-9 * spent)
        )


def test_two_recipes_of_one_shape_are_no_points_of_one_run():
    rows = runs({"tokens": 2e9, "batch_size": 64}, {"tokens": 8e9, "batch_size": 512})
    with pytest.raises(InputError, match=r"at_tokens: 4e.*no run has a loss near it, or on either side"):
        at_equal_length(read_table(rows), fit_options(at_tokens=4e9))


@pytest.mark.parametrize("blank", [None, 0, -5, math.inf, math.nan])
def test_a_loss_after_nobody_knows_how_many_tokens_is_left_out_and_counted(blank):
    rows = runs({"tokens": 2e9}, shapes=SHAPES[:10])
    for one in rows[::3]:
        one["tokens"] = blank
    found = fit_table(rows, noise=0.001, at_tokens=2e9)
    assert len(found.cells) == 6 and "4 have no count of tokens" in said(found)


def test_two_runs_of_one_shape_and_count_stay_two_and_identical_rows_are_one():
    rows = runs({"tokens": 2e9}, shapes=SHAPES[:10])
    again = [{**one, "loss": one["loss"] + 1e-6} for one in rows]
    for second, n in ((again, 2), (rows, 1)):
        assert {cell.n for cell in fit_table([*rows, *second], at_tokens=2e9).cells} == {n}


NOT_REACHED = "no run has a loss near it, or on either side of it; allowed, as a list of rows has tokens: from 2B to 2B"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"at_tokens": 1e15}, f"at_tokens: 1e+15; {NOT_REACHED}"),
        ({"at_tokens": 1e-320}, f"at_tokens: 9.99989e-321; {NOT_REACHED}"),
        ({"tokens_per_param": -1.0}, "tokens_per_param: -1; allowed: a number above zero"),
        ({"tokens_per_param": 20.0, "at_tokens": 1e9}, "at_tokens, tokens_per_param: both given; allowed: one of them"),
    ],
)
def test_tokens_that_cannot_be_are_refused_in_a_line(options, line):
    with pytest.raises(InputError) as refused:
        fit_table(runs({"tokens": 2e9}), **options)
    assert str(refused.value) == line


def test_comparisons_and_columns_take_the_same_tokens():
    rows = runs(*each(tokens=(2e9, 4e9)), shapes=SHAPES[:10])
    other = [{**one, "loss": one["loss"] + 0.01} for one in rows]
    for found in (
        compare_arms(rows, [other], noise=0.001, at_tokens=3e9),
        fit_along(rows, "depth", noise=0.001, at_tokens=3e9),
    ):
        assert found.provenance.options.at_tokens == 3e9 and "10 are other points of a run's curve" in said(found)


def test_runs_that_do_not_reach_the_tokens_are_left_out_and_counted():
    """Losses are not moved by published laws: their slope is not the table's."""
    found = fit_table(
        runs(lambda d, w: {"tokens": 240.0 * d * w**2 * (1.5 if d == 8 else 1.0)}), noise=0.001, tokens_per_param=20.0
    )
    assert {cell.depth for cell in found.cells} == {2, 4}
    assert "5 have no loss after as many tokens" in said(found)


def test_a_divergence_after_the_tokens_asked_for_is_none_before():
    rows = runs(*each(seed=(0, 1), tokens=(1e8, 2e8, 4e8)))
    next(one for one in rows if (one["depth"], one["width"], one["tokens"]) == (4, 64, 4e8))["loss"] = math.inf
    found = fit_table(rows, at_tokens=1.5e8)
    assert said(found) == POINTS.format(90, 60)
    assert not found.warnings and not any(cell.excluded for cell in found.cells)


def test_a_cell_has_the_cost_of_the_rate_that_it_shows():
    of = [
        lambda d, w, lr=lr, t=t: {"lr": lr, "tokens": t, "flops": 72 * d * w**2 * t}
        for lr, t in zip(RATES, (1e8, 8e8, 1e8), strict=True)
    ]
    for cell in fit_table(runs(*of, above=off_rate), axis="flops").cells:
        assert cell.learning_rate == 1e-3 and cell.axis_value == pytest.approx(72 * cell.depth * cell.width**2 * 8e8)


# Arms


def arms(*columns, **more):
    """Rows of the arms a and b with columns of their own."""
    return runs(*({"arm": arm, **one} for arm, own in zip("ab", columns, strict=True) for one in own), **more)


def first_line(rows):
    return compare_arms(rows).comparisons[0].answer[0]


def test_arms_of_other_steps_or_of_other_budgets_are_no_comparison_of_recipes():
    steps = (each(seed=(0, 1), step=steps) for steps in ((100, 200, 300, 400), (100, 200, 300)))
    rows = arms(*steps, above=lambda one: 20.0 * (one["step"] * 1e6) ** -0.2)
    assert "NOT AT EQUAL DATA: a and b differ in steps 400 and 300" in first_line(rows)
    rows = arms(*(each(seed=(0, 1), flops=(flops,)) for flops in (1e15, 4e15)))
    for one in rows:
        one["tokens"] = one["flops"] / (72 * one["depth"] * one["width"] ** 2)
        one["loss"] += 20.0 * one["tokens"] ** -0.2
    assert "NOT AT EQUAL DATA: a and b differ in tokens" in first_line(rows)
    assert said(compare_arms(rows)) == "60 rows read, 30 used: 30 are of other arms"


def test_losses_that_are_no_number_are_not_called_diverged():
    assert "loss is NaN" in first_line(arms([{}], [{"loss": math.nan}]))


def test_guide_has_the_context_and_the_tokens_of_a_heap(tmp_path):
    """Settings that all runs share describe the nets; tokens that differ are those at which the losses are compared."""
    above = lambda one: 0.01 * math.log(one["batch_size"] / 64) ** 2  # noqa: E731
    found = fit_table(runs(*each(batch_size=(32, 64, 128), tokens=(1e9, 2e9), seq_len=(512,)), above=above))
    fit_record.write(found, tmp_path)
    assert found.nets.seq_len == 512
    assert guide([2e5], fit=tmp_path).assumptions.positions == 512


@pytest.mark.parametrize("batches", [(64,), (32, 64, 128)])
@pytest.mark.parametrize(
    ("rates", "said_of"),
    [
        ((RATES, (1e-3,)), "several learning rates, of b one"),
        ((RATES, RATES), ""),
        (((1e-3,), (2e-3,)), "b another one"),
    ],
)
def test_an_arm_at_one_learning_rate_is_not_at_equal_tuning(batches, rates, said_of):
    """Arms of equal losses at their best rates, 1e-3 and 3e-3; a heap, where batches differ, adjusts for these."""
    rows = arms(
        *(each(batch_size=batches, lr=own) for own in rates),
        above=lambda one: off_rate(one, 1e-3 if one["arm"] == "a" else 3e-3),
    )
    said = [line for line in compare_arms(rows).comparisons[0].answer if line.startswith("NOT AT EQUAL TUNING: ")]
    assert bool(said) is bool(said_of) and all(said_of in line for line in said)


def logged(**more):
    """30 named runs with a decaying rate and four steps each."""
    ends = ((250, 9e-4), (500, 5.5e-4), (750, 3e-4), (1000, 1e-4))
    points = [
        lambda d, w, seed=seed, step=step, lr=lr: (
            {"seed": seed, "run_id": f"({d}, {w})-{seed}", "step": step, "lr": lr}
            | {name: step * of_step for name, of_step in more.items()}
        )
        for seed in (0, 1)
        for step, lr in ends
    ]
    return runs(*points, above=lambda one: 0.3 * math.log(1000 / one["step"]))


def test_a_resumed_run_with_a_step_twice_is_still_one_run():
    rows = logged()
    again = "(2, 32)-0", "(4, 64)-1", "(8, 48)-0", "(8, 96)-1"
    rows += [one | {"loss": one["loss"] + 0.001} for one in rows if one["run_id"] in again and one["step"] == 500]
    found = fit_table(rows)
    assert said(found).startswith("124 rows read, 30 used: 94 lie earlier on the curve")
    assert not found.adjusted


def test_a_scheduled_rate_makes_no_runs_of_the_points_of_one():
    found = fit_table(logged(tokens=1e6), at_tokens=6e8)
    assert said(found) == POINTS.format(120, 90) and not found.adjusted


def random_rates(arm, above=0.0, **more):
    """A heap of an arm, whose rates and batches differ at random."""
    rng = np.random.default_rng(ord(arm))
    own = lambda d, w: {"lr": float(rng.choice(RATES)), "batch_size": int(rng.choice((32, 64, 128)))}  # noqa: E731
    of_run = lambda one: above + off_rate(one) + 0.01 * math.log(one["batch_size"] / 64) ** 2  # noqa: E731
    return [{**one, "arm": arm, **more} for one in runs(*[own] * 3, above=of_run)]


@pytest.mark.parametrize(("column", "values"), [("tokens", (1e9, 4e9)), ("dataset", ("c4", "pile"))])
def test_arms_of_a_heap_at_unequal_data_are_no_comparison_of_recipes(column, values):
    rows = [one for arm, value in zip("ab", values, strict=True) for one in random_rates(arm, **{column: value})]
    assert first_line(rows).startswith(f"NOT AT EQUAL DATA: a and b differ in {column} ")


@pytest.mark.parametrize(("base", "nats"), [("a", -0.03), ("b", 0.03)])
def test_an_arm_of_a_heap_without_learning_rates_has_its_losses_as_they_are(base, nats):
    bare = [{name: value for name, value in one.items() if name != "lr"} for one in random_rates("b")]
    rng = np.random.default_rng(0)
    for one in bare:  # as if each was trained at its best rate
        one["loss"] = loss(one["depth"], one["width"]) - 0.03 + NOISE * rng.normal()
    rows = sorted(random_rates("a") + bare, key=lambda one: one["arm"] != base)
    (found,) = compare_arms(rows).comparisons
    changes = [one.estimate_interval for one in found.of(DIFFERENCE)]
    assert changes and all(abs(change.value - nats) < 0.015 for change in changes)
    assert np.mean([change.high - change.low for change in changes]) < 0.015
    assert found.pairing.startswith("both, as far as their runs tell, at each net's best learning rate")


def test_tokens_that_an_arm_does_not_tell_are_not_asked_for():
    rng = np.random.default_rng(0)
    told = [{**one, "tokens": float(rng.choice((5e8, 1e9, 2e9)))} for one in random_rates("a")]
    for one in told:
        one["loss"] += 20.0 * one["tokens"] ** -0.2
    with pytest.raises(InputError, match="no run of b has a count of tokens"):
        compare_arms(told + random_rates("b"), at_tokens=1e9)


# Which runs count


WIDTHS = {6: (64, 96, 128, 160), 12: (48, 64, 96, 112)}
FIRST, SECOND = TableShape(6, 64), TableShape(6, 96)


def rows(change=lambda row, k: {}, **columns):
    """Eight shapes of three seeds. change: columns of a row, by the row and its place."""
    made = [
        {"depth": depth, "width": width, "seed": seed, "loss": 3.0 - 0.1 * k + 0.001 * seed, **columns}
        for depth, widths in WIDTHS.items()
        for k, width in enumerate(widths)
        for seed in range(3)
    ]
    return [{**row, **change(row, k)} for k, row in enumerate(made)]


def where(places, **columns):
    return lambda row, k: columns if k in places else {}


def near_chance(row):
    return {"loss": row["loss"] + math.log(1000) - 3.2, "vocab_size": 1000}


# change of the rows → runs that count, notes of shapes, shapes that are excluded
COUNTED = {
    "all": (lambda row, k: {}, 24, {}, {}),
    "failed runs are missing at random": (
        lambda row, k: {"status": "failed" if k == 0 else "oom"} if k in (0, 3, 4, 5) else {},
        20,
        {FIRST: "failed"},
        {SECOND: "3 × oom"},
    ),
    "a NaN costs its run alone": (where((0,), loss=math.nan), 23, {FIRST: "loss is NaN"}, {}),
    "without any loss": (where((3, 4, 5), loss=math.nan), 21, {}, {SECOND: "3 × loss is NaN"}),
    "one diverged replica censors its cell": (where((0,), loss=math.nan, status="diverged"), 21, {}, {FIRST: None}),
    # averaging the two good seeds of the deep net alone would flatter depth
    "a seed that keeps diverging is out at every depth": (
        lambda row, k: {"status": "diverged"} if row["depth"] == 12 and row["seed"] == 2 else {},
        16,
        None,
        {},
    ),
    # a loss near ln V is a guess: five steps of a sweep once read as a transition that is not reached
    "nets that learned nothing": (
        lambda row, k: near_chance(row) if k < 3 else {"vocab_size": 1000},
        21,
        {},
        {FIRST: None},
    ),
    "nets of no known vocabulary": (lambda row, k: {**near_chance(row), "vocab_size": None}, 24, {}, {}),
    # what is not known to be part of a recipe does not tell runs apart
    "an unknown column": (lambda row, k: {"stuff": k % 2}, 24, {}, {}),
    "rounded tokens": (lambda row, k: {"tokens": 10_000 + row["seed"]}, 24, {}, {}),
}


@pytest.mark.parametrize("name", COUNTED)
def test_these_runs_count(name):
    change, count, notes, excluded = COUNTED[name]
    selection = select_runs(rows(change))
    assert len(selection.runs) == count and (notes is None or selection.notes == notes)
    assert selection.excluded.keys() == excluded.keys()
    assert all(why is None or selection.excluded[shape] == why for shape, why in excluded.items())
    assert all(run.x == pytest.approx(math.log(12 * run.shape.depth * run.shape.width**2)) for run in selection.runs)
    if "seed" in name:
        assert {run.seed for run in selection.runs} == {0, 1} and "seed 2" in selection.diverged_rule
    else:
        assert bool(selection.warnings) == (None in excluded.values())


def test_a_learning_rate_that_diverged_is_no_candidate_and_one_that_learned_is_enough():
    table = [{**row, "learning_rate": rate, "weight_decay": 1e-4 / rate} for row in rows() for rate in (1e-3, 4e-3)]
    selection = select_runs(table)
    assert len(selection.runs) == 48 and not selection.warnings  # each rate with its own decay is an ordinary sweep
    table[1]["status"] = "diverged"
    selection = select_runs(table)
    assert {run.learning_rate for run in selection.runs if run.shape == FIRST} == {1e-3} and not selection.excluded
    table = [
        {**row, **near_chance(row)} if row["learning_rate"] < 2e-3 else {**row, "vocab_size": 1000} for row in table
    ]
    assert not select_runs(table[6:]).excluded


def test_repeated_rows_count_once_and_conflicting_ones_are_averaged():
    table = rows()
    selection = select_runs([*table, table[0], {**table[1], "loss": table[1]["loss"] + 0.01}])
    assert len(selection.runs) == 24 and len(selection.warnings) == 1
    assert next(run.loss for run in selection.runs if run.seed == 1) == pytest.approx(table[1]["loss"] + 0.005)


def test_a_setting_under_another_name_has_its_role_and_messages_name_the_column_of_the_table():
    table = read_table([*rows(batch=64), *({**row, "batch": 128, "loss": 1.0} for row in rows()[:3])])
    selection = select_runs(table.rows, theirs=table.theirs)
    assert len(selection.runs) == 24 and "batch = 128" in selection.notes[FIRST]
    assert selection.warnings[0].startswith("batch: 64, 128 within one shape; only batch = 64 is used there")
    assert "`where`" in selection.warnings[0]


def test_the_recipe_of_a_cell_is_chosen_by_the_user_where_the_table_does_not_say():
    """Warm-ups from 100 to 2000 steps once counted as replicates: σ came out at 0.47 nats."""
    table = [{**row, "warmup": warmup, "seed": None} for row in rows() for warmup in (100, 400)]
    for mixed, named, line in (
        (table, (), r"warmup \(100, 400 at 12×112\); choose, such as with where='warmup == "),
        ([{**row, "heads": heads} for row in table for heads in (2, 8)], (), r"where='heads == 8 and warmup == 400'"),
        (rows(lambda row, k: {"stuff": k % 2}), ["stuff"], r"stuff \(0, 1 at"),
        # runs without a dropout were averaged with runs that had one
        (rows(lambda row, k: {"dropout": (None, 0.1)[k % 2]}), (), r"dropout \(0.1, blank at"),
    ):
        with pytest.raises(InputError, match=line) as caught:
            select_runs(mixed, named=named)
        assert len(caught.value.lines) == 1 and "--" in caught.value.option_lines[0]
    assert len(select_runs([row for row in table if row["warmup"] == 400]).runs) == 24
    assert read_table(rows(stuff=1), ["extra=stuff"]).named == ("extra",)


def test_token_counts_of_some_shapes_only_are_not_averaged():
    table = rows(tokens=1000)
    table += [{**row, "tokens": 4000, "loss": row["loss"] - 1.0} for row in table[:6]]
    result = fit_table(table, no_adjust=["tokens"])
    assert max(cell["n"] for cell in result.cells) == 3 and min(cell["mean"] for cell in result.cells) > 2.6
    assert says(result.warnings, "fit: tokens differ within a shape")
    table = [{**row, "tokens": row["tokens"] * row["width"]} for row in table]  # in proportion to the size
    with pytest.raises(InputError, match=r"tokens \(64000, 256000 at 6×64\)"):
        fit_table(table, no_adjust=["tokens"])


def test_axes_are_checked():
    with pytest.raises(InputError, match="one of n_params, n_params_total"):
        select_runs(rows(), "params")
    with pytest.raises(InputError, match="no column of that name"):
        select_runs(rows(), "flops")
    selection = select_runs(rows(where((0,), flops=None), flops=1e15)[:3] + rows(flops=1e15)[3:], "flops")
    assert selection.runs[0].x == pytest.approx(math.log(1e15))


def test_nets_that_learned_nothing_claim_nothing():
    result = fit_table(rows(lambda row, k: near_chance(row)))
    (line,) = [line for line in result.warnings if line.startswith("NOT TRAINED")]
    assert "8 of 8 shapes" in line and "6.9" in line
    assert result.transitions == [] and all("not trained" in row["reason"] for row in result.cells)


@pytest.mark.parametrize(
    ("change", "columns", "line"),
    [
        (lambda r, k: {"n_params": 12e-6 * r["depth"] * r["width"] ** 2}, None, r"n_params: .* looks like millions"),
        (lambda r, k: {"loss": math.exp(r["loss"])}, None, r"loss: median .* looks like perplexity"),
        (lambda r, k: {"val_ppl": r["loss"]}, ["loss=val_ppl"], r"loss: column 'val_ppl'; it looks like perplexity"),
        (lambda r, k: {"loss": 1.0 / r["loss"]}, None, r"loss: all values from 0 to 1, .* looks like accuracy"),
        (
            lambda r, k: {"loss": 100 * math.exp(-r["loss"] / 3)},
            None,
            r"larger at larger N; it looks like accuracy in perc",
        ),
        (lambda r, k: {"eval/acc": 2.0}, ["loss=eval/acc"], r"loss: column 'eval/acc'; it looks like accuracy"),
        (lambda r, k: {"status": "fine"}, None, r"status: 'fine' in all 24 rows; a run counts where it is 'done'"),
    ],
)
def test_what_looks_like_something_else_is_refused_in_a_line(change, columns, line):
    with pytest.raises(InputError, match=line) as caught:
        fit_table(rows(change), columns=columns)
    assert len(caught.value.lines) == 1


def size(row):
    return 12 * row["depth"] * row["width"] ** 2


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda r, k: {"loss": 6.0 - r["loss"]}, "loss: it rises with N at depth 6, 12;"),
        (lambda r, k: {"bits_per_byte": r["loss"]}, "loss: equal to bits_per_byte, so it looks like bits"),
        (lambda r, k: {"n_params": 11 / 12 * size(r), "tokens": 20 * size(r)}, ""),
        # tokens that deep nets of equal size had more of
        (
            lambda r, k: {"tokens": (20 + r["depth"]) * size(r)},
            "TOKENS FOLLOW DEPTH (at equal size 12 layers have 23 % more than 6)",
        ),
    ],
)
def test_what_may_be_meant_is_warned_of(change, line):
    result = fit_table(rows(change))
    found = [*result.warnings, *result.provenance.account.notes]
    said = [text for text in found if text.startswith(("loss:", "TOKENS FOLLOW"))]
    assert len(said) == bool(line) and all(text.startswith(line) for text in said)


def test_losses_that_diverged_together_are_found_and_corners_of_steep_effects_are_none():
    x, y = (one.ravel() for one in np.meshgrid(np.linspace(15, 20, 9), np.log([3, 4, 6, 9, 14, 22, 34, 48])))
    away = y - 0.25 * (x - 17.0) - 2.3
    rng = np.random.default_rng(0)
    for effect in (0.06 * away**2, 0.1 * (np.cosh(away) - 1.0)):
        loss = 2.0 + np.exp(-0.14 * (x - 17.0)) + effect + rng.normal(0.0, 0.003, len(x))
        assert not off_surface(x, y, loss)
        bad = rng.choice(len(x), 8, replace=False)
        loss[bad] += np.repeat([0.5, 1.5, 4.0, 9.0], 2)
        assert {k for k, _, _ in off_surface(x, y, loss)} == set(bad.tolist())
