"""Reports of ``dwsweep bench``: shapes measured here, and shapes compiled only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from rich.console import Group

from dwsweep.records.bench import BenchRow, CompiledRow
from dwsweep.report.console import render
from dwsweep.report.document import MISSING, Line, Lines, Part, Table, label, number
from dwsweep.text import format_bytes, format_count

UNKNOWN = "unknown"
Row = TypeVar("Row", BenchRow, CompiledRow)


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
        f"(seeds and learning rates) of a pack together, best of three. MFU: achieved FLOP/s over {peak} in this call."
    )
    return render([*parts, Lines([legend], soft=True, apart=True)])


def _by_recipe(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows grouped by block and optimizer; one unnamed group if all agree."""
    names = dict.fromkeys(row.recipe or "" for row in rows)
    if len(names) < 2:
        return {"": list(rows)}
    return {name: [row for row in rows if (row.recipe or "") == name] for name in names}


def _measured(rows: Sequence[BenchRow], apart: bool) -> Table:
    columns = [*map(number, ("L", "d_x", "heads", "replicas", "compile", "step", "tokens/s", "MFU", "memory"))]
    table = Table("", columns, keys=2, ruled=False, apart=apart)
    for row in rows:
        table.add(
            *map(str, (row.depth, row.width, row.heads, row.replicas)),
            f"{row.compile_seconds:.1f} s" if row.compile_seconds is not None else UNKNOWN,
            f"{1000 * row.step_seconds:.1f} ms" if row.step_seconds is not None else UNKNOWN,
            f"{row.tokens_per_second:,.0f}",
            f"{100 * row.mfu:.1f} %" if row.mfu is not None else UNKNOWN,
            f"{row.memory_bytes / 1e6:,.0f} MB" if row.memory_bytes else UNKNOWN,
        )
    return table


def render_compiled(rows: Sequence[CompiledRow]) -> Group:
    """Report of compiled shapes: rows of :func:`dwsweep.train.compile_only.compile_only`, a table per target or for the
    local device."""
    parts: list[Part] = []
    for target in dict.fromkeys(row.target for row in rows):
        of_target = [row for row in rows if row.target == target]
        where = f"{target}, compiled without it" if target else f"compiled for {of_target[0].device_kind}"
        for recipe, own in _by_recipe(of_target).items():
            head: list[Line] = [recipe] if recipe else []
            given_up: list[Line] = [f"{_name(row)}: {', '.join(row.concessions)}" for row in own if row.concessions]
            title: Line = [(f"{where}: nothing was run", "bold")]
            parts += [Lines([*head, title], apart=True), _compiled(own), Lines([*given_up, *_refusals(own)])]
    store = "" if rows[0].n_train_tokens else ", without the token store, which is not prepared"
    legend = (
        "micro: sequences of each replica in a forward pass, r with activations recomputed. memory: the training "
        f"program on one device, by the compiler's own analysis{store}. FLOPs/step: the model's, by formula, of all "
        "replicas (seeds and learning rates) on all devices. XLA: FLOPs of one device's program as XLA states them, "
        "which counts the body of each loop (steps, layers, microbatches) once."
    )
    return render([*parts, Lines([legend], soft=True, apart=True)])


def _compiled(rows: Sequence[CompiledRow]) -> Table:
    columns = [
        *map(number, ("L", "d_x", "N total", "replicas")),
        label("mesh"),
        *map(number, ("micro", "compile", "memory")),
        label("fits"),
        *map(number, ("FLOPs/step", "XLA")),
    ]
    table = Table("", columns, keys=2, ruled=False, apart=False)
    for row in rows:
        table.add(
            str(row.depth),
            str(row.width),
            format_count(row.n_params_total),
            str(row.replicas),
            _mesh(row),
            f"{row.microbatch}{'r' if row.remat else ''}",
            f"{row.compile_seconds:.1f} s",
            format_bytes(row.memory_bytes) if row.memory_bytes else UNKNOWN,
            "no" if row.refused else "yes",
            format_count(row.step_flops),
            format_count(row.xla_flops) if row.xla_flops else UNKNOWN,
        )
    return table


def _name(row: CompiledRow) -> str:
    return f"L{row.depth} d{row.width}"


def _refusals(rows: Sequence[CompiledRow]) -> list[Line]:
    return [[(f"{_name(row)}: does not fit even so: {row.refused}", "yellow")] for row in rows if row.refused]


def _mesh(row: CompiledRow) -> str:
    return " ".join(f"{axis} {size}" for axis, size in row.mesh.items() if size > 1) or MISSING
