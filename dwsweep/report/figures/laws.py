"""Figures of laws: the width law with its alternatives, and its guideline beside trained models.

Figures of ``dwsweep guide``: the cost of each buildable shape, and the cost of a rule of thumb over sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep import paths
from dwsweep.interval import Interval
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import Transition
from dwsweep.report.figures import style
from dwsweep.text import format_factor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.guide.answers import Answer, Assumptions, BestDepth, BudgetAnswer, Candidate
    from dwsweep.report.figures.style import Dashes, Floats, Look


PUBLISHED = "published"
OTHER_LINES: tuple[Dashes, ...] = (
    *((0, (6, 2)), (0, (1.5, 1.5))),
    *((0, (6, 1.5, 1.5, 1.5, 1.5, 1.5)), (0, (3, 3))),
)
PUBLISHED_LINE: Dashes = (0, (9, 2, 2, 2))


@dataclass(frozen=True)
class Line:
    """Line of one value over another, with the ends of its interval (NaN: no value or no bound)."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class DrawnLaw:
    """Law drawn in a figure. form: average, exponential, linear, power or published. band: band of the record."""

    form: str
    label: str
    look: Look
    band: Any

    def line(self, x: str, y: str) -> Line:
        """Line of the column ``y`` of the band against ``x``."""
        return Line(*(style.floats(getattr(self.band, name)) for name in (x, y, f"{y}_low", f"{y}_high")))


def drawn_laws(fit: FitResult) -> list[DrawnLaw]:
    """Laws of the best depth to draw: the sweep's own, the exponential first (none without a width law), then the
    published one."""
    own = [form for form in fit.curves.laws if form != PUBLISHED] if fit.width_law else []
    worse = {row.form: row.delta_chi2 for row in fit.rivals}
    drawn, bands = [], fit.curves.laws
    for place, form in enumerate(sorted(own, key=lambda form: form != "exponential")):
        above = worse.get(form)
        label = f"own {form}" + (f", Δχ² {above:.1f}" if above else "")
        look: Look = {"color": style.OWN, "linestyle": "-", "linewidth": 2.0}
        if place:
            look = {"color": style.OTHERS[place - 1], "linestyle": OTHER_LINES[place - 1], "linewidth": 1.3}
        drawn.append(DrawnLaw(form, label, look, bands[form]))
    faint: Look = {"color": style.FAINT, "linestyle": PUBLISHED_LINE, "linewidth": 1.3}
    return [*drawn, DrawnLaw(PUBLISHED, "published law", faint, bands[PUBLISHED])]


def width_law(fit: FitResult) -> Figure:
    """Width (log) of the best depth: laws as lines, the exponential with its band. As a check the pairs, each at its
    shallower depth: crossed ones as points with their intervals, those bounded on one side as arrows.

    The published law is drawn over its own data, and only if these overlap with the sweep's.
    """
    laws, transitions = drawn_laws(fit), fit.verdicts
    main = laws[0].line("depth", "width")
    made = style.figure(style.WIDTH, 4.4)
    axes = made.subplots()
    depths = sorted(fit.curves.depths)
    first, last = depths[0], depths[-1]
    room = 0.05 * (last - first) or 2.0
    known = [w for t in transitions for w in (t.width, t.width_low, t.width_high) if w is not None]
    known += [float(w) for w in np.interp([first, last], main.x, main.y) if np.isfinite(w)]
    low, high = min(known) / 1.35, max(known) * 1.35
    style.log_axis(axes, "y", low, high, label=style.plain)
    axes.set_xlim(max(first - room, 0.5), last + room)
    axes.set_xticks(style.thinned(depths, 10))
    _band(axes, main, low, high, laws[0].look["color"])
    for law in laws:
        line = law.line("depth", "width")
        n = 12.0 * line.x * line.y**2
        inside = (line.y >= low) & (line.y <= high)
        if law.form == PUBLISHED:
            inside &= (n >= fit.published.valid_from) & (n <= fit.published.valid_to)
        if inside.any():
            axes.plot(line.x[inside], line.y[inside], **law.look, label=law.label)
    for transition in transitions:
        crossed = transition.status == "crossed"
        if crossed or transition.status in ("not_reached", "already_crossed"):
            value = transition.width if crossed else None
            interval = Interval(value, transition.width_low, transition.width_high)
            style.interval_mark(axes, transition.shallow, interval)
    axes.set_xlabel("best depth L; points: the shallower net of a pair")
    axes.set_ylabel("width d_x (log scale)")
    axes.set_title(_headline(transitions))
    made.legend(loc="outside lower center", ncols=2, handlelength=3.0)
    return style.settle(made)


