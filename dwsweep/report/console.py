"""Layout of a report for a terminal: paragraphs that wrap, and tables in which no number is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

from dwsweep.report.document import Figure, Fold, Heading, Line, Lines, Part, TextTable, label, plain, prose, spans


def paragraph(line: Line, style: str = "") -> Text:
    """Text of a paragraph with its styles."""
    text = Text(style=style)
    for part, own in spans(line):
        text.append(part, own or None)
    return text


def render(parts: Iterable[Part]) -> Group:
    """Parts laid out for a terminal: no figures, a blank line before each part marked ``apart``."""
    out: list[RenderableType] = []
    for part in parts:
        made: Sequence[RenderableType] = ()
        match part:
            case Heading():
                made = [paragraph([(part.text, "bold"), part.more])]
            case Lines(listed=True) if part.lines:
                dotted = TextTable("", [label("dot"), prose("line")], headed=False, ruled=False)
                for line in part.lines:
                    dotted.add(" ·", line)
                made = [WideTable(dotted)]
            case Lines():
                said = [paragraph(line, "dim" if part.soft else "") for line in part.lines]
                made = [Padding(one, (0, 0, 0, part.indent), expand=False) for one in said] if part.indent else said
            case TextTable() if part.rows:
                made = [WideTable(part)]
            case Fold():
                made = [paragraph(part.title), *render(part.parts).renderables]
        apart = isinstance(part, Fold) or (not isinstance(part, Figure) and part.apart and bool(out))
        out += [Text(), *made] if apart and made else made
    return Group(*out)


class WideTable:
    """Table as wide as its numbers, even on a narrower terminal, which then breaks its lines; only words wrap."""

    def __init__(self, table: TextTable) -> None:
        self.title = table.title
        self.table = rich_table.Table(
            box=box.SIMPLE_HEAD if table.ruled else None,
            pad_edge=False,
            show_edge=False,
            show_header=table.headed,
            padding=(0, 1 if table.ruled else 2, 0, 0),
            header_style="bold",
        )
        for k, head in table.kept.items():
            column = table.columns[k]
            justify: Any = "left" if column.is_text else "right"
            texts = (head * table.headed, *(plain(row[k]) for row in table.rows))
            least = 0 if column.wraps else max(map(cell_len, texts))
            self.table.add_column(head, justify=justify, min_width=least, overflow="fold")
        for number, row in enumerate(table.rows):
            style = "bold" if number in table.strong else ""
            self.table.add_row(*(paragraph(row[k]) for k in table.kept), style=style, end_section=number in table.ends)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:  # printed separately, since rich would wrap it to the table's width
            yield Text(self.title, style="italic")
        least = Measurement.get(console, options.update(width=10_000), self.table).minimum
        yield from console.render(self.table, options.update(width=max(options.max_width, least)))
