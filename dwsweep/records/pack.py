"""The files of one pack: ``pack.json``, ``state.json`` and ``progress.json``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from dwsweep.records.footing import Footing
from dwsweep.records.record import Amount, Count, Name, Number, Positive, PositiveNumber, one_of
from dwsweep.records.run import DONE, FAILED, INTERRUPTED, OOM, PENDING, RUNNING
from dwsweep.shapes import Shape

if TYPE_CHECKING:
    from dwsweep.spec import ExecutionSpec, ModelSpec, TrainSpec
else:  # `_section` imports them where a pack is read: `status` reads none, and making these models takes long
    ExecutionSpec = ModelSpec = TrainSpec = Any

REBUILT = "rebuilt"  # packs that took the replicas over
IN_PART = "the other replicas are finished or belong to another pack"  # reason why replicas of the plan are missing

ATTEMPTS_KEPT = 20

PACK_STATES = (PENDING, RUNNING, DONE, INTERRUPTED, FAILED, OOM, REBUILT)


def _section(name: str, *, strict: bool) -> BeforeValidator:
    """Section of the spec, validated; unless ``strict``, keys that this version does not know are dropped."""

    def build(value: Any) -> Any:
        from dwsweep import spec

        kind = getattr(spec, name)
        if isinstance(value, kind):
            return value
        if not isinstance(value, dict):
            raise PydanticCustomError("model_type", "must be an object")
        text = repr(value)
        if text in _sections.get(name, {}):
            return _sections[name][text]
        known = value if strict else {name: item for name, item in value.items() if name in kind.model_fields}
        try:
            made = kind.model_validate(known)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        _sections[name] = {text: made}
        return made

    return BeforeValidator(build)


_sections: dict[str, dict[str, Any]] = {}  # last section by name and content: all packs of a sweep share one


@dataclass(frozen=True)
class Replica:
    """Replica: a seed and a learning rate of the ensemble that a pack trains together; it yields one run for each of
    the pack's ``branch_steps``."""

    seed: Count
    learning_rate: PositiveNumber
    run_ids: Annotated[tuple[Name, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Pack:
    """``pack.json``, the unit of execution: one shape and the fixed list of its replicas, trained, checkpointed and
    resumed as one.

    ``branch_steps`` are the total steps of each finished run of a replica, ascending; the last is the full length.
    Without token branches there is one. Settings of the model or the training that this version does not know are
    refused: they may change the result.
    """

    pack_id: Name
    shape: Shape
    replicas: Annotated[tuple[Replica, ...], Field(min_length=1)]
    branch_steps: Annotated[tuple[Positive, ...], Field(min_length=1)]
    model: Annotated[ModelSpec, _section("ModelSpec", strict=True)]
    train: Annotated[TrainSpec, _section("TrainSpec", strict=True)]
    execution: Annotated[ExecutionSpec, _section("ExecutionSpec", strict=False)]  # changes no result
    data_hash: str
    rebuilt_from: Name | None = None  # pack whose replicas it took over
    reason: str | None = None  # why it did

    @property
    def run_ids(self) -> tuple[str, ...]:
        return tuple(name for replica in self.replicas for name in replica.run_ids)


@dataclass(frozen=True)
class StartFacts:
    """Facts of a pack on its hardware, reported once per (re)start, after compilation."""

    device_kind: str | None = None
    devices: Positive | None = None  # number of devices of the pack
    mesh: dict[str, int] | None = None  # devices along each axis
    attention_kernel: str | None = None
    attention_why: str | None = None  # why this kernel
    microbatch: Positive | None = None  # sequences of each replica in one forward and backward pass
    remat: bool | None = None  # activations are recomputed in the backward pass
    unroll: Positive | None = None  # layers written out, 1: all in a loop
    concessions: tuple[str, ...] = ()  # memory savings that the program needed, in words
    streamed: bool | None = None  # batches come from the host
    pack_size: Positive | None = None  # replicas that train together
    compile_seconds: Amount = None
    step: Count = 0  # step at which training begins or resumes
    footing: Footing | None = None  # further conditions of the last bits; None in files of earlier versions

    def differences(self, after: StartFacts) -> list[str]:
        """Conditions of the last bits that changed in a later attempt; an unknown value counts as equal."""
        one, other = ({**vars(facts), **(vars(facts.footing) if facts.footing else {})} for facts in (self, after))
        return [name for name in _FOOTING if None not in (one.get(name), other.get(name)) and one[name] != other[name]]


_FOOTING = (
    *("device_kind", "devices", "mesh", "attention_kernel", "microbatch", "remat", "unroll", "pack_size", "processor"),
    *("instructions", "cores", "workers", "flags", "backend", "versions"),
)


@dataclass(frozen=True)
class PackEvent:
    """Event of a pack, and the action that it led to."""

    time: float  # seconds since the epoch
    kind: str  # crash | oom | error | disk_full | interrupted | rebuilt | retry
    cause: str
    action: str  # action taken after the event
    step: int = 0


@dataclass(frozen=True)
class PackState:
    """``state.json``: attempts, failures and changed settings of a pack."""

    state: Annotated[str, one_of(*PACK_STATES)] = PENDING
    attempts: Count = 0  # times a worker started it
    retries: Count = 0  # retries granted since the last new checkpoint
    checkpoint: Count = 0  # number of the newest checkpoint at the end of the last attempt; 0: none
    microbatch: Positive | None = None  # microbatch after an out-of-memory error, else as in the spec
    halvings: Count = 0  # halvings of the microbatch
    rebuilt_into: tuple[Name, ...] = ()  # packs that took the replicas over
    events: tuple[PackEvent, ...] = field(default=())
    begun: Amount = None  # last handover to a worker, seconds since the epoch; None in files of earlier versions
    started: tuple[StartFacts, ...] = ()  # training conditions of each attempt, oldest first; the last ATTEMPTS_KEPT

    def with_start(self, facts: StartFacts) -> PackState:
        return replace(self, started=(*self.started, facts)[-ATTEMPTS_KEPT:])

    def with_event(self, event: PackEvent, **changes: Any) -> PackState:
        return replace(self, events=(*self.events, event)[-50:], **changes)


@dataclass(frozen=True)
class PackProgress:
    """``progress.json``: progress of a pack, written about once per second while it trains."""

    step: Count = 0
    steps: Count = 0  # full length
    tokens_per_second: Amount = None  # rate of all replicas
    losses: tuple[Number, ...] = ()  # last training loss of each replica, nats per token
    started: StartFacts | None = None
    updated: Amount = None  # seconds since the epoch
