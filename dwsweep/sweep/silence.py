"""Watch for silent workers: reports them while a sweep trains, and names those that do not heed a request to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dwsweep.records.pack import PackProgress, StartFacts
from dwsweep.sweep.events import Begun, Compiling, Evaluating, Event

NOTICE_SECONDS = 300.0  # silence before the first notice; the wait doubles for each further notice
STOP_NOTICE_SECONDS = 60.0  # silence after a request to stop, before a notice
START_KILL_SECONDS = 5.0  # the same before the first step, which leaves nothing to save: a compiler hears nothing
STOP_KILL_SECONDS = 300.0  # silence after a request to stop, before a kill: a large model's checkpoint takes a while

_NOTHING_TO_SAVE = ("starting", "compiling")
_PHASES: dict[type, str] = {
    **{Begun: "starting", Compiling: "compiling", StartFacts: "training", PackProgress: "training"},
    Evaluating: "evaluating",
}


@dataclass
class _Heard:
    label: str  # label of the pack
    log: str  # log file of its worker
    at: float  # time of its last message
    patience: float = NOTICE_SECONDS
    phase: str = "starting"
    pid: int | None = None  # process number, if it runs on this host
    given_up: bool = False


class Silence:
    """Watch over the last message of each pack in training; ``clock`` gives seconds."""

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
        for pack in list(self._packs.values()):  # a copy, since another thread changes the packs
            pack.patience = STOP_NOTICE_SECONDS

    def notices(self) -> Iterator[str]:
        """One line for each pack that is silent for too long, once per time span."""
        for pack in self._packs.values():
            silent = self._silent(pack)
            if silent < pack.patience:
                continue
            pack.patience = max(2 * pack.patience, silent)
            where = f"{f'process {pack.pid}, ' if pack.pid else ''}log {pack.log}"
            if self._stop_asked is None:
                yield f"note: {pack.label}: nothing heard for {silent / 60:.0f} min while {pack.phase} ({where})"
            else:
                rest = max(0.0, _kill_seconds(pack) - silent)
                yield (
                    f"note: {pack.label}: has not answered the request to stop for {silent:.0f} s while {pack.phase}; "
                    f"it is killed in {rest:.0f} s, with Ctrl-C again at once ({where})"
                )

    def unresponsive(self) -> Iterator[str]:
        """Yield each pack, once, that has not responded to the stop request within the limit."""
        for name, pack in self._packs.items():
            if self._stop_asked is not None and not pack.given_up and self._silent(pack) >= _kill_seconds(pack):
                pack.given_up = True
                yield name

    def _silent(self, pack: _Heard) -> float:
        return self._clock() - max(pack.at, self._stop_asked or pack.at)


def _kill_seconds(pack: _Heard) -> float:
    """Silence after a request to stop, before a kill."""
    return START_KILL_SECONDS if pack.phase in _NOTHING_TO_SAVE else STOP_KILL_SECONDS
