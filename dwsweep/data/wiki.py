"""``wikidump:`` (MediaWiki pages-articles XML) and ``wikiextractor:`` (its plain-text output)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from xml.etree import ElementTree

from dwsweep.data.source_files import find_files, open_stream
from dwsweep.data.source_items import (
    ITEM_BYTES,
    Block,
    Files,
    Item,
    Skipped,
    TooLarge,
    cut,
    decode,
    file_items,
    item_blocks,
)
from dwsweep.data.text_sources import field_of, json_records
from dwsweep.errors import InputError

_DOC = re.compile(rb"^<doc\b[^\n]*>[ \t]*\n", re.MULTILINE)
_DOC_END = b"</doc>"
_PAGE_END = b"</page>"


@dataclass(frozen=True)
class WikiExtractor(Files):
    """``wikiextractor:PATH``: ``<doc …>`` records (title, blank line, body), or its ``--json`` lines."""

    @classmethod
    def find(cls, pattern: str) -> WikiExtractor:
        return cls(tuple(find_files("wikiextractor", pattern)))

    def items(self) -> Iterator[Item]:
        return file_items(self.files, self._border)

    @cached_property
    def _border(self) -> bytes:
        with open_stream(self.files[0].path) as (stream, _):
            return b"\n" if stream.read(64).lstrip().startswith(b"{") else _DOC_END + b"\n"

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for block in item_blocks(item, skipped, self._border):
            # by the first file, unless this one begins as only the other form can
            first = block.data.lstrip()[:1]
            is_json = first != b"<" if self._border == b"\n" else first == b"{"
            for text, body in (self._json_texts if is_json else self._doc_texts)(block, skipped):
                if body.strip():
                    yield text
                else:
                    skipped.left_out["articles without a body"] += 1

    def _doc_texts(self, block: Block, skipped: Skipped) -> Iterator[tuple[str, str]]:
        """(text, its body) of each record."""
        n_found = at = 0
        while match := _DOC.search(block.data, at):
            stop = block.data.find(_DOC_END, match.end())
            if stop < 0:
                break
            n_found, at = n_found + 1, stop + len(_DOC_END)
            data = block.data[match.end() : stop].removesuffix(b"\n")
            text = decode(data, f"{block.path}, byte {block.offset + match.start()}", skipped)
            if text is not None:
                yield text, text.partition("\n")[2]
        n_open = len(re.findall(rb"^<doc\b", block.data, re.MULTILINE))
        if n_open > n_found:
            skipped.bad["<doc> without </doc>"] += n_open - n_found - 1
            skipped.add_bad("<doc> without </doc>", f"{block.path}, from byte {block.offset}")
        elif not n_found and block.data.strip():
            skipped.add_bad("no <doc> record", f"{block.path}, byte {block.offset}")

    def _json_texts(self, block: Block, skipped: Skipped) -> Iterator[tuple[str, str]]:
        for record, where in json_records(block, skipped):
            body = field_of(record, "text", where, skipped)
            if body is not None:
                yield f"{record['title']}\n\n{body}" if record.get("title") else body, body


@dataclass(frozen=True)
class WikiDump(Files):
    """``wikidump:PATH``: a pages-articles XML export, plain or compressed, streamed page by page."""

    @classmethod
    def find(cls, pattern: str) -> WikiDump:
        return cls(tuple(find_files("wikidump", pattern)))

    @property
    def parallel(self) -> bool:
        return self.total_bytes > 1 << 18  # of markup, usually compressed: parsing it is slow

    def items(self) -> Iterator[Item]:
        for file in self.files:
            yield from self._pages(file.path)

    def _pages(self, path: str) -> Iterator[Item]:
        """Runs of whole <page> elements. Their text is escaped XML, so the tags cannot occur inside."""
        with open_stream(path) as (stream, raw):
            head = stream.read(ITEM_BYTES)
            if b"<mediawiki" not in head[:4096]:
                raise InputError(
                    f"data.source: {path}; does not begin with <mediawiki>; a pages-articles XML export, "
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
        from dwsweep.data import wikitext

        for block in item_blocks(item, skipped):
            for page, where in _parse_pages(block, skipped):
                title, text = page.findtext("title") or "", page.findtext("revision/text") or ""
                if (page.findtext("ns") or "0").strip() != "0":
                    skipped.left_out["pages outside the article namespace"] += 1
                elif page.find("redirect") is not None or wikitext.REDIRECT.match(text):
                    skipped.left_out["redirects"] += 1
                elif (page.findtext("revision/model") or "wikitext") != "wikitext":
                    skipped.left_out["pages that are not wikitext"] += 1
                elif wikitext.DISAMBIGUATION.search(text):
                    skipped.left_out["disambiguation pages"] += 1
                else:
                    try:
                        body = wikitext.to_text(text)
                    except wikitext.MarkupError as error:
                        skipped.add_bad(str(error), f"{where}, {title}")
                        continue
                    if body:
                        yield f"{title}\n\n{body}"
                    else:
                        skipped.left_out["articles without a body"] += 1


def _parse_pages(block: Block, skipped: Skipped) -> Iterator[tuple[Any, str]]:
    """The pages of a block, and roughly where each is; when it does not parse as a whole, page by page, and the bad
    ones are counted."""
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
