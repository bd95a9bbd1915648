"""Progress of ``dwsweep run``: bars, lines, and the time that remains."""

from __future__ import annotations

import bisect
import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from dwsweep.records.pack import Pack, PackProgress
from dwsweep.text import format_clock

LINE_SECONDS = 10.0  # seconds between two plain lines of a pack
NO_TASK = TaskID(-1)  # stands for a bar if there are no bars


@dataclass
class _Work:
    weight: float  # cost of all its steps, in a unit common to all packs
    done: float = 0.0  # fraction of the steps
    since: float | None = None  # start time; None if the pack waits or has ended
    first: float | None = None  # time of the first reported step of this attempt, at ``first_done``
    first_done: float = 0.0
    last: float = 0.0  # time of the latest progress
    start_seconds: float | None = None  # measured seconds from the start to the first progress
    end_seconds: float | None = None  # measured seconds from the last progress to the end
    rate: float | None = None  # seconds per weight


class Pace:
    """Pace of a queue of packs that train side by side, and their remaining seconds; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._works: dict[str, _Work] = {}  # packs in the order of the queue
        self._slots = 1  # largest number of packs seen side by side

    def expect(self, name: str, weight: float) -> None:
        self._works.setdefault(name, _Work(max(weight, 1e-9)))

    def forget(self, name: str) -> None:
        self._works.pop(name, None)

    def started(self, name: str) -> None:
        work = self._works[name]
        work.since, work.first = self._clock(), None
        self._slots = max(self._slots, len(self._active()))

    def stepped(self, name: str, fraction: float) -> None:
        work = self._works[name]
        if work.since is None:
            return
        work.done, work.last = fraction, self._clock()
        if work.first is None:
            work.first, work.first_done = work.last, fraction
            work.start_seconds = work.first - work.since
        elif fraction > work.first_done and work.last > work.first:
            work.rate = (work.last - work.first) / ((fraction - work.first_done) * work.weight)

    def ended(self, name: str, finished: bool) -> None:
        work = self._works.get(name)
        if work is None or work.since is None:
            return
        if finished:
            work.done = 1.0
            if work.first is not None:
                work.end_seconds = self._clock() - work.last
        work.since = None

    def fraction(self) -> float:
        total = sum(work.weight for work in self._works.values())
        return sum(work.weight * min(1.0, work.done) for work in self._works.values()) / max(total, 1e-9)

    def left(self) -> float | None:
        """Seconds until the last pack ends, if waiting packs start as places become free; None if no rate is known."""
        works = list(self._works.values())
        rates = sorted((work.weight, work.rate) for work in works if work.rate is not None)
        if not rates:
            return None
        start, end = _mean([work.start_seconds for work in works]), _mean([work.end_seconds for work in works])
        now = self._clock()

        def rest(work: _Work) -> float:
            rate = _nearest(rates, work.weight) if work.rate is None else work.rate
            to_end = work.weight * max(0.0, 1.0 - work.done) * rate + end
            if work.since is None:
                return start + to_end
            if work.first is None:
                return max(0.0, start - (now - work.since)) + to_end
            return max(0.0, to_end - (now - work.last))

        busy = [rest(work) for work in self._active()]
        places = [0.0] * (self._slots - len(busy)) + busy
        heapq.heapify(places)
        for work in works:
            if work.since is None and work.done < 1.0:
                heapq.heapreplace(places, places[0] + rest(work))
        return max(places)

    def steps_left(self, name: str) -> float | None:
        """Seconds for the remaining steps of a pack at its own rate; None if unknown."""
        work = self._works[name]
        return None if work.rate is None else work.weight * (1.0 - work.done) * work.rate

    def _active(self) -> list[_Work]:
        return [work for work in self._works.values() if work.since is not None]


def _nearest(rates: list[tuple[float, float]], weight: float) -> float:
    """Rate of the measured pack nearest in weight, by ratio; ``rates`` are sorted pairs (weight, rate)."""
    at = bisect.bisect(rates, (weight, 0.0))
    return min(rates[max(0, at - 1) : at + 1], key=lambda known: max(known[0], weight) / min(known[0], weight))[1]


def _mean(seconds: list[float | None]) -> float:
    known = [value for value in seconds if value is not None]
    return sum(known) / len(known) if known else 0.0


@dataclass
class _Active:
    pack: Pack
    since: float
    shown: float  # time of its last printed line
    task: TaskID = NO_TASK
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
        self._bars: Progress | None = None
        self._all = NO_TASK
        if console.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[facts]}"),
                console=console,
                refresh_per_second=4,
            )
            self._all = self._bars.add_task(name, total=1.0, facts="")
        self.expect(packs, name)

    def expect(self, packs: Sequence[Pack], name: str, labels: Mapping[str, str] | None = None) -> None:
        self._labels.update(labels or {})
        self.n_packs += len(packs)
        self._weigh(packs)
        if self._bars:
            self._bars.update(self._all, description=name)

    def __enter__(self) -> Self:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars:
            self._bars.stop()

    def _label(self, pack: Pack) -> str:
        return self._labels.get(pack.pack_id, pack.shape.label)

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def started(self, pack: Pack) -> None:
        active = _Active(pack, self._clock(), shown=self._clock())
        if self._bars:
            active.task = self._bars.add_task(f"  {self._label(pack)}", total=1.0, facts="starting")
        self._active[pack.pack_id] = active
        self._pace.started(pack.pack_id)

    def compiling(self, pack_id: str) -> None:
        if self._bars and (active := self._active.get(pack_id)):
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
        if self._bars:
            self._bars.update(active.task, facts=facts, completed=completed)
            self._show_all()
        elif self._clock() - active.shown >= LINE_SECONDS:
            active.shown = self._clock()
            self.say(f"{self._label(active.pack)}: {facts}{self._all_facts(', ')}")

    def ended(self, pack_id: str, text: str, finished: bool) -> None:
        """Close a pack's bar and print its outcome."""
        active = self._active.pop(pack_id, None)
        self._pace.ended(pack_id, finished)
        if finished:
            self._finished += 1
        if self._bars:
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
        if self._bars:
            self._bars.update(self._all, completed=self.fraction(), facts=self._all_facts(""))
