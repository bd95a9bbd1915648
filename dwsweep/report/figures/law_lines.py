"""The width law with its rivals, and what it advises beside models that were trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dwsweep.records.fit_result import FitResult
from dwsweep.records.fit_rows import Transition, references
from dwsweep.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.style import Dashes, Floats, LawStyle

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
