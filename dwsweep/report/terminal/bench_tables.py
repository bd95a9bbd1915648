"""What ``dwsweep bench`` measured or compiled, for a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dwsweep.records.run import BenchRow, CompiledRow, PackingPoint
from dwsweep.report.terminal.folding import Folded
from dwsweep.text import format_bytes, format_count

UNKNOWN = "unknown"
Row = TypeVar("Row", BenchRow, CompiledRow)
LEAST_PRODUCTS = 0.98
"""Of the FLOPs that a model needs, what the products of its program come to at least."""


def render(rows: Sequence[BenchRow]) -> Group:
    """Rows of :func:`dwsweep.train.bench.bench`."""
    first = rows[0]
    parts: list[Any] = []
    for recipe, own in _by_recipe(rows).items():
        parts += [*_heading(recipe), Folded(_measured(own), keys=2), Text()]
    devices = f"{first.devices} × {first.device_kind}" if first.devices > 1 else first.device_kind
    peak = f"{format_count(first.peak_flops or 0.0)} FLOP/s, {first.peak_basis}"
    legend = (
        f"{devices}; attention kernel {first.attention_kernel}. Steps and rates are of all replicas "
        f"(seeds and learning rates) of a pack together, best of three. MFU: achieved FLOP/s over {peak} in this call. "
        "packing: rate of 1, 2, 4 … replicas over the rate of one."
    )
    return Group(*parts, Text(legend, style="dim"))


def _by_recipe(rows: Sequence[Row]) -> dict[str | None, list[Row]]:
    """Rows by block and optimizer; together under None where all have the same."""
    names = dict.fromkeys(row.recipe for row in rows)
    if len(names) < 2:
        return {None: list(rows)}
    return {name: [row for row in rows if row.recipe == name] for name in names}


def _heading(recipe: str | None) -> list[Text]:
    return [Text(recipe)] if recipe else []


def _measured(rows: Sequence[BenchRow]) -> Table:
    names = ("L", "d_x", "heads", "replicas", "compile", "step", "tokens/s", "MFU", "memory", "packing")
    table = _table(names, left=("packing",))
    for row in rows:
        table.add_row(
            str(row.depth),
            str(row.width),
            str(row.heads),
            str(row.replicas),
            f"{row.compile_seconds:.1f} s" if row.compile_seconds is not None else UNKNOWN,
            f"{1000 * row.step_seconds:.1f} ms" if row.step_seconds is not None else UNKNOWN,
            f"{row.tokens_per_second:,.0f}",
            f"{100 * row.mfu:.1f} %" if row.mfu is not None else UNKNOWN,
            f"{row.memory_bytes / 1e6:,.0f} MB" if row.memory_bytes else UNKNOWN,
            _packing(row.packing),
        )
    return table


def render_compiled(rows: Sequence[CompiledRow]) -> Group:
    """Rows of :func:`dwsweep.train.compile_only.compile_only`: a table for each target, or one of the devices here."""
    targets = dict.fromkeys(row.target for row in rows)
    parts: list[Any] = []
    for target in targets:
        for recipe, own in _by_recipe([row for row in rows if row.target == target]).items():
            of = _compiled_here(own) if target is None else _compiled_for(target, own)
            parts += [Text(), *_heading(recipe), *of]
    if any(targets):
        parts += [Text(), Text(_TARGET_LEGEND, style="dim")]
    return Group(*parts[1:])


def _compiled_here(rows: Sequence[CompiledRow]) -> list[Any]:
    names = ("L", "d_x", "parameters", "replicas", "devices", "mesh", "microbatch", "compile", "state", "memory")
    table = _table(names, left=("mesh",))
    for row in rows:
        table.add_row(
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
        f"Compiled for {rows[0].device_kind}; nothing was trained or allocated. Of one device: state, parameters "
        "and moments; memory, the whole training program, by the compiler's own analysis, which differs between "
        f"backends{text}."
    )
    return [Folded(table, keys=2), *_refusals(rows), Text(), Text(legend, style="dim")]


def _compiled_for(target: str, rows: Sequence[CompiledRow]) -> list[Any]:
    names = [
        "L",
        "d_x",
        "mesh",
        "micro",
        "compile",
        "memory",
        "kernels",
        "traffic",
        "padding",
        "step ≥",
        "MFU ≤",
        "bound",
    ]
    table = _table(names, left=("mesh", "bound"), gap=1)
    for row in rows:
        table.add_row(
            str(row.depth),
            str(row.width),
            _mesh(row),
            f"{row.microbatch}{'r' if row.remat else ''}",
            f"{row.compile_seconds:.0f} s",
            format_bytes(row.memory_bytes) if row.memory_bytes else UNKNOWN,
            f"{row.kernels:,}" if row.kernels is not None else UNKNOWN,
            format_bytes(row.traffic_bytes) if row.traffic_bytes else UNKNOWN,
            _padding(row),
            f"{1000 * row.roofline_seconds:.1f} ms" if row.roofline_seconds else UNKNOWN,
            f"{100 * row.mfu:.1f} %" if row.mfu is not None else UNKNOWN,
            row.bound or UNKNOWN,
        )
    return [
        Text(f"{target}, compiled without it: nothing was run", style="bold"),
        Folded(table, keys=2),
        *_exchanges(rows),
        *(Text(f"L{row.depth} d{row.width}: {', '.join(row.concessions)}") for row in rows if row.concessions),
        *_refusals(rows),
        *_doubts(rows),
    ]


_TARGET_LEGEND = (
    "Of one device and one step of all replicas (seeds and learning rates) of a pack. micro: sequences of each replica "
    "in a forward pass, r with activations recomputed. traffic: bytes read and written in the device's memory, loops "
    "multiplied out. padding: what rounding up to whole tiles adds to the traffic and to the products. step ≥, MFU ≤: "
    "a roofline, kernel by kernel, that no run reaches; bound: what takes most of it (products, traffic, launches, "
    "links)."
)


def _exchanges(rows: Sequence[CompiledRow]) -> list[Text]:
    """What a step exchanges between devices, a line per shape."""
    lines = []
    for row in rows:
        parts = [
            f"{one.times} {one.kind} over {' and '.join(one.axes) or 'one device'}, {format_bytes(one.bytes)}"
            for one in row.collectives
        ]
        if parts:
            lines.append(Text(f"L{row.depth} d{row.width}: {'; '.join(parts)}"))
        elif row.devices > 1 and row.kernels is not None:
            lines.append(Text(f"L{row.depth} d{row.width}: no exchange between the devices"))
    return lines


def _refusals(rows: Sequence[CompiledRow]) -> list[Text]:
    return [
        Text(f"L{row.depth} d{row.width}: does not fit even so: {row.refused}", style="yellow")
        for row in rows
        if row.refused
    ]


def _doubts(rows: Sequence[CompiledRow]) -> list[Text]:
    """Where fewer products were found in a program than its model needs: its text was not understood."""
    found = []
    for row in rows:
        if row.product_flops is None or row.flops_per_token is None or row.seq_len is None:
            continue
        needed = row.flops_per_token * row.replicas * row.batch_size * row.seq_len / row.devices
        if row.product_flops < LEAST_PRODUCTS * needed:
            found.append(
                Text(
                    f"L{row.depth} d{row.width}: only {row.product_flops / needed:.0%} of the model's FLOPs were found "
                    "in the program's matrix products; its figures are too low",
                    style="yellow",
                )
            )
    return found


def _padding(row: CompiledRow) -> str:
    """Of traffic and of products; a GPU's compiler pads neither."""
    if row.device_kind.startswith("TPU") and row.traffic_bytes and row.product_flops:
        traffic = (row.padded_traffic_bytes or 0.0) / row.traffic_bytes - 1
        return f"{traffic:.0%}, {(row.padded_product_flops or 0.0) / row.product_flops - 1:.0%}"
    return "–"


def _mesh(row: CompiledRow) -> str:
    return " ".join(f"{axis} {size}" for axis, size in row.mesh.items() if size > 1) or "–"


def _table(names: Sequence[str], left: Sequence[str], gap: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for name in names:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    return table


def _packing(points: Sequence[PackingPoint]) -> str:
    alone = points[0].tokens_per_second
    return " ".join(f"{point.replicas}:{point.tokens_per_second / alone:.2f}" for point in points)
