"""results.csv: one row per run, derived from the directories and rebuilt whenever something finished."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dwsweep.locks import exclusive
from dwsweep.records import results_table
from dwsweep.records.results_table import ResultsRow

if TYPE_CHECKING:
    from dwsweep.sweep.sweep_directory import SweepStore


def rows(store: SweepStore) -> tuple[list[ResultsRow], list[ResultsRow]]:
    """(rows of the planned runs in the plan's order, rows of the orphans).

    An orphan has a directory and is not in the plan any more: the spec was edited. It is kept and shown apart, so that
    a fit does not mix two settings. A run whose config.json is missing or damaged has no row: nothing is known of it.
    """
    planned = [row["run_id"] for row in store.planned() if row["action"] != "DROP"]
    orphans = sorted(set(store.run_ids()) - set(planned)) if planned else []
    known = planned or store.run_ids()
    return _rows(store, known), _rows(store, orphans)


def _rows(store: SweepStore, run_ids: list[str]) -> list[ResultsRow]:
    configs = [config for config in map(store.config, run_ids) if config is not None]
    return [ResultsRow.of(config, store.state(config.run_id), store.result(config.run_id)) for config in configs]


def rebuild(store: SweepStore) -> Any:
    """Write results.csv, and orphans.csv where there are any; returns the path of results.csv."""
    # reading and replacing go together, lest a slower shard put back an older table
    with exclusive(store.directory / "locks" / "results.guard"):
        planned, orphans = rows(store)
        results_table.write(store.results_path, planned)
        apart = store.directory / "orphans.csv"
        if orphans:
            results_table.write(apart, orphans)
        elif apart.exists():
            apart.unlink()
    return store.results_path
