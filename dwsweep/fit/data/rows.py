"""Row of a table: its values, its loss, and its arm."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Container, Iterable, Sequence
from typing import Any, TypeGuard, TypeVar

from dwsweep.errors import InputError, example
from dwsweep.fit.data import condition
from dwsweep.text import join

Row = dict[str, Any]
"""One run of anybody's table, under whatever columns it has."""
LeftOut = tuple[str, str]
"""Reason for exclusion, as a predicate of rows; option that includes the rows."""

Key = TypeVar("Key")
Value = TypeVar("Value")

VALUES_LISTED = 6
ALIKE = 1.02  # largest over smallest count that counts as one: an incomplete last batch
ARM = "arm"  # column that tells the arms of one sweep apart
CONFIG = {
    *("config", "params", "hparams", "args", "model", "trainer", "optimizer", "arch", "architecture", "cfg", "shape"),
    *("optim", "opt", "training", "data", "net", "network", "transformer", "hyperparameters", "hp", "experiment"),
}  # trackers' sections of settings: config.n_layer
SUMMARY = {"summary", "metrics", "final", "throughput", "result", "results"}  # of final values
EVAL = {"eval", "val"}  # of held-out losses


def plain(name: str) -> str:
    """A column's name in lower case, its words joined by underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def bare_name(name: str, sections: Container[str], whole: Container[str] = ()) -> str:
    """A plain name without the trackers' sections before it, unless it is one of ``whole``."""
    words = name.split("_")
    while len(words) > 1 and words[0] in sections and "_".join(words) not in whole:
        words = words[1:]
    return "_".join(words)


def is_number(value: Any) -> TypeGuard[int | float]:
    """True for a number that is no switch."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def are_alike(numbers: Collection[float]) -> bool:
    """True if positive numbers count as one; there is at least one."""
    return max(numbers) <= ALIKE * min(numbers)


def positive(value: Any) -> TypeGuard[float]:
    """True for a finite number above zero."""
    return is_number(value) and 0 < value < math.inf


class Word(str):
    """Word or sign in place of a number: FAIL, –, #N/A."""


def why_no_loss(row: Row) -> str:
    """Reason why a row has no usable loss, divergence excepted; empty if it has one."""
    status, loss = row.get("status") or "done", row.get("loss")
    if isinstance(status, Word):
        return status
    if (small := str(status).lower()) != "done":
        return "" if small == "diverged" else small
    # no net is certain of every token: a loss of 0 was not measured
    return "no loss" if loss is None else "loss is 0" if loss == 0 else "loss is NaN" if loss != loss else ""


def no_loss(why: str) -> str:
    """Predicate about rows for a reason of ``why_no_loss``: ``have no loss``, ``are oom``."""
    if isinstance(why, Word):
        return f"have {why} for a loss"
    known = {"no loss": "have no loss", "loss is NaN": "have NaN for a loss", "loss is 0": "have 0 for a loss"}
    return known.get(why, f"are {why}")


def listed_values(values: Iterable[Any]) -> str:
    """Values of a column in their order, for a message."""
    shown = sorted(set(values), key=lambda v: (0, v, "") if isinstance(v, int | float) else (1, 0, str(v)))
    texts = ["blank" if value is None else f"{value:g}" if isinstance(value, float) else str(value) for value in shown]
    return join(texts, VALUES_LISTED)


def grouped(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, list[Value]]:
    """Values by key, in the order in which they come."""
    found: dict[Key, list[Value]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def cell_text(value: Any) -> str:
    """A value of a table in a message."""
    if isinstance(value, str | bool):
        return repr(str(value)[:40])
    return "None" if value is None else f"{value:g}"


def arms(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by their arm, in the order of the table; "" for those without one."""
    return grouped(("" if row.get(ARM) is None else str(row[ARM]), row) for row in rows)


def check_one_arm(rows: Sequence[Row], source: str, option: str = "") -> None:
    """Refuse rows of several arms: deliberate differences of recipe are no replicates. option: of a further table."""
    labels = list(arms(rows))
    if len(labels) < 2:
        return
    if option:  # a condition would choose rows of the first table, too
        raise InputError(f"{option}: {source} holds {len(labels)} arms ({listed_values(labels)}); give a table of one")
    choice = condition.equals(ARM, labels[-1] or None)
    raise InputError(
        f"{ARM}: {source} holds {len(labels)} ({listed_values(labels)}), which would be averaged; compare them with "
        f"{example('compare=True', '--compare')}, or choose one with "
        + example(f"where={choice!r}", condition.option(choice))
    )
