"""Snapshot of a sweep directory at one moment, read while others write it.

What a person sees of a sweep that trains: the interface, which ``report.progress`` fills, and the first and last lines.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from dwsweep.errors import InputError
from dwsweep.records.pack import Pack, PackProgress
from dwsweep.records.run import DIVERGED, DONE, FAILED, FINAL, INTERRUPTED, OOM, PENDING, RUNNING, STOPPED, RunState
from dwsweep.records.sweep import DROP, PlanRow
from dwsweep.sweep.claim import Owner, owners
from dwsweep.sweep.directory import SweepStore

if TYPE_CHECKING:
    from dwsweep.sweep.work_queue import Schedule, Shard


@dataclass(frozen=True)
class RunView:
    """Planned run and its state in the directory."""

    plan: PlanRow
    pack_id: str  # pack that trains or trained it, else the planned one
    state: RunState


@dataclass(frozen=True)
class Snapshot:
    """Sweep directory at one moment."""

    name: str
    runs: tuple[RunView, ...]
    orphans: int
    progress: dict[str, PackProgress]  # progress of the running packs, by pack
    owners: tuple[Owner, ...]  # processes that own it, or a shard of it
    damaged: tuple[str, ...] = ()  # damaged files, one line each

    @property
    def is_live(self) -> bool:
        return bool(self.owners)

    def count(self, *states: str) -> int:
        return sum(run.state.state in states for run in self.runs)

    def flops_per_token(self, pack_id: str) -> float:
        """FLOPs of training one of the pack's runs on a token."""
        run = next(run for run in self.runs if run.pack_id == pack_id)
        return run.plan.flops / run.plan.tokens

    def step_of(self, run: RunView) -> int:
        """Finished steps of a run."""
        if run.state.state == DONE:
            return run.plan.steps
        progress = self.progress.get(run.pack_id) if run.state.state == RUNNING else None
        return min(run.plan.steps, (progress.step if progress else 0) or run.state.step or 0)


def snapshot(directory: str | os.PathLike[str]) -> Snapshot:
    """Read a sweep directory.

    Raises:
        InputError: it is none.
    """
    damaged: dict[str, None] = {}  # damaged files in the order of reading, each once
    store = SweepStore(directory, lambda error: damaged.setdefault(error.lines[0]))
    try:
        planned = [row for row in store.planned() if row.action != DROP]
    except InputError as error:
        raise InputError(
            f"DIR: {directory}; its plan.csv is not one that `dwsweep run` wrote ({error}): running the spec again "
            "writes it anew"
        ) from None
    if not planned:
        raise InputError(f"DIR: {directory}; has no plan.csv; must be a directory made by `dwsweep run`")
    live = owners(directory)
    if not live:  # an owner writes the plan and its hash one after the other
        store.check_plan()
    since = min((owner.since for owner in live), default=0.0)
    runs = []
    for row in planned:
        state = store.state(row.run_id)
        pack_id = state.pack_id or row.pack_id
        if state.state == RUNNING and not live:
            # a killed process cannot record its own end
            state = RunState(INTERRUPTED, state.step, state.loss, state.pack_id, "its process is gone")
        elif state.state in (PENDING, INTERRUPTED) and live:  # a run has no state of its own before its first step
            pack = store.pack_state(pack_id)
            if pack.state == RUNNING and (pack.begun or 0.0) >= since:
                state = replace(state, state=RUNNING)
        runs.append(RunView(row, pack_id, state))
    running = {run.pack_id for run in runs if run.state.state == RUNNING}
    progress = {pack_id: store.progress(pack_id) for pack_id in running}
    orphans = len(set(store.run_ids()) - {row.run_id for row in planned})
    return Snapshot(store.directory.name, tuple(runs), orphans, progress, tuple(live), tuple(damaged))


class SweepView(Protocol):
    """View of a running sweep; entered while packs train. ``say`` may come before, after, and from any
    thread: it prints a line that stays."""

    def __enter__(self) -> object: ...
    def __exit__(self, *_: object) -> None: ...
    def say(self, text: str) -> None: ...

    def expect(self, packs: Sequence[Pack], name: str, labels: Mapping[str, str]) -> None:
        """Expect these packs of the sweep ``name`` to be trained; ``labels``: their names, by pack_id."""

    def started(self, pack: Pack) -> None: ...
    def compiling(self, pack_id: str) -> None: ...
    def stepped(self, pack_id: str, progress: PackProgress) -> None: ...

    def ended(self, pack_id: str, text: str, finished: bool) -> None:
        """Show the end of an attempt; ``text``: the end in words; ``finished``: True if the pack is not tried again."""

    def replaced(self, pack_id: str, packs: Sequence[Pack]) -> None:
        """Expect other packs in place of one whose work is lost."""


def announcement(name: str, shard: Shard, todo: Schedule, directory: Any) -> list[str]:
    """Lines on the work of a call."""
    again = {run_id for unit in todo.units for run_id in unit.runs}  # runs that --retry trains again are not finished
    left = set(todo.run_ids) - again
    finished = sum(state.state in FINAL for run_id, state in todo.states.items() if run_id in left)
    runs = sum(len(unit.runs) for unit in todo.units)
    part = "" if shard == (0, 1) else f" (shard {shard[0]}/{shard[1]})"
    skipped = f"; {finished} finished before" if finished else ""
    lines = [f"{name}{part}: {runs} runs in {len(todo.units)} packs to train{skipped} → {directory}"]
    if count := len(todo.orphans):
        say = f"{count} runs in the directory are" if count > 1 else "1 run in the directory is"
        lines.append(f"{say} not in this plan: kept in runs/ and left out of results.csv; --out DIR keeps sweeps apart")
    return lines


def summary(states: Mapping[str, RunState], results_path: Any, trained: bool, stop_cause: str | None) -> list[str]:
    """Lines on the outcome of a call."""
    counts = Counter(state.state for state in states.values())
    by_cause: dict[str, list[str]] = defaultdict(list)
    for name, state in states.items():
        if state.state in (FAILED, OOM, DIVERGED):
            by_cause[f"{state.state}: {state.cause}"].append(name)
    text = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    if not trained:
        text = f"nothing to train: {text or 'no runs'}"
    lines = [f"{text} → {results_path}"]
    for reason, names in by_cause.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines.append(f"  {names[0]}{more}: {reason}")
    if any(state.state not in FINAL | STOPPED for state in states.values()):
        lines.append(f"interrupted{f': {stop_cause}' if stop_cause else ''}; the same command resumes from here")
    elif any(state.state in STOPPED for state in states.values()):
        lines.append("some runs failed; --retry failed tries them again")
    return lines
