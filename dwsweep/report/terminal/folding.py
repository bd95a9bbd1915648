"""Tables that fit any terminal: columns that find no room go below, beside the first one again. No number is cut."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table

UNLIMITED = 10_000
# where words may wrap, a column is not made narrower than this for the sake of its neighbours
WORDS = 20


class Folded:
    """A rich table whose columns are laid out in as many blocks as the terminal needs.

    table: every column with ``no_wrap`` keeps its full width; the others may wrap down to ``WORDS`` characters.
    keys: how many of the first columns say what a row is; they lead every block. beside: heading of columns that stay
    with the column before them (the interval of a value).
    """

    def __init__(self, table: Table, keys: int = 1, beside: str = "") -> None:
        self.table, self.keys, self.beside = table, keys, beside

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(max_width=UNLIMITED)
        widths = [_least_width(console, wide, column) for column in self.table.columns]

        def fits(indices: list[int]) -> bool:
            # one row of the right widths, so that rich adds its padding: the table itself is measured once, above
            row = self._part(indices, titled=False, cells=[["x" * widths[index]] for index in indices])
            return Measurement.get(console, wide, row).maximum <= options.max_width

        keys = list(range(self.keys))
        units: list[list[int]] = []
        for index in range(self.keys, len(self.table.columns)):
            pair = [*units[-1], index] if units and self.table.columns[index].header == self.beside else []
            if pair and fits([*keys, *pair]):
                units[-1] = pair
            else:
                units.append([index])
        blocks: list[list[int]] = []
        current: list[int] = []
        for unit in units:
            if current and not fits([*keys, *current, *unit]):
                blocks.append(current)
                current = []
            current = current + unit
        for number, block in enumerate([*blocks, current]):
            if number:
                yield ""
            yield self._part([*keys, *block], titled=number == 0)

    def _part(self, indices: list[int], titled: bool, cells: list[list[str]] | None = None) -> Table:
        """The columns ``indices`` alone, with ``cells`` in place of their own. A later block whose cells are all empty
        in a row keeps that row: blocks are read side by side."""
        table = self.table
        part = Table(
            *[_bare(table.columns[index], header=cells is None) for index in indices],
            title=table.title if titled else None,
            title_justify=table.title_justify,
            box=table.box,
            pad_edge=table.pad_edge,
            padding=table.padding,
            show_edge=table.show_edge,
            show_header=table.show_header,
            header_style=table.header_style,
            style=table.style,
        )
        if cells is not None:
            for row in zip(*cells, strict=True):
                part.add_row(*row)
            return part
        own = [list(table.columns[index].cells) for index in indices]
        for number, line in enumerate(table.rows):
            part.add_row(*[column[number] for column in own], style=line.style, end_section=line.end_section)
        return part


def _least_width(console: Console, wide: ConsoleOptions, column: Column) -> int:
    """What the column needs at least, without padding."""
    sizes = [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
    most, least = max(size.maximum for size in sizes), max(size.minimum for size in sizes)
    return most if column.no_wrap else min(most, max(least, WORDS))


def _bare(column: Column, header: bool) -> Column:
    return replace(column, _cells=[]) if header else replace(column, _cells=[], header="", no_wrap=True)
