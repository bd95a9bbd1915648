"""Figures of losses: against size for each depth, against depth at fixed size, and the evidence of each transition:
differences of a pair with simultaneous bands, and the trend of its crossing over tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep.fit.ask import LossSurface
from dwsweep.fit.guideline import SAME_BLOCK
from dwsweep.interval import Interval
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import (
    PCHIP,
    SURFACE,
    DepthCurve,
    FixedSize,
    PairCurve,
    SurfaceCut,
    Transition,
    verdicts,
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
MOST_DEPTHS = 16  # most curves of a figure: more cannot be told apart
MOST_PAIRS = 12  # panels of pairs
DIFFERENCE = "loss of the shallower − deeper\n(10⁻³ {})"
BOUNDED = ("crossed", "not_reached", "already_crossed")


def against_size(fit: FitResult) -> Figure:
    """Draw three panels over one axis N: losses, their distance from a common trend, transitions.

    Losses fall by whole nats over a sweep while depths differ by hundredths, so the first panel alone shows no order
    of the depths: the second does. The trend is a polynomial in ln N through all cells: any smooth curve would do, as
    it shifts all depths alike (the lowest curve would not: it jumps where a depth's range ends).
    """
    every, crossings = fit.curves.depths, fit.verdicts
    curves, transitions = style.evenly(every, MOST_DEPTHS), style.evenly(crossings, MOST_DEPTHS)
    strip = 0.45 + 0.2 * max(len(transitions), 2)
    if not curves:
        return style.empty("No finished run: there is no loss to draw.")
    made = style.figure(style.WIDTH, 6.6 + strip)
    top, middle, bottom = made.subplots(3, 1, sharex=True, height_ratios=[3.0, 3.0, strip])
    looks = style.depth_styles([curve.depth for curve in curves])
    sizes = [n for curve in curves for n in curve.x if n is not None]
    low, high = min(sizes), max(sizes)
    trend = _trend(every)
    ends = []
    for curve in curves:
        look = looks[curve.depth]
        smooth = curve.smooth or curve  # a single size has cells and no curve
        n, loss, grid_n, grid_loss = (style.floats(v) for v in (curve.x, curve.mean, smooth.x, smooth.mean))
        half = None if smooth.se is None else style.half_band(smooth.se, fit.curves.confidence)
        for axes, at_cells, on_grid in ((top, 0.0, 0.0), (middle, trend(n), trend(grid_n))):
            line = grid_loss - on_grid
            if half is not None:
                style.band(axes, grid_n, line - half, line + half, look["color"])
            axes.plot(grid_n, line, color=look["color"], linestyle=look["linestyle"])
            axes.plot(n, loss - at_cells, color=look["color"], marker=look["marker"], linestyle="none")
        top.plot([], [], **look, label=f"L = {curve.depth}")
        last = float(grid_loss[-1] - trend(grid_n)[-1])
        ends.append((float(grid_n[-1]), last, f"L = {curve.depth}", look["color"]))
    top.set_ylabel(f"held-out loss\n({fit.unit})")
    top.set_title(f"Loss of each depth{_banded(fit)}")
    top.legend(loc="upper right", ncols=1 + len(curves) // 5, handlelength=2.6)
    middle.set_ylabel(f"distance from the trend\n({fit.unit})")
    # fewer digits: labels that grow after the layout would leave the figure
    middle.locator_params(axis="y", nbins=5)
    middle.set_title("The same without the trend common to all depths:\nthe lowest curve is the best depth")
    for axes in (top, middle):
        for transition in transitions:
            if transition.axis_value is not None:
                axes.axvline(transition.axis_value, color=style.FAINT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0.5)
    style.log_axis(bottom, "x", low / 1.12, high * 1.12, at_most=6)
    _strip(bottom, transitions, low, high)
    bottom.set_title("Transitions: right of the point the deeper net is ahead")
    bottom.set_xlabel(axis_label(fit))
    if len(every) > len(curves):
        style.note(
            made,
            f"{len(curves)} of {len(every)} depths and {len(transitions)} of {len(crossings)} transitions, evenly "
            "chosen; the trend is that of all depths. transitions.csv has all pairs.",
        )
    return style.settle(made, style.label_right(middle, ends))


def axis_label(fit: FitResult) -> str:
    """Label of the size axis of a fit, with the formula of N where all its nets follow it."""
    if fit.curves.axis != "n_params":
        return fit.curves.axis_label
    nets = (
        (n, curve.depth, d) for curve in fit.curves.depths for n, d in zip(curve.n_params, curve.width, strict=True)
    )
    standard = all(
        abs(float(n or 0.0) / (12.0 * depth * float(d or 1.0) ** 2) - 1.0) < SAME_BLOCK for n, depth, d in nets
    )
    return "non-embedding parameters N" + (" = 12·L·d²" if standard else "")


def _banded(fit: FitResult) -> str:
    if any((curve.smooth or curve).se is None for curve in fit.curves.depths):
        return " (no band: the noise is not known)"
    return f", with its {100 * fit.curves.confidence:.0f} % band"


def _trend(curves: Sequence[DepthCurve]) -> Callable[[Floats], Floats]:
    """Least-squares cubic in ln N through the cells of all depths.

    Of lower degree for few sizes: matched budgets cluster, and a curve with as many terms as there are clusters
    swings freely between them (a line cannot).
    """
    x = np.log(np.concatenate([style.floats(curve.x) for curve in curves]))
    y = np.concatenate([style.floats(curve.mean) for curve in curves])
    sizes = max(len(curve.x) for curve in curves)
    degree = 0 if sizes < 2 else min(3, max(1, sizes - 2))
    fitted = np.polynomial.Polynomial.fit(x, y, degree)
    return lambda n: fitted(np.log(n))


def _strip(axes: Axes, transitions: Sequence[Transition], low: float, high: float) -> None:
    """Draw a row per pair: the root and its interval, or the verdict in words beside its bound."""
    axes.grid(axis="y", visible=False)
    if not transitions:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "one depth: no pair to compare", transform=axes.transAxes, ha="center", color=style.FAINT)
        return
    axes.set_ylim(len(transitions) - 0.4, -0.6)
    axes.set_yticks(range(len(transitions)), [transition.name for transition in transitions])
    for row, transition in enumerate(transitions):
        if transition.status in BOUNDED:
            against = transition.status == "not_reached"
            _interval(axes, row, transition, style.AGAINST if against else style.OWN, upright=False, linewidth=2.0)
        if transition.status == "crossed":
            continue
        bound = {"not_reached": transition.axis_low, "already_crossed": transition.axis_high}.get(transition.status)
        place = bound or (low * high) ** 0.5
        # on the empty side of the row, if there is room
        way = math.log(place / low) / (math.log(high / low) or 1.0)
        left = way > (0.3 if transition.status == "not_reached" else 0.7)
        axes.annotate(
            transition.status.replace("_", " "), xy=(place, row), xytext=(-6 if left else 6, 0),
            textcoords="offset points", ha="right" if left else "left", va="center", color=style.FAINT,
            path_effects=style.halo(),
        )  # fmt: skip


def _interval(axes: Axes, at: float, transition: Transition, colour: str, **look: Any) -> None:
    """Draw the crossing of a pair on the axis of the fit; dashed for a mere bound."""
    crossed = transition.status == "crossed"
    value = transition.axis_value if crossed else None
    interval = Interval(value, transition.axis_low, transition.axis_high)
    style.interval_mark(axes, at, interval, colour, linestyle="-" if crossed else (0, (3, 1.5)), **look)


def against_depth(fit: FitResult) -> Figure:
    """Draw the loss above the best against depth at a few fixed sizes, without the noise that depths share.

    With a fitted surface its difference to its lowest point is drawn with the band of that difference, which all sizes
    narrow, as they do the interval of the best depth; else the measured differences to the lowest depth, with bars.
    What the held-out documents add to all losses alike, 0.05 nats of 38 documents, is no misfit: the median distance of
    a panel's points from the line is taken off all of them.
    """
    sizes = [size for size in fit.curves.fixed_n if len(size.depth) > 1]
    if not sizes:
        return style.empty("No size at which two depths were trained:\nnothing to compare at fixed size.")
    columns = min(2, len(sizes))
    made = style.figure(style.WIDTH, 1.5 + 1.9 * -(-len(sizes) // columns))
    depths = sorted({depth for size in sizes for depth in size.depth})
    looks = style.depth_styles([curve.depth for curve in fit.curves.depths])
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


def differences_at(fit: FitResult, size: FixedSize) -> tuple[Floats, Floats | None]:
    """Loss of each depth above that of the lowest depth at one size, and the standard error of that difference.

    The noise that two neighbours share is (se_i² + se_j² − se_ij²)/2, where se_ij is that of their difference curve;
    its mean over the neighbours is taken off the variance of every depth. Without standard errors: None.
    """
    loss = style.floats(size.mean)
    best = int(loss.argmin())
    if size.se is None:
        return loss - loss[best], None
    variance, shared = style.floats(size.se) ** 2, []
    for curve in fit.curves.pairs:
        if curve.estimator == PCHIP and curve.se is not None and set(curve.pair) <= set(size.depth):
            i, j = (size.depth.index(depth) for depth in curve.pair)
            of_pair = np.interp(math.log(size.x), np.log(style.floats(curve.x)), style.floats(curve.se))
            shared.append((variance[i] + variance[j] - of_pair**2) / 2)
    own = np.maximum(variance - (np.mean(shared) if shared else 0.0), 0.0)
    se = np.sqrt(own + own[best])
    se[best] = 0.0
    return loss - loss[best], se


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
    above, se = differences_at(fit, size)
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
            half = MILLI * style.half_band(list(se), confidence, df)
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


def differences(fit: FitResult) -> Figure:
    """Draw a panel per pair: shallower − deeper in millinats; above zero the deeper net is ahead.

    The vertical scale differs between panels (a pair far apart would flatten the rest), so each has its own ticks. A
    bar on the zero line is the interval of the transition; a strip at the foot marks where one net is significantly
    ahead by the simultaneous band.
    """
    rows_of = {row.pair: row for row in fit.verdicts}
    checks = {curve.pair: curve for curve in fit.curves.pairs if curve.estimator == PCHIP}
    every = [(curve, rows_of[curve.pair]) for curve in verdicts(fit.curves.pairs)]
    pairs = style.evenly(every, MOST_PAIRS)
    if not pairs:
        why = "; ".join(f"{t.name}: {t.reason}" for t in rows_of.values() if t.reason)
        return style.empty(f"No two depths to compare{': ' + why if why else '.'}")
    columns = min(2, len(pairs))
    made = style.figure(style.WIDTH, 1.7 + (2.1 if columns > 1 else 2.8) * -(-len(pairs) // columns))
    ends = [style.floats(curve.x)[[0, -1]] for curve, _ in pairs]
    low, high = min(float(first) for first, _ in ends), max(float(last) for _, last in ends)
    for axes, (curve, transition) in zip(style.panels(made, len(pairs), columns), pairs, strict=True):
        style.log_axis(axes, "x", low / 1.12, high * 1.12, at_most=4 if columns > 1 else 7)
        _difference_panel(axes, curve, transition, fit.curves.confidence)
        check = checks.get(curve.pair)
        if check is not None and check is not curve:
            axes.plot(
                style.floats(check.x), MILLI * style.floats(check.g), color=style.FAINT, linewidth=1.0,
                linestyle=CHECK_LINE, zorder=1.5,
            )  # fmt: skip
    made.supxlabel(axis_label(fit))
    made.supylabel(DIFFERENCE.format(fit.unit), multialignment="center")
    style.note(
        made,
        f"Above zero the deeper net is ahead. Dark band: pointwise {100 * fit.curves.confidence:.0f} %; pale: "
        "simultaneous, from which the verdict is read. Bar on zero: interval of the transition. Strip at the foot: "
        f"significantly ahead (filled: the deeper, hatched: the shallower).{_check_note(pairs)}"
        + (f" {len(pairs)} of {len(every)} pairs, evenly chosen." if len(every) > len(pairs) else ""),
    )
    return style.settle(made)


CHECK_LINE = (0, (3, 2))


def _check_note(pairs: Sequence[tuple[PairCurve, Transition]]) -> str:
    """Caption of dashed lines, if a verdict rests on all losses."""
    return " Dashed: the pair's own two curves, a check." if any(c.estimator == SURFACE for c, _ in pairs) else ""


def _difference_panel(axes: Axes, curve: PairCurve, transition: Transition, confidence: float) -> None:
    x, g = style.floats(curve.x), MILLI * style.floats(curve.g)
    reach = [0.0, *g]
    unknown = "\n(noise unknown)"
    if curve.se is not None and curve.low is not None and curve.high is not None:
        unknown = ""
        low, high = MILLI * style.floats(curve.low), MILLI * style.floats(curve.high)
        half = MILLI * style.half_band(curve.se, confidence, transition.df)
        style.band(axes, x, low, high, style.OWN, alpha=0.13)
        style.band(axes, x, g - half, g + half, style.OWN, alpha=0.28)
        reach = [0.0, *low, *high]
        # hatched on one side, so that the sides differ in grey
        foot = axes.get_xaxis_transform()
        axes.fill_between(x, 0.0, 0.035, where=list(low > 0.0), transform=foot, color=style.OWN, linewidth=0)
        axes.fill_between(
            x, 0.0, 0.035, where=list(high < 0.0), transform=foot,
            facecolor="white", edgecolor=style.AGAINST, hatch="////////", linewidth=0.6,
        )  # fmt: skip
    axes.plot(x, g, color=style.OWN)
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    style.room(axes, reach, 0.14, 0.06)
    axes.locator_params(axis="y", nbins=6)
    root = transition.axis_value
    if transition.status == "crossed":
        _interval(axes, 0.0, transition, style.INK, upright=False, linewidth=2.0, size=4.5)
    where = f" at {format_count(root)}" if root is not None else ""
    axes.set_title(f"{transition.name}: {transition.status.replace('_', ' ')}{where}{unknown}")


def beside_others(fit: FitResult) -> Figure:
    """Draw a panel per pair that other sweeps share: all their difference curves, in millinats."""
    shared = []
    for own in verdicts(fit.curves.pairs):
        beside = [
            (curve, other.name) for other in fit.others for curve in verdicts(other.pairs) if curve.pair == own.pair
        ]
        if beside:
            shared.append([(own, "this sweep"), *beside])
    every, shared = len(shared), style.evenly(shared, MOST_PAIRS)
    if not shared:
        names = ", ".join(other.name for other in fit.others)
        return style.empty(f"No two neighbouring depths that {names} has too: nothing to compare.")
    columns = min(2, len(shared))
    made = style.figure(style.WIDTH, 1.4 + (2.4 if columns > 1 else 2.9) * -(-len(shared) // columns))
    looks = [(style.OWN, "-"), *zip(style.OTHERS, style.LINES[1:], strict=False)]
    for axes, curves in zip(style.panels(made, len(shared), columns), shared, strict=True):
        for (curve, name), (colour, dashes) in zip(curves, itertools.cycle(looks), strict=False):
            x, g = style.floats(curve.x), MILLI * style.floats(curve.g)
            if curve.se is not None:
                half = MILLI * style.half_band(curve.se, fit.curves.confidence)
                style.band(axes, x, g - half, g + half, colour)
            axes.plot(x, g, color=colour, linestyle=dashes, label=name)
            if curve.status == "crossed" and curve.root is not None:
                axes.plot(
                    [curve.root], [0.0], marker="o", markersize=5.5, color="white", markeredgecolor=colour, zorder=4
                )
        ends = [end for curve, _ in curves for end in style.floats(curve.x)[[0, -1]]]
        style.log_axis(axes, "x", min(ends) / 1.12, max(ends) * 1.12, at_most=4 if columns > 1 else 7)
        axes.axhline(0.0, color=style.INK, linewidth=0.9)
        axes.set_title("{} → {}".format(*curves[0][0].pair))
        axes.legend()
    made.supxlabel(axis_label(fit))
    made.supylabel(DIFFERENCE.format(fit.unit), multialignment="center")
    level = f"{100 * fit.curves.confidence:.0f} %"
    chosen = f" {len(shared)} of {every} pairs, evenly chosen." if every > len(shared) else ""
    style.note(made, f"Above zero the deeper net is ahead. Bands: pointwise {level}. Circle: crossed.{chosen}")
    return style.settle(made)


def against_tokens(fit: FitResult) -> Figure:
    """Draw transition size (log) against training tokens (log), a line per pair; an arrow is a pair bounded on one
    side.

    Points of the pairs at one token count are shifted a little apart, so that intervals do not hide each other.
    """
    rows = verdicts(fit.by_tokens)
    counts = sorted({row.tokens for row in rows})
    names = sorted({(row.shallow, row.deep) for row in rows})
    looks = style.depth_styles([shallow for shallow, _ in names])
    bounds = [n for t in rows for n in (t.axis_value, t.axis_low, t.axis_high) if n is not None]
    if not bounds:
        return style.empty("No pair crosses or bounds its crossing at any token count.")
    made = style.figure(style.WIDTH, 3.6)
    axes = made.subplots()
    low, high = min(bounds) / 1.6, max(bounds) * 1.6
    style.log_axis(axes, "y", low, high)
    style.log_axis(axes, "x", counts[0] / 1.5, counts[-1] * 1.5)
    step = min(1.04, (counts[-1] / counts[0]) ** (0.5 / len(counts) / len(names)))
    ends = []
    for place, pair in enumerate(names):
        look = looks[pair[0]]
        shift = step ** (place - (len(names) - 1) / 2)
        there = [(row.tokens * shift, row) for row in rows if (row.shallow, row.deep) == pair]
        crossed = [(x, t.axis_value) for x, t in there if t.status == "crossed" and t.axis_value is not None]
        axes.plot([x for x, _ in crossed], [n for _, n in crossed], **look)
        for x, transition in there:
            if transition.status in BOUNDED:
                _interval(axes, x, transition, look["color"], marker=None)
        if crossed:
            ends.append((*crossed[-1], f"{pair[0]} → {pair[1]}", look["color"]))
    axes.set_xlabel("training tokens")
    axes.set_ylabel(style.lines(f"transition: {axis_label(fit)}", 2))
    axes.set_title("Transitions against training tokens;\narrows: bounded on one side")
    return style.settle(made, style.label_right(axes, ends))
