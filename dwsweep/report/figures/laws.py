"""Figures of laws: the width law with its alternatives; of ``dwsweep guide`` the cost of each buildable shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep import published_law
from dwsweep.fit.statistics.laws import FORMS
from dwsweep.guide.answers import PRICES
from dwsweep.records.fit import FitResult
from dwsweep.report.figures import style
from dwsweep.text import format_factor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.guide.advice import Answer
    from dwsweep.guide.answers import BudgetAnswer
    from dwsweep.guide.shapes import Options
    from dwsweep.report.figures.style import Floats, Look


def width_law(fit: FitResult) -> Figure:
    """Width (log) of the best depth: laws as lines, the exponential with its band. As a check the pairs, each at its
    shallower depth: crossed ones as points with their intervals, those bounded on one side as arrows.

    The published law is drawn over its own data, and only if these overlap with the sweep's.
    """
    law = fit.width_law
    assert law is not None
    depth, bottom, top = np.array(law.band, dtype=float).T  # NaN for None
    made = style.figure(4.4)
    axes = made.subplots()
    depths = sorted({cell.depth for cell in fit.cells if not cell.excluded})
    first, last = depths[0], depths[-1]
    room = 0.05 * (last - first) or 2.0
    own = {
        row.form: np.exp(FORMS[row.form].ln_width(np.array([row.a, row.b]), depth)) for row in fit.rivals if row.bounded
    }
    known = [w for t in fit.verdicts for w in (t.width, t.width_low, t.width_high) if w is not None]
    known += np.interp([first, last], depth, own[law.form]).tolist()
    low, high = min(known) / 1.35, max(known) * 1.35
    style.log_axis(axes, "y", low, high, label=style.plain)
    axes.set_xlim(max(first - room, 0.5), last + room)
    axes.set_xticks(style.evenly(depths, 10))
    verdicts = {row.form: row.verdict for row in fit.rivals}
    for k, form in enumerate(sorted(own, key=lambda form: form != law.form)):
        look = {**style.series(k), "marker": None, "linewidth": 1.3 if k else 2.0}
        if k == 0:
            style.band(axes, depth, np.nan_to_num(bottom, nan=low), np.nan_to_num(top, nan=high), look["color"])
        _line(axes, depth, own[form], (own[form] >= low) & (own[form] <= high), look, f"own {form}, {verdicts[form]}")
    published = np.exp(published_law.A + published_law.B * depth)
    n, (least, most) = 12.0 * depth * published**2, published_law.TRAINED_N_PARAMS
    inside = (published >= low) & (published <= high) & (n >= least) & (n <= most)
    look = {"color": style.FAINT, "linestyle": style.LINES[-1], "linewidth": 1.3}
    _line(axes, depth, published, inside, look, "published law")
    bounded = [t for t in fit.verdicts if t.status in ("crossed", "not_reached", "already_crossed")]
    for transition in bounded:
        style.interval_mark(axes, transition.shallow, transition.width_interval)
    axes.set_xlabel("best depth L; points: the shallower net of a pair")
    axes.set_ylabel("width d_x (log scale)")
    crossed = sum(t.status == "crossed" for t in bounded)
    said = f"{crossed} crossed, {len(bounded) - crossed} bounded on one side (arrows)"
    axes.set_title(f"Width law of the best depth; points: transitions,\n{said}")
    made.legend(loc="outside lower center", ncols=2, handlelength=2.6, columnspacing=1.0)
    return style.settle(made)


def _line(axes: Axes, x: Floats, y: Floats, inside: Any, look: Look, label: str) -> None:
    if inside.any():
        axes.plot(x[inside], y[inside], **look, label=label)


def figures(answer: Answer) -> dict[str, Callable[[], Figure]]:
    """Drawer of the figure ``guide``, a panel per budget of cost against depth, if a budget has shapes."""
    rows = [row for row in answer.budgets if row.candidates]
    return {"guide": lambda: _costs(rows, answer.assumptions)} if rows else {}


def _costs(rows: Sequence[BudgetAnswer], options: Options) -> Figure:
    made = style.figure(0.5 + 4.4 * len(rows))
    for axes, row in zip(made.subplots(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        _panel(axes, row, options)
    return made


def _panel(axes: Axes, row: BudgetAnswer, options: Options) -> None:
    shapes, best = sorted(row.candidates, key=lambda shape: shape.depth), row.optimum
    for k, (constraint, (label, _)) in enumerate(PRICES.items()):
        costs = [(shape.depth, shape.cost(constraint)) for shape in shapes]
        points = [(depth, cost.less_compute) for depth, cost in costs if cost is not None]
        # latencies differ so much that the other curves would look flat
        if not points or (constraint == "decode" and row.at != constraint):
            continue
        if constraint == "time":
            label += f" on {options.training_rate}"
        axes.plot(*zip(*points, strict=True), **style.series(k), label=label)
    if best.depth_low is not None and best.depth_high is not None:
        axes.axvspan(best.depth_low, best.depth_high, color=style.OWN, alpha=0.1, label="best depth, 95 %")
    cost = row.recommended.cost(row.at) if row.recommended else None
    if row.recommended and cost:
        chosen = f"{'a default' if best.basis == 'range' else 'recommended'} {row.recommended.label}"
        ring: Look = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "linestyle": "none"}
        axes.plot(row.recommended.depth, cost.less_compute, color=style.INK, label=chosen, **ring)
    axes.set_xlim(0.9 * shapes[0].depth, 1.05 * shapes[-1].depth)
    far = "" if best.extrapolation_factor <= 1 else f", {format_factor(best.extrapolation_factor)}× outside the data"
    basis = "\ncosts from an ASSUMED price of depth" if row.loss_tag and row.loss_tag.startswith("ASSUMED") else ""
    axes.set_title(f"{best.name} non-embedding parameters, trust: {best.trust.level}\n{best.source}{far}{basis}")
    axes.set_xlabel("depth L")
    axes.set_ylabel("wasted compute, %")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.16), frameon=False)
