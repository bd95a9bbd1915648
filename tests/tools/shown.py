"""Visible text of tables and figures, and the data that the script of a page reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rich.console import Console


def printed(renderable: Any, width: int = 100) -> str:
    """On a terminal of this many columns, without colours."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def words_of(figure: Any) -> str:
    """The visible texts, a line each."""
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text) if text.get_visible())


def data_of(page: Path) -> dict[str, Any]:
    """The block of data in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"), re.S)
    assert found
    return dict(json.loads(found[1]))
