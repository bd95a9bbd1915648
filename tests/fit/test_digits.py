"""Digits: numbers of pairs and of width laws are printed to the digits that their Monte-Carlo errors support."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import dwsweep
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import SURFACE, coarse, known_to
from dwsweep.report.fit_report import _law, _transitions
from tests.simulations.scenarios import scenarios


@cache
def fitted() -> FitResult:
    rows = scenarios()["asymmetric"].numbered(0).rows(np.random.default_rng(0))
    return dwsweep.fit_table(rows, draws=200)


@pytest.mark.parametrize(
    ("value", "error", "known"),
    [(2.531e7, 3e5, 2.5e7), (2.531e7, 0.0, 2.531e7), (5.0388, 0.02, 5.0), (3.0, 40.0, 3.0), (-0.0554, 2e-3, -0.06)],
)
def test_a_number_has_no_digit_below_its_error(value: float, error: float, known: float) -> None:
    assert known_to(value, error) == pytest.approx(known)


def test_an_error_takes_digits_above_a_tenth_of_the_interval() -> None:
    assert coarse((0.009, None), 0.1) == 0.0 and coarse((0.009, 0.011), 0.1) > 0.0


@pytest.mark.parametrize("error", [0.11, 0.5, 3.0])
def test_rounding_moves_no_end_by_more_than_a_quarter_of_its_interval(error: float) -> None:
    for width in (0.73, 1.4, 9.9):
        moved = abs(known_to(20.0 + width, coarse((error * width,), width)) - (20.0 + width))
        assert moved <= width / 4.0 + 1e-9


def test_every_number_of_a_crossing_by_all_losses_and_of_a_law_has_its_error() -> None:
    rows = [row for row in fitted().verdicts if row.estimator == SURFACE and row.status == "crossed"]
    assert rows
    for row in rows:
        ends = zip(
            (row.n_params, row.n_params_low, row.n_params_high),
            (row.n_params_error, row.n_params_low_error, row.n_params_high_error),
            strict=True,
        )
        assert all(error is not None for value, error in ends if value is not None)
        assert 0.0 < row.n_params_error < 0.1 * np.log(row.n_params_high / row.n_params_low)
    law = fitted().width_law
    assert law is not None
    for error in (law.a_error, law.b_error, *law.interval_a_error, *law.interval_b_error):
        assert error is not None and error > 0.0


def test_numbers_that_other_draws_would_move_are_printed_with_fewer_digits() -> None:
    result = fitted()
    assert result.width_law
    rough = [replace(row, n_params_high_error=0.3) for row in result.transitions]
    law = replace(result.width_law, interval_b_error=(0.01, 0.02))
    there = text(replace(result, transitions=rough, width_law=law))
    for row in rough:
        if row.estimator == SURFACE and row.n_params:
            assert row.known.value != row.n_params and row.known.low < row.known.high
    assert there != text(result)
    assert law.coarse[0] == 0.0 < law.coarse[1] < law.interval_b[1] - law.interval_b[0]
    assert result.width_law.coarse == (0.0, 0.0)


def text(result: FitResult) -> str:
    parts = io.StringIO()
    for part in (*_transitions(result), *_law(result)):
        parts.write(repr(part))
    return parts.getvalue()
