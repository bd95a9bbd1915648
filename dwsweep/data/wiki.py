"""``wikidump:`` (MediaWiki pages-articles XML) and ``wikiextractor:`` (its plain-text output)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from dwsweep.data.files import find_files, open_stream
from dwsweep.data.records import Block, Files, decode, field_of, file_items, item_blocks
from dwsweep.data.sources import ITEM_BYTES, Item, Skipped
from dwsweep.errors import InputError

_DOC = re.compile(rb"<doc\b[^\n]*>[ \t]*\n(.*?)\n?</doc>", re.DOTALL)


@dataclass(frozen=True)
class WikiExtractor(Files):
    """``wikiextractor:PATH``: ``<doc …>`` records (title, blank line, body), or its ``--json`` lines."""

    @classmethod
    def find(cls, pattern: str) -> WikiExtractor:
        return cls(tuple(find_files("wikiextractor", pattern)))

    def items(self) -> Iterator[Item]:
        return file_items(self.files, b"</doc>\n" if not self._is_json() else b"\n")

    def _is_json(self) -> bool:
        with open_stream(self.files[0].path) as (stream, _):
            return stream.read(64).lstrip().startswith(b"{")

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        for block in item_blocks(item):
            if block.data.lstrip()[:1] == b"{":
                yield from self._json_documents(block, skipped)
                continue
            n_found = 0
            for match in _DOC.finditer(block.data):
                n_found += 1
                text = decode(match[1], f"{block.path}, byte {block.offset + match.start()}", skipped)
                if text is not None:
                    _, _, body = text.partition("\n")
                    if body.strip():
                        yield text
                    else:
                        skipped.left_out["articles without a body"] += 1
            n_open = len(re.findall(rb"^<doc\b", block.data, re.MULTILINE))
            if n_open > n_found:
                skipped.bad["<doc> without </doc>"] += n_open - n_found - 1
                skipped.add_bad("<doc> without </doc>", f"{block.path}, from byte {block.offset}")
            elif not n_found and block.data.strip():
                skipped.add_bad("no <doc> record", f"{block.path}, byte {block.offset}")

    def _json_documents(self, block: Block, skipped: Skipped) -> Iterator[str]:
        for line in filter(bytes.strip, block.data.split(b"\n")):
            try:
                record = json.loads(line)
            except ValueError:
                skipped.add_bad("not a JSON object", f"{block.path}, from byte {block.offset}")
                continue
            text = field_of(record, "text", block.path, skipped)
            if text is not None and text.strip():
                yield f"{record['title']}\n\n{text}" if record.get("title") else text
            elif text is not None:
                skipped.left_out["articles without a body"] += 1


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
            rest, offset, seen = head, 0, 0
            while True:
                start, stop = rest.find(b"<page>"), rest.rfind(b"</page>")
                if 0 <= start < stop:
                    stop += len(b"</page>")
                    at = raw.tell()
                    yield Item(Block(path, offset + start, rest[start:stop]), at - seen)
                    rest, offset, seen = rest[stop:], offset + stop, at
                block = stream.read(ITEM_BYTES)
                if not block:
                    break
                rest += block
            if b"</mediawiki>" not in rest:
                raise InputError(
                    f"data.source: {path}; truncated: it ends without </mediawiki>; copy or download it again"
                )

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        from dwsweep.data import wikitext

        block: Block = item.payload
        for page in _parse_pages(block, skipped):
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
                body = wikitext.to_text(text)
                if body:
                    yield f"{title}\n\n{body}"
                else:
                    skipped.left_out["articles without a body"] += 1


def _parse_pages(block: Block, skipped: Skipped) -> list[Any]:
    """The pages of a block; when it does not parse as a whole, page by page, and the bad ones are counted."""
    try:
        return list(ElementTree.fromstring(b"<pages>" + block.data + b"</pages>"))
    except ElementTree.ParseError:
        pages = []
        for match in re.finditer(rb"<page>.*?</page>", block.data, re.DOTALL):
            try:
                pages.append(ElementTree.fromstring(match[0]))
            except ElementTree.ParseError as error:
                where = f"{block.path}, byte {block.offset + match.start()}: {error}"
                skipped.add_bad("pages that are not XML or not UTF-8", where)
        return pages
