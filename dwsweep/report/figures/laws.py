"""The width law with its rivals, and what it advises beside models that were trained.

The figures of ``dwsweep guide``: what each shape one can build costs, and what a rule of thumb costs over sizes.

The figure of ``dwsweep theory --check``: ranks of small random networks beside the bounds of the theory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dwsweep import paths
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import Transition, references
from dwsweep.report.figures import style
from dwsweep.text import format_factor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.guide.answers import Answer, Assumptions, BudgetAnswer, Candidate, RuleAnswer
    from dwsweep.report.figures.style import Dashes, Floats, LawStyle
    from dwsweep.theory import RankCheck


PUBLISHED, AVERAGE = "published", "average"
RIVAL_LINES: tuple[Dashes, ...] = ((0, (6, 2)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5, 1.5, 1.5)))
PUBLISHED_LINE: Dashes = (0, (9, 2, 2, 2))
LARGEST = 1.5e12  # the guideline's own largest size is 1T


@dataclass(frozen=True)
class Line:
    """A law over depths or over sizes, with the ends of its interval (NaN: no such value or no bound)."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, *columns: Sequence[float | None]) -> Line:
        return cls(*(style.floats(column) for column in columns))


@dataclass(frozen=True)
class DrawnLaw:
    """A law as the figures show it."""

    form: str  # average, exponential, linear, power or published
    label: str
    look: LawStyle
    line: Line  # width of the transition against depth


@dataclass(frozen=True)
class DrawnGuide:
    """What advises, as the guideline figure shows it."""

    label: str
    look: LawStyle
    depth_at_size: Line
    width_at_size: Line
    valid_from: float
    valid_to: float


def drawn_laws(fit: FitResult) -> list[DrawnLaw]:
    """The forms of the sweep's own law, the exponential first (none without a width law), then the published."""
    own = [form for form in fit.curves.laws if form != PUBLISHED] if fit.width_law else []
    drawn = []
    for place, form in enumerate([*sorted(own, key=lambda form: form != "exponential"), PUBLISHED]):
        band = fit.curves.laws[form]
        worse = next((row.delta_chi2 for row in fit.rivals if row.form == form), None)
        label = _label(form) + (f", Δχ² {worse:.1f}" if worse else "")
        drawn.append(
            DrawnLaw(form, label, _look(form, place), Line.of(band.depth, band.width, band.width_low, band.width_high))
        )
    return drawn


def drawn_guides(fit: FitResult) -> list[DrawnGuide]:
    """What guides first (the average of the forms, where the fit has a best depth), its forms, the published law."""
    forms = [form for form in fit.curves.guideline if form != PUBLISHED]
    drawn = []
    for place, form in enumerate([*forms, PUBLISHED]):
        band = fit.curves.guideline[form]
        drawn.append(
            DrawnGuide(
                _label(form),
                _look(form, place),
                Line.of(band.n_params, band.depth, band.depth_low, band.depth_high),
                Line.of(band.n_params, band.width, band.width_low, band.width_high),
                band.valid_from,
                band.valid_to,
            )
        )
    return drawn


def _label(form: str) -> str:
    if form == PUBLISHED:
        return "published law"
    return "own, all forms" if form == AVERAGE else f"own {form}"


def _look(form: str, place: int) -> LawStyle:
    if form == PUBLISHED:
        return {"color": style.FAINT, "linestyle": PUBLISHED_LINE, "linewidth": 1.3}
    if place:
        return {"color": style.RIVALS[place - 1], "linestyle": RIVAL_LINES[place - 1], "linewidth": 1.3}
    return {"color": style.OWN, "linestyle": "-", "linewidth": 2.0}


def width_law(fit: FitResult) -> Figure:
    """Transition width (log) against the depth of the shallower net: crossed pairs as points with their intervals,
    pairs bounded on one side as arrows, laws as lines, the guiding law (or else the published one) with its band."""
    import numpy as np

    laws, transitions = drawn_laws(fit), references(fit.transitions)
    main, published = laws[0], laws[-1]
    made = style.figure(7.4, 4.6)
    axes = made.subplots()
    depths = sorted({curve.depth for curve in fit.curves.depths})
    first, last = (depths[0], depths[-1]) if depths else (float(published.line.x[0]), 48.0)
    room = 0.05 * (last - first) or 2.0
    ends_of_axis = (max(first - room, 0.5), last + room)
    known = [w for t in transitions for w in (t.width, t.width_low, t.width_high) if w is not None]
    for law in (main, published):
        line = law.line
        known += [float(w) for w in np.interp([first, last], line.x, line.y) if np.isfinite(w)]
    low, high = min(known) / 1.35, max(known) * 1.35
    style.log_axis(axes, "y", low, high, label=style.plain)
    axes.set_xlim(*ends_of_axis)
    axes.set_xticks(style.thinned(depths, 14))
    band, tint = main.line, main.look["color"]
    axes.fill_between(band.x, _finite(band.low, low), _finite(band.high, high), color=tint, alpha=0.18, linewidth=0)
    ends: list[tuple[float, float, str, str]] = []
    for law in laws:
        line = law.line
        axes.plot(line.x, line.y, **law.look)
        there = np.flatnonzero((line.x <= ends_of_axis[1]) & (line.y >= low) & (line.y <= high))
        if len(there):
            ends.append((float(line.x[there[-1]]), float(line.y[there[-1]]), law.label, law.look["color"]))
    for transition in transitions:
        _point(axes, transition, low, high)
    axes.set_xlabel("depth L of the shallower net of the pair")
    axes.set_ylabel("transition width d_x (log scale)")
    axes.set_title(_headline(transitions, len(laws) > 1))
    return style.settle(made, style.label_right(axes, ends))


