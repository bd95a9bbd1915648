"""Passes of ``prepare`` over a corpus: functions of a worker, which takes one item at a time.

Pass 1 turns an item of the source into **frames**: the texts, joined and compressed, with the digest and the size of
each. Pass 2 turns a frame, with a mark for each text (dropped, training, validation), into tokens. Between the passes
the parent process drops duplicates, splits, and trains the tokenizer; the parent never touches a text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dwsweep.data.digests import TRAIN, VALIDATION, digest
from dwsweep.data.records import MAX_DOCUMENT_BYTES, DocumentSource, Item, Skipped
from dwsweep.data.tokenizer import Tokenizer

TEXT = np.dtype([("digest", "<u8"), ("n_bytes", "<u4")])
"""One text: its ``digest``, and its size."""
FRAME_BYTES = 4 << 20  # bytes of text in a frame; a process holds one frame at a time
_LEVEL = 1  # level of zstd: about 500 MB/s, output a third of the input


@dataclass(frozen=True)
class TextFrame:
    """Texts of one item, or some of them if they exceed FRAME_BYTES."""

    data: bytes  # the texts' UTF-8, joined, zstd
    texts: NDArray[Any]  # (n_documents,), dtype TEXT
    skipped: Skipped = field(default_factory=Skipped)  # whole item; set on its last frame
    source_bytes: int = 0


class FramePlace(NamedTuple):
    """Place of a frame in the spool file, and the mark of each text for pass 2."""

    offset: int
    length: int
    n_bytes: NDArray[np.uint32]
    mark: NDArray[np.uint8]  # (n_documents,): DROPPED, TRAIN or VALIDATION


_source: DocumentSource
_tokenizer: Tokenizer
_spool: Path


def start_reading(source: DocumentSource) -> None:
    """Initialise a worker of pass 1."""
    global _source
    _source = source


def read_item(item: Item) -> list[TextFrame]:
    """Frames of one item (pass 1), each text without surrounding white space and NUL, the end token of plain bytes."""
    frames: list[TextFrame] = []
    skipped, texts, waiting = Skipped(), list[bytes](), 0
    for text in _source.documents(item, skipped):
        text = text.replace("\0", "").strip()
        if not text:
            skipped.left_out["empty documents"] += 1
            continue
        try:
            data = text.encode()
        except UnicodeEncodeError:  # lone surrogates, which JSON can spell
            skipped.add_bad("invalid Unicode", repr(text[:40]))
            continue
        if len(data) > MAX_DOCUMENT_BYTES:
            skipped.add_too_large(repr(text[:40]))
            continue
        texts.append(data)
        waiting += len(data)
        if waiting >= FRAME_BYTES:
            frames.append(_frame(texts))
            texts, waiting = [], 0
    frames.append(_frame(texts))
    frames[-1] = replace(frames[-1], skipped=skipped, source_bytes=item.n_bytes)
    return frames


def _frame(texts: list[bytes]) -> TextFrame:
    import zstandard

    return TextFrame(
        zstandard.ZstdCompressor(level=_LEVEL).compress(b"".join(texts)),
        np.array([(digest(data), len(data)) for data in texts], TEXT),
    )


def frame_texts(spool: Path, place: FramePlace) -> Iterator[tuple[int, str]]:
    """Pairs (number in the frame, text) of the kept texts."""
    import zstandard

    with open(spool, "rb") as file:
        file.seek(place.offset)
        packed = file.read(place.length)
    data = memoryview(zstandard.ZstdDecompressor().decompress(packed))
    stops = np.cumsum(place.n_bytes, dtype=np.int64)
    starts = stops - place.n_bytes
    for i in np.flatnonzero(place.mark):
        yield int(i), str(data[starts[i] : stops[i]], "utf-8")


def start_encoding(spool: Path, tokenizer: Path) -> None:
    """Initialise a worker of pass 2 with the tokenizer saved in the folder ``tokenizer``."""
    global _spool, _tokenizer
    _spool, _tokenizer = spool, Tokenizer.load(tokenizer)


def encode_frame(place: FramePlace) -> dict[int, tuple[bytes, NDArray[np.uint32]]]:
    """Tokens of a frame (pass 2) by split, in the order of its texts, with an end token after each document; and the
    number of each document's tokens without it."""
    end = np.array([_tokenizer.end_token], _tokenizer.dtype).tobytes()
    tokens: dict[int, list[bytes]] = {TRAIN: [], VALIDATION: []}
    lengths: dict[int, list[int]] = {TRAIN: [], VALIDATION: []}
    for i, text in frame_texts(_spool, place):
        encoded = _tokenizer.encode_to_bytes(text)
        tokens[place.mark[i]] += (encoded, end)
        lengths[place.mark[i]].append(len(encoded) // _tokenizer.dtype.itemsize)
    return {s: (b"".join(tokens[s]), np.array(lengths[s], np.uint32)) for s in (TRAIN, VALIDATION)}
