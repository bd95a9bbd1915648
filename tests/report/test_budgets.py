"""Runs at equal compute as people see them: the tables of the terminal, the figures, the page."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import report_sweeps
from cli_tools import Command
from sentences import says
from shown import printed, words_of

from dwsweep import fit_table
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import FitResult
from dwsweep.report import fit_report
from dwsweep.report import page as sweep_page
from dwsweep.report.figures import registry, style
from tests.simulations.budgets import BudgetSweep, every

CASES = {
    "three budgets": {"flops": (1e18, 3e18, 1e19), "depths": (4, 12, 28)},
    "one budget": {"flops": (1e18,)},
    "sizes end below": {"flops": (1e18,), "largest": 7e7},
    "one size": {"flops": (1e18,), "one_size": True},
    "two depths": {"flops": (1e18,), "depths": (8, 12)},
    "too deep": {"flops": (1e18,), "depths": (16, 24, 36)},
}

QUICK = ("three budgets", "too deep")
EACH = [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES]


def rows(flops, depths=(4, 8, 12, 18, 28), largest=4e8, one_size=False):
    kept = (lambda depth, size: size == depth) if one_size else every
    sweep = BudgetSweep(budgets=flops, depths=depths, largest=largest, seeds=2, kept=kept)
    return sweep.rows(np.random.default_rng(0))


@functools.cache
def fitted(case: str) -> FitResult:
    return fit_table(rows(**CASES[case]), axis="flops", draws=200)


@pytest.mark.parametrize("case", EACH)
def test_the_tables_fit_the_terminal_and_the_figures_can_be_read(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = fitted(case)
    text = printed(fit_report.render(fit), 80)
    assert max(map(len, text.splitlines())) <= 80 and "…\n" not in text.replace(" … ", "")
    assert "Transitions" not in text and says(re.sub(r"\s+", " ", text), "report: loss curve runs over")
    drawings = registry.drawings(fit)
    assert drawings[0].name == "loss_vs_depth"
    with style.styled():
        for drawing in drawings:
            if drawing.name in ("loss_vs_depth", "best_depth"):
                report_sweeps.assert_readable(drawing.draw(fit), monkeypatch)


def test_the_answer_comes_first_with_its_powers() -> None:
    text = printed(fit_report.render(fitted("three budgets")), 100)
    found = fitted("three budgets").equal_budgets
    assert found is not None
    assert "Guideline" not in text  # public evidence alone answers: no row rests on these losses
    for row in found.best:
        assert f"{row.depth:.1f}" in text and f"{row.depth_low:.1f} … {row.depth_high:.1f}" in text
    assert f"N ∝ C^{found.trends[0].exponent:.3f}" in text and "4 layers lose" in text


def test_what_is_not_reached_is_said_with_what_to_train() -> None:
    text = re.sub(r"\s+", " ", printed(fit_report.render(fitted("sizes end below")), 100))
    assert "not reached >" in text and "larger sizes at L 12, 18, 28" in text.replace("L 8, 12", "L 12")
    deep = re.sub(r"\s+", " ", printed(fit_report.render(fitted("too deep")), 100))
    assert (
        says(deep, "report: best depth not reached")
        and "shallower nets" in deep
        and says(deep, "report: best shape tried")
    )
    alone = re.sub(r"\s+", " ", printed(fit_report.render(fitted("one size")), 100))
    assert says(alone, "report: best shape tried") and says(alone, "report: best one needs nine")


def test_the_figure_shows_the_best_loss_of_each_depth() -> None:
    fit = fitted("one budget")
    assert fit.equal_budgets is not None
    with style.styled():
        made = registry.figures(fit)["loss_vs_depth"]()
    (axes,) = made.axes
    drawn = {(float(x), float(y)) for line in axes.lines for x, y in line.get_xydata() if len(line.get_xdata()) == 1}
    assert {(row.of_depth, row.loss) for row in fit.equal_budgets.budgets[0].depths if row.loss} <= drawn
    assert f"best depth {fit.equal_budgets.best[0].depth_interval.format('.1f')}" in words_of(made)
    deep = fitted("too deep")
    assert deep.equal_budgets is not None
    bound = deep.equal_budgets.best[0].depth_interval
    assert bound.value is None and bound.high
    with style.styled():
        words = words_of(registry.figures(deep)["loss_vs_depth"]())
    assert f"best depth {bound.ends('.1f')}" in words


def test_the_page_answers_with_the_best_shape(tmp_path: Path) -> None:
    fit = fitted("three budgets")
    fit_record.write(fit, tmp_path / "fit")
    text = sweep_page.write(tmp_path / "fit").read_text()
    best = fit.equal_budgets.best[0]  # type: ignore[union-attr]
    assert says(text, "report: best shape each budget") and f"At 1e18 FLOPs: {best.depth:.1f} (" in text
    assert "N ∝ C^" in text and "each depth at its best size" in text
    assert "Fewer than two depths" not in text and "not known" not in text.split("<section")[1]


def test_the_command_writes_the_tables_and_the_figures(dwsweep: Command, tmp_path: Path) -> None:
    table = tmp_path / "runs.json"
    table.write_text(json.dumps(rows((1e18,), depths=(8, 12))), "utf-8")
    done = dwsweep("fit", table, "--axis", "flops", "--draws", "200")
    assert done.returncode == 0, done.stderr
    names = {path.name for path in (tmp_path / "runs-fit").iterdir()}
    assert {"equal_budgets.csv", "loss_vs_depth.png", "answers.csv"} <= names
    by_size = dwsweep("fit", table, "--draws", "200")
    assert says(re.sub(r"\s+", " ", by_size.stdout).replace(" ", " "), "report: axis flops compares what")
