"""Tables that fit any terminal. Where there is no room for every column, those that say the same in every row are said
once, in a line; then those that a file has too are left to it; then columns go below, beside the first one again. No
number is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from dwsweep.report import document
from dwsweep.report.document import Fold, Heading, Line, Lines, Part

UNLIMITED = 10_000
# where words may wrap, a column is not made narrower than this for the sake of its neighbours
WORDS = 20


JOINT = "\ue000"  # in place of a space that must not break; rich breaks at no-break spaces too
TIED = re.compile(r"(?<=\d) × (?=\d)|(?<=[<>]) (?=\d)")  # a shape, a bound


class Paragraph:
    """A text in which no shape (``44 × 2432``) breaks over a line."""

    def __init__(self, line: Line, style: str = "") -> None:
        parts = [line] if isinstance(line, str) else line
        self.text = Text(style=style)
        for part in parts:
            text, own = (part, "") if isinstance(part, str) else part
            self.text.append(TIED.sub(lambda found: found[0].replace(" ", JOINT), text), own or None)

    def __str__(self) -> str:
        return self.text.plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self.text, options):
            yield Segment(segment.text.replace(JOINT, " "), segment.style, segment.control)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.text)


def render(parts: Iterable[Part]) -> Group:
    """A document for a terminal: tables fold, and a blank line stands where a part is to stand apart."""
    out: list[RenderableType] = []
    for part in parts:
        if isinstance(part, Fold):
            out += [Text(), Paragraph(part.title), *render(part.parts).renderables]
            continue
        empty = (isinstance(part, document.Table) and not part.rows) or (isinstance(part, Lines) and not part.lines)
        if empty or isinstance(part, document.Figure):
            continue
        if part.apart and out:
            out.append(Text())
        if isinstance(part, document.Table):
            out.append(Folded(_rich(part), part.keys, part.beside, part.optional, part.file))
        elif isinstance(part, Heading):
            out.append(Paragraph([(part.text, part.style), part.more]))
        elif part.listed:
            dotted = document.Table("", "dot< line~", headed=False, ruled=False, gap=1)
            for line in part.lines:
                dotted.add("  ·", line)
            out.append(_rich(dotted))
        else:
            for line in part.lines:
                said = Paragraph(line, "dim" if part.soft else "")
                out.append(Padding(said, (0, 0, 0, part.indent)) if part.indent else said)
    return Group(*out)


def _rich(table: document.Table) -> Table:
    made = Table(
        title=table.title or None,
        title_justify="left",
        box=box.SIMPLE_HEAD if table.ruled else None,
        pad_edge=False,
        show_edge=False,
        show_header=table.headed,
        padding=(0, 1 if table.ruled else table.gap, 0, 0),
        header_style="bold",
    )
    for name, sign in zip(table.heads, table.signs, strict=True):
        wraps = sign == "~"
        overflow: Any = "fold" if wraps else "ellipsis"
        made.add_column(name, justify="right" if sign == ">" else "left", no_wrap=not wraps, overflow=overflow)
    for k, row in enumerate(table.rows):
        style = "bold" if k in table.strong else "dim" if k in table.soft else ""
        made.add_row(*map(Paragraph, row), style=style, end_section=k in table.ends)
    return made


class Folded:
    """A rich table whose columns are laid out in as many blocks as the terminal needs.

    table: every column with ``no_wrap`` keeps its full width; the others may wrap down to ``WORDS`` characters.
    keys: how many of the first columns say what a row is; they lead every block. beside: heading of columns that stay
    with the column before them (the interval of a value). optional: headings of columns that may be left out, the first
    of them first, where all others then stand in one block; file: where they are found instead.
    """

    def __init__(
        self, table: Table, keys: int = 1, beside: str = "", optional: Sequence[str] = (), file: str = ""
    ) -> None:
        self.table, self.keys, self.beside = table, keys, beside
        self.optional, self.file = optional, file

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(max_width=UNLIMITED)
        widths = [_least_width(console, wide, column) for column in self.table.columns]

        def fits(indices: list[int]) -> bool:
            # one row of the right widths, so that rich adds its padding: the table itself is measured once, above
            row = self._part(indices, cells=[["x" * widths[index]] for index in indices])
            return Measurement.get(console, wide, row).maximum <= options.max_width

        shown = list(range(len(self.table.columns)))
        constant = {} if fits(shown) else self._constant()
        shown = [index for index in shown if index not in constant]
        left_out: list[int] = []
        for heading in self.optional:
            if not fits([index for index in shown if index not in left_out]):
                left_out += [index for index in shown if self.table.columns[index].header == heading]
        remaining = [index for index in shown if index not in left_out]
        if fits(remaining):
            shown = remaining
        else:
            left_out = []
        if self.table.title:  # by itself: rich would wrap it to the width of the table
            yield Text(str(self.table.title), style="italic")
        for number, block in enumerate(self._blocks(shown, fits)):
            if number:
                yield ""
            yield self._part(block)
        if constant:
            yield Text("In every row: " + ", ".join(f"{self._name(k)} {cell}" for k, cell in constant.items()))
        if left_out:
            yield Text(f"In {self.file}: {', '.join(map(self._name, left_out))}")

    def _name(self, index: int) -> str:
        return str(self.table.columns[index].header)

    def _constant(self) -> dict[int, str]:
        """The columns that say the same in every row, and what. A value with its interval is none, nor is a row of
        blanks one."""
        columns = self.table.columns
        found = {}
        for index in range(self.keys, len(columns)):
            cells = {str(cell) for cell in columns[index].cells if str(cell).strip()}
            tied = self.beside and self.beside in {str(c.header) for c in columns[index : index + 2]}
            if len(cells) == 1 and len(self.table.rows) > 1 and not tied:
                found[index] = cells.pop()
        return found

    def _blocks(self, shown: list[int], fits: Callable[[list[int]], bool]) -> list[list[int]]:
        """The columns ``shown`` in blocks that fit, each led by the keys."""
        keys = list(range(self.keys))
        units: list[list[int]] = []
        for index in shown[self.keys :]:
            pair = [*units[-1], index] if units and self.table.columns[index].header == self.beside else []
            if pair and fits([*keys, *pair]):
                units[-1] = pair
            else:
                units.append([index])
        blocks: list[list[int]] = []
        current: list[int] = []
        for unit in units:
            if current and not fits([*keys, *current, *unit]):
                blocks.append([*keys, *current])
                current = []
            current = current + unit
        return [*blocks, [*keys, *current]]

    def _part(self, indices: list[int], cells: list[list[str]] | None = None) -> Table:
        """The columns ``indices`` alone, with ``cells`` in place of their own. A later block whose cells are all empty
        in a row keeps that row: blocks are read side by side."""
        table = self.table
        part = Table(
            *[_bare(table.columns[index], header=cells is None) for index in indices],
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
    """Least width of a column, without padding."""
    sizes = [Measurement.get(console, wide, cell) for cell in (column.header, *column.cells)]
    most, least = max(size.maximum for size in sizes), max(size.minimum for size in sizes)
    return most if column.no_wrap else min(most, max(least, WORDS))


def _bare(column: Column, header: bool) -> Column:
    return replace(column, _cells=[]) if header else replace(column, _cells=[], header="", no_wrap=True)
