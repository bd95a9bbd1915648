"""Losses along a column: against the best value, with intervals that hold together."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from sentences import says

import dwsweep
from dwsweep.errors import InputError
from dwsweep.fit.along import _sizes, compared, fit_along
from dwsweep.fit.data.table import read_table
from dwsweep.records import fit as fit_record
from dwsweep.records.along import WORSE
from dwsweep.records.fit import FitOptions
from dwsweep.report import fit_report
from dwsweep.report import page as sweep_page
from dwsweep.terminal import plain_text
from tests.simulations.along import STUDY, AlongStudy, draw_along, summary
from tests.simulations.sweeps import SmoothTruth, draw

pytestmark = pytest.mark.usefixtures("surfaces_again", "at_equal_size_alone")

SHAPE_SD = 0.004  # by default
QUIET = {"sigma": 0.0005, "seed_sd": 0.02, "shape_sd": 0.0, "slope_sd": 0.0}
DEGRADES = AlongStudy((0.02, 0.0, 0.005, 0.06, 0.1), **QUIET)
ONE = AlongStudy(budgets=(1e5,))


def rows_of(study, seed=0):
    return draw_along(study, np.random.default_rng(seed))


def best(curve):
    return min(curve, key=lambda row: row.loss).value


def along(study, seed=0, **options):
    return fit_along(rows_of(study, seed), study.column, **options).along


@pytest.fixture(scope="module")
def degraded():
    return dwsweep.fit_table(rows_of(DEGRADES), along="heads")


# What is said


def test_where_it_degrades(degraded):
    found = degraded.along
    assert len(found.curves) == len(found.answer) == 2
    for curve in found.curves:
        assert best(curve) == 2 and {8, 16} <= {row.value for row in curve if row.verdict == WORSE}
    assert found.answer[0].startswith("L 2, N = 100K: best at heads 2 of 1, 2, 4, 8, 16")
    assert "; worse: " in found.answer[0] and "16 by 0.1" in found.answer[0]
    for row, record in zip(degraded.answers, found.rows, strict=True):
        assert (row.question, row.estimate, row.value) == ("difference", record.above_best, record.value)
        assert (row.reason == WORSE) == (record.verdict == WORSE)


def test_one_run_per_shape_claims_nothing():
    found = along(AlongStudy((0.0, 0.1, 0.2, 0.3, 0.4), seeds=1, budgets=(1e5,)))
    assert all(row.above_best_low is None and row.se is None and row.verdict != WORSE for row in found.rows)
    assert all(says(line, "fit: noise not known nothing claimed") for line in found.answer)


# What the numbers are


def test_what_seeds_share_cancels_and_the_luck_of_a_shape_does_not(degraded):
    """Seeds move all losses by 0.02 nats; two seeds of noise 0.0005 alone would give a tenth of these errors."""
    assert all(row.se == pytest.approx(SHAPE_SD, rel=0.35) for row in degraded.along.rows)


def test_losses_are_corrected_to_one_size():
    """With slopes that are known, sizes that miss their budget by a fifth change nothing; one size has a slope by
    default, with its error."""
    found = along(AlongStudy(off=0.2, **QUIET), seed=1)
    for curve in found.curves:
        losses, corrected = [row.loss - row.correction for row in curve], [row.loss for row in curve]
        assert max(losses) - min(losses) > 0.015 > 4 * (max(corrected) - min(corrected))
        assert not any(row.verdict == WORSE for row in curve)
    assert says(found.notes, "fit: losses corrected along curves")
    one = along(AlongStudy(budgets=(1e5,), off=0.2, **QUIET))
    assert says(one.notes, "fit: assumed slope of the loss")
    assert all(row.se == pytest.approx(math.hypot(row.correction, SHAPE_SD), rel=0.25, abs=1e-3) for row in one.rows)


def test_above_the_best_holds_whichever_is_best():
    """The best one's own interval says by how much another may be better; with two ties it is as wide as theirs."""
    (curve, *_) = along(AlongStudy((0.0, 0.0, 0.1, 0.1, 0.1), **QUIET)).curves
    tied = [row for row in curve if row.value in (1, 2)]
    assert all(row.above_best_low == 0.0 and row.above_best_high > 0.004 for row in tied)
    assert all(row.verdict == WORSE for row in curve if row.value > 2)


