"""Source of a table: a sweep directory, a folder of runs, a file, standard input, runs of a tracker, rows, columns or a
frame, read into named columns.

A format is one function in ``BYTES`` or ``TEXTS``. Texts become numbers at the end, once (``cell.typed``).
"""

from __future__ import annotations

import bz2
import codecs
import csv
import functools
import gzip
import hashlib
import io
import json
import lzma
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from dwsweep import paths
from dwsweep.errors import InputError, install
from dwsweep.fit.data import objects, trackers
from dwsweep.fit.data.cell import Columns, RawCells, check_names, delimited, of_fields, of_rows, typed
from dwsweep.records.sweep import RESULTS_NAME
from dwsweep.text import join, printable

STANDARD_INPUT = "-"
SOURCES = Path(__file__).parents[2] / "evidence" / "sources"
MOST_BYTES = 2**31
"""Largest content of a packed file: a few kilobytes can unpack to fill the memory."""
_OPENED: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"\xfd7zXZ\x00": lzma.open, b"BZh": bz2.open}
PACKED = (".gz", ".xz", ".bz2")
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)  # of a file that packs others
_HEAD = 4096
_CONTROLS = frozenset(range(32)) - set(b"\t\n\r\f\x1b\x1a")


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
        return [dict(zip(self.columns, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]


def load(table: Any) -> Loaded:
    """A table in any form that ``read_table`` accepts.

    Raises:
        InputError: there is no such file, or it is not readable in the format of its name or first bytes.
    """
    if callable(getattr(table, "read", None)):
        return _of_bytes(_stream(table), printable(str(getattr(table, "name", "an open file"))))
    table = _columns_of_frame(table)
    if isinstance(table, Mapping):
        return _of_objects(objects.of_columns("table:", table), "a dict of columns")
    if isinstance(table, Sequence) and not isinstance(table, str | bytes):
        if not all(isinstance(row, Mapping) for row in table):
            raise InputError("table: a list whose items are not all dicts; must be a list of dicts")
        return _of_objects(of_rows(table), "a list of rows")
    if str(table) == STANDARD_INPUT:
        return _of_bytes(_stream(getattr(sys.stdin, "buffer", sys.stdin)), "standard input")
    if trackers.tracker_of(str(table)) and not paths.as_path(str(table)).exists():
        said = printable(str(table))
        return _of_objects(of_rows(trackers.read(str(table))), said, f"table: {said};")
    return _of_path(str(table))


def _of_objects(columns: Mapping[Any, Sequence[Any]], source: str, what: str = "table:") -> Loaded:
    held = typed(columns, what)
    return Loaded(held, source, hashlib.sha256(json.dumps(held, sort_keys=True, default=str).encode()).hexdigest())


def _of_bytes(content: bytes, said: str, name: str = "") -> Loaded:
    """``load`` of the bytes of a file. said: how messages call it. name: its last part."""
    cells = read_cells(content, said, name)
    held = typed(cells.columns, f"table: {said};", cells.separator)
    return Loaded(held, said, hashlib.sha256(content).hexdigest(), comments=cells.comments)


def _of_path(name: str) -> Loaded:
    path, said = paths.reachable(name), printable(name)
    if path.is_dir():
        source = printable(str(path))
        if (results := path / RESULTS_NAME).exists():
            found = _of_bytes(paths.read_bytes(results), said, RESULTS_NAME)
            return found._replace(source=printable(str(results)), directory=str(path))
        if paths.is_remote(path) or (path / "spec.yaml").exists():
            raise InputError(f"table: {said}; a directory needs a results.csv (a sweep directory of `dwsweep run`)")
        cells, digest = objects.folder(path, read_cells)
        return Loaded(typed(cells.columns, f"table: {source};", cells.separator), source, digest)
    if not path.exists():
        if (table := built_in().get(name)) is None:
            raise InputError(f"table: {said}; no such file or directory")
        return _of_bytes(table.read_bytes(), f"{name} (of the package)", ".csv")
    if not path.is_file():
        raise InputError(f"table: {said}; a pipe or a device, must be a file or a sweep directory, or - for a pipe")
    if path.suffix.lower() not in (*READERS, *PACKED):
        raise InputError(
            f"table: {said}; the name must end in one of {', '.join(READERS)}, or one of these and "
            f"{', '.join(PACKED)}, or be a sweep directory or - for standard input"
        )
    return _of_bytes(paths.read_bytes(path), said, path.name)._replace(source=printable(str(path)))


def built_in() -> dict[str, Path]:
    """Public tables that come with the package, by name; licence and origin of each are in its .yaml beside it."""
    return {path.stem: path for path in sorted(SOURCES.glob("*.csv"))}


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


@functools.lru_cache(maxsize=2)
def _stream(stream: Any) -> bytes:
    """The content of an open file, kept: two questions to one table read it twice."""
    content = stream.read()
    return content.encode() if isinstance(content, str) else content


# Bytes


def read_cells(content: bytes, said: str, name: str) -> RawCells:
    """Cells of a file in the format of its name; a name without a known suffix leaves it to the first bytes.

    Raises:
        InputError: it is not readable in that format.
    """
    kind = ""
    try:
        content, inner = _unpacked(content, name)
        suffix = f".{inner.lower().rpartition('.')[2]}"
        if suffix in BYTES or suffix in TEXTS:
            kind = suffix
        elif content.startswith((b"PAR1", b"PK\x03\x04")):
            kind = ".parquet" if content.startswith(b"PAR1") else ".xlsx"
        else:
            kind = ".json" if _text_of(content).lstrip()[:1] in ("[", "{") else ".csv"
        what = f"table: {said};"
        found = BYTES[kind](what, content) if kind in BYTES else TEXTS[kind](what, _text_of(content))
        return found if isinstance(found, RawCells) else RawCells(found)
    except InputError:
        raise
    except (ValueError, RecursionError, csv.Error, KeyError, *_DAMAGED) as error:
        why = printable((str(error).splitlines() or [type(error).__name__])[0])
        raise InputError(f"table: {said}; not readable as {kind[1:] or 'a packed file'}: {why}") from error


def _unpacked(content: bytes, name: str) -> tuple[bytes, str]:
    """The content that ``content`` packs, and its name; both unchanged if nothing is packed."""
    for magic, opened in _OPENED.items():
        if content.startswith(magic):
            with opened(io.BytesIO(content)) as file:
                inner: bytes = file.read(MOST_BYTES + 1)
            if len(inner) > MOST_BYTES:
                raise InputError(f"table: {name}; unpacks to more than {MOST_BYTES:,} bytes; give it unpacked")
            return inner, name.rpartition(".")[0] if name.lower().endswith(PACKED) else name
    return content, name


def _text_of(content: bytes) -> str:
    """The text of a file: in the encoding that its first bytes name, else UTF-16 where every other byte is zero, else
    UTF-8, else that of Western Windows."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16")
    head = content[:_HEAD]
    for encoding, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[::2])):
        if zeros and 2 * zeros.count(0) > len(zeros):
            return content.decode(encoding)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        if _CONTROLS & set(head):
            raise
    return content.decode("cp1252", errors="replace")


# Formats: functions of (beginning of the line of an error, content)


def _parquet(what: str, content: bytes) -> RawCells:
    """Columns of plain values and of structs (config.n_layer); lists and maps are skipped: a fit reads none of them,
    and they take long."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(content))
    check_names(what, file.schema_arrow.names)
    plain = [one.name for one in file.schema_arrow if pa.types.is_struct(one.type) or not pa.types.is_nested(one.type)]
    return RawCells(file.read(columns=plain).to_pydict())


def _workbook(what: str, content: bytes) -> RawCells:
    """Cells of the one sheet of a workbook that has any, as they were last calculated."""
    try:
        import openpyxl
    except ImportError:
        raise InputError(
            f"{what} a workbook, which needs openpyxl: {install('xlsx')}; or save the sheet as CSV"
        ) from None
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    sheets = {}
    try:
        for sheet in book.worksheets:
            # the size that a sheet declares counts formatted cells: one far cell would make 17 billion blanks
            sheet.reset_dimensions()
            rows = [row for row in sheet.iter_rows(values_only=True) if any(value is not None for value in row)]
            if rows:
                sheets[sheet.title] = rows
    finally:
        book.close()
    if len(sheets) > 1:
        held = join(map(printable, sheets))
        raise InputError(f"{what} a workbook of {len(sheets)} sheets ({held}); must have one, or save one as CSV")
    return of_fields(what, next(iter(sheets.values()), []))


BYTES: dict[str, Callable[[str, bytes], RawCells]] = {".parquet": _parquet, ".xlsx": _workbook}
TEXTS: dict[str, Callable[[str, str], RawCells | Columns]] = {
    **dict.fromkeys((".csv", ".tsv"), delimited),
    ".json": objects.read,
    **dict.fromkeys((".jsonl", ".ndjson"), objects.read_lines),
}
READERS = (".csv", ".tsv", ".txt", ".md", ".json", ".jsonl", ".ndjson", *BYTES)
"""Formats by the end of a file's name; .txt and .md are told by their first bytes."""
