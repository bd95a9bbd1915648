"""Progress of ``dwsweep run``: bars, lines, and the time that remains."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from dwsweep.records.pack import Pack, PackProgress
from dwsweep.sweep.forecast import Pace
from dwsweep.text import format_clock

LINE_SECONDS = 10.0  # seconds between two plain lines of a pack


@dataclass
class _Active:
    pack: Pack
    since: float
    shown: float  # time of its last printed line
    task: TaskID
    last: PackProgress | None = None


class ProgressView:
    """Progress view: the overall bar and a line for each active pack.

    ``packs``: packs to train; the work of a pack counts by ``pack_weight``. ``Pace`` gives the time left. ``clock``
    gives seconds.
    """

    def __init__(
        self,
        console: Console,
        packs: Sequence[Pack] = (),
        name: str = "sweep",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console
        self.n_packs = 0
        self._clock = clock
        self._pace = Pace(clock)
        self._active: dict[str, _Active] = {}
        self._labels: dict[str, str] = {}
        self._finished = 0
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[facts]}"),
            console=console,
            refresh_per_second=4,
            disable=not console.is_terminal,
        )
        self._all = self._bars.add_task(name, total=1.0, facts="")
        self.expect(packs, name)

    def expect(self, packs: Sequence[Pack], name: str, labels: Mapping[str, str] | None = None) -> None:
        self._labels.update(labels or {})
        self.n_packs += len(packs)
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
        self._active[pack.pack_id] = _Active(pack, self._clock(), self._clock(), task)
        self._pace.started(pack.pack_id)

    def compiling(self, pack_id: str) -> None:
        if active := self._active.get(pack_id):
            self._bars.update(active.task, facts="compiling")

    def evaluating(self, pack_id: str, share: float) -> None:
        if active := self._active.get(pack_id):
            self._show(active, f"evaluating, {share:.0%}")

    def stepped(self, pack_id: str, progress: PackProgress) -> None:
        if active := self._active.get(pack_id):
            active.last, fraction = progress, progress.step / max(1, progress.steps)
            self._pace.stepped(pack_id, fraction)
            self._show(active, self._facts(pack_id, progress), fraction)

    def _show(self, active: _Active, facts: str, completed: float | None = None) -> None:
        """Show facts of a pack on its bar, or at intervals in a line."""
        self._bars.update(active.task, facts=facts, completed=completed)
        self._show_all()
        if self._bars.disable and self._clock() - active.shown >= LINE_SECONDS:
            active.shown = self._clock()
            self.say(f"{self._label(active.pack)}: {facts}{self._all_facts(', ')}")

    def ended(self, pack_id: str, text: str, finished: bool) -> None:
        """Close a pack's bar and print its outcome."""
        active = self._active.pop(pack_id, None)
        self._pace.ended(pack_id, finished)
        if finished:
            self._finished += 1
        if active:
            self._bars.remove_task(active.task)
        self._show_all()
        last = active.last if active else None
        rate = f", {last.tokens_per_second:,.0f} tokens/s" if last and last.tokens_per_second else ""
        took = f" in {format_clock(self._clock() - active.since)}{rate}" if active else ""
        label = self._label(active.pack) if active else pack_id
        self.say(f"{label}: {text}{took}{self._all_facts(' · ')}")

    def replaced(self, pack_id: str, packs: Sequence[Pack]) -> None:
        """Replace a pack whose work is lost by other packs."""
        self.n_packs += len(packs) - 1
        self._pace.forget(pack_id)
        self._weigh(packs)

    def _weigh(self, packs: Sequence[Pack]) -> None:
        from dwsweep.sweep.work_queue import pack_weight  # `status` loads without the modules of a plan

        for pack in packs:
            self._pace.expect(pack.pack_id, pack_weight(pack))

    def time_left(self) -> float | None:
        """Expected seconds to the end; None before the rate is known."""
        return self._pace.left()

    def fraction(self) -> float:
        """Fraction of the work that is done."""
        return self._pace.fraction()

    def _facts(self, pack_id: str, progress: PackProgress) -> str:
        parts = [f"step {progress.step:,}/{progress.steps:,}"]
        known = [loss for loss in progress.losses if loss is not None]
        if known:
            parts.append(f"loss {sum(known) / len(known):.4f}")
        if progress.tokens_per_second:
            parts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
        if (left := self._pace.steps_left(pack_id)) is not None:
            parts.append(f"{format_clock(left)} left")
        return " · ".join(parts)

    def _all_facts(self, prefix: str) -> str:
        left = self.time_left()
        rest = f", {format_clock(left)} left" if left is not None and self._finished < self.n_packs else ""
        return f"{prefix}{self._finished}/{self.n_packs} packs, {self.fraction():.0%}{rest}"

    def _show_all(self) -> None:
        self._bars.update(self._all, completed=self.fraction(), facts=self._all_facts(""))
