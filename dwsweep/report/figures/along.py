"""Figure of losses along a column: how far each value is above the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.fit.along import place, value_text
from dwsweep.records.along import Along, AlongRow
from dwsweep.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 6
WIDE = 8.0  # largest over smallest value above which the axis is logarithmic


def loss_along(found: Along) -> Figure:
    """Draw a panel per depth and size (per size if the column is the depth)."""
    curves = found.curves[:PANELS]
    made, panels = style.panels(len(curves), lambda rows: 1.4 + 2.2 * rows)
    for axes, rows in zip(panels, curves, strict=True):
        axes.set_title(place(*rows[0].group))
        _panel(axes, _places(found), rows)
    made.supylabel(f"loss, above the best ({found.unit})")
    made.supxlabel(found.column.replace("_", " "))
    level = f"{100 * found.confidence:.0f} %"
    note = f"Intervals hold for all values of a panel together ({level}); filled: a shown difference, open: none."
    style.note(made, f"{note} Groups beyond {PANELS} are in along.csv.")
    return style.settle(made)


def _places(found: Along) -> dict[float, float]:
    """Places of the values on the axis: logarithmic if the values span much, else linear."""
    values = sorted({float(row.value) for row in found.rows})
    if values[0] > 0 and values[-1] / values[0] >= WIDE:
        return {value: float(np.log2(value)) for value in values}
    span = (values[-1] - values[0]) / max(len(values) - 1, 1)
    return {value: value / span for value in values}


def _panel(axes: Axes, places: Mapping[float, float], rows: Sequence[AlongRow]) -> None:
    """Plot each value minus the best."""
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    above = [row.above_best_interval for row in rows]
    style.estimates(axes, [places[row.value] for row in rows], above, style.series(0), "", lambda one: 0.0 not in one)
    every = list(places)
    shown = [every[k] for k in style.evenly(range(len(every)), 5)]
    axes.set_xticks([places[value] for value in shown], [value_text(value) for value in shown])
    axes.set_xlim(min(places.values()) - 0.4, max(places.values()) + 0.4)
