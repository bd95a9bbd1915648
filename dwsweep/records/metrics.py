"""Metrics of one run: ``metrics.jsonl``, a row per logged step."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any, Required, TypedDict, cast

from dwsweep import paths
from dwsweep.records.record import Damaged, read
from dwsweep.records.run import RunResult

MOST = 1 << 63  # largest whole number: one with 400 digits has no float
METRICS = ("loss", "learning_rate", "grad_norm", "seconds")


class MetricsRow(TypedDict, total=False):
    """One logged step. A mapping: files are cut and joined line by line, with whatever else a line holds."""

    step: Required[int]
    loss: float | None  # training, nats per token
    learning_rate: float | None
    grad_norm: float | None
    seconds: float | None  # training seconds so far
    conditioning: list[float | None]  # condition number of each block's attention after this step (train.conditioning)
    conditioning_at_start: list[float | None]  # condition numbers before the first step; set in the first row


@dataclass(frozen=True)
class Metrics:
    """Readable rows of a run's metrics."""

    rows: tuple[MetricsRow, ...]  # rows in file order, steps rising
    lost: int = 0  # damaged lines, except a last line that a kill cut off

    def left_out(self, run_id: str) -> str:
        """Warning about lost lines of a run's file; empty if none is lost."""
        if not self.lost:
            return ""
        lost = f"{self.lost:,} of {len(self.rows) + self.lost:,} lines are damaged or missing"
        return f"LINES LEFT OUT: runs/{run_id}/metrics.jsonl: {lost}; `dwsweep verify` checks every file"


def read_metrics(path: Any) -> Metrics:
    """Rows of a file, uploaded segments included; lines without a row, changed lines, another run's lines and lines
    missing in the middle are counted and left out."""
    text = paths.read_text_of_lines(path)
    rows: list[MetricsRow] = []
    bad, last, last_number = 0, -1, 0
    found = list(paths.checked_lines(text, path))
    if found and found[-1][1] is None and not text.endswith("\n"):
        found.pop()  # a kill cut off the last line
    for number, content in found:
        row = _metrics_row(content) if content is not None else None
        if row is None or row["step"] <= last or (number is not None and number <= last_number):
            bad += 1
            continue
        rows.append(row)
        last, last_number = row["step"], number or last_number + 1
    return Metrics(tuple(rows), max(bad, last_number - len(rows)))


def metrics_of(folder: Any) -> Metrics:
    """Metrics in the ``folder`` of a run; lost are also lines that its result.json counts and the file lacks."""
    found = read_metrics(folder / "metrics.jsonl")
    with contextlib.suppress(Damaged, OSError):  # faults of result.json are reported elsewhere
        result = read(folder / "result.json", RunResult)
        if result is not None and result.metrics_rows is not None:
            return replace(found, lost=max(found.lost, result.metrics_rows - len(found.rows)))
    return found


def _metrics_row(row: dict[str, Any]) -> MetricsRow | None:
    if not _is_count(row.get("step")):
        return None
    known = [row[name] for name in METRICS if name in row]
    return cast(MetricsRow, row) if all(value is None or _is_number(value) for value in known) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MOST


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < MOST)