def _headline(transitions: Sequence[Transition]) -> str:
    crossed = sum(t.status == "crossed" for t in transitions)
    censored = sum(t.status in ("not_reached", "already_crossed") for t in transitions)
    found = f"{crossed} crossed, {censored} bounded on one side (arrows)" if censored else f"{crossed} crossed"
    return f"Width law of the best depth; points: transitions,\n{found}"


def guideline(fit: FitResult) -> Figure:
    """Best depth and best width against N: the rows of the guideline with their intervals, filled where the losses of
    the sweep answer, beside GPT-3's shapes."""
    rows = [row for row in fit.guideline if not row.depth_interval.unbounded]
    made = style.figure(style.WIDTH, 6.4)
    panels = made.subplots(2, 1, sharex=True)
    for axes, name, label in zip(panels, ("depth", "width"), ("best depth L", "best width d_x"), strict=True):
        found = [Interval(*(getattr(row, f"{name}{end}") for end in ("", "_low", "_high"))) for row in rows]
        trained = [(row.n_params, getattr(row, f"trained_{name}")) for row in rows if row.trained_depth]
        ends = [end for one in found for end in (one.value, one.low, one.high) if end]
        ends += [float(value) for _, value in trained]
        style.log_axis(axes, "y", min(ends) / 1.2, 1.2 * max(ends), label=style.plain)
        for row, one in zip(rows, found, strict=True):
            style.interval_mark(axes, row.n_params, one, face=style.OWN if row.law.startswith("own") else "white")
        for n_params, value in trained:
            axes.plot([n_params], [value], marker="D", markersize=5, color="white", markeredgecolor=style.INK, zorder=5)
        axes.set_ylabel(f"{label} (log scale)")
    sizes = [row.n_params for row in rows]
    style.log_axis(panels[1], "x", min(sizes) / 1.5, 1.5 * max(sizes), at_most=6)
    panels[0].set_title("Best shape by `guide --fit`; filled: these losses answer\ndiamonds: GPT-3 as trained")
    panels[1].set_xlabel("non-embedding parameters N = 12·L·d²")
    return style.settle(made)


def _band(axes: Axes, line: Line, bottom: float, top: float, colour: str) -> None:
    """Draw the interval, to the axis' edge without a bound; nothing if the law gives no number."""
    low = np.where(np.isfinite(line.low), line.low, bottom)
    high = np.where(np.isfinite(line.high), line.high, top)
    known = np.isfinite(line.y)
    style.band(axes, line.x[known], low[known], high[known], colour)


# label, constraint, colour, line, marker: distinct in grey too
CURVES = (
    ("equal size", "size", "#0072B2", "-", "o"),
    ("equal FLOPs", "flops", "#D55E00", (0, (6, 1.5)), "s"),
    ("equal time", "time", "#009E73", (0, (1.5, 1.5)), "^"),
    ("equal decode latency", "decode", "#CC79A7", (0, (6, 1.5, 1, 1.5)), "D"),
)
ABOVE_WIDTHS = 34.0  # points between a panel and its title, for the scale of widths
LABEL_GAP = 0.15  # least gap of two width labels above the panel, as a share of its width
COST_LABEL = "wasted compute, %"


def draw_guide(answer: Answer, out_dir: str | PathLike[str]) -> list[Path]:
    """Write ``guide``, ``sources`` and ``overview``, each as PNG and SVG: a panel per budget, cost against depth; a
    panel per budget, a row for each public source; best depths against size. No file without a budget with shapes,
    sources, or an overview.
    """
    made = figures(answer)
    if not made:
        return []
    folder = paths.make_directory(paths.as_path(out_dir))
    with style.styled():
        return [path for name, figure in made.items() for path in style.save(figure(), folder, name)]


