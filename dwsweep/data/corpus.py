"""Making of a corpus: two streaming passes over a source; memory is flat in its size.

1. Read: the workers clean the source's texts, a compressed spool file holds them; exact duplicates are dropped and each
   text's own digest puts it on its side of the split.
2. Train the tokenizer on a seeded sample of the training side (the texts with the smallest salted digest).
3. Encode the spool into the two streams, in the order of the source.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dwsweep.data import digests, passes, processes
from dwsweep.data.records import SMALL_BYTES, DocumentSource, Skipped, counted
from dwsweep.data.token_store import DOCUMENT, StreamWriter, checksums, content_hash
from dwsweep.data.tokenizer import GivenTokenizer, Tokenizer, given_files, train
from dwsweep.errors import InputError
from dwsweep.records import record as reader
from dwsweep.records.footing import cores, versions
from dwsweep.records.store import SPLITS, StoreManifest, StoreSplit

if TYPE_CHECKING:
    from dwsweep.spec import DataSpec


def say(progress: bool, text: str) -> None:
    if progress:
        print(f"prepare: {text}", file=sys.stderr, flush=True)


LINE_SECONDS = 15.0  # interval between two lines of progress


class _ByteProgress:
    """Progress of a pass over bytes: a line on standard error every ``LINE_SECONDS``."""

    def __init__(self, title: str, total: int, show: bool) -> None:
        self.title, self.total, self.show, self.done = title, total, show, 0
        self.started = self.said = time.monotonic()

    def advance(self, n_bytes: int) -> None:
        self.done += n_bytes
        if time.monotonic() - self.said < LINE_SECONDS:
            return
        self.said = time.monotonic()
        rate = self.done / (self.said - self.started)
        of = f" of {self.total / 1e6:,.1f}" if self.total else ""
        left = f", {(self.total - self.done) / rate:,.0f} s left" if rate and self.total > self.done else ""
        say(self.show, f"{self.title}: {self.done / 1e6:,.1f}{of} MB, {rate / 1e6:,.1f} MB/s{left}")


MAX_BAD_FRACTION = 0.01  # share of bad records above which the source itself is judged wrong


@dataclass(frozen=True)
class _Corpus:
    """Result of pass 1: the spool's frames, and arrays over all texts in the order of the source."""

    frames: list[passes.FramePlace]
    borders: NDArray[np.int64]  # number of the first text of each frame but the first
    texts: NDArray[Any]  # dtype passes.TEXT
    mark: NDArray[np.uint8]
    skipped: Skipped

    @property
    def kept(self) -> NDArray[Any]:
        """Texts that are no duplicates."""
        return self.texts[self.mark != digests.DROPPED]

    @property
    def n_documents(self) -> int:
        return len(self.kept)

    @property
    def n_duplicates(self) -> int:
        return len(self.texts) - self.n_documents

    @property
    def n_bytes(self) -> int:
        """Bytes of the kept texts."""
        return int(self.kept["n_bytes"].sum(dtype=np.int64))


