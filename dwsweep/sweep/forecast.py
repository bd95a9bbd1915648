"""Forecast of a sweep's end: the seconds that its packs still take, for `run`, which hears of each step, and for
`status`, which reads the directory."""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from dwsweep.records.run import DONE, INTERRUPTED, PENDING, RUNNING
from dwsweep.sweep.snapshot import RunView, Snapshot


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
    """Pace of a queue of packs that train side by side, and their remaining seconds; ``clock`` gives seconds.

    A pack that trains goes on at its own rate; a pack that waits has the rate of the measured pack nearest in weight,
    since a small model's FLOPs take longer than a large one's.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._works: dict[str, _Work] = {}  # packs in the order of the queue
        self._slots = 1  # largest number of packs seen side by side

    def expect(self, name: str, weight: float) -> None:
        self._works.setdefault(name, _Work(max(weight, 1e-9)))

    def put(self, works: list[_Work]) -> None:
        """Take packs as they are."""
        self._works.update((str(k), work) for k, work in enumerate(works))
        self._slots = max(1, len(self._active()))

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
        """Seconds until the last pack ends, if waiting packs start as places become free; None if no rate is
        known."""
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


def time_left(now: Snapshot) -> float | None:
    """Seconds until the last pack ends; None when nobody works on the sweep, nothing is left, or no rate is known.

    Before any pack has measured a rate, the times of `plan` count where `bench` measured them on this host.
    """
    packs: dict[str, list[RunView]] = defaultdict(list)
    for run in now.runs:
        if run.state.state in (PENDING, INTERRUPTED, RUNNING):
            packs[run.pack_id].append(run)
    if not now.is_live or not packs:
        return None
    planned = not now.measured and all(
        run.plan.time_basis == "measured" and run.plan.device_seconds for runs in packs.values() for run in runs
    )
    works = [
        _Work(found.flops, 1.0, rate=found.seconds / found.flops, start_seconds=found.compile_seconds)
        for found in now.measured.values()
    ]
    for pack_id, runs in packs.items():
        work = _Work(sum(run.plan.flops for run in runs))
        work.done = sum(run.plan.flops * step_of(run, now) / run.plan.steps for run in runs) / work.weight
        progress, stage = now.progress.get(pack_id), now.stages.get(pack_id)
        if progress is not None:
            work.since = work.first = work.last = now.time
            work.start_seconds = progress.started.compile_seconds if progress.started else None
            if progress.tokens_per_second:
                work.rate = 1.0 / (progress.tokens_per_second * flops_per_token(pack_id, now))
        elif stage is not None:
            work.since = now.time - stage.seconds
        if planned and work.rate is None:
            work.rate = sum(run.plan.device_seconds or 0.0 for run in runs) / work.weight
        works.append(work)
    pace = Pace(lambda: now.time)
    pace.put(works)
    return pace.left() or None


def flops_per_token(pack_id: str, now: Snapshot) -> float:
    """FLOPs of training one of the pack's runs on a token."""
    run = next(run for run in now.runs if run.pack_id == pack_id)
    return run.plan.flops / run.plan.tokens


def step_of(run: RunView, now: Snapshot) -> int:
    """Finished steps of a run."""
    if run.state.state == DONE:
        return run.plan.steps
    if run.state.state == RUNNING:
        progress = now.progress.get(run.pack_id)
        return min(run.plan.steps, (progress.step if progress else 0) or run.state.step or 0)
    return run.state.step or 0
