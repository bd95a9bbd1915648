"""What the law advises: depth and width against size, beside models that were trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwsweep.report.figures import style
from dwsweep.report.figures.content import Content, Line
from dwsweep.report.figures.law_lines import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dwsweep.report.figures.content import Floats

LARGEST = 1.5e12  # the guideline's own largest size is 1T


def guideline(content: Content) -> Figure:
    """Best depth and best width against N: the guiding law with its band at fixed N, rivals, the published law, GPT-3.

    The range that the law's transitions span is shaded: all else is extrapolation, and a law is not drawn where it
    refuses a number.
    """
    import numpy as np

    main = content.main
    made = style.figure(7.6, 6.4)
    upper, lower = made.subplots(2, 1, sharex=True)
    low = min(main.valid_from, *(model.n for model in content.models)) / 2.0
    high = min(LARGEST, max(float(main.depth_at_size.x[-1]), *(model.n * 2.0 for model in content.models)))
    laws = [*content.laws, content.published]
    labels = []
    trained = {upper: [m.depth for m in content.models], lower: [m.width for m in content.models]}
    for axes, lines, band in (
        (upper, [law.depth_at_size for law in laws], main.depth_at_size),
        (lower, [law.width_at_size for law in laws], main.width_at_size),
    ):
        seen = [line.y[(line.x >= low) & (line.x <= high)] for line in lines]
        values = np.concatenate([*seen, trained[axes]])
        values = values[np.isfinite(values)]
        bottom, top = float(values.min()) / 1.3, float(values.max()) * 1.6
        style.log_axis(axes, "y", bottom, top, label=style.plain)
        _band(axes, band, bottom, top, look(content, main)["color"])
        ends = []
        for law, line in zip(laws, lines, strict=True):
            axes.plot(line.x, line.y, **look(content, law))
            last = np.flatnonzero((line.x <= high) & np.isfinite(line.y))
            if len(last):
                place = last[-1]
                ends.append((float(line.x[place]), float(line.y[place]), law.label, look(content, law)["color"]))
        style.log_axis(axes, "x", low, high)
        axes.axvspan(main.valid_from, main.valid_to, color=style.INK, alpha=0.07, linewidth=0)
        if axes is upper:
            _models(content, upper, lower)
        labels.append(style.label_right(axes, ends))
    upper.text(
        (main.valid_from * main.valid_to) ** 0.5, 0.98, "range of the\ntransitions",
        transform=upper.get_xaxis_transform(), ha="center", va="top", fontsize=7.5, color=style.FAINT,
    )  # fmt: skip
    whose = "this sweep's law" if content.laws else "the published law (this sweep has none)"
    upper.set_title(f"Best shape at fixed N by {whose}; diamonds: GPT-3 as trained")
    upper.set_ylabel("best depth L (log scale)")
    lower.set_ylabel("best width $d_x$ (log scale)")
    lower.set_xlabel("non-embedding parameters N = 12·L·d²")
    return style.settle(made, *labels)


def _band(axes: Axes, line: Line, bottom: float, top: float, colour: str) -> None:
    """The interval, to the axis' edge where it has no bound; nothing where the law itself gives no number."""
    import numpy as np

    low = np.where(np.isfinite(line.low), line.low, bottom)
    high = np.where(np.isfinite(line.high), line.high, top)
    axes.fill_between(line.x, low, high, where=list(np.isfinite(line.y)), color=colour, alpha=0.2, linewidth=0)


def _models(content: Content, upper: Axes, lower: Axes) -> None:
    """Labels on the side away from the law, and one line further out where the neighbour is near."""
    before, lifted = 0.0, False
    for model in sorted(content.models, key=lambda model: model.n):
        lifted = model.n < 2.6 * before and not lifted
        before = model.n
        away = 1 if model.depth > _at(content.main.depth_at_size, model.n) else -1
        _model(upper, model.n, model.depth, model.name, (0, away * (18 if lifted else 9)), "center")
        _model(lower, model.n, model.width, model.name, (-5, 5), "right")


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
