"""Report of ``dwsweep verify``: whole and faulty files of a sweep directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dwsweep.report.console import render as rendered
from dwsweep.report.document import Lines, TextTable, label, number, prose
from dwsweep.sweep.inventory import Finding, SweepFile
from dwsweep.text import join

MOST_FAULTS = 3  # most files that a row names
REMEDIES = (
    "`dwsweep run` writes again what follows from the plan and other files, and trains the runs without a result; "
    "`dwsweep fit` writes fit/, `dwsweep prepare` the token store"
)


def render(found: Sequence[Finding]) -> Any:
    """Table of the findings and a line on the commands that mend, for rich."""
    table = TextTable("", [label("file"), *map(number, ("whole", "faulty")), prose("what is wrong")])
    for finding in found:
        shown = join(map(_shown, finding.faulty), MOST_FAULTS, "; ")
        counts = [str(number or "") for number in (finding.whole, len(finding.faulty))]
        table.add(finding.kind, *counts, shown, strong=bool(finding.faulty))
    faulty = sum(len(one.faulty) for one in found)
    total = f"{sum(one.whole for one in found):,} files whole, {faulty} faulty"
    return rendered([table, Lines([total, *([REMEDIES] if faulty else [])])])


def _shown(fault: SweepFile) -> str:
    parts = str(fault.path).split("/")
    return f"{parts[-2]}: {fault.why}" if "*" in fault.kind else fault.why


def to_json(found: Sequence[Finding]) -> dict[str, Any]:
    """Findings as plain values."""
    return {
        "is_whole": not any(finding.faulty for finding in found),
        "files": [
            {
                "file": finding.kind,
                "whole": finding.whole,
                "faulty": [{"path": str(fault.path), "why": fault.why} for fault in finding.faulty],
            }
            for finding in found
        ],
    }
