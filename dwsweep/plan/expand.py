"""Spec → plan: matched shapes, seeds, learning rates, packs; RUN, SKIP or DROP with the reason.

The plan of a sweep with arms: the plans of its arms, one after the other.

Each run has the id that it has in a sweep of its arm alone: an arm is a recipe, and what is trained already is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from dwsweep.cost.duration import Calibration
from dwsweep.data.batches import check_enough
from dwsweep.errors import InputError
from dwsweep.plan.cautions import cautions, without_effect
from dwsweep.plan.clock import clock_of
from dwsweep.plan.ids import UNHASHED, content_hash, result_facts, run_id
from dwsweep.plan.lengths import RunLengths
from dwsweep.plan.refusals import device_errors, head_errors, length_errors, pack_members, size_errors
from dwsweep.plan.units import DataFacts, Estimates, Plan, Run, estimate, misfits
from dwsweep.records.pack import Pack, Replica
from dwsweep.records.sweep import DROP, RUN, SKIP
from dwsweep.shapes import BlockForm, Shape, match_width
from dwsweep.spec import Spec, arms_of
from dwsweep.text import format_count

_SKIP_REASONS = {
    "done": "already trained",
    "diverged": "diverged before; `--retry diverged` trains it again",
    "failed": "failed before; `--retry failed` trains it again",
    "oom": "ran out of memory before; `--retry failed` trains it again",
}


def _planned_arm(
    spec: Spec,
    data: DataFacts | None,
    status_of: Callable[[str], str | None],
    calibration: Calibration | None,
) -> Plan:
    lengths = RunLengths(spec)
    errors = [*head_errors(spec), *device_errors(spec), *size_errors(spec)]
    candidates = [] if errors else _shapes(spec)
    errors += length_errors(lengths, [planned.shape for planned in candidates if not planned.drop])
    if errors:
        raise InputError(*errors)
    data_hash = data.data_hash if data else None
    if data is not None:
        check_enough(data.n_train_tokens, spec.train.seq_len, spec.train.batch_size)

    runs: list[Run] = []
    packs: list[Pack] = []
    for planned in candidates:
        branches = lengths.branch_steps(planned.shape)
        made = _packs(spec, planned, branches, data_hash)
        packs += [] if planned.drop else made
        runs += [run for pack in made for run in _runs(spec, planned, pack, status_of)]
    estimates = estimate(spec, runs, packs, data, clock_of(spec, calibration))
    return Plan(
        spec=spec,
        runs=tuple(runs),
        packs=tuple(packs),
        warnings=(*misfits(estimates, packs), *cautions(lengths, runs, data)),
        data=data,
        estimates=estimates,
        lengths=lengths,
    )


@dataclass(frozen=True)
class _Planned:
    """A shape of the grid. drop: reason to drop it, or empty. note: a remark, or empty."""

    shape: Shape
    budget: float | None
    drop: str = ""
    note: str = ""


def _shapes(spec: Spec) -> list[_Planned]:
    """Shapes of the grid by depth, then rule of the heads, then size.

    Raises:
        InputError: two rules give one shape.
    """
    rules = list(enumerate(spec.grid.head_rules()))
    found: list[_Planned] = []
    owner: dict[tuple[int, int, int, int], int] = {}
    for depth in spec.grid.depth_values():
        for number, rule in rules:
            for planned in _of_depth(spec, spec.block(rule), depth):
                shape = planned.shape
                first = owner.setdefault((shape.depth, shape.width, shape.heads, shape.head_size), number)
                if first != number:
                    raise InputError(
                        f"grid.heads[{number}]: {rule}; gives {shape.label} with head size {shape.head_size} as "
                        f"grid.heads[{first}] {rules[first][1]} does; every rule must give shapes of its own"
                    )
                found.append(planned)
    return found


def _of_depth(spec: Spec, block: BlockForm, depth: int) -> list[_Planned]:
    grid = spec.grid
    if grid.widths is not None:
        return [_Planned(block.shape(depth, width), None) for width in sorted(set(grid.widths[depth]))]
    found = []
    matched = [(match_width(depth, b, block, grid.width_multiple), b) for b in sorted(grid.budget_values())]
    best: dict[Shape, float] = {}  # nearest budget of each shape
    for shape, budget in matched:
        best[shape] = min(best.get(shape, budget), budget, key=lambda one: abs(shape.n_params / one - 1))
    for shape, budget in matched:
        off = shape.n_params / budget - 1
        drop = note = ""
        if best[shape] != budget:
            drop = (
                f"same width {shape.width} as budget {format_count(best[shape])}, which is nearer; a smaller "
                f"grid.width_multiple than {grid.width_multiple} tells them apart"
            )
        elif abs(off) > grid.max_mismatch:
            text = f"{off:+.1%} from its budget, more than max_mismatch {grid.max_mismatch:g}"
            drop, note = (f"{text} (strict_budgets)", "") if grid.strict_budgets else ("", text)
        found.append(_Planned(shape, budget, drop, note))
    return found


def _packs(spec: Spec, planned: _Planned, lengths: tuple[int, ...], data_hash: str | None) -> list[Pack]:
    """Packs of a shape, even a dropped one, whose budget keeps its ids apart from the equal shape's."""
    shape = planned.shape
    dropped = f"-dropped{planned.budget:.3g}" if planned.drop else ""
    facts = result_facts(spec, shape, data_hash)
    packs = []
    for part in pack_members(spec):
        members = tuple(
            Replica(
                seed,
                rate,
                tuple(
                    run_id(spec, shape, facts, seed, rate, steps, data_hash, steps != lengths[-1]) + dropped
                    for steps in lengths
                ),
            )
            for seed, rate in part
        )
        content = {
            "replicas": [(m.seed, m.learning_rate) for m in members],
            "branch_steps": lengths,
            **facts,
        }
        packs.append(
            Pack(
                pack_id=f"{shape.label}-{content_hash(content, data_hash)}",
                shape=shape,
                replicas=members,
                branch_steps=lengths,
                model=spec.model,
                train=spec.train,
                execution=spec.execution,
                data_hash=data_hash or UNHASHED,
            )
        )
    return packs


