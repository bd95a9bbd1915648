"""The figures of ``dwsweep guide``: what each shape one can build costs, and what a rule of thumb costs over sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from dwsweep import paths
from dwsweep.report.figures import style
from dwsweep.text import format_factor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.guide.answers import Answer, Assumptions, BudgetAnswer, Candidate, RuleAnswer

# label, constraint, colour, line, marker: told apart in grey too
CURVES = (
    ("equal size", "size", "#0072B2", "-", "o"),
    ("equal FLOPs", "flops", "#D55E00", (0, (6, 1.5)), "s"),
    ("equal time", "time", "#009E73", (0, (1.5, 1.5)), "^"),
)
ABOVE_WIDTHS = 34.0  # points between a panel and its title, for the scale of widths
LABEL_GAP = 0.08  # two widths above the panel are at least this share of its width apart
COST_LABEL = "% less compute that would be as good"


def draw(answer: Answer, out_dir: str | PathLike[str]) -> list[Path]:
    """``guide.png`` and ``guide.svg`` with one panel per budget, cost against depth; ``rules.png`` and ``rules.svg``
    with one row per rule, cost and depth against size. No file where the answer holds no budget with shapes, or no
    rule."""
    made = figures(answer)
    if not made:
        return []
    folder = paths.make_directory(paths.as_path(out_dir))
    with style.styled():
        return [path for name, figure in made.items() for path in style.save(figure(), folder, name)]


def figures(answer: Answer) -> dict[str, Callable[[], Figure]]:
    """What makes each figure that the answer has, by its name: ``guide``, ``rules``."""
    rows = [row for row in answer.budgets if row.candidates]
    made = {"guide": lambda: _costs(rows, answer.assumptions), "rules": lambda: _rules(answer.rules)}
    return {name: figure for name, figure in made.items() if (rows if name == "guide" else answer.rules)}


def _costs(rows: Sequence[BudgetAnswer], assumptions: Assumptions) -> Figure:
    made = style.figure(6.4, 0.5 + 3.5 * len(rows))
    for axes, row in zip(made.subplots(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        _panel(axes, row, assumptions)
    return made


def _rules(rules: Sequence[RuleAnswer]) -> Figure:
    made = style.figure(9.0, 0.3 + 3.3 * len(rules))
    for pair, rule in zip(made.subplots(len(rules), 2, squeeze=False), rules, strict=True):
        _rule(pair[0], pair[1], rule)
    return made


def _panel(axes: Axes, row: BudgetAnswer, assumptions: Assumptions) -> None:
    shapes = sorted(row.candidates, key=lambda shape: shape.depth)
    best = row.optimum
    top = 0.0
    for label, constraint, colour, line, marker in CURVES:
        costs = [(shape.depth, shape.cost(constraint)) for shape in shapes]
        points = [(depth, cost.less_compute) for depth, cost in costs if cost is not None]
        if not points:
            continue
        top = max(top, *(value for _, value in points))
        if constraint == "time":
            label += f" on one {assumptions.training_device}, rate {assumptions.training_rate}"
        axes.plot(*zip(*points, strict=True), color=colour, linestyle=line, marker=marker, label=label)
    if best.depth_low is not None and best.depth_high is not None:
        own = best.depth_low == best.law_low
        span = "best depth at equal size" + (", 95 %" if own else ": forms, recipes (ASSUMED), grid")
        axes.axvspan(best.depth_low, best.depth_high, color="#0072B2", alpha=0.1, label=span)
    top = 1.06 * top or 1.0
    axes.set_ylim(-0.04 * top, top)  # the best shapes lie on zero: their markers are shown whole
    axes.set_xlim(0.9 * shapes[0].depth, 1.05 * shapes[-1].depth)
    for near in row.near_best:
        if near.less_compute < top:
            axes.axhline(near.less_compute, color=style.FAINT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
            share, across = f" {near.percent:g} % of the loss", axes.get_yaxis_transform()
            axes.text(1.0, near.less_compute, share, transform=across, va="center", fontsize=7.5, color=style.FAINT)
    for shape, said in ((row.recommended, "recommended"), (row.usual, "usual")):
        cost = shape.cost(row.at) if shape else None
        if shape and cost:
            where = (shape.depth, cost.less_compute)
            axes.plot(*where, marker="o", markersize=11, markerfacecolor="none", color=style.INK, linestyle="none")
            left, right = axes.get_xlim()
            axes.annotate(
                f"{said} {shape.label}",
                where,
                (shape.depth, 0.95 if said == "recommended" else 0.87),
                textcoords=("data", "axes fraction"),
                ha="left" if where[0] < left + 0.2 * (right - left) else "center",
                va="top",
                fontsize=8,
                arrowprops={"arrowstyle": "-", "linewidth": 0.6, "color": style.FAINT, "shrinkB": 6},
            )
    _widths(axes, shapes)
    counted = "parameters, embeddings included" if row.total else "non-embedding parameters"
    far = "" if best.extrapolation_factor <= 1 else f", {format_factor(best.extrapolation_factor)}× outside the data"
    basis = "; costs from an ASSUMED curvature" if row.loss_tag and row.loss_tag.startswith("ASSUMED") else ""
    title = f"{best.name} {counted}, trust: {best.trust.level}\n{best.source}{far}{basis}"
    axes.set_title(title, loc="left", pad=ABOVE_WIDTHS)
    axes.set_xlabel("depth L")
    axes.set_ylabel(COST_LABEL)
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.16), ncols=2, frameon=False)


def _widths(axes: Axes, shapes: Sequence[Candidate]) -> None:
    """The width of each shape above its depth, those left out that would touch a neighbour."""
    low, high = axes.get_xlim()
    kept: list[Candidate] = []
    for shape in shapes:
        if not kept or shape.depth - kept[-1].depth >= LABEL_GAP * (high - low):
            kept.append(shape)
    above = axes.secondary_xaxis("top")
    above.set_xticks([shape.depth for shape in kept], [f"{shape.width}" for shape in kept])
    above.tick_params(length=2)
    above.set_xlabel("width d_x of the shapes")


def _rule(costs: Axes, depths: Axes, rule: RuleAnswer) -> None:
    """Left: the rule's cost against size; right: its depth beside the best one and its interval."""
    for label, constraint, colour, line, marker in CURVES:
        if constraint == "flops":
            continue
        found = [(row.n_params, row.size if constraint == "size" else row.time) for row in rule.rows]
        points = [(n, cost.less_compute) for n, cost in found if cost is not None]
        if points:
            costs.plot(*zip(*points, strict=True), color=colour, linestyle=line, marker=marker, label=label)
    for low, high in rule.good:
        costs.axvspan(low / 1.1, high * 1.1, color="#0072B2", alpha=0.1, linewidth=0)
    style.log_scale(costs, "x")
    costs.set_ylim(bottom=0)
    costs.set_xlabel("non-embedding parameters N")
    costs.set_ylabel(COST_LABEL)
    costs.set_title(f"{rule.rule}\nshaded: within {rule.tolerance:g} % of the loss", loc="left")
    costs.legend(loc="best")
    known = [(row, row.best_depth) for row in rule.rows if row.best_depth is not None]
    sizes = [row.n_params for row, _ in known]
    bottom = [row.best_low if row.best_low is not None else 1.0 for row, _ in known]
    top = [row.best_high if row.best_high is not None else 1e4 for row, _ in known]
    depths.fill_between(sizes, bottom, top, color="#0072B2", alpha=0.12, linewidth=0, label="its interval")
    depths.plot(sizes, [depth for _, depth in known], color="#0072B2", label=f"best depth, {rule.source}")
    own = [(row.n_params, row.depth) for row in rule.rows if row.depth is not None]
    if own:
        depths.plot(*zip(*own, strict=True), color="#D55E00", marker="s", linestyle=(0, (6, 1.5)), label="the rule")
    style.log_scale(depths, "x", "y")
    depths.set_xlabel("non-embedding parameters N")
    depths.set_ylabel("depth L")
    depths.legend(loc="upper left")
