"""Messages between a worker and its parent: commands one way, events the other, each a record and on the pipe one line
of JSON. The events of an attempt end with ``Ended``; from the executor on they travel with the id of their pack.

Records of a pack's files travel unchanged: ``StartFacts`` after its compilation, ``PackProgress`` after each dispatch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from dwsweep.records.pack import PackProgress, StartFacts
from dwsweep.records.record import line_of, parse, to_dict
from dwsweep.sweep.claim import Claim


@dataclass(frozen=True)
class Job:
    """One attempt at one pack, as its pack.json and state.json are."""

    pack_id: str
    directory: str  # directory of the sweep
    store_path: str  # path of the token store
    frozen: tuple[str, ...] = ()  # runs of the pack whose results belong to another pack
    following: str | None = None  # pack that the same worker will probably train next
    claim: Claim | None = None  # claim on the directory: a worker that loses it trains no further step


# commands of the parent


@dataclass(frozen=True)
class Join:
    """Join the slice of several hosts, first of all."""

    store_path: str  # path of the token store on this host


@dataclass(frozen=True)
class Train:
    job: Job
    log: str  # log file of the worker from here on


@dataclass(frozen=True)
class Stop:
    """Stop: bring the pack to a checkpoint and end the attempt."""

    cause: str = "stopped"


@dataclass(frozen=True)
class Release:
    """End of a slice: every process exits with this status."""

    status: int


Command = Join | Train | Stop | Release


# events of the worker


@dataclass(frozen=True)
class Joined:
    """Report that the worker is process ``process`` of a slice of ``processes``."""

    process: int
    processes: int


@dataclass(frozen=True)
class Released:
    status: int


@dataclass(frozen=True)
class Compiling:
    microbatch: int  # sequences


@dataclass(frozen=True)
class Note:
    """Note for a person."""

    message: str


@dataclass(frozen=True)
class Ended:
    """End of an attempt. The worker reports its kind and cause; the parent adds its own observations."""

    kind: str  # done, interrupted, oom, crash, error or disk_full; ``policy.decide`` has a case for each
    cause: str = ""  # one line for a person
    log_tail: str | None = None
    step: int = 0  # the last step reported
    microbatch: int | None = None  # sequences per forward pass that the trainer used, if it came that far


Event = Joined | Released | Compiling | StartFacts | PackProgress | Note | Ended
Emit = Callable[[Event], None]
Post = Callable[[str, Event], None]
"""Receives (pack_id, event), from any thread."""

_KINDS: dict[str, type] = {kind.__name__: kind for kind in (*get_args(Command), *get_args(Event))}


def to_line(message: Command | Event) -> str:
    return line_of({"type": type(message).__name__, **to_dict(message)})


def from_line(line: str) -> Any:
    """Parse a message, a ``Command`` or an ``Event``.

    Raises:
        ValueError: the line holds none, such as the last line of a killed process.
    """
    content = json.loads(line)
    return parse(_KINDS[content.pop("type")], content)
