"""What ``dwsweep bench`` measured, for a terminal of 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dwsweep.records.bench_rows import BenchRow, CompiledRow, PackingPoint
from dwsweep.report.terminal.folding import Folded
from dwsweep.text import format_count

UNKNOWN = "unknown"


def render(rows: Sequence[BenchRow]) -> Group:
    """Rows of :func:`dwsweep.train.bench.bench`."""
    first = rows[0]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("L", "d_x", "heads", "replicas", "compile", "step", "tokens/s", "MFU", "memory", "packing"):
        table.add_column(name, justify="left" if name == "packing" else "right", no_wrap=True)
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
    devices = f"{first.devices} × {first.device_kind}" if first.devices > 1 else first.device_kind
    peak = f"{format_count(first.peak_flops or 0.0)} FLOP/s, {first.peak_basis}"
    legend = (
        f"{devices}; attention kernel {first.attention_kernel}. Steps and rates are of all replicas "
        f"(seeds and learning rates) of a pack together, best of three. MFU: achieved FLOP/s over {peak} in this call. "
        "packing: rate of 1, 2, 4 … replicas over the rate of one."
    )
    return Group(Folded(table, keys=2), Text(), Text(legend, style="dim"))


def render_compiled(rows: Sequence[CompiledRow]) -> Group:
    """Rows of :func:`dwsweep.train.bench.compile_only`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("L", "d_x", "parameters", "replicas", "devices", "mesh", "microbatch", "compile", "state", "memory"):
        table.add_column(name, justify="left" if name == "mesh" else "right", no_wrap=True)
    for row in rows:
        mesh = " ".join(f"{axis} {size}" for axis, size in row.mesh.items() if size > 1)
        table.add_row(
            str(row.depth),
            str(row.width),
            f"{row.n_params_total:,}",
            str(row.replicas),
            str(row.devices),
            mesh or "–",
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
    return Group(Folded(table, keys=2), Text(), Text(legend, style="dim"))


def _packing(points: Sequence[PackingPoint]) -> str:
    alone = points[0].tokens_per_second
    return " ".join(f"{point.replicas}:{point.tokens_per_second / alone:.2f}" for point in points)
