"""Figure of losses along a column: how far each value is above the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dwsweep.fit.along import place, value_text
from dwsweep.records.along import Along, AlongRow
from dwsweep.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 6


def loss_along(found: Along) -> Figure:
    """Draw a panel per depth and size (per size if the column is the depth)."""
    curves = found.curves[:PANELS]
    made, panels = style.panels(len(curves), lambda rows: 1.4 + 2.2 * rows)
    for axes, rows in zip(panels, curves, strict=True):
        axes.set_title(place(*rows[0].group))
        _panel(axes, rows)
    made.supylabel(f"loss, above the best ({found.unit})")
    made.supxlabel(found.column.replace("_", " "))
    level = f"{100 * found.confidence:.0f} %"
    note = f"Intervals hold for all values of a panel together ({level}); filled: a shown difference, open: none."
    style.note(made, f"{note} Groups beyond {PANELS} are in along.csv.")
    return style.settle(made)


def _panel(axes: Axes, rows: Sequence[AlongRow]) -> None:
    """Plot each value minus the best, values at even distances."""
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    above, x = [row.above_best_interval for row in rows], range(len(rows))
    style.estimates(axes, x, above, style.series(0), "", lambda one: 0.0 not in one)
    shown = style.evenly(x, 5)
    axes.set_xticks(shown, [value_text(rows[k].value) for k in shown])
    axes.set_xlim(-0.4, len(rows) - 0.6)