def figures(answer: Answer) -> dict[str, Callable[[], Figure]]:
    """Drawers of the figures that an answer has, by name: ``guide``, ``sources``, ``overview``."""
    rows = [row for row in answer.budgets if row.candidates]
    made: dict[str, Callable[[], Figure]] = {}
    if rows:
        made["guide"] = lambda: _costs(rows, answer.assumptions)
    if any(row.by_source for row in answer.budgets):
        made["sources"] = lambda: sources(answer.budgets)
    if answer.overview:
        made["overview"] = lambda: overview(answer.overview)
    return made


def overview(rows: Sequence[BestDepth]) -> Figure:
    """Best depth with its interval against N, one mark per size of the overview, beside the depths of GPT-3's table."""
    made = style.figure(style.WIDTH, 4.2)
    axes = made.add_subplot()
    named = [None if row.basis == "range" else row.depth for row in rows]  # a range names no best depth
    marks = [Interval(depth, row.depth_low, row.depth_high) for row, depth in zip(rows, named, strict=True)]
    trained = [(row.n_params, row.trained_depth) for row in rows if row.trained_depth]
    ends = [end for mark in marks for end in (mark.low, mark.value, mark.high) if end]
    ends += [float(depth) for _, depth in trained]
    sizes = [row.n_params for row in rows]
    style.log_axis(axes, "x", min(sizes) / 1.5, 1.5 * max(sizes), at_most=6)
    style.log_axis(axes, "y", max(0.5, min(ends) / 1.2), 1.2 * max(ends), label=style.plain)
    colours = dict(zip(dict.fromkeys(row.source for row in rows), (style.OWN, style.INK), strict=False))
    for row, mark in zip(rows, marks, strict=True):
        style.interval_mark(axes, row.n_params, mark, colours[row.source], face="white")
    for n_params, depth in trained:
        axes.plot([n_params], [depth], marker="D", markersize=5, color="white", markeredgecolor=style.INK, zorder=5)
    axes.set_title(f"Best depth with 95 %, by {' and '.join(colours)}\ndiamonds: GPT-3 as trained", loc="left")
    axes.set_xlabel("non-embedding parameters N")
    axes.set_ylabel("best depth L (log scale)")
    return style.settle(made)


