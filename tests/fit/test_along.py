"""Losses along a column: against the best value and another arm, with intervals that hold together."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import shown
from cli_tools import Command
from sentences import says, shows

import dwsweep
from dwsweep.errors import InputError
from dwsweep.fit.along import fit_along, fit_beside_along
from dwsweep.records import fit as fit_record
from dwsweep.records.along import NEITHER, OTHER, WORSE, Along
from dwsweep.records.fit import AlongFit, FitResult
from dwsweep.report import fit_report
from dwsweep.report import page as sweep_page
from dwsweep.terminal import plain_text
from tests.simulations.along import STUDY, AlongStudy, along_studies, draw_along, summary
from tests.simulations.sweeps import SmoothTruth, draw

pytestmark = pytest.mark.usefixtures("surfaces_again", "at_equal_size_alone")

DRAWS = 400
QUIET = {"sigma": 0.0005, "seed_sd": 0.02, "shape_sd": 0.0, "slope_sd": 0.0}
DEGRADES = AlongStudy((0.02, 0.0, 0.005, 0.06, 0.1), (0.02, 0.02, 0.0, 0.0, 0.0), **QUIET)


def rows_of(study: AlongStudy, seed: int = 0) -> list[dict]:
    """One table, its arms told apart by a column."""
    tables = draw_along(study, np.random.default_rng(seed))
    return [{**row, "arm": name} for name, rows in zip(("standard", "fixed"), tables, strict=False) for row in rows]


def along(study: AlongStudy, seed: int = 0, **options: object) -> Along:
    (rows, *_) = draw_along(study, np.random.default_rng(seed))
    found = fit_along(rows, study.column, draws=DRAWS, **options).along
    return found


@pytest.fixture(scope="module")
def degraded() -> AlongFit:
    return dwsweep.fit_table(rows_of(DEGRADES), along="heads", draws=DRAWS)


# What is said


def test_where_it_degrades_and_where_the_arms_part(degraded: AlongFit) -> None:
    found = degraded.along
    assert found is not None and found.arms == ("standard", "fixed")
    standard = [curve for curve in found.curves if curve.arm == "standard"]
    assert [(curve.best, curve.worse_from, curve.worst) for curve in standard] == [(2, 8, 16)] * 2
    assert all(
        says(curve.sentence, "fit: worse from a number of heads on") and "degrades" in curve.sentence
        for curve in standard
    )
    for curve in (curve for curve in found.curves if curve.arm == "fixed"):
        assert curve.worse_from is None and says(curve.sentence, "fit: no degradation")
    for one_ in found.partings:
        assert (one_.ahead, one_.start) == (OTHER, 8)
        assert one_.after in (None, 2)  # at 2 heads the standard one is ahead, by 0.02
        assert says(one_.sentence, "fit: ahead from a number of heads on")
    assert found.partings[0].sentence in found.answer[0] and len(found.answer) == 6


def test_arms_that_are_alike_are_not_said_to_part() -> None:
    alike = replace(DEGRADES, second=DEGRADES.first)
    found = fit_along(rows_of(alike), "heads", draws=DRAWS).along
    assert found is not None and {one_.ahead for one_ in found.partings} == {NEITHER}
    assert says(found.answer[0], "fit: divergence not shown")


def test_one_run_per_shape_claims_nothing() -> None:
    found = along(AlongStudy((0.0, 0.1, 0.2, 0.3, 0.4), seeds=1, budgets=(1e5,)))
    assert all(row.above_best_low is None and row.se is None and row.verdict != WORSE for row in found.rows)
    assert all(says(line, "fit: noise not known nothing claimed") for line in found.answer)


def test_the_spread_over_depths_is_in_percent_of_the_loss() -> None:
    study = replace(along_studies()["spread 0.02 over depths"], **QUIET, off=0.0)
    result = fit_along(draw_along(study, np.random.default_rng(0))[0], "depth", draws=DRAWS, shape_noise=0.0)
    assert result.along is not None
    for curve in result.along.curves:
        assert curve.depth is None and (curve.best, curve.worst) == (8, 1)
        assert curve.spread == pytest.approx(0.02, abs=0.002)
        assert curve.spread_low is not None and curve.spread_high is not None
        assert curve.spread_low < 0.02 < curve.spread_high
    percent = result.along.curves[0].percent(0.02)
    assert percent == pytest.approx(100 * 0.02 / 4.0, rel=0.02)
    text = " ".join(shown.summary(result).split())
    assert text.count("shape matters") == 2  # of the runs, at either size; the fitted loss does not say it once more
    assert says(text, "fit: shape matters")


# What the numbers are


def test_what_seeds_share_cancels_and_the_luck_of_a_shape_does_not(degraded: AlongFit) -> None:
    """Seeds move all losses by 0.02 nats; two seeds of noise 0.0005 alone would give a tenth of these errors."""
    assert degraded.along is not None
    default_shape_sd = 0.004
    for row in degraded.along.rows:
        assert row.se == pytest.approx(default_shape_sd, rel=0.35)
    without = along(replace(DEGRADES, off=0.0), shape_noise=0.0)
    assert all(row.se is not None and row.se < 0.0006 for row in without.rows)


def test_losses_are_corrected_to_one_size() -> None:
    """With slopes that are known, sizes that miss their budget by a fifth change nothing."""
    study = AlongStudy(off=0.2, **QUIET)
    found = along(study, seed=1, shape_noise=0.0)
    for curve in found.curves:
        losses = [row.loss - row.correction for row in curve.rows if row.loss is not None]
        corrected = [row.loss for row in curve.rows if row.loss is not None]
        assert max(losses) - min(losses) > 0.015 > 4 * (max(corrected) - min(corrected))
        assert not any(row.verdict == WORSE for row in curve.rows)
    assert says(found.notes, "fit: losses corrected along curves")


def test_one_size_has_a_slope_by_default_with_its_error() -> None:
    found = along(AlongStudy(budgets=(1e5,), off=0.2, **QUIET), shape_noise=0.0)
    assert says(found.notes, "fit: assumed slope of the loss")
    errors = [(abs(row.correction), row.se) for row in found.rows]
    assert all(se == pytest.approx(correction, rel=0.25, abs=1e-3) for correction, se in errors)


def test_above_the_best_holds_whichever_is_best() -> None:
    """The best one's own interval says by how much another may be better; with two ties it is as wide as theirs."""
    (curve, *_) = along(AlongStudy((0.0, 0.0, 0.1, 0.1, 0.1), **QUIET)).curves
    tied = [row for row in curve.rows if row.value in (1, 2)]
    assert all(row.above_best_low == 0.0 and row.above_best_high and row.above_best_high > 0.004 for row in tied)
    assert all(row.verdict == WORSE for row in curve.rows if row.value > 2)


