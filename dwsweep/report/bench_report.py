"""Reports of ``dwsweep bench``, measured or compiled, and of ``dwsweep theory``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Group

from dwsweep import published_law
from dwsweep.cost.duration import SweepSeconds, sweep_seconds
from dwsweep.records.run import BenchRow, CompiledRow, PackingPoint
from dwsweep.report.document import MISSING, Line, Lines, Part, Table, render
from dwsweep.text import format_bytes, format_count
from dwsweep.theory import DEPTH_EFFICIENT, RankCheck

if TYPE_CHECKING:
    from dwsweep.theory import HeadCheck


UNKNOWN = "unknown"
Row = TypeVar("Row", BenchRow, CompiledRow)
LEAST_PRODUCTS = 0.98
"""Share of the FLOPs of a model that the products of its program must reach, or its text was not understood."""


def render_bench(rows: Sequence[BenchRow]) -> Group:
    """Show the rows of :func:`dwsweep.train.bench.bench`."""
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
    """Rows by block and optimizer; together, without a name, where all have the same."""
    names = dict.fromkeys(row.recipe or "" for row in rows)
    if len(names) < 2:
        return {"": list(rows)}
    return {name: [row for row in rows if (row.recipe or "") == name] for name in names}


def _measured(rows: Sequence[BenchRow], apart: bool) -> Table:
    columns = "L> d_x> heads> replicas> compile> step> tokens/s> MFU> memory> packing<"
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
    """Show rows of :func:`dwsweep.train.bench.compile_only`: a table per target, or one of the devices here."""
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
    columns = "L> d_x> parameters> replicas> devices> mesh< microbatch> compile> state> memory>"
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
        f"Compiled for {rows[0].device_kind}; nothing was trained or allocated. Of one device: state, parameters "
        "and moments; memory, the whole training program, by the compiler's own analysis, which differs between "
        f"backends{text}."
    )
    return [Lines(head, apart=True), table, Lines(_refusals(rows)), Lines([legend], soft=True, apart=True)]


def _compiled_for(target: str, rows: Sequence[CompiledRow], head: list[Line]) -> list[Part]:
    columns = "L> d_x> mesh< micro> compile> memory> kernels> traffic> padding> step_≥> MFU_≤> bound<"
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
            _padding(row),
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
    "Of one device and one step of all replicas (seeds and learning rates) of a pack. micro: sequences of each replica "
    "in a forward pass, r with activations recomputed. traffic: bytes read and written in the device's memory, loops "
    "multiplied out. padding: what rounding up to whole tiles adds to the traffic and to the products. step ≥, MFU ≤: "
    "a roofline, kernel by kernel, that no run reaches; bound: what takes most of it (products, traffic, launches, "
    "links)."
)


def _name(row: CompiledRow) -> str:
    return f"L{row.depth} d{row.width}"


def _exchanges(rows: Sequence[CompiledRow]) -> list[Line]:
    """Exchanges of a step between devices, a line per shape."""
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
    """Warn where fewer products were found in a program than its model needs: its text was not understood."""
    found: list[Line] = []
    for row in rows:
        if row.product_flops is None or row.flops_per_token is None or row.seq_len is None:
            continue
        needed = row.flops_per_token * row.replicas * row.batch_size * row.seq_len / row.devices
        if row.product_flops < LEAST_PRODUCTS * needed:
            text = (
                f"{_name(row)}: only {row.product_flops / needed:.0%} of the model's FLOPs were found in the program's "
                "matrix products; its figures are too low"
            )
            found.append([(text, "yellow")])
    return found


def _padding(row: CompiledRow) -> str:
    """Shares that padding adds to traffic and to products; a GPU's compiler pads neither."""
    if row.device_kind.startswith("TPU") and row.traffic_bytes and row.product_flops:
        traffic = (row.padded_traffic_bytes or 0.0) / row.traffic_bytes - 1
        return f"{traffic:.0%}, {(row.padded_product_flops or 0.0) / row.product_flops - 1:.0%}"
    return MISSING


def _mesh(row: CompiledRow) -> str:
    return " ".join(f"{axis} {size}" for axis, size in row.mesh.items() if size > 1) or MISSING


def _packing(points: Sequence[PackingPoint]) -> str:
    alone = points[0].tokens_per_second
    return " ".join(f"{point.replicas}:{point.tokens_per_second / alone:.2f}" for point in points)


