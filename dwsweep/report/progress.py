"""Progress of ``dwsweep run``: bars, lines, and the time that remains."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from dwsweep.cost.arithmetic import training_flops
from dwsweep.cost.duration import seconds_left
from dwsweep.records.pack import Pack, PackProgress
from dwsweep.text import format_duration

LINE_SECONDS = 10.0  # seconds between two plain lines of a pack


@dataclass
class _Active:
    pack: Pack
    since: float
    shown: float  # time of its last printed line
    task: TaskID
    last: PackProgress | None = None


class ProgressView:
    """Progress view: the overall bar and a line for each active pack; the work of a pack counts by ``pack_weight``."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._weights: dict[str, float] = {}
        self._done: dict[str, float] = {}  # fraction of the steps
        self._rates: list[tuple[float | None, float]] = []  # of all packs at work, as last known
        self._active: dict[str, _Active] = {}
        self._labels: dict[str, str] = {}
        self._finished: set[str] = set()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[facts]}"),
            console=console,
            refresh_per_second=4,
            disable=not console.is_terminal,
        )
        self._all = self._bars.add_task("sweep", total=1.0, facts="")

    def expect(self, packs: Sequence[Pack], name: str, labels: Mapping[str, str]) -> None:
        self._labels.update(labels)
        self._weigh(packs)
        self._bars.update(self._all, description=name)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def _label(self, pack: Pack) -> str:
        return self._labels.get(pack.pack_id, pack.shape.label)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def started(self, pack: Pack) -> None:
        task = self._bars.add_task(f"  {self._label(pack)}", total=1.0, facts="starting")
        self._active[pack.pack_id] = _Active(pack, time.monotonic(), time.monotonic(), task)

    def compiling(self, pack_id: str) -> None:
        if active := self._active.get(pack_id):
            self._bars.update(active.task, facts="compiling")

    def stepped(self, pack_id: str, progress: PackProgress) -> None:
        """Show the progress of a pack on its bar, or at intervals in a line."""
        if (active := self._active.get(pack_id)) is None:
            return
        active.last, fraction = progress, progress.step / max(1, progress.steps)
        self._done[pack_id] = fraction
        self._rates = [
            (each.last.tokens_per_second, training_flops(each.pack.shape, 1))
            for each in self._active.values()
            if each.last
        ]
        facts = _facts(progress)
        self._bars.update(active.task, facts=facts, completed=fraction)
        self._show_all()
        if self._bars.disable and time.monotonic() - active.shown >= LINE_SECONDS:
            active.shown = time.monotonic()
            self.say(f"{self._label(active.pack)}: {facts}{self._all_facts(', ')}")

    def ended(self, pack_id: str, text: str, finished: bool) -> None:
        """Close a pack's bar and print its outcome."""
        active = self._active.pop(pack_id, None)
        if finished:
            self._finished.add(pack_id)
            self._done[pack_id] = 1.0
        if active:
            self._bars.remove_task(active.task)
        self._show_all()
        last = active.last if active else None
        rate = f", {last.tokens_per_second:,.0f} tokens/s" if last and last.tokens_per_second else ""
        took = f" in {format_duration(time.monotonic() - active.since)}{rate}" if active else ""
        label = self._label(active.pack) if active else pack_id
        self.say(f"{label}: {text}{took}{self._all_facts(' · ')}")

    def replaced(self, pack_id: str, packs: Sequence[Pack]) -> None:
        """Replace a pack whose work is lost by other packs."""
        self._weights.pop(pack_id, None)
        self._weigh(packs)

    def _weigh(self, packs: Sequence[Pack]) -> None:
        from dwsweep.sweep.work_queue import pack_weight  # `status` loads without the modules of a plan

        self._weights |= {pack.pack_id: pack_weight(pack) for pack in packs}

    def time_left(self) -> float | None:
        """Seconds for the remaining work at the rate of the packs at work; None before a rate is known."""
        left = sum(weight * (1 - self._done.get(pack_id, 0.0)) for pack_id, weight in self._weights.items())
        return seconds_left(left, self._rates)

    def fraction(self) -> float:
        """Fraction of the work that is done."""
        done = sum(weight * self._done.get(pack_id, 0.0) for pack_id, weight in self._weights.items())
        return done / max(sum(self._weights.values()), 1e-9)

    def _all_facts(self, prefix: str) -> str:
        left, packs = self.time_left(), len(self._weights)
        rest = f", about {format_duration(left)} left" if left is not None and len(self._finished) < packs else ""
        return f"{prefix}{len(self._finished)}/{packs} packs, {self.fraction():.0%}{rest}"

    def _show_all(self) -> None:
        self._bars.update(self._all, completed=self.fraction(), facts=self._all_facts(""))


def _facts(progress: PackProgress) -> str:
    parts = [f"step {progress.step:,}/{progress.steps:,}"]
    known = [loss for loss in progress.losses if loss is not None]
    if known:
        parts.append(f"loss {sum(known) / len(known):.4f}")
    if progress.tokens_per_second:
        parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    return " · ".join(parts)
