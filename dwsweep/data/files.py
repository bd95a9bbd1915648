"""Files of a source, and what a source hands out.

Files are found by glob (local or gs://), and opened through whatever compression their name says.

A source hands out work in two steps, so that reading stays in one process and parsing uses all cores: ``items`` (in the
parent: streaming, cheap, in a fixed order) and ``documents`` (in a worker: one item → its texts). The texts and their
order depend on the source only, never on how many workers there are. Sources made of files share ``Files`` and the
blocks of whole records that files are cut into.
"""

from __future__ import annotations

import bz2
import glob as _glob
import gzip
import json
import lzma
import os
import re
import zlib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import PurePath
from typing import IO, Any, NamedTuple, Protocol

from dwsweep import paths
from dwsweep.errors import InputError, install
from dwsweep.text import one_line, printable

MAGIC = {
    ".gz": (b"\x1f\x8b", "gzip"),
    ".bz2": (b"BZh", "bzip2"),
    ".xz": (b"\xfd7zXZ\x00", "xz"),
    ".zst": (b"\x28\xb5\x2f\xfd", "zstandard"),
}


@dataclass(frozen=True)
class File:
    """A file as it was found: what identifies it without reading it."""

    path: str
    n_bytes: int
    modified_ns: int


def is_remote(path: str) -> bool:
    return "://" in path


@contextmanager
def remote_access(path: str) -> Iterator[None]:
    """One clear line for whatever a remote file system raises, its missing package included."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = one_line(error)
        if isinstance(error, ImportError) and path.startswith("gs://"):
            reason = f"{reason}; gs:// needs the extra: {install('gcs')}"
        raise InputError(f"data.source: {path}; cannot be read ({reason})") from None


def _stat(path: str) -> File:
    if is_remote(path):
        with remote_access(path):
            stat = paths.as_path(path).stat()
            return File(path, int(stat.length), int((stat.mtime or 0) * 1_000_000_000))
    local = os.stat(path)
    return File(path, local.st_size, local.st_mtime_ns)


def find_files(kind: str, pattern: str) -> list[File]:
    """The files of ``pattern``, a file, a folder (all files below it) or a glob (``**`` too), sorted by path.

    Hidden files are left out. InputError when there is none.
    """
    if not pattern:
        raise InputError(f"data.source: {kind}:; a path or a glob after the colon")
    if is_remote(pattern):
        found = _remote_paths(pattern)
    else:
        pattern = os.path.abspath(os.path.expanduser(pattern))
        if os.path.isdir(pattern):
            found = [os.path.join(folder, f) for folder, _, names in os.walk(pattern) for f in names]
            found = [p for p in found if not any(x.startswith(".") for x in PurePath(p).relative_to(pattern).parts)]
        elif os.path.isfile(pattern):
            found = [pattern]
        else:
            found = [p for p in _glob.glob(pattern, recursive=True) if os.path.isfile(p)]
    if not found:
        raise InputError(
            f"data.source: {kind}:{pattern}; no such file; a file, a folder or a glob that matches something"
        )
    return [_stat(p) for p in sorted(found)]


def _remote_paths(pattern: str) -> list[str]:
    head = pattern.split("*")[0].split("?")[0].split("[")[0]
    with remote_access(pattern):
        if head == pattern:
            path = paths.as_path(pattern)
            if not path.is_dir():
                return [pattern] if path.exists() else []
            found = _below(path)
        else:
            folder = head.rpartition("/")[0]
            found = [p for p in paths.as_path(folder).glob(pattern[len(folder) + 1 :]) if not p.is_dir()]
        return [os.fspath(p) for p in found if not p.name.startswith(".")]


def _below(folder: Any) -> list[Any]:
    """All files below an epath folder (its own recursive glob refuses remote folders)."""
    children = [p for p in folder.iterdir() if not p.name.startswith(".")]
    return [q for p in children for q in (_below(p) if p.is_dir() else [p])]


def suffix(path: str) -> str:
    """The compression suffix of a name (".gz", ".bz2", ".xz", ".zst"), or ""."""
    end = PurePath(path).suffix.lower()
    return end if end in MAGIC else ""


def open_raw(path: str) -> IO[bytes]:
    """The file's own bytes."""
    if is_remote(path):
        with remote_access(path):
            return paths.as_path(path).open("rb")
    return open(path, "rb")


