"""Records of a source: the items of work that hold them, and counts of skipped ones.

A source hands out work in two steps, so that one process reads and all cores parse: ``items`` (in the parent:
streaming, cheap, in a fixed order) and ``documents`` (in a worker: one item → its texts). The texts and their order
depend on the source only, never on the number of workers. Sources made of files share ``Files`` and the blocks of whole
records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import IO, Any, NamedTuple, Protocol

from dwsweep.data.files import File, open_stream
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
