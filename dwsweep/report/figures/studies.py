"""Two arms in one figure: their best depths and transitions, and how far their losses are apart.

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
from dwsweep.records.fit import FitResult
from dwsweep.records.studies import (
    BEST_DEPTH,
    REACHED,
    TOO_FEW,
    TRANSITION,
    Along,
    AlongCurve,
    AlongRow,
    ArmsAtDepth,
    BestAtBudget,
    Budget,
    BudgetTrend,
    ComparedRow,
    Comparison,
    DepthAtBudget,
    EqualBudgets,
)
from dwsweep.report.figures import style
from dwsweep.report.figures.losses import MILLI, axis_label
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import DepthStyle


BASE, OTHER = (style.OWN, "o", "-"), (style.RIVALS[0], "s", style.LINES[1])
ASIDE = 1.015  # factor between the two arms' bars of one transition, so that neither hides the other
LONGEST_NAME = 34
BOUND = 1.5  # length of the arrow of a size without a value, as a factor
ROOM = 1.6  # beyond the smallest and the largest size


def with_numbers(fit: FitResult) -> list[Comparison]:
    """The comparisons that have any: the sentences of the others are all there is of them."""
    return [found for found in fit.comparisons if found.rows or found.depths]


def arms_apart(fit: FitResult) -> Figure:
    """One row per arm that is compared with the base. Left: best depth against size under both, with the transitions.
    Right: loss of the arm − loss of the base at each depth."""
    drawn = with_numbers(fit)
    made = style.figure(7.6, 0.75 + 3.3 * len(drawn))
    panels = style.panels(made, 2 * len(drawn), 2)
    labels: list[style.EndLabels] = []
    for found, left, right in zip(drawn, panels[::2], panels[1::2], strict=True):
        _depths(left, found, axis_label(fit))
        labels += _arm_losses(right, found, axis_label(fit))
    made.suptitle(
        "Left: best depth at each size (lines) and transitions (diamonds, between the two depths that tie). Right: "
        "below zero the arm\nhas the lower loss; thick where the simultaneous band of a depth clears zero. Bars and "
        f"pale bands: pointwise {100 * fit.curves.confidence:.0f} %; arrow: no bound.",
        x=0.01, ha="left", fontsize=7.5, color=style.FAINT,
    )  # fmt: skip
    return style.settle(made, *labels)


def _depths(axes: Axes, found: Comparison, label: str) -> None:
    rows, pairs = found.of(BEST_DEPTH), found.of(TRANSITION)
    depths = [float(d) for row in pairs for d in (row.depth, row.deep) if d]
    depths += [d for row in rows for d in (row.base, row.other, *_arm_ends(row)) if d]
    sizes = [row.n_params for row in rows if row.n_params]
    sizes += [n for row in pairs for n in (row.base, row.other, *_arm_ends(row)) if n]
    if not sizes or not depths:
        style.says(axes, "No transition and no best depth\nis known under either.")
        return
    low, high = min(sizes) / ROOM, max(sizes) * ROOM
    style.log_axis(axes, "x", low, high, at_most=5)
    bottom, top = min(depths) / 1.15, max(depths) * 1.15
    style.log_axis(axes, "y", bottom, top, style.plain)
    for arm, name, (colour, marker, dashes) in ((0, found.base, BASE), (1, found.arm, OTHER)):
        known = [(row.n_params, _of(row, arm)) for row in rows if row.n_params]
        line = [(n * ASIDE**arm, depth) for n, (depth, _, _) in known if depth is not None]
        axes.plot(*zip(*line, strict=True) if line else ([], []), color=colour, linestyle=dashes, linewidth=1.2)
        for n, (depth, least, most) in known:
            if depth is not None or least is not None or most is not None:
                _bar(axes, n * ASIDE**arm, (depth, least, most), (bottom, top), colour, upright=True)
        for n, (depth, least, most) in known:  # open where the data bound it on neither side
            if depth is not None:
                face = "white" if least is None and most is None else colour
                axes.plot([n * ASIDE**arm], [depth], marker=marker, color=face, markeredgecolor=colour)
        for row in pairs:
            if row.depth and row.deep:
                level = math.sqrt(row.depth * row.deep) * (ASIDE ** (2 * arm - 1))
                size, least, most = _of(row, arm)
                _bar(axes, level, (size, least, most), (low, high), colour, upright=False)
                if size is not None:
                    axes.plot([size], [level], marker="D", markersize=6, color="white", markeredgecolor=colour)
        axes.plot([], [], color=colour, marker=marker, linestyle=dashes, linewidth=1.2, label=_short(name))
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, borderaxespad=0.1)
    axes.set_xlabel(label)
    axes.set_ylabel("depth")


def _arm_ends(row: ComparedRow) -> Sequence[float | None]:
    return row.base_low, row.base_high, row.other_low, row.other_high


def _of(row: ComparedRow, arm: int) -> tuple[float | None, float | None, float | None]:
    """(value, low, high) under one of the two."""
    return (row.other, row.other_low, row.other_high) if arm else (row.base, row.base_low, row.base_high)


def _bar(
    axes: Axes,
    at: float,
    interval: tuple[float | None, float | None, float | None],
    edges: tuple[float, float],
    colour: str,
    upright: bool,
) -> None:
    """An interval at a size (upright) or at a depth. An end without a bound is an arrow: to the edge, and without a
    value a short one. Nothing without any bound."""
    value, low, high = interval
    step, arrows = (1.12, "v^") if upright else (BOUND, "<>")
    if low is not None:
        start, stop = low, high if high is not None else edges[1] if value is not None else low * step
    elif high is not None:
        start, stop = edges[0] if value is not None else high / step, high
    else:
        return
    axes.plot(*([at, at], [start, stop]) if upright else ([start, stop], [at, at]), color=colour, linewidth=1.4)
    for spot, bound, arrow in ((start, low, arrows[0]), (stop, high, arrows[1])):
        if bound is None:
            axes.plot(*([at], [spot]) if upright else ([spot], [at]), marker=arrow, markersize=4, color=colour)


def _arm_losses(axes: Axes, found: Comparison, label: str) -> list[style.EndLabels]:
    axes.set_title(f"{_short(found.arm)} − {_short(found.base)}", fontsize=9)
    if not found.depths:
        style.says(axes, "No loss difference: no depth has a curve\nunder both, or the noise is not known.")
        return []
    looks = style.depth_styles([one.curve.depth for one in found.depths])
    ends = []
    for one in found.depths:
        look = looks[one.curve.depth]
        x, g = style.floats(one.curve.x), MILLI * style.floats(one.curve.g)
        low, high = MILLI * style.floats(one.curve.low), MILLI * style.floats(one.curve.high)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        axes.plot(x, g, color=look["color"], linestyle=look["linestyle"], linewidth=1.0)
        for start, stop in _parted(one):
            axes.plot(x[start:stop], g[start:stop], color=look["color"], linewidth=2.8, solid_capstyle="butt")
        ends.append((float(x[-1]), float(g[-1]), f"L {one.curve.depth}", str(look["color"])))
    spans = [float(v) for one in found.depths for v in style.floats(one.curve.x)[[0, -1]]]
    style.log_axis(axes, "x", min(spans) / 1.12, max(spans) * 1.12, at_most=5)
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    axes.set_xlabel(label)
    axes.set_ylabel(f"loss difference\n(10⁻³ {found.unit})", multialignment="center")
    return [style.label_right(axes, ends)]


def _parted(one: ArmsAtDepth) -> list[tuple[int, int]]:
    """Places of the curve's points, from and up to, at which one arm is ahead."""
    x = list(one.curve.x)
    return [(x.index(part.start), x.index(part.end) + 1) for part in one.partings]


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


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
    axes.set_xticks([places[values[k]] for k in shown], [value_text(values[k]) for k in shown])
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


