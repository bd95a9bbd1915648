"""A report as data: what a command says, before a terminal, a page or a Markdown file shows it.

``terminal.render``, ``html.body`` and ``markdown`` show the same parts: a builder of a report writes each table and
each sentence once.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Said = str | tuple[str, str]  # a text, or a text and its style: bold
MISSING = "–"


@dataclass(frozen=True)
class Heading:
    """A title of what follows; ``more`` stands behind it in ordinary type."""

    text: str
    more: str = ""
    apart: bool = True


@dataclass(frozen=True)
class Lines:
    """Paragraphs, each a text or a list of ``Said``.

    listed: with a dot before each. soft: of less weight. indent: columns of a terminal. apart: after a blank line.
    """

    lines: Sequence[str | Sequence[Said]]
    listed: bool = False
    soft: bool = False
    indent: int = 0
    apart: bool = False


@dataclass
class Table:
    """Rows of texts. Each word of ``columns`` is a heading and < or > for its side; a _ in it is a space.

    keys: how many of the first columns say what a row is. beside: heading of columns that stay with the column before
    them (the interval of a value). optional: headings that may be left out where room is scarce, in this order; file:
    where they are found instead. ruled: a line under the headings and under each row of ``ends``. strong: rows in bold.
    """

    title: str
    columns: str
    keys: int = 1
    beside: str = "interval"
    optional: Sequence[str] = ()
    file: str = ""
    ruled: bool = True
    apart: bool = True
    rows: list[list[str]] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)
    strong: set[int] = field(default_factory=set)

    def add(self, *cells: str, strong: bool = False, end: bool = False) -> None:
        if strong:
            self.strong.add(len(self.rows))
        if end:
            self.ends.add(len(self.rows))
        self.rows.append(list(cells))

    @property
    def heads(self) -> list[str]:
        return [word[:-1].replace("_", " ") for word in self.columns.split()]

    @property
    def left(self) -> list[bool]:
        """Whether each column is one of words."""
        return [word[-1] == "<" for word in self.columns.split()]


@dataclass(frozen=True)
class Figure:
    """A drawing, as SVG; ``title`` stands in its place for who cannot see it."""

    svg: bytes
    title: str
    caption: str


@dataclass(frozen=True)
class Fold:
    """Details that a page shows when they are asked for; a terminal shows them at once."""

    title: str
    parts: Sequence[Part]


Part = Heading | Lines | Table | Figure | Fold


def plain(line: str | Sequence[Said]) -> str:
    """The text of a paragraph without its styles."""
    return line if isinstance(line, str) else "".join(one if isinstance(one, str) else one[0] for one in line)


def listed(lines: Iterable[str]) -> list[Part]:
    """A list, or nothing where there is no line: a report has no empty section."""
    kept = [line for line in lines if line]
    return [Lines(kept, listed=True)] if kept else []


def markdown(parts: Iterable[Part]) -> str:
    """The parts as Markdown; figures are left out."""
    out: list[str] = []
    for part in parts:
        match part:
            case Heading():
                out += [f"# {part.text}{part.more}", ""]
            case Lines():
                out += [f"{'- ' if part.listed else ''}{html.escape(plain(line), quote=False)}" for line in part.lines]
                out += [""]
            case Table():
                out += [f"{part.title}", ""] if part.title else []
                out += [_row(part.heads), _row(["---" if left else "---:" for left in part.left])]
                out += [*map(_row, part.rows), ""]
            case Fold():
                out += [f"## {part.title}", "", markdown(part.parts)]
    return "\n".join(out)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
