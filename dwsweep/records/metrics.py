"""Metrics of one run: ``metrics.jsonl``, a row per logged step."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass, replace
from typing import Any, Required, TypedDict, cast

from dwsweep import jsonl, paths
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
    lost: int = 0  # damaged or missing lines, except a last line that a kill cut off
    fault: str = ""  # why it is not the file of the finished run: no row is read, for any may be a wrong one

    def left_out(self, run_id: str) -> str:
        """Warning about lost lines of a run's file; empty if none is lost."""
        if not self.lost:
            return ""
        lost = f"{self.lost:,} of {len(self.rows) + self.lost:,} lines are damaged or missing"
        if self.fault:
            lost = f"{self.fault}, and none of its {self.lost:,} lines is read"
        return f"LINES LEFT OUT: runs/{run_id}/metrics.jsonl: {lost}; `dwsweep verify` checks every file"


CHANGED, MISSING = "its SHA-256 is not the one in result.json", "is missing"


def read_metrics(path: Any) -> Metrics:
    """Rows of a file, uploaded segments included; lines without a row are counted and left out."""
    return _metrics(jsonl.bytes_of_lines(path))


def _metrics(data: bytes) -> Metrics:
    rows: list[MetricsRow] = []
    bad, last = 0, -1
    found = list(jsonl.lines_of(data))
    if found and found[-1] is None and not data.endswith(b"\n"):
        found.pop()  # a kill cut off the last line
    for content in found:
        row = _metrics_row(content) if content is not None else None
        if row is None or row["step"] <= last:
            bad += 1
            continue
        rows.append(row)
        last = row["step"]
    return Metrics(tuple(rows), bad)


def metrics_of(folder: Any) -> Metrics:
    """Metrics in the ``folder`` of a run; of a finished run those of exactly the file that it wrote."""
    data = jsonl.bytes_of_lines(path := folder / "metrics.jsonl")
    result = None
    with contextlib.suppress(Damaged, OSError):  # faults of result.json are reported elsewhere
        result = read(folder / "result.json", RunResult)
    if result is not None and result.metrics_sha256 not in (None, hashlib.sha256(data).hexdigest()):
        fault = CHANGED if data or paths.is_there(path) else MISSING
        return Metrics((), result.metrics_rows or 1, fault)
    found = _metrics(data)
    return replace(found, lost=max(found.lost, ((result and result.metrics_rows) or 0) - len(found.rows)))


def _metrics_row(row: dict[str, Any]) -> MetricsRow | None:
    step = row.get("step")
    if type(step) is not int or not 0 <= step < MOST:
        return None
    known = [row[name] for name in METRICS if name in row]
    return cast(MetricsRow, row) if all(value is None or _is_number(value) for value in known) else None


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < MOST)
