"""Wikipedia source ``wikidump:``: MediaWiki pages-articles XML.

An article is its title and its visible text, as mwparserfromhell's ``strip_code`` gives it: prose, headings, link texts
and list items. Left out: pages outside the article namespace, redirects, and of an article its templates, tables,
references, files, categories, links to other languages and mathematics, as in the data set ``wikipedia`` of TensorFlow
Datasets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from dwsweep.data.files import open_stream
from dwsweep.data.records import ITEM_BYTES, DocumentSource, Item, RecordBlock, Skipped, TooLarge, cut, item_blocks
from dwsweep.errors import InputError

VERSION = 3  # raise it if the same page gives another text: a store of the older text is not reused

_PAGE_END = b"</page>"


@dataclass(frozen=True)
class WikiDump(DocumentSource):
    """Wikipedia dump, ``wikidump:PATH``: a pages-articles XML export, plain or compressed, streamed page by page."""

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
                    yield Item([piece], at - seen)
                    seen = at
                elif piece.data.endswith(_PAGE_END) and (start := piece.data.find(b"<page>")) >= 0:
                    yield Item([RecordBlock(path, piece.offset + start, piece.data[start:])], at - seen)
                    seen = at
            if not isinstance(piece, RecordBlock) or b"</mediawiki>" not in piece.data:
                raise InputError(
                    f"data.source: {path}; truncated: it ends without </mediawiki>; copy or download it again"
                )

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for block in item_blocks(item, skipped):
            for page, where in _parse_pages(block, skipped):
                title, text = page.findtext("title") or "", page.findtext("revision/text") or ""
                if (page.findtext("ns") or "0").strip() != "0":
                    skipped.left_out["pages outside the article namespace"] += 1
                elif _REDIRECT.match(text):
                    skipped.left_out["redirects"] += 1
                elif (page.findtext("revision/model") or "wikitext") != "wikitext":
                    skipped.left_out["pages that are not wikitext"] += 1
                elif (body := to_text(text)) is None:
                    skipped.add_bad("pages that cannot be parsed", f"{where}, {title}")
                elif body:
                    yield f"{title}\n\n{body}"
                else:
                    skipped.left_out["articles without a body"] += 1


def _parse_pages(block: RecordBlock, skipped: Skipped) -> Iterator[tuple[Any, str]]:
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


_REDIRECT = re.compile(r"\s*#\s*redirect", re.IGNORECASE)
# taken out before the parse, most of whose time references take
_HIDDEN = re.compile(
    r"(?i:<ref\b[^<>]*/>|<ref\b[^<>]*>[^<]*(?:<(?!/?ref\b)[^<]*)*</ref\s*>)|'{2,5}|__[A-Z]+__",
)
_PAIRS = (("{{", "}}"), ("[[", "]]"), ("{|", "|}"), ("<!--", "-->"))
_LINE_BREAK = re.compile(r"<br\b[^<>]*>", re.IGNORECASE)
_HIDDEN_LINK = re.compile(r"\s*(?:file|image|media|category)\s*:", re.IGNORECASE)
_OTHER_LANGUAGE = re.compile(r"[a-z-]{2,12}:")
_EMPTY_BRACKETS = re.compile(r" ?\([\s,;:]*\)")


def to_text(wikitext: str) -> str | None:
    """Readable text of a page; blank lines separate paragraphs and headings. None: the parser cannot take
    it."""
    import mwparserfromhell
    from mwparserfromhell.parser import ParserError

    wikitext = _LINE_BREAK.sub(" ", _HIDDEN.sub("", wikitext))
    if _unclosed(wikitext) > max(20, 10_000_000 / len(wikitext or " ")):
        return None
    try:
        tree = mwparserfromhell.parse(wikitext, skip_style_tags=True)
        _take_out(tree)
        text = tree.strip_code().replace("\xa0", " ")
    except (ParserError, RecursionError, ValueError, KeyError):  # the last two: entities that name no character
        return None
    text = re.sub(r"[ \t]+", " ", _EMPTY_BRACKETS.sub("", text))
    text = re.sub(r" ?\n ?", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _unclosed(wikitext: str) -> int:
    """Pieces of markup that are never closed: from each the parser reads on to the end of the page, and goes back."""
    pairs = sum(max(0, wikitext.count(opens) - wikitext.count(closes)) for opens, closes in _PAIRS)
    return pairs + max(0, wikitext.count("<") - 2 * wikitext.count("</") - wikitext.count("/>"))


def _take_out(tree: Any) -> None:
    """Remove the tables, references, files and categories of a parse tree, wherever they are nested."""
    tree.nodes = [node for node in tree.nodes if not _is_hidden(node)]
    for node in tree.nodes:
        if type(node).__name__ != "Template":  # dropped whole
            for inner in node.__children__():
                _take_out(inner)


def _is_hidden(node: Any) -> bool:
    if type(node).__name__ == "Wikilink":
        title = str(node.title)
        return bool(_HIDDEN_LINK.match(title) or (node.text is None and _OTHER_LANGUAGE.match(title)))
    return type(node).__name__ == "Tag" and str(node.tag).strip().lower() in ("ref", "references", "table")
