"""A sweep's programs compiled and costed, with nothing trained or allocated: for the devices at hand as an
accelerator's, or for a device that is not here."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import numpy as np

from dwsweep.cost.compiled_costs import Collective, StepCost, axes_of, step_cost
from dwsweep.cost.devices import Device, find
from dwsweep.cost.duration import recipe_of
from dwsweep.cost.flops import training_flops_per_token
from dwsweep.cost.memory import PROGRAM_SHARE
from dwsweep.cost.roofline import roofline
from dwsweep.data.token_store import Store, token_dtype
from dwsweep.errors import InputError
from dwsweep.plan import Pack, Plan
from dwsweep.records.bench_rows import CollectiveRow, CompiledRow
from dwsweep.text import format_bytes
from dwsweep.train import targets
from dwsweep.train.choices import Hardware, at_hand, concessions
from dwsweep.train.program import Blueprint, fits, fitting_dispatch, memory_of


@dataclass(frozen=True)
class _LeastText:
    """In place of a token store that is not prepared: as many tokens as one batch needs."""

    n_train_tokens: int
    dtype: np.dtype


@dataclass(frozen=True)
class Place:
    """Devices to compile for."""

    hardware: Hardware
    target: str | None = None  # its name; None: at hand
    device: Device | None = None  # of the table of devices, for the roofline


def here(plan: Plan, counts: Sequence[int]) -> list[Place]:
    """So many of the devices at hand. A CPU's program is divided as an accelerator's would be, and a device's memory is
    what JAX may use of that of ``execution.device``, where the spec names one.

    Raises:
        InputError: there are fewer devices.
    """
    devices = jax.local_devices()
    if max(counts) > len(devices):
        raise InputError(f"--devices: {max(counts)}; allowed: at most {len(devices)}, which JAX found here")
    named = find(plan.spec.execution.device) if plan.spec.execution.device else None
    memory = int(named.usable_bytes) if named else None
    found = find(devices[0].device_kind)
    return [Place(at_hand(devices[:n], memory_bytes=memory, as_accelerator=True), device=found) for n in counts]


def elsewhere(names: Sequence[str]) -> list[Place]:
    """Devices that are not here, by the names that ``targets`` takes.

    Raises:
        InputError: no such target, or its compiler is not installed.
    """
    places = []
    for target in map(targets.target, names):
        memory = int(target.device.usable_bytes)
        hardware = replace(at_hand(target.devices, memory_bytes=memory, as_accelerator=True), is_here=False)
        places.append(Place(hardware, target.name, target.device))
    return places


def compile_only(plan: Plan, store: Store | None, places: Sequence[Place]) -> Iterator[CompiledRow]:
    """Compile each shape of ``plan`` for each of ``places``, without allocating a model; yields a row at once.

    No text is needed: without a ``store`` the memory is that of a program whose token store takes next to none.
    """
    train = plan.spec.train
    least = _LeastText(train.batch_size * train.seq_len + 1, token_dtype(plan.spec.data.vocab_size))
    text = store or cast(Store, least)
    shapes = {(pack.shape, pack.train.optimizer): pack for pack in reversed(plan.packs)}
    for pack in reversed(shapes.values()):
        for place in places:
            yield _row(pack, text, place, store.n_train_tokens if store else None)


def _row(pack: Pack, text: Store, place: Place, n_train_tokens: int | None) -> CompiledRow:
    began = time.monotonic()
    first, blueprint, compiled, refusal = fitting_dispatch(Blueprint.of(pack, text, place.hardware))
    seconds = time.monotonic() - began
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
        batch_size=train.batch_size,
        compile_seconds=seconds,
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
    """Why a program does not fit: the compiler's words, or by its own analysis; None where it does."""
    if refusal is not None:
        return str(refusal).partition(": ")[2].partition("\n")[0]
    needed = memory_of(compiled)
    if limit is None or needed is None or fits(compiled, limit):
        return None
    return f"it takes {format_bytes(needed)}, and a program may take {format_bytes(PROGRAM_SHARE * limit)}"


def _costed(row: CompiledRow, cost: StepCost, device: Device | None) -> CompiledRow:
    """With what one step costs."""
    row = replace(
        row,
        kernels=cost.launches,
        traffic_bytes=cost.traffic.bytes,
        padded_traffic_bytes=cost.traffic.padded,
        product_flops=cost.products.flops,
        padded_product_flops=cost.products.padded,
        collectives=_collectives(cost.collectives, row.mesh),
    )
    return row if device is None or row.refused else _timed(row, cost, device)


def _timed(row: CompiledRow, cost: StepCost, device: Device) -> CompiledRow:
    """With what follows from the roofline of ``device``."""
    assert row.seq_len is not None and row.flops_per_token is not None
    found = roofline(cost, device)
    rate = row.replicas * row.batch_size * row.seq_len / found.seconds
    return replace(
        row,
        roofline_seconds=found.seconds,
        products_seconds=found.products_seconds,
        traffic_seconds=found.traffic_seconds,
        launch_seconds=found.launch_seconds,
        link_seconds=found.link_seconds,
        bound=found.bound,
        tokens_per_second=rate,
        mfu=rate * row.flops_per_token / (row.devices * device.peak_flops),
    )


def _collectives(found: Sequence[Collective], mesh: dict[str, int]) -> tuple[CollectiveRow, ...]:
    """By kind and the axes along which they exchange, the heaviest first."""
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
