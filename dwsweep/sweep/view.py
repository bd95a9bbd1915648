"""What a person sees of a sweep that trains: the interface, and lines of text for callers without a terminal.

``report.terminal.sweep_progress`` has the view of the command line, with bars.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

from dwsweep import terminal
from dwsweep.plan import Pack
from dwsweep.records.run_files import DIVERGED, FAILED, FINAL, OOM, STOPPED, RunState
from dwsweep.sweep.events import Progress
from dwsweep.sweep.work_queue import Schedule, Shard


class SweepView(Protocol):
    """Receives what happens in a sweep; entered while packs train. ``say`` may come before, after, and from any
    thread."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def say(self, text: str) -> None:
        """A line that stays."""

    def expect(self, packs: Sequence[Pack], name: str, labels: Mapping[str, str]) -> None:
        """The packs to be trained, of the sweep ``name``, and what they are called, by pack_id."""

    def started(self, pack: Pack) -> None:
        """A worker begins an attempt at the pack."""

    def compiling(self, pack_id: str) -> None: ...

    def evaluating(self, pack_id: str, share: float) -> None: ...

    def stepped(self, pack_id: str, progress: Progress) -> None: ...

    def ended(self, pack_id: str, text: str, finished: bool) -> None:
        """An attempt ended; ``text`` says how, ``finished`` whether the pack is not tried again."""

    def replaced(self, pack_id: str, packs: Sequence[Pack]) -> None:
        """A pack was replaced by others; what it had done is lost."""


class PlainView:
    """A line for each pack that ends and for what else must be known, on standard output."""

    def __init__(self) -> None:
        self._console = terminal.console()
        self._labels: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def expect(self, packs: Sequence[Pack], name: str, labels: Mapping[str, str]) -> None:
        self._labels.update(labels)

    def started(self, pack: Pack) -> None:
        self._labels.setdefault(pack.pack_id, pack.shape.label)

    def compiling(self, pack_id: str) -> None: ...

    def evaluating(self, pack_id: str, share: float) -> None: ...

    def stepped(self, pack_id: str, progress: Progress) -> None: ...

    def ended(self, pack_id: str, text: str, finished: bool) -> None:
        self.say(f"{self._labels.get(pack_id, pack_id)}: {text}")

    def replaced(self, pack_id: str, packs: Sequence[Pack]) -> None: ...


def announcement(name: str, shard: Shard, todo: Schedule, directory: Any) -> list[str]:
    """What a call is about to train."""
    again = {run_id for unit in todo.units for run_id in unit.runs}  # what --retry trains once more is not finished
    left = set(todo.run_ids) - again
    finished = sum(state.state in FINAL for run_id, state in todo.states.items() if run_id in left)
    runs = sum(len(unit.runs) for unit in todo.units)
    part = "" if shard == (0, 1) else f" (shard {shard[0]}/{shard[1]})"
    skipped = f"; {finished} finished before" if finished else ""
    lines = [f"{name}{part}: {runs} runs in {len(todo.units)} packs to train{skipped} → {directory}"]
    if count := len(todo.orphans):
        say = f"{count} runs in the directory are" if count > 1 else "1 run in the directory is"
        lines.append(
            f"{say} not in this plan: kept, in orphans.csv and left out of results.csv; --out DIR keeps sweeps apart"
        )
    return lines


def summary(states: Mapping[str, RunState], results_path: Any, trained: bool, stop_cause: str | None) -> list[str]:
    """How the runs of a call stand at its end, by run_id."""
    counts: dict[str, int] = {}
    for state in states.values():
        counts[state.state] = counts.get(state.state, 0) + 1
    text = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    if not trained:
        text = f"nothing to train: {text or 'no runs'}"
    lines = [f"{text} → {results_path}"]
    for reason, names in _by_cause(states).items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines.append(f"  {names[0]}{more}: {reason}")
    if any(state.state not in FINAL | STOPPED for state in states.values()):
        lines.append(f"interrupted{f': {stop_cause}' if stop_cause else ''}; the same command resumes from here")
    elif any(state.state in STOPPED for state in states.values()):
        lines.append("some runs failed; --retry failed tries them again")
    return lines


def _by_cause(states: Mapping[str, RunState]) -> dict[str, list[str]]:
    """Runs that failed, ran out of memory or diverged, by state and cause."""
    found: dict[str, list[str]] = {}
    for name, state in states.items():
        if state.state in (FAILED, OOM, DIVERGED):
            found.setdefault(f"{state.state}: {state.cause}", []).append(name)
    return found
