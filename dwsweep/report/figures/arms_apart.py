"""Two arms in one figure: their best depths and transitions, and how far their losses are apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dwsweep.records.comparison import BEST_DEPTH, TRANSITION, ArmsAtDepth, ComparedRow, Comparison
from dwsweep.records.fit_result import FitResult
from dwsweep.report.figures import style
from dwsweep.report.figures.losses import MILLI, axis_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASE, OTHER = (style.OWN, "o", "-"), (style.RIVALS[0], "s", style.LINES[1])
ASIDE = 1.015  # factor between the two arms' bars of one transition, so that neither hides the other
LONGEST_NAME = 34
BOUND = 1.5  # length of the arrow of a size without a value, as a factor
ROOM = 1.6  # beyond the smallest and the largest size


def with_numbers(fit: FitResult) -> list[Comparison]:
    """The comparisons that have any: the sentences of the others are all there is of them."""
    return [found for found in fit.comparisons if found.rows or found.depths]


def arms_apart(fit: FitResult) -> Figure:
    """One row per arm that is compared with the base. Left: best depth against size under both, with the transitions.
    Right: loss of the arm − loss of the base at each depth."""
    drawn = with_numbers(fit)
    made = style.figure(7.6, 0.75 + 3.3 * len(drawn))
    panels = style.panels(made, 2 * len(drawn), 2)
    labels: list[style.EndLabels] = []
    for found, left, right in zip(drawn, panels[::2], panels[1::2], strict=True):
        _depths(left, found, axis_label(fit))
        labels += _losses(right, found, axis_label(fit))
    made.suptitle(
        "Left: best depth at each size (lines) and transitions (diamonds, between the two depths that tie). Right: "
        "below zero the arm\nhas the lower loss; thick where the simultaneous band of a depth clears zero. Bars and "
        f"pale bands: pointwise {100 * fit.curves.confidence:.0f} %; arrow: no bound.",
        x=0.01, ha="left", fontsize=7.5, color=style.FAINT,
    )  # fmt: skip
    return style.settle(made, *labels)


def _depths(axes: Axes, found: Comparison, label: str) -> None:
    rows, pairs = found.of(BEST_DEPTH), found.of(TRANSITION)
    depths = [float(d) for row in pairs for d in (row.depth, row.deep) if d]
    depths += [d for row in rows for d in (row.base, row.other, *_ends(row)) if d]
    sizes = [row.n_params for row in rows if row.n_params]
    sizes += [n for row in pairs for n in (row.base, row.other, *_ends(row)) if n]
    if not sizes or not depths:
        style.says(axes, "No transition and no best depth\nis known under either.")
        return
    low, high = min(sizes) / ROOM, max(sizes) * ROOM
    style.log_axis(axes, "x", low, high, at_most=5)
    bottom, top = min(depths) / 1.15, max(depths) * 1.15
    style.log_axis(axes, "y", bottom, top, style.plain)
    for arm, name, (colour, marker, dashes) in ((0, found.base, BASE), (1, found.arm, OTHER)):
        known = [(row.n_params, _of(row, arm)) for row in rows if row.n_params]
        line = [(n * ASIDE**arm, depth) for n, (depth, _, _) in known if depth is not None]
        axes.plot(*zip(*line, strict=True) if line else ([], []), color=colour, linestyle=dashes, linewidth=1.2)
        for n, (depth, least, most) in known:
            if depth is not None or least is not None or most is not None:
                _bar(axes, n * ASIDE**arm, (depth, least, most), (bottom, top), colour, upright=True)
        for n, (depth, least, most) in known:  # open where the data bound it on neither side
            if depth is not None:
                face = "white" if least is None and most is None else colour
                axes.plot([n * ASIDE**arm], [depth], marker=marker, color=face, markeredgecolor=colour)
        for row in pairs:
            if row.depth and row.deep:
                level = math.sqrt(row.depth * row.deep) * (ASIDE ** (2 * arm - 1))
                size, least, most = _of(row, arm)
                _bar(axes, level, (size, least, most), (low, high), colour, upright=False)
                if size is not None:
                    axes.plot([size], [level], marker="D", markersize=6, color="white", markeredgecolor=colour)
        axes.plot([], [], color=colour, marker=marker, linestyle=dashes, linewidth=1.2, label=_short(name))
    axes.legend(fontsize=8, loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=2, borderaxespad=0.1)
    axes.set_xlabel(label)
    axes.set_ylabel("depth")


def _ends(row: ComparedRow) -> Sequence[float | None]:
    return row.base_low, row.base_high, row.other_low, row.other_high


def _of(row: ComparedRow, arm: int) -> tuple[float | None, float | None, float | None]:
    """(value, low, high) under one of the two."""
    return (row.other, row.other_low, row.other_high) if arm else (row.base, row.base_low, row.base_high)


def _bar(
    axes: Axes,
    at: float,
    interval: tuple[float | None, float | None, float | None],
    edges: tuple[float, float],
    colour: str,
    upright: bool,
) -> None:
    """An interval at a size (upright) or at a depth. An end without a bound is an arrow: to the edge, and without a
    value a short one. Nothing without any bound."""
    value, low, high = interval
    step, arrows = (1.12, "v^") if upright else (BOUND, "<>")
    if low is not None:
        start, stop = low, high if high is not None else edges[1] if value is not None else low * step
    elif high is not None:
        start, stop = edges[0] if value is not None else high / step, high
    else:
        return
    axes.plot(*([at, at], [start, stop]) if upright else ([start, stop], [at, at]), color=colour, linewidth=1.4)
    for place, bound, arrow in ((start, low, arrows[0]), (stop, high, arrows[1])):
        if bound is None:
            axes.plot(*([at], [place]) if upright else ([place], [at]), marker=arrow, markersize=4, color=colour)


def _losses(axes: Axes, found: Comparison, label: str) -> list[style.EndLabels]:
    axes.set_title(f"{_short(found.arm)} − {_short(found.base)}", fontsize=9)
    if not found.depths:
        style.says(axes, "No loss difference: no depth has a curve\nunder both, or the noise is not known.")
        return []
    looks = style.depth_styles([one.curve.depth for one in found.depths])
    ends = []
    for one in found.depths:
        look = looks[one.curve.depth]
        x, g = style.floats(one.curve.x), MILLI * style.floats(one.curve.g)
        low, high = MILLI * style.floats(one.curve.low), MILLI * style.floats(one.curve.high)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        axes.plot(x, g, color=look["color"], linestyle=look["linestyle"], linewidth=1.0)
        for start, stop in _parted(one):
            axes.plot(x[start:stop], g[start:stop], color=look["color"], linewidth=2.8, solid_capstyle="butt")
        ends.append((float(x[-1]), float(g[-1]), f"L {one.curve.depth}", str(look["color"])))
    spans = [float(v) for one in found.depths for v in style.floats(one.curve.x)[[0, -1]]]
    style.log_axis(axes, "x", min(spans) / 1.12, max(spans) * 1.12, at_most=5)
    axes.axhline(0.0, color=style.INK, linewidth=0.9)
    axes.set_xlabel(label)
    axes.set_ylabel(f"loss difference\n(10⁻³ {found.unit})", multialignment="center")
    return [style.label_right(axes, ends)]


def _parted(one: ArmsAtDepth) -> list[tuple[int, int]]:
    """Places of the curve's points, from and up to, at which one arm is ahead."""
    x = list(one.curve.x)
    return [(x.index(part.start), x.index(part.end) + 1) for part in one.partings]


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"
