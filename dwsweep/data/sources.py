"""Sources by name: the registry of all kinds, and the sources of plain text.

A source is a class of ``records.DocumentSource``, a line in ``SOURCES``, and its form in
``dwsweep.spec.SOURCE_FORMS``; a source of more than plain text has a module of its own.

Sources of plain text: ``stdlib-docs`` (no download), and the files of ``text:``, ``jsonl:`` and ``parquet:``
(articles, or records with a text field).

``stdlib-docs`` is the English prose that ships inside every CPython: the help topics of ``pydoc_data.topics`` (one
document each) and the docstrings of the standard library (one document per module, one per class). The files are
parsed, never imported. About 2 MB of text; it changes a little from one Python to the next.
"""

from __future__ import annotations

import ast
import inspect
import os
import platform
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwsweep.data.files import find_files, open_raw, stat
from dwsweep.data.hub import HubRows
from dwsweep.data.records import DocumentSource, Item, Skipped, decode, file_items, item_blocks
from dwsweep.data.text_fields import field_of, json_records, text_column
from dwsweep.data.tfds import TfdsRecords
from dwsweep.data.wiki import WikiDump
from dwsweep.errors import InputError
from dwsweep.spec import SOURCE_FORMS
from dwsweep.text import one_line

ARTICLE_BYTES = 8 << 20  # limit of each of several text files
TOPICS = "pydoc_data/topics.py"
FOLDERS_LEFT_OUT = {
    *("site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__", "lib2to3", "pydoc_data")
}


@dataclass(frozen=True)
class StdlibDocs(DocumentSource):
    """Prose of the running Python's standard library, the help topics first."""

    @classmethod
    def find(cls) -> StdlibDocs:
        root = Path(sysconfig.get_paths()["stdlib"])
        found = []
        for folder, below, files in os.walk(root):
            below[:] = [f for f in below if f not in FOLDERS_LEFT_OUT]
            found += [os.path.join(folder, f) for f in files if f.endswith(".py")]
        found = [str(root / TOPICS)] * (root / TOPICS).exists() + sorted(found)
        if not found:
            raise InputError(
                f"data.source: stdlib-docs; {root} has no .py files; use a Python with its sources, or another source"
            )
        return cls(tuple(map(stat, found)))

    @property
    def parallel(self) -> bool:
        return True  # parsing Python is slow

    def identity(self) -> list[Any]:
        return [platform.python_version(), len(self.files), self.total_bytes]

    def items(self) -> Iterator[Item]:
        return file_items(self.files)

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for block in item_blocks(item, skipped):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # invalid escapes in old modules
                    tree = ast.parse(block.data)
            except (SyntaxError, ValueError):
                skipped.left_out["files that are not Python"] += 1
                continue
            if block.path.endswith(TOPICS):
                yield from _topics(tree)
            else:
                yield from _docstrings(tree)


