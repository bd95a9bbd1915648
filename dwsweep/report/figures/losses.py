"""Figure of losses against depth at fixed sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.fit.ask import LossSurface
from dwsweep.fit.noise import t_two_sided
from dwsweep.interval import Interval
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import FixedSize, SurfaceCut
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


@dataclass(frozen=True)
class Panel:
    """Losses against depth at one size. curve: depths, losses and the ends of their band."""

    title: str
    curve: tuple[Floats, Floats, Floats, Floats] | None
    points: Sequence[tuple[int, Interval]]
    best_depth: Interval


def against_depth(fit: FitResult) -> Figure:
    """Draw the loss above the best against depth at a few fixed sizes, without the noise that depths share.

    With a fitted surface its difference to its lowest point is drawn with the band of that difference, which all sizes
    narrow, as they do the interval of the best depth; else the measured differences to the lowest depth, with bars.
    What the held-out documents add to all losses alike, 0.05 nats of 38 documents, is no misfit: the median distance of
    a panel's points from the line is taken off.
    """
    sizes = [size for size in fit.curves.fixed_n if len(size.depth) > 1]
    surface = None if fit.surface is None else LossSurface(fit.surface)
    panels = [_at_size(fit, size, surface) for size in sizes]
    if not panels:
        return style.empty("No size at which two depths were trained:\nnothing to compare at fixed size.")
    columns = min(2, len(panels))
    made = style.figure(style.WIDTH, 1.5 + 1.9 * max(-(-len(panels) // columns), 1.6))
    depths = sorted({depth for panel in panels for depth, _ in panel.points})
    looks = style.depth_styles(depths)
    if len(depths) > MOST_DEPTHS:
        looks = {depth: {"color": style.INK, "marker": "o"} for depth in depths}
    for axes, panel in zip(style.panels(made, len(panels), columns, sharex=True), panels, strict=True):
        _draw(axes, panel, looks)
    made.supxlabel("depth L")
    made.supylabel(f"held-out loss above the best (10⁻³ {fit.unit})")
    level, foot = f"{100 * fit.curves.confidence:.0f} %", "Below: interval of the best depth; arrow: no bound."
    if any(size.surface for size in sizes):
        points = "losses at the held values of other columns" if fit.adjusted else "measured"
        text = (
            f"Line and band: the fitted surface above its lowest point, {level} of that difference. Points: {points}, "
            f"each with the scatter of its shapes, moved together onto the line. {foot}"
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


def _at_size(fit: FitResult, size: FixedSize, surface: LossSurface | None) -> Panel:
    title = SIZES.get(fit.curves.axis, "{}").format(format_count(size.x))
    cut, loss = size.surface, style.floats(size.mean)
    if cut is None or surface is None:
        df = min((t.df for t in fit.verdicts if t.df is not None), default=None)
        half = t_two_sided(fit.curves.confidence, df or math.inf) * style.floats(size.se or [0.0] * len(loss))
        ends = zip(size.depth, MILLI * (loss - loss.min()), MILLI * half, strict=True)
        points = [(depth, Interval.around(value, h) if h > 0 else Interval(value)) for depth, value, h in ends]
        return Panel(title, None, points, Interval())
    depth, mean, low, high, level = surface_above(surface, cut, size.x, fit.curves.confidence)
    above = loss - level
    above -= np.median(above - np.interp(size.depth, depth, mean))
    points = [(at, Interval(MILLI * value)) for at, value in zip(size.depth, above, strict=True)]
    best = cut.optimum.depth_interval if cut.optimum else Interval()
    return Panel(title, (depth, MILLI * mean, MILLI * low, MILLI * high), points, best)


def _draw(axes: Axes, panel: Panel, looks: dict[int, Look]) -> None:
    """Draw the curve with its band, the loss of each depth, and the interval of the best depth at the foot."""
    axes.set_title(panel.title)
    values = [end for _, bar in panel.points for end in (bar.low, bar.value, bar.high) if end is not None]
    if panel.curve is not None:
        depth, mean, low, high = panel.curve
        style.band(axes, depth, low, high, style.OWN, alpha=0.25)
        axes.plot(depth, mean, color=style.OWN, linewidth=1.1)
        values += [*low, *high]
    else:
        axes.plot(*zip(*((depth, bar.value) for depth, bar in panel.points), strict=True), color=style.FAINT)
    bottom, span = min(values), max(values) - min(values) or 1.0
    axes.set_ylim(bottom - 0.24 * span, max(values) + 0.08 * span)
    space = 0.06 * (max(looks) - min(looks)) or 1.0
    axes.set_xlim(min(looks) - space, max(looks) + space)
    axes.set_xticks(style.thinned(sorted(looks), 6))
    axes.locator_params(axis="y", nbins=5)
    for at, bar in panel.points:
        colour = looks[at]["color"]
        style.interval_mark(axes, at, bar, colour, marker=looks[at]["marker"], face=colour, size=4.5)
    if not panel.best_depth.unbounded:
        style.interval_mark(axes, bottom - 0.13 * span, panel.best_depth, upright=False, size=4.5)
