"""What ``dwsweep guide`` says, for a terminal of 100 columns."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dwsweep.guide.candidates import BUDGET_TOLERANCE
from dwsweep.report.terminal.folding import Folded
from dwsweep.text import format_count, format_factor


def render(answer: dict[str, Any]) -> Group:
    """Tables and sentences of :func:`dwsweep.guide.answer`."""
    parts: list[Any] = []
    for source in answer["sources"]:
        parts.append(Text(source["name"], style="bold"))
        parts += [_line(note) for note in source["notes"]]
    if answer["overview"]:
        parts += [Text(), Folded(_overview(answer["overview"])), Text(), _overview_legend()]
    for row in answer["verdicts"]:
        parts += [Text(), _verdict(row)]
    for row in answer["budgets"]:
        parts += [Text(), _budget(row, answer["assumptions"], len(answer["sources"]) > 1)]
    return Group(*parts)


def _line(text: str) -> Padding:
    """A paragraph set in by two."""
    return Padding(Text(text, style="dim"), (0, 0, 0, 2))


def interval_text(value: float | None, low: float | None, high: float | None, digits: int = 1) -> str:
    """``48.5 (47.4 … 49.6)``; an end without a bound is said."""
    if value is None:
        return "–"
    ends = ["no bound" if end is None else f"{end:,.{digits}f}" for end in (low, high)]
    return f"{value:,.{digits}f} ({ends[0]} … {ends[1]})"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    return table


def _overview(rows: list[dict[str, Any]]) -> Table:
    several = len({row["source"] for row in rows}) > 1
    table = _table("size", "N", "trained", "best L", "best d_x", "rivals' L", "outside")
    for row in rows:
        trained = f"{row['trained_depth']} × {row['trained_width']}" if row["trained_depth"] else "–"
        name = (
            f"{row['name']} ({'own' if not row['source'].startswith('levine') else 'published'})"
            if several
            else row["name"]
        )
        factor = row["extrapolation_factor"]
        table.add_row(
            name,
            format_count(row["n_params"]),
            trained,
            "refused" if row["refused"] else interval_text(row["depth"], row["depth_low"], row["depth_high"]),
            "" if row["refused"] else interval_text(row["width"], row["width_low"], row["width_high"], 0),
            _rivals(row),
            "inside" if factor <= 1 else f"{format_factor(factor)}×",
        )
    return table


def _rivals(row: dict[str, Any]) -> str:
    if row["rival_depth_min"] is None:
        return "–"
    return f"{row['rival_depth_min']:.0f} … {row['rival_depth_max']:.0f}"


def _overview_legend() -> Padding:
    return _line(
        "N: non-embedding parameters, 12·L·d_x² of the trained shape. Intervals: 95 %, at the fixed size. rivals' L: "
        "best depths of all forms that cannot be told apart. outside: of the range of the law, by this factor; beyond "
        "the range everything is projection. `--params N` gives shapes to build, `--shape LxD` a verdict."
    )


def _tie(row: dict[str, Any]) -> str:
    return f"The depth ties with {row['next_depth']:.0f}, one step of the law's grid deeper"


def _verdict(row: dict[str, Any]) -> Group:
    size = f"{row['name']}, N = {format_count(row['n_params'])}"
    if row["refused"]:
        return Group(Text.assemble((size, "bold"), f": no verdict. {row['reach']}"))
    lines: list[Any] = [Text.assemble((f"{size}: {row['verdict']}", "bold"), f" ({row['source']})")]
    best = interval_text(row["depth"], row["depth_low"], row["depth_high"])
    lines.append(
        _line(
            f"best depth {best}, width {row['width']:,.0f}; this one has {row['depth_ratio']:.2f} times that."
            + (f" {_tie(row)}: the best lies in between." if row["next_depth"] > row["depth"] else "")
        )
    )
    if row["verdict"] == "undecided":
        beyond = "deep" if row["depth_ratio"] > 1 else "shallow"
        lines.append(_line(f"too {beyond} by this law, not by its rivals, which fit the same points: {_rivals(row)}"))
    if row["balanced"]:
        shape = row["balanced"]
        off = shape["n_params"] / row["n_params"] - 1
        text = f"balanced at about this size: {shape['depth']} × {shape['width']}"
        text += f" ({format_count(shape['n_params'])}, {off:+.1%})"
        if (shape["depth"], shape["width"]) == (row["trained_depth"], row["trained_width"]):
            text = "under these constraints no shape of about this size costs less"
        lines.append(_line(text))
    if row["nats"] is not None:
        low, high = row["nats_interval"]
        lines.append(
            _line(
                f"cost: {row['nats']:.4f} nats ({low:.4f} … {high:.4f}), as much as a balanced model that is "
                f"{row['percent_smaller']:.1f} % smaller"
            )
        )
        lines.append(_line(row["loss_tag"]))
    if row["rival_depth_min"] is not None:
        lines.append(_line(f"rival forms put the best depth at {_rivals(row)}"))
    lines.append(_line(row["reach"]))
    return Group(*lines)


def _budget(row: dict[str, Any], assumptions: dict[str, Any], several: bool) -> Group:
    counted = "all parameters" if row["total"] else "non-embedding parameters"
    title = f" {counted}" + (f", {row['source']}" if several else "")
    if row["total"]:
        title += f" = {format_count(row['n_params'])} in the blocks"
    lines: list[Any] = [Text.assemble((row["name"], "bold"), title)]
    if row["refused"]:
        return Group(*lines, _line(row["reach"]))
    best = interval_text(row["depth"], row["depth_low"], row["depth_high"])
    width = interval_text(row["width"], row["width_low"], row["width_high"], 0)
    lines.append(
        _line(f"best depth {best}, width {width}" + (f". {_tie(row)}" if row["next_depth"] > row["depth"] else ""))
    )
    for form, depth in row["rivals"].items():
        lines.append(_line(f"rival {form} form: depth {depth:.1f}, width {_width(row['n_params'], depth):,.0f}"))
    lines += [
        _line(row["reach"]),
        Text(),
        Folded(_near(row["near_optimal"])),
        Text(),
        Folded(_candidates(row["candidates"])),
        Text(),
    ]
    bests = [
        f"{name}: {row[key][0]}×{row[key][1]}"
        for key, name in (
            ("best_equal_size", "equal size"),
            ("best_equal_flops", "equal FLOPs"),
            ("best_equal_time", "equal time"),
        )
        if row[key]
    ]
    if bests:
        lines.append(Text("  best of these at " + ", at ".join(bests)))
    else:
        lines.append(Text(f"  none of these is called best: none is within {BUDGET_TOLERANCE:.0%} of the budget"))
    lines += _assumptions(row, assumptions)
    return Group(*lines)


def _width(n_params: float, depth: float) -> float:
    return float((n_params / (12 * depth)) ** 0.5)


def _near(sets: list[dict[str, Any]]) -> Table:
    table = _table("  depths within", "nats", "shallow end", "deep end")
    for row in sets:
        table.add_row(
            f"  {row['percent']:g} % of the best loss",
            f"{row['nats']:.4f}",
            _end(row["depth_low"], row["depth_low_interval"]),
            _end(row["depth_high"], row["depth_high_interval"]),
        )
    return table


def _end(value: float | None, interval: list[float | None]) -> str:
    return "beyond what is known" if value is None else interval_text(value, interval[0], interval[1])


def _candidates(rows: list[dict[str, Any]]) -> Table:
    table = _table("  L × d_x", "heads", "N", "N total", "off", "+nats", "as small", "FLOPs", "time", "decode")
    any_fits = any(row["within_budget"] for row in rows)
    for row in rows:
        heads = f"{row['heads']}×{row['head_size']}"
        misses = any_fits and not row["within_budget"]
        if row["kv_heads"] != row["heads"]:
            heads += f"/{row['kv_heads']}"
        table.add_row(
            f"  {row['depth']} × {row['width']}",
            heads,
            format_count(row["n_params"]),
            format_count(row["n_params_total"]),
            f"{row['mismatch']:+.1%}",
            _nats(row["nats_equal_size"]),
            "?" if row["percent_smaller"] is None else f"{row['percent_smaller']:.1f} %",
            *("–" if misses else _nats(row[f"nats_equal_{what}"]) for what in ("flops", "time")),
            f"{row['decode_seconds_per_token'] * 1e3:.3g} ms",
        )
    return table


def _nats(value: float | None) -> str:
    return "?" if value is None else f"{value:.4f}"


def _assumptions(row: dict[str, Any], assumptions: dict[str, Any]) -> list[Padding]:
    measured = assumptions["training_rate"] == "measured"
    rate = "as `bench` measured it" if measured else "from an ASSUMED roofline (`dwsweep bench` measures it)"
    layer = assumptions["decode_seconds_per_layer"] * 1e6
    lines = [
        _line(
            "N: weights of the blocks; off: from the budget. +nats: loss above the best depth at the shape's own size; "
            "as small: a best-shaped model that is smaller by this is as good. FLOPs, time: nats above the best of "
            "these when all may spend the same training FLOPs, or the same training time, on the same tokens; time on "
            f"one {assumptions['training_device']} {rate}. decode: one sequence at {assumptions['context']:,} "
            f"positions on one {assumptions['device']}, weights and cache read once and {layer:.0f} µs per layer "
            "(ASSUMED)."
        ),
        _line(f"nats: {row['loss_tag']}"),
    ]
    if not all(shape["within_budget"] for shape in row["candidates"]):
        lines.append(
            _line(
                f"Few shapes come within {BUDGET_TOLERANCE:.0%} of the budget, since widths must be a multiple of the "
                "width multiple and of head size × key/value heads × tensor parallelism: a smaller head size or width "
                "multiple gives more."
            )
        )
    return lines
