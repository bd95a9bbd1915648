"""Training curves: one panel per depth, one thin line per run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dwsweep.report.figures import style
from dwsweep.text import format_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import Floats

BINS = 80  # along ln step: about what a panel can show, and smoother than the single steps


@dataclass(frozen=True)
class TrainingCurve:
    """Training loss (nats per token) of one run, averaged in bins of ln step."""

    run_id: str
    depth: int
    n_params: float
    diverged: bool
    step: Floats
    loss: Floats


def curve(
    run_id: str, depth: int, n_params: float, diverged: bool, rows: Sequence[Mapping[str, Any]]
) -> TrainingCurve | None:
    """The curve of one run from the rows of its metrics.jsonl, or None where no finite loss was logged."""
    import numpy as np

    logged = [(row["step"], row["loss"]) for row in rows if _usable(row)]
    if not logged:
        return None
    steps, losses = zip(*logged, strict=True)
    step, loss = np.array(steps, dtype=float), np.array(losses)
    place = np.log(step / step.min())
    bins = np.minimum((place / (place.max() or 1.0) * BINS).astype(int), BINS - 1)
    number = np.bincount(bins, minlength=BINS)
    kept = number > 0
    mean_step = np.bincount(bins, weights=step, minlength=BINS)[kept] / number[kept]
    mean_loss = np.bincount(bins, weights=loss, minlength=BINS)[kept] / number[kept]
    return TrainingCurve(run_id, depth, n_params, diverged, mean_step, mean_loss)


def _usable(row: Mapping[str, Any]) -> bool:
    step, loss = row.get("step"), row.get("loss")
    return isinstance(step, int) and step > 0 and isinstance(loss, (int, float)) and math.isfinite(loss)


def training(curves: Sequence[TrainingCurve]) -> Figure:
    """Panels share both axes, so that depths compare; lightness is the size, and a diverged run is dashed."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    depths = sorted({c.depth for c in curves})
    columns = min(3, len(depths))
    rows = -(-len(depths) // columns)
    made = style.figure(8.0 if columns > 1 else 5.4, 0.5 + 2.2 * rows if columns > 1 else 3.2)
    panels = style.panels(made, len(depths), columns, sharex=True, sharey=True)
    scale = LinearSegmentedColormap.from_list("sizes", colormaps["cividis"]([i / 20 * 0.8 for i in range(21)]))
    low, high = min(c.n_params for c in curves), max(c.n_params for c in curves)
    norm = LogNorm(low / 1.001, high * 1.001)
    for axes, depth in zip(panels, depths, strict=True):
        there = [c for c in curves if c.depth == depth]
        for c in sorted(there, key=lambda c: c.n_params):
            axes.plot(
                c.step, c.loss, color=scale(norm(c.n_params)), linewidth=0.9, linestyle="--" if c.diverged else "-",
                rasterized=len(curves) > 60,
            )  # fmt: skip
            if c.diverged:
                axes.plot(c.step[-1:], c.loss[-1:], marker="x", color=style.AGAINST, markersize=6)
        axes.set_title(f"L = {depth}   ({len(there)} run{'s' if len(there) > 1 else ''})")
    first, last = min(float(c.step[0]) for c in curves), max(float(c.step[-1]) for c in curves)
    style.log_axis(panels[0], "x", first / 1.05, max(last, first * 2) * 1.1, at_most=5)
    # one bad spike must not flatten all other curves
    healthy = [c for c in curves if not c.diverged] or list(curves)
    bottom, top = min(float(c.loss.min()) for c in healthy), max(float(c.loss[0]) for c in healthy)
    room = 0.05 * (top - bottom) or 0.1
    panels[0].set_ylim(bottom - room, top + room)
    made.supxlabel("optimizer step (log scale)", fontsize=9)
    made.supylabel("training loss (nats per token)", fontsize=9)
    if high > 1.3 * low:  # several budgets
        bar = made.colorbar(ScalarMappable(norm, scale), ax=made.axes, shrink=0.7, pad=0.02, aspect=30)
        bar.ax.yaxis.set_major_locator(FixedLocator(style.log_ticks(low, high)))
        bar.ax.yaxis.set_minor_locator(NullLocator())
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: format_count(value)))
        bar.set_label("non-embedding parameters N")
    return style.settle(made)
