"""One recipe per cell: runs of one shape that were trained differently are no replicates of each other."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from dwsweep.errors import InputError, argument, example
from dwsweep.fit.row_filter import Row

# what must be the same for all runs of a shape, whatever their learning rate
RECIPE = (
    *("heads", "head_size", "parametrization", "optimizer", "schedule", "precision"),
    *("batch_size", "seq_len", "vocab_size", "data_hash"),
)
# what must be the same for the runs of a shape at one learning rate; the second line as other people's tables call it
TUNING = (
    *("tokens", "steps", "warmup_steps", "weight_decay", "grad_clip", "betas", "beta1", "beta2", "dropout", "min_lr"),
    *("warmup", "wd", "lr", "lr_schedule", "scheduler", "batch", "global_batch", "global_batch_size", "cooldown"),
    *("context_length", "tokenizer", "dataset", "dtype", "optim", "activation", "norm", "num_heads", "n_heads"),
)
COUNTS = {"tokens", "steps"}  # equal up to a last, incomplete batch
COUNT_TOLERANCE = 1.02
LISTED = 6


def one_recipe(
    rows: Sequence[Row], cells: Sequence[tuple[Hashable, Hashable]], counted: int, named: Iterable[str] = ()
) -> tuple[dict[int, str], list[str]]:
    """Which rows are left out so that every cell has one recipe: index → why, and a warning per column.

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
    for name in dict.fromkeys((*RECIPE, *TUNING, *named)):
        if not any(name in row for row in rows):
            continue
        left = [k for k in range(len(rows)) if k not in out]
        values: dict[Hashable, set[Any]] = defaultdict(set)
        counts: Counter[Any] = Counter()
        for k in left[: sum(k < counted for k in left)]:
            value = _value(rows[k], name)
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
            value = _value(rows[k], name)
            if _cell(cells[k], name) in mixed and value != best and (value is not None or name in RECIPE):
                out[k] = f"{name} = {value}"
        warnings.append(
            f"{name}: {_listed(counts)} within one shape; only {name} = {best} is used there "
            f"(choose with {argument('where')})"
        )
    if open_:
        raise InputError(_refusal(rows[:counted], cells, open_))
    return out, warnings


def _cell(cell: tuple[Hashable, Hashable], name: str) -> Hashable:
    return (cell[0], None) if name in RECIPE else cell


def _value(row: Row, name: str) -> Any:
    value = row.get(name)
    return value if value is None or isinstance(value, Hashable) else str(value)


def _differ(name: str, seen: set[Any]) -> bool:
    if name in COUNTS and all(isinstance(value, int | float) and 0 < value < math.inf for value in seen):
        return max(seen) > COUNT_TOLERANCE * min(seen)
    return len(seen) > 1


def _listed(values: Iterable[Any]) -> str:
    shown = sorted(set(values), key=lambda v: (0, v, "") if isinstance(v, int | float) else (1, 0, str(v)))
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in shown]
    return ", ".join(texts[:LISTED]) + (f" and {len(texts) - LISTED} more" if len(texts) > LISTED else "")


def _refusal(rows: Sequence[Row], cells: Sequence[tuple[Any, Hashable]], varying: dict[str, Any]) -> str:
    """What varies, where, and the choice that keeps the most shapes."""
    kept = list(range(len(rows)))
    parts, choices = [], []
    for name, cell in varying.items():
        here = {_value(rows[k], name) for k in range(len(rows)) if _cell(cells[k], name) == cell} - {None}
        parts.append(f"{name} ({_listed(here)} at {cell[0][0]}×{cell[0][1]:g})")
        shapes: dict[Any, set[Any]] = defaultdict(set)
        for k in kept:
            if _value(rows[k], name) is not None:
                shapes[_value(rows[k], name)].add(cells[k][0])
        if name == "lr" or not shapes:
            continue
        best = max(shapes, key=lambda value: (len(shapes[value]), str(value)))
        kept = [k for k in kept if _value(rows[k], name) == best]
        choices.append(f"{name} == {best!r}")
    advice = []
    if choices:
        text = " and ".join(choices)
        advice.append(f"choose, such as with {example(f'where={text!r}', f'--where {chr(34)}{text}{chr(34)}')}")
    if "lr" in varying:
        advice.append("rename with " + example("columns={'learning_rate': 'lr'}", "--column learning_rate=lr"))
    return f"recipes that differ within one shape would be averaged: {', '.join(parts)}; {'; '.join(advice)}"
