"""Formats of a table: a sweep directory, a file, standard input, runs of a tracker, rows, columns or a frame, read into
named columns."""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.fit.data import delimited, folder, objects, packing, trackers, workbook
from dwsweep.fit.data.numbers import Columns, check_names, in_columns, of_rows
from dwsweep.records.sweep import RESULTS_NAME, read_results
from dwsweep.text import printable

FORMATS = (".csv", ".tsv", ".txt", ".md", ".json", ".jsonl", ".ndjson", ".parquet", ".xlsx")
STANDARD_INPUT = "-"
SOURCES = Path(__file__).parents[2] / "evidence" / "sources"
BUILT_IN = {
    "mlfoundations": "mlfoundations_grid.csv",
    "gemstones": "gemstones.csv",
    "open-lm-morph": "open_lm_morph.csv",
}
"""Public tables that come with the package, by name; licence and origin of each are in its .yaml beside it."""


class Loaded(NamedTuple):
    """A table in columns. digest: SHA-256 of the content. directory: the sweep directory, where it is one. comments:
    lines among the rows of a text that begin with ``#``, which are no rows."""

    columns: Columns
    source: str
    digest: str
    directory: str | None = None
    comments: int = 0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Raw rows by column: numbers as int or float, blanks as None."""
        names = tuple(self.columns)
        return [dict(zip(names, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]


def load(table: Any) -> Loaded:
    """A table in any form that ``read_table`` accepts.

    Raises:
        InputError: there is no such file, or it is not readable in the format of its name or first bytes.
    """
    if callable(getattr(table, "read", None)):
        return _of_content(_stream(table), printable(str(getattr(table, "name", "an open file"))), None)
    table = _columns_of_frame(table)
    if isinstance(table, Mapping):
        held, source = in_columns(objects.of_columns("table:", table)), "a dict of columns"
    elif isinstance(table, Sequence) and not isinstance(table, str | bytes):
        if not all(isinstance(row, Mapping) for row in table):
            raise InputError("table: a list whose items are not all dicts; must be a list of dicts")
        held, source = in_columns(of_rows(table)), "a list of rows"
    elif str(table) == STANDARD_INPUT:
        return _of_content(_stream(getattr(sys.stdin, "buffer", sys.stdin)), "standard input", None)
    elif trackers.tracker_of(str(table)) and not paths.as_path(str(table)).exists():
        held, source = trackers.read(str(table)), printable(str(table))
    else:
        return _load_path(str(table))
    return Loaded(held, source, hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest())


@functools.lru_cache(maxsize=2)
def _stream(stream: Any) -> bytes:
    """The content of an open file, kept: two questions to one table read it twice."""
    content = stream.read()
    return content.encode() if isinstance(content, str) else content


def _columns_of_frame(table: Any) -> Any:
    """Columns of a pyarrow, polars or pandas table, recognised by its methods; anything else unchanged."""
    if isinstance(table, Mapping | str | PathLike):
        return table
    if hasattr(table, "to_pydict"):  # pyarrow
        check_names("table:", getattr(table, "column_names", ()))
        return table.to_pydict()
    if not hasattr(table, "to_dict"):
        return table
    if hasattr(table, "collect") and not hasattr(table, "iloc"):  # a polars frame that is not read yet
        table = table.collect()
    if not hasattr(table, "columns"):
        raise InputError(f"table: a {type(table).__name__}; must be a table with columns")
    check_names("table:", table.columns)
    return table.to_dict("list") if hasattr(table, "iloc") else table.to_dict(as_series=False)


def _load_path(name: str) -> Loaded:
    path = paths.reachable(name)
    said, directory = printable(name), None
    if path.is_dir():
        directory, path = str(path), path / RESULTS_NAME
        if not path.exists():
            if paths.is_remote(path) or (path.parent / "spec.yaml").exists():
                raise InputError(f"table: {said}; a directory needs a results.csv (a sweep directory of `dwsweep run`)")
            held, digest = folder.read(path.parent, _of_file)
            return Loaded(held, printable(directory), digest)
    elif not path.exists():
        if name not in BUILT_IN:
            raise InputError(f"table: {said}; no such file or directory")
        path = SOURCES / BUILT_IN[name]
        return _of_content(path.read_bytes(), f"{name} (of the package)", ".csv")
    elif not path.is_file():
        raise InputError(f"table: {said}; a pipe or a device, must be a file or a sweep directory, or - for a pipe")
    suffix = path.suffix.lower()
    if suffix not in (*FORMATS, *packing.SUFFIXES):
        raise InputError(
            f"table: {said}; the name must end in one of {', '.join(FORMATS)}, or one of these and "
            f"{', '.join(packing.SUFFIXES)}, or be a sweep directory or - for standard input"
        )
    content = read_results(path) if path.name == RESULTS_NAME else paths.read_bytes(path)
    found = _of_content(content, said, path.name)
    return found._replace(source=printable(str(path)), directory=directory)


def _of_file(what: str, path: Path) -> Columns:
    """Columns of one file of a folder."""
    return _of_content(paths.read_bytes(path), what.removeprefix("table: ").removesuffix(";"), path.name).columns


def _of_content(content: bytes, said: str, name: str | None) -> Loaded:
    """``load`` of the bytes of a file. said: how messages call it. name: its last part tells the format; None: the
    content does."""
    digest = hashlib.sha256(content).hexdigest()
    kind = ""
    try:
        content, inner = packing.unpacked(content, name or "")
        suffix = f".{inner.lower().rpartition('.')[2]}"
        kind = suffix if suffix in FORMATS and suffix not in (".txt", ".md") else _kind(content)
        held, comments = _read(f"table: {said};", content, kind)
    except InputError:
        raise
    except (ValueError, RecursionError, csv.Error, KeyError, *packing.ERRORS) as error:
        why = printable((str(error).splitlines() or [type(error).__name__])[0])
        raise InputError(f"table: {said}; not readable as {kind[1:] or 'a packed file'}: {why}") from error
    return Loaded(held, said, digest, comments=comments)


def _kind(content: bytes) -> str:
    """Format of a file by its first bytes, if its name has no known suffix."""
    if content.startswith(b"PAR1"):
        return ".parquet"
    if content.startswith(packing.ZIP):
        return ".xlsx"
    return ".json" if packing.text_of(content).lstrip()[:1] in ("[", "{") else ".csv"


def _read(what: str, content: bytes, kind: str) -> delimited.Read:
    if kind == ".parquet":
        return delimited.Read(in_columns(_read_parquet(what, content), what), 0)
    if kind == ".xlsx":
        return workbook.read(what, content)
    text = packing.text_of(content)
    if kind in (".csv", ".tsv"):
        return delimited.read(what, text)
    held = objects.read(what, text) if kind == ".json" else objects.read_lines(what, text)
    return delimited.Read(in_columns(held, what), 0)


def _read_parquet(what: str, content: bytes) -> Columns:
    """Columns of plain values and of structs (config.n_layer); lists and maps are skipped: a fit reads none of them,
    and they take long."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(content))
    check_names(what, file.schema_arrow.names)
    plain = [one.name for one in file.schema_arrow if pa.types.is_struct(one.type) or not pa.types.is_nested(one.type)]
    return file.read(columns=plain).to_pydict()
