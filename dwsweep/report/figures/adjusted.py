"""Figures of a heap of runs: effect of each column, and the best depth at each kind of equality."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dwsweep.records.adjusted import AdjustedColumn, EqualWhat
from dwsweep.records.fit import FitResult
from dwsweep.report.figures import style
from dwsweep.text import SHORT, format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_NAME = 22
COUNTS = 1e4  # value above which an axis is labelled 2B instead of 2e9
ROOM = 1.3  # margin beyond the ends of the depth axis
MILLI = 1e3  # nats → 10⁻³ nats


def columns(fit: FitResult) -> Figure:
    """Panel of bars for the influence of each column on the losses, and a panel for the effect of each number."""
    record = fit.adjusted
    assert record
    rows = sorted(record.columns, key=lambda row: row.matters)
    curves = [row for row in rows[::-1] if row.kind != "text"]
    high = 0.9 + 0.28 * len(rows)
    made = style.figure(style.WIDTH, high + 2.0 * len(curves) + 0.9)
    grid = made.add_gridspec(1 + len(curves), 1, height_ratios=[high, *([2.0] * len(curves))])
    _bars(made.add_subplot(grid[0]), rows, SHORT[fit.unit])
    for place, row in enumerate(curves):
        _curve(made.add_subplot(grid[place + 1]), row, SHORT[fit.unit])
    style.note(
        made,
        f"Bars and bands: {100 * fit.curves.confidence:.0f} % intervals. A curve is at the middle size and depth; a "
        "column that interacts with depth has another one at other depths.",
    )
    return style.settle(made)


def _bars(axes: Axes, rows: list[AdjustedColumn], unit: str) -> None:
    places = np.arange(len(rows))
    axes.barh(places, [MILLI * row.matters for row in rows], color=style.OWN, height=0.6)
    for place, row in zip(places, rows, strict=True):
        axes.plot([MILLI * row.matters_low, MILLI * row.matters_high], [place, place], color=style.INK, linewidth=1.2)
    axes.set_yticks(places, [_short(row.name) for row in rows])
    axes.set_xlabel(f"effect on the losses (10⁻³ {unit}, root mean square)")
    axes.set_title("Effect of each column")
    axes.grid(visible=False, axis="y")


def _curve(axes: Axes, row: AdjustedColumn, unit: str) -> None:
    x = np.array(row.at)
    middle, low, high = (MILLI * np.array(part) for part in (row.effect, row.effect_low, row.effect_high))
    inside = x > 0.0
    style.band(axes, x[inside], low[inside], high[inside], style.OWN)
    axes.plot(x[inside], middle[inside], color=style.OWN)
    axes.axhline(0.0, color=style.FAINT, linewidth=0.8)
    text = format_count if x.max() >= COUNTS else "{:.3g}".format
    style.log_axis(axes, "x", float(x[inside].min()), float(x[inside].max()), text, at_most=5)
    axes.set_xlabel(row.name)
    axes.set_ylabel(f"effect (10⁻³ {unit})")
    above = "above its best" if row.kind == "rate" else f"above the loss at {row.held}"
    axes.set_title(f"Loss {above}")


def middle_equal(fit: FitResult) -> list[EqualWhat]:
    """Best depth of each kind of equality at its middle size or budget, in the order of the table."""
    kinds: dict[str, list[EqualWhat]] = {}
    for row in fit.adjusted.equal if fit.adjusted else ():
        kinds.setdefault(row.equal, []).append(row)
    middle = [row.n_params for row in kinds.get("N", ()) if row.n_params]
    size = sorted(middle)[len(middle) // 2] if middle else None
    return [next((row for row in rows if row.n_params == size), rows[len(rows) // 2]) for rows in kinds.values()]


def equal_what(fit: FitResult) -> Figure:
    """Bar of the best depth with its interval for each kind of equality."""
    rows = middle_equal(fit)[::-1]
    made = style.figure(style.WIDTH, 1.5 + 0.34 * len(rows))
    axes = made.subplots()
    found = [row.depth_interval for row in rows]
    known = [end for one in found for end in (one.value, one.low, one.high) if end]
    if not known:
        style.says(axes, "No kind of equality bounds a best depth.")
        return style.settle(made)
    style.log_axis(axes, "x", min(known) / ROOM, max(known) * ROOM, style.plain)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    for place, one in enumerate(found):
        style.interval_mark(axes, place, one, style.OWN, upright=False, face="white" if one.unbounded else style.OWN)
    axes.set_yticks(range(len(rows)), [_equality(row) for row in rows])
    axes.set_xlabel("best depth (layers)")
    axes.grid(visible=False, axis="y")
    style.note(
        made,
        f"One heap, one posterior: bars are {100 * fit.curves.confidence:.0f} % intervals, an arrow has no bound. "
        "Lines with FLOPs or wall time alone give each depth its best size.",
    )
    return style.settle(made)


def _equality(row: EqualWhat) -> str:
    """``N and FLOPs 2.1e18, N 26.7M``."""
    from dwsweep.report.adjusted_report import budget

    size = f", N {format_count(row.n_params)}" if row.n_params and row.equal not in ("N", "FLOPs", "wall time") else ""
    return f"{row.equal} {budget(row)}{size}"


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
