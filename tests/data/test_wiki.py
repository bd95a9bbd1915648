"""MediaWiki exports: which pages become documents, and what is left of their markup."""

from __future__ import annotations

import bz2
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from corpus_tools import read

from dwsweep.data import records, wiki
from dwsweep.data.sources import open_source
from dwsweep.data.wiki import to_text
from dwsweep.errors import InputError

LIGHTHOUSE = """{{Infobox building|name=Harbour light|height={{convert|31|m|ft}}}}
[[File:Light.jpg|thumb|The tower in [[1911]] & later|alt=a tower]]
The '''Harbour Light''' ({{IPA|x}}; {{lang-fr|Feu du port}}) is a [[lighthouse]] on the [[North Cape|cape]].<ref
name="a">A book, {{cite|Lights}}</ref> It is {{convert|31|m|ft}} high<ref name="a" /> &ndash; [http://x.org so].
<!-- a remark -->
== History ==
{| class="wikitable"
! Year !! Keeper
|-
| 1911 || Somebody
|}
Built in ''1911''{{citation needed|date=May 2011}}.

* First keeper
** His son
# A step

== References ==
{{reflist}}
=== Notes ===
<references/>
== See also ==
* [[:Category:Towers]]
[[Category:Towers]]
[[fr:Feu]]
__NOTOC__
"""

LIGHTHOUSE_TEXT = """The Harbour Light is a lighthouse on the cape. It is high – so.

History

Built in 1911.

First keeper
His son
A step

References

Notes

See also
:Category:Towers"""


def page(title: str, text: str, ns: int = 0, extra: str = "", model: str = "wikitext") -> str:
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n    <ns>{ns}</ns>\n    <id>1</id>\n{extra}"
        f"    <revision>\n      <id>2</id>\n      <model>{model}</model>\n"
        f'      <text xml:space="preserve">{escape(text)}</text>\n    </revision>\n  </page>\n'
    )


def export(*pages: str) -> bytes:
    head = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="en">\n  <siteinfo/>\n'
    return (head + "".join(pages) + "</mediawiki>\n").encode()


PAGES = (
    page("Harbour Light", LIGHTHOUSE),
    page("Harbor Light", "#REDIRECT [[Harbour Light]]", extra='    <redirect title="Harbour Light" />\n'),
    page("Old redirect", " #redirect [[Harbour Light]]"),
    page("Talk:Harbour Light", "What about <page> tags & </page>?", ns=1),
    page("Style", "body {}", model="css"),
    page("Only templates", "{{stub}}"),
    page("Tags", "A page may say </page> & <page> in its <nowiki>[[text]]</nowiki>."),
)


@pytest.mark.parametrize(("packed", "item_bytes"), [(False, 1 << 20), (True, 61)])
def test_a_dump_gives_its_articles_as_text(
    tmp_path: Path, packed: bool, item_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiki, "ITEM_BYTES", item_bytes)  # 61: pages are cut by the blocks that are read
    data = export(*PAGES)
    path = tmp_path / ("dump.xml.bz2" if packed else "dump.xml")
    path.write_bytes(bz2.compress(data) if packed else data)
    texts, skipped = read(f"wikidump:{path}")
    assert texts == [f"Harbour Light\n\n{LIGHTHOUSE_TEXT}", "Tags\n\nA page may say </page> & <page> in its [[text]]."]
    assert not skipped.bad
    assert skipped.left_out == {
        "redirects": 2,
        "pages outside the article namespace": 1,
        "pages that are not wikitext": 1,
        "articles without a body": 1,
    }


def test_a_truncated_dump_is_refused(tmp_path: Path) -> None:
    data = export(*PAGES)
    (tmp_path / "cut.xml").write_bytes(data[:-300])
    with pytest.raises(InputError, match=r"cut.xml; truncated: it ends without </mediawiki>"):
        read(f"wikidump:{tmp_path}/cut.xml")
    (tmp_path / "cut.xml.bz2").write_bytes(bz2.compress(data)[:-40])
    with pytest.raises(InputError, match=r"cut.xml.bz2; truncated or damaged bzip2"):
        read(f"wikidump:{tmp_path}/cut.xml.bz2")
    (tmp_path / "other.xml").write_bytes(b"<html></html>")
    with pytest.raises(InputError, match="does not begin with <mediawiki>"):
        read(f"wikidump:{tmp_path}/other.xml")


def test_a_page_that_is_not_utf8_is_counted(tmp_path: Path) -> None:
    data = export(page("Bad", "caf\u00e9 au lait"), page("Good", "tea")).replace("\u00e9".encode(), b"\xe9")
    (tmp_path / "dump.xml").write_bytes(data)
    texts, skipped = read(f"wikidump:{tmp_path}/dump.xml")
    assert texts == ["Good\n\ntea"]
    assert skipped.bad == {"pages that are not XML or not UTF-8": 1} and "byte" in str(skipped.first_bad)


def test_a_page_that_is_too_large_or_that_the_parser_cannot_take_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiki, "ITEM_BYTES", 1000)
    monkeypatch.setattr(records, "MAX_DOCUMENT_BYTES", 600_000)
    cannot = ["{{" * 742 + "}}" * 742, "a <ref name=" * 2000, "<!-- " * 50_000, "{|\n|a\n" * 2000]
    bad = [page(f"Bad {k}", wikitext) for k, wikitext in enumerate(cannot)]
    data = export(*bad, page("Good", "tea"), page("Large", "x" * 700_000), page("Last", "tea too"))
    (tmp_path / "dump.xml").write_bytes(data)
    texts, skipped = read(f"wikidump:{tmp_path}/dump.xml")
    assert texts == ["Good\n\ntea", "Last\n\ntea too"]
    assert skipped.bad.pop("pages that cannot be parsed") == 4 and skipped.bad.total() == 1
    assert str(skipped.first_bad).endswith(", Bad 0")


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("[[Image:a.png|thumb|x [[y]] z]]before [[word]]s after", "before words after"),
        ("x<math>a^2</math>y<br/>z<sup>2</sup>", "xy z2"),
        ("<ref>one</ref>kept<ref name=b/> text<ref>\n{{cite}} <i>x</i></ref>.", "kept text."),
        ("Born ({{IPA|x}}, ) in 2&nbsp;houses, {{convert|5|km|mi}} away.", "Born in 2 houses, away."),
        ("{{unclosed [[link", "{{unclosed [[link"),
        ("{|\n|a\n{|\n|b\n|}\n|}\ntext <div>\n{|\n|c\n|}\n</div>", "text"),
        ("", ""),
    ],
)
def test_markup_leaves_the_words(wikitext: str, text: str) -> None:
    assert to_text(wikitext) == text


def test_a_store_of_text_made_by_other_rules_is_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dump.xml").write_bytes(export(*PAGES))
    before = open_source(f"wikidump:{tmp_path}/dump.xml").identity()
    monkeypatch.setattr(wiki, "VERSION", wiki.VERSION + 1)
    assert open_source(f"wikidump:{tmp_path}/dump.xml").identity() != before