def test_vocabularies_are_compared_in_bits_per_byte() -> None:
    rows = draw_along(AlongStudy(column="vocab_size", values=(256, 1000), first=(0.0, 0.0)), np.random.default_rng(0))[
        0
    ]
    factors = {256: 0.5, 1000: 0.4}
    with_bits = [{**row, "bits_per_byte": factors[row["vocab_size"]] * row["loss"]} for row in rows]
    result = fit_along(with_bits, "vocab_size", draws=DRAWS).along
    assert result is not None and result.unit == "bits per byte"
    assert [row.loss for row in result.rows[:2]] == pytest.approx([2.0, 1.6], abs=0.05)
    with pytest.raises(InputError, match=r"losses per token of different vocabularies cannot be compared"):
        fit_along(rows, "vocab_size", draws=DRAWS)


# What is refused


@pytest.mark.parametrize(
    ("column", "options", "line"),
    [
        ("hedas", {}, "column: 'hedas'; not a column of a list of rows, did you mean 'heads'?"),
        ("loss", {}, "column: 'loss'; a result or a name of a run; allowed: a setting of the run"),
        ("depth", {}, "column: 'depth' is 2 in every row of a list of rows; at least two values are compared"),
        ("name", {}, "column: 'name' is 'a' in row 1; must be a column of numbers"),
        ("heads", {"axis": "flops"}, "axis: 'flops'; along a column losses are compared at n_params"),
        ("heads", {"confidence": 1.0}, "confidence: 1.0; must be a number from 0.5 to below 1"),
        ("heads", {"draws": 10}, "draws: 10; must be an integer of at least 100"),
        ("heads", {"draws": 10**9}, "draws: 1000000000; must be an integer of at least 100, at most 100,000"),
    ],
)
def test_what_cannot_be_compared_is_named(column: str, options: dict, line: str) -> None:
    rows = [{**row, "name": "a"} for row in draw_along(AlongStudy(), np.random.default_rng(0))[0]]
    with pytest.raises(InputError) as error:
        fit_along(rows, column, **options)
    assert str(error.value).startswith(line)


def test_an_arm_without_a_usable_loss_is_said_and_the_others_are_compared() -> None:
    rows = rows_of(replace(DEGRADES, budgets=(1e5,)))
    gone = [{**row, "arm": "gone", "loss": math.nan} for row in rows if row["arm"] == "fixed"]
    found = fit_along([*rows, *gone], "heads", draws=DRAWS).along
    assert found is not None and found.arms == ("standard", "fixed") and found.partings
    assert shows(found.notes[0], "fit: an arm without a loss", numbers=True)
    with pytest.raises(InputError, match=r"gone has no finished run with a usable loss"):
        fit_along([*gone, *rows], "heads", draws=DRAWS)