def make_store(data: DataSpec, source: DocumentSource, partial: Path, progress: bool) -> str:
    """Make the store in the empty folder ``partial``, its manifest last; returns a line of its counts.

    Raises:
        InputError: the source is empty, mostly bad, too small to split, or too poor for this vocabulary.
        OSError: the source cannot be read, or the folder cannot be written.
    """
    workers = data.workers or len(cores())
    given = given_files(data)
    # check the settings before the text, which may take hours to read
    own = GivenTokenizer(given, str(data.tokenizer)) if given else None
    spool = partial / "spool.zst"
    corpus = _read(data, source, spool, workers if source.parallel else 1, progress)
    say(progress, _counts(source, corpus))
    _check(data, corpus)

    tokenizer = own or train(_sample(data, corpus, spool), data.vocab_size)
    if own and progress:
        _report_changed(own, data, _sample(data, corpus, spool))
    tokenizer_hash = tokenizer.save(partial)

    splits = _encode(corpus, spool, partial, tokenizer, workers if corpus.n_bytes > SMALL_BYTES else 1, progress)
    spool.unlink()
    n_tokens = sum(split.n_tokens for split in splits.values())
    dtype = tokenizer.dtype.str
    manifest = StoreManifest(
        source=data.source,
        revision=source.revision,
        settings=data.model_dump(exclude={"cache_dir", "workers"}),
        vocab_size=data.vocab_size,
        dtype=dtype,  # type: ignore[arg-type]
        end_token=tokenizer.end_token,
        tokenizer_hash=tokenizer_hash,
        splits=splits,
        n_documents=corpus.n_documents,
        n_tokens=n_tokens,
        n_bytes=corpus.n_bytes,
        duplicates=corpus.n_duplicates,
        left_out=dict(corpus.skipped.left_out),
        skipped=dict(corpus.skipped.bad),
        first_skipped=corpus.skipped.first_bad,
        versions=versions({name: name for name in ("dwsweep", "numpy", own.package if own else "sentencepiece")}),
        tokenizer_file_hash=own.file_hash if own else None,
        data_hash=content_hash(partial, " ".join([tokenizer_hash, *([own.file_hash] if own else [])]), dtype, splits),
        files={},
        key=partial.name.removesuffix(".partial").rpartition("-")[2],
    )
    manifest = replace(manifest, files=checksums(partial, [*manifest.data_files, *tokenizer.stored]))
    reader.write(partial / "manifest.json", manifest, durable=True)
    left_out, skipped = counted(corpus.skipped.left_out), corpus.skipped if corpus.skipped.bad else None
    return (
        f"{corpus.n_documents:,} documents, {n_tokens:,} tokens"
        + f"; left out: {left_out}" * bool(left_out)
        + f"; skipped: {skipped}" * bool(skipped)
    )


def _report_changed(own: GivenTokenizer, data: DataSpec, texts: Iterator[str]) -> None:
    changed, tried = own.changed(texts)
    if changed:
        say(
            True,
            f"caution: data.tokenizer: {data.tokenizer}; {changed} of {tried} documents do not come back as they were "
            "(normalised, or unknown characters); bits per byte are counted on the text as it was read",
        )


def _read(data: DataSpec, source: DocumentSource, spool: Path, workers: int, progress: bool) -> _Corpus:
    """Spool the texts of a source, drop exact duplicates, and put each kept text on its side of the split."""
    spots: list[tuple[int, int]] = []
    skipped, texts = Skipped(), [np.empty(0, passes.TEXT)]
    bar = _ByteProgress("reading", source.total_bytes, progress)
    with open(spool, "wb") as out:
        frames = processes.ordered_map(passes.read_item, source.items(), workers, passes.start_reading, (source,))
        for frame in chain.from_iterable(frames):
            spots.append((out.tell(), len(frame.data)))
            texts.append(frame.texts)
            skipped.add(frame.skipped)
            out.write(frame.data)
            bar.advance(frame.source_bytes)
    every, borders = np.concatenate(texts), np.cumsum([len(part) for part in texts])[1:-1]
    mark = np.full(len(every), digests.DROPPED, np.uint8)
    first = np.unique(every["digest"], return_index=True)[1]
    mark[first] = digests.validation_mark(every["digest"][first], data.validation_fraction)
    parts = zip(spots, np.split(every["n_bytes"], borders), np.split(mark, borders), strict=False)  # spots may be none
    return _Corpus([passes.FramePlace(*spot, *part) for spot, *part in parts], borders, every, mark, skipped)


def _counts(source: DocumentSource, corpus: _Corpus) -> str:
    """Line of counts: documents read, the rule that separates them, duplicates dropped, documents kept."""
    found = corpus.n_documents + corpus.n_duplicates
    unit = f" ({source.documents_are})" if source.documents_are else ""
    return (
        f"{found:,} document{'s' * (found != 1)} read{unit}, {corpus.n_duplicates:,} dropped as exact duplicates, "
        f"{corpus.n_documents:,} kept"
    )


