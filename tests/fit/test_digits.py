"""Digits: numbers of pairs and of width laws are printed to the digits that their Monte-Carlo errors support."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import cache

import numpy as np

import dwsweep
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import SURFACE
from dwsweep.report.fit_report import _law, _transitions
from tests.simulations.scenarios import scenarios


@cache
def fitted() -> FitResult:
    rows = scenarios()["asymmetric"].numbered(0).rows(np.random.default_rng(0))
    return dwsweep.fit_table(rows, draws=200)


def test_the_numbers_of_a_crossing_by_all_losses_and_of_a_law_have_their_error() -> None:
    rows = [row for row in fitted().verdicts if row.estimator == SURFACE and row.status == "crossed"]
    assert rows and all(0.0 < row.n_params_interval.share < 0.1 for row in rows)
    law = fitted().width_law
    assert law is not None and min(law.a_error, law.b_error) > 0.0


def test_numbers_that_other_draws_would_move_are_printed_with_fewer_digits() -> None:
    result = fitted()
    assert result.width_law
    rough = [replace(row, n_params_error=0.3) for row in result.transitions]
    there = text(replace(result, transitions=rough))
    for row in rough:
        if row.estimator == SURFACE and row.n_params:
            found = row.n_params_interval.known
            assert found.value != row.n_params and found.low < found.high
    assert there != text(result)
    _, b = replace(result.width_law, b_error=0.02).constants
    assert b.known != b


def text(result: FitResult) -> str:
    parts = io.StringIO()
    for part in (*_transitions(result), *_law(result)):
        parts.write(repr(part))
    return parts.getvalue()
