"""Runs at equal compute: loss against size per depth and the minima against depth, one row per budget; and how the best
shape grows with the budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dwsweep.records.budget_rows import REACHED, TOO_FEW, BestAtBudget, Budget, BudgetTrend, DepthAtBudget, EqualBudgets
from dwsweep.records.fit_result import FitResult
from dwsweep.report.figures import style
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import DepthStyle

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
    for end, place, arrow in ((row.n_params_low, low, "<"), (row.n_params_high, high, ">")):
        if end is None:
            axes.plot([place], [level], marker=arrow, color=colour, markersize=5)


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
    for end, place, arrow in ((best.depth_low, low, "<"), (best.depth_high, high, ">")):
        if end is None:
            axes.plot([place], [level], marker=arrow, color=style.OWN, markersize=6)


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
