"""Registry of the figures of a fit, as PNG and SVG, with titles and captions for a page."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dwsweep import paths
from dwsweep.records.fit import FitResult
from dwsweep.report.figures import along, answers, laws, losses, style
from dwsweep.report.figures import runs as run_figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """Drawing: the facts of a figure for files, pages and readers. A new figure is an entry of ``DRAWINGS``.

    name: name of its files. title: one line, the alternative text. caption: how to read it. draw: the drawer.
    has_content: test that a fit has this figure.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[Any], Figure]
    has_content: Callable[[FitResult], bool] = lambda _: True


# ordered as on the page
DRAWINGS = (
    Drawing(
        "along",
        "Loss above the best against a column of the table",
        "Each value's loss above the lowest of its panel; bars hold for all values of a panel together.",
        lambda fit: along.loss_along(fit.along),
        lambda fit: fit.along is not None,
    ),
    Drawing(
        "loss_vs_depth",
        "Loss above the best against depth at fixed sizes, with the fitted loss surface",
        "Losses above the lowest of each size, in which errors that depths share cancel. A depth whose band clears "
        "zero is worse. The band rests on all sizes together, a point on one.",
        losses.against_depth,
        lambda fit: fit.surface is not None and bool(fit.surface.optima),
    ),
    Drawing(
        "best_depth",
        "Best depth with its interval at each size, and at each other equal quantity",
        "Arms and counts of tokens have a line each: they move the answer where bars lie apart. "
        "Where panels disagree, the quantity held equal decides which depth is best.",
        answers.best_depths,
        lambda fit: bool(answers.drawn(fit)),
    ),
    Drawing(
        "width_law",
        "Width of the best depth, by the law and its alternatives; transition widths of pairs; the published law",
        "Lines: laws of the best depth, by the losses of all depths. Points: crossed pairs, at the depth of the "
        "shallower net, half a step left of the law. Arrows: pairs that bound their transition on one side.",
        laws.width_law,
        lambda fit: fit.width_law is not None,
    ),
    Drawing(
        "learning_rates",
        "Loss against learning rate of each depth, one panel per parametrization and width",
        "Star: the best rate of a depth, open at the edge of the rates tried. If the parametrization transfers the "
        "rate over depth, the stars line up vertically. Band: best to worst seed.",
        lambda fit: run_figures.against_rate(run_figures.rate_curves(fit.rates), fit.unit),
        lambda fit: bool(run_figures.rate_curves(fit.rates)),
    ),
)


def drawings(fit: FitResult) -> list[Drawing]:
    """Figures that a fit has."""
    return [drawing for drawing in DRAWINGS if drawing.has_content(fit)]


def figures(fit: FitResult) -> dict[str, Callable[[], Figure]]:
    """Drawers of the figures that a fit has, by name."""
    return {drawing.name: functools.partial(drawing.draw, fit) for drawing in drawings(fit)}


def clear(out_dir: Path) -> None:
    """Remove the figures of an earlier fit."""
    out = paths.as_path(out_dir)
    for name in (drawing.name for drawing in DRAWINGS):
        for path in style.files(out, name):
            path.unlink(missing_ok=True)


def draw(fit: FitResult, out_dir: Path) -> list[Path]:
    """Draw every figure of ``fit`` into ``out_dir``.

    Returns the paths, PNG then SVG of each figure in the order above. The same fit gives the same bytes with the same
    Matplotlib.
    """
    clear(out_dir)
    return style.save(figures(fit), out_dir)
