"""What a plan is made of: runs (the unit of results), packs (the unit of execution), and the plan that holds them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dwsweep.shapes import Shape
from dwsweep.spec import ExecutionSpec, ModelSpec, Spec, TrainSpec

if TYPE_CHECKING:
    from dwsweep.plan.estimates import Estimates

RUN, SKIP, DROP = "RUN", "SKIP", "DROP"


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


@dataclass(frozen=True)
class DataFacts:
    """What the plan needs to know of a prepared store."""

    data_hash: str
    n_train_tokens: int
    n_validation_tokens: int

    @classmethod
    def of(cls, store: Any) -> DataFacts:
        """The facts of a ``dwsweep.data.store.Store``."""
        return cls(store.data_hash, store.n_train_tokens, store.n_validation_tokens)


@dataclass(frozen=True)
class Plan:
    """Everything a sweep will do, before it does it."""

    spec: Spec
    runs: tuple[Run, ...]  # of every shape, the skipped and dropped ones too
    packs: tuple[Pack, ...]  # all with a run that is not dropped, finished packs too
    warnings: tuple[str, ...]
    data: DataFacts | None
    estimates: Estimates

    @property
    def waits_for_data(self) -> bool:
        """Whether ``prepare`` has not run: ids end in ``unhashed``, epochs are unknown, and nothing can be trained."""
        return self.data is None

    @property
    def waiting_figures(self) -> list[str]:
        """What is not known before ``prepare``."""
        return ["hashes of the ids", "epochs", "memory of the token store"] if self.data is None else []

    @cached_property
    def pack_sizes(self) -> dict[str, int]:
        """Replicas of each pack by its id."""
        return {pack.pack_id: len(pack.replicas) for pack in self.packs}

    @cached_property
    def by_id(self) -> dict[str, Run]:
        return {run.run_id: run for run in self.runs}

    def count(self, action: str) -> int:
        return sum(run.action == action for run in self.runs)
