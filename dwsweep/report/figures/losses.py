"""Figure of losses against depth at the sizes at which a fit has a best depth."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.fit.statistics.model import SAME_BUDGET
from dwsweep.interval import Interval
from dwsweep.records.answers import AnswerRow
from dwsweep.records.fit import FitResult
from dwsweep.report.figures import style
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import Floats, Look


MOST_PANELS = 6
MILLI = 1e3  # nats → 10⁻³ nats


def against_depth(fit: FitResult) -> Figure:
    """Draw the loss above the best against depth at a few fixed sizes, without the noise that depths share: the fitted
    surface with the band of its difference to its lowest point, and the measured losses.

    What the held-out documents add to all losses alike, 0.05 nats of 38 documents, is no misfit: the median distance of
    a panel's points from the line is taken off.
    """
    assert fit.surface is not None
    surface = LossSurface(fit.surface)
    sizes = style.evenly(fit.surface.optima, MOST_PANELS)
    made, panels = style.panels(len(sizes), lambda rows: 1.5 + 1.9 * max(rows, 1.6), sharex=True)
    looks = style.depth_styles([span.depth for span in fit.surface.spans])
    for axes, size in zip(panels, sizes, strict=True):
        _panel(axes, fit, size, surface, looks)
    made.supxlabel("depth L")
    made.supylabel(f"held-out loss above the best (10⁻³ {fit.unit})")
    points = "losses at the held values of other columns" if fit.adjusted else "measured losses"
    style.note(
        made,
        f"Line and band: the fitted surface above its lowest point, {100 * fit.confidence:.0f} % of that difference. "
        f"Points: {points}, moved together onto the line. Shaded: interval of the best depth.",
    )
    return style.settle(made)


def surface_above(surface: LossSurface, best: AnswerRow, confidence: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Surface above its lowest point at one size, draw by draw: depths, mean, low and high."""
    y, drawn = surface.losses(best.ln_x)
    least, most = np.log([best.depth_min or 1.0, best.depth_max or math.inf])
    inside = (y >= least - 1e-9) & (y <= most + 1e-9)
    y, drawn = y[inside], drawn[:, inside]
    lowest = int(drawn.mean(axis=0).argmin())
    above = drawn - drawn[:, [lowest]]
    low, high = np.quantile(above, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return np.exp(y), above.mean(axis=0), low, high


def measured(fit: FitResult, surface: LossSurface, x: float) -> dict[int, float]:
    """Loss of each depth with shapes about ln axis x: of the nearest one, moved to x along the surface."""
    spans = {span.depth: span for span in surface.record.spans}
    nearest: dict[int, tuple[float, float, float]] = {}  # distance, place, loss
    for cell in fit.cells:
        span = spans.get(cell.depth)
        if cell.mean is None or not cell.axis_value or span is None:
            continue
        if span.low - SAME_BUDGET <= x <= span.high + SAME_BUDGET:
            at = math.log(cell.axis_value)
            found = abs(at - x), at, cell.mean
            nearest[cell.depth] = min(nearest.get(cell.depth, found), found)
    if not nearest:
        return {}
    places = np.array([at for _, at, _ in nearest.values()])
    y = np.tile(np.log(np.array(list(nearest), dtype=float)), 2)
    rows = surface.posterior.losses(np.concatenate([places, np.full(len(places), x)]), y, surface.setting)
    here, there = rows.mean(axis=0).reshape(2, -1)
    return {depth: loss + by for (depth, (_, _, loss)), by in zip(nearest.items(), there - here, strict=True)}


def _panel(axes: Axes, fit: FitResult, best: AnswerRow, surface: LossSurface, looks: dict[float, Look]) -> None:
    """Draw the surface at one size with its band, the loss of each depth, and the interval of the best depth."""
    axes.set_title(f"{fit.size_name} = {format_count(best.place)}")
    space = 0.06 * (max(looks) - min(looks)) or 1.0
    axes.set_xlim(min(looks) - space, max(looks) + space)
    depth, mean, low, high = surface_above(surface, best, fit.confidence)
    style.band(axes, depth, MILLI * low, MILLI * high, style.OWN, alpha=0.25)
    axes.plot(depth, MILLI * mean, color=style.OWN, linewidth=1.1)
    if not (depths := best.depth_interval).unbounded:
        left, right = axes.get_xlim()
        ends = left if depths.low is None else depths.low, right if depths.high is None else depths.high
        axes.axvspan(*ends, color=style.FAINT, alpha=0.15, linewidth=0)
    axes.set_xticks(style.evenly(sorted(looks), 6))
    axes.locator_params(axis="y", nbins=5)
    losses = measured(fit, surface, best.ln_x)
    shared = float(np.median([loss - float(np.interp(at, depth, mean)) for at, loss in losses.items()] or [0.0]))
    for at, loss in sorted(losses.items()):
        look, above = looks[at], Interval(MILLI * (loss - shared))
        style.interval_mark(axes, at, above, look["color"], marker=look["marker"], face=look["color"], size=4.5)