@contextmanager
def open_stream(path: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """(decompressed, raw) of a file, the second for progress; errors of reading either become one clear InputError."""
    import zstandard

    with open_raw(path) as raw:
        head = raw.read(8)
        raw.seek(0)
        end = suffix(path)
        _check_magic(path, end, head)
        try:
            with _decompress(raw, end) as stream:
                yield stream, raw
        except (EOFError, lzma.LZMAError, OSError, zlib.error, zstandard.ZstdError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # a full disk or a lost mount, not the file's content
            raise InputError(
                f"data.source: {path}; truncated or damaged {MAGIC[end][1] if end else 'file'} ({error}); "
                "copy or download it again"
            ) from None


def _check_magic(path: str, end: str, head: bytes) -> None:
    kinds = ((suffix, name) for suffix, (magic, name) in MAGIC.items() if head.startswith(magic))
    actual, found = next(kinds, ("", "not compressed so"))
    if end and head and not head.startswith(MAGIC[end][0]):
        raise InputError(
            f"data.source: {path}; its name says {MAGIC[end][1]} but its content is {found}; "
            "rename it after its real compression (.gz, .bz2, .xz, .zst or none)"
        )
    if actual and not end:
        raise InputError(f"data.source: {path}; its content is {found}; name it *{actual} so that it is unpacked")


@contextmanager
def _decompress(raw: IO[bytes], end: str) -> Iterator[IO[bytes]]:
    if end == ".gz":
        with gzip.GzipFile(fileobj=raw) as stream:
            yield stream  # type: ignore[misc]
    elif end == ".bz2":
        with bz2.BZ2File(raw) as stream:
            yield stream  # type: ignore[misc]
    elif end == ".xz":
        with lzma.LZMAFile(raw) as stream:
            yield stream  # type: ignore[misc]
    elif end == ".zst":
        yield _ZstdStream(raw)  # type: ignore[misc]
    else:
        yield raw


_ZSTD_INPUT_BYTES = 4096  # unpacked at a time: at zstd's highest ratio, 128 KiB from 4 bytes, that is 128 MiB


class _ZstdStream:
    """Reads zstd frames one after another and, unlike the library's own reader, says when the last one was cut."""

    def __init__(self, raw: IO[bytes]) -> None:
        import zstandard

        self._raw, self._new = raw, zstandard.ZstdDecompressor().decompressobj
        self._frame: Any = None
        self._ready = bytearray()
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._ready) < size:
            block, self._rest = self._rest or self._raw.read(_ZSTD_INPUT_BYTES), b""
            if not block:
                if self._frame is not None:
                    raise EOFError("compressed file ended before the end of its last frame")
                break
            self._frame = self._frame or self._new()
            self._ready += self._frame.decompress(block)
            if self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
        size = len(self._ready) if size < 0 else size
        out = bytes(self._ready[:size])
        del self._ready[:size]
        return out


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
        return None

    @property
    def documents_are(self) -> str:
        """How the source is cut into documents, where that is a choice; empty where the source itself has documents."""
        return ""

    def identity(self) -> list[Any]:
        """Fingerprint of the source's state, found without reading it (JSON-able)."""

    @property
    def revision(self) -> str | None:
        """The commit of the text where it has one."""
        return None

    def items(self) -> Iterator[Item]:
        """Work in a fixed order; InputError on files that cannot be read to their end."""

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        """The texts of one item; what is left out is counted in ``skipped``."""


@dataclass(frozen=True)
class Files(Source):
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


def grouped(files: Iterable[tuple[str, int]]) -> Iterator[Item]:
    """Whole files, of which path and size are given, in groups of about ITEM_BYTES."""
    group: list[str] = []
    n_bytes = 0
    for path, size in files:
        group.append(path)
        n_bytes += size
        if n_bytes >= ITEM_BYTES:
            yield Item(Whole(tuple(group)), n_bytes)
            group, n_bytes = [], 0
    if group:
        yield Item(Whole(tuple(group)), n_bytes)


def file_items(files: tuple[File, ...], *borders: bytes) -> Iterator[Item]:
    """Small files in groups, large ones in blocks that end with one of ``borders``, in the order of the files.

    Without borders a file is one record, and is never cut, however long it is.
    """
    for is_whole, some in groupby(files, lambda file: file.n_bytes <= WHOLE_FILE_BYTES or not borders):
        if is_whole:
            yield from grouped((file.path, file.n_bytes) for file in some)
            continue
        for file in some:
            with open_stream(file.path) as (stream, raw):
                seen = 0
                for piece in cut(file.path, stream, borders, ITEM_BYTES):
                    at = raw.tell()
                    yield Item(piece, at - seen)
                    seen = at


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


TEXT_FIELDS = ("text", "content", "article", "body", "document", "maintext")
"""Looked for in this order when ``data.text_field`` is not given."""

MAX_NESTING = 100  # of a JSON record


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


def text_column(kinds: Mapping[str, str], texts: Container[str], wanted: str | None, what: str) -> str:
    """The column that holds the text: ``wanted``, else the first of TEXT_FIELDS, if it is one of ``texts``.

    ``kinds``: of all columns by name, and ``what`` such a column is and where, for the message.

    Raises:
        InputError: there is none; names the columns.
    """
    names = (wanted,) if wanted else TEXT_FIELDS
    for name in names:
        if name in texts:
            return name
    found = ", ".join(f"{name} ({kind})" for name, kind in kinds.items()) or "none"
    raise InputError(f"data.text_field: {' or '.join(names)}; no such {what} found: {found}")
