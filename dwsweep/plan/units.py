"""Parts of a plan: runs (the unit of results), packs (the unit of execution), their estimates, the plan itself; and a
plan as records: the rows of plan.csv, and the config.json of each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dwsweep.cost.arithmetic import Memory
from dwsweep.data import prepare
from dwsweep.plan.lengths import RunLengths
from dwsweep.records.pack import Pack
from dwsweep.records.run import Promise, RunConfig
from dwsweep.records.sweep import PLAN_COLUMNS, PlanRow
from dwsweep.shapes import Shape
from dwsweep.spec import Spec

if TYPE_CHECKING:
    from dwsweep.data.token_store import Store


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
    arm: str = ""  # of a sweep with arms

    @property
    def mismatch(self) -> float | None:
        """Relative distance of its size from the budget, n_params / budget − 1."""
        return self.shape.n_params / self.budget - 1 if self.budget else None


@dataclass(frozen=True)
class DataFacts:
    """Facts of a prepared store that a plan needs."""

    data_hash: str
    n_train_tokens: int
    n_validation_tokens: int
    n_heldout_documents: int | None = None
    caution: str | None = None  # where the store holds out too few documents

    @classmethod
    def of(cls, store: Store) -> DataFacts:
        """Take the facts of a token store."""
        held_out = store.manifest.splits["validation"].n_documents
        return cls(
            store.data_hash, store.n_train_tokens, store.n_validation_tokens, held_out, prepare.heldout_caution(store)
        )


@dataclass(frozen=True)
class RunEstimate:
    """Cost of one run, and its learning rates as the parametrization resolves them."""

    flops: int
    flops_6nd: int
    epochs: float | None  # passes over the training tokens; None before ``prepare``
    device_seconds: float | None  # its share of its pack on one device; None: unknown
    hidden_learning_rate: float
    residual_multiplier: float


@dataclass(frozen=True)
class PackEstimate:
    """Cost of one pack on one device."""

    flops: int  # of all its replicas; a shared trunk of token branches counts once
    memory: Memory
    fits: bool | None  # into what JAX may use of the device's memory; None: unknown device
    mfu: float | None
    checkpoint_bytes: int  # while it trains: those that are kept, and the one being written
    device_seconds: float | None


@dataclass(frozen=True)
class Estimates:
    """Estimates of every run and pack by id, and the totals of what is still to be trained."""

    device: str  # name of the device, or "unknown"
    basis: str  # where the times come from, in words
    time_basis: str | None  # measured, compiled or assumed; None: there are no times
    runs: dict[str, RunEstimate]
    packs: dict[str, PackEstimate]
    n_packs: int  # with something to train
    tokens: int
    flops: int
    flops_6nd: int
    device_seconds: float | None
    peak_memory_bytes: int
    checkpoint_bytes: int  # if the checkpoints of all packs are kept
    results_bytes: int  # metrics and results of all runs
    params_bytes: int  # parameters that are kept (``execution.keep_params``)
    disk_bytes: int  # at most at any time: the checkpoints of the packs at work, or of all where they are kept


@dataclass(frozen=True)
class Plan:
    """Everything a sweep will do, before it does it."""

    spec: Spec
    runs: tuple[Run, ...]  # of every shape, the skipped and dropped ones too
    packs: tuple[Pack, ...]  # all with a run that is not dropped, finished packs too
    warnings: tuple[str, ...]
    data: DataFacts | None
    estimates: Estimates
    lengths: RunLengths
    arms: Mapping[str, Plan] = field(default_factory=dict)  # of each by its name; none in a sweep without arms

    @cached_property
    def labels(self) -> dict[str, str]:
        """Readable names of the packs, by pack_id: their shape, with their arm where there are some."""
        return {run.pack_id: f"{run.arm} {run.shape.label}".lstrip() for run in self.runs}

    def of(self, run: Run) -> Plan:
        """The plan that a run is of: its arm's."""
        return self.arms[run.arm] if run.arm else self

    @property
    def parts(self) -> dict[str, Plan]:
        """The plan of each arm by its name; the whole, without a name, where there are no arms."""
        return dict(self.arms) or {"": self}

    @property
    def waits_for_data(self) -> bool:
        """True if ``prepare`` has not run: ids end in ``unhashed``, epochs are unknown, and nothing can be trained."""
        return self.data is None

    @property
    def waiting_figures(self) -> list[str]:
        """Names of the figures that are not known before ``prepare``."""
        return ["hashes of the ids", "epochs", "memory of the token store"] if self.data is None else []

    @cached_property
    def pack_sizes(self) -> dict[str, int]:
        """Replicas of each pack by its id."""
        return {pack.pack_id: len(pack.replicas) for pack in self.packs}

    def count(self, action: str) -> int:
        return sum(run.action == action for run in self.runs)


def to_rows(plan: Plan) -> list[PlanRow]:
    """One row per run, in the plan's order."""
    return [_plan_row(plan, run) for run in plan.runs]


def _plan_row(plan: Plan, run: Run) -> PlanRow:
    cost = plan.estimates.runs[run.run_id]
    pack = plan.estimates.packs.get(run.pack_id)
    known = {**vars(run.shape), **vars(cost), **vars(run)}
    known |= {
        "n_params": run.shape.n_params,
        "n_params_total": run.shape.n_params_total,
        "mismatch": run.mismatch,
        "pack_size": plan.pack_sizes.get(run.pack_id),
        "pack_memory_bytes": pack.memory.total if pack else None,
        "microbatch": pack.memory.microbatch if pack else None,
        "pack_checkpoint_bytes": pack.checkpoint_bytes if pack else None,
        "time_basis": plan.estimates.time_basis if cost.device_seconds is not None else None,
        "arm": run.arm or None,
    }
    return PlanRow(**{name: known[name] for name in PLAN_COLUMNS})


def run_config(run: Run, plan: Plan) -> RunConfig:
    """Everything that config.json says of a run: facts are read from here, never from a name."""
    spec = plan.of(run).spec
    return RunConfig(
        run_id=run.run_id,
        pack_id=run.pack_id,
        seed=run.seed,
        learning_rate=run.learning_rate,
        budget=run.budget,
        steps=run.steps,
        tokens=run.tokens,
        n_params=run.shape.n_params,
        n_params_total=run.shape.n_params_total,
        data_hash=plan.data.data_hash if plan.data else None,
        shape=run.shape,
        model=spec.model.model_dump(mode="json"),
        data=spec.data.model_dump(mode="json", exclude={"cache_dir", "workers"}),
        train=spec.train.model_dump(mode="json"),
        promise=_promise(run, plan),
        arm=run.arm or None,
    )


def _promise(run: Run, plan: Plan) -> Promise | None:
    if not plan.lengths.needs_rates:
        return None
    rate = plan.of(run).lengths.rate(run.shape)
    return Promise(run.tokens / rate.tokens_per_second, rate)
