"""Programs compiled without training: memory and cost of each shape of a plan, on devices here or elsewhere."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from dwsweep.cost.arithmetic import PROGRAM_SHARE, training_flops_per_token
from dwsweep.cost.devices import Device
from dwsweep.cost.duration import recipe_of
from dwsweep.cost.roofline import Collective, StepCost, roofline
from dwsweep.data.token_store import Store, token_dtype
from dwsweep.plan import Pack, Plan
from dwsweep.plan.schedule import pack_steps
from dwsweep.records.bench import CollectiveRow, CompiledRow
from dwsweep.text import format_bytes
from dwsweep.train.choices import concessions
from dwsweep.train.kernels import axes_of, step_cost
from dwsweep.train.program import Blueprint, fits, fitting_dispatch, memory_of
from dwsweep.train.targets import Place


@dataclass(frozen=True)
class LeastText:
    """Stand-in for a token store before ``prepare``: as many tokens as one batch needs."""

    n_train_tokens: int
    dtype: np.dtype


def compile_only(
    plan: Plan, store: Store | None, places: Sequence[Place], *, nominal_length: bool = False
) -> Iterator[CompiledRow]:
    """Compile each shape of ``plan`` for each of ``places``, without allocating a model; yields a row at once.

    No text is needed: without a ``store`` the memory is that of a program whose token store takes next to none.
    ``nominal_length``: the sweep's own length follows from rates, and the rows do not name the plan's.
    """
    train = plan.spec.train
    least = LeastText(train.batch_size * train.seq_len + 1, token_dtype(plan.spec.data.vocab_size))
    text = store or cast(Store, least)
    shapes: dict[Any, list[Pack]] = {}
    for pack in plan.packs:
        shapes.setdefault((pack.shape, pack.train.optimizer), []).append(pack)
    for pack, *others in shapes.values():
        steps = None if nominal_length else sum(map(pack_steps, (pack, *others)))
        for place in places:
            row = _row(pack, text, place, store.n_train_tokens if store else None)
            yield replace(row, training_steps=steps)


def _row(pack: Pack, text: Store, place: Place, n_train_tokens: int | None) -> CompiledRow:
    began, cpu_began = time.monotonic(), sum(os.times()[:4])
    first, blueprint, compiled, refusal = fitting_dispatch(Blueprint.of(pack, text, place.hardware))
    seconds, cpu_seconds = time.monotonic() - began, sum(os.times()[:4]) - cpu_began
    shape, train, choices = pack.shape, pack.train, blueprint.choices
    needed = None if compiled is None else memory_of(compiled)
    row = CompiledRow(
        device_kind=choices.hardware.device.device_kind,
        depth=shape.depth,
        width=shape.width,
        n_params_total=shape.n_params_total,
        replicas=len(pack.replicas),
        devices=choices.layout.size,
        mesh=choices.layout.sizes,
        microbatch=choices.microbatch,
        remat=choices.compute.remat,
        unroll=choices.compute.unroll,
        batch_size=train.batch_size,
        compile_seconds=seconds,
        compile_cpu_seconds=cpu_seconds,
        memory_bytes=needed,
        state_bytes=blueprint.state_bytes,
        n_train_tokens=n_train_tokens,
        target=place.target,
        heads=shape.heads,
        head_size=shape.head_size,
        seq_len=train.seq_len,
        vocab_size=shape.vocab_size,
        precision=train.precision,
        concessions=tuple(concessions(first, choices, pack)),
        refused=_refused(refusal, compiled, place.hardware.memory_bytes),
        flops_per_token=training_flops_per_token(shape),
        recipe=recipe_of(shape, train.optimizer),
    )
    return row if compiled is None else _costed(row, step_cost(compiled.as_text()), place.device)


def _refused(refusal: Exception | None, compiled: Any, limit: int | None) -> str | None:
    """Reason why a program does not fit, from the compiler's error or its analysis; None if it fits."""
    if refusal is not None:
        return str(refusal).partition(": ")[2].partition("\n")[0]
    needed = memory_of(compiled)
    if limit is None or needed is None or fits(compiled, limit):
        return None
    return f"it takes {format_bytes(needed)}, and a program may take {format_bytes(PROGRAM_SHARE * limit)}"


def _costed(row: CompiledRow, cost: StepCost, device: Device | None) -> CompiledRow:
    """Add the cost of one step to a row, and the roofline of ``device`` where it fits there."""
    row = replace(
        row,
        kernels=cost.launches,
        traffic_bytes=cost.bytes,
        program_flops=cost.flops,
        collectives=_collectives(cost.collectives, row.mesh),
    )
    if device is None or row.refused:
        return row
    assert row.seq_len is not None and row.flops_per_token is not None and row.precision is not None
    found = roofline(cost, device, row.precision)
    rate = row.replicas * row.batch_size * row.seq_len / found.roofline_seconds
    mfu = rate * row.flops_per_token / (row.devices * device.peak_flops)
    return replace(row, **vars(found), tokens_per_second=rate, mfu=mfu)


def _collectives(found: Sequence[Collective], mesh: dict[str, int]) -> tuple[CollectiveRow, ...]:
    """Group collectives by kind and axes, the heaviest first."""
    groups: dict[tuple[str, tuple[str, ...]], list[Collective]] = defaultdict(list)
    for one in found:
        groups[one.kind, axes_of(one.groups, mesh)].append(one)
    rows = [
        CollectiveRow(
            kind,
            axes,
            sum(one.times for one in ones),
            sum(one.times * one.bytes for one in ones),
            max(one.bytes for one in ones),
        )
        for (kind, axes), ones in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))
