"""Spec → runs and packs: matched shapes, seeds, learning rates, cost, ids; RUN, SKIP or DROP with the reason."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dwsweep.shapes import Shape
from dwsweep.spec import ExecutionSpec, ModelSpec, TrainSpec


@dataclass(frozen=True)
class Run:
    """The unit of results: one shape, one seed, one learning rate, one length."""

    run_id: str
    pack_id: str
    shape: Shape
    seed: int
    learning_rate: float  # base learning rate; the parametrization resolves it
    budget: float | None  # target n_params; None where widths were given
    steps: int  # optimizer steps, warm-up and cool-down included
    tokens: int  # steps · batch_size · seq_len
    action: str  # RUN | SKIP | DROP
    reason: str  # why it is skipped or dropped, or what to know about it


@dataclass(frozen=True)
class Replica:
    """One seed and learning rate of a pack; it yields one run for each of the pack's ``branch_steps``."""

    seed: int
    learning_rate: float
    run_ids: tuple[str, ...]


@dataclass(frozen=True)
class Pack:
    """The unit of execution: one shape and the fixed list of its replicas, trained, checkpointed and resumed as one.

    ``branch_steps`` are the total steps of each finished run of a replica, ascending; the last is the full length.
    Without token branches there is one.
    """

    pack_id: str
    shape: Shape
    replicas: tuple[Replica, ...]
    branch_steps: tuple[int, ...]
    model: ModelSpec
    train: TrainSpec
    execution: ExecutionSpec
    data_hash: str

    def to_dict(self) -> dict[str, Any]:
        content = asdict(self)
        for name in ("model", "train", "execution"):
            content[name] = getattr(self, name).model_dump(mode="json")
        return content

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Pack:
        return cls(
            pack_id=content["pack_id"],
            shape=Shape(**content["shape"]),
            replicas=tuple(
                Replica(item["seed"], item["learning_rate"], tuple(item["run_ids"])) for item in content["replicas"]
            ),
            branch_steps=tuple(content["branch_steps"]),
            model=ModelSpec(**content["model"]),
            train=TrainSpec(**content["train"]),
            execution=ExecutionSpec(**content["execution"]),
            data_hash=content["data_hash"],
        )
