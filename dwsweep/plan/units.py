"""What a plan is made of: runs (the unit of results), packs (the unit of execution), and the plan that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dwsweep.records.pack_files import Pack
from dwsweep.shapes import Shape
from dwsweep.spec import Spec

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
class DataFacts:
    """What the plan needs to know of a prepared store."""

    data_hash: str
    n_train_tokens: int
    n_validation_tokens: int

    @classmethod
    def of(cls, store: Any) -> DataFacts:
        """The facts of a ``dwsweep.data.token_store.Store``."""
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