BUDGETS_SHOWN = 6
UNITS = {"flops": "FLOPs", "device_seconds": "device-seconds"}
TREND_LABELS = {"n_params": "best N", "tokens": "best tokens D", "depth": "best depth L", "width": "best width d"}


def has_budgets(fit: FitResult) -> bool:
    return fit.equal_budgets is not None


def has_trends(fit: FitResult) -> bool:
    return fit.equal_budgets is not None and bool(fit.equal_budgets.trends)


def at_each_budget(fit: FitResult) -> Figure:
    """Left: loss against N of every depth, its minimum and the interval of that. Right: the minima against depth."""
    found = fit.equal_budgets
    assert found is not None
    shown = _spread(found.budgets)
    made = style.figure(7.6, 0.75 + 2.75 * len(shown))
    looks = style.depth_styles([row.depth for budget in shown for row in budget.depths])
    sizes = [n for budget in shown for curve in budget.curves for n in curve.n_params if n is not None]
    grid = made.subplots(len(shown), 2, squeeze=False, width_ratios=[1.35, 1.0])
    labels = []
    for (left, right), budget in zip(grid, shown, strict=True):
        labels.append(_against_size(left, budget, looks))
        style.log_axis(left, "x", min(sizes) / 1.15, max(sizes) * 1.15, at_most=6)
        _against_depth(right, budget, looks)
        left.set_title(f"{format_count(budget.best.budget)} {UNITS[found.axis]}")
        right.set_title(_said(budget.best))
    grid[-1][0].set_xlabel("non-embedding parameters N")
    grid[-1][1].set_xlabel("depth L, each at its best N")
    made.supylabel("held-out loss (nats per token)", fontsize=9)
    level = f"{100 * fit.curves.confidence:.0f} %"
    made.suptitle(
        f"Bands: pointwise {level}. Open mark and bar: the minimum of a depth and its interval; arrow: not reached on "
        "that side.\nRight: the minima and the curve through them; bar at the foot: interval of the best depth.",
        x=0.01, ha="left", fontsize=7.5, color=style.FAINT,
    )  # fmt: skip
    return style.settle(made, *labels)


