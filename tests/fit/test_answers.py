"""Answers of a fit: each record that answers a question has its row, and a row claims no more than its record."""

from __future__ import annotations

import csv
import functools
from dataclasses import replace
from pathlib import Path

import pytest
import report_sweeps

from dwsweep.fit import answers
from dwsweep.records.along import WORSE
from dwsweep.records.answers import AnswerRow
from dwsweep.records.fit import FitResult
from dwsweep.records.one_size import AtOneSize

CONTRACT = (
    *("question", "equal", "n_params", "tokens", "cost", "arm", "column", "value", "depth", "depth_low", "depth_high"),
    *("width", "width_low", "width_high", "worst_depth", "worst_percent", "monte_carlo_error", "reason"),
)


@functools.cache
def fit() -> FitResult:
    return report_sweeps.fit("law")


def test_the_file_has_the_columns_of_the_contract_first(tmp_path: Path) -> None:
    (path,) = answers.write(fit(), tmp_path)
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0])[: len(CONTRACT)] == CONTRACT and tuple(rows[0]) == AnswerRow.keys()
    assert len(rows) == len(answers.answers(fit()))


def test_best_depths_are_those_of_the_surface_and_the_deep_end_is_narrow() -> None:
    assert fit().surface is not None
    rows = answers.answers(fit())
    assert [(row.n_params, row.depth_interval) for row in rows] == [
        (row.n_params, row.depth_interval)
        for row in fit().surface.optima  # type: ignore[union-attr]
    ]
    for row in rows:
        if row.depth and row.width and row.n_params:
            assert row.width == pytest.approx((row.n_params / 12 / row.depth) ** 0.5, rel=0.02)
            assert (row.width_low is None) == (row.depth_high is None) and (row.width_low or 0.0) <= row.width
        assert bool(row.reason) == (row.depth is None)


def test_a_size_that_no_loss_bounds_has_a_reason_and_no_depth() -> None:
    surface = fit().surface
    assert surface is not None
    none = replace(surface.optima[0], depth=None, depth_low=None, depth_high=None, at_edge=None)
    (row, *_) = answers.answers(replace(fit(), surface=replace(surface, optima=(none,))))
    assert row.depth is None and row.reason == "these losses bound it on neither side"
    (row, *_) = answers.answers(replace(fit(), surface=replace(surface, optima=(none,), effect_p=0.5)))
    assert row.reason == "no effect of depth is shown" and row.worst_percent is None


@pytest.mark.parametrize(
    ("facts", "depth", "reason"),
    [
        ({"known": True, "depth": 4.0, "depth_low": 3.0}, 4.0, ""),
        ({"known": True, "at_edge": "above", "depth_low": 8.0}, None, "above the depths tried"),
        ({"known": True, "effect_p": 0.4, "depth": 4.0}, None, "no effect of depth is shown"),
        ({"known": False}, None, "the noise is not known; 4 layers have the least loss"),
    ],
)
def test_a_table_of_one_size_has_one_answer(facts: dict, depth: float | None, reason: str) -> None:
    found = AtOneSize(n_params=1e6, confidence=0.95, lowest=4, **facts)
    (row,) = answers.answers(replace(fit(), surface=None, at_one_size=found))
    assert (row.question, row.n_params, row.depth, row.reason) == ("best_depth", 1e6, depth, reason)


def test_values_along_a_column_are_differences_from_the_best() -> None:
    from dwsweep.fit.along import fit_along

    rows = report_sweeps.rows((2, 4), 5, 1e5, 1e7)
    found = fit_along(rows, "depth", draws=100)
    told = answers.answers(found)
    assert len(told) == len(found.along.rows) and {row.question for row in told} == {"difference"}
    for row, record in zip(told, found.along.rows, strict=True):
        assert (row.estimate, row.value, row.depth) == (record.above_best, record.value, record.depth)
        assert (row.reason == WORSE) == (record.verdict == WORSE)
