"""What a source is, and what it hands out.

A source hands out work in two steps, so that reading stays in one process and parsing uses all cores: ``items`` (in the
parent: streaming, cheap, in a fixed order) and ``documents`` (in a worker: one item → its texts). The texts and their
order depend on the source only, never on how many workers there are. Sources made of files share ``Files`` and the
blocks of whole records that files are cut into.

Sources of plain text: ``stdlib-docs`` (no download), and the files of ``text:``, ``jsonl:`` and ``parquet:``
(articles, or records with a text field).

``stdlib-docs`` is the English prose that ships inside every CPython: the help topics of ``pydoc_data.topics`` (one
document each) and the docstrings of the standard library (one document per module, one per class). The files are
parsed, never imported. About 2 MB of text; it changes a little from one Python to the next.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import platform
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from dwsweep.data.files import File, find_files, open_raw, open_stream, suffix
from dwsweep.errors import InputError
from dwsweep.text import printable

ITEM_BYTES = 1 << 20
MAX_DOCUMENT_BYTES = 64 << 20  # of a document, and of the record it comes in; a larger one is skipped and counted
SMALL_BYTES = 8 << 20  # up to this size a corpus is read and encoded in one process, sooner than workers start
WHOLE_FILE_BYTES = 8 << 20  # files up to this size are read by the workers, larger ones streamed by the parent
WORKER_BLOCK_BYTES = 16 << 20  # what a worker reads of a file at a time: all of it, unless it is compressed
_MAX_PLACE = 300  # characters of a place in a message


class Item(NamedTuple):
    """A piece of work for ``documents``; ``n_bytes`` of the source's ``total_bytes`` are then read."""

    payload: Any
    n_bytes: int


@dataclass
class Skipped:
    """Records that did not become documents: left out by design, or bad."""

    left_out: Counter[str] = field(default_factory=Counter)  # redirects, empty articles …
    bad: Counter[str] = field(default_factory=Counter)  # invalid UTF-8, no text field …
    first_bad: str | None = None  # where, for the message

    def add_bad(self, reason: str, where: str) -> None:
        """Count a bad record; ``where`` may quote the source, so it is made printable and short."""
        self.bad[reason] += 1
        if self.first_bad is None:
            where = printable(where)
            self.first_bad = f"{reason}: {where[:_MAX_PLACE]}{'…' * (len(where) > _MAX_PLACE)}"

    def add_too_large(self, where: str) -> None:
        self.add_bad(f"larger than {MAX_DOCUMENT_BYTES >> 20} MiB", where)

    def __str__(self) -> str:
        """The bad records: counts by reason, and where the first one is."""
        return f"{counted(self.bad)}; first: {self.first_bad}"

    def add(self, other: Skipped) -> None:
        self.left_out += other.left_out
        self.bad += other.bad
        self.first_bad = self.first_bad or other.first_bad


def counted(counts: Counter[str]) -> str:
    """``2 × redirects, 1 × empty documents``"""
    return ", ".join(f"{n:,} × {reason}" for reason, n in counts.items())


class Source(Protocol):
    """Where documents come from. Instances are picklable."""

    @property
    def total_bytes(self) -> int:
        """Size of what ``items`` reads, for progress."""

    @property
    def parallel(self) -> bool:
        """Whether there is enough to do that starting worker processes pays."""

    @property
    def n_documents(self) -> int | None:
        """Number of documents where that is known without reading; bad ones and duplicates are among them."""

    def identity(self) -> list[Any]:
        """What tells two states of the source apart without reading it (JSON-able)."""

    @property
    def revision(self) -> str | None:
        """The commit of the text where it has one."""

    def items(self) -> Iterator[Item]:
        """Work in a fixed order; InputError on files that cannot be read to their end."""

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        """The texts of one item; what is left out is counted in ``skipped``."""


class Unversioned:
    """A source that knows neither its number of documents without reading nor a commit."""

    @property
    def n_documents(self) -> int | None:
        return None

    @property
    def revision(self) -> str | None:
        return None


@dataclass(frozen=True)
class Files(Unversioned):
    """A source made of files: the parts that its kinds share."""

    files: tuple[File, ...]

    @property
    def total_bytes(self) -> int:
        return sum(f.n_bytes for f in self.files)

    @property
    def large(self) -> list[File]:
        """The files that one item does not hold."""
        return [f for f in self.files if f.n_bytes > WHOLE_FILE_BYTES]

    @property
    def parallel(self) -> bool:
        return self.total_bytes > SMALL_BYTES

    def identity(self) -> list[Any]:
        return [[f.path, f.n_bytes, f.modified_ns] for f in self.files]


