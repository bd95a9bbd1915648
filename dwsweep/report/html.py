"""The pieces of a self-contained page: escaping, tables, figures as data URIs, the style sheet, the script.

A page made of these loads nothing: no font, no style sheet, no image, no script by address. All text is escaped here,
so that a name in a table can never become markup. The script is one, inline and named by its hash in the page's policy,
beside one block of data; it adds to a page that can be read without it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from dwsweep.report.document import MISSING, Figure, Fold, Heading, Lines, Part, Said, Table

STYLE_SHEET = "page.css"
SCRIPTS = (
    *("numbers.js", "dom.js", "plots.js"),
    *("answers_box.js", "losses_chart.js", "runs_filter.js", "runs_table.js", "page.js"),
)
# the browser itself is told that the page may load nothing: its own style sheet, script and images are in it
POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src {}; base-uri 'none'"


@dataclass(frozen=True)
class Section:
    """One titled part of the page; ``body`` is markup made by this module's functions."""

    anchor: str
    title: str
    body: str


def text(value: object) -> str:
    """Escaped text, quotes too, so that it may stand in an attribute."""
    return html.escape(str(value), quote=True)


def paragraph(value: str, kind: str = "") -> str:
    return f'<p class="{text(kind)}">{text(value)}</p>' if kind else f"<p>{text(value)}</p>"


def bullets(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{text(line)}</li>" for line in lines) + "</ul>"


def box(kind: str, body: str) -> str:
    return f'<div class="{text(kind)}">{body}</div>'


def details(summary: str, body: str, kind: str = "") -> str:
    opened = f'<details class="{text(kind)}">' if kind else "<details>"
    return f"{opened}<summary>{text(summary)}</summary>{body}</details>"


def placeholder(anchor: str, without: str) -> str:
    """Where the script puts something; ``without``: what a reader without scripts sees there."""
    return f'<div id="{text(anchor)}"></div><noscript>{paragraph(without, "soft")}</noscript>'


@cache
def asset(name: str) -> str:
    """A file of ``assets``."""
    return (resources.files("dwsweep.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """All of the script, in a scope of its own."""
    return '(() => {\n"use strict";\n' + "\n".join(asset(name) for name in SCRIPTS) + "})();\n"


def data_block(data: Mapping[str, Any]) -> str:
    """JSON in which no text can end the element or start another."""
    content = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 and the like are escaped
    for sign in "<>&":
        content = content.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="data">{content}</script>'


def preformatted(value: str) -> str:
    return f"<pre>{text(value)}</pre>"


def definitions(pairs: Mapping[str, object]) -> str:
    return "<dl>" + "".join(f"<dt>{text(key)}</dt><dd>{text(value)}</dd>" for key, value in pairs.items()) + "</dl>"


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], left: Iterable[str] = (), long: Iterable[str] = ()
) -> str:
    """A table in a box that scrolls; ``left`` names the columns of words, ``long`` those that may wrap."""
    words, wrapped = set(left) | set(long), set(long)
    kinds = ["text long" if c in wrapped else "text" if c in words else "" for c in columns]

    def cell(tag: str, kind: str, value: str) -> str:
        return f'<{tag} class="{kind}">{text(value)}</{tag}>' if kind else f"<{tag}>{text(value)}</{tag}>"

    head = "".join(cell("th", kind, name) for kind, name in zip(kinds, columns, strict=True))
    body = "".join(
        "<tr>" + "".join(cell("td", kind, value) for kind, value in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def picture(svg: bytes, description: str, caption: str) -> str:
    """A figure held in the page itself.

    An image rather than inline SVG: two inline drawings would share one space of element ids.
    """
    content = base64.b64encode(svg).decode("ascii")
    return (
        f'<figure><img alt="{text(description)}" src="data:image/svg+xml;base64,{content}">'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def body(parts: Iterable[Part]) -> str:
    """A document as markup; a column in which no row says anything is left out."""
    out = []
    for part in parts:
        match part:
            case Heading():
                out.append(f"<h3>{text(part.text)}{text(part.more)}</h3>")
            case Lines(listed=True):
                out.append("<ul>" + "".join(f"<li>{_line(line)}</li>" for line in part.lines) + "</ul>")
            case Lines():
                kind = ' class="soft"' if part.soft else ""
                out += [f"<p{kind}>{_line(line)}</p>" for line in part.lines]
            case Table() if part.rows:
                out.append(_table(part))
            case Figure():
                out.append(picture(part.svg, part.title, part.caption))
            case Fold():
                out.append(details(part.title, body(part.parts)))
    return "".join(out)


def _line(line: str | Sequence[Said]) -> str:
    said = [(one, "") if isinstance(one, str) else one for one in ([line] if isinstance(line, str) else line)]
    return "".join(f"<strong>{text(one)}</strong>" if style else text(one) for one, style in said)


def _table(made: Table) -> str:
    kept = [k for k in range(len(made.heads)) if any(row[k].strip() not in ("", MISSING) for row in made.rows)]
    heads = [made.heads[k].strip() for k in kept]
    rows = [[row[k].strip() for k in kept] for row in made.rows]
    caption = f"<h4>{text(made.title)}</h4>" if made.title else ""
    return caption + table(heads, rows, left=[name for name, k in zip(heads, kept, strict=True) if made.left[k]])


def page(title: str, subtitle: str, sections: Sequence[Section], data: Mapping[str, Any] | None = None) -> str:
    """The whole document; with ``data`` for its script."""
    added, allowed = "", "'none'"
    if data is not None:
        allowed = f"'sha256-{base64.b64encode(hashlib.sha256(script().encode()).digest()).decode('ascii')}'"
        added = f"{data_block(data)}\n<script>{script()}</script>"
    links = "".join(f'<a href="#{text(s.anchor)}">{text(s.title)}</a>' for s in sections)
    body = "".join(f'<section id="{text(s.anchor)}"><h2>{text(s.title)}</h2>{s.body}</section>' for s in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY.format(allowed)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{asset(STYLE_SHEET)}</style></head>\n"
        f'<body><header><h1>{text(title)}</h1><p class="soft">{text(subtitle)}</p><nav>{links}</nav></header>\n'
        f"<main>{body}</main>{added}</body></html>\n"
    )
