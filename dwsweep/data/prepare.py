"""``dwsweep prepare``: source → tokenizer → token store, idempotent, and safe when interrupted or run twice. And what
is in a store, for ``--inspect``.

``make_store`` makes the store, in ``<store>.partial``, renamed when it is whole, under a lock: an interrupted prepare
leaves nothing that looks finished and the next one starts over; a second one at the same time waits and finds the
store. A finished store is opened without the lock, so that a read-only cache will do; a damaged one is set aside and
made anew.

A corpus on its way into a store, in two streaming passes; memory is flat in its size.

1. Read: the source's texts, cleaned by the workers, go to a compressed spool file; exact duplicates are dropped and
   each text is put on its side of the split by its own hash.
2. Train the tokenizer on a seeded sample of the training side (the texts with the smallest salted hash).
3. Encode the spool into shards, in the order of the source.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import platform
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dwsweep import paths
from dwsweep.data import batches
from dwsweep.data.files import SMALL_BYTES, Skipped, Source, counted, is_remote
from dwsweep.data.sources import open_source
from dwsweep.data.token_store import DOCUMENT, DamagedStore, Store, StreamWriter, checksums, content_hash
from dwsweep.data.tokenizer import GivenTokenizer, Tokenizer, given_files, train
from dwsweep.errors import InputError
from dwsweep.records import record as reader
from dwsweep.records.sweep import FORMAT, SPLITS, StoreManifest, StoreSplit
from dwsweep.spec.vocabulary import BYTES_VOCAB
from dwsweep.terminal import ByteProgress
from dwsweep.text import printable

if TYPE_CHECKING:
    from rich.console import Group

    from dwsweep.spec import DataSpec


SAMPLE_TOKENS = 160
_BAR = 40
_IN_KEY = ("validation_fraction", "text_field", "tokenizer_sample_bytes", "seed")  # settings in a store's name


def cache_root(data: DataSpec) -> Path:
    """``data.cache_dir``, else the user's cache. InputError where it is not a local folder."""
    if data.cache_dir and is_remote(data.cache_dir):
        raise InputError(
            f"data.cache_dir: {data.cache_dir}; must be a local folder: training maps the store into memory"
        )
    return Path(data.cache_dir).expanduser().absolute() if data.cache_dir else paths.cache_root()


def store_path(data: DataSpec, source: Source) -> Path:
    """Folder of the store: named after the source, the settings that change it, and the state of the source's files."""
    settings = {
        "format": FORMAT,
        "source": source.identity(),
        "kind": data.source.partition(":")[0],
        "vocab_size": data.vocab_size,
        "validation_fraction": data.validation_fraction,
        "text_field": data.text_field,
        "tokenizer_sample_bytes": data.tokenizer_sample_bytes,
        "seed": data.seed,
    }
    if files := given_files(data):
        settings |= {"tokenizer": [hashlib.sha256(file).hexdigest() for file in files.values()]}
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    # the revision is in the identity, so that one found on a branch and the same one given in full are one store
    slug = re.sub(r"[^A-Za-z0-9]+", "-", data.source.partition("?revision=")[0]).strip("-")
    return (
        cache_root(data) / f"{slug[:12]}-{slug[-28:]}-{key}" if len(slug) > 40 else cache_root(data) / f"{slug}-{key}"
    )


def find(data: DataSpec) -> Store | None:
    """The finished store of these settings, or None; looks at names, sizes and times only.

    Raises:
        InputError: the cache is not a local folder, or ``data.tokenizer`` is none for these settings.
    """
    cache_root(data)
    given_files(data)
    try:
        path = store_path(data, open_source(data.source, data.text_field))
        if not (path / "manifest.json").exists():
            return None
        return _of_these_settings(Store.open(path, verify=False), data)
    except InputError:
        return None


