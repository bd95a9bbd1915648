"""Report of ``dwsweep verify``: whole and faulty files of a sweep directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dwsweep.report.console import render as rendered
from dwsweep.report.document import Lines, Table, label, number, prose
from dwsweep.sweep.inventory import File, Finding

MOST_FAULTS = 3  # most files that a row names
REMEDIES = (
    ("", "`dwsweep run` writes again what follows from the plan and other files, and trains the runs without a result"),
    ("fit/", "`dwsweep fit` writes its files again"),
    ("token store", "`dwsweep prepare` makes the token store again"),
)
"""Command for faulty files, by the beginning of their kind; the first is for all kinds without one of their own."""


def render(found: Sequence[Finding]) -> Any:
    """Table of the findings and lines on the commands that mend, for rich."""
    table = Table("", [label("file"), *map(number, ("whole", "faulty")), prose("what is wrong")])
    for finding in found:
        shown = "; ".join(map(_shown, finding.faulty[:MOST_FAULTS]))
        more = f"; and {len(finding.faulty) - MOST_FAULTS} more" if len(finding.faulty) > MOST_FAULTS else ""
        counts = [str(number or "") for number in (finding.whole, len(finding.faulty))]
        table.add(finding.kind, *counts, shown + more, strong=bool(finding.faulty))
    kinds = [finding.kind for finding in found if finding.faulty]
    own = {start: any(kind.startswith(start) for kind in kinds) for start, _ in REMEDIES[1:]}
    own[""] = any(not kind.startswith(tuple(own)) for kind in kinds)
    total = f"{sum(one.whole for one in found):,} files whole, {sum(len(one.faulty) for one in found)} faulty"
    return rendered([table, Lines([total, *(remedy for start, remedy in REMEDIES if own[start])])])


def _shown(fault: File) -> str:
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
