"""Answers of a fit: each record that answers a question has its row, and a row claims no more than its record."""

from __future__ import annotations

import csv
import functools
from dataclasses import replace

import pytest
import report_sweeps

from dwsweep.interval import Interval
from dwsweep.records import fit as fit_record
from dwsweep.records.adjusted import AdjustedColumn, Adjustment
from dwsweep.records.answers import COLUMNS, AnswerRow

CONTRACT = (
    *("question", "equal", "n_params", "tokens", "cost", "arm", "column", "value", "depth", "depth_low", "depth_high"),
    *("width", "width_low", "width_high", "worst_depth", "worst_percent", "monte_carlo_error", "reason"),
)


@functools.cache
def fit():
    return report_sweeps.fit("law")


def told(rows, *names):
    return [tuple(getattr(row, name) for name in names) for row in rows]


def test_best_depths_are_those_of_the_surface_and_the_deep_end_is_narrow(tmp_path):
    fit_record.write(fit(), tmp_path)
    with open(tmp_path / "answers.csv", newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    assert tuple(written[0])[: len(CONTRACT)] == CONTRACT and tuple(written[0]) == COLUMNS
    rows = fit().answers
    assert len(written) == len(rows)
    for row in rows:
        if row.depth and row.width:
            assert row.width == pytest.approx((row.n_params / 12 / row.depth) ** 0.5, rel=0.02)
            assert (row.width_low is None) == (row.depth_high is None) and (row.width_low or 0.0) <= row.width
        assert bool(row.reason) == (row.depth is None)


def test_a_size_that_no_loss_bounds_has_a_reason_and_no_depth():
    surface = fit().surface
    none = replace(surface.optima[0], depth=None, depth_low=None, depth_high=None, at_edge=None)
    for effect_p, reason in ((0.0, "these losses bound it on neither side"), (0.5, "no effect of depth is shown")):
        forms = tuple(replace(one, weight=effect_p) if one.form == "none" else one for one in surface.forms)
        (row, *_) = replace(fit(), surface=replace(surface, optima=(none,), forms=forms)).answers
        assert row.depth is None and row.reason == reason
        assert not effect_p or row.worst_percent is None


def test_a_heap_answers_for_its_columns_tokens_rates_and_equal_quantities():
    at = {"question": "best_depth", "equal": "n_params", "n_params": 1e7, "depth": 12.0, "depth_low": 9.0}
    column = AdjustedColumn(
        name="batch", column="batch_size", kind="number", held="batch 64", own=0.5, r=0.1, matters=0.02,
        matters_low=0.01, matters_high=0.03,
    )  # fmt: skip
    rate = AnswerRow(question="best_value", equal="n_params", n_params=1e7, column="learning_rate", estimate_low=1e-3)
    heap = Adjustment(
        runs=9,
        columns=(column,),
        depth_left=1.0,
        scatter=0.01,
        rates=(rate,),
        along_tokens=(  # the least tokens are the held ones, whose answer stood twice, with a ratio to itself
            AnswerRow(tokens=1e9, **at),
            AnswerRow(tokens=2e9, estimate=1.2, estimate_low=1.1, estimate_high=1.4, **at),
        ),
        equal=(
            AnswerRow(**{**at, "equal": "tokens_per_param", "cost": 20.0, "tokens": 2e8}),
            AnswerRow(tokens=1e9, **at),
        ),
    )
    result = replace(fit(), surface=None, adjusted=heap)
    assert result.held_tokens == 1e9  # no column: the tokens of all runs
    rows = result.answers
    assert told(rows, "question", "equal", "column", "value", "tokens", "cost") == [
        ("best_depth", "tokens_per_param", "", None, 2e8, 20.0),
        ("best_depth", "n_params", "", None, 1e9, None),
        ("best_depth", "n_params", "", None, 2e9, None),
        ("ratio", "n_params", "tokens", None, 2e9, None),
        ("best_value", "n_params", "learning_rate", None, None, None),
        ("effect", "n_params", "batch_size", "batch 64", None, None),
    ]
    assert all(row.depth_interval == Interval(12.0, 9.0, None) for row in rows[:3])
    assert [row.estimate_interval for row in rows[3:]] == [
        *(Interval(1.2, 1.1, 1.4), Interval(None, 1e-3, None), Interval(0.02, 0.01, 0.03))
    ]