def _of_these_settings(store: Store, data: DataSpec) -> Store:
    """The store, where the settings that it was made by are those that its folder is named after.

    Raises:
        DamagedStore: it was copied from another folder.
    """
    made, key = store.manifest, store.path.name.rpartition("-")[2]
    asked = {"vocab_size": data.vocab_size, **{name: getattr(data, name) for name in _IN_KEY}}
    for name, value in asked.items():
        if name in made.settings and made.settings[name] != value:
            raise DamagedStore(store.path, f"it was made with {name} {made.settings[name]!r}, not {value!r}")
    if made.key is not None and made.key != key:
        raise DamagedStore(store.path, f"it is the store …-{made.key} under another name")
    return store


FEWEST_HELDOUT = 30  # documents: with fewer, the spread between them, and so the loss's standard error, is a guess


def heldout_caution(store: Store) -> str | None:
    """Say what is wrong with a store that holds out too few documents, and which fraction is enough; else None."""
    held_out = store.manifest.splits["validation"].n_documents
    if held_out >= FEWEST_HELDOUT:
        return None
    digest = np.concatenate([store.documents(split)["digest"] for split in SPLITS])
    remedy = f"more documents, since {len(digest):,} are too few to hold out {FEWEST_HELDOUT} of them"
    if len(digest) >= 2 * FEWEST_HELDOUT:
        fraction, n = _fraction_for(digest, FEWEST_HELDOUT)
        remedy = f"{fraction:g} holds out {n:,} of the {len(digest):,}"
    return _too_few(
        store.manifest.settings.get("validation_fraction", "not recorded"), f"{held_out:,}", held_out == 1, remedy
    )


def expected_heldout_caution(data: DataSpec) -> str | None:
    """Say the same before the text is read, where the source knows its number of documents; else None."""
    try:
        n = open_source(data.source, data.text_field).n_documents
    except InputError:  # whoever reads the text says it
        return None
    if n is None or n * data.validation_fraction >= FEWEST_HELDOUT:
        return None
    fraction = _rounded_up(FEWEST_HELDOUT / n)
    remedy = f"more documents, since {n:,} are too few to hold out {FEWEST_HELDOUT} of them"
    if n >= 2 * FEWEST_HELDOUT:
        remedy = f"{fraction:g} holds out about {n * fraction:.0f} of the {n:,}"
    expected = n * data.validation_fraction
    return _too_few(data.validation_fraction, f"about {expected:.2g}", False, remedy)


def _too_few(fraction: object, held_out: str, one: bool, remedy: str) -> str:
    return (
        f"data.validation_fraction {fraction}: {held_out} document{'s' * (not one)} held out; the standard errors of "
        f"losses, and of differences between shapes, need {FEWEST_HELDOUT} or more; {remedy}"
    )


def _fraction_for(digest: NDArray[np.uint64], wanted: int) -> tuple[float, int]:
    """The least fraction of two digits that holds out ``wanted`` of these documents, and how many it holds out."""
    drawn = np.sort(batches.mix64(digest).astype(np.float64)) / 2.0**64  # what is drawn below a fraction is held out
    fraction = _rounded_up(float(drawn[wanted - 1]))
    return fraction, int((batches.validation_mark(digest, fraction) == batches.VALIDATION).sum())


def _rounded_up(fraction: float) -> float:
    """The next number of two digits above a fraction."""
    step = 10.0 ** (math.floor(math.log10(fraction)) - 1)
    return float(f"{(math.floor(fraction / step) + 1) * step:.2g}")


def prepare(data: DataSpec, *, progress: bool = True) -> Store:
    """The store of these settings, made when it is not there yet or damaged; ``progress``: reported on stderr, with a
    caution where too little is held out.

    InputError, with one clear line, where the source cannot give it or the cache cannot hold it.
    """
    store = _prepared(data, progress)
    if progress and (caution := heldout_caution(store)):
        _say(progress, f"caution: {caution}")
    return store


