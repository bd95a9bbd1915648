"""A sweep's directory at one moment, read while others write it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dwsweep.errors import InputError
from dwsweep.records.pack_files import PackProgress
from dwsweep.records.reader import Damaged
from dwsweep.records.run_files import DONE, INTERRUPTED, PENDING, RUNNING, RunState
from dwsweep.sweep import ownership
from dwsweep.sweep.sweep_directory import SweepStore


@dataclass(frozen=True)
class RunView:
    """One planned run as the directory has it."""

    run_id: str
    pack_id: str
    depth: int
    width: int
    n_params: int
    flops: float  # of its training
    steps: int
    tokens: int
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
        planned = [_planned(row) for row in store.planned() if row["action"] != "DROP"]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"DIR: {directory}; its plan.csv is not one that `dwsweep run` wrote ({type(error).__name__}: {error}): "
            "running the spec again writes it anew"
        ) from None
    if not planned:
        raise InputError(f"DIR: {directory}; has no plan.csv: allowed is a directory made by `dwsweep run`")
    owners = tuple((owner, owner.is_alive) for owner in ownership.owners(directory))
    live = any(alive for _, alive in owners)
    runs = []
    for run in planned:
        state = store.state(run.run_id)
        if state.state == RUNNING and not live:
            # its process was killed: nobody was left to write it down
            state = RunState(INTERRUPTED, state.step, state.loss, state.pack_id, "its process is gone")
        runs.append(replace(run, pack_id=state.pack_id or run.pack_id, state=state))
    running = {run.pack_id for run in runs if run.state.state == RUNNING}
    progress = {pack_id: store.progress(pack_id) for pack_id in running}
    orphans = len(set(store.run_ids()) - {run.run_id for run in planned})
    return Snapshot(store.directory.name, tuple(runs), orphans, progress, owners, time.time(), tuple(damaged))


def _planned(row: Mapping[str, str]) -> RunView:
    """A run as its row of plan.csv has it.

    Raises:
        KeyError, TypeError, ValueError, OverflowError: the row is none of a plan.
    """
    view = RunView(
        run_id=row["run_id"],
        pack_id=row["pack_id"],
        depth=int(row["depth"]),
        width=int(row["width"]),
        n_params=int(row["n_params"]),
        flops=float(row["flops"]),
        steps=int(row["steps"]),
        tokens=int(row["tokens"]),
        state=RunState(),
    )
    counts = (view.depth, view.width, view.n_params, view.flops, view.steps, view.tokens)
    if not all(0 < count < 1e300 for count in counts):
        raise ValueError(f"{view.run_id} has counts that are not positive")
    return view


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
            rest += run.flops
        elif run.state.state == RUNNING:
            rest += run.flops * (1 - min(1.0, step_of(run, now) / max(1, run.steps)))
    return rest / rate if rate > 0 and rest > 0 else None


def flops_per_token(pack_id: str, now: Snapshot) -> float:
    """Of the training of one of the pack's runs."""
    run = next(run for run in now.runs if run.pack_id == pack_id)
    return run.flops / run.tokens


def step_of(run: RunView, now: Snapshot) -> int:
    """Steps that a run has behind it."""
    if run.state.state == DONE:
        return run.steps
    if run.state.state == RUNNING:
        progress = now.progress.get(run.pack_id)
        return min(run.steps, (progress.step if progress else 0) or run.state.step or 0)
    return run.state.step or 0
