"""results.csv of a sweep, rebuilt from the directories after each finish and before it is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.locks import exclusive
from dwsweep.records import sweep as sweep_record
from dwsweep.records.record import Damaged
from dwsweep.records.sweep import DROP, results_row
from dwsweep.sweep.claim import owners
from dwsweep.sweep.directory import SweepStore


def results_rows(store: SweepStore) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rows of the planned runs in the plan's order, rows of the orphans).

    An orphan has a directory and is not in the plan any more: the spec was edited. It is kept and listed separately, so
    that a fit does not mix two settings. A run whose config.json is missing or damaged has no row, since nothing is
    known about it.
    """
    planned = [row.run_id for row in store.planned() if row.action != DROP]
    orphans = sorted(set(store.run_ids()) - set(planned)) if planned else []
    known = planned or store.run_ids()
    return _rows(store, known), _rows(store, orphans)


def _rows(store: SweepStore, run_ids: list[str]) -> list[dict[str, Any]]:
    configs = [config for config in map(store.config, run_ids) if config is not None]
    return [results_row(config, store.state(config.run_id), store.result(config.run_id)) for config in configs]


ORPHANS = "orphans.csv"


def rebuild_results(store: SweepStore) -> Any:
    """Write results.csv, orphans.csv where there are any, and their hashes into the manifest; returns the path of
    results.csv. Tables that are there stay."""
    # reading and replacing go together, lest a slower shard put back an older table
    with exclusive(store.directory / "locks" / "results.guard"):
        texts = tables(store)
        for name, text in texts.items():
            path = store.directory / name
            try:
                is_there = paths.read_bytes(path) == text.encode()
            except OSError:
                is_there = False
            if not is_there:
                paths.write_atomic(path, text)
        if ORPHANS not in texts and (apart := store.directory / ORPHANS).exists():
            apart.unlink()
        digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        store.update_manifest(lambda old: replace(old, files={**(old.files or {}), **digests}))
    return store.results_path


def tables(store: SweepStore) -> dict[str, str]:
    """The texts of results.csv and, where there are any, of orphans.csv, by their names."""
    planned, orphans = results_rows(store)
    tables = {store.results_path.name: planned, **({ORPHANS: orphans} if orphans else {})}
    return {name: sweep_record.results_text(rows) for name, rows in tables.items()}


def settle_results(directory: Any, say: Callable[[str], None]) -> None:
    """Bring a sweep directory's results.csv up to date before it is read: an outdated one is set aside and rebuilt.
    ``say``: log callback. Nothing is done to a table without runs beside it, in a bucket, or while a
    sweep trains.

    Raises:
        InputError: it is not, and cannot be written again.
    """
    damaged: dict[str, None] = {}
    store = SweepStore(directory, lambda error: damaged.setdefault(error.lines[0]))
    if paths.is_remote(store.directory) or not (store.directory / "plan.csv").exists() or not store.run_ids():
        return
    try:
        if not owners(directory):
            _settle(store, say)
            for line in damaged:
                say(f"{line}; read as if it were not there, until `dwsweep run` trains or writes it again")
    except InputError as error:  # the plan is damaged: its readers report it
        if not isinstance(error, Damaged):
            raise


def _settle(store: SweepStore, say: Callable[[str], None]) -> None:
    path = store.results_path
    try:
        data: bytes | None = paths.read_bytes(path)
    except OSError:
        data = None
    if tables(store)[path.name].encode() == data:
        return
    known = (store.manifest.files or {}).get(path.name)
    said = "is older than the runs; written again from runs/"
    try:
        if os.path.lexists(path) and (data is None or hashlib.sha256(data).hexdigest() != known):
            said = f"is not the table of the runs; set aside as {paths.set_aside(path)}, written again from runs/"
        rebuild_results(store)
    except OSError as error:
        raise InputError(
            f"{path}: is not the table of the runs in {store.directory / 'runs'}, and cannot be written again "
            f"({error.strerror or error}); copy the sweep to where it can be written"
        ) from None
    say(f"{path}: {said}")
