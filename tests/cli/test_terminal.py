"""The terminal: output that nobody takes, counts as people write them, and tables that fold where it is narrow."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from checkout import SWEEPS
from cli_tools import in_a_process
from rich.console import RenderableType
from shown import printed

from dwsweep import fit_table, terminal, theory
from dwsweep.design import study
from dwsweep.errors import InputError
from dwsweep.guide import answer
from dwsweep.plan import build
from dwsweep.report import design_report, fit_report, guide_report, plan_report, theory_report
from dwsweep.report.console import render
from dwsweep.report.document import INTERVAL, Table, label, prose
from dwsweep.spec import load_spec
from dwsweep.text import parse_count
from tests.simulations.sweeps import Scenario, Truth, simulate


@contextmanager
def stdout_on(monkeypatch: pytest.MonkeyPatch, descriptor: int, encoding: str = "utf-8") -> Iterator[None]:
    """Standard output as the interpreter makes it, on this descriptor."""
    with io.TextIOWrapper(io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False)), encoding) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "__stdout__", stream)
        yield
        monkeypatch.undo()


@contextmanager
def closed_pipe() -> Iterator[int]:
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


def test_a_closed_pipe_and_a_full_disk_are_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    with closed_pipe() as pipe, open("/dev/full", "wb") as full:
        for descriptor in (pipe, full.fileno()):
            with stdout_on(monkeypatch, descriptor):
                terminal.console().print("[b]first[/b] line")
                terminal.tolerant_streams()
                terminal.console().print("second line")
                print("third line", flush=True)
                terminal.console().print("fourth line")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_the_encoding_lacks_are_replaced(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    reader, writer = os.pipe()
    with stdout_on(monkeypatch, writer, encoding):
        terminal.tolerant_streams()
        terminal.console().print("1 run → é")
        print("2 runs → é", flush=True)
    os.close(writer)
    with open(reader, encoding=encoding) as shown:
        text = shown.read()
    assert text == ("1 run ? ?\n2 runs ? ?\n" if encoding == "ascii" else "1 run ? é\n2 runs ? é\n")


def test_a_stream_of_somebody_else_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    mine = sys.stdout
    terminal.tolerant_streams()
    assert sys.stdout is mine
    terminal.console().print("seen")
    assert capsys.readouterr().out == "seen\n"


def test_a_width_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal.console(stderr=True).width == terminal.PLAIN_WIDTH
    monkeypatch.setenv("COLUMNS", "77")
    assert terminal.console().width == 77


# Counts as people write them, read.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1.3e9", 1.3e9), ("60k", 6e4), ("125M", 1.25e8), ("3B", 3e9), ("3 b", 3e9), ("2G", 2e9), ("1T", 1e12)),
        *(("1_000", 1e3), (".5M", 5e5), ("1e3k", 1e6)),
    ],
)
def test_counts_are_read(text: str, value: float) -> None:
    assert parse_count(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", " ", "3Q", "3BB", "B", "-3", "0", "nan", "inf", "1e400", "1..5", "1__0", "0x10", "²", "٣", "\u212a"]
)
def test_what_is_no_count_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"must be a positive number, such as 1\.3e9, 60k, 125M, 3B or 1T") as refused:
        parse_count(text)
    assert len(refused.value.lines) == 1


# Narrow terminals: columns go below one another, and no number is cut.


CUT = re.compile(r"\S…")  # rich cuts right behind a character; our own ellipses stand free


def lines_of(renderable, width: int) -> list[str]:
    return printed(renderable, width).splitlines()


def table(more: str = "", **options):
    made = Table(
        "",
        [label("row"), label("first"), INTERVAL, prose("words"), label("last"), *map(label, more.split())],
        ruled=False,
        **options,
    )
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


@pytest.fixture(scope="module")
def said(own_fit) -> dict[str, RenderableType]:
    """What each command prints, whatever the terminal's width."""
    mini = load_spec(SWEEPS / "levine-mini.yaml")
    return {
        "fit": fit_report.render(own_fit),
        "guide": guide_report.render(answer([3e9, 1e8], ["96x12288"])),
        "overview": guide_report.render(answer([], [])),
        "plan": plan_report.render(build(load_spec(SWEEPS / "levine2020.yaml"))),
        "design": design_report.render_design(study(mini, noise=0.003)),
        "theory": theory_report.render_theory(theory.summary(width=1024, depth=24, heads=2)),
    }


@pytest.mark.parametrize("width", [60, 80, 100])
def test_what_the_commands_say_fits_and_no_number_is_cut(width: int, own_fit, said: dict[str, RenderableType]) -> None:
    for name, renderable in said.items():
        lines = lines_of(renderable, width)
        assert len(lines) > 5 and all(len(line) <= width for line in lines), name
        assert not [line for line in lines if CUT.search(line)], name
    assert (
        "not reached" in "\n".join(lines_of(fit_report.render(own_fit), width))
        or own_fit.transitions[-1].status != "not_reached"
    )


def test_the_command_line_follows_the_columns_of_the_terminal() -> None:
    done = in_a_process("guide", "--params", "3e9", "--full", COLUMNS="60", PATH="", PYTHONIOENCODING="utf-8")
    assert done.returncode == 0, done.stderr
    lines = done.stdout
    assert max(map(len, lines.splitlines())) <= 60
    assert "3.59 ms" in lines


def test_what_every_row_says_is_said_once_where_room_is_scarce() -> None:
    made = table("unit")
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
