"""The evidence behind each transition: the difference curves with their simultaneous bands and verdicts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dwsweep.report.figures import style
from dwsweep.report.figures.content import Content, Difference
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MILLI = 1e3  # nats → 10⁻³ nats


def differences(content: Content) -> Figure:
    """One panel a pair: shallower − deeper in millinats; above zero the deeper net is ahead.

    The vertical scale differs between panels (a pair far apart would flatten the rest), so each has its own ticks. A
    bar on the zero line is the interval of the transition; a strip at the foot marks where one net is significantly
    ahead by the simultaneous band.
    """
    pairs = content.differences
    if not pairs:
        made = style.figure(7.6, 1.3)
        why = "; ".join(f"{t.name}: {t.reason}" for t in content.transitions if t.reason)
        style.says(made.subplots(), f"No two depths to compare{': ' + why if why else '.'}")
        return style.settle(made)
    columns = 1 if len(pairs) == 1 else 2 if len(pairs) in (2, 4) else 3
    rows = math.ceil(len(pairs) / columns)
    made = style.figure(7.6, 0.95 + 2.05 * rows if columns > 1 else 3.6)
    low = min(float(pair.n[0]) for pair in pairs)
    high = max(float(pair.n[-1]) for pair in pairs)
    for axes, pair in zip(style.panels(made, len(pairs), columns), pairs, strict=True):
        _panel(axes, pair)
        style.log_axis(axes, "x", low / 1.12, high * 1.12, at_most=5 if columns > 1 else 9)
    made.supxlabel(content.axis_label, fontsize=9)
    made.supylabel("loss of the shallower − deeper\n(10⁻³ nats per token)", fontsize=9, multialignment="center")
    made.suptitle(
        f"Above zero the deeper net is ahead. Dark band: pointwise {100 * content.confidence:.0f} %; pale: "
        "simultaneous (sup-t), from which the verdict is read.\nBar on the zero line: interval of the transition. "
        "Strip at the foot: one net significantly ahead (filled: the deeper, hatched: the shallower).",
        x=0.01, ha="left", fontsize=7.5, color=style.FAINT,
    )  # fmt: skip
    return style.settle(made)


def _panel(axes: Axes, pair: Difference) -> None:
    g = MILLI * pair.g
    transition = pair.transition
    if pair.half is None or pair.sup_low is None or pair.sup_high is None:
        bottom, top = min(float(g.min()), 0.0), max(float(g.max()), 0.0)
    else:
        low, high = MILLI * pair.sup_low, MILLI * pair.sup_high
        axes.fill_between(pair.n, low, high, color=style.OWN, alpha=0.13, linewidth=0)
        axes.fill_between(
            pair.n, g - MILLI * pair.half, g + MILLI * pair.half, color=style.OWN, alpha=0.28, linewidth=0
        )
        bottom, top = min(float(low.min()), 0.0), max(float(high.max()), 0.0)
        # hatched for one side, so that grey tells them apart
        foot = axes.get_xaxis_transform()
        axes.fill_between(pair.n, 0.0, 0.035, where=list(low > 0.0), transform=foot, color=style.OWN, linewidth=0)
        axes.fill_between(
            pair.n, 0.0, 0.035, where=list(high < 0.0), transform=foot,
            facecolor="white", edgecolor=style.AGAINST, hatch="////////", linewidth=0.6,
        )  # fmt: skip
    axes.plot(pair.n, g, color=style.OWN)
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    room = (top - bottom) or 1.0
    axes.set_ylim(bottom - 0.14 * room, top + 0.06 * room)
    axes.locator_params(axis="y", nbins=6)
    if transition.status == "crossed" and transition.n is not None:
        left = float(pair.n[0]) if transition.n_low is None else transition.n_low
        right = float(pair.n[-1]) if transition.n_high is None else transition.n_high
        axes.plot([left, right], [0.0, 0.0], color=style.INK, linewidth=4.0, solid_capstyle="butt", zorder=3)
        axes.plot([transition.n], [0.0], marker="o", markersize=6, color="white", markeredgecolor=style.INK, zorder=4)
    where = f" at {format_count(transition.n)}" if transition.n is not None else ""
    known = "" if pair.half is not None else " (noise unknown)"
    axes.set_title(f"{transition.name}: {transition.status.replace('_', ' ')}{where}{known}", fontsize=9)