def _costs(rows: Sequence[BudgetAnswer], assumptions: Assumptions) -> Figure:
    made = style.figure(style.WIDTH, 0.5 + 4.4 * len(rows))
    for axes, row in zip(made.subplots(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        _panel(axes, row, assumptions)
    return made


def sources(budgets: Sequence[BudgetAnswer]) -> Figure:
    """Forest plot per budget: the best depth of each public source's own recipe with its 95 %, and the answer below a
    line. Empty marks are extrapolated beyond the source's own statement."""
    rows = [row for row in budgets if row.by_source]
    made = style.figure(style.WIDTH, sum(1.2 + 0.26 * (len(row.by_source) + 1) for row in rows))
    heights = [len(row.by_source) + 4 for row in rows]
    for axes, row in zip(made.subplots(len(rows), 1, squeeze=False, height_ratios=heights)[:, 0], rows, strict=True):
        _forest(axes, row)
    return style.settle(made)


def _forest(axes: Axes, row: BudgetAnswer) -> None:
    best, listed = row.optimum, row.by_source
    marks = [one.depth_interval for one in listed]
    marks.append(best.depth_interval)
    names = [one.name for one in listed] + ["answer"]
    ends = [end for mark in marks for end in (mark.low, mark.value, mark.high) if end]
    style.log_axis(axes, "x", max(0.5, min(ends) / 1.15), 1.15 * max(ends), label=style.plain)
    axes.set_ylim(len(names) - 0.4, -0.6)
    for k, (mark, one) in enumerate(zip(marks, [*listed, None], strict=True)):
        colour = style.OWN if one is None else style.INK
        face = colour if one is None or one.words.startswith("own") else "white"
        style.interval_mark(axes, k, mark, colour, upright=False, face=face, marker="D" if one is None else "o")
    axes.axhline(len(listed) - 0.5, color=style.FAINT, linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_xlabel("best depth L, 95 % (log scale)")
    axes.set_title(
        f"{best.name}: best depth by each public source\nfilled: the source's own figures; empty: extrapolated",
        loc="left",
    )


def _panel(axes: Axes, row: BudgetAnswer, assumptions: Assumptions) -> None:
    shapes = sorted(row.candidates, key=lambda shape: shape.depth)
    best = row.optimum
    top = 0.0
    for label, constraint, colour, line, marker in CURVES:
        costs = [(shape.depth, shape.cost(constraint)) for shape in shapes]
        points = [(depth, cost.less_compute) for depth, cost in costs if cost is not None]
        # latencies differ so much that the other curves would look flat
        if not points or (constraint == "decode" and row.at != constraint):
            continue
        top = max(top, *(value for _, value in points))
        if constraint == "time":
            label += f" on one {assumptions.training_device}, rate {assumptions.training_rate}"
        axes.plot(*zip(*points, strict=True), color=colour, linestyle=line, marker=marker, label=label)
    if best.depth_low is not None and best.depth_high is not None:
        axes.axvspan(
            best.depth_low, best.depth_high, color="#0072B2", alpha=0.1, label="best depth at equal size, 95 %"
        )
    top = 1.06 * top or 1.0
    axes.set_ylim(-0.04 * top, top)  # the best shapes lie on zero: show their markers whole
    axes.set_xlim(0.9 * shapes[0].depth, 1.05 * shapes[-1].depth)
    for near in row.near_best:
        if near.less_compute < top:
            axes.axhline(near.less_compute, color=style.FAINT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
            share, across = f" {near.less_compute:g} %", axes.get_yaxis_transform()
            axes.text(1.0, near.less_compute, share, transform=across, va="center", color=style.FAINT)
    chosen = "a default" if row.no_best else "recommended"
    for shape, said in ((row.recommended, chosen), (row.usual, "usual")):
        cost = shape.cost(row.at) if shape else None
        if shape and cost:
            where = (shape.depth, cost.less_compute)
            axes.plot(*where, marker="o", markersize=11, markerfacecolor="none", color=style.INK, linestyle="none")
            left, right = axes.get_xlim()
            axes.annotate(
                f"{said} {shape.label}",
                where,
                (shape.depth, 0.87 if said == "usual" else 0.95),
                textcoords=("data", "axes fraction"),
                ha="left" if where[0] < left + 0.2 * (right - left) else "center",
                va="top",
                arrowprops={"arrowstyle": "-", "linewidth": 0.6, "color": style.FAINT, "shrinkB": 6},
            )
    _widths(axes, shapes)
    counted = "parameters, embeddings included" if row.total else "non-embedding parameters"
    far = "" if best.extrapolation_factor <= 1 else f", {format_factor(best.extrapolation_factor)}× outside the data"
    basis = "\ncosts from an ASSUMED price of depth" if row.loss_tag and row.loss_tag.startswith("ASSUMED") else ""
    title = f"{best.name} {counted}, trust: {best.trust.level}\n{best.source}{far}{basis}"
    axes.set_title(title, loc="left", pad=ABOVE_WIDTHS)
    axes.set_xlabel("depth L")
    axes.set_ylabel(COST_LABEL)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.16), frameon=False)


def _widths(axes: Axes, shapes: Sequence[Candidate]) -> None:
    """Draw the width of each shape above its depth, without labels that would touch a neighbour."""
    low, high = axes.get_xlim()
    kept: list[Candidate] = []
    for shape in shapes:
        if not kept or shape.depth - kept[-1].depth >= LABEL_GAP * (high - low):
            kept.append(shape)
    above = axes.secondary_xaxis("top")
    above.set_xticks([shape.depth for shape in kept], [f"{shape.width}" for shape in kept])
    above.tick_params(length=2)
    above.set_xlabel("width d_x of the shapes")