def _finite(values: Any, otherwise: float) -> Any:
    import numpy as np

    return np.where(np.isfinite(values), values, otherwise)


def _headline(transitions: Sequence[Transition], has_law: bool) -> str:
    if not transitions:
        return "No width law fitted: there is no pair of depths to compare"
    crossed = sum(t.status == "crossed" for t in transitions)
    censored = sum(t.status in ("not_reached", "already_crossed") for t in transitions)
    found = f"{crossed} crossed, {censored} bounded on one side (arrows)" if censored else f"{crossed} crossed"
    return f"Width law and transitions: {found}" if has_law else f"No width law fitted; transitions: {found}"


def _point(axes: Axes, transition: Transition, low: float, high: float) -> None:
    """A crossed pair as a point with its interval; a pair bounded on one side as an arrow from its bound."""
    at = transition.shallow
    if transition.status == "crossed" and transition.width is not None:
        bottom = transition.width_low if transition.width_low is not None else low * 1.05
        top = transition.width_high if transition.width_high is not None else high / 1.05
        axes.plot([at, at], [bottom, top], color=style.INK, linewidth=1.6, zorder=4)
        for end, place, unbounded in ((transition.width_low, bottom, "v"), (transition.width_high, top, "^")):
            axes.plot([at], [place], marker=unbounded if end is None else "_", markersize=7, color=style.INK, zorder=4)
        axes.plot(
            [at], [transition.width], marker="o", markersize=6, color="white", markeredgecolor=style.INK, zorder=5
        )
        return
    if transition.status == "not_reached" and transition.width_low is not None:
        start, end = transition.width_low, transition.width_low * 1.22
    elif transition.status == "already_crossed" and transition.width_high is not None:
        start, end = transition.width_high, transition.width_high / 1.22
    else:
        return
    arrow = {"arrowstyle": "-|>", "color": style.INK, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=(at, end), xytext=(at, start), arrowprops=arrow, zorder=4)
    axes.plot([at], [start], marker="_", markersize=9, color=style.INK, zorder=4)


def guideline(fit: FitResult) -> Figure:
    """Best depth and best width against N: what guides with its band at fixed N, its forms, the published law, GPT-3.

    The sizes at which the best depth lies inside the data are shaded: all else is extrapolation, and nothing is drawn
    where a number is refused.
    """
    import numpy as np

    laws, models = drawn_guides(fit), fit.curves.gpt3
    main = laws[0]
    made = style.figure(7.6, 6.4)
    upper, lower = made.subplots(2, 1, sharex=True)
    low = min(main.valid_from, *(model.n_params for model in models)) / 2.0
    high = min(LARGEST, max(float(main.depth_at_size.x[-1]), *(model.n_params * 2.0 for model in models)))
    labels = []
    trained = {upper: [m.depth for m in models], lower: [m.width for m in models]}
    for axes, lines, band in (
        (upper, [law.depth_at_size for law in laws], main.depth_at_size),
        (lower, [law.width_at_size for law in laws], main.width_at_size),
    ):
        seen = [line.y[(line.x >= low) & (line.x <= high)] for line in lines]
        values = np.concatenate([*seen, trained[axes]])
        values = values[np.isfinite(values)]
        bottom, top = float(values.min()) / 1.3, float(values.max()) * 1.6
        style.log_axis(axes, "y", bottom, top, label=style.plain)
        _band(axes, band, bottom, top, main.look["color"])
        ends = []
        for law, line in zip(laws, lines, strict=True):
            axes.plot(line.x, line.y, **law.look)
            last = np.flatnonzero((line.x <= high) & np.isfinite(line.y))
            if len(last):
                place = last[-1]
                ends.append((float(line.x[place]), float(line.y[place]), law.label, law.look["color"]))
        style.log_axis(axes, "x", low, high)
        axes.axvspan(main.valid_from, main.valid_to, color=style.INK, alpha=0.07, linewidth=0)
        if axes is upper:
            _models(fit, main, upper, lower)
        labels.append(style.label_right(axes, ends))
    shaded = "best depth\ninside the data" if len(laws) > 1 else "range of\nthe law"
    upper.text(
        (main.valid_from * main.valid_to) ** 0.5, 0.98, shaded,
        transform=upper.get_xaxis_transform(), ha="center", va="top", fontsize=7.5, color=style.FAINT,
    )  # fmt: skip
    whose = "this sweep's losses" if len(laws) > 1 else "the published law (this sweep's own does not extrapolate)"
    upper.set_title(f"Best shape by {whose}; diamonds: GPT-3 as trained")
    upper.set_ylabel("best depth L (log scale)")
    lower.set_ylabel("best width d_x (log scale)")
    lower.set_xlabel("non-embedding parameters N = 12·L·d²")
    return style.settle(made, *labels)


