"""Row of a table: its loss, and its arm."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dwsweep.text import join

Row = dict[str, Any]
"""One run of anybody's table, under whatever columns it has."""

VALUES_LISTED = 6
ARM = "arm"  # column that tells the arms of one sweep apart


class Word(str):
    """Word or sign in place of a number: FAIL, –, #N/A."""


def why_no_loss(row: Row) -> str:
    """Reason why a row has no usable loss, divergence excepted; empty if it has one."""
    status, loss = row.get("status") or "done", row.get("loss")
    if isinstance(status, Word):
        return status
    if status != "done" and (status := str(status).lower()) not in ("done", "diverged"):
        return status
    if status == "done" and loss is None:
        return "no loss"
    return "loss is NaN" if status == "done" and loss != loss else ""


def no_loss(why: str) -> str:
    """Predicate about rows for a reason of ``why_no_loss``: ``have no loss``, ``are oom``."""
    if isinstance(why, Word):
        return f"have {why} for a loss"
    return {"no loss": "have no loss", "loss is NaN": "have NaN for a loss"}.get(why, f"are {why}")


def listed_values(values: Iterable[Any]) -> str:
    """Values of a column in their order, for a message."""
    shown = sorted(set(values), key=lambda v: (0, v, "") if isinstance(v, int | float) else (1, 0, str(v)))
    texts = ["blank" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in shown]
    return join(texts, VALUES_LISTED)
