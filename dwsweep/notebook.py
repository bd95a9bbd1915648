"""What the commands print and draw, for a notebook: of a ``FitResult`` or of an answer of ``dwsweep.guide``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dwsweep.errors import InputError
from dwsweep.guide.answers import Answer
from dwsweep.records.fit import FitResult
from dwsweep.report import fit_report, guide_report
from dwsweep.report.figures import laws, registry, style
from dwsweep.terminal import plain_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def summary(found: FitResult | Answer) -> str:
    """What `dwsweep fit` or `dwsweep guide` prints, at most 100 columns wide."""
    return plain_text(guide_report.render(found) if isinstance(found, Answer) else fit_report.render(found))


def plot(found: FitResult | Answer, figure: str | None = None) -> Figure:
    """A figure as `dwsweep fit` or `dwsweep guide --out` draws it; its ``axes`` can be drawn on.

    figure: of a fit: loss_vs_depth (the default), loss_vs_size, differences, width_law, guideline, and others, tokens,
    learning_rates where there are any, equal_budgets (the default of runs at equal compute) and budget_trends; of an
    answer: guide or rules.

    Raises:
        InputError: there is no such figure; the line names those that there are.
    """
    made = laws.figures(found) if isinstance(found, Answer) else registry.figures(found)
    name = next(iter(made), "") if figure is None else figure
    if name not in made:
        raise InputError(f"figure: {name!r}; allowed: {', '.join(made) or 'none, as nothing here can be drawn'}")
    with style.styled():
        return made[name]()
