"""Figures of single runs: training curves (one panel per depth, one thin line per run), and loss against learning rate
(one curve per depth, one panel per parametrization and width, with the optima).

If a parametrization transfers the learning rate over depth, the optima line up vertically.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dwsweep.fit.statistics.parabola import lowest
from dwsweep.records.transitions import RateRun
from dwsweep.report.figures import style
from dwsweep.text import NATS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import Floats, Look


BINS = 60  # bins of ln step: about the resolution of a panel

FEWEST_RATES = 3  # fewest learning rates of a curve
MOST_PANELS = 12  # most panels of a figure


class TrainingCurve(NamedTuple):
    """Training loss (nats per token) of one run, averaged in bins of ln step."""

    depth: int
    n_params: float
    diverged: bool
    step: Floats
    loss: Floats


def training_curve(run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> TrainingCurve | None:
    """Training curve of a row of results.csv from the rows of its metrics.jsonl; None if no finite loss was logged."""
    logged = [(row["step"], row["loss"]) for row in rows if _usable(row)]
    if not logged:
        return None
    step, loss = np.array(logged, dtype=float).T
    place = np.log(step / step.min())
    bins = np.minimum((place / (place.max() or 1.0) * BINS).astype(int), BINS - 1)
    number = np.bincount(bins, minlength=BINS)
    kept = number > 0
    means = (np.bincount(bins, weights=values, minlength=BINS)[kept] / number[kept] for values in (step, loss))
    return TrainingCurve(int(run["depth"]), float(run["n_params"]), run.get("status") == "diverged", *means)


def _usable(row: Mapping[str, Any]) -> bool:
    step, loss = row.get("step"), row.get("loss")
    return isinstance(step, int) and step > 0 and isinstance(loss, (int, float)) and math.isfinite(loss)


def training_curves(curves: Sequence[TrainingCurve]) -> Figure:
    """Draw training loss against step, one panel per depth; lightness is the size, and a diverged run is dashed."""
    depths = sorted({c.depth for c in curves})
    several = len(depths) > 1
    made, panels = style.panels(len(depths), lambda rows: 1.2 + 1.8 * rows if several else 3.2, True, True)
    looks = style.depth_styles([c.n_params for c in curves])
    for axes, depth in zip(panels, depths, strict=True):
        there = [c for c in curves if c.depth == depth]
        for c in sorted(there, key=lambda c: c.n_params):
            look = {"color": looks[c.n_params]["color"], "linestyle": "--" if c.diverged else "-", "linewidth": 0.9}
            axes.plot(c.step, c.loss, rasterized=len(curves) > 200, **look)
        axes.set_title(f"L = {depth}   ({len(there)} run{'s' if len(there) > 1 else ''})")
    first, last = min(float(c.step[0]) for c in curves), max(float(c.step[-1]) for c in curves)
    style.log_axis(panels[0], "x", first / 1.05, max(last, first * 2) * 1.1, at_most=4)
    # one spike must not flatten all other curves
    healthy = [c for c in curves if not c.diverged] or list(curves)
    bottom, top = min(float(c.loss.min()) for c in healthy), max(float(c.loss[0]) for c in healthy)
    room = 0.05 * (top - bottom) or 0.1
    panels[0].set_ylim(bottom - room, top + room)
    made.supxlabel("optimizer step (log scale)")
    made.supylabel("training loss (nats per token)")
    return style.settle(made)


class RateCurve(NamedTuple):
    """Held-out loss of one shape against its base learning rates, ascending: mean, best and worst of the seeds."""

    parametrization: str  # "" if the table does not state it
    depth: int
    width: float
    rate: list[float]
    loss: list[float]
    low: list[float]
    high: list[float]

    @property
    def best(self) -> int:
        """Index of the lowest mean loss."""
        return min(range(len(self.loss)), key=self.loss.__getitem__)

    @property
    def at_edge(self) -> bool:
        """True if the lowest loss is at the first or the last rate: the optimum may lie beyond."""
        return self.best in (0, len(self.rate) - 1)

    @property
    def optimum(self) -> tuple[float, float]:
        """Optimum (learning rate, loss) of the parabola in ln rate through the best rate and its two neighbours; at the
        edge of the rates tried, the best rate itself."""
        if self.at_edge:
            return self.rate[self.best], self.loss[self.best]
        found = lowest(np.log(self.rate), np.array(self.loss))
        return math.exp(found.place), float(found.value)


def rate_curves(runs: Iterable[RateRun]) -> list[RateCurve]:
    """Curves of the shapes with at least three rates. Runs without a finite loss, and rates without a run, are left
    out."""
    losses: dict[tuple[str, float, int], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.learning_rate is not None and run.loss is not None:
            losses[run.parametrization or "", float(run.width), run.depth][float(run.learning_rate)].append(run.loss)
    return [
        RateCurve(name, depth, width, rates, *([of(found[rate]) for rate in rates] for of in (fmean, min, max)))
        for (name, width, depth), found in sorted(losses.items())
        if len(rates := sorted(found)) >= FEWEST_RATES
    ]


def against_rate(drawn: Sequence[RateCurve], unit: str = NATS) -> Figure:
    """Draw loss against learning rate on shared axes, at most ``MOST_PANELS`` panels, evenly chosen. Star: a depth's
    optimum, open at the edge of the rates tried. drawn: one curve at least. unit: of the losses."""
    groups: dict[tuple[str, float], list[RateCurve]] = defaultdict(list)
    for curve in drawn:
        groups[curve.parametrization, curve.width].append(curve)
    groups = {name: groups[name] for name in style.evenly(list(groups), MOST_PANELS)}
    drawn = [curve for members in groups.values() for curve in members]
    made, panels = style.panels(len(groups), lambda rows: 0.4 + 3.2 * rows, sharex=True, sharey=True)
    looks = style.depth_styles([curve.depth for curve in drawn])
    rates = [rate for curve in drawn for rate in curve.rate]
    lowest, highest = min(min(c.low) for c in drawn), max(max(c.high) for c in drawn)
    room = 0.06 * (highest - lowest) or 0.1
    for axes, ((name, width), members) in zip(panels, groups.items(), strict=True):
        for curve in sorted(members, key=lambda c: c.depth):
            _draw_rates(axes, curve, looks[curve.depth], lowest - room)
        axes.set_title(", ".join(part for part in (name, f"d = {style.plain(width)}") if part))
        axes.legend(title="depth: best rate", loc="upper center")
    style.log_axis(panels[0], "x", min(rates) / 1.3, max(rates) * 1.3, label=lambda value: f"{value:g}", at_most=5)
    # the legend uses the free space above the curves
    deepest = max(len(members) for members in groups.values())
    panels[0].set_ylim(lowest - room, highest + room + (highest - lowest) * (0.14 + 0.09 * deepest))
    made.supxlabel("base learning rate (log scale)")
    made.supylabel(f"held-out loss ({unit})")
    return style.settle(made)


def _draw_rates(axes: Axes, curve: RateCurve, look: Look, bottom: float) -> None:
    rate, loss = curve.optimum
    label = f"L = {curve.depth}: {rate:.2g}" + (" (edge)" if curve.at_edge else "")
    axes.plot(curve.rate, curve.loss, label=label, **look)
    if curve.low != curve.high:
        axes.fill_between(curve.rate, curve.low, curve.high, color=look["color"], alpha=0.12, linewidth=0)
    axes.plot([rate, rate], [bottom, loss], color=look["color"], linewidth=0.8, linestyle=(0, (2, 2)))
    face = "white" if curve.at_edge else look["color"]
    axes.plot([rate], [loss], "*", color=look["color"], markerfacecolor=face, markersize=12, zorder=5)
