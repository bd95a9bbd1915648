"""Figure of the best depths of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dwsweep.records.answers import BEST_DEPTH, N_PARAMS, AnswerRow
from dwsweep.records.fit import FitResult
from dwsweep.report.figures import style
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS, MOST_SERIES = 6, 6
ASIDE = 1.03  # factor between the marks of two series at one size, so that both are visible
LONGEST_NAME = 28
AXES = {  # equal quantity → label of its axis
    "n_params": "non-embedding parameters N",
    "n_params_total": "all parameters",
    "tokens_per_param": "tokens per parameter",
    "flops": "training FLOPs, best N of each depth",
    "wall_time": "seconds of training, best N of each depth",
    "n_params and flops": "training FLOPs at equal N",
    "n_params and wall_time": "seconds of training at equal N",
}


def drawn(fit: FitResult) -> dict[str, dict[str, list[AnswerRow]]]:
    """Best depths to draw: equal quantity → name of the series → rows with a place on the axis and a bound."""
    found: dict[str, dict[str, list[AnswerRow]]] = {}
    rows = [row for row in fit.answers if row.question == BEST_DEPTH and row.place]
    rows = [row for row in rows if row.depth is not None or not row.depth_interval.unbounded]
    for row in rows:
        found.setdefault(row.equal, {}).setdefault(_series(row, rows, fit.nets.tokens), []).append(row)
    return found


def _series(row: AnswerRow, rows: Sequence[AnswerRow], held: float | None) -> str:
    """Name of the rows that one line joins: an arm, a column's reading, tokens that are not ``held``."""
    if row.equal != N_PARAMS:
        return row.arm
    reading = f"{row.column}: {row.value}" if row.column else ""
    tokens = "" if row.column or not row.tokens else format_count(row.tokens)
    counts = {format_count(one.tokens) for one in rows if one.equal == N_PARAMS and one.tokens and not one.column}
    other = tokens and len(counts) > 1 and tokens != format_count(held or 0.0)
    return ", ".join(part for part in (row.arm, reading, f"{tokens} tokens" if other else "") if part)


def best_depths(fit: FitResult) -> Figure:
    """Draw the best depth with its interval against size, and against each other equal quantity, a panel each."""
    panels = drawn(fit)
    names = list(panels)[:MOST_PANELS]
    columns = min(style.COLUMNS, len(names))
    made, every = style.panels(len(names), lambda rows: 1.1 + (2.4 if columns > 1 else 3.2) * rows)
    for axes, name in zip(every, names, strict=True):
        _panel(axes, panels[name])
        axes.set_xlabel(style.lines(AXES.get(name, name), columns))
    made.supylabel("best depth L (log scale)")
    level = f"{100 * fit.confidence:.0f} %"
    style.note(made, f"Bars: {level} intervals; an arrow has no bound. Open mark: no bound on either side.")
    return style.settle(made)


def _panel(axes: Axes, series: dict[str, list[AnswerRow]]) -> None:
    shown = dict(list(series.items())[:MOST_SERIES])
    rows = [row for of in shown.values() for row in of]
    places = [row.place for row in rows]
    ends = [end for row in rows for end in (row.depth, row.depth_low, row.depth_high) if end]
    style.log_axis(axes, "x", min(places) / 1.3, max(places) * 1.3, at_most=4)
    style.log_axis(axes, "y", max(0.5, min(ends) / 1.2), max(ends) * 1.2, style.plain)
    for k, (name, of) in enumerate(shown.items()):
        x, best = [row.place * ASIDE**k for row in of], [row.depth_interval for row in of]
        label = (name or "this table")[:LONGEST_NAME]
        style.estimates(axes, x, best, style.series(k), label, lambda one: not one.unbounded)
    if len(shown) > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), borderaxespad=0.1)
