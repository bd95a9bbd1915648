"""Figures of studies: arms against each other, losses along a column, minima at equal compute.

The loss against a column of the table, a line per arm; and how far each value is above the best, or one arm above
the other.

Runs at equal compute: loss against size per depth and the minima against depth, one row per budget; and how the best
shape grows with the budget.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.fit.along import place, value_text
from dwsweep.interval import Interval
from dwsweep.records.along import Along, AlongCurve, AlongRow
from dwsweep.records.comparison import BEST_DEPTH, TRANSITION, ComparedRow, Comparison
from dwsweep.records.equal_budgets import (
    REACHED,
    TOO_FEW,
    BestAtBudget,
    Budget,
    BudgetTrend,
    DepthAtBudget,
    EqualBudgets,
)
from dwsweep.records.fit import FitResult
from dwsweep.report.figures import style
from dwsweep.report.figures.losses import MILLI, axis_label
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import EndLabel, Look


BASE, OTHER = (style.OWN, "o", "-"), (style.OTHERS[0], "s", style.LINES[1])
ASIDE = 1.015  # factor between the two arms' bars of one transition, so that both are visible
LONGEST_NAME = 24
MOST_ARMS = 6  # most compared arms with panels
ROOM = 1.6  # margin beyond the smallest and the largest size


def with_numbers(fit: FitResult) -> list[Comparison]:
    """Comparisons with numbers; the others consist of sentences."""
    return [found for found in fit.comparisons if found.rows or found.depths]


def arms_apart(fit: FitResult) -> Figure:
    """Draw two panels per compared arm: best depth against size under both arms, with the transitions; and loss of the
    arm − loss of the base at each depth."""
    every = with_numbers(fit)
    drawn = style.evenly(every, MOST_ARMS)
    made = style.figure(style.WIDTH, 1.2 + 5.4 * len(drawn))
    panels = style.panels(made, 2 * len(drawn), 1)
    labels: list[list[EndLabel]] = []
    for found, upper, lower in zip(drawn, panels[::2], panels[1::2], strict=True):
        _depths(upper, found, axis_label(fit))
        labels += _arm_losses(lower, found, axis_label(fit))
    style.note(
        made,
        "Above: best depth at each size (lines) and transitions (diamonds, between the two depths that tie). Below: "
        "under zero the arm has the lower loss; thick if the simultaneous band of a depth clears zero. Bars, pale "
        f"bands: pointwise {100 * fit.curves.confidence:.0f} %; arrow: no bound."
        + (
            f" {len(drawn)} of {len(every)} arms, evenly chosen; comparison.csv has all."
            if len(every) > len(drawn)
            else ""
        ),
    )
    return style.settle(made, *labels)


def _depths(axes: Axes, found: Comparison, label: str) -> None:
    rows, pairs = found.of(BEST_DEPTH), found.of(TRANSITION)
    depths = [float(d) for row in pairs for d in (row.depth, row.deep) if d]
    depths += [d for row in rows for d in _numbers(row)]
    sizes = [row.n_params for row in rows if row.n_params]
    sizes += [n for row in pairs for n in _numbers(row)]
    if not sizes or not depths:
        style.says(axes, "No transition and no best depth is known under either.")
        return
    low, high = min(sizes) / ROOM, max(sizes) * ROOM
    style.log_axis(axes, "x", low, high, at_most=5)
    bottom, top = min(depths) / 1.15, max(depths) * 1.15
    style.log_axis(axes, "y", bottom, top, style.plain)
    for arm, name, (colour, marker, dashes) in ((0, found.base, BASE), (1, found.arm, OTHER)):
        known = [(row.n_params * ASIDE**arm, _of(row, arm)) for row in rows if row.n_params]
        line = [(n, best.value) for n, best in known if best.value is not None]
        axes.plot(*zip(*line, strict=True) if line else ([], []), color=colour, linestyle=dashes, linewidth=1.2)
        for n, best in known:  # open where the data bound it on neither side
            style.interval_mark(axes, n, best, colour, marker=marker, face="white" if best.unbounded else colour)
        for row in pairs:
            if row.depth and row.deep:
                level = math.sqrt(row.depth * row.deep) * (ASIDE ** (2 * arm - 1))
                style.interval_mark(axes, level, _of(row, arm), colour, upright=False, marker="D")
        axes.plot([], [], color=colour, marker=marker, linestyle=dashes, linewidth=1.2, label=_short(name))
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, borderaxespad=0.1)
    axes.set_xlabel(label)
    axes.set_ylabel("depth")


def _numbers(row: ComparedRow) -> list[float]:
    arms = (_of(row, 0), _of(row, 1))
    return [number for arm in arms for number in (arm.value, arm.low, arm.high) if number]


def _of(row: ComparedRow, arm: int) -> Interval:
    """Interval of a row under one of the two arms."""
    return row.other_interval if arm else row.base_interval


def _arm_losses(axes: Axes, found: Comparison, label: str) -> list[list[EndLabel]]:
    axes.set_title(f"{_short(found.arm)} − {_short(found.base)}")
    if not found.depths:
        style.says(axes, "No loss difference: no depth has a curve under both, or the noise is not known.")
        return []
    looks = style.depth_styles([one.curve.depth for one in found.depths])
    ends = []
    for one in found.depths:
        look = looks[one.curve.depth]
        x, g = style.floats(one.curve.x), MILLI * style.floats(one.curve.g)
        low, high = MILLI * style.floats(one.curve.low), MILLI * style.floats(one.curve.high)
        style.band(axes, x, low, high, look["color"])
        axes.plot(x, g, color=look["color"], linestyle=look["linestyle"], linewidth=1.0)
        for part in one.partings:  # sizes at which one arm is ahead
            ahead = (x >= part.start) & (x <= part.end)
            axes.plot(x[ahead], g[ahead], color=look["color"], linewidth=2.8, solid_capstyle="butt")
        ends.append((float(x[-1]), float(g[-1]), f"L {one.curve.depth}", look["color"]))
    spans = [float(v) for one in found.depths for v in style.floats(one.curve.x)[[0, -1]]]
    style.log_axis(axes, "x", min(spans) / 1.12, max(spans) * 1.12, at_most=5)
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    axes.set_xlabel(label)
    axes.set_ylabel(f"loss difference\n(10⁻³ {found.unit})", multialignment="center")
    return [style.label_right(axes, ends)]


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


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


BUDGETS_SHOWN = 6  # most budgets, evenly chosen, the last included
UNITS = {"flops": "FLOPs", "device_seconds": "device-seconds"}
TREND_LABELS = {"n_params": "best N", "tokens": "best tokens D", "depth": "best depth L", "width": "best width d"}


def at_each_budget(fit: FitResult) -> Figure:
    """Draw loss against N per depth with each minimum and its interval (left), and the minima against depth (right)."""
    found = fit.equal_budgets
    assert found is not None
    shown = [found.budgets[k] for k in style.thinned(range(len(found.budgets)), BUDGETS_SHOWN)]
    made = style.figure(style.WIDTH, 1.3 + 2.6 * len(shown))
    looks = style.depth_styles([row.depth for budget in shown for row in budget.depths])
    sizes = [n for budget in shown for curve in budget.curves for n in curve.n_params if n is not None]
    grid = made.subplots(len(shown), 2, squeeze=False, width_ratios=[1.2, 1.0])
    labels = []
    for (left, right), budget in zip(grid, shown, strict=True):
        style.log_axis(left, "x", min(sizes) / 1.15, max(sizes) * 1.15, at_most=3)
        labels.append(_against_size(left, budget, looks))
        _against_depth(right, budget, looks)
        left.set_title(f"{format_count(budget.best.budget)} {UNITS[found.axis]}")
        right.set_title(_said(budget.best))
    grid[-1][0].set_xlabel("non-embedding N")
    grid[-1][1].set_xlabel("depth L, at its best N")
    made.supylabel(f"held-out loss ({fit.unit})")
    level = f"{100 * fit.curves.confidence:.0f} %"
    style.note(
        made,
        f"Bands: pointwise {level}. Open mark and bar: the minimum of a depth and its interval; arrow: not reached on "
        "that side. Right: the minima and the curve through them; bar at the foot: interval of the best depth.",
    )
    return style.settle(made, *labels)


def _said(best: BestAtBudget) -> str:
    if best.depth is None or best.n_params is None:
        return "best depth: not known" if best.status == TOO_FEW else "best depth: not reached"
    return f"best: L {best.depth:.1f}, N {format_count(best.n_params)}"


def _against_size(axes: Axes, budget: Budget, looks: dict[int, Look]) -> list[EndLabel]:
    ends, lowest = [], []
    for curve in budget.curves:
        look, n, loss = looks[curve.depth], style.floats(curve.n_params), style.floats(curve.mean)
        colour = look["color"]
        lowest.append(float(loss.min()))
        if curve.grid:
            grid, line = style.floats(curve.grid), style.floats(curve.loss)
            if curve.half is not None:
                half = style.floats(curve.half)
                style.band(axes, grid, line - half, line + half, colour)
            axes.plot(grid, line, color=colour, linestyle=look["linestyle"], linewidth=1.2)
        axes.plot(n, loss, color=colour, marker=look["marker"], linestyle="none", markersize=3.5)
        ends.append((n, loss, f"L {curve.depth}", colour))
    # losses of depths far from their best size would flatten all others
    every = sorted(float(v) for _, loss, _, _ in ends for v in loss)
    top = max(every[int(0.85 * (len(every) - 1))], max(lowest) + 0.1 * (every[-1] - every[0]))
    style.room(axes, [every[0], top], 0.08, 0.05)
    axes.locator_params(axis="y", nbins=6)
    for row in budget.depths:
        _minimum(axes, row, looks[row.depth])
    labels = []
    for n, loss, text, colour in ends:
        inside = loss <= axes.get_ylim()[1]
        k = int(inside.nonzero()[0][-1])
        labels.append((float(n[k]), float(loss[k]), text, colour))
    return style.label_right(axes, labels)


def _minimum(axes: Axes, row: DepthAtBudget, look: Look) -> None:
    """Draw the minimum with its interval, or its bound."""
    level, colour = row.loss if row.loss is not None else row.tried_loss, look["color"]
    if level is None or (row.n_params_low is None and row.n_params_high is None):
        return
    style.interval_mark(
        axes, level, row.n_params_interval, str(colour), upright=False, marker=look["marker"],
        linestyle="-" if row.status == REACHED else (0, (3, 1.5)), linewidth=2.5,
    )  # fmt: skip


def _against_depth(axes: Axes, budget: Budget, looks: dict[int, Look]) -> None:
    best, profile = budget.best, budget.profile
    having = [row for row in budget.depths if row.loss is not None]
    if profile is None and not having:
        style.says(axes, best.reason or "no depth reaches its minimum", 4)
        return
    values: list[float] = []
    if profile is not None:
        depth, loss, half = (style.floats(v) for v in (profile.depth, profile.loss, profile.half))
        style.band(axes, depth, loss - half, loss + half, style.OWN)
        axes.plot(depth, loss, color=style.OWN, linewidth=1.1)
        values += [*loss]
    for row in having:
        assert row.loss is not None
        look = looks[row.depth]
        low, high = row.loss - _half_at(budget, row), row.loss + _half_at(budget, row)
        interval = Interval(row.loss, low if low < high else None, high if low < high else None)
        colour, marker = look["color"], look["marker"]
        style.interval_mark(axes, row.depth, interval, colour, marker=marker, face=colour)
        values += [low, high]
    bottom, span = style.room(axes, values, 0.16, 0.06)
    axes.locator_params(axis="y", nbins=6)
    depths = sorted({row.depth for row in budget.depths})
    style.log_axis(axes, "x", depths[0] / 1.12, depths[-1] * 1.12, label=style.plain)
    axes.set_xticks(style.thinned(depths, 5), [str(d) for d in style.thinned(depths, 5)])
    if not (found := best.depth_interval).unbounded:
        style.interval_mark(axes, bottom - 0.08 * span, found, style.OWN, upright=False, linewidth=2.5)


def _half_at(budget: Budget, row: DepthAtBudget) -> float:
    """Half width of the band of a depth's curve at its minimum, without the seed noise that all depths share."""
    (curve,) = [curve for curve in budget.curves if curve.depth == row.depth]
    if curve.half is None or row.n_params is None:
        return 0.0
    return float(np.interp(row.n_params, style.floats(curve.grid), style.floats(curve.half)))


