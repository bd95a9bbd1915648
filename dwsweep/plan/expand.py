"""Spec → plan: matched shapes, seeds, learning rates, packs; RUN, SKIP or DROP with the reason.

Arms are planned one after the other. Each run has the id that it has in a sweep of its arm alone: an arm is a recipe,
and what is trained already is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType

from dwsweep.cost.duration import Calibration
from dwsweep.data.batches import check_enough
from dwsweep.errors import InputError
from dwsweep.plan.cautions import cautions, without_effect
from dwsweep.plan.clock import clock_of
from dwsweep.plan.ids import UNHASHED, content_hash, result_facts, run_id
from dwsweep.plan.lengths import RunLengths
from dwsweep.plan.refusals import device_errors, head_errors, length_errors, pack_members, size_errors
from dwsweep.plan.units import DataFacts, Plan, Run, estimate, misfits
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


def _runs(spec: Spec, arm: str, planned: _Planned, pack: Pack, finished: Mapping[str, str]) -> Iterator[Run]:
    for replica in pack.replicas:
        for steps, name in zip(pack.branch_steps, replica.run_ids, strict=True):
            status = finished.get(name, "")
            skip = _SKIP_REASONS.get(status)
            resumed = "continues from its checkpoint" if status in ("interrupted", "running") else ""
            yield Run(
                spec=spec,
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
                arm=arm,
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
    arms = arms_of(spec)
    parts: list[tuple[list[Run], list[Pack]]] = []
    for number, (name, arm) in enumerate(arms):
        try:
            parts.append(_runs_and_packs(arm, name, data, finished))
        except InputError as error:
            if spec.grid.arms is None:
                raise
            raise InputError(*(f"grid.arms[{number}].{line}" for line in error.lines)) from None
    runs, packs = (tuple(chain(*column)) for column in zip(*parts, strict=True))
    _check_apart(runs)
    # an arm with a time names the basis of the times: the sweep's own spec may have another precision
    timed = next((arm for _, arm in arms if arm.train.precision == "bfloat16"), arms[0][1])
    estimates = estimate(runs, packs, data, clock_of(timed, calibration))
    warnings = [
        [*misfits(estimates, packs_of), *cautions(RunLengths(arm), runs_of, data)]
        for (_, arm), (runs_of, packs_of) in zip(arms, parts, strict=True)
    ]
    own = without_effect([arm for _, arm in arms])
    return Plan(
        spec=spec,
        runs=runs,
        packs=packs,
        warnings=(*_joined(warnings, [name for name, _ in arms]), *own),
        data=data,
        estimates=estimates,
    )


def _runs_and_packs(
    spec: Spec, arm: str, data: DataFacts | None, finished: Mapping[str, str]
) -> tuple[list[Run], list[Pack]]:
    """Runs and packs of an arm, in their order.

    Raises:
        InputError: all that is wrong with its spec.
    """
    lengths = RunLengths(spec)
    errors = [*head_errors(spec), *device_errors(spec), *size_errors(spec)]
    candidates = [] if errors else _shapes(spec)
    errors += length_errors(lengths, [planned.shape for planned in candidates if not planned.drop])
    if errors:
        raise InputError(*errors)
    if data is not None:
        check_enough(data.n_train_tokens, spec.train.seq_len, spec.train.batch_size)
    runs: list[Run] = []
    packs: list[Pack] = []
    for planned in candidates:
        made = _packs(spec, planned, lengths.branch_steps(planned.shape), data.data_hash if data else None)
        packs += [] if planned.drop else made
        runs += [run for pack in made for run in _runs(spec, arm, planned, pack, finished)]
    return runs, packs


def _check_apart(runs: Sequence[Run]) -> None:
    """Refuse arms that differ only in settings without an effect on results: their runs would coincide."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(run.arm for run in runs))}
    owner: dict[str, str] = {}
    for run in runs:
        if (first := owner.setdefault(run.run_id, run.arm)) != run.arm:
            raise InputError(
                f"grid.arms[{numbers[run.arm]}]: {run.arm} trains the same runs as {first}; must differ in something "
                "that changes a result"
            )


def _joined(warnings: Sequence[Sequence[str]], names: Sequence[str]) -> Iterator[str]:
    """Warnings of all arms once, the others with the names of their arms."""
    for line in dict.fromkeys(chain(*warnings)):
        arms = [name for name, lines in zip(names, warnings, strict=True) if line in lines]
        yield line if len(arms) == len(names) else f"{', '.join(arms)}: {line}"
