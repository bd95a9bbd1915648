"""Document: a report as data, before a terminal, a page or a Markdown file shows it.

``console.render``, ``markup.html_of`` and ``markdown`` show the same parts, so that a report builds each table and each
sentence once.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dwsweep.interval import Form, Interval, written
from dwsweep.text import format_count, printable

Said = str | tuple[str, str]  # a text, or (text, style): bold, dim or a colour
Line = str | Sequence[Said]
MISSING = "–"
BLANKS = "\n\t\u00a0"  # kept on a page; other control characters are spelled out


@dataclass(frozen=True)
class Heading:
    """Heading; ``more`` follows it in ordinary type."""

    text: str
    more: str = ""
    apart: bool = True


@dataclass(frozen=True)
class Lines:
    """Lines: paragraphs, each a text or a list of ``Said``.

    listed: a dot precedes each. soft: lighter type. verbatim: line breaks and blanks stay. indent: columns of a
    terminal. apart: a blank line precedes.
    """

    lines: Sequence[Line]
    listed: bool = False
    soft: bool = False
    verbatim: bool = False
    indent: int = 0
    apart: bool = False


@dataclass(frozen=True)
class TextColumn:
    """Column of a table. head: its heading. is_text: aligns to the left, not the right. wraps: words may wrap."""

    head: str
    is_text: bool = False
    wraps: bool = False


def number(head: str) -> TextColumn:
    """Column of numbers."""
    return TextColumn(head)


def label(head: str) -> TextColumn:
    """Column of short texts, which never wrap."""
    return TextColumn(head, is_text=True)


def prose(head: str) -> TextColumn:
    """Column of sentences, which may wrap."""
    return TextColumn(head, is_text=True, wraps=True)


INTERVAL = label("interval")
"""Column of the interval of the value in the column before it, from which it is never parted."""


@dataclass
class TextTable:
    """Table of texts. A column without a text in any row is left out.

    headed: False leaves the headings out. ruled: a line under the headings and under each row of ``ends``. strong: rows
    in bold.
    """

    title: str
    columns: Sequence[TextColumn]
    headed: bool = True
    ruled: bool = True
    apart: bool = True
    rows: list[list[Line]] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)
    strong: set[int] = field(default_factory=set)

    def add(self, *cells: Line, strong: bool = False, end: bool = False) -> None:
        """Add a row; blanks fill its missing cells."""
        for chosen, rows in ((strong, self.strong), (end, self.ends)):
            if chosen:
                rows.add(len(self.rows))
        self.rows.append([*cells, *[""] * (len(self.heads) - len(cells))])

    @property
    def heads(self) -> list[str]:
        return [column.head for column in self.columns]

    @property
    def kept(self) -> dict[int, str]:
        """Number and heading of each column with a text; an interval without its value takes the value's heading."""
        rows = [[plain(cell).strip() for cell in row] for row in self.rows]
        kept = [k for k in range(len(self.columns)) if any(row[k] for row in rows)]
        return {k: self.heads[k - (self.columns[k] == INTERVAL and k - 1 not in kept)] for k in kept}


@dataclass(frozen=True)
class Figure:
    """Figure as SVG; ``title`` replaces the drawing for readers who cannot see it."""

    svg: bytes
    title: str
    caption: str


@dataclass(frozen=True)
class Fold:
    """Fold: details that a page shows on demand and a terminal at once."""

    title: str
    parts: Sequence[Part]
    kind: str = ""


Part = Heading | Lines | TextTable | Figure | Fold


def spans(line: Line) -> list[tuple[str, str]]:
    """Spans of a paragraph: texts with their styles, or with a blank."""
    return [(one, "") if isinstance(one, str) else one for one in ([line] if isinstance(line, str) else line)]


def plain(line: Line) -> str:
    """Plain text of a paragraph, without styles."""
    return line if isinstance(line, str) else "".join(text for text, _ in spans(line))


def soft(*lines: str, apart: bool = False) -> Lines:
    """Explanations, indented by two columns."""
    return Lines(lines, soft=True, indent=2, apart=apart)


def shown(value: float | None, text: Form, missing: str = MISSING) -> str:
    """Cell of a value, or ``missing``."""
    return missing if value is None else written(value, text)


def ends(found: Interval, text: Form = format_count) -> str:
    """Cell of the ends of an interval; blank without a bound."""
    return "" if found.unbounded else found.ends(text)


def estimate(found: Interval, text: Form, missing: str = MISSING) -> list[str]:
    """Cells of a value, or ``missing``, and of its interval."""
    return [found.texts(text)[0] or missing, ends(found, text)]


def markdown(parts: Iterable[Part]) -> str:
    """Markdown of headings, lines and tables."""
    out: list[str] = []
    for part in parts:
        match part:
            case Heading():
                out += [f"# {part.text}{part.more}", ""]
            case Lines():
                texts = [html.escape(printable(plain(line), keep=BLANKS), quote=False) for line in part.lines]
                out += [f"{'- ' if part.listed else ''}{text}" for text in texts]
                out += [""]
            case TextTable():
                out += [f"{part.title}", ""] if part.title else []
                out += [_row(part.heads), _row(["---" if column.is_text else "---:" for column in part.columns])]
                out += [*map(_row, part.rows), ""]
    return "\n".join(out)


def _row(cells: Iterable[Line]) -> str:
    return f"| {' | '.join(plain(cell).replace('|', chr(92) + '|') for cell in cells)} |"
