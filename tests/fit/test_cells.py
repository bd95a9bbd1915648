"""Which runs count: missing, diverged, repeated and mixed rows, and what is said about each."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sentences import says

from dwsweep import fit_table
from dwsweep.errors import InputError
from dwsweep.fit.cells import Shape, off_surface, select_runs
from dwsweep.fit.data.table import read_table

WIDTHS = {6: (64, 96, 128, 160), 12: (48, 64, 96, 112)}


def rows(**columns):
    return [
        {"depth": depth, "width": width, "seed": seed, "loss": 3.0 - 0.1 * k + 0.001 * seed, **columns}
        for depth, widths in WIDTHS.items()
        for k, width in enumerate(widths)
        for seed in range(3)
    ]


def test_every_finished_run_counts():
    selection = select_runs(rows())
    assert len(selection.runs) == 24 and not selection.excluded and not selection.warnings
    assert selection.runs[0].n_params == 12 * 6 * 64**2
    assert selection.runs[0].x == pytest.approx(math.log(12 * 6 * 64**2))


def test_failed_runs_are_missing_at_random():
    table = rows()
    table[0]["status"] = "failed"
    for row in table[3:6]:
        row["status"] = "oom"
    selection = select_runs(table)
    assert len(selection.runs) == 20
    assert selection.notes == {Shape(6, 64): "failed"}
    assert selection.excluded == {Shape(6, 96): "3 × oom"}


def test_a_loss_that_is_nan_costs_its_run_alone():
    table = rows()
    table[0]["loss"] = math.nan
    selection = select_runs(table)
    assert not selection.excluded and selection.notes == {Shape(6, 64): "loss is NaN"}
    assert [run.seed for run in selection.runs if run.shape == Shape(6, 64)] == [1, 2]
    for row in table[3:6]:
        row["loss"] = math.nan
    assert select_runs(table).excluded == {Shape(6, 96): "3 × loss is NaN"}
    assert read_table(table).left_out == {"loss is NaN": 4}


def test_one_diverged_replica_censors_its_cell():
    table = rows()
    table[0] |= {"loss": math.nan, "status": "diverged"}
    selection = select_runs(table)
    assert Shape(6, 64) in selection.excluded
    assert all(run.shape != Shape(6, 64) for run in selection.runs)
    assert len(selection.runs) == 21
    assert any("diverged" in line for line in selection.warnings)


def test_a_seed_that_keeps_diverging_is_left_out_at_every_depth():
    """Averaging the two good seeds of the deep net alone would flatter depth."""
    table = rows()
    for row in table:
        if row["depth"] == 12 and row["seed"] == 2:
            row["status"] = "diverged"
    selection = select_runs(table)
    assert {run.seed for run in selection.runs} == {0, 1}
    assert len({run.shape for run in selection.runs}) == 8
    assert "seed 2" in selection.diverged_rule


def test_a_learning_rate_that_diverged_is_no_candidate():
    table = [{**row, "learning_rate": rate} for row in rows() for rate in (1e-3, 4e-3)]
    table[1]["status"] = "diverged"
    selection = select_runs(table)
    assert {run.learning_rate for run in selection.runs if run.shape == Shape(6, 64)} == {1e-3}
    assert not selection.excluded


def test_repeated_rows_count_once_and_conflicting_ones_are_averaged():
    table = rows()
    selection = select_runs([*table, table[0], {**table[1], "loss": table[1]["loss"] + 0.01}])
    assert len(selection.runs) == 24
    assert next(run.loss for run in selection.runs if run.seed == 1) == pytest.approx(table[1]["loss"] + 0.005)
    assert len(selection.warnings) == 2


def test_mixed_recipes_within_a_shape_are_not_averaged():
    table = rows(heads=2) + [{**row, "heads": 8, "loss": 1.0} for row in rows()[:3]]
    selection = select_runs(table)
    assert {run.row["heads"] for run in selection.runs} == {2}
    assert "heads = 8" in selection.notes[Shape(6, 64)]
    assert any("`where`" in line for line in selection.warnings)


def test_the_recipe_of_a_cell_is_chosen_by_the_user_where_the_table_does_not_say():
    """Warm-ups from 100 to 2000 steps once counted as replicates: σ came out at 0.47 nats."""
    table = [{**row, "warmup": warmup, "seed": None} for row in rows() for warmup in (100, 400)]
    with pytest.raises(
        InputError, match=r"warmup \(100, 400 at 12×112\); choose, such as with where='warmup == "
    ) as caught:
        select_runs(table)
    assert len(caught.value.lines) == 1
    assert '--where "warmup == 400"' in caught.value.option_lines[0]
    assert len(select_runs([row for row in table if row["warmup"] == 400]).runs) == 24
    two = [{**row, "heads": heads} for row in table for heads in (2, 8)]
    with pytest.raises(InputError, match=r"where='heads == 8 and warmup == 400'"):
        select_runs(two)
    with pytest.raises(InputError, match=r"rename with columns=\{'learning_rate': 'lr'\}"):
        select_runs([{**row, "lr": row.pop("warmup")} for row in [dict(row) for row in table]])
    # what is not known to be part of a recipe counts where the user has given it a name
    foreign = [{**row, "stuff": k % 2} for k, row in enumerate(rows())]
    assert len(select_runs(foreign).runs) == 24
    with pytest.raises(InputError, match=r"stuff \(0, 1 at"):
        select_runs(foreign, named=["stuff"])
    assert read_table(foreign, ["extra=stuff"]).named == ("extra",)


def test_token_counts_of_some_shapes_only_are_not_averaged():
    table = rows(tokens=1000)
    table += [{**row, "tokens": 4000, "loss": row["loss"] - 1.0} for row in table[:6]]
    result = fit_table(table, draws=100, no_adjust=["tokens"])
    assert max(cell["n"] for cell in result.cells) == 3 and min(cell["mean"] for cell in result.cells) > 2.6
    assert says(result.warnings, "fit: tokens differ within a shape")
    for row in table:
        row["tokens"] = row["tokens"] * row["width"]  # in proportion to the size
    with pytest.raises(InputError, match=r"tokens \(64000, 256000 at 6×64\)"):
        fit_table(table, draws=100, no_adjust=["tokens"])
    rounded = [{**row, "tokens": 10_000 + row["seed"]} for row in rows()]
    assert len(select_runs(rounded).runs) == 24 and not select_runs(rounded).warnings


def test_an_ordinary_sweep_is_not_refused():
    """Several rates with their own weight decay, seeds, and all that differs between runs for other reasons."""
    table = [
        {**row, "learning_rate": rate, "weight_decay": 1e-4 / rate, "run_id": f"r{k}", "wall_seconds": 1.0 + k}
        for k, row in enumerate(rows(heads=2, batch_size=8, warmup_steps=20, tokens=1000, steps=10, schedule="cosine"))
        for rate in (1e-3, 4e-3)
    ]
    selection = select_runs(table)
    assert len(selection.runs) == 48 and not selection.warnings


def test_axes_are_checked():
    with pytest.raises(InputError, match="one of n_params, n_params_total"):
        select_runs(rows(), "params")
    with pytest.raises(InputError, match="no column of that name"):
        select_runs(rows(), "flops")
    table = rows(flops=1e15)
    table[0]["flops"] = None
    selection = select_runs(table, "flops")
    assert selection.notes[Shape(6, 64)] == "no flops"
    assert selection.runs[0].x == pytest.approx(math.log(1e15))


def test_nets_that_learned_nothing_are_left_out_and_claim_nothing():
    """A loss near ln V is a guess: five steps of a sweep once read as a transition that is not reached."""
    table = rows(vocab_size=1000)
    for row in table:
        row["loss"] += math.log(1000) - 3.0 - 0.2
    result = fit_table(table, draws=100)
    (line,) = [line for line in result.warnings if line.startswith("NOT TRAINED")]
    assert "8 of 8 shapes" in line and "6.9" in line
    assert result.transitions == [] and all("not trained" in row["reason"] for row in result.cells)
    partly = rows(vocab_size=1000)
    for row in partly[:3]:
        row["loss"] = 6.9
    selection = select_runs(partly)
    assert set(selection.excluded) == {Shape(6, 64)} and "1 of 8" in selection.warnings[0]
    # one learning rate that learned is enough, and without a vocabulary nothing is known
    assert not select_runs([*partly, *({**row, "learning_rate": 1.0, "loss": 3.0} for row in partly[:3])]).excluded
    assert not select_runs([{**row, "vocab_size": None} for row in table]).excluded


def measured(change):
    return [{**row, **change(row)} for row in rows()]


@pytest.mark.parametrize(
    ("change", "columns", "line"),
    [
        (lambda r: {"n_params": 12e-6 * r["depth"] * r["width"] ** 2}, None, r"n_params: .* it looks like millions"),
        (lambda r: {"loss": math.exp(r["loss"])}, None, r"loss: median .* looks like perplexity"),
        (lambda r: {"val_ppl": r["loss"]}, ["loss=val_ppl"], r"loss: column 'val_ppl'; it looks like perplexity"),
        (lambda r: {"loss": 1.0 / r["loss"]}, None, r"loss: all values from 0 to 1, .* looks like accuracy"),
        (lambda r: {"eval/acc": 2.0}, ["loss=eval/acc"], r"loss: column 'eval/acc'; it looks like accuracy"),
        (lambda r: {"status": "fine"}, None, r"status: 'fine' in all 24 rows; a run counts where it is 'done'"),
    ],
)
def test_what_looks_like_something_else_is_refused_in_a_line(change, columns, line):
    with pytest.raises(InputError, match=line) as caught:
        fit_table(measured(change), columns=columns, draws=100)
    assert len(caught.value.lines) == 1


@pytest.mark.parametrize(
    ("change", "columns", "line"),
    [
        (lambda r: {"loss": 6.0 - r["loss"]}, None, "loss: it rises with N at depth 6, 12;"),
        (lambda r: {"bits_per_byte": r["loss"]}, None, "loss: equal to bits_per_byte, so it looks like bits"),
    ],
)
def test_what_may_be_meant_is_warned_of(change, columns, line):
    assert any(text.startswith(line) for text in fit_table(measured(change), columns=columns, draws=100).warnings)
    ordinary = fit_table(measured(lambda r: {"n_params": 11 * r["depth"] * r["width"] ** 2}), draws=100)
    assert not any(text.startswith("loss:") for text in ordinary.warnings)


def test_tokens_that_deep_nets_of_equal_size_had_more_of_are_named_before_the_answer():
    size = lambda r: 12 * r["depth"] * r["width"] ** 2  # noqa: E731
    for tokens, said in ((lambda r: 20 * size(r), False), (lambda r: (20 + r["depth"]) * size(r), True)):
        notes = fit_table(measured(lambda r, of=tokens: {"tokens": of(r)}), draws=100).provenance.account.notes
        found = any(
            line.startswith("TOKENS FOLLOW DEPTH (at equal size 12 layers have 23 % more than 6)") for line in notes
        )
        assert found == said, notes


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
