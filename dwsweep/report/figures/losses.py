"""Loss against size for each depth, and loss against depth at fixed size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dwsweep.report.figures import style
from dwsweep.report.figures.content import Content, DepthCurve, FixedSize, Transition
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.content import Floats


SIZES = {
    "n_params": "N = {}",
    "n_params_total": "{} parameters in all",
    "flops": "{} FLOPs",
    "device_seconds": "{} device-seconds",
}


def against_size(content: Content) -> Figure:
    """Three panels over one axis N: the losses; their distance from a common trend; the transitions.

    Losses fall by whole nats over a sweep while depths differ by hundredths, so the first panel alone shows no order
    of the depths: the second does. The trend is a polynomial in ln N through all cells: any smooth curve would do, as
    it shifts all depths alike (the lowest curve would not: it jumps where a depth's range ends).
    """
    curves = content.curves
    strip = 0.45 + 0.2 * max(len(content.transitions), 2)
    made = style.figure(7.6, 6.1 + strip)
    if not curves:
        style.says(made.subplots(), "No finished run: there is no loss to draw.")
        return style.settle(made)
    top, middle, bottom = made.subplots(3, 1, sharex=True, height_ratios=[2.9, 2.9, strip])
    looks = style.depth_styles([curve.depth for curve in curves])
    low = min(float(curve.n.min()) for curve in curves)
    high = max(float(curve.n.max()) for curve in curves)
    trend = _trend(curves)
    ends = []
    for curve in curves:
        look = looks[curve.depth]
        for axes, at_cells, on_grid in ((top, 0.0, 0.0), (middle, trend(curve.n), trend(curve.grid_n))):
            line = curve.grid_loss - on_grid
            if curve.half is not None:
                axes.fill_between(
                    curve.grid_n, line - curve.half, line + curve.half, color=look["color"], alpha=0.18, linewidth=0
                )
            axes.plot(curve.grid_n, line, color=look["color"], linestyle=look["linestyle"])
            axes.plot(curve.n, curve.loss - at_cells, color=look["color"], marker=look["marker"], linestyle="none")
        top.plot([], [], **look, label=f"L = {curve.depth}")
        last = float(curve.grid_loss[-1] - trend(curve.grid_n)[-1])
        ends.append((float(curve.grid_n[-1]), last, f"L = {curve.depth}", str(look["color"])))
    top.set_ylabel("held-out loss\n(nats per token)")
    top.set_title(f"Loss of each depth{_banded(content)}")
    top.legend(loc="upper right", ncols=2 if len(curves) > 4 else 1, fontsize=8, handlelength=3.2)
    middle.set_ylabel("distance from the trend\n(nats per token)")
    middle.set_title("The same without the trend common to all depths: the lowest curve is the best depth")
    for axes in (top, middle):
        for transition in content.transitions:
            if transition.n is not None:
                axes.axvline(transition.n, color=style.FAINT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0.5)
    style.log_axis(bottom, "x", low / 1.12, high * 1.12)
    _strip(bottom, content.transitions, low / 1.08, high * 1.08)
    bottom.set_title("Transitions: to the right of the point the deeper net of the pair is ahead")
    bottom.set_xlabel(content.axis_label)
    return style.settle(made, style.label_right(middle, ends))


def _banded(content: Content) -> str:
    if any(curve.half is None for curve in content.curves):
        return " (no band: the noise is not known)"
    return f", with its {100 * content.confidence:.0f} % band"


def _trend(curves: Sequence[DepthCurve]) -> Callable[[Floats], Floats]:
    """Least-squares cubic in ln N through the cells of all depths.

    Of lower degree for few sizes: matched budgets cluster, and a curve with as many terms as there are clusters
    swings freely between them (a line cannot).
    """
    import numpy as np

    x = np.log(np.concatenate([curve.n for curve in curves]))
    y = np.concatenate([curve.loss for curve in curves])
    sizes = max(len(curve.n) for curve in curves)
    degree = 0 if sizes < 2 else min(3, max(1, sizes - 2))
    fitted = np.polynomial.Polynomial.fit(x, y, degree)
    return lambda n: fitted(np.log(n))


def _strip(axes: Axes, transitions: Sequence[Transition], low: float, high: float) -> None:
    """One row a pair: the root and its interval, an arrow where it is unbounded, or the verdict in words."""
    axes.grid(axis="y", visible=False)
    if not transitions:
        axes.set_yticks([])
        axes.text(0.5, 0.5, "one depth: no pair to compare", transform=axes.transAxes, ha="center", color=style.FAINT)
        return
    axes.set_ylim(len(transitions) - 0.4, -0.6)
    axes.set_yticks(range(len(transitions)), [transition.name for transition in transitions])
    for row, transition in enumerate(transitions):
        root = transition.n if transition.status == "crossed" else None
        left = low if transition.n_low is None else max(transition.n_low, low)
        right = high if transition.n_high is None else min(transition.n_high, high)
        if root is not None or transition.status in ("not_reached", "already_crossed"):
            colour = style.AGAINST if transition.status == "not_reached" else style.OWN
            dashes = "-" if root is not None else (0, (3, 1.5))
            axes.plot([left, right], [row, row], color=colour, linewidth=2.0, linestyle=dashes, solid_capstyle="butt")
            for end, place, arrow in ((transition.n_low, left, "<"), (transition.n_high, right, ">")):
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
    """A verdict beside ``n``, on the side where the row is empty."""
    left = n > (low * high) ** 0.5
    axes.annotate(
        word, xy=(n, row), xytext=(-6 if left else 6, 0), textcoords="offset points",
        ha="right" if left else "left", va="center", fontsize=8, color=style.FAINT, path_effects=style.halo(),
    )  # fmt: skip


def against_depth(content: Content) -> Figure:
    """Loss against depth at a few fixed sizes, with the fitted surface and its lowest point where there is one.

    Each panel has its own scale: what counts is the shape and the place of the minimum, not the level.
    """
    if not content.fixed:
        made = style.figure(7.6, 1.3)
        style.says(made.subplots(), "No size at which two depths were trained: nothing to compare at fixed size.")
        return style.settle(made)
    columns = min(3, len(content.fixed))
    rows = -(-len(content.fixed) // columns)
    made = style.figure(max(7.6 * columns / 3, 5.0), 0.85 + 2.1 * rows)
    depths = sorted({depth for fixed in content.fixed for depth in fixed.depth})
    looks = style.depth_styles([curve.depth for curve in content.curves])
    for axes, fixed in zip(style.panels(made, len(content.fixed), columns, sharex=True), content.fixed, strict=True):
        _panel(axes, fixed, looks)
        axes.set_title(SIZES.get(content.axis, "{}").format(format_count(fixed.n)))
        axes.set_xticks(style.thinned(depths, 8))
        axes.locator_params(axis="y", nbins=5)
    made.supxlabel("depth L", fontsize=9)
    made.supylabel("held-out loss (nats per token)", fontsize=9)
    if any(fixed.surface for fixed in content.fixed):
        note = (
            "Line and pale band: fitted surface. Bar below: interval of its lowest point; arrow: no bound on that side."
        )
        made.suptitle(note, x=0.01, ha="left", fontsize=7.5, color=style.FAINT)
    return style.settle(made)


def _panel(axes: Axes, fixed: FixedSize, looks: dict[int, dict[str, str]]) -> None:
    values = list(fixed.loss)
    if fixed.surface is not None:
        line = fixed.surface
        axes.fill_between(line.x, line.low, line.high, color=style.OWN, alpha=0.15, linewidth=0)
        axes.plot(line.x, line.y, color=style.OWN, linewidth=1.1)
        values += [*line.low, *line.high]
    else:
        axes.plot(fixed.depth, fixed.loss, color=style.FAINT, linewidth=0.9)
    if fixed.half is not None:
        axes.vlines(fixed.depth, fixed.loss - fixed.half, fixed.loss + fixed.half, color=style.INK, linewidth=1.2)
        values += [*(fixed.loss - fixed.half), *(fixed.loss + fixed.half)]
    for depth, value in zip(fixed.depth, fixed.loss, strict=True):
        axes.plot(
            [depth], [value], marker=looks[depth]["marker"], color=looks[depth]["color"],
            markeredgewidth=0.0, markersize=6.5,
        )  # fmt: skip
    bottom, top = min(values), max(values)
    room = (top - bottom) or 0.01
    axes.set_ylim(bottom - 0.22 * room, top + 0.08 * room)
    if fixed.surface is not None and fixed.optimum is not None:
        best, low, high = fixed.optimum
        level = bottom - 0.12 * room
        left = float(fixed.surface.x[0]) if low is None else low
        right = float(fixed.surface.x[-1]) if high is None else high
        axes.plot([left, right], [level, level], color=style.INK, linewidth=1.6, solid_capstyle="butt")
        for end, place, arrow in ((low, left, "<"), (high, right, ">")):
            if end is None:
                axes.plot([place], [level], marker=arrow, color=style.INK, markersize=4)
        if best is not None:
            axes.plot([best], [level], marker="o", markersize=5, color="white", markeredgecolor=style.INK)
