"""The plan of a sweep with arms: the plans of its arms, one after the other.

Each run has the id that it has in a sweep of its arm alone: an arm is a recipe, and what is trained already is there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from dwsweep.errors import InputError
from dwsweep.plan import expand
from dwsweep.plan.clock import Calibrations
from dwsweep.plan.expand import Finished
from dwsweep.plan.units import DataFacts, Estimates, Plan
from dwsweep.records.fixed_rates import FixedRate
from dwsweep.spec import Spec, arms_of


def build(
    spec: Spec,
    *,
    data: DataFacts | None = None,
    finished: Finished | None = None,
    device: str | None = None,
    calibration: Calibrations = None,
    rates: Sequence[FixedRate] = (),
) -> Plan:
    """Expand a spec, arm by arm where it has arms; the arguments are those of ``expand.build``.

    Raises:
        InputError: combinations that cannot be built or trained, each with its arm.
    """
    planned = partial(expand.build, data=data, finished=finished, device=device, calibration=calibration, rates=rates)
    if spec.grid.arms is None:
        return planned(spec)
    arms = arms_of(spec)
    plans = []
    for number, (name, arm) in enumerate(arms):
        try:
            plan = planned(arm)
        except InputError as error:
            raise InputError(*(f"grid.arms[{number}].{line}" for line in error.lines)) from None
        plans.append(_named(plan, name, number))
    names = [name for name, _ in arms]
    _check_apart(plans, names)
    return Plan(
        spec=spec,
        runs=tuple(run for plan in plans for run in plan.runs),
        packs=tuple(pack for plan in plans for pack in plan.packs),
        warnings=_warnings(plans, names),
        data=plans[0].data,
        estimates=_together([plan.estimates for plan in plans], spec.execution.keep_finished_checkpoints),
        lengths=plans[0].lengths,  # all share the key and its value
        arms=dict(zip(names, plans, strict=True)),
    )


def _named(plan: Plan, name: str, number: int) -> Plan:
    """The plan of an arm; without a hash its number tells its ids from those of the other arms."""
    mark = f"-arm{number}" if plan.data is None else ""
    found = plan.estimates
    return replace(
        plan,
        runs=tuple(
            replace(run, arm=name, run_id=f"{run.run_id}{mark}", pack_id=f"{run.pack_id}{mark}" if run.pack_id else "")
            for run in plan.runs
        ),
        packs=tuple(replace(pack, pack_id=f"{pack.pack_id}{mark}") for pack in plan.packs),
        estimates=replace(
            found,
            runs={f"{key}{mark}": value for key, value in found.runs.items()},
            packs={f"{key}{mark}": value for key, value in found.packs.items()},
        ),
    )


def _check_apart(plans: Sequence[Plan], names: Sequence[str]) -> None:
    """Refuse arms that differ only in what changes no result: their runs would be one run."""
    owner: dict[str, int] = {}
    for number, plan in enumerate(plans):
        for run in plan.runs:
            facts = expand.result_facts(plan.spec, run.shape, None)
            key = json.dumps([facts, run.seed, run.learning_rate, run.steps, run.budget], sort_keys=True)
            first = owner.setdefault(key, number)
            if first != number:
                raise InputError(
                    f"grid.arms[{number}]: {names[number]} trains the same runs as {names[first]}; must differ in "
                    "something that changes a result"
                )


def _warnings(plans: Sequence[Plan], names: Sequence[str]) -> tuple[str, ...]:
    """Those of all arms once, the others with the arm that they are of."""
    every = dict.fromkeys(line for plan in plans for line in plan.warnings)
    having = {line: [name for plan, name in zip(plans, names, strict=True) if line in plan.warnings] for line in every}
    return tuple(line if len(arms) == len(plans) else f"{', '.join(arms)}: {line}" for line, arms in having.items())


def _together(parts: Sequence[Estimates], keep_all: bool) -> Estimates:
    seconds = [part.device_seconds for part in parts]
    results = sum(part.results_bytes for part in parts)
    at_work = [part.disk_bytes - part.results_bytes for part in parts]  # checkpoints of the packs at work, or of all
    return replace(
        parts[0],
        runs={key: value for part in parts for key, value in part.runs.items()},
        packs={key: value for part in parts for key, value in part.packs.items()},
        n_packs=sum(part.n_packs for part in parts),
        tokens=sum(part.tokens for part in parts),
        flops=sum(part.flops for part in parts),
        flops_6nd=sum(part.flops_6nd for part in parts),
        device_seconds=None if None in seconds else sum(second for second in seconds if second is not None),
        peak_memory_bytes=max(part.peak_memory_bytes for part in parts),
        checkpoint_bytes=sum(part.checkpoint_bytes for part in parts),
        results_bytes=results,
        disk_bytes=(sum(at_work) if keep_all else max(at_work)) + results,
    )
