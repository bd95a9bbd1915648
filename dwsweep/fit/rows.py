"""Rows that take part in a fit: of the runs of one shape, those of one recipe.

Runs of one shape that were trained differently are no replicates of each other: one recipe per cell.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from dwsweep.errors import InputError, example
from dwsweep.records import columns
from dwsweep.text import listed

Row = dict[str, Any]
"""One run of anybody's table, under whatever columns it has."""

RECIPE = columns.named("recipe")  # what must be the same for all runs of a shape, whatever their learning rate
TUNING = columns.named("tuning")  # what must be the same for the runs of a shape at one learning rate
COUNTS = {"tokens", "steps"}  # equal up to a last, incomplete batch
COUNT_TOLERANCE = 1.02
VALUES_LISTED = 6
ARM = "arm"  # the column that tells apart the arms of one sweep


class Word(str):
    """A word or a sign that stands in the place of a number: FAIL, –, #N/A."""


def one_recipe(
    rows: Sequence[Row], cells: Sequence[tuple[Hashable, Hashable]], counted: int, named: Iterable[str] = ()
) -> tuple[dict[int, str], list[str]]:
    """Rows that are left out so that every cell has one recipe: index → why, and a warning per column.

    cells: (shape, learning rate) of each row. counted: the first rows are finished, the others are not and follow.
    named: further columns that the user has named.

    A column that takes several values within a cell is settled by the value that most runs of the table share, where
    every such cell has it.

    Raises:
        InputError: there is no such value; one line says what to choose between.
    """
    out: dict[int, str] = {}
    warnings: list[str] = []
    open_: dict[str, Hashable] = {}  # column → a cell where it varies
    present = {name for row in rows for name in row}
    for name in dict.fromkeys((*RECIPE, *TUNING, *named)):
        if name not in present or len({_setting(row, name) for row in rows}) < 2:
            continue
        left = [k for k in range(len(rows)) if k not in out]
        values: dict[Hashable, set[Any]] = defaultdict(set)
        counts: Counter[Any] = Counter()
        for k in left[: sum(k < counted for k in left)]:
            value = _setting(rows[k], name)
            if value is not None or name in RECIPE:
                values[_cell(cells[k], name)].add(value)
                counts[value] += 1
        mixed = {cell for cell, seen in values.items() if _differ(name, seen)}
        if not mixed:
            continue
        best = max(counts, key=lambda value: (counts[value], str(value)))
        if 2 * counts[best] <= counts.total() or not all(best in values[cell] for cell in mixed):
            open_[name] = min(mixed, key=str)
            continue
        for k in left:
            value = _setting(rows[k], name)
            if _cell(cells[k], name) in mixed and value != best and (value is not None or name in RECIPE):
                out[k] = f"{name} = {value}"
        warnings.append(
            f"{name}: {_listed(counts)} within one shape; only {name} = {best} is used there "
            "(choose with a `where` expression)"
        )
    if open_:
        raise InputError(_refusal(rows[:counted], cells, open_))
    return out, warnings


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


def arms(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by their arm, in the order of the table; "" for those without one."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        value = row.get(ARM)
        found["" if value is None else str(value)].append(row)
    return dict(found)


def of_arm(rows: Sequence[Row]) -> str:
    """The expression of ``where`` that keeps the arm of these rows."""
    return f"{ARM} == {rows[0].get(ARM)!r}"


def check_one_arm(rows: Sequence[Row], source: str) -> None:
    """Refuses rows of several arms: they were trained by different recipes on purpose, and are no replicates."""
    found = arms(rows)
    labels = list(found)
    if len(labels) < 2:
        return
    choice = of_arm(found[labels[-1]])
    raise InputError(
        f"{ARM}: {source} holds {len(labels)} ({_listed(labels)}), which would be averaged; compare them with "
        f"{example('dwsweep.compare_arms', '--compare')}, or choose one with "
        + example(f"where={choice!r}", f"--where {chr(34)}{choice}{chr(34)}")
    )


def _cell(cell: tuple[Hashable, Hashable], name: str) -> Hashable:
    return (cell[0], None) if name in RECIPE else cell


def _setting(row: Row, name: str) -> Any:
    value = row.get(name)
    return value if value is None or isinstance(value, Hashable) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _differ(name: str, seen: set[Any]) -> bool:
    if name in COUNTS and all(isinstance(value, int | float) and 0 < value < math.inf for value in seen):
        return max(seen) > COUNT_TOLERANCE * min(seen)
    return len(seen) > 1


def _listed(values: Iterable[Any]) -> str:
    shown = sorted(set(values), key=lambda v: (0, v, "") if isinstance(v, int | float) else (1, 0, str(v)))
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in shown]
    return listed(texts, VALUES_LISTED)


def _refusal(rows: Sequence[Row], cells: Sequence[tuple[Any, Hashable]], varying: dict[str, Any]) -> str:
    """The refusal: what varies, where, and the choice that keeps the most shapes."""
    kept = list(range(len(rows)))
    parts, choices = [], []
    values: dict[str, set[Any]] = {}
    for name, cell in varying.items():
        here = {_setting(rows[k], name) for k in range(len(rows)) if _cell(cells[k], name) == cell} - {None}
        values[name] = here
        parts.append(f"{name} ({_listed(here)} at {cell[0][0]}×{cell[0][1]:g})")
        shapes: dict[Any, set[Any]] = defaultdict(set)
        for k in kept:
            if _setting(rows[k], name) is not None:
                shapes[_setting(rows[k], name)].add(cells[k][0])
        if name == "lr" or not shapes:
            continue
        best = max(shapes, key=lambda value: (len(shapes[value]), str(value)))
        kept = [k for k in kept if _setting(rows[k], name) == best]
        choices.append(f"{name} == {best!r}")
    advice = []
    if choices:
        text = " and ".join(choices)
        advice.append(f"choose, such as with {example(f'where={text!r}', f'--where {chr(34)}{text}{chr(34)}')}")
    if along := next((name for name, here in values.items() if len(here) > 1 and all(map(_is_number, here))), None):
        advice.append(f"or compare them with {example(f'dwsweep.fit_along(table, {along!r})', f'--along {along}')}")
    if "lr" in varying:
        advice.append("rename with " + example("columns={'learning_rate': 'lr'}", "--column learning_rate=lr"))
    return f"recipes that differ within one shape would be averaged: {', '.join(parts)}; {'; '.join(advice)}"