@pytest.mark.parametrize("budget", ["large", -1.0, math.inf])
def test_a_budget_that_is_no_size_is_passed_over(budget: object) -> None:
    (rows, *_) = draw_along(replace(DEGRADES, budgets=(1e5,)), np.random.default_rng(0))
    sizes = [row["non_embedding_params"] for row in rows]
    found = fit_along([{**row, "budget": budget} for row in rows], "heads", draws=DRAWS).along
    assert found is not None and min(sizes) <= (found.curves[0].budget or 0.0) <= max(sizes)


def test_losses_of_zero_are_no_measurement() -> None:
    (rows, *_) = draw_along(along_studies()["spread 0.02 over depths"], np.random.default_rng(0))
    with pytest.raises(InputError, match="no finished run with a usable loss"):
        fit_along([{**row, "loss": 0.0} for row in rows], "depth", draws=DRAWS)


def test_two_shapes_at_one_value_are_not_averaged() -> None:
    rows = draw_along(AlongStudy(), np.random.default_rng(0))[0]
    doubled = rows + [{**row, "width": row["width"] + 40} for row in rows]
    with pytest.raises(InputError, match=r"two shapes of one size at heads 1, .*which would be averaged; choose"):
        fit_along(doubled, "heads")
    inner = [{**row, "d_ff": 4 * row["width"] + more} for row in rows for more in (0, 8)]
    with pytest.raises(InputError, match=r"two shapes of one size at heads 1, .*averaged; choose, .*where='d_ff == "):
        fit_along(inner, "heads")  # of one width: the inner width is what is chosen
    recipes = rows + [{**row, "batch_size": 16} for row in rows]
    with pytest.raises(InputError, match=r"at heads 1: recipes that differ within one shape would be averaged"):
        fit_along([{"batch_size": 8, **row} for row in recipes], "heads")


def test_a_plain_fit_of_several_heads_points_here() -> None:
    rows = [
        {**row, "width": 64} for row in draw_along(AlongStudy(budgets=(1e5,), off=0.0), np.random.default_rng(0))[0]
    ]
    with pytest.raises(InputError, match=r"or compare them with fit_table\(table, along='heads'\)") as caught:
        dwsweep.fit_table(rows)
    assert says(caught.value.option_lines[0], "fit: heads point to along")


# What a person gets


def test_the_command_writes_one_table_one_figure_and_the_record(tmp_path: Path, dwsweep: Command) -> None:
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(rows_of(DEGRADES)))
    done = dwsweep("fit", file, "--along", "heads", "--draws", "400")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "sweep-fit"
    assert {path.name for path in out.iterdir()} == {"answers.csv", "fit.json", "along.csv", "along.png", "along.svg"}
    table = list(csv.DictReader((out / "along.csv").open()))
    assert len(table) == 20 and {row["arm"] for row in table} == {"standard", "fixed"}
    again = fit_record.read_any(out)
    assert isinstance(again, fit_record.AlongFit)
    with pytest.raises(InputError, match="losses along heads and no best depth"):
        fit_record.read(out)
    assert not {"transitions", "surface", "cells"} & {*again.to_dict()}
    assert json.loads((out / "fit.json").read_text())["along"]["curves"][0]["best"] == 2
    assert again.along.answer[0] in " ".join(plain_text(fit_report.render(again)).split())
    page = sweep_page.write(out).read_text("utf-8")
    assert "Loss along heads" in page and "from 8 heads on" in page and 'id="transitions"' not in page


def test_a_record_that_names_a_key_twice_is_refused(degraded: AlongFit, tmp_path: Path) -> None:
    file, text = tmp_path / "fit.json", degraded.to_json()
    file.write_text(text)
    assert fit_record.read_any(file).to_json() == degraded.to_json()
    file.write_text(text.replace('"unit":', '"unit": "nats", "unit":', 1))
    with pytest.raises(InputError, match="'unit' is there twice"):
        fit_record.read_any(file)


# Whether the intervals hold


@pytest.mark.slow
def test_coverage_in_brief() -> None:
    """Forty simulations each: the bounds are what a true coverage of 95 % leaves with one failure in ten thousand, and
    what half of the error bars would not reach."""
    for name in ("identical", "two arms part"):
        found = summary([STUDY.one(name, index) for index in range(40)])
        for key in ("best", "spread", *(["apart"] if name == "two arms part" else [])):
            assert (found[key] or 0.0) >= 0.83, (name, key)
        assert (found["wrongly"] or 0.0) <= 0.1 and (found["part wrongly"] or 0.0) <= 0.1