def _band(axes: Axes, line: Line, bottom: float, top: float, colour: str) -> None:
    """The interval, to the axis' edge where it has no bound; nothing where the law itself gives no number."""
    import numpy as np

    low = np.where(np.isfinite(line.low), line.low, bottom)
    high = np.where(np.isfinite(line.high), line.high, top)
    axes.fill_between(line.x, low, high, where=list(np.isfinite(line.y)), color=colour, alpha=0.2, linewidth=0)


def _models(fit: FitResult, main: DrawnGuide, upper: Axes, lower: Axes) -> None:
    """Labels on the side away from the law, and one line further out where the neighbour is near."""
    before, lifted = 0.0, False
    for model in sorted(fit.curves.gpt3, key=lambda model: model.n_params):
        lifted = model.n_params < 2.6 * before and not lifted
        before = model.n_params
        away = 1 if model.depth > _at(main.depth_at_size, model.n_params) else -1
        _model(upper, model.n_params, model.depth, model.name, (0, away * (18 if lifted else 9)), "center")
        _model(lower, model.n_params, model.width, model.name, (-5, 5), "right")


def _at(line: Line, n: float) -> float:
    import numpy as np

    known: Floats = np.isfinite(line.y)
    return float(np.interp(np.log(n), np.log(line.x[known]), line.y[known])) if known.any() else np.inf


def _model(axes: Axes, n: float, value: float, name: str, shift: tuple[float, float], side: str) -> None:
    axes.plot([n], [value], marker="D", markersize=5, color="white", markeredgecolor=style.INK, zorder=5)
    axes.annotate(
        name, xy=(n, value), xytext=shift, textcoords="offset points", ha=side, va="center",
        fontsize=7.5, color=style.INK, path_effects=style.halo(), zorder=6,
    )  # fmt: skip


# label, constraint, colour, line, marker: told apart in grey too
CURVES = (
    ("equal size", "size", "#0072B2", "-", "o"),
    ("equal FLOPs", "flops", "#D55E00", (0, (6, 1.5)), "s"),
    ("equal time", "time", "#009E73", (0, (1.5, 1.5)), "^"),
)
ABOVE_WIDTHS = 34.0  # points between a panel and its title, for the scale of widths
LABEL_GAP = 0.08  # two widths above the panel are at least this share of its width apart
COST_LABEL = "% less compute that would be as good"


def draw_guide(answer: Answer, out_dir: str | PathLike[str]) -> list[Path]:
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


def draw_ranks(checks: Sequence[RankCheck], out_dir: Path) -> list[Path]:
    """``theory.png`` and ``theory.svg``: log_3 of the rank against width, a panel per number of heads; the bars reach
    from the lower to the upper bound."""
    heads = sorted({row.heads for row in checks})
    folder = paths.make_directory(paths.as_path(out_dir))
    with style.styled():
        import numpy as np

        made = style.figure(3.2 + 2.4 * len(heads), 3.6)
        looks = style.depth_styles([row.depth for row in checks])
        for axes, number in zip(style.panels(made, len(heads), len(heads), sharey=True), heads, strict=True):
            for place, depth in enumerate(sorted(looks)):
                rows = [row for row in checks if row.heads == number and row.depth == depth]
                if not rows:
                    continue
                x = np.array([row.width for row in rows]) + 0.12 * (place - 1)
                low, high = ([getattr(row, end) for row in rows] for end in ("lower", "upper"))
                axes.vlines(x, low, high, color=looks[depth]["color"], linewidth=5, alpha=0.25)
                ranks = [np.log(max(row.ranks)) / np.log(3) for row in rows]
                axes.plot(x, ranks, **looks[depth], label=f"L = {depth}")
            axes.set_title(f"{number} head{'s' if number > 1 else ''}")
            axes.set_xlabel("width d_x")
            axes.set_xticks(sorted({row.width for row in checks if row.heads == number}))
            axes.legend(fontsize=8)
        made.supylabel("log₃ of the separation rank", fontsize=9)
        note = "Points: measured, exact. Bars: from the lower to the upper bound."
        made.suptitle(note, x=0.01, ha="left", fontsize=7.5, color=style.FAINT)
        return style.save(style.settle(made), folder, "theory")
