"""HTML page: sections, one style sheet, one script and the data of the script in one file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from dwsweep.report.document import Part
from dwsweep.report.markup import escaped, html_of

STYLE_SHEET = "page.css"
SCRIPTS = (
    *("numbers.js", "dom.js", "plots.js"),
    *("answers_box.js", "losses_chart.js", "runs_filter.js", "runs_table.js", "page.js"),
)
# forbids the browser to load anything: style sheet, script and images are inside the page
POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src {}; base-uri 'none'"


@dataclass(frozen=True)
class Section:
    """Section of a page: a title and its markup."""

    anchor: str
    title: str
    body: str


def box(kind: str, parts: Sequence[Part]) -> str:
    """Frame around parts; empty without parts."""
    return f'<div class="{kind}">{html_of(parts)}</div>' if parts else ""


def placeholder(anchor: str, without: str) -> str:
    """Placeholder that the script fills; ``without``: text for a reader without scripts."""
    return f'<div id="{escaped(anchor)}"></div><noscript><p class="soft">{escaped(without)}</p></noscript>'


@cache
def asset(name: str) -> str:
    """A file of ``assets``."""
    return (resources.files("dwsweep.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """Whole script of the page, in a scope of its own."""
    return '(() => {\n"use strict";\n' + "\n".join(asset(name) for name in SCRIPTS) + "})();\n"


def data_block(data: Mapping[str, Any]) -> str:
    """Data element: JSON in which no text can end the element or start another."""
    content = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: U+2028 and the like are escaped
    for sign in "<>&":
        content = content.replace(sign, f"\\u{ord(sign):04x}")
    return f'<script type="application/json" id="data">{content}</script>'


def page(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    data: Mapping[str, Any] | None = None,
    reload: float | None = None,
) -> str:
    """Whole document, without empty sections, with ``data`` for its script.

    reload: seconds after which a browser loads the page again.
    """
    sections = [section for section in sections if section.body]
    added, allowed = "", "'none'"
    if data is not None:
        allowed = f"'sha256-{base64.b64encode(hashlib.sha256(script().encode()).digest()).decode('ascii')}'"
        added = f"{data_block(data)}\n<script>{script()}</script>"
    again = "" if reload is None else f'<meta http-equiv="refresh" content="{reload:g}">'
    links = "".join(f'<a href="#{escaped(s.anchor)}">{escaped(s.title)}</a>' for s in sections)
    body = "".join(f'<section id="{escaped(s.anchor)}"><h2>{escaped(s.title)}</h2>{s.body}</section>' for s in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY.format(allowed)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{again}"
        f"<title>{escaped(title)}</title><style>{asset(STYLE_SHEET)}</style></head>\n"
        f'<body><header><h1>{escaped(title)}</h1><p class="soft">{escaped(subtitle)}</p><nav>{links}</nav></header>\n'
        f"<main>{body}</main>{added}</body></html>\n"
    )
