"""What ``dwsweep bench`` measured or compiled, and what ``dwsweep theory`` says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Group
from rich.table import Table
from rich.text import Text

from dwsweep import published_law
from dwsweep.records.run import BenchRow, CompiledRow, PackingPoint
from dwsweep.report.terminal import Folded
from dwsweep.text import format_bytes, format_count
from dwsweep.theory import DEPTH_EFFICIENT, RankCheck

if TYPE_CHECKING:
    from dwsweep.theory import HeadCheck


UNKNOWN = "unknown"
Row = TypeVar("Row", BenchRow, CompiledRow)
LEAST_PRODUCTS = 0.98
"""Of the FLOPs that a model needs, what the products of its program come to at least."""


def render_bench(rows: Sequence[BenchRow]) -> Group:
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


def render_theory(facts: dict[str, Any]) -> Group:
    """:func:`dwsweep.theory.summary`: a table of quantities, then what it means in words."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("quantity", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("note", style="dim", overflow="fold")
    width, depth = facts["width"], facts["depth"]
    table.add_row("width d_x, heads H", f"{width:,}, {facts['heads']}")
    table.add_row("threshold depth log_3 d_x", f"{facts['threshold_depth']:.2f}", "theory, nets without softmax")
    fitted = facts["published_transition_depth"]
    table.add_row(
        "fitted transition depth",
        f"{fitted:.1f}" if fitted > 0 else "none",
        f"(ln d_x − {published_law.A}) / {published_law.B}, trained nets of Levine et al. 2020, depths 6 to 48",
    )
    if depth is None:
        more = Text("\nGive --depth for the regime, the bounds and the width a shallower net needs.")
        return Group(Folded(table), more)
    eq = "7" if facts["regime"] == DEPTH_EFFICIENT else "8"
    low, high = facts["log3_separation_rank_lower"], facts["log3_separation_rank_upper"]
    table.add_row("depth L", str(depth), f"mixes (3^L − 1)/2 = {facts['mixed_inputs']:.4g} copies of the input")
    table.add_row("regime", facts["regime"], f"L {'<' if eq == '7' else '≥'} log_3 d_x, eq. ({eq})")
    table.add_row("log_3 separation rank ≥", f"{low:,.1f}" if low > 0 else "0", "" if low > 0 else "the bound is empty")
    table.add_row("log_3 separation rank ≤", f"{high:,.1f}")
    table.add_row(
        "fitted transition of this depth",
        f"d_x = {facts['published_transition_width']:,.0f}",
        f"N = {format_count(facts['published_transition_n_params'])} non-embedding parameters",
    )
    parts: list[Any] = [Folded(table), Text(), Folded(_theorems(facts["theorems"]))]
    if facts["widths_needed"]:
        needed = Table(box=None, pad_edge=False, title="\nWidth that a shallower net needs", title_justify="left")
        needed.add_column("depth", justify="right")
        needed.add_column("d_x at least", justify="right")
        needed.add_column("times this width", justify="right", overflow="fold")
        for row in facts["widths_needed"]:
            exponent, times = row["log10_width"], row["log10_width"] - math.log10(width)
            if times < 0:
                needed.add_row(str(row["depth"]), "–", "the bounds do not require a wider one")
            else:
                needed.add_row(str(row["depth"]), _power_of_ten(exponent), _power_of_ten(times))
        parts += [needed, Text("for its upper bound to reach the lower bound of this net", style="dim")]
    if facts["regime"] == DEPTH_EFFICIENT:
        words = (
            "Below the threshold: depth is used well. A net of fewer layers must be wider by a factor that grows "
            "double-exponentially with the ratio of the depths."
        )
    else:
        words = (
            "Beyond the threshold: the rank grows with d_x·L, so that a layer more and width in proportion do about "
            "the same."
        )
    parts.append(Text(f"\n{words} Trained nets (the fit) pass their transition at a far greater depth than log_3 d_x."))
    return Group(*parts)


def _theorems(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, title="Bounds of log_3 of the separation rank")
    for name in ("eq.", "applies", "lower", "upper", "constants"):
        table.add_column(name, justify="right" if name in ("lower", "upper") else "left", no_wrap=name != "constants")
    for row in rows:
        constants = ", ".join(f"{name} {value:,.4g}" for name, value in row["constants"].items())
        lower = f"{row['lower']:,.1f}" if row["lower"] > 0 else "empty"
        applies = "yes" if row["applies"] else "no"
        table.add_row(f"({row['equation']})", applies, lower, f"{row['upper']:,.1f}", constants)
    return table


def render_ranks(checks: Sequence[RankCheck], heads: Sequence[HeadCheck]) -> Group:
    """The ranks that were measured, and whether they are what the theorems say."""
    table = Table(box=None, pad_edge=False, title="Separation rank of random analysed networks, exact")
    for name in ("L", "d_x", "H", "bound ≥", "rank", "bound ≤", "partitions", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
    for row in checks:
        ranks = sorted(set(row.ranks))
        verdict = "; ".join(row.wrong) or "as stated"
        table.add_row(
            *map(str, (row.depth, row.width, row.heads)),
            f"{3**row.lower:,.1f}",
            " ≠ ".join(map(str, ranks)),
            f"{3**row.upper:,.0f}",
            str(len(row.ranks)),
            verdict,
        )
    wrong = sum(bool(row.wrong) for row in checks)
    words = (
        "Every rank lies between the bounds, is the same for every balanced partition, and grows with depth and width."
        if not wrong
        else f"{wrong} of {len(checks)} networks are NOT as the theorems say."
    )
    return Group(Folded(table, keys=3), Text(f"\n{words}"), _heads(heads))


def _heads(checks: Sequence[HeadCheck]) -> Group:
    """What heads of each size do with one attention matrix, and whether it is what its rank says."""
    n, needed = checks[0].positions, checks[0].needed
    table = Table(box=None, pad_edge=False, title=f"One head, {n} positions, a random attention matrix")
    for name in ("head size", "largest error", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
    for row in checks:
        exact = "exact" if row.head_size >= needed else "cannot: the rank of its logits is too small"
        table.add_row(str(row.head_size), f"{row.error:.1e}", "; ".join(row.wrong) or exact)
    words = (
        f"Its logits, less what a softmax does not see, have rank {needed}: a head of {needed} represents it, a "
        f"smaller one does not. A head of {n - 1} represents every attention matrix of {n} positions; Theorem 1 of "
        f"Bhojanapalli et al. 2020, as a secondary source has it, asks for {n}: the column means are the one saved."
    )
    return Group(Text(), table, Text(f"\n{words}"))


def _power_of_ten(exponent: float) -> str:
    return f"10^{exponent:,.1f}" if exponent > 6 else f"{10**exponent:,.1f}" if exponent < 2 else f"{10**exponent:,.0f}"
