"""A plan as plain rows: for plan.csv, for ``--json``, and for whoever reads the plan with other tools."""

from __future__ import annotations

import csv
import io
from typing import Any

from dwsweep.cost.flops import CONVENTION
from dwsweep.plan.units import DROP, RUN, SKIP, Plan, Run
from dwsweep.records.run_files import RunConfig

COLUMNS = (
    *("run_id", "pack_id", "action", "reason", "depth", "width", "heads", "head_size", "seed", "learning_rate"),
    *("budget", "n_params", "n_params_total", "steps", "tokens", "mismatch", "hidden_learning_rate"),
    *("residual_multiplier", "flops", "flops_6nd", "epochs", "device_seconds", "pack_size", "pack_memory_bytes"),
    *("microbatch", "pack_checkpoint_bytes"),
)


def run_row(plan: Plan, run: Run) -> dict[str, Any]:
    """One run: its shape, cost and fate. None where a figure is unknown or waits for the data."""
    cost = plan.estimates.runs[run.run_id]
    pack = plan.estimates.packs.get(run.pack_id)
    shape = run.shape
    return {
        "run_id": run.run_id,
        "pack_id": run.pack_id,
        "action": run.action,
        "reason": run.reason,
        "depth": shape.depth,
        "width": shape.width,
        "heads": shape.heads,
        "head_size": shape.head_size,
        "seed": run.seed,
        "learning_rate": run.learning_rate,
        "budget": run.budget,
        "n_params": shape.n_params,
        "n_params_total": shape.n_params_total,
        "steps": run.steps,
        "tokens": run.tokens,
        "mismatch": shape.n_params / run.budget - 1 if run.budget else None,
        "hidden_learning_rate": cost.hidden_learning_rate,
        "residual_multiplier": cost.residual_multiplier,
        "flops": cost.flops,
        "flops_6nd": cost.flops_6nd,
        "epochs": cost.epochs,
        "device_seconds": cost.device_seconds,
        "pack_size": plan.pack_sizes.get(run.pack_id),
        "pack_memory_bytes": pack.memory.total if pack else None,
        "microbatch": pack.memory.microbatch if pack else None,
        "pack_checkpoint_bytes": pack.checkpoint_bytes if pack else None,
    }


def to_rows(plan: Plan) -> list[dict[str, Any]]:
    """One row a run, in the columns of ``COLUMNS``."""
    return [run_row(plan, run) for run in plan.runs]


def to_csv(plan: Plan) -> str:
    """plan.csv: one row a run, in the columns of ``COLUMNS``."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(to_rows(plan))
    return buffer.getvalue()


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


def totals(plan: Plan) -> dict[str, Any]:
    """Of what is still to be trained."""
    total = plan.estimates
    return {
        "run": plan.count(RUN),
        "skip": plan.count(SKIP),
        "drop": plan.count(DROP),
        "packs": total.n_packs,
        "tokens": total.tokens,
        "flops": total.flops,
        "flops_6nd": total.flops_6nd,
        "flops_convention": CONVENTION,
        "device": total.device,
        "time_basis": total.basis,
        "device_hours": None if total.device_seconds is None else total.device_seconds / 3600,
        "peak_memory_bytes": total.peak_memory_bytes,
        "checkpoint_bytes": total.checkpoint_bytes,
        "results_bytes": total.results_bytes,
        "disk_bytes": total.disk_bytes,
    }


def to_dict(plan: Plan) -> dict[str, Any]:
    """The whole plan, for ``--json``."""
    return {
        "name": plan.spec.name,
        "data": None if plan.data is None else vars(plan.data),
        "waits_for_data": plan.waiting_figures,
        "totals": totals(plan),
        "warnings": list(plan.warnings),
        "runs": to_rows(plan),
    }
