"""The terminal: tables fold where it is narrow, and streams of others are left alone."""

from __future__ import annotations

import re
import sys
from itertools import product

import pytest
from checkout import SWEEPS
from report_sweeps import rows
from rich.console import RenderableType
from shown import printed

from dwsweep import fit_table, terminal
from dwsweep.guide import answer
from dwsweep.plan import build
from dwsweep.report import fit_report, guide_report, plan_report
from dwsweep.report.console import render
from dwsweep.report.document import INTERVAL, Table, label, prose
from dwsweep.spec import load_spec


def test_a_stream_of_somebody_else_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    mine = sys.stdout
    terminal.tolerant_streams()
    assert sys.stdout is mine
    terminal.console().print("seen")
    assert capsys.readouterr().out == "seen\n"


# Narrow terminals: columns go below one another, and no number is cut.


CUT = re.compile(r"\S…")  # rich cuts right behind a character; our own ellipses stand free


def lines_of(renderable, width: int) -> list[str]:
    return printed(renderable, width).splitlines()


def table():
    made = Table("", [label("row"), label("first"), INTERVAL, prose("words"), label("last")], ruled=False)
    for k in range(3):
        words = f"{k} words that may well wrap"
        made.add(f"r{k}", f"{k}.23456789", f"{k}.1 … {k}.9", words, f"9{k}.87654321")
    return render([made])


@pytest.mark.parametrize("width", [24, 30, 60])
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


def test_what_the_commands_say_fits_the_terminal_and_no_number_is_cut() -> None:
    said: dict[str, RenderableType] = {
        "fit": fit_report.render(fit_table(rows((2, 4), 6, 1e5, 1e7, seeds=2), draws=100)),
        "guide": guide_report.render(answer([3e9, 1e8], ["96x12288"])),
        "plan": plan_report.render(build(load_spec(SWEEPS / "levine2020.yaml"))),
    }
    for (name, renderable), width in product(said.items(), (60, 100)):
        lines = lines_of(renderable, width)
        assert len(lines) > 5 and all(len(line) <= width for line in lines), (name, width)
        assert not [line for line in lines if CUT.search(line)], (name, width)
