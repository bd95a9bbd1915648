"""Row of a table: whether it has a loss, and its arm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from dwsweep.errors import InputError, example
from dwsweep.fit.data import condition
from dwsweep.text import listed

Row = dict[str, Any]
"""One run of anybody's table, under whatever columns it has."""

VALUES_LISTED = 6
ARM = "arm"  # the column that tells apart the arms of one sweep


class Word(str):
    """A word or a sign that stands in the place of a number: FAIL, –, #N/A."""


def why_no_loss(row: Row) -> str:
    """Why a row has no loss that counts, apart from one that diverged; empty where it has one."""
    status, loss = row.get("status") or "done", row.get("loss")
    if isinstance(status, Word):
        return status
    if status != "done" and (status := str(status).lower()) not in ("done", "diverged"):
        return status
    if status == "done" and loss is None:
        return "no loss"
    return "loss is NaN" if status == "done" and loss != loss else ""


def no_loss(why: str) -> str:
    """``have no loss``, ``are oom``: a reason of ``why_no_loss`` in a sentence about rows."""
    if isinstance(why, Word):
        return f"have {why} for a loss"
    return {"no loss": "have no loss", "loss is NaN": "have NaN for a loss"}.get(why, f"are {why}")


def arms(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by their arm, in the order of the table; "" for those without one."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        value = row.get(ARM)
        found["" if value is None else str(value)].append(row)
    return dict(found)


def of_arm(rows: Sequence[Row]) -> str:
    """The expression of ``where`` that keeps the arm of these rows."""
    return condition.equals(ARM, rows[0].get(ARM))


def check_one_arm(rows: Sequence[Row], source: str) -> None:
    """Refuses rows of several arms: they were trained by different recipes on purpose, and are no replicates."""
    found = arms(rows)
    labels = list(found)
    if len(labels) < 2:
        return
    choice = of_arm(found[labels[-1]])
    raise InputError(
        f"{ARM}: {source} holds {len(labels)} ({listed_values(labels)}), which would be averaged; compare them with "
        f"{example('dwsweep.compare_arms', '--compare')}, or choose one with "
        + example(f"where={choice!r}", condition.option(choice))
    )


def listed_values(values: Iterable[Any]) -> str:
    """Values of a column in their order, for a message."""
    shown = sorted(set(values), key=lambda v: (0, v, "") if isinstance(v, int | float) else (1, 0, str(v)))
    texts = ["blank" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in shown]
    return listed(texts, VALUES_LISTED)
