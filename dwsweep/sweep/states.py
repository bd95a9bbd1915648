"""The states of runs and packs, as the files of a sweep directory name them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

PENDING, RUNNING, DONE, DIVERGED = "pending", "running", "done", "diverged"
FAILED, OOM, INTERRUPTED = "failed", "oom", "interrupted"
REBUILT = "rebuilt"  # of a pack only: other packs took its replicas over

RUN_STATES = (DONE, RUNNING, PENDING, INTERRUPTED, DIVERGED, FAILED, OOM)
FINAL = frozenset({DONE, DIVERGED})  # has a result that stands
STOPPED = frozenset({FAILED, OOM})  # ended without a result; tried again on request


@dataclass(frozen=True)
class RunState:
    """``status.json`` of a run."""

    state: str = PENDING
    step: int | None = None  # last step known when the state was written
    loss: float | None = None  # held-out nats per token when done, last training loss otherwise
    pack_id: str | None = None  # the pack that trains or trained it
    cause: str | None = None  # why it failed, diverged or was interrupted; one line
    log_tail: str | None = None  # the last lines of the worker's log, where it failed
    updated: float | None = None  # seconds since the epoch

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> RunState:
        known = {name: content[name] for name in cls.__dataclass_fields__ if name in content}
        return cls(**known)


@dataclass(frozen=True)
class PackEvent:
    """Something that befell a pack and what was done about it."""

    time: float  # seconds since the epoch
    kind: str  # crash | oom | error | disk_full | interrupted | rebuilt | retry
    cause: str
    action: str  # what follows from it
    step: int = 0
    log_tail: str | None = None


@dataclass(frozen=True)
class PackState:
    """``state.json`` of a pack: how often it was tried, what went wrong, what was changed on its account."""

    state: str = PENDING
    attempts: int = 0  # times a worker started it
    retries: int = 0  # retries granted since the last new checkpoint
    checkpoint: int = 0  # number of the newest checkpoint at the end of the last attempt; 0: none
    resumed_step: int = 0  # the step that the last attempt went on from
    microbatch: int | None = None  # sequences; set after an out-of-memory, else as the spec says
    halvings: int = 0  # of the microbatch
    rebuilt_into: tuple[str, ...] = ()  # packs that took the replicas over
    events: tuple[PackEvent, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> PackState:
        known = {name: content[name] for name in cls.__dataclass_fields__ if name in content}
        known["rebuilt_into"] = tuple(known.get("rebuilt_into", ()))
        known["events"] = tuple(PackEvent(**event) for event in known.get("events", ()))
        return cls(**known)

    def with_event(self, event: PackEvent, **changes: Any) -> PackState:
        return replace(self, events=(*self.events, event)[-50:], **changes)
