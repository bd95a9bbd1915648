"""Objects: JSON and JSON lines as rows, columns, or runs under one key."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any

from dwsweep.errors import InputError
from dwsweep.fit.data.cell import Columns, of_rows
from dwsweep.records.columns import ALIASES, REQUIRED
from dwsweep.records.record import each_key_once
from dwsweep.text import join, printable

KEYS = ("results", "runs", "data", "rows", "records", "experiments", "trials")
"""Keys under which people keep the runs of a file."""
KNOWN = {*REQUIRED, *(name for own in REQUIRED for name in ALIASES[own])}


def read(what: str, text: str) -> Columns:
    """Columns of JSON: a list of records, an object of columns or of named records, one of them under a key; or records
    line by line.

    what: begins the line of an error, ``table: runs.json;``.

    Raises:
        InputError: it holds something else. ValueError, RecursionError: it is no JSON.
    """
    try:
        found = json.loads(text, object_pairs_hook=each_key_once)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and "\n" in text.strip():
            return of_rows(read_lines(what, text))
        raise
    if isinstance(found, dict) and {*found} in ({"columns", "data"}, {"columns", "data", "index"}):  # as pandas splits
        return of_rows([dict(zip(found["columns"], row, strict=True)) for row in found["data"]])
    for _ in range(3):  # {"data": {"runs": […]}}
        inner = _under_a_key(what, found)
        if inner is None:
            break
        found = inner
    if isinstance(found, dict) and _by_name(found):
        found = [{"run": name, **row} for name, row in found.items()]
    if isinstance(found, dict):
        return of_columns(what, found)
    if not isinstance(found, list) or not _all_objects(found):
        raise InputError(f"{what} must be a list of objects, one per run, or an object of columns")
    return of_rows(found)


def of_run(content: bytes) -> dict[str, Any] | None:
    """Values of the run that a JSON object holds by itself, as ``{"config": {…}, "val_loss": 3.2}``; None if it holds
    several runs or points."""
    try:
        found = json.loads(content, object_pairs_hook=each_key_once)
    except (ValueError, RecursionError):
        return None
    values = list(found.values()) if isinstance(found, dict) else []
    several = all(isinstance(value, dict | list) for value in values)
    return None if several and (not _all_objects(values) or _same_keys(values)) else dict(flat(found))


def read_lines(what: str, text: str) -> list[dict[str, Any]]:
    """Rows of JSON lines, one object a run."""
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):  # only these line breaks: strings may hold the others
        if not line.strip():
            continue
        where = f"{what.removesuffix(';')}, line {number}: {line.strip()[:40]!r};"
        try:
            row = json.loads(line, object_pairs_hook=each_key_once)
        except ValueError as error:
            why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise InputError(f"{where} not JSON: {why}") from None
        if not isinstance(row, dict):
            raise InputError(f"{where} must be a JSON object")
        rows.append(row)
    return rows


def of_columns(what: str, columns: Mapping[Any, Any]) -> Columns:
    """Columns of one length; a column is a sequence, or a dict by row label (what pandas writes as JSON), whose values
    stand under their labels, in whatever order these come."""
    labels = dict.fromkeys(label for values in columns.values() if isinstance(values, Mapping) for label in values)
    held: dict[str, list[Any]] = {}
    for name, values in columns.items():
        one_value = isinstance(values, str) or not isinstance(values, Sized) or getattr(values, "shape", None) == ()
        if one_value:
            name = printable(str(name))
            raise InputError(f"{what} column {name!r} is one value; must be a list of values, one per row")
        held[str(name)] = list(map(values.get, labels)) if isinstance(values, Mapping) else list(values)
    counted = Counter(map(len, held.values()))
    if len(counted) > 1:
        usual = counted.most_common(1)[0][0]
        odd = join(f"{printable(name)!r} {len(values)}" for name, values in held.items() if len(values) != usual)
        raise InputError(
            f"{what} columns of different lengths, most {usual} but {odd}; all columns need the same length"
        )
    return held


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Plain values by dotted names; lists, and pictures and tables of W&B, are left out."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from () if "_type" in value else flat(value, f"{prefix}{key}.")
        elif value is None or isinstance(value, str | bool | int | float):
            yield f"{prefix}{key}", value


def _under_a_key(what: str, found: Any) -> Any:
    """Runs of an object that keeps them under one key besides settings; None if it has no such key."""
    if not isinstance(found, dict) or (len(found) > 1 and _same_keys(list(found.values()))):
        return None
    lists = [key for key, value in found.items() if isinstance(value, list) and value and _all_objects(value)]
    named = [key for key in found if key.lower() in KEYS and (key in lists or isinstance(found[key], dict))]
    several = named or lists
    if len(several) > 1:
        keys = join(repr(printable(key)) for key in several)
        raise InputError(f"{what} has runs under {len(several)} keys ({keys}); must be a list of objects, one per run")
    return found[several[0]] if several else None


def _same_keys(values: Sequence[Any]) -> bool:
    """True if all values are objects with the same keys: columns by row label, or records by name."""
    return _all_objects(values) and len({tuple(value) for value in values}) == 1


def _by_name(found: Mapping[str, Any]) -> bool:
    """True if an object holds records by run name: known columns are keys of the records, not of the object."""
    if not found or not _all_objects(list(found.values())):
        return False
    inner = {key.lower() for value in found.values() for key in value}
    return bool(KNOWN & inner) and not KNOWN & {key.lower() for key in found}


def _all_objects(values: Sequence[Any]) -> bool:
    return all(isinstance(value, dict) for value in values)
