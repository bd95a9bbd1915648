"""Reports of ``dwsweep bench``: shapes measured here, and shapes compiled only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rich.console import Group

from dwsweep.cost.duration import SweepSeconds, sweep_seconds
from dwsweep.records.bench import BenchRow, CompiledRow, PackingPoint
from dwsweep.report.console import render
from dwsweep.report.document import MISSING, Line, Lines, Part, Table, label, number
from dwsweep.text import format_bytes, format_count

UNKNOWN = "unknown"
Row = TypeVar("Row", BenchRow, CompiledRow)
LEAST_FLOPS = 0.98
"""Least share of a model's FLOPs that XLA must count in its program; below it a part was not counted."""


def render_bench(rows: Sequence[BenchRow]) -> Group:
    """Report of measured shapes: rows of :func:`dwsweep.train.bench.bench`."""
    first = rows[0]
    parts: list[Part] = []
    for recipe, own in _by_recipe(rows).items():
        parts += [Lines([recipe] if recipe else [], apart=True), _measured(own, apart=not recipe)]
    devices = f"{first.devices} × {first.device_kind}" if first.devices > 1 else first.device_kind
    peak = f"{format_count(first.peak_flops or 0.0)} FLOP/s, {first.peak_basis}"
    legend = (
        f"{devices}; attention kernel {first.attention_kernel}. Steps and rates are of all replicas "
        f"(seeds and learning rates) of a pack together, best of three. MFU: achieved FLOP/s over {peak} in this call. "
        "packing: rate of 1, 2, 4 … replicas over the rate of one."
    )
    return render([*parts, Lines([legend], soft=True, apart=True)])


