"""The figures of a fit, as PNG and SVG.

    loss_vs_size     loss of each depth against N with its band, and the transitions
    differences      shallower − deeper per pair with its sup-t band and verdict
    width_law        transition width against depth, the law with its band, rivals, censored pairs, the published law
    guideline        best depth and width against N, with GPT-3's models as trained
    loss_vs_depth    loss against depth at fixed sizes, with the fitted surface
    tokens           transitions against training tokens, only where the table holds several token counts
    learning_rates   loss against learning rate of each depth, only where a shape has at least three

A figure that has nothing to show (one depth, no finished run) says so in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dwsweep import paths
from dwsweep.report import (
    content,
    plots_difference,
    plots_guideline,
    plots_law,
    plots_loss,
    plots_rate,
    plots_tokens,
    style,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[content.Content], Figure]] = {
    "loss_vs_size": plots_loss.against_size,
    "differences": plots_difference.differences,
    "width_law": plots_law.width_law,
    "guideline": plots_guideline.guideline,
    "loss_vs_depth": plots_loss.against_depth,
}


def figures(fit: Mapping[str, Any]) -> dict[str, Callable[[content.Content], Figure]]:
    """Name → how it is drawn, for the figures that ``fit`` has."""
    found = dict(FIGURES)
    if fit.get("by_tokens"):
        found["tokens"] = plots_tokens.against_tokens
    rates = plots_rate.curves(fit.get("rates") or [])
    if rates:
        found["learning_rates"] = lambda _content: plots_rate.against_rate(rates)
    return found


def draw(fit: Mapping[str, Any], out_dir: Path) -> list[Path]:
    """Draw every figure of ``fit`` (a fit.json, as ``dwsweep.fit.files.read`` returns it) into ``out_dir``.

    Returns the paths, PNG then SVG of each figure in the order above. The same fit gives the same bytes with the same
    Matplotlib.
    """
    drawn = content.read(fit)
    out = paths.as_path(out_dir)
    paths.make_directory(out)
    written = []
    with style.styled():
        for name, make in figures(fit).items():
            written += style.save(make(drawn), out, name)
    return written