def _spread(budgets: Sequence[Budget]) -> list[Budget]:
    """At most BUDGETS_SHOWN, the first and the last among them."""
    return [budgets[k] for k in style.thinned(range(len(budgets)), BUDGETS_SHOWN)]


def _said(best: BestAtBudget) -> str:
    if best.depth is None or best.n_params is None:
        return "best depth: not known" if best.status == TOO_FEW else "best depth: not reached"
    return f"best: L {best.depth:.1f}, N {format_count(best.n_params)}"


def _against_size(axes: Axes, budget: Budget, looks: dict[int, DepthStyle]) -> style.EndLabels:
    ends, lowest = [], []
    for curve, row in zip(budget.curves, budget.depths, strict=True):
        look, n, loss = looks[curve.depth], style.floats(curve.n_params), style.floats(curve.mean)
        colour = str(look["color"])
        lowest.append(float(loss.min()))
        if curve.grid:
            grid, line = style.floats(curve.grid), style.floats(curve.loss)
            if curve.half is not None:
                half = style.floats(curve.half)
                axes.fill_between(grid, line - half, line + half, color=colour, alpha=0.18, linewidth=0)
            axes.plot(grid, line, color=colour, linestyle=look["linestyle"], linewidth=1.2)
        axes.plot(n, loss, color=colour, marker=look["marker"], linestyle="none", markersize=3.5)
        ends.append((n, loss, f"L = {curve.depth}", colour))
        _minimum(axes, row, look)
    # what a depth far off its best size loses would press everything else flat
    every = sorted(float(v) for _, loss, _, _ in ends for v in loss)
    top = max(every[int(0.85 * (len(every) - 1))], max(lowest) + 0.1 * (every[-1] - every[0]))
    room = (top - every[0]) or 1.0
    axes.set_ylim(every[0] - 0.08 * room, top + 0.05 * room)
    axes.locator_params(axis="y", nbins=6)
    labels = []
    for n, loss, text, colour in ends:
        inside = loss <= axes.get_ylim()[1]
        k = int(inside.nonzero()[0][-1])
        labels.append((float(n[k]), float(loss[k]), text, colour))
    return style.label_right(axes, labels, size=7.0)


def _minimum(axes: Axes, row: DepthAtBudget, look: DepthStyle) -> None:
    """The minimum with its interval, or the bound that there is."""
    level, colour = row.loss if row.loss is not None else row.tried_loss, look["color"]
    if level is None or (row.n_params_low is None and row.n_params_high is None):
        return
    low, high = row.n_params_low or row.smallest, row.n_params_high or row.largest
    reached = row.status == REACHED
    axes.plot([low, high], [level, level], color=colour, linewidth=3.0, alpha=1.0 if reached else 0.45, zorder=3)
    if row.n_params is not None:
        axes.plot(
            [row.n_params],
            [level],
            marker=look["marker"],
            color="white",
            markeredgecolor=colour,
            markersize=6,
            zorder=4,
        )
    for end, spot, arrow in ((row.n_params_low, low, "<"), (row.n_params_high, high, ">")):
        if end is None:
            axes.plot([spot], [level], marker=arrow, color=colour, markersize=5)