def _runs(spec: Spec, planned: _Planned, pack: Pack, status_of: Callable[[str], str | None]) -> Iterator[Run]:
    for replica in pack.replicas:
        for steps, name in zip(pack.branch_steps, replica.run_ids, strict=True):
            status = status_of(name) or ""
            skip = _SKIP_REASONS.get(status)
            resumed = "continues from its checkpoint" if status in ("interrupted", "running") else ""
            yield Run(
                run_id=name,
                pack_id="" if planned.drop else pack.pack_id,
                shape=planned.shape,
                seed=replica.seed,
                learning_rate=replica.learning_rate,
                budget=planned.budget,
                steps=steps,
                tokens=steps * spec.train.batch_size * spec.train.seq_len,
                action=DROP if planned.drop else SKIP if skip else RUN,
                reason=planned.drop or "; ".join(part for part in (skip or resumed, planned.note) if part),
            )


def build(
    spec: Spec,
    *,
    data: DataFacts | None = None,
    finished: Mapping[str, str] = MappingProxyType({}),
    calibration: Calibration | None = None,
) -> Plan:
    """Expand a spec, arm by arm where it has arms.

    Args:
        spec: the validated spec.
        data: facts of the prepared store; None before ``prepare``.
        finished: status of earlier runs by id. ``done``, ``diverged``, ``failed`` and ``oom`` are skipped; leave out
        runs that are to be tried again.
        calibration: rates that `bench` measured.

    Raises:
        InputError: combinations that cannot be built or trained, all at once and each with its arm; a text too
            short for one batch.
    """
    if spec.grid.arms is None:
        plan = _planned_arm(spec, data, finished.get, calibration)
        return replace(plan, warnings=(*plan.warnings, *without_effect([spec])))
    arms = arms_of(spec)
    plans = []
    for number, (name, arm) in enumerate(arms):
        try:
            plan = _planned_arm(arm, data, finished.get, calibration)
        except InputError as error:
            raise InputError(*(f"grid.arms[{number}].{line}" for line in error.lines)) from None
        plans.append(replace(plan, runs=tuple(replace(run, arm=name) for run in plan.runs)))
    names = [name for name, _ in arms]
    _check_apart(plans, names)
    return Plan(
        spec=spec,
        runs=tuple(run for plan in plans for run in plan.runs),
        packs=tuple(pack for plan in plans for pack in plan.packs),
        warnings=(*_warnings(plans, names), *without_effect([arm for _, arm in arms])),
        data=plans[0].data,
        estimates=_together([plan.estimates for plan in plans]),
        lengths=plans[0].lengths,  # all share the key and its value
        arms=dict(zip(names, plans, strict=True)),
    )


def _check_apart(plans: Sequence[Plan], names: Sequence[str]) -> None:
    """Refuse arms that differ only in settings without an effect on results: their runs would coincide."""
    owner: dict[str, int] = {}
    for number, plan in enumerate(plans):
        for run in plan.runs:
            first = owner.setdefault(run.run_id, number)
            if first != number:
                raise InputError(
                    f"grid.arms[{number}]: {names[number]} trains the same runs as {names[first]}; must differ in "
                    "something that changes a result"
                )


def _warnings(plans: Sequence[Plan], names: Sequence[str]) -> tuple[str, ...]:
    """Merge the warnings: warnings of all arms once, the others with the name of their arm."""
    every = dict.fromkeys(line for plan in plans for line in plan.warnings)
    having = {line: [name for plan, name in zip(plans, names, strict=True) if line in plan.warnings] for line in every}
    return tuple(line if len(arms) == len(plans) else f"{', '.join(arms)}: {line}" for line, arms in having.items())


def _together(parts: Sequence[Estimates]) -> Estimates:
    seconds = [part.device_seconds for part in parts]
    summed = ("n_packs", "tokens", "flops", "flops_6nd", "checkpoint_bytes")
    totals: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in summed}
    return replace(
        parts[0],
        **totals,
        runs={key: value for part in parts for key, value in part.runs.items()},
        packs={key: value for part in parts for key, value in part.packs.items()},
        device_seconds=None if None in seconds else sum(second for second in seconds if second is not None),
        peak_memory_bytes=max(part.peak_memory_bytes for part in parts),
    )
