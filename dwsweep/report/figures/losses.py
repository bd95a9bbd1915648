"""Losses: against size for each depth, against depth at fixed size, and the evidence behind each transition: the
differences of a pair with their simultaneous bands, and the trend of its crossing over tokens.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import DepthCurve, FixedSize, PairCurve, Transition, references
from dwsweep.report.figures import style
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import DepthStyle, Floats


AXIS_LABELS = {"n_params": "non-embedding parameters N = 12·L·d²"}
SIZES = {
    "n_params": "N = {}",
    "n_params_total": "{} parameters in all",
    "flops": "{} FLOPs",
    "device_seconds": "{} device-seconds",
}

MILLI = 1e3  # nats → 10⁻³ nats


def against_size(fit: FitResult) -> Figure:
    """Three panels over one axis N: the losses; their distance from a common trend; the transitions.

    Losses fall by whole nats over a sweep while depths differ by hundredths, so the first panel alone shows no order
    of the depths: the second does. The trend is a polynomial in ln N through all cells: any smooth curve would do, as
    it shifts all depths alike (the lowest curve would not: it jumps where a depth's range ends).
    """
    curves, transitions = fit.curves.depths, references(fit.transitions)
    strip = 0.45 + 0.2 * max(len(transitions), 2)
    made = style.figure(7.6, 6.1 + strip)
    if not curves:
        style.says(made.subplots(), "No finished run: there is no loss to draw.")
        return style.settle(made)
    top, middle, bottom = made.subplots(3, 1, sharex=True, height_ratios=[2.9, 2.9, strip])
    looks = style.depth_styles([curve.depth for curve in curves])
    sizes = [n for curve in curves for n in curve.x if n is not None]
    low, high = min(sizes), max(sizes)
    trend = _trend(curves)
    ends = []
    for curve in curves:
        look = looks[curve.depth]
        smooth = curve.smooth or curve  # a single size has no curve: the cells themselves
        n, loss, grid_n, grid_loss = (style.floats(v) for v in (curve.x, curve.mean, smooth.x, smooth.mean))
        half = None if smooth.se is None else style.half_band(smooth.se, fit.curves.confidence)
        for axes, at_cells, on_grid in ((top, 0.0, 0.0), (middle, trend(n), trend(grid_n))):
            line = grid_loss - on_grid
            if half is not None:
                axes.fill_between(grid_n, line - half, line + half, color=look["color"], alpha=0.18, linewidth=0)
            axes.plot(grid_n, line, color=look["color"], linestyle=look["linestyle"])
            axes.plot(n, loss - at_cells, color=look["color"], marker=look["marker"], linestyle="none")
        top.plot([], [], **look, label=f"L = {curve.depth}")
        last = float(grid_loss[-1] - trend(grid_n)[-1])
        ends.append((float(grid_n[-1]), last, f"L = {curve.depth}", str(look["color"])))
    top.set_ylabel("held-out loss\n(nats per token)")
    top.set_title(f"Loss of each depth{_banded(fit)}")
    top.legend(loc="upper right", ncols=2 if len(curves) > 4 else 1, fontsize=8, handlelength=3.2)
    middle.set_ylabel("distance from the trend\n(nats per token)")
    middle.locator_params(axis="y", nbins=5)  # fewer digits: labels that grow after the layout would leave the page
    middle.set_title("The same without the trend common to all depths: the lowest curve is the best depth")
    for axes in (top, middle):
        for transition in transitions:
            if transition.axis_value is not None:
                axes.axvline(transition.axis_value, color=style.FAINT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0.5)
    style.log_axis(bottom, "x", low / 1.12, high * 1.12)
    _strip(bottom, transitions, low / 1.08, high * 1.08)
    bottom.set_title("Transitions: to the right of the point the deeper net of the pair is ahead")
    bottom.set_xlabel(axis_label(fit))
    return style.settle(made, style.label_right(middle, ends))


def axis_label(fit: FitResult) -> str:
    """What the sizes of a fit are."""
    return AXIS_LABELS.get(fit.curves.axis, fit.curves.axis_label)


def _banded(fit: FitResult) -> str:
    if any((curve.smooth or curve).se is None for curve in fit.curves.depths):
        return " (no band: the noise is not known)"
    return f", with its {100 * fit.curves.confidence:.0f} % band"


def _trend(curves: Sequence[DepthCurve]) -> Callable[[Floats], Floats]:
    """Least-squares cubic in ln N through the cells of all depths.

    Of lower degree for few sizes: matched budgets cluster, and a curve with as many terms as there are clusters
    swings freely between them (a line cannot).
    """
    import numpy as np

    x = np.log(np.concatenate([style.floats(curve.x) for curve in curves]))
    y = np.concatenate([style.floats(curve.mean) for curve in curves])
    sizes = max(len(curve.x) for curve in curves)
    degree = 0 if sizes < 2 else min(3, max(1, sizes - 2))
    fitted = np.polynomial.Polynomial.fit(x, y, degree)
    return lambda n: fitted(np.log(n))


def _strip(axes: Axes, transitions: Sequence[Transition], low: float, high: float) -> None:
    """One row per pair: the root and its interval, an arrow where it is unbounded, or the verdict in words."""
    axes.grid(axis="y", visible=False)
    if not transitions:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "one depth: no pair to compare", transform=axes.transAxes, ha="center", color=style.FAINT)
        return
    axes.set_ylim(len(transitions) - 0.4, -0.6)
    axes.set_yticks(range(len(transitions)), [transition.name for transition in transitions])
    for row, transition in enumerate(transitions):
        root = transition.axis_value if transition.status == "crossed" else None
        left = low if transition.axis_low is None else max(transition.axis_low, low)
        right = high if transition.axis_high is None else min(transition.axis_high, high)
        if root is not None or transition.status in ("not_reached", "already_crossed"):
            colour = style.AGAINST if transition.status == "not_reached" else style.OWN
            dashes = "-" if root is not None else (0, (3, 1.5))
            axes.plot([left, right], [row, row], color=colour, linewidth=2.0, linestyle=dashes, solid_capstyle="butt")
            for end, place, arrow in ((transition.axis_low, left, "<"), (transition.axis_high, right, ">")):
                if end is None:
                    axes.plot([place], [row], marker=arrow, color=colour)
        if root is not None:
            axes.plot([root], [row], marker="o", markersize=6, color=style.OWN, markeredgecolor="white")
        elif transition.status == "not_reached":
            _word(axes, "not reached", left, row, low, high)
        elif transition.status == "already_crossed":
            _word(axes, "already crossed", right, row, low, high)
        else:
            _word(axes, transition.status, (low * high) ** 0.5, row, low, high)


def _word(axes: Axes, word: str, n: float, row: int, low: float, high: float) -> None:
    """A verdict next to ``n``, on the side where the row is empty."""
    left = n > (low * high) ** 0.5
    axes.annotate(
        word, xy=(n, row), xytext=(-6 if left else 6, 0), textcoords="offset points",
        ha="right" if left else "left", va="center", fontsize=8, color=style.FAINT, path_effects=style.halo(),
    )  # fmt: skip


def against_depth(fit: FitResult) -> Figure:
    """Loss against depth at a few fixed sizes, with the fitted surface and its lowest point where there is one.

    Each panel has its own scale: what counts is the shape and the place of the minimum, not the level.
    """
    sizes = [size for size in fit.curves.fixed_n if len(size.depth) > 1]
    if not sizes:
        made = style.figure(7.6, 1.3)
        style.says(made.subplots(), "No size at which two depths were trained: nothing to compare at fixed size.")
        return style.settle(made)
    columns = min(3, len(sizes))
    rows = -(-len(sizes) // columns)
    made = style.figure(max(7.6 * columns / 3, 5.0), 0.85 + 2.1 * rows)
    depths = sorted({depth for size in sizes for depth in size.depth})
    looks = style.depth_styles([curve.depth for curve in fit.curves.depths])
    for axes, size in zip(style.panels(made, len(sizes), columns, sharex=True), sizes, strict=True):
        _panel(axes, size, fit.curves.confidence, looks)
        axes.set_title(SIZES.get(fit.curves.axis, "{}").format(format_count(size.x)))
        axes.set_xticks(style.thinned(depths, 8))
        axes.locator_params(axis="y", nbins=5)
    made.supxlabel("depth L", fontsize=9)
    made.supylabel("held-out loss (nats per token)", fontsize=9)
    if any(size.surface for size in sizes):
        note = (
            "Line and pale band: fitted surface. Bar below: interval of its lowest point; arrow: no bound on that side."
        )
        made.suptitle(note, x=0.01, ha="left", fontsize=7.5, color=style.FAINT)
    return style.settle(made)


def _panel(axes: Axes, size: FixedSize, confidence: float, looks: dict[int, DepthStyle]) -> None:
    loss, surface = style.floats(size.mean), size.surface
    values = list(loss)
    if surface is not None:
        x, y, low_y, high_y = (style.floats(v) for v in (surface.depth, surface.mean, surface.low, surface.high))
        axes.fill_between(x, low_y, high_y, color=style.OWN, alpha=0.15, linewidth=0)
        axes.plot(x, y, color=style.OWN, linewidth=1.1)
        values += [*low_y, *high_y]
    else:
        axes.plot(size.depth, loss, color=style.FAINT, linewidth=0.9)
    if size.se is not None:
        half = style.half_band(size.se, confidence)
        axes.vlines(size.depth, loss - half, loss + half, color=style.INK, linewidth=1.2)
        values += [*(loss - half), *(loss + half)]
    for depth, value in zip(size.depth, loss, strict=True):
        axes.plot(
            [depth], [value], marker=looks[depth]["marker"], color=looks[depth]["color"],
            markeredgewidth=0.0, markersize=6.5,
        )  # fmt: skip
    bottom, top = min(values), max(values)
    room = (top - bottom) or 0.01
    axes.set_ylim(bottom - 0.22 * room, top + 0.08 * room)
    if surface is not None and surface.optimum is not None:
        best, low, high = surface.optimum.depth, surface.optimum.depth_low, surface.optimum.depth_high
        level = bottom - 0.12 * room
        left = float(x[0]) if low is None else low
        right = float(x[-1]) if high is None else high
        axes.plot([left, right], [level, level], color=style.INK, linewidth=1.6, solid_capstyle="butt")
        for end, place, arrow in ((low, left, "<"), (high, right, ">")):
            if end is None:
                axes.plot([place], [level], marker=arrow, color=style.INK, markersize=4)
        if best is not None:
            axes.plot([best], [level], marker="o", markersize=5, color="white", markeredgecolor=style.INK)


def differences(fit: FitResult) -> Figure:
    """One panel per pair: shallower − deeper in millinats; above zero the deeper net is ahead.

    The vertical scale differs between panels (a pair far apart would flatten the rest), so each has its own ticks. A
    bar on the zero line is the interval of the transition; a strip at the foot marks where one net is significantly
    ahead by the simultaneous band.
    """
    rows_of = {(row.shallow, row.deep): row for row in references(fit.transitions)}
    pairs = [(curve, rows_of[curve.shallow, curve.deep]) for curve in fit.curves.pairs]
    if not pairs:
        made = style.figure(7.6, 1.3)
        why = "; ".join(f"{t.name}: {t.reason}" for t in rows_of.values() if t.reason)
        style.says(made.subplots(), f"No two depths to compare{': ' + why if why else '.'}")
        return style.settle(made)
    columns = 1 if len(pairs) == 1 else 2 if len(pairs) in (2, 4) else 3
    rows = math.ceil(len(pairs) / columns)
    made = style.figure(7.6, 0.95 + 2.05 * rows if columns > 1 else 3.6)
    ends = [style.floats(curve.x)[[0, -1]] for curve, _ in pairs]
    low, high = min(float(first) for first, _ in ends), max(float(last) for _, last in ends)
    for axes, (curve, transition) in zip(style.panels(made, len(pairs), columns), pairs, strict=True):
        _difference_panel(axes, curve, transition, fit.curves.confidence)
        style.log_axis(axes, "x", low / 1.12, high * 1.12, at_most=5 if columns > 1 else 9)
    made.supxlabel(axis_label(fit), fontsize=9)
    made.supylabel("loss of the shallower − deeper\n(10⁻³ nats per token)", fontsize=9, multialignment="center")
    made.suptitle(
        f"Above zero the deeper net is ahead. Dark band: pointwise {100 * fit.curves.confidence:.0f} %; pale: "
        "simultaneous (sup-t), from which the verdict is read.\nBar on the zero line: interval of the transition. "
        "Strip at the foot: one net significantly ahead (filled: the deeper, hatched: the shallower).",
        x=0.01, ha="left", fontsize=7.5, color=style.FAINT,
    )  # fmt: skip
    return style.settle(made)


def _difference_panel(axes: Axes, curve: PairCurve, transition: Transition, confidence: float) -> None:
    x, g = style.floats(curve.x), MILLI * style.floats(curve.g)
    known = curve.se is not None and curve.low is not None and curve.high is not None
    if curve.se is None or curve.low is None or curve.high is None:
        bottom, top = min(float(g.min()), 0.0), max(float(g.max()), 0.0)
    else:
        low, high = MILLI * style.floats(curve.low), MILLI * style.floats(curve.high)
        half = MILLI * style.half_band(curve.se, confidence, transition.df)
        axes.fill_between(x, low, high, color=style.OWN, alpha=0.13, linewidth=0)
        axes.fill_between(x, g - half, g + half, color=style.OWN, alpha=0.28, linewidth=0)
        bottom, top = min(float(low.min()), 0.0), max(float(high.max()), 0.0)
        # hatched for one side, so that grey tells them apart
        foot = axes.get_xaxis_transform()
        axes.fill_between(x, 0.0, 0.035, where=list(low > 0.0), transform=foot, color=style.OWN, linewidth=0)
        axes.fill_between(
            x, 0.0, 0.035, where=list(high < 0.0), transform=foot,
            facecolor="white", edgecolor=style.AGAINST, hatch="////////", linewidth=0.6,
        )  # fmt: skip
    axes.plot(x, g, color=style.OWN)
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    room = (top - bottom) or 1.0
    axes.set_ylim(bottom - 0.14 * room, top + 0.06 * room)
    axes.locator_params(axis="y", nbins=6)
    root = transition.axis_value
    if transition.status == "crossed" and root is not None:
        left = float(x[0]) if transition.axis_low is None else transition.axis_low
        right = float(x[-1]) if transition.axis_high is None else transition.axis_high
        axes.plot([left, right], [0.0, 0.0], color=style.INK, linewidth=4.0, solid_capstyle="butt", zorder=3)
        axes.plot([root], [0.0], marker="o", markersize=6, color="white", markeredgecolor=style.INK, zorder=4)
    where = f" at {format_count(root)}" if root is not None else ""
    unknown = "" if known else " (noise unknown)"
    axes.set_title(f"{transition.name}: {transition.status.replace('_', ' ')}{where}{unknown}", fontsize=9)


def beside_others(fit: FitResult) -> Figure:
    """One panel per pair that another sweep has too: the difference curves of all of them, in millinats."""
    shared = []
    for own in fit.curves.pairs:
        beside = [(curve, other.name) for other in fit.others for curve in other.pairs if curve.pair == own.pair]
        if beside:
            shared.append([(own, "this sweep"), *beside])
    if not shared:
        made = style.figure(7.6, 1.3)
        names = ", ".join(other.name for other in fit.others)
        style.says(made.subplots(), f"No two neighbouring depths that {names} has too: nothing to compare.")
        return style.settle(made)
    columns = min(2, len(shared))
    made = style.figure(7.6, 1.0 + (2.6 if columns > 1 else 3.2) * -(-len(shared) // columns))
    looks = [(style.OWN, "-"), *zip(style.RIVALS, style.LINES[1:], strict=False)]
    for axes, curves in zip(style.panels(made, len(shared), columns), shared, strict=True):
        for (curve, name), (colour, dashes) in zip(curves, itertools.cycle(looks), strict=False):
            x, g = style.floats(curve.x), MILLI * style.floats(curve.g)
            if curve.se is not None:
                half = MILLI * style.half_band(curve.se, fit.curves.confidence)
                axes.fill_between(x, g - half, g + half, color=colour, alpha=0.18, linewidth=0)
            axes.plot(x, g, color=colour, linestyle=dashes, label=name)
            if curve.status == "crossed" and curve.root is not None:
                axes.plot(
                    [curve.root], [0.0], marker="o", markersize=5.5, color="white", markeredgecolor=colour, zorder=4
                )
        ends = [end for curve, _ in curves for end in style.floats(curve.x)[[0, -1]]]
        style.log_axis(axes, "x", min(ends) / 1.12, max(ends) * 1.12, at_most=5 if columns > 1 else 9)
        axes.axhline(0.0, color=style.INK, linewidth=0.9)
        axes.set_title("{} → {}".format(*curves[0][0].pair))
        axes.legend(fontsize=8)
    made.supxlabel(axis_label(fit), fontsize=9)
    made.supylabel("loss of the shallower − deeper\n(10⁻³ nats per token)", fontsize=9, multialignment="center")
    note = f"Above zero the deeper net is ahead. Bands: pointwise {100 * fit.curves.confidence:.0f} %. Circle: crossed."
    made.suptitle(note, x=0.01, ha="left", fontsize=7.5, color=style.FAINT)
    return style.settle(made)


def against_tokens(fit: FitResult) -> Figure:
    """Transition size (log) against training tokens (log), one line per pair; an arrow is a pair bounded on one side.

    Points of the pairs at one token count are shifted a little apart, so that intervals do not hide each other.
    """
    made = style.figure(7.4, 4.4)
    axes = made.subplots()
    rows = [row for row in fit.by_tokens if row.is_reference]
    counts = sorted({row.tokens for row in rows})
    names = sorted({(row.shallow, row.deep) for row in rows})
    looks = style.depth_styles([shallow for shallow, _ in names])
    bounds = [n for t in rows for n in (t.axis_value, t.axis_low, t.axis_high) if n is not None]
    if not bounds:
        style.says(axes, "No pair crosses or bounds its crossing at any token count.")
        return style.settle(made)
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
            _token_interval(axes, x, transition, low, high, str(look["color"]))
        if crossed:
            ends.append((*crossed[-1], f"{pair[0]} → {pair[1]}", str(look["color"])))
    axes.set_xlabel("training tokens")
    axes.set_ylabel(f"transition: {axis_label(fit)}")
    axes.set_title("Transitions against training tokens; arrows: bounded on one side")
    return style.settle(made, style.label_right(axes, ends))


def _token_interval(axes: Axes, x: float, transition: Transition, low: float, high: float, colour: str) -> None:
    if transition.status not in ("crossed", "not_reached", "already_crossed"):
        return
    bottom = low * 1.03 if transition.axis_low is None else transition.axis_low
    top = high / 1.03 if transition.axis_high is None else transition.axis_high
    dashes = "-" if transition.status == "crossed" else (0, (2, 1.5))
    axes.plot([x, x], [bottom, top], color=colour, linewidth=1.2, linestyle=dashes)
    for end, place, arrow in ((transition.axis_low, bottom, "v"), (transition.axis_high, top, "^")):
        axes.plot([x], [place], marker=arrow if end is None else "_", color=colour, markersize=6)
