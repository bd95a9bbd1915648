"""Registry of the figures of a fit, as PNG and SVG, with titles and captions for a page.

A figure without content (one depth, no finished run) holds a sentence instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dwsweep import paths
from dwsweep.records.fit import AlongFit, Fit, FitResult
from dwsweep.report.figures import adjusted, laws, losses, studies, style
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


def _has_curves(fit: FitResult) -> bool:
    """Test that a fit has curves; a comparison at equal compute only has none."""
    return fit.equal_budgets is None or bool(fit.curves.depths)


# ordered as on the page
DRAWINGS = (
    Drawing(
        "along",
        "Loss against a column of the table, and how far each value is above the best",
        "Top: the loss at equal size, a line per arm and depth. Bottom: each value's loss above the lowest of its "
        "line, or the other arm's above the first. Its bars hold for all values of a line together: a bar clear of "
        "zero shows a difference.",
        lambda fit: studies.loss_along(fit.along),
        lambda fit: fit.along is not None,
    ),
    Drawing(
        "adjusted",
        "Importance and effect of each column of the table",
        "Top: root mean square effect of each column on the losses of the runs, by the posterior of the best depth. "
        "Below: its effect at the middle size and depth. Losses elsewhere on this page are adjusted by these effects.",
        adjusted.columns,
        lambda fit: fit.adjusted is not None,
    ),
    Drawing(
        "equal_what",
        "Best depth with its interval at equal size, tokens per parameter, FLOPs and wall time",
        "Best depth of one heap under each meaning of equal, at the middle size or budget. If a bar lies apart, "
        "the quantity held equal decides which depth is best. The table has the other sizes and budgets.",
        adjusted.equal_what,
        lambda fit: fit.adjusted is not None and bool(fit.adjusted.equal),
    ),
    Drawing(
        "loss_vs_depth",
        "Loss above the best against depth at fixed sizes, with the fitted loss surface",
        "Cuts at fixed size: how flat the optimum is, and where it lies between the depths that were trained. Losses "
        "are measured from the lowest point of each size, so errors that depths share (seeds, text) cancel. The band "
        "rests on all sizes together, as the interval of the best depth does: a depth whose band clears zero is worse. "
        "A point shows one size alone, with the scatter of its shapes.",
        losses.against_depth,
        _has_curves,
    ),
    Drawing(
        "loss_vs_size",
        "Loss of each depth against size, the same without the common trend, and the transitions",
        "Top: the losses. Middle: the same with the trend common to all depths taken off, so that hundredths of a nat "
        "can be seen; the lowest curve is the best depth at that size. Bottom: where each deeper net overtakes, with "
        "its interval; an arrow means that there is no bound on that side. The bands include errors that "
        "seeds share, which cancel between depths: compare two depths by their difference, in the next figure.",
        losses.against_size,
        _has_curves,
    ),
    Drawing(
        "differences",
        "Difference curve of each pair of depths with its bands and verdict",
        "Above zero the deeper net has the lower loss. The curve rests on all losses together if they compare "
        "the two depths (dashed: the two depths alone, a check), else on the two alone. A transition counts as crossed "
        "only where the simultaneous band clears zero on both sides: below on the left, above on the right.",
        losses.differences,
        _has_curves,
    ),
    Drawing(
        "equal_budgets",
        "Loss against size of each depth at equal compute, and the best size of each depth against depth",
        "At one budget a larger net is trained on fewer tokens, so every depth has a best size: the mark, with "
        "its interval. Right: these minima against depth; the lowest point of the curve is the best depth that "
        "this budget buys.",
        studies.at_each_budget,
        lambda fit: fit.equal_budgets is not None,
    ),
    Drawing(
        "budget_trends",
        "The best size, tokens, depth and width against the budget",
        "A power of the budget through the best shapes; the exponent with its interval stands above each panel.",
        studies.over_budgets,
        lambda fit: fit.equal_budgets is not None and bool(fit.equal_budgets.trends),
    ),
    Drawing(
        "others",
        "Difference curves of each pair of depths in this and other sweeps",
        "Curves of one pair, each with its pointwise band: the sweeps agree if the curves coincide. "
        "If they cross zero at different sizes, the transition moved with tokens, data or recipe.",
        losses.beside_others,
        lambda fit: bool(fit.others),
    ),
    Drawing(
        "comparison",
        "Best depths, transitions and losses under each arm",
        "Does it change the answer? Top: the recipe changes best depths and transitions that lie apart by more "
        "than their intervals. Errors that the arms share (seeds, text) narrow the interval of the change in the "
        "table, but not the bars. Bottom: the arm with the lower loss, at each depth.",
        studies.arms_apart,
        lambda fit: bool(studies.with_numbers(fit)),
    ),
    Drawing(
        "width_law",
        "Transition width against depth, with the width law, its alternatives and the published law",
        "Points: crossed pairs, at the depth of the shallower net. Arrows: pairs that bound their transition on one "
        "side only. The law is fitted as the paper does it, to each pair of depths alone. Δχ²: how much worse a form "
        "fits than the best one; 4 or more rejects it.",
        laws.width_law,
        lambda fit: fit.width_law is not None and _has_curves(fit),
    ),
    Drawing(
        "guideline",
        "Best depth and best width against size, beside the GPT-3 models",
        "Bands are at fixed size: a deeper optimum is a narrower one. Outside the shaded range the law is "
        "extrapolated, and forms that fit equally well inside it diverge. The published law is drawn in the range of "
        "its own sizes only.",
        laws.guideline,
        lambda fit: fit.own_law,
    ),
    Drawing(
        "tokens",
        "Transitions of each pair against training tokens",
        "Effect of longer training on the answer. The fit itself uses the runs of one token count only.",
        losses.against_tokens,
        lambda fit: bool(fit.by_tokens),
    ),
    Drawing(
        "learning_rates",
        "Loss against learning rate of each depth, one panel per parametrization and width",
        "Star: the optimum of a depth, by a parabola through the best rate and its neighbours; open if the best "
        "rate is at the edge of the tried rates, so that the optimum may lie beyond. If the parametrization transfers "
        "the rate over depth, the stars line up vertically. Band: best to worst seed.",
        lambda fit: run_figures.against_rate(run_figures.rate_curves(fit.rates), fit.unit),
        lambda fit: bool(run_figures.rate_curves(fit.rates)),
    ),
)


def drawings(fit: Fit) -> list[Drawing]:
    """Figures that a fit has."""
    if isinstance(fit, AlongFit):
        return [drawing for drawing in DRAWINGS if drawing.name == "along"]
    return [drawing for drawing in DRAWINGS if drawing.has_content(fit)]


def figures(fit: Fit) -> dict[str, Callable[[], Figure]]:
    """Drawers of the figures that a fit has, by name."""
    return {drawing.name: functools.partial(drawing.draw, fit) for drawing in drawings(fit)}


def clear(out_dir: Path) -> None:
    """Remove the figures of an earlier fit."""
    out = paths.as_path(out_dir)
    for drawing in DRAWINGS:
        for path in style.files(out, drawing.name):
            path.unlink(missing_ok=True)


def draw(fit: Fit, out_dir: Path) -> list[Path]:
    """Draw every figure of ``fit`` into ``out_dir``.

    Returns the paths, PNG then SVG of each figure in the order above. The same fit gives the same bytes with the same
    Matplotlib.

    Raises:
        OSError: the disk is full or the folder cannot be written; names the figures that are missing.
    """
    out = paths.as_path(out_dir)
    paths.make_directory(out)
    clear(out)
    written: list[Path] = []
    left = figures(fit)
    with style.styled():
        while left:
            name, figure = next(iter(left.items()))
            try:
                written += style.save(figure(), out, name)
            except OSError as error:
                missing = f"{error.strerror or error}; the tables are there, these figures are not: {', '.join(left)}"
                raise OSError(error.errno, missing, str(out)) from error
            del left[name]
    return written
