"""Report of ``dwsweep verify``: whole and faulty files of a sweep directory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dwsweep.report.console import render as rendered
from dwsweep.report.document import Lines, TextTable, label, number, prose
from dwsweep.sweep.inventory import SweepFile, faulty
from dwsweep.text import join

MOST_FAULTS = 3  # most files that a row names
REMEDIES = (
    "`dwsweep run` writes again what follows from the plan and other files, and trains the runs without a result; "
    "`dwsweep fit` writes fit/, `dwsweep prepare` the token store"
)


def render(found: Mapping[str, Sequence[SweepFile]]) -> Any:
    """Table of the kinds of files and a line on the commands that mend, for rich."""
    table = TextTable("", [label("file"), *map(number, ("whole", "faulty")), prose("what is wrong")])
    whole = bad = 0
    for kind, files in found.items():
        faults = [*faulty(files)]
        shown = join(map(_shown, faults), MOST_FAULTS, "; ")
        counts = len(files) - len(faults), len(faults)
        table.add(kind, *(str(count or "") for count in counts), shown, strong=bool(faults))
        whole, bad = whole + counts[0], bad + counts[1]
    return rendered([table, Lines([f"{whole:,} files whole, {bad} faulty", *([REMEDIES] if bad else [])])])


def _shown(fault: SweepFile) -> str:
    parts = str(fault.path).split("/")
    return f"{parts[-2]}: {fault.why}" if "*" in fault.kind else fault.why


def to_json(found: Mapping[str, Sequence[SweepFile]]) -> dict[str, Any]:
    """Whole and faulty files of each kind as plain values."""
    return {
        "is_whole": not any(file.why for files in found.values() for file in files),
        "files": [
            {
                "file": kind,
                "whole": sum(not file.why for file in files),
                "faulty": [{"path": str(fault.path), "why": fault.why} for fault in faulty(files)],
            }
            for kind, files in found.items()
        ],
    }
