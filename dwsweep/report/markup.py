"""Markup of a report: its parts as HTML, and a page of sections with one style sheet and one script that loads
nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from dwsweep.report.document import BLANKS, Figure, Fold, Heading, Line, Lines, Part, TextTable, plain, spans
from dwsweep.text import printable

# forbids the browser to load anything: style sheet, script and images are inside the page
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {}; base-uri 'none'"
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
            case TextTable() if part.rows:
                out.append(_html_table(part))
            case Figure():
                # an image rather than inline SVG: two inline drawings would share one space of element ids
                content = base64.b64encode(part.svg).decode("ascii")
                out.append(
                    f'<figure><img alt="{escaped(part.title)}" src="data:image/svg+xml;base64,{content}">'
                    f"<figcaption>{_marked(part.caption)}</figcaption></figure>"
                )
            case Fold():
                kind = f' class="{escaped(part.kind)}"' if part.kind else ""
                content = html_of(part.parts)
                out.append(f"<details{kind}><summary>{_marked(part.title)}</summary>{content}</details>")
    return "".join(out)


def escaped(value: object) -> str:
    """Escaped text, quotes included, for elements and attributes; control characters are spelled out."""
    return html.escape(printable(str(value), keep=BLANKS), quote=True)


def _marked(text: str) -> str:
    """Text as markup: `words to type` as code."""
    return CODE.sub(r"<code>\1</code>", escaped(text))


def _html_line(line: Line) -> str:
    kinds = {"": "{}", "dim": '<span class="soft">{}</span>'}
    return "".join(kinds.get(style, "<strong>{}</strong>").format(_marked(text)) for text, style in spans(line))


def _html_table(made: TextTable) -> str:
    """Table in a scrolling box."""
    kept = made.kept
    kinds = [f' class="text{" long" * one.wraps}"' if one.is_text else "" for one in made.columns]

    def line(tag: str, cells: Mapping[int, str] | Sequence[str], look: str = "") -> str:
        return f"<tr{look}>" + "".join(f"<{tag}{kinds[k]}>{_marked(cells[k])}</{tag}>" for k in kept) + "</tr>"

    caption = f"<h4>{_marked(made.title)}</h4>" if made.title else ""
    rows = ([plain(cell).strip() for cell in row] for row in made.rows)
    body = "".join(line("td", row, ' class="chosen"' if k in made.strong else "") for k, row in enumerate(rows))
    head = line("th", kept)
    return f'{caption}<div class="scroll" tabindex="0"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'


@dataclass(frozen=True)
class PageSection:
    """Section of a page: a title and its markup. open: an answer; a reader unfolds any other."""

    anchor: str
    title: str
    body: str
    open: bool = False

    @property
    def markup(self) -> str:
        head = f"<h2>{escaped(self.title)}</h2>"
        body = head + self.body if self.open else f"<details><summary>{head}</summary>{self.body}</details>"
        return f'<section id="{escaped(self.anchor)}">{body}</section>'


def box(kind: str, parts: Sequence[Part]) -> str:
    """Frame around parts; empty without a text or a figure."""
    content = html_of(parts)
    return f'<div class="{kind}">{content}</div>' if content else ""


@cache
def asset(name: str) -> str:
    """A file of ``assets``."""
    return (resources.files("dwsweep.report") / "assets" / name).read_text(encoding="utf-8")


def page(title: str, subtitle: str, sections: Sequence[PageSection], reload: float | None = None) -> str:
    """Whole document, without empty sections. ``reload``: seconds after which a browser loads the page again."""
    sections = [section for section in sections if section.body]
    script = asset("page.js")
    allowed = f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode('ascii')}'"
    again = "" if reload is None else f'<meta http-equiv="refresh" content="{reload:g}">'
    links = "".join(f'<a href="#{escaped(s.anchor)}">{escaped(s.title)}</a>' for s in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY.format(allowed)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{again}"
        f"<title>{escaped(title)}</title><style>{asset('page.css')}</style></head>\n"
        f'<body><header><h1>{escaped(title)}</h1><p class="soft">{escaped(subtitle)}</p><nav>{links}</nav></header>\n'
        f"<main>{''.join(section.markup for section in sections)}</main><script>{script}</script></body></html>\n"
    )
