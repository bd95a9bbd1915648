"""HTML page: sections, one style sheet and one script in one file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from dwsweep.report.document import Part
from dwsweep.report.markup import escaped, html_of

# forbids the browser to load anything: style sheet, script and images are inside the page
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {}; base-uri 'none'"


@dataclass(frozen=True)
class Section:
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
    """Frame around parts; empty without parts."""
    return f'<div class="{kind}">{html_of(parts)}</div>' if parts else ""


@cache
def asset(name: str) -> str:
    """A file of ``assets``."""
    return (resources.files("dwsweep.report") / "assets" / name).read_text(encoding="utf-8")


def page(title: str, subtitle: str, sections: Sequence[Section], reload: float | None = None) -> str:
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