@dataclass(frozen=True)
class Whole:
    """Payload: small files, read where they are parsed."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """Payload: whole records out of a file."""

    path: str
    offset: int  # of the decompressed file
    data: bytes


@dataclass(frozen=True)
class TooLarge:
    """Payload: the place of a record of more than MAX_DOCUMENT_BYTES; its bytes are not kept."""

    path: str
    offset: int  # of the decompressed file

    def count(self, skipped: Skipped) -> None:
        skipped.add_too_large(f"{self.path}, from byte {self.offset}: no border between records up to there")


def file_items(files: tuple[File, ...], *borders: bytes) -> Iterator[Item]:
    """Small files in groups of about ITEM_BYTES, large ones in blocks that end with one of ``borders``.

    Without borders a file is one record, and is never cut, however long it is.
    """
    group: list[str] = []
    n_bytes = 0
    for file in files:
        whole = file.n_bytes <= WHOLE_FILE_BYTES or not borders
        if whole:
            group.append(file.path)
            n_bytes += file.n_bytes
        if group and (n_bytes >= ITEM_BYTES or not whole):
            yield Item(Whole(tuple(group)), n_bytes)
            group, n_bytes = [], 0
        if not whole:
            with open_stream(file.path) as (stream, raw):
                seen = 0
                for piece in cut(file.path, stream, borders, ITEM_BYTES):
                    at = raw.tell()
                    yield Item(piece, at - seen)
                    seen = at
    if group:
        yield Item(Whole(tuple(group)), n_bytes)


def cut(
    path: str, stream: IO[bytes], borders: tuple[bytes, ...], block_bytes: int, head: bytes = b""
) -> Iterator[Block | TooLarge]:
    """The stream in blocks that end with one of ``borders`` (the last one where the stream does), read ``block_bytes``
    at a time; a record that outgrows MAX_DOCUMENT_BYTES is passed over. Without borders the file is one record.

    Memory stays below MAX_DOCUMENT_BYTES and two blocks, whatever the stream unpacks to. ``head``: already read.
    """
    data, offset = bytearray(), 0  # what is not handed out yet, and where it begins
    too_large: TooLarge | None = None  # the record that is being passed over
    overlap = max(map(len, borders), default=1) - 1  # a border may lie across two blocks
    while block := head or stream.read(block_bytes):
        head, start = b"", max(0, len(data) - overlap)
        data += block
        if too_large:
            ends = [at + len(b) for b in borders if (at := data.find(b)) >= 0]
            passed = min(ends) if ends else max(0, len(data) - overlap)
            del data[:passed]
            offset, start = offset + passed, 0
            if not ends:
                continue
            yield too_large
            too_large = None
        stop = max((at + len(b) for b in borders if (at := data.rfind(b, start)) >= 0), default=0)
        if stop:
            yield Block(path, offset, bytes(data[:stop]))
            del data[:stop]
            offset += stop
        if len(data) > MAX_DOCUMENT_BYTES:
            too_large = TooLarge(path, offset)
            if not borders:
                break
    if too_large:
        yield too_large
    elif data:
        yield Block(path, offset, bytes(data))


def item_blocks(item: Item, skipped: Skipped, *borders: bytes) -> Iterator[Block]:
    """The bytes of an item, file by file, large ones in blocks that end with one of ``borders``."""
    if isinstance(item.payload, Whole):
        for path in item.payload.paths:
            with open_stream(path) as (stream, _):
                yield from _small_enough(cut(path, stream, borders, WORKER_BLOCK_BYTES), skipped)
    else:
        yield from _small_enough(iter([item.payload]), skipped)


def _small_enough(pieces: Iterator[Block | TooLarge], skipped: Skipped) -> Iterator[Block]:
    for piece in pieces:
        if isinstance(piece, TooLarge):
            piece.count(skipped)
        else:
            yield piece


def decode(data: bytes, where: str, skipped: Skipped) -> str | None:
    """UTF-8 text without a byte order mark, or None, counted, where it is not UTF-8."""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        skipped.add_bad("invalid UTF-8", f"{where}, byte {error.start}")
        return None


FOLDERS_LEFT_OUT = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idle_test",
    "__pycache__",
    "lib2to3",
    "pydoc_data",
}

TEXT_FIELDS = ("text", "content", "article", "body", "document", "maintext")
"""Looked for in this order when ``data.text_field`` is not given."""

MAX_NESTING = 100  # of a JSON record


@dataclass(frozen=True)
class StdlibDocs(Unversioned):
    """The prose of the running Python's standard library."""

    root: str
    files: tuple[tuple[str, int], ...]  # relative path and size in bytes, sorted

    @classmethod
    def find(cls) -> StdlibDocs:
        root = Path(sysconfig.get_paths()["stdlib"])
        names = []
        for folder, below, files in os.walk(root):
            below[:] = [f for f in below if f not in FOLDERS_LEFT_OUT]
            names += [Path(folder, f).relative_to(root).as_posix() for f in files if f.endswith(".py")]
        names.sort()
        topics = "pydoc_data/topics.py"
        names = [topics] * (root / topics).exists() + names
        if not names:
            raise InputError(
                f"data.source: stdlib-docs; {root} has no .py files; a Python with its sources, or another source"
            )
        return cls(str(root), tuple((n, (root / n).stat().st_size) for n in names))

    @property
    def total_bytes(self) -> int:
        return sum(size for _, size in self.files)

    @property
    def parallel(self) -> bool:
        return True  # parsing Python is slow

    def identity(self) -> list[Any]:
        return [platform.python_version(), len(self.files), self.total_bytes]

    def items(self) -> Iterator[Item]:
        group: list[str] = []
        n_bytes = 0
        for name, size in self.files:
            group.append(name)
            n_bytes += size
            if n_bytes >= ITEM_BYTES:
                yield Item(tuple(group), n_bytes)
                group, n_bytes = [], 0
        if group:
            yield Item(tuple(group), n_bytes)

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for name in item.payload:
            source = Path(self.root, name).read_bytes()
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # invalid escapes in old modules
                    tree = ast.parse(source)
            except (SyntaxError, ValueError):
                skipped.left_out["files that are not Python"] += 1
                continue
            if name == "pydoc_data/topics.py":
                yield from _topics(tree)
            else:
                yield from _docstrings(tree)


