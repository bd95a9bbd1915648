"""Numbers of a table: its texts, read as numbers where they are some."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dwsweep.fit.rows import ARM
from dwsweep.text import printable

Columns = dict[str, list[Any]]
"""Values by the name of their column."""

MISSING_TEXT = {"", "none", "null", "na", "n/a", "<na>", "nat"}
LARGEST_INT = 10**300  # what a float still holds


def in_columns(held: Mapping[Any, list[Any]]) -> Columns:
    """The columns as numbers where texts read as some. What a table calls its columns and holds in them enters here,
    so that nothing of it steers a terminal; the name of an arm stays a text, be it 7 or none. A column of dicts is as
    many as they have keys (config.n_layer)."""
    found: Columns = {}
    for name, values in held.items():
        ours = printable(str(name).strip())
        inner = [{} if value is None else value for value in values]
        if any(inner) and all(isinstance(value, Mapping) for value in inner):
            found |= {f"{ours}.{key}": column for key, column in in_columns(of_rows(inner)).items()}
            continue
        read: dict[Any, Any] = {}
        column = []
        for value in values:
            if value.__class__ is not str:
                column.append(value if value.__class__ is float else _as_read(ours, value))
                continue
            if value not in read:
                read[value] = _as_read(ours, value)
            column.append(read[value])
        found[ours] = column
    return found


def _as_read(name: str, value: Any) -> Any:
    read = value.strip() or None if name == ARM and isinstance(value, str) else as_number(value)
    return printable(read) if isinstance(read, str) else read


def of_rows(rows: Sequence[Mapping[Any, Any]]) -> Columns:
    """Columns of rows, in the order in which their names come; None where a row has none."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(name for row in rows for name in row)}


def as_number(value: Any) -> Any:
    """``value`` as int or float where it reads as one, None for a blank, else unchanged."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < LARGEST_INT else (math.inf if value > 0 else -math.inf)
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:  # a NumPy scalar
        return as_number(value.item())
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        return None if text.lower() in MISSING_TEXT else text
    return int(number) if number.is_integer() and "e" not in text.lower() and "." not in text else number
