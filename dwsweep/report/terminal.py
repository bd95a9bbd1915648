"""Tables that fit any terminal. Where there is no room for every column, those that say the same in every row are said
once, in a line; then those that a file has too are left to it; then columns go below, beside the first one again. No
number is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from rich import box
from rich import table as rich_table
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from dwsweep.report.document import Figure, Fold, Heading, Line, Lines, Part, Table, plain

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
        empty = (isinstance(part, Table) and not part.rows) or (isinstance(part, Lines) and not part.lines)
        if empty or isinstance(part, Figure):
            continue
        if part.apart and out:
            out.append(Text())
        if isinstance(part, Table):
            out.append(Folded(part))
        elif isinstance(part, Heading):
            out.append(Paragraph([(part.text, part.style), part.more]))
        elif part.listed:
            dotted = Table("", "dot< line~", headed=False, ruled=False, gap=1)
            for line in part.lines:
                dotted.add("  ·", line)
            out.append(Folded(dotted))
        else:
            for line in part.lines:
                said = Paragraph(line, "dim" if part.soft else "")
                out.append(Padding(said, (0, 0, 0, part.indent)) if part.indent else said)
    return Group(*out)


class Folded:
    """A table whose columns are laid out in as many blocks as the terminal needs.

    Every column keeps its full width, but words may wrap down to ``WORDS`` characters. Optional columns are left out,
    the first of them first, where all others then stand in one block.
    """

    def __init__(self, table: Table) -> None:
        self.table, self.heads = table, table.heads

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(max_width=UNLIMITED)
        widths = [self._least_width(console, wide, index) for index in range(len(self.heads))]

        def fits(indices: list[int]) -> bool:
            # one row of the right widths, so that rich adds its padding: the table itself is measured once, above
            row = self._blank(indices, bare=True)
            row.add_row(*["x" * widths[index] for index in indices])
            return Measurement.get(console, wide, row).maximum <= options.max_width

        shown = list(range(len(self.heads)))
        constant = {} if fits(shown) else self._constant()
        shown = [index for index in shown if index not in constant]
        left_out: list[int] = []
        for heading in self.table.optional:
            if not fits([index for index in shown if index not in left_out]):
                left_out += [index for index in shown if self.heads[index] == heading]
        remaining = [index for index in shown if index not in left_out]
        if fits(remaining):
            shown = remaining
        else:
            left_out = []
        if self.table.title:  # by itself: rich would wrap it to the width of the table
            yield Text(self.table.title, style="italic")
        for number, block in enumerate(self._blocks(shown, fits)):
            if number:
                yield ""
            yield self._part(block)
        if constant:
            yield Text("In every row: " + ", ".join(f"{self.heads[k]} {cell}" for k, cell in constant.items()))
        if left_out:
            yield Text(f"In {self.table.file}: {', '.join(self.heads[index] for index in left_out)}")

    def _least_width(self, console: Console, wide: ConsoleOptions, index: int) -> int:
        """Least width of a column, without padding."""
        cells = [Paragraph(self.heads[index]), *(Paragraph(row[index]) for row in self.table.rows)]
        sizes = [Measurement.get(console, wide, cell) for cell in cells]
        most, least = max(size.maximum for size in sizes), max(size.minimum for size in sizes)
        return min(most, max(least, WORDS)) if self.table.signs[index] == "~" else most

    def _constant(self) -> dict[int, str]:
        """The columns that say the same in every row, and what. A value with its interval is none, nor is a row of
        blanks one."""
        found = {}
        for index in range(self.table.keys, len(self.heads)):
            cells = {text for row in self.table.rows if (text := plain(row[index])).strip()}
            tied = self.table.beside and self.table.beside in self.heads[index : index + 2]
            if len(cells) == 1 and len(self.table.rows) > 1 and not tied:
                found[index] = cells.pop()
        return found

    def _blocks(self, shown: list[int], fits: Callable[[list[int]], bool]) -> list[list[int]]:
        """The columns ``shown`` in blocks that fit, each led by the keys."""
        keys = list(range(self.table.keys))
        units: list[list[int]] = []
        for index in shown[self.table.keys :]:
            pair = [*units[-1], index] if units and self.heads[index] == self.table.beside else []
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

    def _part(self, indices: list[int]) -> rich_table.Table:
        """The columns ``indices`` alone. A later block whose cells are all empty in a row keeps that row: blocks are
        read side by side."""
        table, made = self.table, self._blank(indices)
        for number, row in enumerate(table.rows):
            style = "bold" if number in table.strong else "dim" if number in table.soft else ""
            made.add_row(*[Paragraph(row[k]) for k in indices], style=style, end_section=number in table.ends)
        return made

    def _blank(self, indices: list[int], bare: bool = False) -> rich_table.Table:
        """A table of these columns without rows; ``bare``: without headings too, and no column wraps."""
        table = self.table
        made = rich_table.Table(
            box=box.SIMPLE_HEAD if table.ruled else None,
            pad_edge=False,
            show_edge=False,
            show_header=table.headed,
            padding=(0, 1 if table.ruled else table.gap, 0, 0),
            header_style="bold",
        )
        for index in indices:
            sign, wraps = table.signs[index], table.signs[index] == "~" and not bare
            overflow: Any = "fold" if wraps else "ellipsis"
            name = "" if bare else self.heads[index]
            made.add_column(name, justify="right" if sign == ">" else "left", no_wrap=not wraps, overflow=overflow)
        return made
