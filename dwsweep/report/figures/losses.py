"""Figure of losses against depth at fixed sizes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.fit.ask import LossSurface
from dwsweep.fit.noise import t_two_sided
from dwsweep.interval import Interval
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import FixedSize, Optimum
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


def has_content(fit: FitResult) -> bool:
    """True if a size has two depths to compare."""
    return any(len(size.depth) > 1 for size in fit.curves.fixed_n)


def against_depth(fit: FitResult) -> Figure:
    """Draw the loss above the best against depth at a few fixed sizes, without the noise that depths share: the fitted
    surface with the band of its difference to its lowest point, else the measured differences with bars.

    What the held-out documents add to all losses alike, 0.05 nats of 38 documents, is no misfit: the median distance of
    a panel's points from the line is taken off.
    """
    sizes = [size for size in fit.curves.fixed_n if len(size.depth) > 1]
    surface = None if fit.surface is None else LossSurface(fit.surface)
    columns = min(2, len(sizes))
    made = style.figure(style.WIDTH, 1.5 + 1.9 * max(-(-len(sizes) // columns), 1.6))
    looks = style.depth_styles([depth for size in sizes for depth in size.depth])
    for axes, size in zip(style.panels(made, len(sizes), columns, sharex=True), sizes, strict=True):
        _panel(axes, fit, size, surface, looks)
    made.supxlabel("depth L")
    made.supylabel(f"held-out loss above the best (10⁻³ {fit.unit})")
    level = f"{100 * fit.curves.confidence:.0f} %"
    text = f"Bars: {level} of the difference from the lowest depth, without the noise that depths share."
    if any(size.optimum for size in sizes):
        points = "losses at the held values of other columns" if fit.adjusted else "measured losses"
        text = (
            f"Line and band: the fitted surface above its lowest point, {level} of that difference. Points: {points}, "
            "moved together onto the line. Shaded: interval of the best depth."
        )
    style.note(made, text)
    return style.settle(made)


def surface_above(
    surface: LossSurface, best: Optimum, x: float, confidence: float
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Surface above its lowest point at one size, draw by draw: depths, mean, low, high, and the lowest loss."""
    y, drawn = surface.losses(math.log(x))
    inside = (np.exp(y) >= best.depth_min - 1e-9) & (np.exp(y) <= best.depth_max + 1e-9)
    y, drawn = y[inside], drawn[:, inside]
    lowest = int(drawn.mean(axis=0).argmin())
    above = drawn - drawn[:, [lowest]]
    low, high = np.quantile(above, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return np.exp(y), above.mean(axis=0), low, high, float(drawn[:, lowest].mean())


def _panel(axes: Axes, fit: FitResult, size: FixedSize, surface: LossSurface | None, looks: dict[float, Look]) -> None:
    """Draw the loss of each depth at one size, and the surface with its band and the interval of its best depth."""
    axes.set_title(SIZES.get(fit.curves.axis, "{}").format(format_count(size.x)))
    best, loss = size.optimum, style.floats(size.mean)
    space = 0.06 * (max(looks) - min(looks)) or 1.0
    axes.set_xlim(min(looks) - space, max(looks) + space)
    if best is None or surface is None:
        df = min((t.df for t in fit.verdicts if t.df is not None), default=None)
        half = MILLI * t_two_sided(fit.curves.confidence, df or math.inf) * style.floats(size.se or [0.0] * len(loss))
        above = MILLI * (loss - loss.min())
        axes.plot(size.depth, above, color=style.FAINT)
    else:
        depth, mean, low, high, level = surface_above(surface, best, size.x, fit.curves.confidence)
        style.band(axes, depth, MILLI * low, MILLI * high, style.OWN, alpha=0.25)
        axes.plot(depth, MILLI * mean, color=style.OWN, linewidth=1.1)
        above, half = MILLI * (loss - level), np.zeros(len(loss))
        above -= np.median(above - np.interp(size.depth, depth, MILLI * mean))
        if not (depths := best.depth_interval).unbounded:
            left, right = axes.get_xlim()
            ends = left if depths.low is None else depths.low, right if depths.high is None else depths.high
            axes.axvspan(*ends, color=style.FAINT, alpha=0.15, linewidth=0)
    axes.set_xticks(style.evenly(sorted(looks), 6))
    axes.locator_params(axis="y", nbins=5)
    for at, value, h in zip(size.depth, above, half, strict=True):
        bar, colour = Interval.around(value, h) if h > 0 else Interval(value), looks[at]["color"]
        style.interval_mark(axes, at, bar, colour, marker=looks[at]["marker"], face=colour, size=4.5)
