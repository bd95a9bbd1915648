"""Reports of ``dwsweep bench``: shapes measured here, and shapes compiled only."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group

from dwsweep.records.bench import BenchRow, CompiledRow
from dwsweep.report.console import render
from dwsweep.report.document import MISSING, Heading, Line, Lines, Part, TextTable, label, number
from dwsweep.text import format_bytes, format_count

UNKNOWN = "unknown"


def render_bench(rows: Sequence[BenchRow]) -> Group:
    """Report of measured shapes: rows of :func:`dwsweep.train.bench.bench`."""
    first = rows[0]
    devices = f"{first.devices} × {first.device_kind}" if first.devices > 1 else first.device_kind
    peak = f"{format_count(first.peak_flops or 0.0)} FLOP/s, {first.peak_basis}"
    legend = (
        f"{devices}; attention kernel {first.attention_kernel}. Steps and rates are of all replicas "
        f"(seeds and learning rates) of a pack together, best of three. MFU: achieved FLOP/s over {peak} in this call."
    )
    return render([_measured(rows), Lines([legend], soft=True, apart=True)])


def _recipes(rows: Sequence[BenchRow | CompiledRow]) -> list[str]:
    """Block and optimizer of each row; blank if all agree."""
    names = [row.recipe or "" for row in rows]
    return names if len(set(names)) > 1 else [""] * len(rows)


def _measured(rows: Sequence[BenchRow]) -> TextTable:
    columns = [*map(number, ("L", "d_x", "heads", "replicas", "compile", "step", "tokens/s", "MFU", "memory"))]
    table = TextTable("", [label("recipe"), *columns], ruled=False)
    for recipe, row in zip(_recipes(rows), rows, strict=True):
        table.add(
            recipe,
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
        said: list[Line] = [f"{_name(row)}: {', '.join(row.concessions)}" for row in of_target if row.concessions]
        said += [[(f"{_name(row)}: does not fit even so: {row.refused}", "yellow")] for row in of_target if row.refused]
        parts += [Heading(f"{where}: nothing was run"), _compiled(of_target), Lines(said)]
    store = "" if rows[0].n_train_tokens else ", without the token store, which is not prepared"
    legend = (
        "micro: sequences of each replica in a forward pass, r with activations recomputed. memory: the training "
        f"program on one device, by the compiler's own analysis{store}. FLOPs/step: the model's, by formula, of all "
        "replicas (seeds and learning rates) on all devices. XLA: FLOPs of one device's program as XLA states them, "
        "which counts the body of each loop (steps, layers, microbatches) once."
    )
    return render([*parts, Lines([legend], soft=True, apart=True)])


def _compiled(rows: Sequence[CompiledRow]) -> TextTable:
    numbers = [*map(number, ("L", "d_x", "N total", "replicas"))], [*map(number, ("micro", "compile", "memory"))]
    columns = [label("recipe"), *numbers[0], label("mesh"), *numbers[1], label("fits"), number("FLOPs/step")]
    table = TextTable("", [*columns, number("XLA")], ruled=False, apart=False)
    for recipe, row in zip(_recipes(rows), rows, strict=True):
        table.add(
            recipe,
            *(str(row.depth), str(row.width), format_count(row.n_params_total), str(row.replicas)),
            " ".join(f"{axis} {size}" for axis, size in row.mesh.items() if size > 1) or MISSING,
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
