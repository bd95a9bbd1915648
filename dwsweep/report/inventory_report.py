"""Report of ``dwsweep verify``: whole, rebuilt and lost files of a sweep directory."""

from __future__ import annotations

from typing import Any

from dwsweep.report.console import render as rendered
from dwsweep.report.document import Lines, Table, label, number, prose
from dwsweep.sweep.inventory import File, Inventory

MOST_FAULTS = 3  # most files that a row names


def render(found: Inventory) -> Any:
    """Table of the inventory and lines on the repairs, for rich."""
    table = Table("", [label("file"), *map(number, ("whole", "rebuilt", "lost")), prose("what was wrong")])
    for finding in found.findings:
        faults = [*finding.rebuilt, *finding.lost]
        shown = "; ".join(_shown(fault) for fault in faults[:MOST_FAULTS])
        more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
        counts = [str(number or "") for number in (finding.whole, len(finding.rebuilt), len(finding.lost))]
        table.add(finding.kind, *counts, shown + more, strong=bool(finding.lost))
    lost = sum(len(finding.lost) for finding in found.findings)
    rebuilt = sum(len(finding.rebuilt) for finding in found.findings)
    whole = sum(finding.whole for finding in found.findings)
    said = f"{whole:,} files whole, {rebuilt} rebuilt, {lost} lost"
    if any(fault.kind == "runs/*/result.json" for finding in found.findings for fault in finding.lost):
        said += "; `dwsweep run` trains the runs again whose result is lost"
    return rendered([table, Lines([*found.notes, said])])


def _shown(fault: File) -> str:
    parts = str(fault.path).split("/")
    return f"{parts[-2]}: {fault.why}" if "*" in fault.kind else fault.why


def to_json(found: Inventory) -> dict[str, Any]:
    """Inventory as plain values."""
    return {
        "is_whole": found.is_whole,
        "files": [
            {
                "file": finding.kind,
                "whole": finding.whole,
                **{
                    name: [{"path": str(fault.path), "why": fault.why} for fault in faults]
                    for name, faults in (("rebuilt", finding.rebuilt), ("lost", finding.lost))
                },
            }
            for finding in found.findings
        ],
        "notes": list(found.notes),
    }
