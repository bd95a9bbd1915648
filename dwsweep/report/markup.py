"""Markup of a report for a page: its parts as HTML."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence

from dwsweep.report.document import (
    BLANKS,
    INTERVAL,
    MISSING,
    Figure,
    Fold,
    Heading,
    Line,
    Lines,
    Part,
    Table,
    plain,
    spans,
)
from dwsweep.text import printable

BOUND = re.compile(
    r"(?<=\d) (?:× (?=\d)|%)|(?<=[<>]) (?=\d)|(?<= =) (?=\d)|(?<=\bN) (?==)"
)  # kept on one line of a page
OPTION = re.compile(r"(?<!\S)--[a-z-]+")  # words never broken behind their two dashes
CODE = re.compile(r"`([^`]+)`")  # words to type: code on a page, backticks on a terminal


def html_of(parts: Iterable[Part]) -> str:
    """HTML of the parts; all text is escaped."""
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
                content = base64.b64encode(_rounded(part.svg)).decode("ascii")
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
    """Drawing with line coordinates rounded to hundredths of a point, which saves a fifth of its bytes."""
    return re.sub(rb' d="[^"]*"', lambda path: re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]), svg)


def escaped(value: object) -> str:
    """Escaped text, quotes included, for elements and attributes; control characters are spelled out."""
    return html.escape(printable(str(value), keep=BLANKS), quote=True)


def _marked(text: str) -> str:
    """Text as markup: `words to type` as code; no shape, bound or percentage breaks over a line."""
    tied = BOUND.sub(lambda found: found[0].replace(" ", "\u00a0"), text)
    return CODE.sub(lambda found: f"<code>{OPTION.sub(_unbroken, found[1])}</code>", escaped(tied))


def _unbroken(found: re.Match[str]) -> str:
    return f'<span class="option">{found[0]}</span>'


def _html_line(line: Line) -> str:
    kinds = {"": "{}", "dim": '<span class="soft">{}</span>'}
    return "".join(kinds.get(style, "<strong>{}</strong>").format(_marked(text)) for text, style in spans(line))


def _html_table(made: Table) -> str:
    """Table in a scrolling box, without empty columns unless it is ``whole``. An interval whose value is left out takes
    the heading of that value."""
    rows = [[plain(cell).strip() for cell in row] for row in made.rows]
    heads = [name.strip() for name in made.heads]
    kept = [k for k in range(len(heads)) if made.whole or any(row[k] not in ("", MISSING) for row in rows)]
    for k in kept:
        if made.columns[k] == INTERVAL and k - 1 not in kept:
            heads[k] = heads[k - 1]
    kinds = [f' class="text{" long" * one.wraps}"' if one.is_text else "" for one in made.columns]

    def line(tag: str, cells: Sequence[str], look: str = "") -> str:
        return f"<tr{look}>" + "".join(f"<{tag}{kinds[k]}>{_marked(cells[k])}</{tag}>" for k in kept) + "</tr>"

    caption = f"<h4>{_marked(made.title)}</h4>" if made.title else ""
    chosen = ' class="chosen"'
    body = "".join(line("td", row, chosen if number in made.strong else "") for number, row in enumerate(rows))
    head = line("th", heads)
    return f'{caption}<div class="scroll" tabindex="0"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'
