"""Which runs count: missing, diverged, repeated and mixed rows, and what is said about each."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sentences import says

from dwsweep import fit_table
from dwsweep.errors import InputError
from dwsweep.fit.data.impossible import off_surface
from dwsweep.fit.data.runs import TableShape, select_runs
from dwsweep.fit.data.table import read_table

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
