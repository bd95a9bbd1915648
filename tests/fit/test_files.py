"""The files of a fit: their columns, valid JSON, what reads them back, and what they take from a sweep directory."""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import math
import os
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
import report_sweeps
import typer
from report_sweeps import write_csv
from sentences import says, shows

import dwsweep
from dwsweep import jsonl
from dwsweep.cli.app import app
from dwsweep.errors import InputError
from dwsweep.fit.data.runs import select_runs
from dwsweep.fit.data.table import read_table
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.fit.statistics.documents import document_covariance
from dwsweep.interval import Interval
from dwsweep.records import fit as fit_record
from dwsweep.records import record
from dwsweep.records.adjusted import AdjustedColumn, Adjustment
from dwsweep.records.answers import AnswerRow
from dwsweep.records.run import RunResult
from dwsweep.report import fit_report
from dwsweep.report.figures import registry
from tests.simulations.sweeps import SmoothTruth, draw

CONTRACT = {
    "answers.csv": "question,equal,n_params,tokens,cost,arm,column,value,depth,depth_low,depth_high,width,width_low,"
    "width_high,worst_depth,worst_percent,monte_carlo_error,reason",
    "cells.csv": "depth,width,n_params,mean,se,n,learning_rate,excluded,reason",
    "transitions.csv": "shallow,deep,estimator,status,n_params,n_params_low,n_params_high,width,width_low,width_high,"
    "se_ln_n,slope_difference,sup_t_left,sup_t_right,sign_changes,n_seeds,sigma,df,confidence,interval_method",
    "guideline.csv": "name,n_params,trained_depth,trained_width,depth,depth_low,depth_high,width,width_low,width_high,"
    "depth_int,width_int,n_params_actual,law,rival_depth_min,rival_depth_max,extrapolation_factor,loss_penalty,"
    "penalty_low,penalty_high,equivalent_size_percent",
}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """(a fit, its folder)"""
    table = draw(SmoothTruth(), np.random.default_rng(3))
    table[0]["status"] = "failed"
    table[-1]["loss"] = math.inf
    out = tmp_path_factory.mktemp("fit") / "fit"
    result = dwsweep.fit_table(table, params=(3e7,))
    fit_record.write(result, out)
    fit_report.write_guideline(result, out)
    return result, out


