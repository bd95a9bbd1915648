"""Figure of losses along a column: how far each value is above the best, or each further arm above the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.fit.along import place, value_text
from dwsweep.records.along import Along, AlongRow
from dwsweep.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 6
SHIFT = 0.04  # distance of two arms' bars at one value over the distance between values
WIDE = 8.0  # largest over smallest value above which the axis is logarithmic


def loss_along(found: Along) -> Figure:
    """Draw a panel per depth and size (per size if the column is the depth), with a line per arm."""
    groups = list(dict.fromkeys(row.group for row in found.rows))[:PANELS]
    made, panels = style.panels(len(groups), lambda rows: 1.4 + 2.2 * rows)
    for axes, group in zip(panels, groups, strict=True):
        axes.set_title(place(*group))
        _panel(axes, found, [rows for rows in found.curves if rows[0].group == group])
    if len(found.arms) > 2:
        panels[0].legend()
    several = len(found.arms) > 1
    against = f"{found.arms[1] if len(found.arms) == 2 else 'arm'} − {found.arms[0]}" if several else "above the best"
    made.supylabel(f"loss, {against} ({found.unit})")
    made.supxlabel(found.column.replace("_", " "))
    level = f"{100 * found.confidence:.0f} %"
    note = f"Intervals hold for all values of a line together ({level}); filled: a shown difference, open: none."
    style.note(made, f"{note} Groups beyond {PANELS} are in along.csv.")
    return style.settle(made)


def _places(found: Along) -> dict[float, float]:
    """Places of the values on the axis: logarithmic if the values span much, else linear."""
    values = sorted({float(row.value) for row in found.rows})
    if values[0] > 0 and values[-1] / values[0] >= WIDE:
        return {value: float(np.log2(value)) for value in values}
    span = (values[-1] - values[0]) / max(len(values) - 1, 1)
    return {value: value / span for value in values}


def _panel(axes: Axes, found: Along, curves: Sequence[Sequence[AlongRow]]) -> None:
    """Plot each arm minus the first (several arms), or each value minus the best (one arm)."""
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    several, places = len(found.arms) > 1, _places(found)
    for curve in curves:
        rows = [row for row in curve if not several or row.above_base is not None]
        arm = found.arms.index(curve[0].arm)
        x = [places[float(row.value)] + arm * SHIFT for row in rows]
        above = [row.above_base_interval if several else row.above_best_interval for row in rows]
        if rows:
            style.estimates(axes, x, above, style.series(arm), found.arms[arm], lambda one: 0.0 not in one)
    every = list(places)
    shown = [every[k] for k in style.evenly(range(len(every)), 5)]
    axes.set_xticks([places[value] for value in shown], [value_text(value) for value in shown])
    axes.set_xlim(min(places.values()) - 0.4, max(places.values()) + 0.4)
