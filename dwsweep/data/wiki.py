"""Wikipedia source ``wikidump:``: MediaWiki pages-articles XML.

Wikitext to plain text, on mwparserfromhell's parse tree.

Kept: prose, headings, link texts, list items, the words of inline templates (``wiki_templates``). Left out: other
templates, tables, references, files, categories, links to other languages, galleries, mathematics, comments, and
sections that are empty after that.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from dwsweep.data.files import find_files, open_stream
from dwsweep.data.records import ITEM_BYTES, Block, Files, Item, Skipped, TooLarge, cut, item_blocks
from dwsweep.data.wiki_templates import VERSION, template
from dwsweep.errors import InputError

_PAGE_END = b"</page>"


@dataclass(frozen=True)
class WikiDump(Files):
    """Wikipedia dump, ``wikidump:PATH``: a pages-articles XML export, plain or compressed, streamed page by page."""

    @classmethod
    def find(cls, pattern: str) -> WikiDump:
        return cls(tuple(find_files("wikidump", pattern)))

    def identity(self) -> list[Any]:
        return [["text", VERSION], *super().identity()]

    @property
    def parallel(self) -> bool:
        return self.total_bytes > 1 << 18  # bytes of markup, usually compressed, which parses slowly

    def items(self) -> Iterator[Item]:
        for file in self.files:
            yield from self._pages(file.path)

    def _pages(self, path: str) -> Iterator[Item]:
        """Blocks of whole <page> elements. The text of a page is escaped XML, so no tag occurs inside."""
        with open_stream(path) as (stream, raw):
            head = stream.read(ITEM_BYTES)
            if b"<mediawiki" not in head[:4096]:
                raise InputError(
                    f"data.source: {path}; does not begin with <mediawiki>; must be a pages-articles XML export, "
                    "plain or compressed"
                )
            seen, piece = 0, None
            for piece in cut(path, stream, (_PAGE_END,), ITEM_BYTES, head):
                at = raw.tell()
                if isinstance(piece, TooLarge):
                    yield Item(piece, at - seen)
                    seen = at
                elif piece.data.endswith(_PAGE_END) and (start := piece.data.find(b"<page>")) >= 0:
                    yield Item(Block(path, piece.offset + start, piece.data[start:]), at - seen)
                    seen = at
            if not isinstance(piece, Block) or b"</mediawiki>" not in piece.data:
                raise InputError(
                    f"data.source: {path}; truncated: it ends without </mediawiki>; copy or download it again"
                )

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for block in item_blocks(item, skipped):
            for page, where in _parse_pages(block, skipped):
                title, text = page.findtext("title") or "", page.findtext("revision/text") or ""
                if (page.findtext("ns") or "0").strip() != "0":
                    skipped.left_out["pages outside the article namespace"] += 1
                elif page.find("redirect") is not None or REDIRECT.match(text):
                    skipped.left_out["redirects"] += 1
                elif (page.findtext("revision/model") or "wikitext") != "wikitext":
                    skipped.left_out["pages that are not wikitext"] += 1
                elif DISAMBIGUATION.search(text):
                    skipped.left_out["disambiguation pages"] += 1
                else:
                    try:
                        body = to_text(text)
                    except MarkupError as error:
                        skipped.add_bad(str(error), f"{where}, {title}")
                        continue
                    if body:
                        yield f"{title}\n\n{body}"
                    else:
                        skipped.left_out["articles without a body"] += 1


def _parse_pages(block: Block, skipped: Skipped) -> Iterator[tuple[Any, str]]:
    """Pages of a block with their approximate places. A block that does not parse is read page by page, and bad pages
    are counted."""
    try:
        pages = list(ElementTree.fromstring(b"<pages>" + block.data + b"</pages>"))
    except ElementTree.ParseError:
        for match in re.finditer(rb"<page>.*?</page>", block.data, re.DOTALL):
            where = f"{block.path}, byte {block.offset + match.start()}"
            try:
                yield ElementTree.fromstring(match[0]), where
            except ElementTree.ParseError as error:
                skipped.add_bad("pages that are not XML or not UTF-8", f"{where}: {error}")
    else:
        for page in pages:
            yield page, f"{block.path}, from byte {block.offset}"


REDIRECT = re.compile(r"\s*#\s*redirect", re.IGNORECASE)
DISAMBIGUATION = re.compile(
    r"\{\{\s*+(?:disambig\w*|[\w ]+ disambiguation|hndis|geodis|numberdis|disambiguation page|dab)\s*[|}]",
    re.IGNORECASE,
)

_DROPPED_TAGS = {
    "ref", "references", "table", "gallery", "timeline", "math", "chem", "score", "graph", "imagemap", "hiero",
    "templatestyles", "section", "indicator", "syntaxhighlight", "source", "inputbox", "categorytree", "mapframe",
    "style", "script",
}  # fmt: skip
_LINE_TAGS = {"br", "hr", "p", "div", "li", "dd", "dt", "blockquote", "poem", "center", "ul", "ol", "dl"}
_HIDDEN_PREFIXES = {
    *("file", "image", "category", "media", "wikt", "wiktionary", "commons", "s", "q", "b", "n", "v", "m", "meta")
}
_LANGUAGE_PREFIX = re.compile(r"[a-z]{2,3}(-[a-z]+)*|simple")

# comments and references are removed before the parse: half of an article's markup, most of the parser's time
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_REFERENCE = re.compile(r"<ref\b[^<>]*/>|<ref\b[^<>]*>[^<]*(?:<(?!/?ref\b)[^<]*)*</ref\s*>", re.IGNORECASE)

_SWITCH = re.compile(r"__[A-Z]+__")
_STYLE = re.compile(r"'{2,5}")
_LIST_MARK = re.compile(r"^[*#:;]+[ \t]*", re.MULTILINE)
_EMPTY_BRACKETS = re.compile(r" ?[(\[][\s,;:–-]*[)\]]")
_CLOSE_BRACKET = re.compile(r"(?<![\s,;])[\s,;]+\)")
_LINES_WITHOUT_WORDS = re.compile(r"^[^\w\n\x02]+\n", re.MULTILINE)
_OPEN_BRACKET = re.compile(r"\((?:[\s,;]+)(?=\S)")
_SPACES = re.compile(r"[ \t]+")
_LINE_ENDS = re.compile(r" *\n *")
_BLANK_LINES = re.compile(r"\n{3,}")
_HEADING = "\x02"

MAX_PAGE_CHARACTERS = 4 << 20  # twice MediaWiki's limit for a page; the parser keeps some hundred bytes for each
# from each unclosed piece of markup the parser reads on to the end of the page, and then goes back: characters that it
# may read so (some seconds), and how many times the length of a long page
MAX_REREAD_CHARACTERS, MAX_REREADS = 10_000_000, 20

_PAIRS = (("{{", "}}"), ("[[", "]]"), ("{|", "|}"), ("<!--", "-->"))
_TAG = re.compile(r"<(/?)([a-zA-Z]++)(?![^<>]*+/>)")
_NEVER_CLOSED = {"br", "wbr", "hr", "meta", "link", "img", "li", "dt", "dd", "th", "td", "tr"}


class MarkupError(ValueError):
    """Error of a page that does not parse in bounded time; the message is the reason, equal for all such pages."""


def to_text(wikitext: str) -> str:
    """Readable text of a page; blank lines separate paragraphs and headings.

    Raises:
        MarkupError: the page is too large, or too much of its markup is never closed.
    """
    import mwparserfromhell
    from mwparserfromhell.parser import ParserError

    if len(wikitext) > MAX_PAGE_CHARACTERS:
        raise MarkupError(f"pages of more than {MAX_PAGE_CHARACTERS >> 20} Mi characters")
    wikitext = _REFERENCE.sub("", _without_comments(wikitext))
    check_markup(wikitext)
    parts: list[str] = []
    try:
        _render(mwparserfromhell.parse(wikitext, skip_style_tags=True), parts)
    except (ParserError, RecursionError):
        raise MarkupError("pages that cannot be parsed") from None
    text = "".join(parts)
    text = _SWITCH.sub("", _STYLE.sub("", text))
    text = _LIST_MARK.sub("", text)
    text = _OPEN_BRACKET.sub("(", _EMPTY_BRACKETS.sub("", text))
    text = _LINE_ENDS.sub("\n", _SPACES.sub(" ", _CLOSE_BRACKET.sub(")", text)))
    text = _LINES_WITHOUT_WORDS.sub("\n", text)
    return _BLANK_LINES.sub("\n\n", _without_empty_sections(text)).strip()


def _without_comments(wikitext: str) -> str:
    # up to the last end: an open beginning would be followed to the end of the page
    last = wikitext.rfind("-->") + len("-->")
    return _COMMENT.sub("", wikitext[:last]) + wikitext[last:] if last >= len("-->") else wikitext


def check_markup(wikitext: str) -> None:
    """Raise MarkupError for markup that leaves too much open to parse within seconds."""
    unclosed = sum(max(0, wikitext.count(opens) - wikitext.count(closes)) for opens, closes in _PAIRS)
    tags: Counter[str] = Counter()
    for ends, name in _TAG.findall(wikitext):
        tags[name.lower()] += -1 if ends else 1
    unclosed += sum(max(0, n) for name, n in tags.items() if name not in _NEVER_CLOSED)
    if unclosed * len(wikitext) > max(MAX_REREAD_CHARACTERS, MAX_REREADS * len(wikitext)):
        raise MarkupError("pages with too much markup that is never closed")


def _without_empty_sections(text: str) -> str:
    """Text without empty sections: headings followed by a heading of the same or a higher level."""
    head, *sections = re.split(f"{_HEADING}([1-6])", text)
    kept: list[str] = []
    above = 7  # level of the next section that stays; 7: none
    for level_text, section in zip(reversed(sections[::2]), reversed(sections[1::2]), strict=True):
        level = int(level_text)
        section = section.strip()
        _, _, body = section.partition("\n")
        if body.strip() or (above > level and above < 7):
            kept.append("\n\n" + section)
            above = level
    return head + "".join(reversed(kept))


def _render(tree: Any, out: list[str]) -> None:
    for node in tree.nodes:
        kind = type(node).__name__
        if kind == "Text":
            out.append(node.value)
        elif kind == "Wikilink":
            _render_link(node, out)
        elif kind == "Template":
            _render_template(node, out)
        elif kind == "Tag":
            _render_tag(node, out)
        elif kind == "Heading":
            out.append(f"\n{_HEADING}{node.level}")
            _render(node.title, out)
            out.append("\n")
        elif kind == "ExternalLink":
            if node.title is not None:
                _render(node.title, out)
            elif not node.brackets:
                out.append(str(node.url))
        elif kind == "HTMLEntity":
            try:
                out.append(node.normalize().replace("\xa0", " "))
            except (ValueError, KeyError):
                out.append(str(node))


def _render_link(node: Any, out: list[str]) -> None:
    title = str(node.title).strip()
    prefix, colon, _ = title.partition(":")
    prefix = prefix.strip().lower()
    if colon and prefix and (prefix in _HIDDEN_PREFIXES or _LANGUAGE_PREFIX.fullmatch(prefix)):
        return
    if node.text is not None:
        _render(node.text, out)
    else:
        out.append(html.unescape(title.lstrip(":")))


def _render_template(node: Any, out: list[str]) -> None:
    """Words of an inline template; nothing of another one."""
    name, colon, argument = str(node.name).strip().partition(":")  # {{formatnum:1234}} is a function of the parser
    made = template(name.lower().replace("_", " "))
    if made is None or (colon and name.lower() != "formatnum"):
        return
    if colon:
        nodes = [] if "{" in argument else [argument]  # an amount that another template computes
        out.append(made(nodes, {}))
        return
    texts: dict[str, str] = {}
    for parameter in node.params:
        parts: list[str] = []
        _render(parameter.value, parts)
        texts[str(parameter.name).strip()] = "".join(parts).strip()
    last = max((int(key) for key in texts if key.isdecimal() and len(key) < 3), default=0)
    out.append(made([texts.get(str(i), "") for i in range(1, last + 1)], texts))


def _render_tag(node: Any, out: list[str]) -> None:
    name = str(node.tag).strip().lower()
    if name in _DROPPED_TAGS:
        return
    if name == "nowiki":
        out.append(str(node.contents or ""))
        return
    if node.wiki_markup and name in ("li", "dd", "dt"):
        return  # the mark of a list item, whose text follows as a separate node
    if name in _LINE_TAGS:
        out.append("\n")
    if node.contents is not None and not node.self_closing:
        _render(node.contents, out)
        if name in _LINE_TAGS:
            out.append("\n")