def render_theory(facts: dict[str, Any]) -> Group:
    """Show :func:`dwsweep.theory.summary`: a table of quantities, then what it means in words."""
    table = Table("", "quantity< value> note~", headed=False, ruled=False)

    def add(quantity: str, value: str, note: str = "") -> None:
        table.add(quantity, value, [(note, "dim")])

    width, depth = facts["width"], facts["depth"]
    add("width d_x, heads H", f"{width:,}, {facts['heads']}")
    add("threshold depth log_3 d_x", f"{facts['threshold_depth']:.2f}", "theory, nets without softmax")
    fitted = facts["published_transition_depth"]
    add(
        "fitted transition depth",
        f"{fitted:.1f}" if fitted > 0 else "none",
        f"(ln d_x − {published_law.A}) / {published_law.B}, trained nets of Levine et al. 2020, depths 6 to 48",
    )
    if depth is None:
        more = "Give --depth for the regime, the bounds and the width a shallower net needs."
        return render([table, Lines([more], apart=True)])
    efficient = facts["regime"] == DEPTH_EFFICIENT
    low, high = facts["log3_separation_rank_lower"], facts["log3_separation_rank_upper"]
    add("depth L", str(depth), f"mixes (3^L − 1)/2 = {facts['mixed_inputs']:.4g} copies of the input")
    add("regime", facts["regime"], "L < log_3 d_x, eq. (7)" if efficient else "L ≥ log_3 d_x, eq. (8)")
    add("log_3 separation rank ≥", f"{low:,.1f}" if low > 0 else "0", "" if low > 0 else "the bound is empty")
    add("log_3 separation rank ≤", f"{high:,.1f}")
    add(
        "fitted transition of this depth",
        f"d_x = {facts['published_transition_width']:,.0f}",
        f"N = {format_count(facts['published_transition_n_params'])} non-embedding parameters",
    )
    parts: list[Part] = [table, _theorems(facts["theorems"])]
    if facts["widths_needed"]:
        needed = Table("Width that a shallower net needs", "depth> d_x_at_least> times_this_width>", ruled=False)
        for row in facts["widths_needed"]:
            exponent, times = row["log10_width"], row["log10_width"] - math.log10(width)
            if times < 0:
                needed.add(str(row["depth"]), MISSING, "the bounds do not require a wider one")
            else:
                needed.add(str(row["depth"]), _power_of_ten(exponent), _power_of_ten(times))
        parts += [needed, Lines(["for its upper bound to reach the lower bound of this net"], soft=True)]
    words = (
        "Below the threshold: depth is used well. A net of fewer layers must be wider by a factor that grows "
        "double-exponentially with the ratio of the depths."
        if efficient
        else "Beyond the threshold: the rank grows with d_x·L, so that a layer more and width in proportion do about "
        "the same."
    )
    trained = "Trained nets (the fit) pass their transition at a far greater depth than log_3 d_x."
    return render([*parts, Lines([f"{words} {trained}"], apart=True)])


def _theorems(rows: list[dict[str, Any]]) -> Table:
    table = Table("Bounds of log_3 of the separation rank", "eq.< applies< lower> upper> constants~", ruled=False)
    for row in rows:
        constants = ", ".join(f"{name} {value:,.4g}" for name, value in row["constants"].items())
        lower = f"{row['lower']:,.1f}" if row["lower"] > 0 else "empty"
        applies = "yes" if row["applies"] else "no"
        table.add(f"({row['equation']})", applies, lower, f"{row['upper']:,.1f}", constants)
    return table


def render_ranks(checks: Sequence[RankCheck], heads: Sequence[HeadCheck]) -> Group:
    """Show the measured ranks, and whether they are what the theorems say."""
    title = "Separation rank of random analysed networks, exact"
    table = Table(title, "L> d_x> H> bound_≥> rank> bound_≤> partitions> verdict<", keys=3, ruled=False)
    for row in checks:
        table.add(
            *map(str, (row.depth, row.width, row.heads)),
            f"{3**row.lower:,.1f}",
            " ≠ ".join(map(str, sorted(set(row.ranks)))),
            f"{3**row.upper:,.0f}",
            str(len(row.ranks)),
            "; ".join(row.wrong) or "as stated",
        )
    wrong = sum(bool(row.wrong) for row in checks)
    words = (
        "Every rank lies between the bounds, is the same for every balanced partition, and grows with depth and width."
        if not wrong
        else f"{wrong} of {len(checks)} networks are NOT as the theorems say."
    )
    return render([table, Lines([words], apart=True), *_heads(heads)])


def _heads(checks: Sequence[HeadCheck]) -> list[Part]:
    """Error of heads of each size on one attention matrix, and whether it is what the rank of its logits says."""
    n, needed = checks[0].positions, checks[0].needed
    title = f"One head, {n} positions, a random attention matrix"
    table = Table(title, "head_size> largest_error> verdict<", ruled=False)
    for row in checks:
        exact = "exact" if row.head_size >= needed else "cannot: the rank of its logits is too small"
        table.add(str(row.head_size), f"{row.error:.1e}", "; ".join(row.wrong) or exact)
    words = (
        f"Its logits, less what a softmax does not see, have rank {needed}: a head of {needed} represents it, a "
        f"smaller one does not. A head of {n - 1} represents every attention matrix of {n} positions; Theorem 1 of "
        f"Bhojanapalli et al. 2020, as a secondary source has it, asks for {n}: the column means are the one saved."
    )
    return [table, Lines([words], apart=True)]


def _power_of_ten(exponent: float) -> str:
    return f"10^{exponent:,.1f}" if exponent > 6 else f"{10**exponent:,.1f}" if exponent < 2 else f"{10**exponent:,.0f}"
