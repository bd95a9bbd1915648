"""results.csv of a sweep, rebuilt from the directories after each finish and before it is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.locks import exclusive
from dwsweep.records.columns import RESULTS
from dwsweep.records.record import Damaged, table_text
from dwsweep.records.sweep import DROP, RESULTS_NAME, results_row
from dwsweep.sweep.claim import owners
from dwsweep.sweep.directory import SweepStore


def results_text(store: SweepStore) -> str:
    """Text of results.csv: the planned runs in the plan's order; in a directory without a plan all runs.

    A run that is not in the plan any more has no row: the spec was edited, and a fit must not mix two settings. So has
    one whose config.json is missing or damaged, since nothing is known about it.
    """
    run_ids = [row.run_id for row in store.planned() if row.action != DROP] or store.run_ids()
    configs = [config for config in map(store.config, run_ids) if config is not None]
    rows = [results_row(config, store.state(config.run_id), store.result(config.run_id)) for config in configs]
    return table_text(rows, RESULTS, str)


def rebuild_results(store: SweepStore) -> Any:
    """Write results.csv; returns its path. A table that is there stays."""
    # reading and replacing go together, lest a slower shard put back an older table
    with exclusive(store.directory / "locks" / "results.guard"):
        text, path = results_text(store), store.results_path
        if not paths.holds(path, text):
            paths.write_atomic(path, text)
    return path


def settle_results(directory: Any, say: Callable[[str], None]) -> None:
    """Bring the results.csv of a sweep up to date before it is read, by its folder or its own name: another table is
    set aside, with a line to ``say``. Nothing is done to a table without runs beside it, in a bucket, or while a sweep
    trains.

    Raises:
        InputError: it is not, and cannot be written again.
    """
    damaged: dict[str, None] = {}
    directory = paths.as_path(directory)
    directory = directory.parent if directory.name == RESULTS_NAME else directory
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
    if paths.holds(path, results_text(store)):
        return
    try:
        aside = f"set aside as {paths.set_aside(path)}, " if os.path.lexists(path) else ""
        rebuild_results(store)
    except OSError as error:
        raise InputError(
            f"{path}: is not the table of the runs in {store.directory / 'runs'}, and cannot be written again "
            f"({error.strerror or error}); copy the sweep to where it can be written"
        ) from None
    say(f"{path}: is not the table of the runs; {aside}written again from runs/")
