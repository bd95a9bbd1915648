"""Progress of ``dwsweep run``: lines that stay, and on a terminal the state of each pack below them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from dwsweep.records.pack import Pack, PackProgress
from dwsweep.sweep.forecast import Pace
from dwsweep.text import format_clock

LINE_SECONDS = 10.0  # seconds between two plain lines of a pack


@dataclass
class _Active:
    label: str
    since: float
    printed: float  # time of its last line
    facts: str = "starting"
    last: PackProgress | None = None


class ProgressView:
    """Progress view: the whole sweep and each active pack. ``Pace`` gives the time left; ``clock`` gives seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console
        self.n_packs = 0
        self._name = "sweep"
        self._clock = clock
        self._pace = Pace(clock)
        self._active: dict[str, _Active] = {}
        self._labels: dict[str, str] = {}
        self._finished = 0
        self._status = Status("", console=console) if console.is_terminal else None

    def expect(self, packs: Sequence[Pack], name: str, labels: Mapping[str, str] | None = None) -> None:
        """Take packs to train; the work of a pack counts by ``pack_weight``."""
        self._name = name
        self._labels.update(labels or {})
        self.n_packs += len(packs)
        self._weigh(packs)

    def __enter__(self) -> Self:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def started(self, pack: Pack) -> None:
        label, now = self._labels.get(pack.pack_id, pack.shape.label), self._clock()
        self._active[pack.pack_id] = _Active(label, now, now)
        self._pace.started(pack.pack_id)
        self._show()

    def compiling(self, pack_id: str) -> None:
        if active := self._active.get(pack_id):
            active.facts = "compiling"
            self._show()

    def evaluating(self, pack_id: str, share: float) -> None:
        if active := self._active.get(pack_id):
            self._tell(active, f"evaluating, {share:.0%}")

    def stepped(self, pack_id: str, progress: PackProgress) -> None:
        if active := self._active.get(pack_id):
            active.last = progress
            self._pace.stepped(pack_id, progress.step / max(1, progress.steps))
            self._tell(active, self._facts(pack_id, progress))

    def _tell(self, active: _Active, facts: str) -> None:
        """Show facts of a pack; without a terminal in a line, at intervals."""
        active.facts = facts
        self._show()
        if self._status is None and self._clock() - active.printed >= LINE_SECONDS:
            active.printed = self._clock()
            self.say(f"{active.label}: {facts}, {self._whole()}")

    def ended(self, pack_id: str, text: str, finished: bool) -> None:
        """Print the outcome of a pack."""
        active = self._active.pop(pack_id, None)
        self._pace.ended(pack_id, finished)
        self._finished += finished
        last = active.last if active else None
        rate = f", {last.tokens_per_second:,.0f} tokens/s" if last and last.tokens_per_second else ""
        took = f" in {format_clock(self._clock() - active.since)}{rate}" if active else ""
        self.say(f"{active.label if active else pack_id}: {text}{took} · {self._whole()}")
        self._show()

    def replaced(self, pack_id: str, packs: Sequence[Pack]) -> None:
        """Replace a pack whose work is lost by other packs."""
        self.n_packs += len(packs) - 1
        self._pace.forget(pack_id)
        self._weigh(packs)

    def _weigh(self, packs: Sequence[Pack]) -> None:
        from dwsweep.sweep.work_queue import pack_weight  # `status` loads without the modules of a plan

        for pack in packs:
            self._pace.expect(pack.pack_id, pack_weight(pack))

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

    def _whole(self) -> str:
        """Share of the sweep that is done, and the time that remains."""
        left = self._pace.left() if self._finished < self.n_packs else None
        rest = "" if left is None else f", {format_clock(left)} left"
        return f"{self._finished}/{self.n_packs} packs, {self._pace.fraction():.0%}{rest}"

    def _show(self) -> None:
        if self._status:
            packs = (f"\n  {active.label}: {active.facts}" for active in self._active.values())
            self._status.update(Text(f"{self._name}: {self._whole()}{''.join(packs)}"))
