"""Narrow terminals: columns go below one another, and no number is cut."""

from __future__ import annotations

import re

import numpy as np
import pytest
from checkout import SWEEPS
from cli_tools import in_a_process
from rich.table import Table
from shown import printed

from dwsweep import fit_table, theory
from dwsweep.design import study
from dwsweep.guide import answer
from dwsweep.plan import build
from dwsweep.report import bench_report, fit_report, guide_report, plan_report
from dwsweep.report.terminal import Folded
from dwsweep.spec import load_spec
from tests.simulations.sweeps import Scenario, Truth, simulate

CUT = re.compile(r"\S…")  # rich cuts right behind a character; our own ellipses stand free


def lines_of(renderable, width: int) -> list[str]:
    return printed(renderable, width).splitlines()


def table() -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("row", "first", "interval", "words", "last"):
        made.add_column(name, no_wrap=name != "words")
    for k in range(3):
        made.add_row(f"r{k}", f"{k}.23456789", f"{k}.1 … {k}.9", f"{k} words that may well wrap", f"9{k}.87654321")
    return made


def test_a_table_that_fits_is_left_alone() -> None:
    assert lines_of(Folded(table()), 100) == lines_of(table(), 100)


@pytest.mark.parametrize("width", [24, 30, 40, 60, 79])
def test_columns_fold_whole_and_every_block_says_its_rows(width: int) -> None:
    lines = lines_of(Folded(table(), beside="interval"), width)
    text = "\n".join(lines)
    assert all(len(line) <= width for line in lines)
    for k in range(3):
        for cell in (f"{k}.23456789", f"{k}.1 … {k}.9", f"9{k}.87654321"):
            assert text.count(cell) == 1
    headers = [line for line in lines if line.startswith("row")]
    assert text.count("r1") == len(headers)
    if width >= 30:  # below, a value and its interval do not fit side by side
        assert "interval" in next(line for line in headers if "first" in line)


@pytest.fixture(scope="module")
def own_fit():
    scenario = Scenario(Truth((6, 12, 18, 24)), budgets=tuple(np.geomspace(1e6, 3e8, 8)))
    return fit_table(simulate(scenario, np.random.default_rng(1)), params=[1e12])


@pytest.mark.parametrize("width", [60, 80, 100])
def test_what_the_commands_say_fits_and_no_number_is_cut(width: int, own_fit) -> None:
    mini = load_spec(SWEEPS / "levine-mini.yaml")
    said = {
        "fit": fit_report.render(own_fit),
        "guide": guide_report.render(answer([3e9, 1e8], ["96x12288"])),
        "overview": guide_report.render(answer([], [])),
        "plan": plan_report.render(build(load_spec(SWEEPS / "levine2020.yaml"))),
        "design": guide_report.render_design(study(mini, noise=0.003)),
        "theory": bench_report.render_theory(theory.summary(width=1024, depth=24, heads=2)),
    }
    for name, renderable in said.items():
        lines = lines_of(renderable, width)
        assert all(len(line) <= width for line in lines), name
        assert not [line for line in lines if CUT.search(line)], name
    assert (
        "not reached" in "\n".join(lines_of(fit_report.render(own_fit), width))
        or own_fit.transitions[-1].status != "not_reached"
    )


def test_the_command_line_follows_the_columns_of_the_terminal() -> None:
    done = in_a_process("guide", "--params", "3e9", COLUMNS="60", PATH="", PYTHONIOENCODING="utf-8")
    assert done.returncode == 0, done.stderr
    lines = done.stdout
    assert max(map(len, lines.splitlines())) <= 60
    assert "3.74 ms" in lines


def test_what_every_row_says_is_said_once_where_room_is_scarce() -> None:
    made = table()
    made.add_column("unit", no_wrap=True)
    for column in made.columns[5:]:
        column._cells = ["tokens"] * 3
    assert "In every row" not in "\n".join(lines_of(Folded(made), 100))
    lines = lines_of(Folded(made, beside="interval"), 65)
    assert lines[-1] == "In every row: unit tokens" and sum("row" in line for line in lines) == 2


def test_optional_columns_are_left_to_the_file_that_has_them() -> None:
    folded = Folded(table(), beside="interval", optional=("words", "last"), file="all.csv")
    assert lines_of(folded, 100) == lines_of(table(), 100)
    lines = lines_of(folded, 50)
    assert lines[-1] == "In all.csv: words" and "may well" not in "\n".join(lines)
    assert [line for line in lines if line.startswith("row")] == [lines[0]] and "last" in lines[0]
    # where leaving them out would not do, none is left out
    lines = lines_of(folded, 24)
    assert "words" in "\n".join(lines) and "In all.csv" not in "\n".join(lines)