def over_budgets(fit: FitResult) -> Figure:
    """Draw the best shape against the budget, with the power law through each quantity."""
    found = fit.equal_budgets
    assert found is not None
    columns = 2 if len(found.trends) > 1 else 1
    made = style.figure(style.WIDTH, 1.1 + 2.1 * -(-len(found.trends) // columns))
    budgets = [row.budget for row in found.best]
    for axes, trend in zip(style.panels(made, len(found.trends), columns), found.trends, strict=True):
        style.log_axis(axes, "x", min(budgets) / 1.4, max(budgets) * 1.4, at_most=3)
        _trend(axes, trend, found)
    made.supxlabel(f"budget C ({UNITS[found.axis]})")
    level = f"{100 * fit.curves.confidence:.0f} %"
    style.note(made, f"Bars: {level} intervals of the best shape at a budget. Line: the power law through them.")
    return style.settle(made)


def _trend(axes: Axes, trend: BudgetTrend, found: EqualBudgets) -> None:
    known = [(row.budget, row.of(trend.quantity)) for row in found.best]
    known = [(budget, interval) for budget, interval in known if interval.value is not None]
    ends = [found.best[0].budget, found.best[-1].budget]
    line = [trend.value * (budget / trend.at_budget) ** trend.exponent for budget in ends]
    values = [end for _, one in known for end in (one.value, one.low, one.high) if end is not None] + line
    style.log_axis(axes, "y", min(values) / 1.12, max(values) * 1.12, at_most=6)
    axes.plot(ends, line, color=style.OWN, linewidth=1.1)
    for budget, interval in known:
        style.interval_mark(axes, budget, interval, face=style.OWN)
    axes.set_ylabel(TREND_LABELS[trend.quantity])
    span = ""
    if trend.exponent_low is not None and trend.exponent_high is not None:
        span = f"\n({trend.exponent_low:.3f} … {trend.exponent_high:.3f})"
    axes.set_title(f"∝ C^{trend.exponent:.3f}{span}")
