"""What a source is, and the sources by name.

A source hands out work in two steps, so that reading stays in one process and parsing uses all cores: ``items`` (in the
parent: streaming, cheap, in a fixed order) and ``documents`` (in a worker: one item → its texts). The texts and their
order depend on the source only, never on how many workers there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from dwsweep.errors import InputError

ITEM_BYTES = 1 << 20
MAX_DOCUMENT_BYTES = 64 << 20  # of a document, and of the record it comes in; a larger one is skipped and counted
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


def printable(text: str, keep: str = "") -> str:
    """``text`` with control and format characters spelled out (``\\x1b``), except those in ``keep``: what a source
    holds must not steer the terminal that shows it."""
    return "".join(c if c in keep or c == " " or c.isprintable() else ascii(c)[1:-1] for c in text)


class Source(Protocol):
    """Where documents come from. Instances are picklable."""

    @property
    def total_bytes(self) -> int:
        """Size of what ``items`` reads, for progress."""

    @property
    def parallel(self) -> bool:
        """Whether there is enough to do that starting worker processes pays."""

    def identity(self) -> list[Any]:
        """What tells two states of the source apart without reading it (JSON-able)."""

    def items(self) -> Iterator[Item]:
        """Work in a fixed order; InputError on files that cannot be read to their end."""

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        """The texts of one item; what is left out is counted in ``skipped``."""


def open_source(source: str, text_field: str | None = None, *, download: bool = False) -> Source:
    """The source that a spec names. InputError when the form is unknown, or nothing is there.

    ``download``: a ``tfds:`` data set that is not prepared yet may be fetched (needs TensorFlow).
    """
    kind, colon, rest = source.partition(":")
    if kind == "stdlib-docs" and not colon:
        from dwsweep.data.stdlib_docs import StdlibDocs

        return StdlibDocs.find()
    if kind in ("wikidump", "wikiextractor"):
        from dwsweep.data import wiki

        return (wiki.WikiDump if kind == "wikidump" else wiki.WikiExtractor).find(rest)
    if kind in ("text", "jsonl", "parquet"):
        from dwsweep.data import text_records

        if kind == "text":
            return text_records.TextFiles.find(rest)
        return (text_records.JsonLines if kind == "jsonl" else text_records.Parquet).find(rest, text_field)
    if kind == "tfds":
        from dwsweep.data import tfds

        return tfds.TfdsRecords.find(rest, text_field, download=download)
    from dwsweep.spec import SOURCE_FORMS

    raise InputError(f"data.source: {source}; one of {', '.join(SOURCE_FORMS)} (PATH and GLOB local or gs://)")
