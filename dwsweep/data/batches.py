"""Which windows a step sees: a pure function of (seed, global step). And the held-out set that every evaluation sees.

The token stream is cut in windows ``tokens[i·T : i·T + T + 1]``; inputs are all but the last token, targets all but the
first, so neighbouring windows share one token and every token but the first is a target exactly once per epoch. Epoch e
visits all windows in the order of a keyed permutation of [0, n): a Feistel network on ceil(log2 n) bits, walked along
its cycle until it lands below n (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). One index costs O(1)
time and memory, so a resumed run seeks; the arithmetic is on unsigned 64-bit integers only, so the order depends on no
library's random generator.

The two passes of ``prepare`` over a corpus, one item at a time, as they run in the worker processes.

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

from dwsweep.data.files import MAX_DOCUMENT_BYTES, Item, Skipped, Source
from dwsweep.data.token_store import ShardedTokens, Store
from dwsweep.data.tokenizer import Tokenizer
from dwsweep.errors import InputError

_ROUNDS = 8
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The splitmix64 finaliser (Steele, Lea & Flood 2014), element by element: a bijection of 64-bit integers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def n_windows(n_tokens: int, seq_len: int) -> int:
    """Number of windows of ``seq_len`` + 1 tokens at stride ``seq_len`` in ``n_tokens`` tokens."""
    return max(0, (n_tokens - 1) // seq_len)


def check_enough(n_tokens: int, seq_len: int, batch_size: int) -> int:
    """The number of windows, or InputError when the stream does not fill one batch."""
    windows = n_windows(n_tokens, seq_len)
    if windows < batch_size:
        raise InputError(
            f"data.source: {n_tokens:,} training tokens make {windows:,} windows of train.seq_len {seq_len}; "
            f"one batch needs {batch_size:,} (train.batch_size): use more text, or a smaller batch or seq_len"
        )
    return windows


def permute(positions: NDArray[np.uint64], epochs: NDArray[np.uint64], seed: int, n: int) -> NDArray[np.uint64]:
    """Place of each position in the order of its epoch: for a fixed epoch, a bijection of [0, n).

    ``positions`` and ``epochs`` are uint64 arrays of one shape, positions below ``n``.
    """
    bits = max(2, (n - 1).bit_length())
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    base = mix64(np.uint64((seed * _GOLDEN + 1) & _MASK) + mix64(epochs * np.uint64(_GOLDEN) + np.uint64(1)))

    def walk(x: NDArray[np.uint64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
        low, high = x & low_mask, x >> low_bits
        for r in range(_ROUNDS):
            round_key = key + np.uint64(((r + 1) * _GOLDEN) & _MASK)
            if r % 2:
                low = low ^ (mix64(high + round_key) & low_mask)
            else:
                high = high ^ (mix64(low + round_key) & high_mask)
        return (high << low_bits) | low

    out = walk(positions, base)
    outside = np.flatnonzero(out >= np.uint64(n))
    while outside.size:  # the domain is below 2n, so half of what is left comes home each time
        out.flat[outside] = walk(out.flat[outside], base.flat[outside])
        outside = outside[out.flat[outside] >= np.uint64(n)]
    return out


def window_indices(
    seed: int,
    first_step: int,
    n_steps: int,
    batch_size: int,
    n_windows: int,
) -> NDArray[np.signedinteger]:
    """Window index of each example of steps ``first_step`` … ``first_step + n_steps − 1``.

    Shape (n_steps, batch_size), int32 (int64 from 2³¹ windows on). Example j of step s is number s·batch_size + j of an
    endless stream of epochs, each of which visits every window once in a new order; a batch may straddle two epochs.
    """
    if n_windows < 1:
        raise ValueError(f"n_windows: {n_windows}; at least 1")
    if first_step < 0 or n_steps < 0:
        raise ValueError(f"first_step, n_steps: {first_step}, {n_steps}; 0 or more")
    steps = np.arange(first_step, first_step + n_steps, dtype=np.uint64)[:, None]
    columns = np.arange(batch_size, dtype=np.uint64)[None, :]
    examples = steps * np.uint64(batch_size) + columns
    epochs, positions = np.divmod(examples, np.uint64(n_windows))
    order = permute(positions, epochs, seed, n_windows)
    return order.astype(np.int32 if n_windows < 2**31 else np.int64)


def gather(tokens: np.ndarray | ShardedTokens, indices: np.ndarray, seq_len: int) -> np.ndarray:
    """The windows themselves: shape ``indices.shape + (seq_len + 1,)``, the tokens' own dtype."""
    starts = np.asarray(indices, dtype=np.int64) * seq_len
    if isinstance(tokens, ShardedTokens):
        return tokens.take_windows(starts, seq_len + 1)
    return tokens[starts[..., None] + np.arange(seq_len + 1)]


@dataclass(frozen=True)
class HeldoutSet:
    """Validation documents cut in windows: the same targets, each counted once, for every shape of a sweep.

    Loss in nats per token is Σ nll / n_tokens; bits per byte is Σ nll / (n_bytes · ln 2). The end token of a document
    is a target (the model must know when to stop) and has no bytes.
    """

    windows: np.ndarray  # (W, seq_len + 1), the store's dtype: inputs are [:, :-1], targets [:, 1:]
    document: NDArray[np.int32]  # (W, seq_len): document of each target, −1 for padding
    n_documents: int
    document_tokens: NDArray[np.int64]  # (n_documents,): targets, the end token included
    document_bytes: NDArray[np.int64]  # (n_documents,): UTF-8 bytes
    n_tokens: int  # targets in all
    n_bytes: int  # UTF-8 bytes in all


def heldout_set(store: Store, seq_len: int, max_tokens: int | None = None) -> HeldoutSet:
    """The validation documents of ``store`` in windows of ``seq_len`` targets.

    Documents come in the order of their hash, so that a prefix is a random sample, each followed by an end token; the
    stream starts with an end token, windows are ``stream[i·T : i·T + T + 1]``, and the last one is padded with end
    tokens whose document is −1. ``max_tokens`` cuts at a document's border: as many whole documents as fit, at least
    one.
    """
    if seq_len < 1:
        raise ValueError(f"seq_len: {seq_len}; at least 1")
    if max_tokens is not None and max_tokens < 1:
        raise ValueError(f"max_tokens: {max_tokens}; at least 1, or None for all")
    records = store.documents("validation")
    lengths = records["n_tokens"].astype(np.int64) + 1
    starts = 1 + np.cumsum(lengths) - lengths
    order = np.argsort(records["digest"], kind="stable")
    if max_tokens is not None:
        fit = int(np.searchsorted(np.cumsum(lengths[order]), max_tokens, side="right"))
        order = order[: max(1, fit)]
    lengths, starts = lengths[order], starts[order]
    n_tokens = int(lengths.sum())

    tokens = store.shards("validation")
    n = -(-n_tokens // seq_len)
    stream = np.full(n * seq_len + 1, store.end_token, store.dtype)
    at = 1
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        stream[at : at + length] = tokens.read(start, start + length)
        at += length
    document = np.full(n * seq_len, -1, np.int32)
    document[:n_tokens] = np.repeat(np.arange(len(order), dtype=np.int32), lengths)
    windows = stream[np.arange(n)[:, None] * seq_len + np.arange(seq_len + 1)]
    document_bytes = records["n_bytes"][order].astype(np.int64)
    return HeldoutSet(
        windows=windows,
        document=document.reshape(n, seq_len),
        n_documents=len(order),
        document_tokens=lengths,
        document_bytes=document_bytes,
        n_tokens=n_tokens,
        n_bytes=int(document_bytes.sum()),
    )


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
