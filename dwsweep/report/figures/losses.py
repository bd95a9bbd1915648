"""Figure of losses against depth: at fixed sizes, or at budgets of compute where each depth has its best size."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.fit.ask import LossSurface
from dwsweep.fit.noise import t_two_sided
from dwsweep.interval import Interval
from dwsweep.records.equal_budgets import Budget, EqualBudgets
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import (
    FixedSize,
    SurfaceCut,
)
from dwsweep.report.figures import style
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import Floats, Look


SIZES = {
    "n_params": "N = {}",
    "n_params_total": "{} parameters in all",
    "flops": "{} FLOPs",
    "device_seconds": "{} device-seconds",
}

MILLI = 1e3  # nats → 10⁻³ nats
MOST_DEPTHS = 16  # most line styles of a figure: more cannot be told apart
BUDGETS_SHOWN = 6  # most budgets, evenly chosen, the last included
UNITS = {"flops": "FLOPs", "device_seconds": "device-seconds"}


def against_depth(fit: FitResult) -> Figure:
    """Draw the loss above the best against depth at a few fixed sizes, without the noise that depths share.

    With a fitted surface its difference to its lowest point is drawn with the band of that difference, which all sizes
    narrow, as they do the interval of the best depth; else the measured differences to the lowest depth, with bars.
    Without curves over size, as at equal compute, the panels are budgets. What the held-out documents add to all losses
    alike, 0.05 nats of 38 documents, is no misfit: the median distance of a panel's points from the line is taken off.
    """
    if fit.equal_budgets and not fit.curves.depths:
        return _at_budgets(fit, fit.equal_budgets)
    sizes = [size for size in fit.curves.fixed_n if len(size.depth) > 1]
    if not sizes:
        return style.empty("No size at which two depths were trained:\nnothing to compare at fixed size.")
    columns = min(2, len(sizes))
    made = style.figure(style.WIDTH, 1.5 + 1.9 * max(-(-len(sizes) // columns), 1.6))
    depths = sorted({depth for size in sizes for depth in size.depth})
    looks = style.depth_styles(fit.curves.depths)
    surface = None if fit.surface is None else LossSurface(fit.surface)
    for axes, size in zip(style.panels(made, len(sizes), columns, sharex=True), sizes, strict=True):
        _panel(axes, fit, size, surface, looks)
        axes.set_title(SIZES.get(fit.curves.axis, "{}").format(format_count(size.x)))
        axes.set_xticks(style.thinned(depths, 6))
        axes.locator_params(axis="y", nbins=5)
    made.supxlabel("depth L")
    made.supylabel(f"held-out loss above the best (10⁻³ {fit.unit})")
    level, several = f"{100 * fit.curves.confidence:.0f} %", any(size.surface for size in sizes)
    if several:
        points = "losses at the held values of other columns" if fit.adjusted else "measured"
        text = (
            f"Line and band: the fitted surface above its lowest point, {level} of that difference. Points: {points}, "
            "each with the scatter of its shapes, moved together onto the line. Below: interval of the best depth; "
            "arrow: no bound."
        )
    elif any(size.se for size in sizes):
        text = f"Bars: {level} of the difference from the lowest depth, without the noise that depths share."
    else:
        text = "No bars: the noise is not known."
    style.note(made, text)
    return style.settle(made)


def surface_above(
    surface: LossSurface, cut: SurfaceCut, x: float, confidence: float
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Surface above its lowest point at one size, draw by draw: depths, mean, low, high, and the lowest loss."""
    y, drawn = surface.losses(math.log(x))
    inside = (np.exp(y) >= float(cut.depth[0] or 1) - 1e-9) & (np.exp(y) <= float(cut.depth[-1] or 1) + 1e-9)
    y, drawn = y[inside], drawn[:, inside]
    lowest = int(drawn.mean(axis=0).argmin())
    above = drawn - drawn[:, [lowest]]
    low, high = np.quantile(above, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return np.exp(y), above.mean(axis=0), low, high, float(drawn[:, lowest].mean())


def _panel(axes: Axes, fit: FitResult, size: FixedSize, surface: LossSurface | None, looks: dict[int, Look]) -> None:
    cut, confidence = size.surface, fit.curves.confidence
    loss = style.floats(size.mean)
    above, se = loss - loss.min(), None if size.se is None else style.floats(size.se)
    bars: list[tuple[int, Interval]] = []
    values = [0.0]
    axes.axhline(0.0, color=style.FAINT, linewidth=0.8, zorder=1)
    if cut is not None and surface is not None:
        x, mean, low, high, level = surface_above(surface, cut, size.x, confidence)
        style.band(axes, x, MILLI * low, MILLI * high, style.OWN, alpha=0.25)
        axes.plot(x, MILLI * mean, color=style.OWN, linewidth=1.1)
        above = style.floats(size.mean) - level
        above -= np.median(above - np.interp(size.depth, x, mean))
        values += [*(MILLI * low), *(MILLI * high)]
    else:
        axes.plot(size.depth, MILLI * above, color=style.FAINT, linewidth=0.9)
        if se is not None:
            df = min((t.df for t in fit.verdicts if t.df is not None), default=None)
            half = MILLI * t_two_sided(confidence, df or math.inf) * se
            bars = [
                (d, Interval.around(MILLI * v, h)) for d, v, h in zip(size.depth, above, half, strict=True) if h > 0
            ]
            values += [*(MILLI * above - half), *(MILLI * above + half)]
    values += [*(MILLI * above)]
    bottom, span = style.room(axes, values, 0.24, 0.08)
    depths = [depth for one in fit.curves.fixed_n for depth in one.depth]
    space = 0.06 * (max(depths) - min(depths))
    axes.set_xlim(min(depths) - space, max(depths) + space)
    for depth, bar in bars:
        style.interval_mark(axes, depth, bar, marker=None)
    if len(looks) > MOST_DEPTHS:  # one style for all: that many styles cannot be told apart
        axes.plot(size.depth, MILLI * above, marker="o", markersize=2.5, color=style.INK, linestyle="none", zorder=5)
    else:
        for depth, value in zip(size.depth, MILLI * above, strict=True):
            look = looks[depth]
            axes.plot([depth], [value], marker=look["marker"], color=look["color"], linestyle="none", zorder=5)
    if cut is not None and cut.optimum is not None:
        best = cut.optimum.depth_interval
        style.interval_mark(axes, bottom - 0.13 * span, best, upright=False, size=4.5)


def _at_budgets(fit: FitResult, found: EqualBudgets) -> Figure:
    """Draw a panel per budget: the loss of each depth at its best size, against depth."""
    shown = style.evenly(found.budgets, BUDGETS_SHOWN)
    columns = min(2, len(shown))
    made = style.figure(style.WIDTH, 1.3 + 2.2 * -(-len(shown) // columns))
    looks = style.depth_styles([row.tried_depth for budget in shown for row in budget.depths])
    for axes, budget in zip(style.panels(made, len(shown), columns), shown, strict=True):
        _budget(axes, budget, looks)
        best = f"best depth {budget.best.depth_interval.format('.1f')}"
        axes.set_title(f"{format_count(budget.best.budget)} {UNITS[found.axis]}\n{best}")
    made.supxlabel("depth L, at its best N")
    made.supylabel(f"held-out loss ({fit.unit})")
    level = f"{100 * fit.curves.confidence:.0f} %"
    style.note(made, f"Bars and band: pointwise {level}. Bar at the foot: interval of the best depth; arrow: no bound.")
    return style.settle(made)


def _budget(axes: Axes, budget: Budget, looks: dict[int, Look]) -> None:
    """Draw the best loss of each depth, the curve through them, and the interval of the best depth at the foot."""
    best, profile = budget.best, budget.profile
    having = [row for row in budget.depths if row.loss is not None]
    if profile is None and not having:
        style.says(axes, best.reason or "no depth reaches its minimum", 3)
        return
    values: list[float] = []
    depth, half = np.ones(1), np.zeros(1)
    if profile is not None:
        depth, loss, half = (style.floats(v) for v in (profile.depth, profile.loss, profile.half))
        style.band(axes, depth, loss - half, loss + half, style.OWN)
        axes.plot(depth, loss, color=style.OWN, linewidth=1.1)
        values += [*loss]
    for row in having:
        assert row.loss is not None
        look = looks[row.tried_depth]
        away = float(np.interp(row.tried_depth, depth, half))
        low, high = row.loss - away, row.loss + away
        interval = Interval(row.loss, low if low < high else None, high if low < high else None)
        colour, marker = look["color"], look["marker"]
        style.interval_mark(axes, row.tried_depth, interval, colour, marker=marker, face=colour)
        values += [low, high]
    bottom, span = style.room(axes, values, 0.16, 0.06)
    axes.locator_params(axis="y", nbins=6)
    depths = sorted({row.tried_depth for row in budget.depths})
    style.log_axis(axes, "x", depths[0] / 1.12, depths[-1] * 1.12, label=style.plain)
    axes.set_xticks(style.thinned(depths, 5), [str(d) for d in style.thinned(depths, 5)])
    if not (found := best.depth_interval).unbounded:
        style.interval_mark(axes, bottom - 0.08 * span, found, style.OWN, upright=False, linewidth=2.5)
