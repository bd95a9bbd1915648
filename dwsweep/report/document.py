"""A report as data: what a command says, before a terminal, a page or a Markdown file shows it.

``render``, ``html_of`` and ``markdown`` show the same parts: a builder of a report writes each table and each sentence
once.
"""

from __future__ import annotations

import base64
import colorsys
import html
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rich import box
from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from dwsweep.interval import Form, Interval, written
from dwsweep.terminal import JOINT
from dwsweep.text import printable

Said = str | tuple[str, str]  # a text, or a text and its style: bold, dim or a colour
Line = str | Sequence[Said]
MISSING = "–"
BLANKS = "\n\t\u00a0"  # that a page keeps; other control characters are spelled out
INTERVAL = "interval"
BOUND = re.compile(
    r"(?<=\d) (?:× (?=\d)|%)|(?<=[<>]) (?=\d)|(?<= =) (?=\d)|(?<=\bN) (?==)"
)  # stays on one line of a page
CODE = re.compile(r"`([^`]+)`")  # words to type; a page sets them in another type, a terminal shows the marks
COLOUR = re.compile(rb"(fill|stroke): (#[0-9a-f]{6})")  # as Matplotlib writes it into a style
DARK_FROM, DARK_SPAN, DARK_MOST = 0.92, 0.825, 0.75  # lightness on the dark ground; at most, of what is no grey
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
    what a row is; a column with the heading ``INTERVAL`` stays with the one before it, whose value it is of. optional:
    headings that may be left out where room is scarce, in this order; file: where they are found instead. headed: False
    leaves the headings out. ruled: a line under the headings and under each row of ``ends``. gap: blanks between the
    columns of a table without rules. strong: rows in bold; soft: rows of less weight. whole: a page shows every column,
    even one in which no row says anything.
    """

    title: str
    columns: str
    keys: int = 1
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


def spans(line: Line) -> list[tuple[str, str]]:
    """The texts of a paragraph, each with its style or with a blank."""
    return [(one, "") if isinstance(one, str) else one for one in ([line] if isinstance(line, str) else line)]


def plain(line: Line) -> str:
    """The text of a paragraph without its styles."""
    return line if isinstance(line, str) else "".join(text for text, _ in spans(line))


def shown(value: float | None, text: Form, missing: str = MISSING) -> str:
    """The cell of a value, or ``missing``."""
    return missing if value is None else written(value, text)


def estimate(found: Interval, text: Form, missing: str = MISSING) -> list[str]:
    """The cells of a value and of its interval; ``missing`` and a blank without a value."""
    return [missing, ""] if found.value is None else [written(found.value, text), found.ends(text)]


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
                texts = [html.escape(printable(plain(line), keep=BLANKS), quote=False) for line in part.lines]
                out += [f"{'- ' if part.listed else ''}{text}" for text in texts]
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
                more = f"<small>{_marked(part.more)}</small>" if part.more else ""
                out.append(f"<h3>{_marked(part.text)}{more}</h3>")
            case Lines(listed=True) if part.lines:
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
                content = base64.b64encode(_in_both_themes(_rounded(part.svg))).decode("ascii")
                out.append(
                    f'<figure><img alt="{escaped(part.title)}" src="data:image/svg+xml;base64,{content}">'
                    f"<figcaption>{_marked(part.caption)}</figcaption></figure>"
                )
            case Fold():
                kind = f' class="{escaped(part.kind)}"' if part.kind else ""
                content = html_of(part.parts)
                out.append(f"<details{kind}><summary>{_marked(part.title)}</summary>{content}</details>")
    return "".join(out)


def _rounded(svg: bytes) -> bytes:
    """The drawing with the coordinates of its lines in hundredths of a point: a fifth of its bytes is beyond them."""
    return re.sub(rb' d="[^"]*"', lambda path: re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]), svg)


def _in_both_themes(svg: bytes) -> bytes:
    """The drawing with a style sheet that gives each of its colours the one ``on_dark`` where the reader's theme is
    dark; on paper it stays as it was drawn."""
    rules = {
        f'[style*="{kind}: {colour}"]{{{kind}:{on_dark(colour)}!important}}'
        for kind, colour in ((one.decode() for one in found) for found in COLOUR.findall(svg))
    }
    ink = f"svg{{fill:{on_dark('#000000')}}}"
    sheet = f"<style>@media screen and (prefers-color-scheme: dark){{{ink}{''.join(sorted(rules))}}}</style>"
    start = svg.index(b">", svg.index(b"<svg")) + 1
    return svg[:start] + sheet.encode() + svg[start:]


def on_dark(colour: str) -> str:
    """A colour for a dark ground: its lightness turned over, its hue and saturation kept, so that the order of light
    and dark is that of the white ground reversed. What is no grey is never so light that it loses its hue."""
    hue, light, saturation = colorsys.rgb_to_hls(*(int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)))
    light = DARK_FROM - DARK_SPAN * light
    red_green_blue = colorsys.hls_to_rgb(hue, min(light, DARK_MOST) if saturation > 0.2 else light, saturation)
    return "#" + "".join(f"{round(255 * value):02x}" for value in red_green_blue)


def escaped(value: object) -> str:
    """Text as markup, quotes escaped too, so that it may stand in an attribute; control characters are spelled out."""
    return html.escape(printable(str(value), keep=BLANKS), quote=True)


def _marked(text: str) -> str:
    """Text as markup, with `words to type` in their own type; no shape, bound or percentage breaks over a line."""
    tied = BOUND.sub(lambda found: found[0].replace(" ", "\u00a0"), text)
    return CODE.sub(r"<code>\1</code>", escaped(tied))


def _html_line(line: Line) -> str:
    kinds = {"": "{}", "dim": '<span class="soft">{}</span>'}
    return "".join(kinds.get(style, "<strong>{}</strong>").format(_marked(text)) for text, style in spans(line))


def _html_table(made: Table) -> str:
    """A table in a box that scrolls; unless it is ``whole``, without the columns in which no row says anything. An
    interval whose value is left out takes the name of that value."""
    rows = [[plain(cell).strip() for cell in row] for row in made.rows]
    heads = [name.strip() for name in made.heads]
    kept = [k for k in range(len(heads)) if made.whole or any(row[k] not in ("", MISSING) for row in rows)]
    for k in kept:
        if heads[k] == INTERVAL and k - 1 not in kept:
            heads[k] = heads[k - 1]
    kinds = [{"<": ' class="text"', "~": ' class="text long"'}.get(sign, "") for sign in made.signs]

    def line(tag: str, cells: Sequence[str], look: str = "") -> str:
        return f"<tr{look}>" + "".join(f"<{tag}{kinds[k]}>{_marked(cells[k])}</{tag}>" for k in kept) + "</tr>"

    caption = f"<h4>{_marked(made.title)}</h4>" if made.title else ""
    chosen = ' class="chosen"'
    body = "".join(line("td", row, chosen if number in made.strong else "") for number, row in enumerate(rows))
    head = line("th", heads)
    return f'{caption}<div class="scroll" tabindex="0"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


TIED = re.compile(r"(?<=\d) × (?=\d)|(?<=[<>]) (?=\d)")  # a shape, a bound
WORDS = 20  # where words may wrap, a column is not made narrower than this for the sake of its neighbours


class Paragraph:
    """A text in which no shape (``44 × 2432``) breaks over a line."""

    def __init__(self, line: Line, style: str = "") -> None:
        self.text = Text(style=style)
        for text, own in spans(line):
            self.text.append(_tied(text), own or None)

    def __str__(self) -> str:
        return self.text.plain

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in self.text.__rich_console__(
            console, options
        ):  # past the console, which would spell the joint out
            yield Segment(segment.text.replace(JOINT, " "), segment.style, segment.control)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self.text)


def _tied(text: str) -> str:
    return TIED.sub(lambda found: found[0].replace(" ", JOINT), text)


def render(parts: Iterable[Part]) -> Group:
    """The parts for a terminal: tables fold, figures are left out, and a blank line stands where a part is apart."""
    out: list[RenderableType] = []
    for part in parts:
        made: Sequence[RenderableType] = ()
        match part:
            case Heading():
                made = [Paragraph([(part.text, part.style), part.more])]
            case Lines(listed=True) if part.lines:
                dotted = Table("", "dot< line~", headed=False, ruled=False, gap=1)
                for line in part.lines:
                    dotted.add("  ·", line)
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
    """A table whose columns are laid out in as many blocks as the terminal needs; no number is cut.

    Every column keeps its full width, but words may wrap down to ``WORDS`` characters. Where there is no room for all,
    columns that say the same in every row are said once, in a line. Then optional columns are left to the file that
    has them too, the first of them first, where all others then stand in one block. Then columns go below, beside the
    keys again.
    """

    def __init__(self, table: Table) -> None:
        self.table, self.heads, self.signs = table, table.heads, table.signs
        self.widths = [self._width(index) for index in range(len(self.heads))]

    def _width(self, index: int) -> int:
        """Least width of a column, without padding."""
        cells = [_tied(plain(cell)) for cell in (self.heads[index], *(row[index] for row in self.table.rows))]
        most = max(map(cell_len, cells))
        if self.signs[index] != "~":
            return most
        return min(most, max([WORDS, *(cell_len(word) for cell in cells for word in cell.split())]))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        def fits(indices: list[int]) -> bool:
            between = 2 if self.table.ruled else self.table.gap
            return sum(self.widths[index] + between for index in indices) - between <= options.max_width

        shown = list(range(len(self.heads)))
        constant = {} if fits(shown) else self._constant()
        shown = [index for index in shown if index not in constant]
        left_out: list[int] = []
        for heading in self.table.optional:
            if not fits([index for index in shown if index not in left_out]):
                found = {index for index in shown if self.heads[index] == heading}
                of_found = {index + 1 for index in found if self.heads[index + 1 : index + 2] == [INTERVAL]}
                left_out += sorted(found | of_found)
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
            names = [self.heads[index] for index in left_out if self.heads[index] != INTERVAL]
            yield Text(f"In {self.table.file}: {', '.join(names)}")

    def _constant(self) -> dict[int, str]:
        """The columns that say the same in every row, and what. A value with its interval is none, nor is a row of
        blanks one."""
        found = {}
        for index in range(self.table.keys, len(self.heads)):
            cells = {text for row in self.table.rows if (text := plain(row[index])).strip()}
            if len(cells) == 1 and len(self.table.rows) > 1 and INTERVAL not in self.heads[index : index + 2]:
                found[index] = cells.pop()
        return found

    def _blocks(self, shown: list[int], fits: Callable[[list[int]], bool]) -> list[list[int]]:
        """The columns ``shown`` in blocks that fit, each led by the keys."""
        keys = list(range(self.table.keys))
        units: list[list[int]] = []
        for index in shown[self.table.keys :]:
            pair = [*units[-1], index] if units and self.heads[index] == INTERVAL else []
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
        """The columns ``indices`` alone. A later block whose cells are all empty in a row keeps that row: blocks are
        read side by side."""
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
            sign, wraps = self.signs[index], self.signs[index] == "~"
            made.add_column(
                self.heads[index],
                justify="right" if sign == ">" else "left",
                no_wrap=not wraps,
                overflow="fold" if wraps else "ellipsis",
            )
        for number, row in enumerate(table.rows):
            style = "bold" if number in table.strong else "dim" if number in table.soft else ""
            made.add_row(*[Paragraph(row[k]) for k in indices], style=style, end_section=number in table.ends)
        return made
