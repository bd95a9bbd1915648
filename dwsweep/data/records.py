"""Records of a source: the items of work that hold them, and counts of skipped ones.

A source hands out work in two steps, so that one process reads and all cores parse: ``items`` (in the parent:
streaming, cheap, in a fixed order) and ``documents`` (in a worker: one item → its texts). The texts and their order
depend on the source only, never on the number of workers. Sources share the blocks of whole records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

from dwsweep.data.files import FoundFile, open_stream
from dwsweep.text import printable

ITEM_BYTES = 1 << 20  # read at a time, and least size of an item but the last
MAX_DOCUMENT_BYTES = 64 << 20  # limit per document or record; a larger one is skipped and counted
SMALL_BYTES = 8 << 20  # up to this corpus size one process is faster than workers that have to start
_MAX_PLACE = 300  # characters of a place in a message


class Item(NamedTuple):
    """Piece of work for ``documents``, for which ``items`` read ``n_bytes`` of the source's ``total_bytes``."""

    payload: Any
    n_bytes: int


@dataclass
class Skipped:
    """Counts of records that did not become documents: left out by design, or bad."""

    left_out: Counter[str] = field(default_factory=Counter)  # redirects, empty articles …
    bad: Counter[str] = field(default_factory=Counter)  # reason, such as invalid UTF-8 or no text field
    first_bad: str | None = None  # place of the first bad record, for the message

    def add_bad(self, reason: str, where: str) -> None:
        """Count a bad record. ``where`` may quote the source and is made printable and short."""
        self.bad[reason] += 1
        if self.first_bad is None:
            where = printable(where)
            self.first_bad = f"{reason}: {where[:_MAX_PLACE]}{'…' * (len(where) > _MAX_PLACE)}"

    def add_too_large(self, where: str) -> None:
        self.add_bad(f"larger than {MAX_DOCUMENT_BYTES >> 20} MiB", where)

    def __str__(self) -> str:
        """Bad records as text: counts by reason, and the place of the first one."""
        return f"{counted(self.bad)}; first: {self.first_bad}"

    def add(self, other: Skipped) -> None:
        self.left_out += other.left_out
        self.bad += other.bad
        self.first_bad = self.first_bad or other.first_bad


def counted(counts: Counter[str]) -> str:
    """Text of counts: ``2 × redirects, 1 × empty documents``."""
    return ", ".join(f"{n:,} × {reason}" for reason, n in counts.items())


@dataclass(frozen=True)
class DocumentSource(ABC):
    """Source of documents. Instances are picklable."""

    files: tuple[FoundFile, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes that ``items`` reads, for progress."""
        return sum(f.n_bytes for f in self.files)

    @property
    def parallel(self) -> bool:
        """True if the source is large enough for worker processes to pay."""
        return self.total_bytes > SMALL_BYTES

    @property
    def documents_are(self) -> str:
        """Rule by which a source is cut into documents; empty if the source itself has documents."""
        return ""

    def identity(self) -> list[Any]:
        """Fingerprint of the source's state, found without reading it (JSON-able)."""
        return [[f.path, f.n_bytes, f.modified_ns] for f in self.files]

    @property
    def revision(self) -> str | None:
        """Commit of the text, or None."""
        return None

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """Items of work in a fixed order; InputError on files that cannot be read to their end."""

    @abstractmethod
    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        """Texts of one item; ``skipped`` counts the records left out."""


@dataclass(frozen=True)
class RecordBlock:
    """Payload of whole records of a file."""

    path: str
    offset: int  # byte of the decompressed file
    data: bytes


@dataclass(frozen=True)
class TooLarge:
    """Payload of a record larger than MAX_DOCUMENT_BYTES: its place, without its bytes."""

    path: str
    offset: int  # byte of the decompressed file


def file_items(files: Iterable[FoundFile], *borders: bytes) -> Iterator[Item]:
    """Items of files in their order: blocks that end with one of ``borders``, small ones together.

    Without borders a file is one record, and is never cut, however long it is.
    """
    pieces: list[RecordBlock | TooLarge] = []
    size = n_bytes = 0
    for file in files:
        with open_stream(file.path) as (stream, raw):
            seen = 0
            for piece in cut(file.path, stream, borders, ITEM_BYTES):
                pieces.append(piece)
                size += len(piece.data) if isinstance(piece, RecordBlock) else 0
                n_bytes += raw.tell() - seen
                seen = raw.tell()
                if size >= ITEM_BYTES:
                    yield Item(pieces, n_bytes)
                    pieces, size, n_bytes = [], 0, 0
    if pieces:
        yield Item(pieces, n_bytes)


def cut(
    path: str, stream: IO[bytes], borders: tuple[bytes, ...], block_bytes: int, head: bytes = b""
) -> Iterator[RecordBlock | TooLarge]:
    """Blocks of a stream that end with one of ``borders`` (the last one with the stream), read ``block_bytes`` at a
    time. A record larger than MAX_DOCUMENT_BYTES is passed over. Without borders the file is one record.

    Memory stays below MAX_DOCUMENT_BYTES and two blocks, whatever the stream unpacks to. ``head``: already read.
    """
    data, offset = bytearray(), 0  # bytes not yet handed out, and their offset
    too_large: TooLarge | None = None  # record that is being skipped
    overlap = max(map(len, borders), default=1) - 1  # a record's end may lie across two blocks
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
            yield RecordBlock(path, offset, bytes(data[:stop]))
            del data[:stop]
            offset += stop
        if len(data) > MAX_DOCUMENT_BYTES:
            too_large = TooLarge(path, offset)
            if not borders:
                break
    if too_large:
        yield too_large
    elif data:
        yield RecordBlock(path, offset, bytes(data))


def item_blocks(item: Item, skipped: Skipped) -> Iterator[RecordBlock]:
    """Blocks of an item; a record that is too large is counted."""
    for piece in item.payload:
        if isinstance(piece, TooLarge):
            skipped.add_too_large(f"{piece.path}, from byte {piece.offset}: no border between records up to there")
        else:
            yield piece


def decode(data: bytes, where: str, skipped: Skipped) -> str | None:
    """UTF-8 text without a byte order mark; None, counted as bad, if the bytes are not UTF-8."""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        skipped.add_bad("invalid UTF-8", f"{where}, byte {error.start}")
        return None
