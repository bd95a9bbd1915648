"""``dwsweep prepare``: source → tokenizer → token store, idempotent, and safe when interrupted or run twice. And what
is in a store, for ``--inspect``.

``corpus`` makes the store, in ``<store>.partial``, renamed when it is whole, under a lock: an interrupted prepare
leaves nothing that looks finished and the next one starts over; a second one at the same time waits and finds the
store. A finished store is opened without the lock, so that a read-only cache will do; a damaged one is set aside and
made anew.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dwsweep import locks, paths
from dwsweep.data import corpus
from dwsweep.data.source_files import is_remote
from dwsweep.data.source_items import Source
from dwsweep.data.sources import open_source
from dwsweep.data.token_store import DamagedStore, Store
from dwsweep.errors import InputError
from dwsweep.records.store_files import FORMAT
from dwsweep.text import printable

if TYPE_CHECKING:
    from rich.console import Group

    from dwsweep.spec import DataSpec


SAMPLE_TOKENS = 160
_BAR = 40


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
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    slug = re.sub(r"[^A-Za-z0-9]+", "-", data.source).strip("-")
    return (
        cache_root(data) / f"{slug[:12]}-{slug[-28:]}-{key}" if len(slug) > 40 else cache_root(data) / f"{slug}-{key}"
    )


def find(data: DataSpec) -> Store | None:
    """The finished store of these settings, or None; looks at names, sizes and times only.

    Raises:
        InputError: the cache is not a local folder.
    """
    cache_root(data)
    try:
        path = store_path(data, open_source(data.source, data.text_field))
        return Store.open(path, verify=False) if (path / "manifest.json").exists() else None
    except InputError:
        return None


def prepare(data: DataSpec, *, progress: bool = True) -> Store:
    """The store of these settings, made when it is not there yet or damaged; ``progress``: reported on stderr.

    InputError, with one clear line, where the source cannot give it or the cache cannot hold it.
    """
    source = open_source(data.source, data.text_field, download=True)
    path = store_path(data, source)
    found = _look(path)
    if isinstance(found, Store):
        return found
    damage = found

    def waiting() -> None:
        _say(progress, f"waiting for another process that is preparing {path}")

    try:
        with locks.exclusive(_beside(path, ".lock"), waiting):
            found = _look(path)  # the other process may have made it
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


def _look(path: Path) -> Store | DamagedStore | None:
    """The store, what is wrong with it, or None where there is none; writes nothing and needs no lock."""
    if not (path / "manifest.json").exists():
        return None
    try:
        return Store.open(path)
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
        summary = corpus.make_store(data, source, partial, progress)
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
                with locks.if_free(lock) as free:
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
        """As it is: no markup, and nothing that steers the terminal."""
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
    facts.add_row("vocabulary", f"{m.vocab_size:,} ({'bytes' if m.vocab_size == 256 else 'BPE, byte fallback'})")
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
    pieces = " ".join(f"{int(i)}:{store.pieces[int(i)].decode('utf-8', 'replace')!r}" for i in ids[:24])
    sample = Text.assemble(
        ("first document\n", "italic"), shown(store.decode(ids)), ("\n\nits first tokens\n", "italic"), pieces
    )
    return Group(counts, "", facts, "", histogram, "", Padding(sample, 0))
