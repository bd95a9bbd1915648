"""Workers that are not heard of: said while a sweep trains, and ended where they do not heed a request to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dwsweep.sweep.events import Begun, Compiling, Event, Progress, Started

NOTICE_SECONDS = 300.0  # of silence before the first notice; each further one after twice the time
STOP_NOTICE_SECONDS = 60.0  # of silence after a stop was asked for
STOP_KILL_SECONDS = 300.0  # likewise: a checkpoint of a large model takes a while to write

_PHASES: dict[type, str] = {Begun: "starting", Compiling: "compiling", Started: "training", Progress: "training"}


@dataclass
class _Heard:
    label: str  # of the pack
    log: str  # where its worker writes
    at: float  # when it was last heard of
    patience: float = NOTICE_SECONDS
    phase: str = "starting"
    pid: int | None = None  # where it runs on this host
    given_up: bool = False


class Silence:
    """When each pack in training was last heard of; ``clock`` gives seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._packs: dict[str, _Heard] = {}
        self._stop_asked: float | None = None

    def begin(self, pack_id: str, label: str, log: Any) -> None:
        self._packs[pack_id] = _Heard(label, str(log), self._clock())

    def heard(self, pack_id: str, event: Event) -> None:
        pack = self._packs.get(pack_id)
        if pack is None:
            return
        pack.at, pack.patience = self._clock(), NOTICE_SECONDS
        pack.phase = _PHASES.get(type(event), pack.phase)
        pack.pid = event.pid if isinstance(event, Begun) else pack.pid
        if self._stop_asked is not None:
            pack.patience = STOP_NOTICE_SECONDS

    def end(self, pack_id: str) -> None:
        self._packs.pop(pack_id, None)

    def stop_asked(self) -> None:
        self._stop_asked = self._clock()
        for pack in list(self._packs.values()):  # this is another thread than that of the others
            pack.patience = STOP_NOTICE_SECONDS

    def notices(self) -> Iterator[str]:
        """A line for each pack that is silent for too long, once for each span of time."""
        for pack in self._packs.values():
            silent = self._silent(pack)
            if silent < pack.patience:
                continue
            pack.patience = max(2 * pack.patience, silent)
            where = f"{f'process {pack.pid}, ' if pack.pid else ''}log {pack.log}"
            if self._stop_asked is None:
                yield f"note: {pack.label}: nothing heard for {silent / 60:.0f} min while {pack.phase} ({where})"
            else:
                rest = max(0.0, STOP_KILL_SECONDS - silent)
                yield (
                    f"note: {pack.label}: has not answered the request to stop for {silent:.0f} s while {pack.phase}; "
                    f"it is killed in {rest:.0f} s, with Ctrl-C again at once ({where})"
                )

    def deaf(self) -> Iterator[str]:
        """Packs to be ended, each once: nothing was heard of them for too long after a stop was asked for."""
        for name, pack in self._packs.items():
            if self._stop_asked is not None and not pack.given_up and self._silent(pack) >= STOP_KILL_SECONDS:
                pack.given_up = True
                yield name

    def _silent(self, pack: _Heard) -> float:
        return self._clock() - max(pack.at, self._stop_asked or pack.at)
