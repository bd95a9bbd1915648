"""The width law with its rivals: transition width against depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dwsweep.report.figures import style
from dwsweep.report.figures.content import Content, Law, Transition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIVAL_LINES: tuple[Any, ...] = ((0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5, 1.5, 1.5)))
PUBLISHED_LINE: Any = (0, (9, 2, 2, 2))


def look(content: Content, law: Law) -> dict[str, Any]:
    """Colour, dashes and weight of a law, the same in every figure."""
    if law is content.published:
        return {"color": style.FAINT, "linestyle": PUBLISHED_LINE, "linewidth": 1.3}
    place = list(content.laws).index(law)
    if place == 0:
        return {"color": style.OWN, "linestyle": "-", "linewidth": 2.0}
    return {"color": style.RIVALS[place - 1], "linestyle": RIVAL_LINES[place - 1], "linewidth": 1.3}


def width_law(content: Content) -> Figure:
    """Transition width (log) against the depth of the shallower net: crossed pairs as points with their intervals,
    pairs bounded on one side as arrows, laws as lines, the guiding law (or else the published one) with its band."""
    import numpy as np

    made = style.figure(7.4, 4.6)
    axes = made.subplots()
    depths = sorted({curve.depth for curve in content.curves})
    first, last = (depths[0], depths[-1]) if depths else (float(content.published.width_at_depth.x[0]), 48.0)
    room = 0.05 * (last - first) or 2.0
    ends_of_axis = (max(first - room, 0.5), last + room)
    known = [w for t in content.transitions for w in (t.width, t.width_low, t.width_high) if w is not None]
    for law in (content.main, content.published):
        line = law.width_at_depth
        known += [float(w) for w in np.interp([first, last], line.x, line.y) if np.isfinite(w)]
    low, high = min(known) / 1.35, max(known) * 1.35
    style.log_axis(axes, "y", low, high, label=style.plain)
    axes.set_xlim(*ends_of_axis)
    axes.set_xticks(style.thinned(depths, 14))
    band = content.main.width_at_depth
    tint = look(content, content.main)["color"]
    axes.fill_between(band.x, _finite(band.low, low), _finite(band.high, high), color=tint, alpha=0.18, linewidth=0)
    ends: list[tuple[float, float, str, str]] = []
    for law in (*content.laws, content.published):
        line = law.width_at_depth
        axes.plot(line.x, line.y, **look(content, law))
        there = np.flatnonzero((line.x <= ends_of_axis[1]) & (line.y >= low) & (line.y <= high))
        if len(there):
            ends.append((float(line.x[there[-1]]), float(line.y[there[-1]]), law.label, look(content, law)["color"]))
    for transition in content.transitions:
        _point(axes, transition, low, high)
    axes.set_xlabel("depth L of the shallower net of the pair")
    axes.set_ylabel("transition width $d_x$ (log scale)")
    axes.set_title(_headline(content))
    return style.settle(made, style.label_right(axes, ends))


def _finite(values: Any, otherwise: float) -> Any:
    import numpy as np

    return np.where(np.isfinite(values), values, otherwise)


def _headline(content: Content) -> str:
    if not content.transitions:
        return "No law of its own: there is no pair of depths to compare"
    crossed = sum(t.status == "crossed" for t in content.transitions)
    censored = sum(t.status in ("not_reached", "already_crossed") for t in content.transitions)
    told = f"{crossed} crossed, {censored} bounded on one side (arrows)" if censored else f"{crossed} crossed"
    return f"Width law and transitions: {told}" if content.laws else f"No law of its own; transitions: {told}"


def _point(axes: Axes, transition: Transition, low: float, high: float) -> None:
    """A crossed pair as a point with its interval; a pair bounded on one side as an arrow from its bound."""
    at = transition.shallow
    if transition.status == "crossed" and transition.width is not None:
        bottom = transition.width_low if transition.width_low is not None else low * 1.05
        top = transition.width_high if transition.width_high is not None else high / 1.05
        axes.plot([at, at], [bottom, top], color=style.INK, linewidth=1.6, zorder=4)
        for end, place, unbounded in ((transition.width_low, bottom, "v"), (transition.width_high, top, "^")):
            axes.plot([at], [place], marker=unbounded if end is None else "_", markersize=7, color=style.INK, zorder=4)
        axes.plot(
            [at], [transition.width], marker="o", markersize=6, color="white", markeredgecolor=style.INK, zorder=5
        )
        return
    if transition.status == "not_reached" and transition.width_low is not None:
        start, end = transition.width_low, transition.width_low * 1.22
    elif transition.status == "already_crossed" and transition.width_high is not None:
        start, end = transition.width_high, transition.width_high / 1.22
    else:
        return
    arrow = {"arrowstyle": "-|>", "color": style.INK, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=(at, end), xytext=(at, start), arrowprops=arrow, zorder=4)
    axes.plot([at], [start], marker="_", markersize=9, color=style.INK, zorder=4)