def _prepared(data: DataSpec, progress: bool) -> Store:
    source = open_source(data.source, data.text_field, download=True)
    path = store_path(data, source)
    found = _look(path, data)
    if isinstance(found, Store):
        return found
    damage = found

    def waiting() -> None:
        _say(progress, f"waiting for another process that is preparing {path}")

    try:
        with paths.exclusive(_beside(path, ".lock"), waiting):
            found = _look(path, data)  # the other process may have made it
            if isinstance(found, Store):
                return found
            old = _set_aside(path, found, progress) if found else None
            _remove_abandoned(path.parent)
            store = _make_whole(data, source, path, progress)
    except OSError as error:
        raise InputError(*(damage.lines if damage else ()), _named(error, data, path)) from None
    if old not in (None, store.data_hash):
        _say(progress, f"its content is another now ({store.data_hash[:12]}, was {old[:12]}): so are all run ids")
    return store


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _say(progress: bool, text: str) -> None:
    if progress:
        print(f"prepare: {text}", file=sys.stderr, flush=True)


def _look(path: Path, data: DataSpec) -> Store | DamagedStore | None:
    """The store, what is wrong with it, or None where there is none; writes nothing and needs no lock."""
    if not (path / "manifest.json").exists():
        return None
    try:
        return _of_these_settings(Store.open(path), data)
    except DamagedStore as damage:
        return damage


def _set_aside(path: Path, damage: DamagedStore, progress: bool) -> str | None:
    """Renames a damaged store, in place of one set aside before; its data hash, where its manifest still says it."""
    hashed = (paths.read_json(path / "manifest.json") or {}).get("data_hash")
    _say(progress, f"{damage.what}; set aside as {paths.set_aside(path)}, preparing it again")
    return hashed if isinstance(hashed, str) else None


def _make_whole(data: DataSpec, source: Source, path: Path, progress: bool) -> Store:
    """Makes the store beside its place and moves it there."""
    partial = _beside(path, ".partial")
    paths.remove(partial)
    try:
        partial.mkdir()
        summary = make_store(data, source, partial, progress)
        paths.remove(path)  # what is left of one without a manifest
        partial.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            paths.remove(partial)
        raise
    _say(progress, summary)
    store = Store.open(path, verify=False)
    store.remember_as_verified()
    return store


def _named(error: OSError, data: DataSpec, path: Path) -> str:
    """One line for what the system refused: writing the store at ``path``, or reading the source."""
    root, reason = path.parent, error.strerror or str(error)
    place = os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if full or (place and (place.startswith(str(path)) or root.is_relative_to(place))):
        free = "free space there, or " * full
        return (
            f"data.cache_dir: {root}; cannot be written ({reason}); "
            f"{free}choose another folder (data.cache_dir or DWSWEEP_CACHE)"
        )
    if place:
        return f"data.source: {place}; cannot be read ({reason})"
    return f"data.source, data.cache_dir: {reason} while {data.source} was read and {root} was written"


def _remove_abandoned(root: Path) -> None:
    """Remove what killed processes left of other stores: those whose lock nobody holds."""
    for partial in root.glob("*.partial"):
        lock = partial.with_suffix(".lock")
        with contextlib.suppress(OSError):  # it is not ours to judge
            if lock.exists():
                with paths.if_free(lock) as free:
                    if free:
                        paths.remove(partial)


def length_histogram(n_tokens: np.ndarray) -> list[tuple[int, int, int]]:
    """(from, to, documents) of document lengths in tokens, in powers of two; the empty ends are left out."""
    if not len(n_tokens):
        return []
    bins = np.floor(np.log2(np.maximum(n_tokens, 1))).astype(int)
    counts = np.bincount(bins)
    return [(2**b, 2 ** (b + 1) - 1, int(counts[b])) for b in range(int(bins.min()), len(counts))]