def test_vocabularies_are_compared_in_bits_per_byte():
    rows = rows_of(AlongStudy(column="vocab_size", values=(256, 1000), effects=(0.0, 0.0)))
    factors = {256: 0.5, 1000: 0.4}
    with_bits = [{**row, "bits_per_byte": factors[row["vocab_size"]] * row["loss"]} for row in rows]
    result = fit_along(with_bits, "vocab_size").along
    assert result.unit == "bits per byte"
    assert [row.loss for row in result.rows[:2]] == pytest.approx([2.0, 1.6], abs=0.05)


def test_the_unit_of_the_losses_moves_no_verdict():
    """A scatter of 0.004 that nothing shows was one of 0.004 bits too: a difference counted that did not in nats."""
    nats = rows_of(AlongStudy((0.012, 0.0, 0.005, 0.04, 0.1), **QUIET))
    bits = [{**row, "loss": row["loss"] / math.log(2)} for row in nats]
    one, other = (fit_along(rows, "heads", unit=unit) for rows, unit in ((nats, "nats"), (bits, "bits")))
    assert other.noise.shape_sd == pytest.approx(one.noise.shape_sd / math.log(2))
    for row, same in zip(one.along.rows, other.along.rows, strict=True):
        assert row.verdict == same.verdict
        assert row.above_best_high / math.log(2) == pytest.approx(same.above_best_high, rel=0.01, abs=1e-4)


def test_noise_and_scatter_along_depth_are_those_of_a_plain_fit_of_the_table():
    """One estimate each: the two commands differed in the scatter of a shape, and so in what they claimed."""
    sizes = np.geomspace(1e6, 1e8, 7)
    rows = draw(SmoothTruth((6, 12, 18, 24)), np.random.default_rng(0), budgets=lambda depth: sizes, shape_sd=0.002)
    plain, (arm, found) = dwsweep.fit_table(rows), compared(read_table(rows), "depth", FitOptions())
    noise = arm.noise
    for name in ("sigma", "df", "tau", "shape_sd", "shape_source", "source"):
        assert getattr(noise, name) == getattr(plain.noise, name), name
    assert noise.shape_source == "scatter" and noise.tau > 0.0
    errors = {cell.n_params: cell.se for cell in plain.cells}
    own = [row for row in found.rows if row.n_params in errors]
    assert len(own) == 28  # a shape moved to one size takes a share of its neighbour's error, or of the slope's
    assert all(row.se > 0.9 * errors[row.n_params] for row in own)


# What is refused


def test_several_arms_are_refused_with_what_answers_them():
    rows = [{**row, "recipe": name} for name in ("a", "b") for row in rows_of(ONE)]
    with pytest.raises(InputError, match=r"arm: .* holds 2 .a, b.* with compare=True, or choose one with where="):
        fit_along(rows, "heads", arm="recipe")
    with pytest.raises(InputError, match=r"along: 'heads'; not allowed with compare: "):
        dwsweep.fit_table(rows, along="heads", arm="recipe", compare=True)
    assert fit_along(rows, "heads", arm="recipe", where="arm == 'b'").along.rows


def test_sizes_that_follow_each_other_closely_are_no_one_size():
    """Twelve sizes from 4.7M to 15M, each within a factor of 1.25 of the next, were compared as one of 8.5M."""
    rows = [{"depth": 4, "width": round(320 * 1.055**k), "loss": 3.0} for k in range(12)]
    sizes = _sizes(read_table(rows))
    assert len(set(sizes.values())) > 2 and all(0.8 < n / at < 1.25 for n, at in sizes.items())


