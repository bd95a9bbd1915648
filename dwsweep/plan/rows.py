"""A plan as records: the rows of plan.csv, and the config.json of each run."""

from __future__ import annotations

from dwsweep.plan.units import Plan, Run
from dwsweep.records.plan_table import PlanRow
from dwsweep.records.run_files import RunConfig


def to_rows(plan: Plan) -> list[PlanRow]:
    """One row per run, in the plan's order."""
    return [_row(plan, run) for run in plan.runs]


def _row(plan: Plan, run: Run) -> PlanRow:
    cost = plan.estimates.runs[run.run_id]
    pack = plan.estimates.packs.get(run.pack_id)
    shape = run.shape
    return PlanRow(
        run_id=run.run_id,
        pack_id=run.pack_id,
        action=run.action,
        reason=run.reason,
        depth=shape.depth,
        width=shape.width,
        heads=shape.heads,
        head_size=shape.head_size,
        seed=run.seed,
        learning_rate=run.learning_rate,
        budget=run.budget,
        n_params=shape.n_params,
        n_params_total=shape.n_params_total,
        steps=run.steps,
        tokens=run.tokens,
        mismatch=shape.n_params / run.budget - 1 if run.budget else None,
        hidden_learning_rate=cost.hidden_learning_rate,
        residual_multiplier=cost.residual_multiplier,
        flops=cost.flops,
        flops_6nd=cost.flops_6nd,
        epochs=cost.epochs,
        device_seconds=cost.device_seconds,
        pack_size=plan.pack_sizes.get(run.pack_id),
        pack_memory_bytes=pack.memory.total if pack else None,
        microbatch=pack.memory.microbatch if pack else None,
        pack_checkpoint_bytes=pack.checkpoint_bytes if pack else None,
        time_basis=plan.estimates.time_basis if cost.device_seconds is not None else None,
    )


def run_config(run: Run, plan: Plan) -> RunConfig:
    """Everything that config.json says of a run: facts are read from here, never from a name."""
    spec = plan.spec
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
    )
