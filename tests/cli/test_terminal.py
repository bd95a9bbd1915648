"""The terminal: numbers stay whole where it is narrow, and streams of others are left alone."""

from __future__ import annotations

from checkout import SWEEPS
from shown import printed

from dwsweep.plan import build
from dwsweep.report import plan_report
from dwsweep.report.console import render
from dwsweep.report.document import INTERVAL, Table, label, prose
from dwsweep.spec import load_spec


def test_a_narrow_terminal_wraps_words_and_cuts_no_number() -> None:
    table = Table("", [label("first"), INTERVAL, label("empty"), prose("words")], ruled=False)
    table.add("1.23456789", "0.1 … 0.9", "", "words that may well wrap")
    lines = printed(render([table]), 30).splitlines()
    assert len(lines) > 2 and "1.23456789  0.1 … 0.9" in lines[1] and "empty" not in lines[0]
    plan = build(load_spec(SWEEPS / "levine2020.yaml"))
    assert {line.rstrip() for line in printed(plan_report.render(plan), 200).splitlines() if "3 RUN" in line} <= {
        line.rstrip() for line in printed(plan_report.render(plan), 60).splitlines()
    }