def _topics(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            topics: dict[str, str] = ast.literal_eval(node.value)
            yield from (topics[key] for key in sorted(topics))


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """The docstrings of a module in the order of its source: one document for the module and its functions, one for
    each class with its methods."""
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
class TextFiles(Files):
    """``text:GLOB``: one article a file; a single file holds articles that blank lines separate.

    ``?articles=file`` or ``?articles=blank`` at the end says which, whatever the number of files.
    """

    blank: bool = False

    @classmethod
    def find(cls, pattern: str) -> TextFiles:
        option = re.search(r"\?articles=(\w*)$", pattern)
        if option and option[1] not in ("file", "blank"):
            raise InputError(f"data.source: text:{pattern}; articles is {option[1]!r}; file or blank")
        found = cls(tuple(find_files("text", pattern[: option.start()] if option else pattern)))
        if found.large and len(found.files) > 1 and not option:
            file = found.large[0]
            raise InputError(
                f"data.source: text:{pattern}; {file.path} has {file.n_bytes:,} bytes: add ?articles=blank "
                "where blank lines separate articles, ?articles=file where each file is one article"
            )
        return cls(found.files, blank=option[1] == "blank" if option else len(found.files) == 1)

    @property
    def n_documents(self) -> int | None:
        return None if self.blank else len(self.files)

    def identity(self) -> list[Any]:
        return [self.blank, *super().identity()]

    @property
    def _borders(self) -> tuple[bytes, ...]:
        return (b"\n\n", b"\n\r\n") if self.blank else ()

    def items(self) -> Iterator[Item]:
        return file_items(self.files, *self._borders)

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for block in item_blocks(item, skipped, *self._borders):
            data = block.data.replace(b"\r\n", b"\n")
            for part in re.split(rb"\n[ \t]*\n\s*", data) if self.blank else [data]:
                text = decode(part, block.path, skipped)
                if text:
                    yield text


@dataclass(frozen=True)
class JsonLines(Files):
    """``jsonl:GLOB``: one JSON object per line, with a text field."""

    text_field: str | None = None

    @classmethod
    def find(cls, pattern: str, text_field: str | None) -> JsonLines:
        return cls(tuple(find_files("jsonl", pattern)), text_field)

    def items(self) -> Iterator[Item]:
        return file_items(self.files, b"\n")

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for block in item_blocks(item, skipped, b"\n"):
            for record, where in json_records(block, skipped):
                value = field_of(record, self.text_field, where, skipped)
                if value is not None:
                    yield value


def json_records(block: Block, skipped: Skipped) -> Iterator[tuple[dict[str, Any], str]]:
    """The JSON objects of a block, one per line, and where each is; what is none is counted."""
    at = block.offset
    for line in block.data.split(b"\n"):
        where, at = f"{block.path}, byte {at}", at + len(line) + 1
        if not line.strip():
            continue
        text = decode(line, where, skipped)
        if text is None:
            continue
        if _nesting_exceeds(line, MAX_NESTING):
            skipped.add_bad(f"nested more than {MAX_NESTING} deep", where)
            continue
        try:
            record = json.loads(text)
        except ValueError:
            record = None
        if isinstance(record, dict):
            yield record, where
        else:
            skipped.add_bad("not a JSON object", where)


# strings are passed over whole; possessive, so that no line takes more than one pass
_JSON_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|([\[{])|[\]}]', re.DOTALL)


def _nesting_exceeds(line: bytes, limit: int) -> bool:
    """Whether arrays and objects of a JSON line are nested deeper: the parser itself would stop at a depth that depends
    on the Python version and on who called it."""
    if line.count(b"[") + line.count(b"{") <= limit:
        return False
    depth = 0
    for mark in _JSON_MARK.finditer(line):
        if mark[1]:
            depth += 1
            if depth > limit:
                return True
        elif mark[0] in (b"]", b"}"):
            depth -= 1
    return False


def field_of(record: dict[str, Any], text_field: str | None, where: str, skipped: Skipped) -> str | None:
    """The record's text, or None, counted, where the field is missing or not a string."""
    names = (text_field,) if text_field else TEXT_FIELDS
    for name in names:
        if isinstance(record.get(name), str):
            return record[name]
    fields = ", ".join(map(str, record)) or "none"
    skipped.add_bad(f"no text field ({' or '.join(names)})", f"{where}; fields found: {fields}")
    return None


_PARQUET_ROWS = 1024  # unpacked at a time


@dataclass(frozen=True)
class Parquet(Files):
    """``parquet:GLOB``: a string column, row group by row group."""

    text_field: str | None = None

    @classmethod
    def find(cls, pattern: str, text_field: str | None) -> Parquet:
        files = tuple(find_files("parquet", pattern))
        for file in files:
            if suffix(file.path):
                raise InputError(
                    f"data.source: {file.path}; Parquet is compressed inside: unpack it, a name that ends in .parquet"
                )
        return cls(files, text_field)

    def items(self) -> Iterator[Item]:
        for file in self.files:
            with _parquet(file.path) as (reader, _):
                groups, column = reader.num_row_groups, self._column(reader, file.path)
            for group in range(groups):
                yield Item((file.path, group, column), file.n_bytes // groups)

    def _column(self, reader: Any, path: str) -> str:
        import pyarrow as pa

        schema = reader.schema_arrow
        strings = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        for name in (self.text_field,) if self.text_field else TEXT_FIELDS:
            if name in strings:
                return name
        wanted = self.text_field or " or ".join(TEXT_FIELDS)
        fields = ", ".join(f"{f.name} ({f.type})" for f in schema)
        raise InputError(f"data.text_field: {wanted}; no such string column in {path}; fields found: {fields}")

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        path, group, column = item.payload
        first = 0  # row of the batch
        with _parquet(path) as (reader, errors):
            batches = reader.iter_batches(_PARQUET_ROWS, row_groups=[group], columns=[column], use_threads=False)
            while True:
                try:
                    batch = next(batches, None)
                except errors as error:
                    raise _damaged(path, error) from None
                if batch is None:
                    return
                for row, value in enumerate(batch.column(0), first):
                    text = value.as_py()
                    if text is None:
                        skipped.add_bad("null text", f"{path}, row group {group}, row {row}")
                    else:
                        yield text
                first += batch.num_rows


class _parquet:  # noqa: N801 - a context manager, used like a function
    """(ParquetFile, its error types) of a local or remote file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> tuple[Any, tuple[type[Exception], ...]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._file: IO[bytes] = open_raw(self.path)
        errors = (pa.ArrowException, OSError)
        try:
            return pq.ParquetFile(self._file), errors
        except errors as error:
            self._file.close()
            raise _damaged(self.path, error) from None

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _damaged(path: str, error: Exception) -> InputError:
    return InputError(f"data.source: {path}; not a whole Parquet file ({str(error).splitlines()[0]})")