def test_a_budget_that_is_no_size_is_passed_over():
    rows = rows_of(ONE)
    sizes = [row["non_embedding_params"] for row in rows]
    found = fit_along([{**row, "budget": math.inf} for row in rows], "heads").along
    assert min(sizes) <= (found.rows[0].budget or 0.0) <= max(sizes)


def plainly(**more):
    return lambda row: [{**row, **more}]


VOCABULARY = AlongStudy(column="vocab_size", values=(256, 1000), effects=(0.0, 0.0), budgets=(1e5,))
REFUSED = [
    ("hedas", {}, plainly(), "column: 'hedas'; not a column of a list of rows, did you mean 'heads'"),
    ("loss", {}, plainly(), "column: 'loss'; a size, a result or a name of a run; allowed: depth, or a setting"),
    ("width", {}, plainly(), "'width'; a size, a result or a name of a run"),
    (
        "heads",
        {"params": [1e9]},
        plainly(),
        "params: 1000000000.0; losses along heads have no guideline",
    ),
    (
        "accuracy",
        {},
        lambda row: [{**row, "accuracy": 1.0 / row["loss"]}],
        "'accuracy'; a size, a result or a name of a run",
    ),
    ("depth", {}, plainly(), "column: 'depth' is 2 in every row of a list of rows; at least two values are compared"),
    ("name", {}, plainly(name="a"), "column: 'name' is 'a' in row 1; must be a column of numbers"),
    ("heads", {"axis": "flops"}, plainly(), "axis: flops; losses along a column are compared as they are, at equal"),
    ("heads", {"confidence": 1.0}, plainly(), "confidence: 1.0; must be a number from 0.5 to below 1"),
    ("heads", {}, plainly(loss=0.0), "no finished run with a usable loss"),
    # of accuracies the best value would be the worst
    (
        "heads",
        {"columns": ["loss=acc"]},
        lambda row: [{**row, "acc": 1.0 / row["loss"]}],
        "column 'acc'; it looks like",
    ),
    (
        "heads",
        {"adjust": ["batch"]},
        plainly(batch=8),
        "adjust: batch; losses along a column are compared as they are",
    ),
    ("heads", {"at": {"batch": 8}}, plainly(batch=8), "at: batch=8; losses along a column are compared as they are"),
    # two shapes at one value are not averaged, and recipes neither
    (
        "heads",
        {},
        lambda row: [row, {**row, "width": row["width"] + 40}],
        "two shapes of one size at heads 1, .*which would be averaged; choose",
    ),
    (
        "heads",
        {},
        lambda row: [{**row, "d_ff": 4 * row["width"] + more} for more in (0, 8)],
        "two shapes of one size at heads 1, .*averaged; choose, .*where='d_ff == ",
    ),
    (
        "heads",
        {},
        lambda row: [{**row, "batch_size": batch} for batch in (8, 16)],
        "recipes that differ within one shape would be averaged: batch_size .8, 16 at 2×65.; choose",
    ),
]


@pytest.mark.parametrize(("column", "options", "change", "line"), REFUSED)
def test_what_cannot_be_compared_is_named(column, options, change, line):
    with pytest.raises(InputError, match=line):
        fit_along([new for row in rows_of(ONE) for new in change(row)], column, **options)


def test_a_plain_fit_of_several_heads_points_here_and_vocabularies_need_bits_per_byte():
    rows = [{**row, "width": 64} for row in rows_of(replace(ONE, off=0.0))]
    with pytest.raises(InputError, match=r"or compare them with fit_table\(table, along='heads'\)") as caught:
        dwsweep.fit_table(rows)
    assert says(caught.value.option_lines[0], "fit: heads point to along")
    with pytest.raises(InputError, match=r"losses per token of different vocabularies cannot be compared"):
        fit_along(rows_of(VOCABULARY), "vocab_size")