def inspect(store: Store) -> Group:
    """Counts, skipped records, the lengths of the documents and a decoded sample, to be printed by rich."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    def shown(text: str) -> Text:
        """The text without markup and without anything that steers the terminal."""
        return Text(printable(text, keep="\n\t"))

    m = store.manifest
    counts = Table(box=None, pad_edge=False)
    for column in ("", "documents", "tokens", "bytes"):
        counts.add_column(column, justify="left" if not column else "right")
    for split in ("train", "validation"):
        s = m.splits[split]
        counts.add_row(split, f"{s.n_documents:,}", f"{s.n_tokens:,}", f"{s.n_bytes:,}")

    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_row("source", shown(m.source))
    if m.revision:
        facts.add_row("revision", shown(m.revision))
    kind = "bytes" if m.vocab_size == BYTES_VOCAB else "BPE, byte fallback"
    own = m.settings.get("tokenizer") if m.tokenizer_file_hash else None
    facts.add_row("vocabulary", shown(f"{m.vocab_size:,} ({own or kind})"))
    facts.add_row("characters per token", f"{m.characters_per_token:.3f}")
    facts.add_row("bytes per token", f"{m.bytes_per_token:.3f}")
    facts.add_row("duplicates dropped", f"{m.duplicates:,}")
    for reason, n in {**m.left_out, **m.skipped}.items():
        facts.add_row(shown(reason), f"{n:,} {'skipped' if reason in m.skipped else 'left out'}")
    if m.first_skipped:
        facts.add_row("first skipped", shown(m.first_skipped))
    facts.add_row("data hash", shown(m.data_hash))

    lengths = np.concatenate([store.documents(s)["n_tokens"] for s in ("train", "validation")])
    rows = length_histogram(lengths)
    most = max(count for *_, count in rows)
    histogram = Table(box=None, pad_edge=False, title="document length in tokens", title_justify="left")
    for column in ("from", "to", "documents"):
        histogram.add_column(column, justify="right")
    histogram.add_column("")
    for low, high, count in rows:
        histogram.add_row(f"{low:,}", f"{high:,}", f"{count:,}", "█" * -(-count * _BAR // most))

    first = store.shards("train").read(1, 1 + min(SAMPLE_TOKENS, store.n_train_tokens - 1))
    ids = first[: int(np.argmax(first == store.end_token))] if (first == store.end_token).any() else first
    pieces = " ".join(f"{int(i)}:{store.piece(i).decode('utf-8', 'replace')!r}" for i in ids[:24])
    sample = Text.assemble(
        ("first document\n", "italic"), shown(store.decode(ids)), ("\n\nits first tokens\n", "italic"), pieces
    )
    return Group(counts, "", facts, "", histogram, "", Padding(sample, 0))


MAX_BAD_FRACTION = 0.01  # of the records; beyond it the source is wrong, not a few records


@dataclass
class _Corpus:
    """Result of pass 1: the spool's frames, and counts."""

    frames: list[batches.FramePlace] = field(default_factory=list)
    digests: list[np.ndarray] = field(default_factory=list)
    skipped: Skipped = field(default_factory=Skipped)
    n_documents: int = 0  # kept
    n_duplicates: int = 0
    n_characters: int = 0  # kept
    n_bytes: int = 0  # kept


