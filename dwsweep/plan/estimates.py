"""Estimated FLOPs, memory, disk and time of a plan, for one device, with the basis of the time named."""

from __future__ import annotations

from collections.abc import Sequence

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
from dwsweep.model.parametrization import resolve
from dwsweep.plan.lengths import Clock, pack_tokens
from dwsweep.plan.units import DataFacts, Estimates, PackEstimate, Run, RunEstimate
from dwsweep.records.pack import Pack
from dwsweep.records.sweep import DROP, RUN
from dwsweep.shapes import token_bytes
from dwsweep.spec import Spec

METRICS_ROW_BYTES = 130  # of metrics.jsonl
PARAM_BYTES = 4  # float32
RUN_BYTES = 30_000  # config, status, result, and 16 bytes for each of some 1,500 held-out documents


def estimate(
    spec: Spec,
    runs: Sequence[Run],
    packs: Sequence[Pack],
    data: DataFacts | None,
    clock: Clock,
) -> Estimates:
    """Estimates of every run and pack on the clock's device."""
    found = find(clock.device_name)
    by_pack: dict[str, PackEstimate] = {}
    for pack in packs:
        flops = training_flops(pack.shape, pack_tokens(pack))
        memory = _memory(spec, pack, data, found.usable_bytes if found else None)
        by_pack[pack.pack_id] = PackEstimate(
            flops=flops,
            memory=memory,
            fits=program_fits(memory.total, found.usable_bytes) if found else None,
            mfu=clock.mfu(pack.shape),
            checkpoint_bytes=(spec.execution.keep_checkpoints + 1)
            * checkpoint_bytes(pack.shape, len(pack.replicas), spec.train.optimizer),
            device_seconds=clock.seconds(pack.shape, flops),
        )
    pack_of = {pack.pack_id: pack for pack in packs}
    by_run = {run.run_id: _run_estimate(spec, run, pack_of.get(run.pack_id), data, clock) for run in runs}
    todo = [run for run in runs if run.action == RUN]
    waiting = {run.pack_id for run in todo}
    active = [pack.pack_id for pack in packs if pack.pack_id in waiting]
    seconds = [by_pack[name].device_seconds for name in active]
    checkpoints = sorted((by_pack[name].checkpoint_bytes for name in active), reverse=True)
    at_work = checkpoints if spec.execution.keep_finished_checkpoints else checkpoints[: spec.execution.workers or 1]
    results = sum(RUN_BYTES + run.steps // spec.execution.log_steps * METRICS_ROW_BYTES for run in todo)
    params = sum(PARAM_BYTES * run.shape.n_params_total for run in keeping_params(spec, todo))
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
        checkpoint_bytes=sum(checkpoints),
        results_bytes=results,
        params_bytes=params,
        disk_bytes=sum(at_work) + results + params,
    )


def keeping_params(spec: Spec, runs: Sequence[Run]) -> list[Run]:
    """Those of ``runs`` whose parameters are kept, were they all trained; with ``best`` one per pack and length, which
    one of them is known at its end."""
    if spec.execution.keep_params == "none":
        return []
    if spec.execution.keep_params == "all":
        return list(runs)
    return list({(run.pack_id, run.steps): run for run in runs}.values())


def misfits(estimates: Estimates, packs: Sequence[Pack]) -> list[str]:
    """A warning about packs that do not fit on the device even one sequence at a time, activations recomputed."""
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


def _run_estimate(spec: Spec, run: Run, pack: Pack | None, data: DataFacts | None, clock: Clock) -> RunEstimate:
    scales = resolve(run.shape, spec.model, spec.train, run.learning_rate)
    flops = training_flops(run.shape, run.tokens)
    return RunEstimate(
        flops=flops,
        flops_6nd=flops_6nd(run.shape, run.tokens),
        epochs=run.tokens / data.n_train_tokens if data else None,
        device_seconds=clock.seconds(pack.shape, flops) if pack and run.action != DROP else None,
        hidden_learning_rate=scales.hidden.learning_rate,
        residual_multiplier=scales.residual_multiplier,
    )


def _memory(spec: Spec, pack: Pack, data: DataFacts | None, memory_bytes: float | None) -> Memory:
    execution, train = spec.execution, spec.train
    size = token_bytes(pack.shape.vocab_size)
    return fitting_microbatch(
        pack.shape,
        replicas=len(pack.replicas),
        batch_size=train.batch_size,
        precision=train.precision,
        remat=execution.remat,
        data_bytes=resident_bytes(data.n_train_tokens, size, memory_bytes, execution.data_on_device) if data else 0,
        memory_bytes=memory_bytes,
        microbatch=execution.microbatch,
        optimizer=train.optimizer,
    )
