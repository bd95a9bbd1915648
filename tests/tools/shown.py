"""Visible text of fits, tables and figures."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from dwsweep.report import fit_report
from dwsweep.terminal import plain_text


def printed(renderable: Any, width: int = 100) -> str:
    """On a terminal of this many columns, without colours."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable, crop=False)
    return capture.get()


def words_of(figure: Any) -> str:
    """The visible texts, a line each."""
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text) if text.get_visible())


def summary(fit: Any) -> str:
    """The text that ``dwsweep fit`` prints of a fit."""
    text = plain_text(fit_report.render(fit))
    assert not {*"\x0e\x1f\x0f"} & {*text}, "a name of an option is left as ``errors.argument`` gives it"
    return text
