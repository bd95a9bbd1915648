"""Preparation of a store: source → tokenizer → token store, idempotent, safe when interrupted or run twice.

``make_store`` fills ``<store>.partial`` under a lock, and a rename finishes the store: an interrupted ``prepare``
leaves no store that looks finished, and the next one starts over; a second one at the same time waits and finds the
store. A finished store opens without the lock, so that a read-only cache suffices. A damaged store is set aside and
made anew.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from dwsweep import locks, paths
from dwsweep.data.corpus import make_store, say
from dwsweep.data.digests import FEWEST_HELDOUT
from dwsweep.data.files import is_remote
from dwsweep.data.records import DocumentSource
from dwsweep.data.sources import open_source
from dwsweep.data.token_store import DamagedStore, Store
from dwsweep.data.tokenizer import given_files
from dwsweep.errors import InputError
from dwsweep.records.store import FORMAT

if TYPE_CHECKING:
    from dwsweep.spec import DataSpec


_OLDEST = {"vocab_size", "validation_fraction", "text_field", "tokenizer_sample_bytes", "seed"}
_ELSEWHERE = {"source", "tokenizer", "cache_dir", "workers"}  # hashed as the state of their files, or without effect


def cache_root(data: DataSpec) -> Path:
    """Root of the cache: ``data.cache_dir``, else the user's cache. InputError if it is not a local folder."""
    if data.cache_dir and is_remote(data.cache_dir):
        raise InputError(
            f"data.cache_dir: {data.cache_dir}; must be a local folder: training maps the store into memory"
        )
    return Path(data.cache_dir).expanduser().absolute() if data.cache_dir else paths.cache_root()


def store_path(data: DataSpec, source: DocumentSource) -> Path:
    """Folder of the store. Its name encodes the source, the settings that change the store, and the state of the
    files."""
    settings = {
        "format": FORMAT,
        "source": source.identity(),
        "kind": data.source.partition(":")[0],
        **data.counting(_OLDEST, _ELSEWHERE),
    }
    if files := given_files(data):
        settings |= {"tokenizer": [hashlib.sha256(file).hexdigest() for file in files.values()]}
    key = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
    # the identity holds the revision: a branch and its commit share a store
    slug = re.sub(r"[^A-Za-z0-9]+", "-", data.source.partition("?revision=")[0]).strip("-")
    name = f"{slug[:12]}-{slug[-28:]}" if len(slug) > 40 else slug
    return cache_root(data) / f"{name}-{key}"


def find(data: DataSpec) -> Store | None:
    """Finished store of these settings, or None; compares names, sizes and times only.

    Raises:
        InputError: the cache is not a local folder, or ``data.tokenizer`` does not fit these settings.
    """
    cache_root(data)
    given_files(data)
    try:
        path = store_path(data, open_source(data.source, data.text_field))
        if not (path / "manifest.json").exists():
            return None
        return _in_its_place(Store.open(path, verify=False))
    except InputError:
        return None


def _in_its_place(store: Store) -> Store:
    """Store whose folder's name ends in the hash of the settings by which it was made.

    Raises:
        DamagedStore: the store was copied from another folder.
    """
    if store.manifest.key != store.path.name.rpartition("-")[2]:
        raise DamagedStore(store.path, f"it is the store …-{store.manifest.key} under another name")
    return store


def prepare(data: DataSpec, *, progress: bool = True) -> Store:
    """Store of these settings, made if it is missing or damaged. ``progress``: report on stderr, with a caution if too
    few documents are held out.

    Raises InputError of one line if the source cannot be read or the cache cannot be written.
    """
    store = _prepared(data, progress)
    if progress and (caution := heldout_caution(store)):
        say(progress, f"caution: {caution}")
    return store


def heldout_caution(store: Store) -> str | None:
    """Caution for a store that holds out too few documents; None if it holds out enough."""
    held_out = store.manifest.splits["validation"].n_documents
    if held_out >= FEWEST_HELDOUT:
        return None
    n = store.manifest.n_documents
    enough = f"a fraction near {1.5 * FEWEST_HELDOUT / n:.2g} holds out enough" if n > 90 else "use more documents"
    return (
        f"data.validation_fraction {store.manifest.settings.get('validation_fraction', 'not recorded')}: {held_out:,} "
        f"of {n:,} documents held out; the standard errors of losses, and of differences between shapes, need "
        f"{FEWEST_HELDOUT} or more; {enough}"
    )


def _prepared(data: DataSpec, progress: bool) -> Store:
    source = open_source(data.source, data.text_field, download=True)
    path = store_path(data, source)
    found = _look(path)
    if isinstance(found, Store):
        return found
    damage = found

    def waiting() -> None:
        say(progress, f"waiting for another process that is preparing {path}")

    try:
        with locks.exclusive(path.with_name(f"{path.name}.lock"), waiting):
            found = _look(path)  # another process may have made the store
            if isinstance(found, Store):
                return found
            if found:
                say(progress, f"{found.what}; set aside as {paths.set_aside(path)}, preparing it again")
            return _make_whole(data, source, path, progress)
    except OSError as error:
        raise InputError(*(damage.lines if damage else ()), _named(error, data, path)) from None


def _look(path: Path) -> Store | DamagedStore | None:
    """Store at ``path``, its damage, or None if it is missing; writes nothing and needs no lock."""
    if not (path / "manifest.json").exists():
        return None
    try:
        return _in_its_place(Store.open(path))
    except DamagedStore as damage:
        return damage


def _make_whole(data: DataSpec, source: DocumentSource, path: Path, progress: bool) -> Store:
    """Make the store beside its place, then move it there."""
    partial = path.with_name(f"{path.name}.partial")
    paths.remove(partial)
    try:
        partial.mkdir()
        summary = make_store(data, source, partial, progress)
        paths.remove(path)  # remains of a store without a manifest
        partial.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            paths.remove(partial)
        raise
    say(progress, summary)
    store = Store.open(path, verify=False)
    store.remember_as_verified()
    return store


def _named(error: OSError, data: DataSpec, path: Path) -> str:
    """Line for an error of the system while the store at ``path`` was written or the source was read."""
    root, reason, place = path.parent, error.strerror or str(error), str(error.filename or "")
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if place and not (full or place.startswith(str(path)) or root.is_relative_to(place)):
        return f"data.source: {place}; cannot be read ({reason})"
    free = "free space there, or " * full
    return (
        f"data.cache_dir: {root}; cannot be written ({reason}); "
        f"{free}choose another folder (data.cache_dir or DWSWEEP_CACHE)"
    )
