"""Where a pair crosses, against how long it was trained: drawn only where a table holds several token counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwsweep.report.figures import style
from dwsweep.report.figures.content import Content, Transition

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def against_tokens(content: Content) -> Figure:
    """Transition size (log) against training tokens (log), one line a pair; an arrow is a pair bounded on one side.

    Points of the pairs at one token count are shifted a little apart, so that intervals do not hide each other.
    """
    made = style.figure(7.4, 4.4)
    axes = made.subplots()
    counts = sorted({tokens for tokens, _ in content.by_tokens})
    names = sorted({(t.shallow, t.deep) for _, t in content.by_tokens})
    looks = style.depth_styles([shallow for shallow, _ in names])
    bounds = [n for _, t in content.by_tokens for n in (t.n, t.n_low, t.n_high) if n is not None]
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
        there = [(tokens * shift, t) for tokens, t in content.by_tokens if (t.shallow, t.deep) == pair]
        crossed = [(x, t.n) for x, t in there if t.status == "crossed" and t.n is not None]
        axes.plot([x for x, _ in crossed], [n for _, n in crossed], **look)
        for x, transition in there:
            _interval(axes, x, transition, low, high, str(look["color"]))
        if crossed:
            ends.append((*crossed[-1], f"{pair[0]} → {pair[1]}", str(look["color"])))
    axes.set_xlabel("training tokens")
    axes.set_ylabel(f"transition: {content.axis_label}")
    axes.set_title("Transitions against training tokens; arrows: bounded on one side")
    return style.settle(made, style.label_right(axes, ends))


def _interval(axes: Axes, x: float, transition: Transition, low: float, high: float, colour: str) -> None:
    if transition.status not in ("crossed", "not_reached", "already_crossed"):
        return
    bottom = low * 1.03 if transition.n_low is None else transition.n_low
    top = high / 1.03 if transition.n_high is None else transition.n_high
    dashes = "-" if transition.status == "crossed" else (0, (2, 1.5))
    axes.plot([x, x], [bottom, top], color=colour, linewidth=1.2, linestyle=dashes)
    for end, place, arrow in ((transition.n_low, bottom, "v"), (transition.n_high, top, "^")):
        axes.plot([x], [place], marker=arrow if end is None else "_", color=colour, markersize=6)
