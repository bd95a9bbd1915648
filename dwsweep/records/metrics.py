"""``metrics.jsonl``: one row per logged step."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Required, TypedDict, cast

from dwsweep import paths

NUMBERS = ("loss", "learning_rate", "grad_norm", "seconds")


class MetricsRow(TypedDict, total=False):
    """One logged step. A mapping: files are cut and joined line by line, with whatever else a line holds."""

    step: Required[int]
    loss: float | None  # training, nats per token
    learning_rate: float | None
    grad_norm: float | None
    seconds: float | None  # of training so far


@dataclass(frozen=True)
class Metrics:
    """What could be read of a run's metrics."""

    rows: tuple[MetricsRow, ...]  # in the order of the file, steps rising
    lost: int = 0  # lines that are no such row, bar a last one that a kill cut off


def read(path: Any) -> Metrics:
    """The rows of a file, uploaded segments included; what is no row is counted and left out."""
    text = paths.read_text_of_lines(path)
    rows: list[MetricsRow] = []
    lost, last = 0, -1
    whole, _, torn = text.rpartition("\n")
    lines = whole.split("\n") if whole else []
    for line in [*lines, torn]:
        if not line.strip():
            continue
        row = _row(line)
        if row is not None and row["step"] > last:
            rows.append(row)
            last = row["step"]
        elif line is not torn:
            lost += 1
    return Metrics(tuple(rows), lost)


def _row(line: str) -> MetricsRow | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not _is_count(row.get("step")):
        return None
    known = [row[name] for name in NUMBERS if name in row]
    return cast(MetricsRow, row) if all(value is None or _is_number(value) for value in known) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
