"""The pieces of a self-contained page: escaping, tables, figures as data URIs, the style sheet.

A page made of these loads nothing: no script, no font, no style sheet, no image by address. All text is escaped here,
so that a name in a table can never become markup.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

STYLE_SHEET = """
:root { color-scheme: light dark; --ink: #1d1f21; --soft: #5c6066; --rule: #d9dce0; --ground: #ffffff; --card: #f6f7f8;
  --mark: #0b5a8c; --alert: #fff4df; --alert-rule: #d98e00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e8; --soft: #a2a8ae; --rule: #3a3f45; --ground: #17191b;
  --card: #202327; --mark: #7fbfe8; --alert: #33280f; --alert-rule: #d98e00; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 74rem; padding: 1.5rem 1.25rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; }
h2 { font-size: 1.25rem; margin: 2.6rem 0 .6rem; padding-top: .4rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p, ul { max-width: 52rem; margin: .5rem 0; }
a { color: var(--mark); }
nav { margin: .8rem 0 0; font-size: .92rem; }
nav a { margin-right: 1rem; white-space: nowrap; }
.soft { color: var(--soft); font-size: .9rem; }
.answer { background: var(--card); border-left: 4px solid var(--mark); padding: .5rem 1rem; margin: 1rem 0; }
.answer li { margin: .3rem 0; }
.warnings { background: var(--alert); border-left: 4px solid var(--alert-rule); padding: .4rem 1rem; margin: 1rem 0; }
.scroll { overflow: auto; max-height: 34rem; border: 1px solid var(--rule); border-radius: 4px; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .28rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--rule); }
th { position: sticky; top: 0; background: var(--card); font-weight: 600; vertical-align: bottom; }
td.text, th.text { text-align: left; }
td.long { white-space: normal; min-width: 16rem; }
tr:last-child td { border-bottom: 0; }
figure { margin: 1.2rem 0; }
figure img { width: 100%; height: auto; background: #fff; border-radius: 4px; border: 1px solid var(--rule);
  padding: .4rem; }
figcaption { color: var(--soft); font-size: .9rem; max-width: 56rem; }
details { margin: .6rem 0; }
summary { cursor: pointer; color: var(--mark); }
pre { overflow: auto; background: var(--card); padding: .6rem .8rem; font-size: .82rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; font-size: .88rem; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
@media print { .scroll { max-height: none; overflow: visible; } nav { display: none; } }
"""


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


def details(summary: str, body: str) -> str:
    return f"<details><summary>{text(summary)}</summary>{body}</details>"


def preformatted(value: str) -> str:
    return f"<pre>{text(value)}</pre>"


def definitions(pairs: Mapping[str, object]) -> str:
    return "<dl>" + "".join(f"<dt>{text(key)}</dt><dd>{text(value)}</dd>" for key, value in pairs.items()) + "</dl>"


def without_empty(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The table less the columns in which every row says –."""
    kept = [k for k in range(len(columns)) if not rows or any(row[k] != "–" for row in rows)]
    return [columns[k] for k in kept], [[row[k] for k in kept] for row in rows]


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
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def picture(svg: bytes, description: str, caption: str) -> str:
    """A figure held in the page itself.

    An image rather than inline SVG: two inline drawings would share one space of element ids.
    """
    content = base64.b64encode(svg).decode("ascii")
    return (
        f'<figure><img alt="{text(description)}" src="data:image/svg+xml;base64,{content}">'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def page(title: str, subtitle: str, sections: Sequence[Section]) -> str:
    """The whole document."""
    links = "".join(f'<a href="#{text(s.anchor)}">{text(s.title)}</a>' for s in sections)
    body = "".join(f'<section id="{text(s.anchor)}"><h2>{text(s.title)}</h2>{s.body}</section>' for s in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{STYLE_SHEET}</style></head>\n"
        f'<body><header><h1>{text(title)}</h1><p class="soft">{text(subtitle)}</p><nav>{links}</nav></header>\n'
        f"<main>{body}</main></body></html>\n"
    )
