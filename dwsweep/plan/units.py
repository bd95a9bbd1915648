"""Parts of a plan: runs (the unit of results), packs (the unit of execution), their estimates, the plan itself; and a
plan as records: the rows of plan.csv, and the config.json of each run.

FLOPs, memory, disk and time are estimated for one device, with the basis of the time named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dwsweep.cost.arithmetic import (
    Memory,
    checkpoint_bytes,
    fitting_microbatch,
    flops_6nd,
    program_fits,
    resident_bytes,
    training_flops,
)
from dwsweep.cost.devices import find
from dwsweep.data import prepare
from dwsweep.model.parametrization import resolve
from dwsweep.plan.clock import Clock
from dwsweep.plan.lengths import RunLengths
from dwsweep.plan.schedule import pack_tokens
from dwsweep.records.pack import Pack
from dwsweep.records.run import RunConfig
from dwsweep.records.sweep import DROP, RUN, PlanRow
from dwsweep.shapes import Shape, token_bytes
from dwsweep.spec import Spec

if TYPE_CHECKING:
    from dwsweep.data.token_store import Store


@dataclass(frozen=True)
class Run:
    """The unit of results: one shape, one seed, one learning rate, one length."""

    spec: Spec = field(repr=False, compare=False)  # spec of its arm
    run_id: str
    pack_id: str
    shape: Shape
    seed: int
    learning_rate: float  # base learning rate; the parametrization resolves it
    budget: float | None  # target n_params; None if widths were given
    steps: int  # optimizer steps, warm-up and cool-down included
    tokens: int  # steps · batch_size · seq_len
    action: str  # RUN | SKIP | DROP
    reason: str  # reason for a skip or drop, or a remark
    arm: str = ""  # name of an arm, in a sweep with arms

    @property
    def mismatch(self) -> float | None:
        """Relative distance of its size from the budget, n_params / budget − 1."""
        return self.shape.n_params / self.budget - 1 if self.budget else None


@dataclass(frozen=True)
class DataFacts:
    """Facts of a prepared store for a plan."""

    data_hash: str
    n_train_tokens: int
    n_validation_tokens: int
    n_heldout_documents: int | None = None
    caution: str | None = None  # warning if the store holds out too few documents

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
    device_seconds: float | None  # the run's share of its pack on one device; None: unknown
    hidden_learning_rate: float
    residual_multiplier: float


@dataclass(frozen=True)
class PackEstimate:
    """Cost of one pack on one device."""

    flops: int  # FLOPs of all its replicas; a shared trunk of token branches counts once
    memory: Memory
    fits: bool | None  # into the memory that JAX may use; None: unknown device
    checkpoint_bytes: int  # peak during training: kept checkpoints and the one being written
    device_seconds: float | None


@dataclass(frozen=True)
class Estimates:
    """Estimates of every run and pack by id, and the totals of what is still to be trained."""

    device: str  # name of the device, or "unknown"
    basis: str  # source of the times, in words
    time_basis: str | None  # measured, compiled or assumed; None: there are no times
    runs: dict[str, RunEstimate]
    packs: dict[str, PackEstimate]
    n_packs: int  # packs with something to train
    tokens: int
    flops: int
    flops_6nd: int
    device_seconds: float | None
    peak_memory_bytes: int
    checkpoint_bytes: int  # disk use if the checkpoints of all packs are kept


@dataclass(frozen=True)
class Plan:
    """Plan of a sweep: all that it will do."""

    spec: Spec
    runs: tuple[Run, ...]  # runs of every shape, skipped and dropped ones included
    packs: tuple[Pack, ...]  # all packs with a run that is not dropped, finished packs included
    warnings: tuple[str, ...]
    data: DataFacts | None
    estimates: Estimates

    @property
    def lengths(self) -> RunLengths:
        """Lengths of the runs, of all arms alike."""
        return RunLengths(self.spec)

    @cached_property
    def labels(self) -> dict[str, str]:
        """Readable names of the packs, by pack_id: shape, and arm in a sweep with arms."""
        return {run.pack_id: f"{run.arm} {run.shape.label}".lstrip() for run in self.runs}

    @cached_property
    def parts(self) -> dict[str, list[Run]]:
        """Runs of each arm by its name; all, without a name, where there are no arms."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.arm, []).append(run)
        return found

    @cached_property
    def sections(self) -> dict[str, dict[str, Any]]:
        """Sections of the spec by arm, as config.json of every run records them."""
        specs = {arm: runs[0].spec for arm, runs in self.parts.items()}
        return {
            arm: {
                "model": spec.model.model_dump(mode="json"),
                "data": spec.data.model_dump(mode="json", exclude={"cache_dir", "workers"}),
                "train": spec.train.model_dump(mode="json"),
            }
            for arm, spec in specs.items()
        }

    @property
    def waits_for_data(self) -> bool:
        """True if ``prepare`` has not run: ids end in ``unhashed``, epochs are unknown, and nothing can be trained."""
        return self.data is None

    @cached_property
    def pack_of_each_shape(self) -> tuple[Pack, ...]:
        """The first pack of each shape and optimizer, which `bench` compiles."""
        found: dict[Any, Pack] = {}
        for pack in self.packs:
            found.setdefault((pack.shape, pack.train.optimizer), pack)
        return tuple(found.values())

    def count(self, action: str) -> int:
        return sum(run.action == action for run in self.runs)