def test_noise_and_scatter_along_depth_are_those_of_a_plain_fit_of_the_table() -> None:
    """One estimate each: the two commands differed in the scatter of a shape, and so in what they claimed."""
    sizes = np.geomspace(1e6, 1e8, 7)
    rows = draw(SmoothTruth((6, 12, 18, 24)), np.random.default_rng(0), budgets=lambda depth: sizes, shape_sd=0.002)
    one_size = [row for row in rows if abs(math.log(row["depth"] * row["width"] ** 2 * 12 / sizes[3])) < 0.1]
    for table, parts in ((rows, 28), (one_size, 4)):
        plain = dwsweep.fit_table(table, draws=DRAWS)
        found = fit_along(table, "depth", draws=DRAWS)
        for name in ("sigma", "df", "tau", "tau_df", "shape_sd", "shape_source", "source"):
            assert getattr(found.noise, name) == getattr(plain.noise, name), name
        assert plain.noise.shape_source == "surface" and found.noise.tau > 0.0  # type: ignore[operator]
        errors = {cell.n_params: cell.se for cell in plain.cells}
        rows_of = [row for row in found.along.rows if row.n_params in errors]
        assert len(rows_of) == parts
        for row in rows_of:  # a shape moved to one size takes a share of its neighbour's error, or of the slope's
            assert row.se is not None and row.se > 0.9 * (errors[row.n_params] or 0.0)


def heap(seed: int = 0) -> list[dict]:
    """Runs that differ in batch, context and warm-up, too."""
    rng, rows = np.random.default_rng(seed), []
    for depth in (4, 8, 16):
        for n in np.geomspace(1e6, 1e8, 8):
            row = {"depth": depth, "width": 8 * round(math.sqrt(n / 12 / depth) / 8)}
            more = {"batch_size": int(rng.choice([32, 64])), "seq_len": int(rng.choice([256, 512]))}
            loss = 3.0 * (n / 1e7) ** -0.1 + 0.05 * math.log(depth / 8) ** 2 + 0.02 * math.log(more["batch_size"] / 32)
            warm = {"warmup": int(rng.choice([100, 200]))}
            rows.append({**row, **more, **warm, "loss": loss + rng.normal(0, 0.002)})
    return rows


def test_a_heap_is_said_not_to_be_adjusted_along_a_column() -> None:
    found = fit_along(heap(), "depth", draws=DRAWS).along
    assert found.answer[0].startswith("NOT ADJUSTED: ") and says(found.answer[0], "fit: not adjusted along depth")
    for option in ({"adjust": ["batch_size"]}, {"at": {"batch_size": 32}}, {"no_adjust": ["batch_size"]}):
        with pytest.raises(InputError, match=r"'batch_size'; losses along a column are compared as they are"):
            fit_along(heap(), "depth", draws=DRAWS, **option)


def test_losses_along_depth_beside_an_adjusted_fit_are_said_to_be_as_they_are() -> None:
    """Two settings were too few for the line, though the table above it was adjusted for both."""
    rows = [{name: value for name, value in row.items() if name not in ("seq_len", "warmup")} for row in heap()]
    found = fit_beside_along(rows, "depth", draws=DRAWS)
    assert isinstance(found, FitResult) and found.adjusted and found.along
    assert found.along.answer[0] == "NOT ADJUSTED: losses along depth are as they are, and not at held values of batch"
    text = plain_text(fit_report.render(found))
    assert "NOT ADJUSTED: losses along depth" in text
    bare = [{name: value for name, value in row.items() if name != "batch_size"} for row in rows]
    alone = fit_beside_along(bare, "depth", draws=DRAWS)
    assert alone.along and not any("NOT ADJUSTED" in line for line in alone.along.answer)


def test_the_unit_of_the_losses_moves_no_verdict_along_a_column() -> None:
    """A scatter of 0.004 that nothing shows was one of 0.004 bits too: a difference counted that did not in nats."""
    nats = rows_of(AlongStudy((0.012, 0.0, 0.005, 0.04, 0.1), (0.012, 0.0, 0.0, 0.0, 0.0), **QUIET))
    bits = [{**row, "loss": row["loss"] / math.log(2)} for row in nats]
    found = [fit_along(rows, "heads", draws=DRAWS, unit=unit) for rows, unit in ((nats, "nats"), (bits, "bits"))]
    assert found[1].noise.shape_sd == pytest.approx(found[0].noise.shape_sd / math.log(2))
    one, other = (along.along for along in found)
    assert [row.verdict for row in one.rows] == [row.verdict for row in other.rows]
    for row, same in zip(one.rows, other.rows, strict=True):
        assert row.above_best_high / math.log(2) == pytest.approx(same.above_best_high, rel=0.01, abs=1e-4)
