"""How long a sweep will still take, from what this call has measured: the rate of its packs and what comes on top.

A pack's time is its start and its compilation, its steps, and its evaluation; small models spend more on the first and
the last than on the steps, and run at another rate than large ones. So a pack that has not begun is estimated with the
rate of the measured pack that is nearest to it in size, and with the average of what packs took besides their steps.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class _Work:
    weight: float  # what all its steps cost, in any unit that is the same for all packs
    done: float = 0.0  # fraction of the steps
    since: float | None = None  # when it was started; None: it waits, or is over
    first: float | None = None  # when this attempt was first heard to have made steps, at ``first_done``
    first_done: float = 0.0
    last: float = 0.0  # its latest progress
    start_seconds: float | None = None  # as measured: from its start to its first progress
    end_seconds: float | None = None  # from its last progress to its end
    rate: float | None = None  # seconds per weight


class Pace:
    """Remaining seconds of a queue of packs that are worked at side by side; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._works: dict[str, _Work] = {}  # in the order of the queue
        self._slots = 1  # packs at work side by side, as seen so far

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
        """Seconds until the last pack ends, each waiting one begun where a place is free; None: no rate is known."""
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

    def _active(self) -> list[_Work]:
        return [work for work in self._works.values() if work.since is not None]


def _nearest(rates: list[tuple[float, float]], weight: float) -> float:
    """The rate of the measured pack that is nearest in weight, by ratio; ``rates`` are (weight, rate), sorted."""
    at = bisect.bisect(rates, (weight, 0.0))
    return min(rates[max(0, at - 1) : at + 1], key=lambda known: max(known[0], weight) / min(known[0], weight))[1]


def _mean(seconds: list[float | None]) -> float:
    known = [value for value in seconds if value is not None]
    return sum(known) / len(known) if known else 0.0