def to_rows(plan: Plan) -> list[PlanRow]:
    """One row per run, in the plan's order."""
    sizes = {pack.pack_id: len(pack.replicas) for pack in plan.packs}
    return [_plan_row(plan, run, sizes.get(run.pack_id)) for run in plan.runs]


def _plan_row(plan: Plan, run: Run, pack_size: int | None) -> PlanRow:
    cost = plan.estimates.runs[run.run_id]
    pack = plan.estimates.packs.get(run.pack_id)
    return PlanRow(
        **_facts(run),
        action=run.action,
        reason=run.reason,
        depth=run.shape.depth,
        width=run.shape.width,
        heads=run.shape.heads,
        head_size=run.shape.head_size,
        mismatch=run.mismatch,
        **vars(cost),
        pack_size=pack_size,
        pack_memory_bytes=pack.memory.total if pack else None,
        microbatch=pack.memory.microbatch if pack else None,
        pack_checkpoint_bytes=pack.checkpoint_bytes if pack else None,
        time_basis=plan.estimates.time_basis if cost.device_seconds is not None else None,
    )


def _facts(run: Run) -> dict[str, Any]:
    """Facts of a run that plan.csv and its config.json share."""
    names = ("run_id", "pack_id", "seed", "learning_rate", "budget", "steps", "tokens")
    counts = {"n_params": run.shape.n_params, "n_params_total": run.shape.n_params_total}
    return {name: getattr(run, name) for name in names} | counts | {"arm": run.arm or None}


def run_config(run: Run, plan: Plan) -> RunConfig:
    """Content of a run's config.json: facts are read from here, never from a name."""
    data_hash = plan.data.data_hash if plan.data else None
    return RunConfig(**_facts(run), data_hash=data_hash, shape=run.shape, **plan.sections[run.arm])


def estimate(runs: Sequence[Run], packs: Sequence[Pack], data: DataFacts | None, clock: Clock) -> Estimates:
    """Estimates of every run and pack on the clock's device."""
    found = find(clock.device_name)
    by_pack: dict[str, PackEstimate] = {}
    for pack in packs:
        flops = training_flops(pack.shape, pack_tokens(pack))
        memory = _memory(pack, data, found.usable_bytes if found else None)
        by_pack[pack.pack_id] = PackEstimate(
            flops=flops,
            memory=memory,
            fits=program_fits(memory.total, found.usable_bytes) if found else None,
            checkpoint_bytes=(pack.execution.keep_checkpoints + 1)
            * checkpoint_bytes(pack.shape, len(pack.replicas), pack.train.optimizer),
            device_seconds=clock.seconds(pack.shape, flops, pack.train, pack.execution),
        )
    by_run = {run.run_id: _run_estimate(run, data, clock) for run in runs}
    todo = [run for run in runs if run.action == RUN]
    waiting = {run.pack_id for run in todo}
    active = [pack.pack_id for pack in packs if pack.pack_id in waiting]
    seconds = [by_pack[name].device_seconds for name in active]
    return Estimates(
        device=clock.device_name,
        basis=clock.basis,
        time_basis=clock.label,
        runs=by_run,
        packs=by_pack,
        n_packs=len(active),
        tokens=sum(pack_tokens(pack) for pack in packs if pack.pack_id in waiting),
        flops=sum(by_pack[name].flops for name in active),
        flops_6nd=sum(by_run[run.run_id].flops_6nd for run in todo),
        device_seconds=None if None in seconds else float(sum(s for s in seconds if s is not None)),
        peak_memory_bytes=max((by_pack[name].memory.total for name in active), default=0),
        checkpoint_bytes=sum(by_pack[name].checkpoint_bytes for name in active),
    )


def misfits(estimates: Estimates, packs: Sequence[Pack]) -> list[str]:
    """Warning about packs that exceed the device even with one sequence at a time and activations recomputed."""
    full = [pack for pack in packs if estimates.packs[pack.pack_id].fits is False]
    if not full:
        return []
    worst = max(full, key=lambda pack: estimates.packs[pack.pack_id].memory.total)
    memory = estimates.packs[worst.pack_id].memory
    return [
        f"{len(full)} pack{'s do' if len(full) > 1 else ' does'} not fit into the memory of one {estimates.device}, "
        f"{worst.shape.label} needs {memory.total / 1e9:,.0f} GB one sequence at a time with activations recomputed: "
        "a smaller execution.max_replicas, or execution.mesh with its state divided (fsdp), needs less"
    ]


def _run_estimate(run: Run, data: DataFacts | None, clock: Clock) -> RunEstimate:
    scales = resolve(run.shape, run.spec.model, run.spec.train, run.learning_rate)
    flops = training_flops(run.shape, run.tokens)
    seconds = None if run.action == DROP else clock.seconds(run.shape, flops, run.spec.train, run.spec.execution)
    return RunEstimate(
        flops=flops,
        flops_6nd=flops_6nd(run.shape, run.tokens),
        epochs=run.tokens / data.n_train_tokens if data else None,
        device_seconds=seconds,
        hidden_learning_rate=scales.hidden.learning_rate,
        residual_multiplier=scales.residual_multiplier,
    )


def _memory(pack: Pack, data: DataFacts | None, memory_bytes: float | None) -> Memory:
    size, asked = token_bytes(pack.shape.vocab_size), pack.execution.data_on_device
    data_bytes = resident_bytes(data.n_train_tokens, size, memory_bytes, asked) if data else 0
    return fitting_microbatch(pack, data_bytes, memory_bytes)