def _topics(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            yield from (topics[key] for key in sorted(topics))


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Docstrings of a module in the order of its source: one document for the module and its functions, one per class
    with its methods."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    yield _joined(tree, [node for node in tree.body if node not in classes])
    for node in classes:
        yield _joined(node, node.body)


def _joined(owner: ast.Module | ast.ClassDef, body: list[ast.stmt]) -> str:
    found = [(0, ast.get_docstring(owner, clean=False))]
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.append((node.lineno, ast.get_docstring(node, clean=False)))
    return "\n\n".join(inspect.cleandoc(text) for _, text in sorted(found, key=lambda f: f[0]) if text)


@dataclass(frozen=True)
class TextFiles(DocumentSource):
    """Text files, ``text:GLOB``: one article per file; a single file is cut at blank lines."""

    @classmethod
    def find(cls, pattern: str) -> TextFiles:
        found = cls(find_files("text", pattern))
        if len(found.files) > 1 and (large := next((f for f in found.files if f.n_bytes > ARTICLE_BYTES), None)):
            raise InputError(
                f"data.source: text:{pattern}; {large.path} has {large.n_bytes:,} bytes, and each of several files is "
                "one article; give one file, cut at its blank lines, or jsonl:"
            )
        return found

    @property
    def blank(self) -> bool:
        return len(self.files) == 1

    @property
    def documents_are(self) -> str:
        if self.blank:
            return "the file is cut at each blank line; a file for each article, or jsonl:, keeps articles whole"
        return "one for each file"

    def identity(self) -> list[Any]:
        return [self.blank, *super().identity()]

    @property
    def _borders(self) -> tuple[bytes, ...]:
        return (b"\n\n", b"\n\r\n") if self.blank else ()

    def items(self) -> Iterator[Item]:
        return file_items(self.files, *self._borders)

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for block in item_blocks(item, skipped):
            data = block.data.replace(b"\r\n", b"\n")
            for part in re.split(rb"\n[ \t]*\n\s*", data) if self.blank else [data]:
                text = decode(part, block.path, skipped)
                if text:
                    yield text


@dataclass(frozen=True)
class JsonLines(DocumentSource):
    """JSON lines, ``jsonl:GLOB``: one JSON object per line, with a text field."""

    text_field: str | None = None

    def items(self) -> Iterator[Item]:
        return file_items(self.files, b"\n")

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for block in item_blocks(item, skipped):
            for record, where in json_records(block, skipped):
                value = field_of(record, self.text_field, where, skipped)
                if value is not None:
                    yield value


_PARQUET_ROWS = 1024  # unpacked at a time


@dataclass(frozen=True)
class Parquet(DocumentSource):
    """Parquet files, ``parquet:GLOB``: a string column, row group by row group."""

    text_field: str | None = None

    def items(self) -> Iterator[Item]:
        for file in self.files:
            with _parquet(file.path) as reader:
                groups, column = reader.num_row_groups, self._column(reader, file.path)
            for group in range(groups):
                yield Item((file.path, group, column), file.n_bytes // groups)

    def _column(self, reader: Any, path: str) -> str:
        import pyarrow as pa

        schema = reader.schema_arrow
        strings = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        kinds = {f.name: str(f.type) for f in schema}
        return text_column(kinds, strings, self.text_field, f"string column in {path}; fields")

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        path, group, column = item.payload
        with _parquet(path) as reader:
            batches = reader.iter_batches(_PARQUET_ROWS, row_groups=[group], columns=[column], use_threads=False)
            for row, value in enumerate(value for batch in batches for value in batch.column(0)):
                text = value.as_py()
                if text is None:
                    skipped.add_bad("null text", f"{path}, row group {group}, row {row}")
                else:
                    yield text


@contextmanager
def _parquet(path: str) -> Iterator[Any]:
    """ParquetFile of a local or remote file; InputError if it cannot be read to its end."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with open_raw(path) as file:
        try:
            yield pq.ParquetFile(file)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"data.source: {path}; not a whole Parquet file ({one_line(error)})") from None


# form before the colon → source of (text after the colon, data.text_field, permission to download)
SOURCES: dict[str, Callable[[str, str | None, bool], DocumentSource]] = {
    "stdlib-docs": lambda _, field, download: StdlibDocs.find(),
    "tfds": TfdsRecords.find,
    "wikidump": lambda path, field, download: WikiDump(find_files("wikidump", path)),
    "text": lambda glob, field, download: TextFiles.find(glob),
    "jsonl": lambda glob, field, download: JsonLines(find_files("jsonl", glob), field),
    "parquet": lambda glob, field, download: Parquet(find_files("parquet", glob), field),
    "hf": lambda name, field, download: HubRows.find(name, field),
}


def open_source(source: str, text_field: str | None = None, *, download: bool = False) -> DocumentSource:
    """Source that a spec names.

    ``download``: allows fetching a ``tfds:`` data set that is not prepared yet (needs TensorFlow).

    Raises:
        InputError: the form is unknown, or the source does not exist.
    """
    kind, colon, rest = source.partition(":")
    if kind not in SOURCES or bool(colon) != any(form.startswith(f"{kind}:") for form in SOURCE_FORMS):
        raise InputError(
            f"data.source: {source}; must be one of {', '.join(SOURCE_FORMS)} (PATH and GLOB local or gs://)"
        )
    return SOURCES[kind](rest, text_field, download)
