"""The terminal: numbers stay whole where it is narrow, and streams of others are left alone."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pytest
from checkout import SWEEPS
from rich.console import Console
from shown import printed

from dwsweep import terminal
from dwsweep.plan import build
from dwsweep.records.pack import PackProgress
from dwsweep.report import plan_report, progress
from dwsweep.report.console import render
from dwsweep.report.document import INTERVAL, Table, label, prose
from dwsweep.report.progress import ProgressView
from dwsweep.spec import load_spec


def test_a_stream_of_somebody_else_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    mine = sys.stdout
    terminal.tolerant_streams()
    assert sys.stdout is mine
    terminal.console().print("seen")
    assert capsys.readouterr().out == "seen\n"


def test_a_narrow_terminal_wraps_words_and_cuts_no_number() -> None:
    table = Table("", [label("first"), INTERVAL, label("empty"), prose("words")], ruled=False)
    table.add("1.23456789", "0.1 … 0.9", "", "words that may well wrap")
    lines = printed(render([table]), 30).splitlines()
    assert len(lines) > 2 and "1.23456789  0.1 … 0.9" in lines[1] and "empty" not in lines[0]
    plan = build(load_spec(SWEEPS / "levine2020.yaml"))
    assert {line.rstrip() for line in printed(plan_report.render(plan), 200).splitlines() if "3 RUN" in line} <= {
        line.rstrip() for line in printed(plan_report.render(plan), 60).splitlines()
    }


def test_progress_without_a_terminal_is_a_line_per_pack_with_the_share_that_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=iter(range(0, 1000, 20)).__next__))
    first, second = build(load_spec(SWEEPS / "smoke.yaml")).packs[:2]
    console = Console(file=io.StringIO(), width=200)
    view = ProgressView(console)
    with view:
        view.expect([first, second], "smoke", {})
        view.started(first)
        view.stepped(first.pack_id, PackProgress(step=10, steps=100, losses=(3.0, None), tokens_per_second=5e3))
        view.ended(first.pack_id, "done", True)
    stepped, ended = console.file.getvalue().splitlines()
    assert (
        stepped.startswith(f"{first.shape.label}: step 10/100 · loss 3.0000 · 5,000 tokens/s")
        and "0/2 packs" in stepped
    )
    assert ": done in " in ended and "1/2 packs" in ended
