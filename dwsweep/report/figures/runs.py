"""Figures of single runs: training curves (one panel per depth, one thin line per run), and loss against learning rate
(one curve per depth, one panel per parametrization and width, with the optima).

If a parametrization transfers the learning rate over depth, the optima line up vertically.

Conditioning of the attention of each block: through training, and by layer at its end.

κ is the condition number of the output of a block's heads, which runs log with ``train.conditioning`` (see
``dwsweep.model.attention``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep.fit.parabola import lowest
from dwsweep.records.transitions import RateRun
from dwsweep.report.figures import style
from dwsweep.text import NATS, format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import Floats, Look


BINS = 60  # bins of ln step: about the resolution of a panel

FEWEST_RATES = 3  # fewest learning rates of a curve
MOST_PANELS = 12  # most panels of a figure


@dataclass(frozen=True)
class TrainingCurve:
    """Training loss (nats per token) of one run, averaged in bins of ln step."""

    run_id: str
    depth: int
    n_params: float
    diverged: bool
    step: Floats
    loss: Floats


def training_curve(
    run_id: str, depth: int, n_params: float, diverged: bool, rows: Sequence[Mapping[str, Any]]
) -> TrainingCurve | None:
    """Training curve of one run from the rows of its metrics.jsonl, or None if no finite loss was logged."""
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


def training_curves(curves: Sequence[TrainingCurve]) -> Figure:
    """Draw training loss against step, one panel per depth; lightness is the size, and a diverged run is dashed."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    depths = sorted({c.depth for c in curves})
    columns = min(2, len(depths))
    rows = -(-len(depths) // columns)
    made = style.figure(style.WIDTH, 1.2 + 1.8 * rows if columns > 1 else 3.2)
    panels = style.panels(made, len(depths), columns, sharex=True, sharey=True)
    scale = LinearSegmentedColormap.from_list("sizes", colormaps["inferno"](np.linspace(*style.DEPTH_COLOURS, 21)))
    low, high = min(c.n_params for c in curves), max(c.n_params for c in curves)
    norm = LogNorm(low / 1.001, high * 1.001)
    for axes, depth in zip(panels, depths, strict=True):
        there = [c for c in curves if c.depth == depth]
        for c in sorted(there, key=lambda c: c.n_params):
            axes.plot(
                c.step, c.loss, color=scale(norm(c.n_params)), linewidth=0.9, linestyle="--" if c.diverged else "-",
                rasterized=len(curves) > 200,
            )  # fmt: skip
            if c.diverged:
                axes.plot(c.step[-1:], c.loss[-1:], marker="x", color=style.AGAINST, markersize=6)
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
    if high > 1.3 * low:  # several budgets
        bar = made.colorbar(ScalarMappable(norm, scale), ax=made.axes, location="top", shrink=0.8, aspect=30)
        bar.ax.xaxis.set_major_locator(FixedLocator(style.log_ticks(low, high)))
        bar.ax.xaxis.set_minor_locator(NullLocator())
        bar.ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: format_count(value)))
        bar.set_label("non-embedding parameters N")
    return style.settle(made)


@dataclass(frozen=True)
class RateCurve:
    """Held-out loss of one shape against its base learning rates, ascending."""

    parametrization: str  # "" if the table does not state it
    depth: int
    width: float
    rate: tuple[float, ...]
    loss: tuple[float, ...]  # mean over the seeds that finished
    low: tuple[float, ...]  # the best and the worst seed
    high: tuple[float, ...]

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
        RateCurve(
            parametrization=name,
            depth=depth,
            width=width,
            rate=tuple(sorted(found)),
            loss=tuple(sum(found[rate]) / len(found[rate]) for rate in sorted(found)),
            low=tuple(min(found[rate]) for rate in sorted(found)),
            high=tuple(max(found[rate]) for rate in sorted(found)),
        )
        for (name, width, depth), found in sorted(losses.items())
        if len(found) >= FEWEST_RATES
    ]