# What a person gets


@pytest.mark.usefixtures("without_drawing")
def test_the_command_writes_one_table_one_figure_and_the_record(tmp_path, dwsweep):
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(rows_of(DEGRADES)))
    done = dwsweep("fit", file, "--along", "heads")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "sweep-fit"
    assert {path.name for path in out.iterdir()} == {"answers.csv", "fit.json", "along.csv", "along.png", "along.svg"}
    table = list(csv.DictReader((out / "along.csv").open()))
    assert len(table) == 10
    again = fit_record.read_any(out)
    assert best(again.along.curves[0]) == 2 and not again.cells and not again.transitions
    with pytest.raises(InputError, match="losses along heads and no best depth"):
        fit_record.read(out)
    assert again.along.answer[0] in " ".join(plain_text(fit_report.render(again)).split())
    page = sweep_page.write(out).read_text("utf-8")
    assert "Loss along heads" in page and 'id="transitions"' not in page
    (out / "fit.json").write_text(again.to_json().replace('"unit":', '"unit": "nats", "unit":', 1))
    with pytest.raises(InputError, match="'unit' is there twice"):
        fit_record.read_any(out)


def heap(*names):
    """Runs that differ in some of batch, context and warm-up, too."""
    rng, rows = np.random.default_rng(0), []
    for depth in (4, 8, 16):
        for n in np.geomspace(1e6, 1e8, 8):
            more = {"batch_size": (32, 64), "seq_len": (256, 512), "warmup": (100, 200)}
            more = {name: int(rng.choice(values)) for name, values in more.items()}
            loss = 3.0 * (n / 1e7) ** -0.1 + 0.05 * math.log(depth / 8) ** 2 + 0.02 * math.log(more["batch_size"] / 32)
            row = {
                "depth": depth,
                "width": 8 * round(math.sqrt(n / 12 / depth) / 8),
                "loss": loss + rng.normal(0, 0.002),
            }
            rows.append(row | {name: more[name] for name in names})
    return rows


def test_losses_along_a_column_of_a_heap_are_said_to_be_as_they_are():
    found = fit_along(heap("batch_size", "seq_len", "warmup"), "depth").along
    assert found.answer[0].startswith("NOT ADJUSTED: ") and says(found.answer[0], "fit: not adjusted along depth")
    beside = fit_along(heap("batch_size"), "depth")
    assert beside.adjusted and beside.along.answer[0].startswith("NOT ADJUSTED: batch_size changes along depth")
    assert "NOT ADJUSTED: batch_size" in plain_text(fit_report.render(beside))
    alone = fit_along(heap(), "depth")
    assert not any("NOT ADJUSTED" in line for line in alone.along.answer)


@pytest.mark.parametrize(("tried", "told"), [([1.0], True), ([0.5, 1.0, 2.0], False)])
def test_a_learning_rate_of_each_value_is_named_unless_it_is_the_best_of_several(tried, told):
    """Losses rise with the distance from a best rate of 1e-3 times the number of heads."""
    rows = [
        {**row, "learning_rate": 1e-3 * row["heads"] * factor, "loss": row["loss"] + 0.05 * math.log(factor) ** 2}
        for row in rows_of(DEGRADES)
        for factor in tried
    ]
    said = fit_along(rows, "heads").along.answer[0]
    assert said.startswith("NOT ADJUSTED: learning_rate changes along heads") is told


# Whether the intervals hold


@pytest.mark.slow
@pytest.mark.parametrize("name", ["identical", "degrades"])
def test_coverage_in_brief(name):
    """Forty simulations each: the bounds are what a true coverage of 95 % leaves with one failure in ten thousand, and
    what half of the error bars would not reach."""
    found = summary([STUDY.one(name, index) for index in range(40)])
    assert (found["best"] or 0.0) >= 0.83 and (found["wrongly"] or 0.0) <= 0.1
