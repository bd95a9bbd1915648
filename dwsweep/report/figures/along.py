"""Figure of losses along a column: a line per arm, and how far each value is above the best, or one arm above the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.fit.along import place, value_text
from dwsweep.records.along import Along, AlongCurve, AlongRow
from dwsweep.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import Look

COLUMNS = 2  # most panels, one per group
PANELS = 6
COLOURS = (style.OWN, *style.OTHERS)
SHIFT = 0.04  # distance of two arms' bars at one value over the distance between values
WIDE = 8.0  # largest over smallest value above which the axis is logarithmic


def loss_along(found: Along) -> Figure:
    """Draw a column of panels per depth and size (per size if the column is the depth), with a line per arm."""
    groups = found.groups[:PANELS]
    columns = min(len(groups), COLUMNS)
    rows = -(-len(groups) // columns)
    made = style.figure(style.WIDTH, 1.2 + 4.2 * rows)
    panels = style.panels(made, 2 * columns * rows, columns)
    for k in range(columns * rows):
        row, column = divmod(k, columns)
        top, bottom = panels[2 * row * columns + column], panels[(2 * row + 1) * columns + column]
        if k >= len(groups):
            top.set_axis_off()
            bottom.set_axis_off()
            continue
        curves = [curve for curve in found.curves if (curve.depth, curve.budget) == groups[k]]
        top.set_title(place(*groups[k]))
        _losses(top, found, curves, first=column == 0)
        _above(bottom, found, curves, first=column == 0)
    left = len(found.groups) - len(groups)
    style.note(
        made,
        "Top: held-out loss at equal size, bars are one standard error. Bottom: intervals that hold for all "
        f"values of a line together ({100 * found.confidence:.0f} %); filled: a shown difference, open: none."
        + (f" {left} more groups are in along.csv." if left else ""),
    )
    return style.settle(made)


def _places(found: Along) -> dict[float, float]:
    """Places of the values on the axis: logarithmic if the values span much, else linear."""
    values = sorted({float(row.value) for row in found.rows})
    if values[0] > 0 and values[-1] / values[0] >= WIDE:
        return {value: float(np.log2(value)) for value in values}
    span = (values[-1] - values[0]) / max(len(values) - 1, 1)
    return {value: value / span for value in values}


def _axis(axes: Axes, found: Along) -> None:
    places = _places(found)
    shown = style.thinned(range(len(places)), 5)
    values = list(places)
    axes.set_xticks([places[values[k]] for k in shown], [value_text(values[k]) for k in shown])
    axes.set_xlabel(found.column.replace("_", " "))
    axes.set_xlim(min(places.values()) - 0.4, max(places.values()) + 0.4)


def _look(found: Along, name: str, rows: Sequence[AlongRow]) -> tuple[Look, list[float]]:
    """Look of an arm: its line style, and the places of its rows on the axis."""
    arm, places = found.arms.index(name), _places(found)
    look: Look = {
        "color": COLOURS[arm % len(COLOURS)],
        "marker": style.MARKERS[arm % len(style.MARKERS)],
        "linestyle": style.LINES[arm % len(style.LINES)],
    }
    return look, [places[float(row.value)] + arm * SHIFT for row in rows]


def _losses(axes: Axes, found: Along, curves: Sequence[AlongCurve], first: bool) -> None:
    for curve in curves:
        look, x = _look(found, curve.arm, curve.rows)
        y = style.floats([row.loss for row in curve.rows])
        bars = None if any(row.se is None for row in curve.rows) else style.floats([row.se for row in curve.rows])
        axes.errorbar(x, y, yerr=bars, **look, linewidth=1.2, label=curve.arm or None)
    _axis(axes, found)
    if first:
        axes.set_ylabel(f"loss ({found.unit})")
        if len(found.arms) > 1:
            axes.legend()


def _above(axes: Axes, found: Along, curves: Sequence[AlongCurve], first: bool) -> None:
    """Plot each arm minus the first (several arms), or each value minus the best (one arm)."""
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    several = len(found.arms) > 1
    for curve in curves:
        rows = [row for row in curve.rows if not several or row.above_base is not None]
        if not rows:
            continue
        look, x = _look(found, curve.arm, rows)
        colour, marker = look["color"], look["marker"]
        above = [row.above_base_interval if several else row.above_best_interval for row in rows]
        known = list(zip(x, above, strict=True))
        values = style.floats([interval.value for _, interval in known])
        axes.plot(x, values, color=colour, linestyle=look["linestyle"], linewidth=1.0)
        for at, interval in known:
            style.interval_mark(axes, at, interval, colour, marker=marker, face="white" if 0.0 in interval else colour)
    _axis(axes, found)
    if first:
        what = f"arm − {found.arms[0]}" if several else "above the best"
        axes.set_ylabel(f"{what}\n({found.unit})", multialignment="center")
