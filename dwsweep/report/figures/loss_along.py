"""The loss against a column of the table, a line per arm; and how far each value is above the best, or one arm above
the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.fit.along.along_words import number, place
from dwsweep.records.along_rows import Along, AlongCurve, AlongRow
from dwsweep.records.fit_result import FitResult
from dwsweep.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 3  # of panels at most, a panel per group
PANELS = 6
COLOURS = (style.OWN, *style.RIVALS)
SHIFT = 0.04  # between the bars of two arms at one value, of the distance between two values
WIDE = 8.0  # ratio of the largest to the smallest value from which on the axis is logarithmic


def loss_along(fit: FitResult) -> Figure:
    """One column of panels per depth and size (per size where the column is the depth); the arms are lines in each."""
    found = fit.along
    assert found is not None
    groups = found.groups[:PANELS]
    columns = min(len(groups), COLUMNS)
    rows = -(-len(groups) // columns)
    made = style.figure(2.4 + 3.1 * columns, 0.9 + 4.6 * rows)
    panels = style.panels(made, 2 * columns * rows, columns)
    for k in range(columns * rows):
        row, column = divmod(k, columns)
        top, bottom = panels[2 * row * columns + column], panels[(2 * row + 1) * columns + column]
        if k >= len(groups):
            top.set_axis_off()
            bottom.set_axis_off()
            continue
        curves = [curve for curve in found.curves if (curve.depth, curve.budget) == groups[k]]
        top.set_title(place(*groups[k]), fontsize=9)
        _losses(top, found, curves, first=column == 0)
        _above(bottom, found, curves, first=column == 0)
    left = len(found.groups) - len(groups)
    made.suptitle(
        "Top: held-out loss at equal size, bars are one standard error. Bottom: for all values of a line at once\n"
        f"({100 * found.confidence:.0f} %); filled: a difference is shown, open: none is."
        + (f" {left} more groups are in along.csv." if left else ""),
        x=0.01, ha="left", fontsize=7.5, color=style.FAINT,
    )  # fmt: skip
    return style.settle(made)


def _places(found: Along) -> dict[float, float]:
    """Where each value stands: by its logarithm where the values span much, else by itself."""
    values = sorted({float(row.value) for row in found.rows})
    if values[0] > 0 and values[-1] / values[0] >= WIDE:
        return {value: float(np.log2(value)) for value in values}
    span = (values[-1] - values[0]) / max(len(values) - 1, 1)
    return {value: value / span for value in values}


def _axis(axes: Axes, found: Along) -> None:
    places = _places(found)
    shown = style.thinned(range(len(places)), 8)
    values = list(places)
    axes.set_xticks([places[values[k]] for k in shown], [number(values[k]) for k in shown])
    axes.set_xlabel(found.column.replace("_", " "))
    axes.set_xlim(min(places.values()) - 0.4, max(places.values()) + 0.4)


def _losses(axes: Axes, found: Along, curves: Sequence[AlongCurve], first: bool) -> None:
    places = _places(found)
    for curve in curves:
        arm = found.arms.index(curve.arm)
        colour, marker = COLOURS[arm % len(COLOURS)], style.MARKERS[arm % len(style.MARKERS)]
        x = [places[float(row.value)] + arm * SHIFT for row in curve.rows]
        y = style.floats([row.loss for row in curve.rows])
        bars = None if any(row.se is None for row in curve.rows) else style.floats([row.se for row in curve.rows])
        axes.errorbar(
            x,
            y,
            yerr=bars,
            color=colour,
            marker=marker,
            linestyle=style.LINES[arm % len(style.LINES)],
            linewidth=1.2,
            elinewidth=1.0,
            label=curve.arm or None,
        )
    _axis(axes, found)
    if first:
        axes.set_ylabel(f"loss ({found.unit})")
        if len(found.arms) > 1:
            axes.legend(fontsize=8)


def _above(axes: Axes, found: Along, curves: Sequence[AlongCurve], first: bool) -> None:
    """With several arms each one − the first, where a value has both; else above the best."""
    places = _places(found)
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    several = len(found.arms) > 1
    for curve in curves:
        arm = found.arms.index(curve.arm)
        rows = [row for row in curve.rows if not several or row.above_base is not None]
        if not rows:
            continue
        colour, marker = COLOURS[arm % len(COLOURS)], style.MARKERS[arm % len(style.MARKERS)]
        x = [places[float(row.value)] + arm * SHIFT for row in rows]
        middle, low, high = (
            style.floats(values) for values in zip(*(_ends(row, several) for row in rows), strict=True)
        )
        axes.plot(x, middle, color=colour, linestyle=style.LINES[arm % len(style.LINES)], linewidth=1.0)
        axes.vlines(x, low, high, color=colour, linewidth=1.4)
        for place_, value, least, most in zip(x, middle, low, high, strict=True):
            shown = least > 0.0 or most < 0.0
            axes.plot([place_], [value], marker=marker, color=colour if shown else "white", markeredgecolor=colour)
    _axis(axes, found)
    if first:
        what = f"arm − {found.arms[0]}" if several else "above the best"
        axes.set_ylabel(f"{what}\n({found.unit})", multialignment="center")


def _ends(row: AlongRow, several: bool) -> tuple[float | None, float | None, float | None]:
    if several:
        return row.above_base, row.above_base_low, row.above_base_high
    return row.above_best, row.above_best_low, row.above_best_high