def _check(data: DataSpec, corpus: _Corpus) -> None:
    """Raise InputError if the corpus is empty, mostly bad, or leaves a side of the split empty."""
    bad = corpus.skipped.bad.total()
    records = bad + corpus.n_documents + corpus.n_duplicates
    if bad > MAX_BAD_FRACTION * records:
        raise InputError(
            f"data.source: {data.source}; {bad:,} of {records:,} records are bad ({corpus.skipped}); "
            f"at most {MAX_BAD_FRACTION:.0%} may be bad and are skipped"
        )
    if not corpus.n_documents:
        left = counted(corpus.skipped.left_out) or "no records"
        raise InputError(f"data.source: {data.source}; empty: not one document ({left}); give a source with text in it")
    mark = corpus.mark
    if (mark == digests.VALIDATION).any() and (mark == digests.TRAIN).any():
        return
    n = corpus.n_documents
    if n < 2:
        copies = f" ({corpus.n_duplicates:,} × the same again)" if corpus.n_duplicates else ""
        raise InputError(
            f"data.source: {data.source}; one document{copies}; must have at least two, for training and "
            "validation (text: separates the articles of a single file by blank lines)"
        )
    raise InputError(
        f"data.validation_fraction: {data.validation_fraction}; leaves one side empty with these {n:,} documents, "
        "each of which is drawn by its own hash; must be a fraction nearer to one half"
    )


def _sample(data: DataSpec, corpus: _Corpus, spool: Path) -> Iterator[str]:
    """Sample for the tokenizer: training texts by rising salted digest up to the wanted bytes, in the order of the
    corpus."""
    order = np.argsort(digests.sample_order(corpus.texts["digest"], data.seed), kind="stable")
    order = order[corpus.mark[order] == digests.TRAIN]
    n_bytes = corpus.texts["n_bytes"][order]
    before = np.cumsum(n_bytes, dtype=np.int64) - n_bytes
    taken = np.zeros(len(corpus.mark), np.uint8)
    taken[order[before < data.tokenizer_sample_bytes]] = digests.TRAIN
    for place, chosen in zip(corpus.frames, np.split(taken, corpus.borders), strict=True):
        if chosen.any():
            for _, text in passes.frame_texts(spool, place._replace(mark=chosen)):
                yield text


def _encode(
    corpus: _Corpus, spool: Path, partial: Path, tokenizer: Tokenizer, workers: int, progress: bool
) -> dict[str, StoreSplit]:
    with ExitStack() as stack:
        writers = {
            mark: stack.enter_context(StreamWriter(partial, split, tokenizer.dtype, tokenizer.end_token))
            for mark, split in ((digests.TRAIN, "train"), (digests.VALIDATION, "validation"))
        }
        results = processes.ordered_map(
            passes.encode_frame, corpus.frames, workers, passes.start_encoding, (spool, partial)
        )
        frames = zip(corpus.frames, np.split(corpus.texts, corpus.borders), results, strict=True)
        bar = _ByteProgress("encoding", corpus.n_bytes, progress)
        for place, texts, encoded in frames:
            for split, writer in writers.items():
                chosen, (tokens, n_tokens) = texts[place.mark == split], encoded[split]
                records = np.empty(len(chosen), DOCUMENT)
                records["digest"], records["n_bytes"] = chosen["digest"], chosen["n_bytes"]
                records["n_tokens"] = n_tokens
                writer.append(np.frombuffer(tokens, tokenizer.dtype), records)
                bar.advance(int(chosen["n_bytes"].sum(dtype=np.int64)))
        return {name: writer.close() for name, writer in zip(SPLITS, writers.values(), strict=True)}
