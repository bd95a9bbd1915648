"""What the tables of a fit share: an empty table, an interval, a list of lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def empty_table(title: str, columns: str) -> Any:
    """An empty table; each word of ``columns`` is a heading and < or > for its side."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0)
    )
    for word in columns.split():
        table.add_column(word[:-1], justify="left" if word[-1] == "<" else "right", no_wrap=True)
    return table


def between(low: float | None, high: float | None, text: Callable[[float], str]) -> str:
    """``2M … 5M``, ``< 5M``, ``> 2M`` or ``unbounded``."""
    if low is None:
        return "unbounded" if high is None else f"< {text(high)}"
    return f"> {text(low)}" if high is None else f"{text(low)} … {text(high)}"


def listed(lines: Sequence[str]) -> Any:
    """Each line a paragraph that wraps beside its dot, not under it."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1, 0, 0))
    for _ in range(2):
        grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("  ·", Text(line))
    return grid