def _against_depth(axes: Axes, budget: Budget, looks: dict[int, DepthStyle]) -> None:
    best, profile = budget.best, budget.profile
    having = [row for row in budget.depths if row.loss is not None]
    if profile is None and not having:
        style.says(axes, best.reason or "no depth reaches its minimum")
        return
    values: list[float] = []
    if profile is not None:
        depth, loss, half = (style.floats(v) for v in (profile.depth, profile.loss, profile.half))
        axes.fill_between(depth, loss - half, loss + half, color=style.OWN, alpha=0.15, linewidth=0)
        axes.plot(depth, loss, color=style.OWN, linewidth=1.1)
        values += [*loss]
    for row in having:
        assert row.loss is not None
        look = looks[row.depth]
        low, high = row.loss - _half_at(budget, row), row.loss + _half_at(budget, row)
        axes.vlines([row.depth], low, high, color=style.INK, linewidth=1.2)
        values += [low, high]
        axes.plot([row.depth], [row.loss], marker=look["marker"], color=look["color"], markersize=5.5, linestyle="none")
    bottom, top = min(values), max(values)
    room = (top - bottom) or 1.0
    axes.set_ylim(bottom - 0.16 * room, top + 0.06 * room)
    axes.locator_params(axis="y", nbins=6)
    depths = sorted({row.depth for row in budget.depths})
    style.log_axis(axes, "x", depths[0] / 1.12, depths[-1] * 1.12, label=style.plain, at_most=6)
    axes.set_xticks(style.thinned(depths, 7), [str(d) for d in style.thinned(depths, 7)])
    _best_interval(axes, best, bottom - 0.08 * room, depths[0], depths[-1])


def _half_at(budget: Budget, row: DepthAtBudget) -> float:
    """Half the band of a depth's curve at its minimum: without the luck of the seeds, which all depths share."""
    import numpy as np

    (curve,) = [curve for curve in budget.curves if curve.depth == row.depth]
    if curve.half is None or row.n_params is None:
        return 0.0
    return float(np.interp(row.n_params, style.floats(curve.grid), style.floats(curve.half)))


def _best_interval(axes: Axes, best: BestAtBudget, level: float, first: float, last: float) -> None:
    if best.depth_low is None and best.depth_high is None:
        return
    low, high = best.depth_low or first, best.depth_high or last
    axes.plot([low, high], [level, level], color=style.OWN, linewidth=3.0, solid_capstyle="butt")
    if best.depth is not None:
        axes.plot([best.depth], [level], marker="o", color="white", markeredgecolor=style.OWN, markersize=6, zorder=4)
    for end, spot, arrow in ((best.depth_low, low, "<"), (best.depth_high, high, ">")):
        if end is None:
            axes.plot([spot], [level], marker=arrow, color=style.OWN, markersize=6)


def over_budgets(fit: FitResult) -> Figure:
    """The best shape against the budget, with the power law through each quantity."""
    found = fit.equal_budgets
    assert found is not None
    columns = 2 if len(found.trends) > 1 else 1
    made = style.figure(7.6, 0.8 + 2.3 * -(-len(found.trends) // columns))
    budgets = [row.budget for row in found.best]
    for axes, trend in zip(style.panels(made, len(found.trends), columns), found.trends, strict=True):
        _trend(axes, trend, found)
        style.log_axis(axes, "x", min(budgets) / 1.4, max(budgets) * 1.4, at_most=6)
    made.supxlabel(f"budget C ({UNITS[found.axis]})", fontsize=9)
    level = f"{100 * fit.curves.confidence:.0f} %"
    note = f"Bars: {level} intervals of the best shape at a budget. Line: the power law through them."
    made.suptitle(note, x=0.01, ha="left", fontsize=7.5, color=style.FAINT)
    return style.settle(made)


def _trend(axes: Axes, trend: BudgetTrend, found: EqualBudgets) -> None:
    values = []
    for row in found.best:
        value, low, high = (row[f"{trend.quantity}{end}"] for end in ("", "_low", "_high"))
        if value is None:
            continue
        axes.plot([row.budget, row.budget], [low or value, high or value], color=style.INK, linewidth=1.4)
        axes.plot([row.budget], [value], marker="o", color=style.OWN, markersize=5)
        values += [low or value, value, high or value]
    ends = [found.best[0].budget, found.best[-1].budget]
    line = [trend.value * (budget / trend.at_budget) ** trend.exponent for budget in ends]
    axes.plot(ends, line, color=style.OWN, linewidth=1.1)
    values += line
    style.log_axis(axes, "y", min(values) / 1.12, max(values) * 1.12, at_most=6)
    axes.set_ylabel(TREND_LABELS[trend.quantity])
    interval = ""
    if trend.exponent_low is not None and trend.exponent_high is not None:
        interval = f" ({trend.exponent_low:.3f} … {trend.exponent_high:.3f})"
    axes.set_title(f"∝ C^{trend.exponent:.3f}{interval}", fontsize=9)