def _by_recipe(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows grouped by block and optimizer; one unnamed group if all agree."""
    names = dict.fromkeys(row.recipe or "" for row in rows)
    if len(names) < 2:
        return {"": list(rows)}
    return {name: [row for row in rows if (row.recipe or "") == name] for name in names}


def _measured(rows: Sequence[BenchRow], apart: bool) -> Table:
    columns = [
        *map(number, ("L", "d_x", "heads", "replicas", "compile", "step", "tokens/s", "MFU", "memory")),
        label("packing"),
    ]
    table = Table("", columns, keys=2, ruled=False, apart=apart)
    for row in rows:
        table.add(
            *map(str, (row.depth, row.width, row.heads, row.replicas)),
            f"{row.compile_seconds:.1f} s" if row.compile_seconds is not None else UNKNOWN,
            f"{1000 * row.step_seconds:.1f} ms" if row.step_seconds is not None else UNKNOWN,
            f"{row.tokens_per_second:,.0f}",
            f"{100 * row.mfu:.1f} %" if row.mfu is not None else UNKNOWN,
            f"{row.memory_bytes / 1e6:,.0f} MB" if row.memory_bytes else UNKNOWN,
            _packing(row.packing),
        )
    return table


def render_compiled(rows: Sequence[CompiledRow]) -> Group:
    """Report of compiled shapes: rows of :func:`dwsweep.train.compile_only.compile_only`, a table per target or for the
    local devices."""
    parts: list[Part] = []
    targets = dict.fromkeys(row.target for row in rows)
    for target in targets:
        for recipe, own in _by_recipe([row for row in rows if row.target == target]).items():
            head: list[Line] = [recipe] if recipe else []
            parts += _compiled_here(own, head) if target is None else _compiled_for(target, own, head)
        if target and (found := sweep_seconds([row for row in rows if row.target == target])):
            parts.append(Lines([_whole_sweep(found)], soft=True))
    if any(targets):
        parts.append(Lines([_TARGET_LEGEND], soft=True, apart=True))
    return render(parts)


def _compiled_here(rows: Sequence[CompiledRow], head: list[Line]) -> list[Part]:
    columns = [
        *map(number, ("L", "d_x", "parameters", "replicas", "devices")),
        label("mesh"),
        *map(number, ("microbatch", "compile", "state", "memory")),
    ]
    table = Table("", columns, keys=2, ruled=False, apart=not head)
    for row in rows:
        table.add(
            str(row.depth),
            str(row.width),
            f"{row.n_params_total:,}",
            str(row.replicas),
            str(row.devices),
            _mesh(row),
            f"{row.microbatch} of {row.batch_size}",
            f"{row.compile_seconds:.1f} s",
            f"{row.state_bytes / 1e9:,.2f} GB",
            f"{row.memory_bytes / 1e9:,.2f} GB" if row.memory_bytes else UNKNOWN,
        )
    text = "" if rows[0].n_train_tokens else "; without the token store, which is not prepared"
    legend = (
        f"Compiled for {rows[0].device_kind}; nothing was trained or allocated. Per device: state, parameters "
        "and moments; memory, the whole training program, by the compiler's own analysis, which differs between "
        f"backends{text}."
    )
    return [Lines(head, apart=True), table, Lines(_refusals(rows)), Lines([legend], soft=True, apart=True)]


def _compiled_for(target: str, rows: Sequence[CompiledRow], head: list[Line]) -> list[Part]:
    columns = [
        number("L"),
        number("d_x"),
        label("mesh"),
        *map(number, ("micro", "compile", "memory", "kernels", "traffic", "step ≥", "MFU ≤")),
        label("bound"),
    ]
    table = Table("", columns, keys=2, ruled=False, gap=1, apart=False)
    for row in rows:
        table.add(
            str(row.depth),
            str(row.width),
            _mesh(row),
            f"{row.microbatch}{'r' if row.remat else ''}",
            f"{row.compile_seconds:.0f} s",
            format_bytes(row.memory_bytes) if row.memory_bytes else UNKNOWN,
            f"{row.kernels:,}" if row.kernels is not None else UNKNOWN,
            format_bytes(row.traffic_bytes) if row.traffic_bytes else UNKNOWN,
            f"{1000 * row.roofline_seconds:.1f} ms" if row.roofline_seconds else UNKNOWN,
            f"{100 * row.mfu:.1f} %" if row.mfu is not None else UNKNOWN,
            row.bound or UNKNOWN,
        )
    title: Line = [(f"{target}, compiled without it: nothing was run", "bold")]
    given_up: list[Line] = [f"{_name(row)}: {', '.join(row.concessions)}" for row in rows if row.concessions]
    below = [*_exchanges(rows), *given_up, *_refusals(rows), *_doubts(rows)]
    return [Lines([*head, title], apart=True), table, Lines(below)]


def _whole_sweep(found: SweepSeconds) -> Line:
    cpu = "" if found.compiling_cpu is None else f" ({found.compiling_cpu:,.0f} s of CPU)"
    programs = "1 program" if found.programs == 1 else f"{found.programs} programs"
    return (
        f"The sweep: {programs} compiled in {found.compiling:,.0f} s{cpu}, {found.training:,.0f} s of training at the "
        f"roofline: {found.compiling / found.training:.2f} to 1. Each program compiles while the one before it trains: "
        f"{found.waiting:,.0f} s of waiting are left."
    )


_TARGET_LEGEND = (
    "Per device, for one step of all replicas (seeds and learning rates) of a pack. micro: sequences of each replica "
    "in a forward pass, r with activations recomputed. traffic: bytes read and written in the device's memory by XLA's "
    "cost analysis, loops multiplied out. step ≥, MFU ≤: a roofline, kernel by kernel, that no run reaches; bound: the "
    "part that takes most of it (products, traffic, launches, links)."
)


def _name(row: CompiledRow) -> str:
    return f"L{row.depth} d{row.width}"


def _exchanges(rows: Sequence[CompiledRow]) -> list[Line]:
    """Lines on the exchanges of a step between devices, one per shape."""
    lines: list[Line] = []
    for row in rows:
        parts = [
            f"{one.times} {one.kind} over {' and '.join(one.axes) or 'one device'}, {format_bytes(one.bytes)}"
            for one in row.collectives
        ]
        if parts:
            lines.append(f"{_name(row)}: {'; '.join(parts)}")
        elif row.devices > 1 and row.kernels is not None:
            lines.append(f"{_name(row)}: no exchange between the devices")
    return lines


def _refusals(rows: Sequence[CompiledRow]) -> list[Line]:
    return [[(f"{_name(row)}: does not fit even so: {row.refused}", "yellow")] for row in rows if row.refused]


def _doubts(rows: Sequence[CompiledRow]) -> list[Line]:
    """Warnings of programs in which XLA counts fewer FLOPs than the model needs, as in a call of a library."""
    found: list[Line] = []
    for row in rows:
        if row.program_flops is None or row.flops_per_token is None or row.seq_len is None:
            continue
        needed = row.flops_per_token * row.replicas * row.batch_size * row.seq_len / row.devices
        if row.program_flops < LEAST_FLOPS * needed:
            text = (
                f"{_name(row)}: only {row.program_flops / needed:.0%} of the model's FLOPs were found in the program; "
                "its figures are too low"
            )
            found.append([(text, "yellow")])
    return found


def _mesh(row: CompiledRow) -> str:
    return " ".join(f"{axis} {size}" for axis, size in row.mesh.items() if size > 1) or MISSING


def _packing(points: Sequence[PackingPoint]) -> str:
    alone = points[0].tokens_per_second
    return " ".join(f"{point.replicas}:{point.tokens_per_second / alone:.2f}" for point in points)
