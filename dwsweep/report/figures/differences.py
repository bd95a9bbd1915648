"""The evidence behind each transition: difference curves with their simultaneous bands, and the trend over tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dwsweep.records.fit_curves import PairCurve
from dwsweep.records.fit_result import FitResult
from dwsweep.records.fit_rows import Transition, references
from dwsweep.report.figures import style
from dwsweep.report.figures.losses import axis_label
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MILLI = 1e3  # nats → 10⁻³ nats


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
        _panel(axes, curve, transition, fit.curves.confidence)
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


def _panel(axes: Axes, curve: PairCurve, transition: Transition, confidence: float) -> None:
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
