"""The two passes of ``prepare`` over a corpus, one item at a time, as they run in the worker processes.

Pass 1 turns an item of the source into **frames**: its texts, joined and compressed, with the hash and the size of
each. Pass 2 turns a frame, with a mark for each text (dropped, training, validation), into tokens. Between the passes
the parent drops duplicates, splits, and trains the tokenizer; it never touches a text. ``ordered_map`` runs a pass over
the processes.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dwsweep.data.batches import mix64
from dwsweep.data.source_items import MAX_DOCUMENT_BYTES, Item, Skipped, Source
from dwsweep.data.tokenizer import Tokenizer
from dwsweep.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")

DROPPED, TRAIN, VALIDATION = 0, 1, 2
FRAME_BYTES = 4 << 20  # of text; a frame is what a process holds at a time
_LEVEL = 1  # of zstd: about 500 MB/s, a third of the size


@dataclass(frozen=True)
class Frame:
    """The texts of one item, or a part of them where they are more than FRAME_BYTES."""

    data: bytes  # the texts' UTF-8, joined, zstd
    n_bytes: NDArray[np.uint32]  # (n_documents,)
    n_characters: NDArray[np.uint32]  # (n_documents,)
    digest: NDArray[np.uint64]  # (n_documents,): first 8 bytes of BLAKE2b of each text
    skipped: Skipped = field(default_factory=Skipped)  # of the whole item, on its last frame, as is:
    source_bytes: int = 0


class FramePlace(NamedTuple):
    """Where pass 2 finds a frame, and what it does with its texts."""

    offset: int
    length: int
    n_bytes: NDArray[np.uint32]
    mark: NDArray[np.uint8]  # (n_documents,): DROPPED, TRAIN or VALIDATION


@dataclass(frozen=True)
class Encoded:
    """One split's share of a frame."""

    tokens: bytes  # of the tokenizer's dtype, an end token after each document
    n_tokens: NDArray[np.uint32]  # (n_documents,), without the end token


_source: Source
_tokenizer: Tokenizer
_spool: Path


def start_reading(source: Source) -> None:
    """Initialises a worker of pass 1."""
    global _source
    _source = source


def read_item(item: Item) -> list[Frame]:
    """Pass 1. Surrounding white space and NUL characters (the end token of plain bytes) are taken off each text."""
    frames: list[Frame] = []
    skipped, texts, characters, waiting = Skipped(), [], [], 0
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
        characters.append(len(text))
        waiting += len(data)
        if waiting >= FRAME_BYTES:
            frames.append(_frame(texts, characters))
            texts, characters, waiting = [], [], 0
    frames.append(_frame(texts, characters))
    frames[-1] = replace(frames[-1], skipped=skipped, source_bytes=item.n_bytes)
    return frames


def _frame(texts: list[bytes], characters: list[int]) -> Frame:
    import zstandard

    return Frame(
        data=zstandard.ZstdCompressor(level=_LEVEL).compress(b"".join(texts)),
        n_bytes=np.array([len(t) for t in texts], np.uint32),
        n_characters=np.array(characters, np.uint32),
        digest=np.array([digest(t) for t in texts], np.uint64),
    )


def frame_texts(spool: Path, place: FramePlace) -> Iterator[tuple[int, str]]:
    """(number in the frame, text) of the texts that are not dropped."""
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
    """Initialises a worker of pass 2 with the tokenizer saved in the folder ``tokenizer``."""
    global _spool, _tokenizer
    _spool, _tokenizer = spool, Tokenizer.load(tokenizer)


def encode_frame(place: FramePlace) -> dict[int, Encoded]:
    """Pass 2: the tokens of a frame by split (TRAIN, VALIDATION), in the order of its texts."""
    end = np.array([_tokenizer.end_token], _tokenizer.dtype).tobytes()
    tokens: dict[int, list[bytes]] = {TRAIN: [], VALIDATION: []}
    lengths: dict[int, list[int]] = {TRAIN: [], VALIDATION: []}
    for i, text in frame_texts(_spool, place):
        encoded = _tokenizer.encode_to_bytes(text)
        tokens[place.mark[i]] += (encoded, end)
        lengths[place.mark[i]].append(len(encoded) // _tokenizer.dtype.itemsize)
    return {s: Encoded(b"".join(tokens[s]), np.array(lengths[s], np.uint32)) for s in (TRAIN, VALIDATION)}


def digest(text: bytes) -> int:
    """First 8 bytes of BLAKE2b of a text's UTF-8: what duplicates, the split and the held-out order go by."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


class SeenDigests:
    """The digests seen so far, 8 bytes each, as a few sorted runs that double in size."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, digests: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Marks the digests that are new (of equal ones the first), and remembers them."""
        values, first = np.unique(digests, return_index=True)
        known = np.zeros(len(values), bool)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, values), len(run) - 1)
            known |= run[at] == values
        new = np.zeros(len(digests), bool)
        new[first[~known]] = True
        run = values[~known]
        while self._runs and len(self._runs[-1]) <= len(run):
            run = np.concatenate([run, self._runs.pop()])
            run.sort()
        if len(run):
            self._runs.append(run)
        return new


def validation_mark(digest: NDArray[np.uint64], fraction: float) -> NDArray[np.uint8]:
    """TRAIN or VALIDATION of each text, by its own hash alone: adding texts moves no other one."""
    limit = np.uint64(min(int(fraction * 2**64), 2**64 - 1))
    return np.where(mix64(digest) < limit, VALIDATION, TRAIN).astype(np.uint8)


def sample_order(digest: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """The value by which texts are taken into the tokenizer's sample, smallest first; unrelated to the split."""
    salt = mix64(np.array([(seed + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1)], np.uint64))
    return mix64(digest ^ salt)


def available_cores() -> int:
    """Cores that this process may use: its affinity, where the system has one (psutil would ask for the same)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def ordered_map(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    workers: int,
    initializer: Callable[..., None],
    initargs: tuple[Any, ...],
) -> Iterator[Result]:
    """``function`` of each job, in the jobs' order, with at most 2·workers + 2 jobs in flight.

    One worker: in this process. The processes are spawned, since the caller may hold threads that a fork would break.
    """
    if workers == 1:
        initializer(*initargs)
        yield from map(function, jobs)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(initializer, initargs))
    waiting: deque[Future[Result]] = deque()
    try:
        for job in jobs:
            with _no_interrupts():  # submit starts the processes
                future = pool.submit(function, job)
            waiting.append(future)
            if len(waiting) > 2 * workers + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise InputError(
            f"data.workers: {workers}; a worker process of prepare died (out of memory, or a script that starts it "
            "without `if __name__ == '__main__'`); fewer workers, or 1 for none"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Processes started in here inherit a blocked SIGINT: Ctrl-C is the parent's, even while they import. Here it
    waits for the end, so that no process is left half started (another thread, such as BLAS has, may receive it)."""
    came: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
            if came:
                signal.raise_signal(signal.SIGINT)


def _start(initializer: Callable[..., None], initargs: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initializer(*initargs)


def _end_with_parent() -> None:
    """Ends this worker when its parent is gone, even by SIGKILL: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
