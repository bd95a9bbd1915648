"""Formats of a table: a sweep directory, a file, rows, columns or a frame, read into columns by their names."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from itertools import islice, zip_longest
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.fit.data.numbers import Columns, in_columns, of_rows
from dwsweep.records.record import each_key_once
from dwsweep.text import printable

FORMATS = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet")
ROWS_AT_A_TIME = 50_000


def load(table: Any) -> tuple[Columns, str, str, str | None]:
    """(columns, source, SHA-256 of the content, sweep directory or None) of a table as ``read_table`` takes it."""
    table = _columns_of_frame(table)
    if isinstance(table, Mapping):
        held, source = in_columns(_of_columns("table:", table)), "a dict of columns"
    elif isinstance(table, Sequence) and not isinstance(table, str | bytes):
        if not all(isinstance(row, Mapping) for row in table):
            raise InputError("table: a list whose items are not all dicts; must be a list of dicts")
        held, source = in_columns(of_rows(table)), "a list of rows"
    else:
        return _load_path(str(table))
    return held, source, hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest(), None


def _columns_of_frame(table: Any) -> Any:
    """A pyarrow, polars or pandas table as a dict of columns, known by what it can do; anything else unchanged."""
    if isinstance(table, Mapping | str | PathLike):
        return table
    if hasattr(table, "to_pydict"):  # pyarrow
        return table.to_pydict()
    if not hasattr(table, "to_dict"):
        return table
    if hasattr(table, "collect") and not hasattr(table, "iloc"):  # polars, not read yet
        table = table.collect()
    if not hasattr(table, "columns"):
        raise InputError(f"table: a {type(table).__name__}; must be a table with columns")
    if len(set(table.columns)) < len(table.columns):  # pandas; a dict would keep the last one
        twice = next(name for name in table.columns if list(table.columns).count(name) > 1)
        raise InputError(f"table: column {str(twice)!r} is there twice, a name must be there once")
    return table.to_dict("list") if hasattr(table, "iloc") else table.to_dict(as_series=False)


def _load_path(name: str) -> tuple[Columns, str, str, str | None]:
    path = paths.reachable(name)
    directory = None
    if path.is_dir():
        directory, path = str(path), path / "results.csv"
        if not path.exists():
            raise InputError(f"table: {name}; a directory needs a results.csv (a sweep directory of `dwsweep run`)")
    elif not path.exists():
        raise InputError(f"table: {name}; no such file or directory")
    elif not path.is_file():
        raise InputError(f"table: {name}; a pipe or a device, must be a file or a sweep directory")
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"table: {name}; the name must end in one of {', '.join(FORMATS)}, or be a sweep directory")
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    try:
        if suffix in (".csv", ".tsv"):
            held = _read_csv(name, content.decode("utf-8-sig"))
        elif suffix == ".json":
            held = in_columns(_read_json(name, content.decode("utf-8-sig")))
        elif suffix == ".parquet":
            held = in_columns(_read_parquet(content))
        else:
            held = in_columns(of_rows(_read_json_lines(name, content.decode("utf-8-sig"))))
    except InputError:
        raise
    except (UnicodeDecodeError, ValueError, OSError, RecursionError, csv.Error) as error:
        raise InputError(f"table: {name}; not readable as {suffix[1:]}: {str(error).splitlines()[0]}") from error
    return held, str(path), digest, directory


def _read_parquet(content: bytes) -> Columns:
    """Columns of plain values and of structs (config.n_layer); lists and maps hold nothing that a fit reads, and take
    long."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(content))
    plain = [one.name for one in file.schema_arrow if pa.types.is_struct(one.type) or not pa.types.is_nested(one.type)]
    return file.read(columns=plain).to_pydict()


def _of_columns(what: str, columns: Mapping[Any, Any]) -> Columns:
    """Columns of one length; a column is a sequence, or a dict by row label (what pandas writes as JSON)."""
    held = {str(name): list(v.values()) if isinstance(v, Mapping) else v for name, v in columns.items()}
    single = [name for name, values in held.items() if isinstance(values, str) or not _has_length(values)]
    if single:
        raise InputError(f"{what} column {single[0]!r} is one value; must be a list of values, one per row")
    lengths = {name: len(values) for name, values in held.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{what} columns of different lengths {lengths}; all columns need the same length")
    return {name: list(values) for name, values in held.items()}


def _has_length(values: Any) -> bool:
    try:
        len(values)
    except TypeError:  # a number, a generator, a NumPy array of no dimension
        return False
    return True


def _read_json(name: str, text: str) -> Columns:
    """Columns of a JSON file: a list of records, or an object of columns."""
    found = json.loads(text, object_pairs_hook=each_key_once)
    if isinstance(found, dict):
        return _of_columns(f"table: {name};", found)
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise InputError(f"table: {name}; must be a list of objects, one per run, or an object of columns")
    return of_rows(found)


def _read_json_lines(name: str, text: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):  # no other line break: strings may hold them
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=each_key_once)
        except ValueError as error:
            what = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise InputError(f"table: {name}, line {number}: {line.strip()[:40]!r}; not JSON: {what}") from None
        if not isinstance(row, dict):
            raise InputError(f"table: {name}, line {number}: {line.strip()[:40]!r}; must be a JSON object")
        rows.append(row)
    return rows


def _read_csv(name: str, text: str) -> Columns:
    """Columns of a CSV or TSV, whose fields a comma, a semicolon or a tab separates: what the header has most of."""
    header = text.lstrip().partition("\n")[0]
    reader = csv.reader(io.StringIO(text), delimiter=max("\t,;", key=header.count))
    lines = filter(None, reader)
    names = [printable(one.strip()) for one in next(lines, [])]
    twice = sorted({one for one in names if names.count(one) > 1})
    if twice:
        raise InputError(f"table: {name}; column {twice[0]!r} is there twice, a name must be there once")
    held: Columns = {one: [] for one in names}
    while rows := list(islice(lines, ROWS_AT_A_TIME)):
        if any(len(row) > len(names) for row in rows):
            raise InputError(f"table: {name}; a row has more fields than the header")
        columns = zip_longest(*rows)
        texts = {one: list(next(columns, [None] * len(rows))) for one in names}
        for one, column in in_columns(texts).items():
            held[one] += column
    return held