def make_store(data: DataSpec, source: Source, partial: Path, progress: bool) -> str:
    """Makes the store in the empty folder ``partial``, its manifest last; returns a line on what is in it.

    Raises:
        InputError: the source is empty, mostly bad, too small to split, or not the text for this vocabulary.
        OSError: the source cannot be read, or the folder cannot be written.
    """
    workers = data.workers or batches.available_cores()
    given = given_files(data)
    own = GivenTokenizer(given, str(data.tokenizer)) if given else None  # before the text, which may take hours to read
    spool = partial / "spool.zst"
    started = time.monotonic()
    corpus = _read(data, source, spool, workers if source.parallel else 1, progress)
    _say(progress, _counts(source, corpus))
    _check(data, corpus)
    read_seconds = time.monotonic() - started

    tokenizer = own or train(_sample(data, corpus, spool), data.vocab_size)
    if own and progress:
        _report_changed(own, data, _sample(data, corpus, spool))
    tokenizer_hash = tokenizer.save(partial)
    train_seconds = time.monotonic() - started - read_seconds

    splits = _encode(corpus, spool, partial, tokenizer, workers if corpus.n_bytes > SMALL_BYTES else 1, progress)
    encode_seconds = time.monotonic() - started - read_seconds - train_seconds
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
        n_characters=corpus.n_characters,
        n_bytes=corpus.n_bytes,
        characters_per_token=corpus.n_characters / n_tokens,
        bytes_per_token=corpus.n_bytes / n_tokens,
        duplicates=corpus.n_duplicates,
        left_out=dict(corpus.skipped.left_out),
        skipped=dict(corpus.skipped.bad),
        first_skipped=corpus.skipped.first_bad,
        seconds={"read": read_seconds, "train_tokenizer": train_seconds, "encode": encode_seconds},
        versions={
            "python": platform.python_version(),
            **{name: version(name) for name in ("dwsweep", "numpy", own.package if own else "sentencepiece")},
        },
        tokenizer_file_hash=own.file_hash if own else None,
        data_hash=content_hash(partial, " ".join([tokenizer_hash, *([own.file_hash] if own else [])]), dtype, splits),
    )
    of_tokenizer = [str(path.relative_to(partial)) for path in tokenizer.files_in(partial)]
    key = partial.name.removesuffix(".partial").rpartition("-")[2]
    manifest = replace(manifest, files=checksums(partial, [*manifest.data_files, *of_tokenizer]), key=key)
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
        _say(
            True,
            f"caution: data.tokenizer: {data.tokenizer}; {changed} of {tried} documents do not come back as they were "
            "(normalised, or unknown characters); bits per byte count the bytes as they were read",
        )


def _read(data: DataSpec, source: Source, spool: Path, workers: int, progress: bool) -> _Corpus:
    corpus, seen = _Corpus(), batches.SeenDigests()
    with ByteProgress("reading", source.total_bytes, show=progress) as bar, open(spool, "wb") as out:
        frames = batches.ordered_map(batches.read_item, source.items(), workers, batches.start_reading, (source,))
        for frame in chain.from_iterable(frames):
            mark = batches.validation_mark(frame.digest, data.validation_fraction)
            new = seen.add(frame.digest)
            mark[~new] = batches.DROPPED
            corpus.frames.append(batches.FramePlace(out.tell(), len(frame.data), frame.n_bytes, mark))
            corpus.digests.append(frame.digest)
            corpus.skipped.add(frame.skipped)
            corpus.n_documents += int(new.sum())
            corpus.n_duplicates += int((~new).sum())
            corpus.n_characters += int(frame.n_characters[new].sum(dtype=np.int64))
            corpus.n_bytes += int(frame.n_bytes[new].sum(dtype=np.int64))
            out.write(frame.data)
            bar.advance(frame.source_bytes)
    return corpus


def _counts(source: Source, corpus: _Corpus) -> str:
    """How many documents the source has, how they were told apart, how many are duplicates and how many are kept."""
    found = corpus.n_documents + corpus.n_duplicates
    unit = f" ({source.documents_are})" if source.documents_are else ""
    return (
        f"{found:,} document{'s' * (found != 1)} read{unit}, {corpus.n_duplicates:,} dropped as exact duplicates, "
        f"{corpus.n_documents:,} kept"
    )


def _check(data: DataSpec, corpus: _Corpus) -> None:
    """InputError where the corpus is empty, mostly bad, or leaves a side of the split empty."""
    bad = corpus.skipped.bad.total()
    records = bad + corpus.n_documents + corpus.n_duplicates
    if bad > MAX_BAD_FRACTION * records:
        raise InputError(
            f"data.source: {data.source}; {bad:,} of {records:,} records are bad ({corpus.skipped}); "
            f"at most {MAX_BAD_FRACTION:.0%} are skipped"
        )
    if not corpus.n_documents:
        left = counted(corpus.skipped.left_out) or "no records"
        raise InputError(f"data.source: {data.source}; empty: not one document ({left}); a source with text in it")
    mark = np.concatenate([f.mark for f in corpus.frames])
    if (mark == batches.VALIDATION).any() and (mark == batches.TRAIN).any():
        return
    n = corpus.n_documents
    if n < 2:
        copies = f" ({corpus.n_duplicates:,} × the same again)" if corpus.n_duplicates else ""
        raise InputError(
            f"data.source: {data.source}; one document{copies}; at least two, for training and validation (text: "
            "separates the articles of a single file by blank lines)"
        )
    digest = np.concatenate(corpus.digests)[mark != batches.DROPPED]
    side = "validation" if (mark == batches.TRAIN).any() else "training"
    fraction, held_out = _fraction_that_splits(digest)
    raise InputError(
        f"data.validation_fraction: {data.validation_fraction}; leaves one side empty with these {n:,} documents: "
        f"none for {side}, since each is drawn by its own hash; {fraction} holds out {held_out}"
    )


