"""A sweep's directory as a whole: how it stands at one moment, read while others write it, and results.csv, derived
from the directories and rebuilt whenever something finished."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from dwsweep.errors import InputError
from dwsweep.locks import exclusive
from dwsweep.records import sweep_tables
from dwsweep.records.pack_files import PackProgress
from dwsweep.records.reader import Damaged
from dwsweep.records.run_files import DONE, INTERRUPTED, PENDING, RUNNING, RunState
from dwsweep.records.sweep_tables import DROP, PlanRow, ResultsRow
from dwsweep.sweep import ownership
from dwsweep.sweep.kept_promises import KeptPromise, kept_promises
from dwsweep.sweep.sweep_directory import SweepStore


@dataclass(frozen=True)
class RunView:
    """One planned run as the directory has it."""

    plan: PlanRow
    pack_id: str  # of the pack that trains or trained it, else of the planned one
    state: RunState


@dataclass(frozen=True)
class Snapshot:
    """A sweep directory at one moment."""

    name: str
    runs: tuple[RunView, ...]
    orphans: int
    progress: dict[str, PackProgress]  # of the packs that are running, by pack
    owners: tuple[tuple[ownership.Owner, bool], ...]  # whoever holds a lock, and whether that process lives
    time: float
    damaged: tuple[str, ...] = ()  # files that cannot be what they are meant to be, a line each
    promises: tuple[KeptPromise, ...] = ()  # of the runs that are done, where ``train.seconds`` promised them a time

    @property
    def is_live(self) -> bool:
        return any(alive for _, alive in self.owners)

    def count(self, *states: str) -> int:
        return sum(run.state.state in states for run in self.runs)


def snapshot(directory: str | os.PathLike[str]) -> Snapshot:
    """Read a sweep directory.

    Raises:
        InputError: it is none.
    """
    damaged: dict[str, None] = {}  # each once, in the order of reading

    def note(error: Damaged) -> None:
        damaged[error.lines[0]] = None

    store = SweepStore(directory, note)
    try:
        planned = [row for row in store.planned() if row.action != DROP]
    except InputError as error:
        raise InputError(
            f"DIR: {directory}; its plan.csv is not one that `dwsweep run` wrote ({error}): running the spec again "
            "writes it anew"
        ) from None
    if not planned:
        raise InputError(f"DIR: {directory}; has no plan.csv; must be a directory made by `dwsweep run`")
    owners = tuple((owner, owner.is_alive) for owner in ownership.owners(directory))
    live = any(alive for _, alive in owners)
    runs = []
    for row in planned:
        state = store.state(row.run_id)
        if state.state == RUNNING and not live:
            # its process was killed: nobody was left to write it down
            state = RunState(INTERRUPTED, state.step, state.loss, state.pack_id, "its process is gone")
        runs.append(RunView(row, state.pack_id or row.pack_id, state))
    running = {run.pack_id for run in runs if run.state.state == RUNNING}
    progress = {pack_id: store.progress(pack_id) for pack_id in running}
    orphans = len(set(store.run_ids()) - {row.run_id for row in planned})
    promises = kept_promises(store, (run.plan.run_id for run in runs if run.state.state == DONE))
    name = store.directory.name
    return Snapshot(name, tuple(runs), orphans, progress, owners, time.time(), tuple(damaged), promises)


def time_left(now: Snapshot) -> float | None:
    """Seconds at the present rate of all running packs; None when nothing runs or no rate is known.

    The rate is in FLOPs: a small model's tokens are cheaper than a large one's.
    """
    if not now.is_live:
        return None
    rate, rest = 0.0, 0.0
    for pack_id, progress in now.progress.items():
        rate += (progress.tokens_per_second or 0.0) * flops_per_token(pack_id, now)
    for run in now.runs:
        if run.state.state in (PENDING, INTERRUPTED):
            rest += run.plan.flops
        elif run.state.state == RUNNING:
            rest += run.plan.flops * (1 - step_of(run, now) / run.plan.steps)
    return rest / rate if rate > 0 and rest > 0 else None


def flops_per_token(pack_id: str, now: Snapshot) -> float:
    """Of the training of one of the pack's runs."""
    run = next(run for run in now.runs if run.pack_id == pack_id)
    return run.plan.flops / run.plan.tokens


def step_of(run: RunView, now: Snapshot) -> int:
    """Steps that a run has behind it."""
    if run.state.state == DONE:
        return run.plan.steps
    if run.state.state == RUNNING:
        progress = now.progress.get(run.pack_id)
        return min(run.plan.steps, (progress.step if progress else 0) or run.state.step or 0)
    return run.state.step or 0


def results_rows(store: SweepStore) -> tuple[list[ResultsRow], list[ResultsRow]]:
    """(rows of the planned runs in the plan's order, rows of the orphans).

    An orphan has a directory and is not in the plan any more: the spec was edited. It is kept and shown apart, so that
    a fit does not mix two settings. A run whose config.json is missing or damaged has no row: nothing is known of it.
    """
    planned = [row.run_id for row in store.planned() if row.action != DROP]
    orphans = sorted(set(store.run_ids()) - set(planned)) if planned else []
    known = planned or store.run_ids()
    return _rows(store, known), _rows(store, orphans)


def _rows(store: SweepStore, run_ids: list[str]) -> list[ResultsRow]:
    configs = [config for config in map(store.config, run_ids) if config is not None]
    return [ResultsRow.of(config, store.state(config.run_id), store.result(config.run_id)) for config in configs]


def rebuild_results(store: SweepStore) -> Any:
    """Write results.csv, and orphans.csv where there are any; returns the path of results.csv."""
    # reading and replacing go together, lest a slower shard put back an older table
    with exclusive(store.directory / "locks" / "results.guard"):
        planned, orphans = results_rows(store)
        sweep_tables.write_results(store.results_path, planned)
        apart = store.directory / "orphans.csv"
        if orphans:
            sweep_tables.write_results(apart, orphans)
        elif apart.exists():
            apart.unlink()
    return store.results_path
