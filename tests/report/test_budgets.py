"""Runs at equal compute as people see them: the tables of the terminal, the figures, the page."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import report_sweeps
from shown import printed

from dwsweep import fit_table
from dwsweep.records.fit import FitResult
from dwsweep.report import fit_report
from dwsweep.report.figures import registry, style
from tests.simulations.budgets import BudgetSweep


@functools.cache
def fitted(*budgets: float) -> FitResult:
    rows = BudgetSweep(budgets=budgets, depths=(4, 8, 12, 18, 28), seeds=2).rows(np.random.default_rng(0))
    return fit_table(rows, draws=200)


def test_the_answer_comes_first_with_its_powers() -> None:
    fit = fitted(1e18, 3e18, 1e19)
    assert fit.adjusted is not None
    for width in (80, 100):
        text = printed(fit_report.render(fit), width)
        assert max(map(len, text.splitlines())) <= width
    for row in fit.adjusted.at_budgets:
        assert f"{row.depth:.1f}" in text and f"{row.depth_low:.1f} … {row.depth_high:.1f}" in text
    assert f"N ∝ C^{fit.adjusted.growth[0].estimate:.3f}" in text


def test_a_single_budget_has_a_figure_that_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    drawings = registry.drawings(fitted(1e18))
    assert drawings[0].name == "loss_vs_depth"
    with style.styled():
        for drawing in drawings:
            if drawing.name in ("loss_vs_depth", "best_depth"):
                report_sweeps.assert_readable(drawing.draw(fitted(1e18)), monkeypatch)