def _fraction_that_splits(digest: NDArray[np.uint64]) -> tuple[float, int]:
    """A round fraction, from 1 % up if one is, that leaves documents on both sides, and how many it holds out."""
    low = float(batches.mix64(digest).min()) / 2.0**64  # what is drawn below a fraction is held out
    coarse = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    fine = [(int(low * 10**digits) + 1) / 10**digits for digits in range(2, 18)]
    # one document says little about a loss
    for least in (max(1, min(5, len(digest) // 4)), 1):
        for fraction in (*coarse, *fine):
            held_out = int((batches.validation_mark(digest, fraction) == batches.VALIDATION).sum())
            if least <= held_out < len(digest):
                return fraction, held_out
    raise AssertionError("two documents of one hash are one document")


def _sample(data: DataSpec, corpus: _Corpus, spool: Path) -> Iterator[str]:
    """The tokenizer's sample: training texts in the order of their salted hash until the wanted bytes are reached,
    handed out in the order of the corpus."""
    frame = np.repeat(np.arange(len(corpus.frames)), [len(f.mark) for f in corpus.frames])
    mark = np.concatenate([f.mark for f in corpus.frames])
    n_bytes = np.concatenate([f.n_bytes for f in corpus.frames])
    order = np.argsort(batches.sample_order(np.concatenate(corpus.digests), data.seed), kind="stable")
    order = order[mark[order] == batches.TRAIN]
    before = np.cumsum(n_bytes[order], dtype=np.int64) - n_bytes[order]
    taken = np.zeros(len(mark), bool)
    taken[order[before < data.tokenizer_sample_bytes]] = True
    starts = np.searchsorted(frame, np.arange(len(corpus.frames)))
    for i, place in enumerate(corpus.frames):
        chosen = taken[starts[i] : starts[i] + len(place.mark)]
        if chosen.any():
            for _, text in batches.frame_texts(spool, place._replace(mark=chosen.astype(np.uint8))):
                yield text


def _encode(
    corpus: _Corpus, spool: Path, partial: Path, tokenizer: Tokenizer, workers: int, progress: bool
) -> dict[str, StoreSplit]:
    writers = {
        s: StreamWriter(partial, name, tokenizer.dtype, tokenizer.end_token)
        for s, name in ((1, "train"), (2, "validation"))
    }
    results = batches.ordered_map(
        batches.encode_frame, corpus.frames, workers, batches.start_encoding, (spool, partial)
    )
    with ByteProgress("encoding", corpus.n_bytes, show=progress) as bar:
        for place, digest, encoded in zip(corpus.frames, corpus.digests, results, strict=True):
            for split, writer in writers.items():
                chosen = place.mark == split
                records = np.empty(int(chosen.sum()), DOCUMENT)
                records["digest"] = digest[chosen]
                records["n_bytes"] = place.n_bytes[chosen]
                records["n_tokens"] = encoded[split].n_tokens
                writer.append(np.frombuffer(encoded[split].tokens, tokenizer.dtype), records)
            bar.advance(int(place.n_bytes[place.mark != batches.DROPPED].sum(dtype=np.int64)))
    return {name: writer.close() for name, writer in zip(SPLITS, writers.values(), strict=True)}
