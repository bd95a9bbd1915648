"""Narrow terminals: columns go below one another, and no number is cut."""

from __future__ import annotations

import re

import numpy as np
import pytest
from checkout import SWEEPS
from cli_tools import in_a_process
from shown import printed

from dwsweep import fit_table, theory
from dwsweep.design import study
from dwsweep.guide import answer
from dwsweep.plan import build
from dwsweep.report import bench_report, fit_report, guide_report, plan_report
from dwsweep.report.document import Table
from dwsweep.report.terminal import render
from dwsweep.spec import load_spec
from tests.simulations.sweeps import Scenario, Truth, simulate

CUT = re.compile(r"\S…")  # rich cuts right behind a character; our own ellipses stand free


def lines_of(renderable, width: int) -> list[str]:
    return printed(renderable, width).splitlines()


def table(more: str = "", **options):
    made = Table("", f"row< first< interval< words~ last< {more}", ruled=False, **options)
    for k in range(3):
        unit = ["tokens"] if more else []
        words = f"{k} words that may well wrap"
        made.add(f"r{k}", f"{k}.23456789", f"{k}.1 … {k}.9", words, f"9{k}.87654321", *unit)
    return render([made])


WHOLE = [
    "row  first       interval   words                       last",
    "r0   0.23456789  0.1 … 0.9  0 words that may well wrap  90.87654321",
    "r1   1.23456789  1.1 … 1.9  1 words that may well wrap  91.87654321",
    "r2   2.23456789  2.1 … 2.9  2 words that may well wrap  92.87654321",
]


def test_a_table_that_fits_is_left_alone() -> None:
    assert [line.rstrip() for line in lines_of(table(), 100)] == WHOLE


@pytest.mark.parametrize("width", [24, 30, 40, 60, 79])
def test_columns_fold_whole_and_every_block_says_its_rows(width: int) -> None:
    lines = lines_of(table(), width)
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
    made = table("unit<")
    assert "In every row" not in "\n".join(lines_of(made, 100))
    lines = lines_of(made, 65)
    assert lines[-1] == "In every row: unit tokens" and sum("row" in line for line in lines) == 2


def test_optional_columns_are_left_to_the_file_that_has_them() -> None:
    folded = table(optional=("words", "last"), file="all.csv")
    assert [line.rstrip() for line in lines_of(folded, 100)] == WHOLE
    lines = lines_of(folded, 50)
    assert lines[-1] == "In all.csv: words" and "may well" not in "\n".join(lines)
    assert [line for line in lines if line.startswith("row")] == [lines[0]] and "last" in lines[0]
    # where leaving them out would not do, none is left out
    lines = lines_of(folded, 24)
    assert "words" in "\n".join(lines) and "In all.csv" not in "\n".join(lines)