def read_csv(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def content_of(folder):
    """fit.json, in which no NaN stands."""
    return json.loads((folder / "fit.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_files_have_the_columns_of_the_contract_first_and_hold_the_result(fitted):
    result, out = fitted
    assert {path.name for path in out.iterdir()} == {*CONTRACT, "fit.json", "guideline.md"}, "no temporary file is left"
    for name, columns in CONTRACT.items():
        header = (out / name).read_text().splitlines()[0]
        assert header == columns or header.startswith(columns + ",")
    cells = read_csv(out / "cells.csv")
    (excluded,) = [row for row in cells if row["excluded"] == "true"]
    assert len(cells) == 45 and "diverged" in excluded["reason"] and excluded["mean"] == ""
    assert [row["reason"] for row in cells if row["n"] == "2"] == ["failed"]
    rows = read_csv(out / "transitions.csv")
    assert [float(row["n_params"] or "nan") for row in rows] == pytest.approx(
        [row.n_params or math.nan for row in result.transitions], rel=1e-9, nan_ok=True
    )
    assert "nan" not in (out / "transitions.csv").read_text().lower()
    assert "| 13B |" in (out / "guideline.md").read_text()
    content = content_of(out)
    law = content["width_law"]
    assert None not in [law[key] for key in ("form", "of", "a", "b", "interval_a", "interval_b")]
    assert content["format"] == fit_record.FORMAT and content["pairs_law"]["of"] == "pairs"
    assert law["valid_from"] < law["valid_to"] and len(law["band"]) > 9
    assert content["provenance"]["input_sha256"]


def test_the_records_read_back_are_those_that_were_written(fitted):
    result, out = fitted
    again = fit_record.read(out.parent)
    assert again == result and again.to_json() == (out / "fit.json").read_text()
    for row in (result.transitions[0], result.cells[0], result.guideline[0], result.width_law, result.noise):
        assert not any(isinstance(value, np.generic) for value in dict(row).values())
        with pytest.raises(KeyError):
            row["no such column"]
        with pytest.raises(AttributeError):
            row.depth = 3


DAMAGED = [
    (("transitions", 0, "status"), "won", r"transitions\[0\]\.status: 'won'; must be one of crossed, "),
    (("transitions", 0, "shallow"), "6", r"transitions\[0\]\.shallow: '6'; must be a valid integer"),
    (("width_law", "a"), None, r"width_law\.a: None; must be a valid number"),
    (("cells", 3), [], r"cells\[3\]: must be an object"),
    (("provenance",), 7, r"provenance: must be an object"),
    (("surface", "forms", 0, "nodes", 5), [0.0], r"forms\[0\]\.nodes: .*must be numbers, in rows of one length"),
    (("surface", "forms", 0, "nodes", 5, 0), "1.0", r"forms\[0\]\.nodes: .*must be numbers, in rows of one length"),
    (("surface", "forms", 0, "counts", 0), -1, r"forms\[0\]: counts and scrambles of the \w+ form must be whole"),
    (("surface", "forms", 0, "names"), ["p"], r"surface\.forms\[0\]: nodes of the \w+ form must have 1 numbers"),
    (("surface", "forms"), [], r"surface: forms must have one with draws"),
    (("surface", "spans"), [], r"surface: spans must name a depth"),
    (("surface", "confidence"), 5, r"surface\.confidence: 5; must be less than or equal to 1"),
    (("cells", 0, "n_params"), 10**400, r"10000000000000000000… has 401 digits"),
    (("nets", "vocab_size"), -5, r"nets\.vocab_size: -5; must be greater than or equal to 1"),
    # a key that this version writes is missing
    (("noise",), ..., r": noise: is missing; .* run `dwsweep fit` again$"),
    (("unit",), ..., r": unit: is missing; .* run `dwsweep fit` again$"),
]


@pytest.mark.parametrize(("place", "value", "said"), DAMAGED)
def test_a_damaged_fit_is_one_line_that_names_file_and_field(fitted, tmp_path, place, value, said):
    content = {**content_of(fitted[1]), "of a later version": 1}
    del content["content_sha256"]  # as in files of an earlier version
    (tmp_path / "fit.json").write_text(json.dumps(content))
    assert fit_record.read(tmp_path) == fitted[0]
    part = content
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    if value is ...:
        del part[place[-1]]
    (tmp_path / "fit.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=said) as caught:
        fit_record.read(tmp_path)
    (line,) = caught.value.lines
    assert line.startswith(f"--fit: {tmp_path / 'fit.json'}: ") and "\n" not in line and len(line) < 400


def test_a_fit_of_an_earlier_format_is_refused_with_the_command_that_makes_it_anew(fitted, tmp_path):
    content = content_of(fitted[1])
    del content["format"], content["content_sha256"], content["pairs_law"]
    content["provenance"] |= {"input": "my runs.csv"}
    content["provenance"]["options"] |= {"where": ["depth > 2"], "columns": {"loss": "val_loss"}, "at_tokens": 1e9}
    (tmp_path / "fit.json").write_text(json.dumps(content))
    with pytest.raises(InputError) as refused:
        fit_record.read(tmp_path)
    assert str(refused.value).endswith(
        f"fit.json; of format 1, this version reads {fit_record.FORMAT}; run `dwsweep fit 'my runs.csv' "
        f"--out {tmp_path} --column loss=val_loss --where 'depth > 2' --at-tokens 1000000000.0` again"
    )
    content["provenance"] |= {"input": str(tmp_path / "results.csv")}
    (tmp_path / "fit").mkdir()
    (tmp_path / "fit" / "fit.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=rf"run `dwsweep fit {tmp_path} --column"):
        fit_record.read(tmp_path / "fit")
    (tmp_path / "fit.json").write_text(json.dumps(content | {"format": fit_record.FORMAT + 1}))
    with pytest.raises(InputError, match="of a newer version than this one"):
        fit_record.read(tmp_path)
    surface = fitted[0].surface
    later = replace(surface, forms=(replace(surface.forms[0], form="cubic"), *surface.forms[1:]))
    with pytest.raises(InputError, match=r"^surface\.forms: 'cubic'; must be one of exponential, power"):
        LossSurface(later)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: None, r"run `dwsweep fit .*` first"),
        (lambda path: path.write_text("{"), "not valid JSON"),
        (lambda path: path.write_text("{}"), r"not a fit\.json"),
        *((make, "is a FIFO, a device") for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"))),
    ],
)
def test_reading_what_is_not_a_fit(tmp_path, make, line):
    make(tmp_path / "fit.json")
    with pytest.raises(InputError, match=line):
        fit_record.read(tmp_path)


# Sweep directories

ONE_PAIR = "depth < 18"  # of depths: too few for a surface of the loss, which takes most of a fit's time


def sweep_with_documents(root, shared_sd, n_documents=200, token_weights=True, own_sd=0.05, most=18):
    """A sweep directory whose documents are hard or easy for all shapes alike (shared_sd) or for each its own way; its
    runs' folders."""
    generator = np.random.default_rng(1)
    table = [row for row in draw(SmoothTruth(), generator) if row["depth"] < most]
    tokens = generator.integers(20, 200, n_documents).astype(float) if token_weights else np.ones(n_documents)
    hard = generator.normal(0, shared_sd, n_documents)
    for k, row in enumerate(table):
        own = np.random.default_rng([row["depth"], row["width"]]).normal(0, own_sd, n_documents)
        per_token = hard + own
        per_token += row["loss"] - (per_token * tokens).sum() / tokens.sum()
        folder = root / "runs" / f"run{k}"
        folder.mkdir(parents=True)
        np.save(folder / "documents.npy", np.stack([per_token * tokens, tokens], axis=1))
        row["run_id"] = folder.name
    write_csv(table, root / "results.csv")
    return sorted((root / "runs").iterdir())


@pytest.mark.parametrize("token_weights", [True, False])
def test_documents_add_what_another_sample_would_move_and_only_that(tmp_path, token_weights):
    """What all shapes find hard cancels (0.5 nats a document); what each finds hard its own way counts."""
    sweep_with_documents(tmp_path, shared_sd=0.5, token_weights=token_weights)
    used, ignored = (dwsweep.fit_table(tmp_path, documents=documents, paper=True) for documents in (True, False))
    assert shows(used.noise["documents"], "fit: paired over documents", numbers=True)
    pairs = [next(row for row in r.transitions if row.estimator == "pchip") for r in (used, ignored)]
    se_used, se_ignored = (row.se_ln_n * row.slope_difference for row in pairs)
    added = math.sqrt(se_used**2 - se_ignored**2)
    # the effective number of documents is (Σt)²/Σt², 200 for equal ones and about 160 for 20 … 200 tokens
    documents = 160 if token_weights else 200
    assert added == pytest.approx(math.sqrt(2) * 0.05 / math.sqrt(documents), rel=0.35)
    assert added < 0.02, "the 0.5 nats that documents share must cancel"


def test_documents_are_left_aside_where_one_is_missing_or_of_another_checkpoint(tmp_path):
    sweep_with_documents(tmp_path, shared_sd=0.1)
    table = read_csv(tmp_path / "results.csv")
    table[3]["loss"] = str(float(table[3]["loss"]) + 0.5)
    assert "gives loss" in document_covariance(str(tmp_path), select_runs(read_table(table).rows).runs)[1]
    runs = select_runs(read_table(tmp_path).rows).runs
    (tmp_path / "runs" / "run7" / "documents.npy").write_bytes(b"")  # cut off before its first byte
    assert "documents.npy of run7 cannot be read: " in document_covariance(str(tmp_path), runs).note
    (tmp_path / "runs" / "run7" / "documents.npy").unlink()
    assert "not every run" in dwsweep.fit_table(tmp_path).noise["documents"]


def test_few_documents_are_counted_and_claim_little(tmp_path):
    """One text gives no spread over texts, and a handful hardly one, however precise the losses on it are."""
    statuses = {}
    for number in (1, 3, 60):
        sweep_with_documents(tmp_path / str(number), shared_sd=0.001, n_documents=number, own_sd=0.0005)
        result = dwsweep.fit_table(tmp_path / str(number), paper=True)
        rows = [row for row in result.transitions if row["estimator"] == "pchip"]
        statuses[number] = {row["status"] for row in rows}
        warned = [line for line in result.warnings if line.startswith("held-out set")]
        assert len(warned) == (number < 30)
        if number == 1:
            assert "1 document, at least 30" in warned[0] and says(rows[0]["reason"], "fit: single document")
            assert {row["cause"] for row in rows} == {"noise unknown"}
        if number == 3:
            assert "3 documents" in warned[0] and max(row["df"] for row in rows) == 2
    assert statuses[1] == {"undecided"} and "crossed" in statuses[60]
    declared = dwsweep.fit_table(tmp_path / "1", noise=0.001)
    assert "crossed" in {row["status"] for row in declared.transitions}, "a declared noise is the user's own word"


def test_training_curves_that_still_fall_or_are_not_the_written_ones_are_named(tmp_path):
    folders = sweep_with_documents(tmp_path, shared_sd=0.001, n_documents=40)
    for loss, falls in ((lambda step: 7.0 - 0.003 * step, True), (lambda step: 3.0 + 4.0 / step, False)):
        for run in folders:
            rows = [{"step": step, "loss": loss(step)} for step in range(1, 501, 10)]
            jsonl.rewrite_lines(run / "metrics.jsonl", rows)
            digest = hashlib.sha256((run / "metrics.jsonl").read_bytes()).hexdigest()
            record.write(run / "result.json", RunResult(3.0, metrics_sha256=digest, metrics_rows=50))
        found = dwsweep.fit_table(tmp_path).warnings
        assert ["by 5 %" in line for line in found if line.startswith("STILL FALLING")] == [True] * falls
        assert not any("metrics.jsonl" in line for line in found)
    for run in folders:
        lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
        lines[7] = lines[7].replace('"loss":3.', '"loss":2.')
        (run / "metrics.jsonl").write_text("".join([*lines[:20], *lines[22:]]))  # one changed, two taken out
    named = [line for line in dwsweep.fit_table(tmp_path).warnings if "metrics.jsonl" in line]
    assert len(named) == len({line.split()[3] for line in named}) == 2  # the largest shape of each depth
    assert all(line.startswith("LINES LEFT OUT: runs/run") and "none of its 50 lines" in line for line in named)


def test_figures_and_tables_of_an_earlier_fit_are_gone_before_new_numbers_are_drawn(tmp_path, monkeypatch):
    table, out = tmp_path / "table.csv", tmp_path / "fit"
    rows = draw(SmoothTruth(), np.random.default_rng(0))
    table.write_text("\n".join(",".join(map(str, row)) for row in [rows[0], *(row.values() for row in rows)]))
    out.mkdir()
    for name in ("width_law.png", "best_depth.svg", "of_mine.png", "along.csv"):
        (out / name).write_text("earlier")
    monkeypatch.setattr(registry, "draw", Mock(side_effect=OSError("as if killed while drawing")))
    with pytest.raises(OSError, match="as if killed"):
        typer.main.get_command(app).main(
            ["fit", str(table), "--out", str(out), "--where", ONE_PAIR], standalone_mode=False
        )
    assert (out / "fit.json").exists() and not (out / "along.csv").exists()
    assert sorted(path.name for path in out.iterdir() if path.suffix in (".png", ".svg")) == ["of_mine.png"]


def test_a_fit_that_replaces_another_says_so(tmp_path):
    table = draw(SmoothTruth(), np.random.default_rng(0))
    first = dwsweep.fit_table(table, where=ONE_PAIR)
    assert fit_record.replaced(first, tmp_path) == ""
    fit_record.write(first, tmp_path)
    assert fit_record.replaced(first, tmp_path) == ""
    other = dwsweep.fit_table(table, where=(ONE_PAIR, "seed > 0"), confidence=0.9)
    assert fit_record.replaced(other, tmp_path) == (
        f"replaces the fit in {tmp_path} (where ['{ONE_PAIR}'] → ['{ONE_PAIR}', 'seed > 0'], confidence 0.95 → 0.9); "
        "--out DIR keeps both"
    )
    (tmp_path / "fit.json").write_text("{")
    assert "could not be read" in fit_record.replaced(first, tmp_path)


# Rows of answers.csv


law = functools.partial(report_sweeps.fit, "law")


def told(rows, *names):
    return [tuple(getattr(row, name) for name in names) for row in rows]


def test_the_deep_end_is_narrow_and_an_answer_without_a_depth_has_a_reason():
    for row in law().answers:
        if row.depth and row.width:
            assert row.width == pytest.approx((row.n_params / 12 / row.depth) ** 0.5, rel=0.02)
            assert (row.width_low is None) == (row.depth_high is None) and (row.width_low or 0.0) <= row.width
        assert bool(row.reason) == (row.depth is None)


def test_a_size_that_no_loss_bounds_has_a_reason_and_no_depth():
    surface = law().surface
    none = replace(surface.optima[0], depth=None, depth_low=None, depth_high=None, at_edge=None)
    for effect_p, reason in ((0.0, "these losses bound it on neither side"), (0.5, "no effect of depth is shown")):
        forms = tuple(replace(one, weight=effect_p) if one.form == "none" else one for one in surface.forms)
        (row, *_) = replace(law(), surface=replace(surface, optima=(none,), forms=forms)).answers
        assert row.depth is None and row.reason == reason
        assert not effect_p or row.worst_percent is None


def test_a_heap_answers_for_its_columns_tokens_rates_and_equal_quantities():
    at = {"question": "best_depth", "equal": "n_params", "n_params": 1e7, "depth": 12.0, "depth_low": 9.0}
    column = AdjustedColumn(
        name="batch", column="batch_size", kind="number", held="batch 64", r=0.1, matters=0.02,
        matters_low=0.01, matters_high=0.03,
    )  # fmt: skip
    rate = AnswerRow(question="best_value", equal="n_params", n_params=1e7, column="learning_rate", estimate_low=1e-3)
    heap = Adjustment(
        runs=9,
        columns=(column,),
        scatter=0.01,
        rates=(rate,),
        along_tokens=(  # the least tokens are the held ones, whose answer stood twice, with a ratio to itself
            AnswerRow(tokens=1e9, **at),
            AnswerRow(tokens=2e9, estimate=1.2, estimate_low=1.1, estimate_high=1.4, **at),
        ),
        at_budgets=(AnswerRow(**{**at, "equal": "flops", "cost": 1e18, "n_params": 2e7, "n_params_low": 1e7}),),
        equal=(
            AnswerRow(**{**at, "equal": "tokens_per_param", "cost": 20.0, "tokens": 2e8}),
            AnswerRow(tokens=1e9, **at),
        ),
    )
    result = replace(law(), surface=None, adjusted=heap)
    assert result.held_tokens == 1e9  # no column: the tokens of all runs
    rows = result.answers
    assert told(rows, "question", "equal", "column", "value", "tokens", "cost") == [
        ("best_depth", "tokens_per_param", "", None, 2e8, 20.0),
        ("best_depth", "n_params", "", None, 1e9, None),
        ("best_depth", "flops", "", None, None, 1e18),
        ("best_depth", "n_params", "", None, 2e9, None),
        ("best_value", "flops", "n_params", None, None, 1e18),
        ("ratio", "n_params", "tokens", None, 2e9, None),
        ("best_value", "n_params", "learning_rate", None, None, None),
        ("effect", "n_params", "batch_size", "batch 64", None, None),
    ]
    assert all(row.depth_interval == Interval(12.0, 9.0, None) for row in rows[:4])
    assert [row.estimate_interval for row in rows[4:]] == [
        Interval(2e7, 1e7, None),
        *(Interval(1.2, 1.1, 1.4), Interval(None, 1e-3, None), Interval(0.02, 0.01, 0.03)),
    ]
