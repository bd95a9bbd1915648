"""A report as data: what a command says, before a terminal, a page or a Markdown file shows it.

``terminal.render``, ``html_of`` and ``markdown`` show the same parts: a builder of a report writes each table and each
sentence once.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Said = str | tuple[str, str]  # a text, or a text and its style: bold, dim or a colour
Line = str | Sequence[Said]
MISSING = "–"
SHAPE = re.compile(r"(?<=[0-9]) × (?=[0-9])")  # its two numbers stay on one line
SPACE = re.compile(r"(?<![dn])_|(?<=[A-Za-z][dn])_")  # but for the _ of d_x and n_params


@dataclass(frozen=True)
class Heading:
    """A title of what follows; ``more`` stands behind it in ordinary type."""

    text: str
    more: str = ""
    style: str = "bold"
    apart: bool = True


@dataclass(frozen=True)
class Lines:
    """Paragraphs, each a text or a list of ``Said``.

    listed: with a dot before each. soft: of less weight. verbatim: line breaks and blanks stay. indent: columns of a
    terminal. apart: after a blank line.
    """

    lines: Sequence[Line]
    listed: bool = False
    soft: bool = False
    verbatim: bool = False
    indent: int = 0
    apart: bool = False


@dataclass
class Table:
    """Rows of texts. Each word of ``columns`` is a heading, where _ is a space (but for d_x), and its column's sign.

    The sign is < or > for the side of the texts, or ~ for words that may wrap. keys: how many of the first columns say
    what a row is. beside: heading of columns that stay with the column before them (the interval of a value). optional:
    headings that may be left out where room is scarce, in this order; file: where they are found instead. headed: False
    leaves the headings out. ruled: a line under the headings and under each row of ``ends``. gap: blanks between the
    columns of a table without rules. strong: rows in bold; soft: rows of less weight. whole: a page shows every column,
    even one in which no row says anything.
    """

    title: str
    columns: str
    keys: int = 1
    beside: str = "interval"
    optional: Sequence[str] = ()
    file: str = ""
    headed: bool = True
    ruled: bool = True
    gap: int = 2
    apart: bool = True
    whole: bool = False
    rows: list[list[Line]] = field(default_factory=list)
    ends: set[int] = field(default_factory=set)
    strong: set[int] = field(default_factory=set)
    soft: set[int] = field(default_factory=set)

    def add(self, *cells: Line, strong: bool = False, soft: bool = False, end: bool = False) -> None:
        """Add a row; blanks fill the columns that it says nothing of."""
        for chosen, rows in ((strong, self.strong), (soft, self.soft), (end, self.ends)):
            if chosen:
                rows.add(len(self.rows))
        self.rows.append([*cells, *[""] * (len(self.heads) - len(cells))])

    @property
    def heads(self) -> list[str]:
        return [SPACE.sub(" ", word[:-1]) for word in self.columns.split()]

    @property
    def signs(self) -> list[str]:
        return [word[-1] for word in self.columns.split()]


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
    kind: str = ""


Part = Heading | Lines | Table | Figure | Fold


def plain(line: Line) -> str:
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
                out += [_row(part.heads), _row(["---:" if sign == ">" else "---" for sign in part.signs])]
                out += [*map(_row, part.rows), ""]
            case Fold():
                out += [f"## {part.title}", "", markdown(part.parts)]
    return "\n".join(out)


def _row(cells: Iterable[Line]) -> str:
    return f"| {' | '.join(plain(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def html_of(parts: Iterable[Part]) -> str:
    """The parts as markup; all text is escaped."""
    out = []
    for part in parts:
        match part:
            case Heading():
                out.append(f"<h3>{escaped(part.text)}{escaped(part.more)}</h3>")
            case Lines(listed=True):
                out.append("<ul>" + "".join(f"<li>{_html_line(line)}</li>" for line in part.lines) + "</ul>")
            case Lines(verbatim=True):
                out += [f"<pre>{_html_line(line)}</pre>" for line in part.lines]
            case Lines():
                kind = ' class="soft"' if part.soft else ""
                out += [f"<p{kind}>{_html_line(line)}</p>" for line in part.lines]
            case Table(headed=False):
                pairs = (f"<dt>{_html_line(name)}</dt><dd>{_html_line(value)}</dd>" for name, value in part.rows)
                out.append(f"<dl>{''.join(pairs)}</dl>")
            case Table() if part.rows:
                out.append(_html_table(part))
            case Figure():
                # an image rather than inline SVG: two inline drawings would share one space of element ids
                content = base64.b64encode(_rounded(part.svg)).decode("ascii")
                out.append(
                    f'<figure><img alt="{escaped(part.title)}" src="data:image/svg+xml;base64,{content}">'
                    f"<figcaption>{escaped(part.caption)}</figcaption></figure>"
                )
            case Fold():
                kind = f' class="{escaped(part.kind)}"' if part.kind else ""
                content = html_of(part.parts)
                out.append(f"<details{kind}><summary>{escaped(part.title)}</summary>{content}</details>")
    return "".join(out)


def _rounded(svg: bytes) -> bytes:
    """The drawing with the coordinates of its lines in hundredths of a point: a fifth of its bytes is beyond them."""
    return re.sub(rb' d="[^"]*"', lambda path: re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]), svg)


def escaped(value: object) -> str:
    """Text as markup, quotes escaped too, so that it may stand in an attribute."""
    return html.escape(str(value), quote=True)


def _html_line(line: Line) -> str:
    said = [(one, "") if isinstance(one, str) else one for one in ([line] if isinstance(line, str) else line)]
    found = "".join(f"<strong>{escaped(one)}</strong>" if style else escaped(one) for one, style in said)
    return SHAPE.sub("&nbsp;×&nbsp;", found)


def _html_table(made: Table) -> str:
    """A table in a box that scrolls; unless it is ``whole``, without the columns in which no row says anything."""
    rows = [[plain(cell).strip() for cell in row] for row in made.rows]
    kept = [k for k in range(len(made.heads)) if made.whole or any(row[k] not in ("", MISSING) for row in rows)]
    kinds = [{"<": ' class="text"', "~": ' class="text long"'}.get(sign, "") for sign in made.signs]

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}{kinds[k]}>{escaped(cells[k])}</{tag}>" for k in kept) + "</tr>"

    caption = f"<h4>{escaped(made.title)}</h4>" if made.title else ""
    head = line("th", [name.strip() for name in made.heads])
    body = "".join(line("td", row) for row in rows)
    return f'{caption}<div class="scroll" tabindex="0"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'
