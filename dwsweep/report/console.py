"""Layout of a report for a terminal: folded tables, and texts in which no shape breaks over a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich import box
from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from dwsweep.report.document import (
    INTERVAL,
    Figure,
    Fold,
    Heading,
    Line,
    Lines,
    Part,
    Table,
    label,
    plain,
    prose,
    spans,
)
from dwsweep.terminal import JOINT

TIED = re.compile(r"(?<=\d) × (?=\d)|(?<=[<>]) (?=\d)")  # a shape, a bound
WORDS = 20  # least width of a column of wrapped words
GAP = 2  # blanks between two columns


class Paragraph:
    """Paragraph in which no shape (``44 × 2432``) breaks over a line."""

    def __init__(self, line: Line, style: str = "") -> None:
        self.text = Text(style=style)
        for text, own in spans(line):
            self.text.append(_tied(text), own or None)

    def __str__(self) -> str:
        return self.text.plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in self.text.__rich_console__(
            console, options
        ):  # bypasses the console, which would print the joint
            yield Segment(segment.text.replace(JOINT, " "), segment.style, segment.control)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.text)


def _tied(text: str) -> str:
    return TIED.sub(lambda found: found[0].replace(" ", JOINT), text)


def render(parts: Iterable[Part]) -> Group:
    """Parts laid out for a terminal: folded tables, no figures, a blank line before each part marked ``apart``."""
    out: list[RenderableType] = []
    for part in parts:
        made: Sequence[RenderableType] = ()
        match part:
            case Heading():
                made = [Paragraph([(part.text, part.style), part.more])]
            case Lines(listed=True) if part.lines:
                dotted = Table("", [label("dot"), prose("line")], headed=False, ruled=False)
                for line in part.lines:
                    dotted.add(" ·", line)
                made = [Folded(dotted)]
            case Lines():
                said = [Paragraph(line, "dim" if part.soft else "") for line in part.lines]
                made = [Padding(one, (0, 0, 0, part.indent)) for one in said] if part.indent else said
            case Table() if part.rows:
                made = [Folded(part)]
            case Fold():
                made = [Paragraph(part.title), *render(part.parts).renderables]
        apart = isinstance(part, Fold) or (not isinstance(part, Figure) and part.apart and bool(out))
        out += [Text(), *made] if apart and made else made
    return Group(*out)


class Folded:
    """Folded table: columns in as many blocks as the terminal needs; no number is cut.

    Every column keeps its full width, but words may wrap down to ``WORDS`` characters. If the columns do not fit,
    further blocks repeat the keys beside the remaining columns.
    """

    def __init__(self, table: Table) -> None:
        self.table, self.columns = table, table.columns
        self.widths = [self._width(index) for index in range(len(self.columns))]

    def _width(self, index: int) -> int:
        """Least width of a column, without padding; none without a text."""
        cells = [_tied(plain(row[index])) for row in self.table.rows]
        if not any(map(str.strip, cells)):
            return 0
        cells.append(self.columns[index].head)
        most = max(map(cell_len, cells))
        if not self.columns[index].wraps:
            return most
        return min(most, max([WORDS, *(cell_len(word) for cell in cells for word in cell.split())]))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.table.title:  # printed separately, since rich would wrap it to the table's width
            yield Text(self.table.title, style="italic")
        for number, block in enumerate(self._blocks(options.max_width)):
            if number:
                yield ""
            yield self._part(block)

    def _blocks(self, width: int) -> list[list[int]]:
        """Blocks of columns that fit into a width, each beginning with the keys; an interval stays with its value."""

        def fits(indices: list[int]) -> bool:
            return sum(self.widths[index] + GAP for index in indices) - GAP <= width

        shown = [index for index, wide in enumerate(self.widths) if wide]
        keys = [index for index in shown if index < self.table.keys]
        units: list[list[int]] = []
        for index in shown[len(keys) :]:
            pair = [*units[-1], index] if units and self.columns[index] == INTERVAL else []
            if pair and fits([*keys, *pair]):
                units[-1] = pair
            else:
                units.append([index])
        blocks: list[list[int]] = [keys]
        for unit in units:
            if blocks[-1] != keys and not fits([*blocks[-1], *unit]):
                blocks.append(keys)
            blocks[-1] = [*blocks[-1], *unit]
        return blocks

    def _part(self, indices: list[int]) -> rich_table.Table:
        """Rich table of the columns ``indices``. A block keeps rows of empty cells, so that blocks align."""
        table = self.table
        made = rich_table.Table(
            box=box.SIMPLE_HEAD if table.ruled else None,
            pad_edge=False,
            show_edge=False,
            show_header=table.headed,
            padding=(0, 1 if table.ruled else GAP, 0, 0),
            header_style="bold",
        )
        for index in indices:
            column = self.columns[index]
            made.add_column(
                column.head,
                justify="left" if column.is_text else "right",
                no_wrap=not column.wraps,
                overflow="fold" if column.wraps else "ellipsis",
            )
        for number, row in enumerate(table.rows):
            style = "bold" if number in table.strong else "dim" if number in table.soft else ""
            made.add_row(*[Paragraph(row[k]) for k in indices], style=style, end_section=number in table.ends)
        return made