def against_rate(drawn: Sequence[RateCurve], unit: str = NATS) -> Figure:
    """Draw loss against learning rate on shared axes, at most ``MOST_PANELS`` panels. Star: a depth's optimum, open at
    the edge of the rates tried. drawn: one curve at least. unit: of the losses."""
    groups: dict[tuple[str, float], list[RateCurve]] = defaultdict(list)
    for curve in drawn:
        groups[curve.parametrization, curve.width].append(curve)
    left_out = len(groups) - MOST_PANELS
    if left_out > 0:  # evenly over parametrizations and widths, the ends included
        groups = {name: groups[name] for name in style.evenly(list(groups), MOST_PANELS)}
        drawn = [curve for members in groups.values() for curve in members]
    columns = min(2, len(groups))
    rows = -(-len(groups) // columns)
    made = style.figure(style.WIDTH, 0.4 + 3.2 * rows)
    if left_out > 0:
        style.note(made, f"{MOST_PANELS} of {MOST_PANELS + left_out} widths, evenly chosen.")
    panels = style.panels(made, len(groups), columns, sharex=True, sharey=True)
    looks = style.depth_styles([curve.depth for curve in drawn])
    rates = [rate for curve in drawn for rate in curve.rate]
    lowest, highest = min(min(c.low) for c in drawn), max(max(c.high) for c in drawn)
    room = 0.06 * (highest - lowest) or 0.1
    for axes, ((name, width), members) in zip(panels, groups.items(), strict=True):
        for curve in sorted(members, key=lambda c: c.depth):
            _draw_rates(axes, curve, looks[curve.depth], lowest - room)
        axes.set_title(", ".join(part for part in (name, f"d = {style.plain(width)}") if part))
        axes.legend(title="depth: best rate", loc="upper center")
    style.log_axis(panels[0], "x", min(rates) / 1.3, max(rates) * 1.3, label=lambda value: f"{value:g}")
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


BEFORE = 0.5  # place of the start on an axis of ln step
MOST_LINES = 12


@dataclass(frozen=True)
class Conditions:
    """Conditioning of one run's attention: steps (P,), 0 the start; kappa (P, L)."""

    arm: str
    depth: int
    heads: int
    n_params: float
    step: Floats
    kappa: Floats


def conditions(row: Mapping[str, Any], metrics: Iterable[Mapping[str, Any]]) -> Conditions | None:
    """Conditioning of a run from its row of results.csv and its metrics.jsonl; None if none was logged."""
    depth, found = int(row["depth"]), dict[int, list[float]]()
    for line in metrics:
        for step, name in ((0, "conditioning_at_start"), (line.get("step"), "conditioning")):
            if isinstance(step, int) and _usable_conditions(line.get(name), depth):
                found[step] = line[name]
    if not found:
        return None
    steps = sorted(found)
    return Conditions(
        row.get("arm") or "",
        depth,
        int(row.get("heads") or 0),
        float(row["n_params"]),
        np.array(steps, float),
        np.array([found[step] for step in steps]),
    )


def _usable_conditions(values: Any, depth: int) -> bool:
    if not isinstance(values, list) or len(values) != depth:
        return False
    return all(isinstance(value, int | float) and 1.0 <= value < math.inf for value in values)


def shown(runs: Sequence[Conditions]) -> dict[tuple[str, int, int], list[Conditions]]:
    """Lines of the figure, at most ``MOST_LINES``: (arm, depth, heads) → runs of the largest size."""
    groups: dict[tuple[str, int, int], list[Conditions]] = defaultdict(list)
    for run in runs:
        groups[run.arm, run.depth, run.heads].append(run)
    kept = list(groups)[:MOST_LINES]
    return {key: [r for r in groups[key] if r.n_params == max(s.n_params for s in groups[key])] for key in kept}


def over_training(runs: Sequence[Conditions]) -> Figure:
    """Draw κ against step (left; geometric mean over layers and runs) and by layer at the end (right)."""
    from matplotlib.ticker import MaxNLocator

    lines = shown(runs)
    arms = list(dict.fromkeys(arm for arm, _, _ in lines))
    by_arm, by_heads = len(arms) > 1, len({heads for _, _, heads in lines}) > 1
    looks = style.depth_styles(sorted({depth for _, depth, _ in lines}))
    made = style.figure(style.WIDTH, 3.4 + 0.14 * len(lines))
    left, right = style.panels(made, 2, 2, sharey=True)
    for (arm, depth, heads), members in lines.items():
        colour = style.series(arms.index(arm))["color"] if by_arm else looks[depth]["color"]
        label = ", ".join([*([arm] if by_arm else []), f"L {depth}", *([f"H {heads}"] if by_heads else [])])
        _line(left, right, members, colour, looks[depth]["linestyle"], label)
    longest = max(run.step[-1] for members in lines.values() for run in members)
    kappa = np.concatenate([run.kappa.ravel() for members in lines.values() for run in members])
    style.log_axis(left, "x", BEFORE / 1.2, 1.2 * longest, _step, at_most=4)
    style.log_axis(left, "y", kappa.min() / 1.1, 1.1 * kappa.max(), _step)
    left.set_xlabel("optimizer step (left end: 0)")
    left.set_ylabel("condition number κ of a block's attention")
    right.set_xlabel("layer, at the end of training")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    made.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return style.settle(made)


def _step(value: float) -> str:
    return format_count(value) if value >= 1.0 else f"{value:g}"


def _line(left: Axes, right: Axes, members: Sequence[Conditions], colour: Any, linestyle: Any, label: str) -> None:
    longest = max(members, key=lambda run: run.step[-1]).step
    whole = [run for run in members if np.array_equal(run.step, longest)]  # a run that ended early has fewer steps
    logs = np.log(np.stack([run.kappa for run in whole]))  # (runs, P, L)
    over_layers = np.exp(logs.mean(axis=(0, 2)))
    left.plot(np.maximum(longest, BEFORE), over_layers, color=colour, linestyle=linestyle, marker="o", label=label)
    layers = np.arange(1, logs.shape[2] + 1)
    right.plot(layers, np.exp(logs[:, -1].mean(axis=0)), color=colour, linestyle=linestyle, marker="o")
