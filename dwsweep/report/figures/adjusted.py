"""Figure of a heap of runs: the influence of each column, and the curve of each column's effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dwsweep.records.adjusted import AdjustedColumn
from dwsweep.records.fit import FitResult
from dwsweep.report.figures import style
from dwsweep.text import SHORT, format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_NAME = 22
COUNTS = 1e4  # value from which on an axis is labelled 2B and not 2e9
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
    axes.set_xlabel(f"what it moves the losses (10⁻³ {unit}, root mean square)")
    axes.set_title("How much each column matters")
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
    above = "above its best" if row.kind == "rate" else f"above {row.held}"
    axes.set_title(f"Loss {above}")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
