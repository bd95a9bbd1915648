"""MediaWiki exports: which pages become documents, and what is left of their markup."""

from __future__ import annotations

import bz2
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from dwsweep.data import records, wiki
from dwsweep.data.records import Skipped
from dwsweep.data.sources import open_source
from dwsweep.data.wiki import DISAMBIGUATION, MarkupError, to_text
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

LIGHTHOUSE_TEXT = """The Harbour Light (Feu du port) is a lighthouse on the cape. It is 31 m high – so.

History

Built in 1911.

First keeper
His son
A step

See also

Category:Towers"""


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
    page("Light", "'''Light''' may refer to:\n* [[Harbour Light]]\n{{disambiguation}}"),
    page("Style", "body {}", model="css"),
    page("Only templates", "{{stub}}"),
    page("Tags", "A page may say </page> & <page> in its <nowiki>[[text]]</nowiki>."),
)


def read(source: str) -> tuple[list[str], Skipped]:
    opened, skipped = open_source(source), Skipped()
    return [text for item in opened.items() for text in opened.documents(item, skipped)], skipped


@pytest.mark.parametrize("item_bytes", [1 << 20, 61])
@pytest.mark.parametrize("packed", [False, True])
def test_dump(tmp_path: Path, packed: bool, item_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiki, "ITEM_BYTES", item_bytes)  # 61: pages are cut by the blocks that are read
    data = export(*PAGES)
    path = tmp_path / ("dump.xml.bz2" if packed else "dump.xml")
    path.write_bytes(bz2.compress(data) if packed else data)
    texts, skipped = read(f"wikidump:{path}")
    assert texts == [
        f"Harbour Light\n\n{LIGHTHOUSE_TEXT}",
        "Tags\n\nA page may say </page> & <page> in its [[text]].",
    ]
    assert not skipped.bad
    assert skipped.left_out == {
        "redirects": 2,
        "pages outside the article namespace": 1,
        "disambiguation pages": 1,
        "pages that are not wikitext": 1,
        "articles without a body": 1,
    }


def test_truncated_dumps(tmp_path: Path) -> None:
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


BRACES = "{{" * 742 + "}}" * 742
UNCLOSED = "a <ref name=" * 2000
NESTED_REASON = "pages with markup nested more than 100 deep"
UNCLOSED_REASON = "pages with too much markup that is never closed"


def test_a_page_that_the_parser_cannot_take_is_skipped(tmp_path: Path) -> None:
    good = [page(f"Good {i}", f"tea {i}") for i in range(2)]
    (tmp_path / "dump.xml").write_bytes(export(good[0], page("Bad", BRACES), page("Worse", UNCLOSED), good[1]))
    texts, skipped = read(f"wikidump:{tmp_path}/dump.xml")
    assert texts == ["Good 0\n\ntea 0", "Good 1\n\ntea 1"]
    assert skipped.bad == {NESTED_REASON: 1, UNCLOSED_REASON: 1}
    assert str(skipped.first_bad).startswith(f"{NESTED_REASON}: {tmp_path}/dump.xml, from byte")
    assert str(skipped.first_bad).endswith(", Bad")


def test_a_page_without_end_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiki, "ITEM_BYTES", 1000)
    monkeypatch.setattr(records, "MAX_DOCUMENT_BYTES", 5000)
    data = export(page("Good", "tea"), page("Large", "x" * 20_000), page("Last", "tea too"))
    (tmp_path / "dump.xml").write_bytes(data)
    texts, skipped = read(f"wikidump:{tmp_path}/dump.xml")
    assert texts == ["Good\n\ntea", "Last\n\ntea too"] and skipped.bad.total() == 1


@pytest.mark.parametrize(
    ("wikitext", "reason"),
    [
        (BRACES, NESTED_REASON),
        ("[[File:a|{{b|" * 60 + "}}]]" * 60, NESTED_REASON),
        ("<div><b>" * 60 + "</b></div>" * 60, NESTED_REASON),
        (UNCLOSED, UNCLOSED_REASON),
        ("{|\n|-\n|a\n" * 1000, UNCLOSED_REASON),
        ("{{a|x=" * 1000, UNCLOSED_REASON),
        ("<!-- " * 100_000, UNCLOSED_REASON),
        ("x" * ((4 << 20) + 1), "pages of more than 4 Mi characters"),
    ],
    ids=range(8),
)
def test_markup_out_of_bounds(wikitext: str, reason: str) -> None:
    with pytest.raises(MarkupError) as error:
        to_text(wikitext)
    assert str(error.value) == reason


@pytest.mark.parametrize(
    ("wikitext", "n_characters"),
    [
        ("{{nowrap|" * 20 + "deep" + "}}" * 20, 4),
        ("<small>a " * 20 + "{{x|" * 20 + "b" * 10_000, None),  # as careless as articles get
        ("<br> a <li> b " * 5000, None),
        ("<div>a</div> {{b|[[c]]}} " * 2000, None),
        ("<!-- x -->" * 100_000 + "<!-- rest", 9),
        ("x" + "," * 300_000 + "y", 300_002),
        ("{{" + " " * 100_000 + "x", 4),
    ],
    ids=range(7),
)
def test_markup_within_bounds_takes_one_pass(wikitext: str, n_characters: int | None) -> None:
    assert DISAMBIGUATION.search(wikitext) is None
    text = to_text(wikitext)
    assert len(text) == n_characters if n_characters else len(text) > 1000


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("{{chem|H|2|O}} and {{convert|5|km|mi|abbr=on}}", "H2O and 5 km"),
        ("a{{nbsp}}b {{ndash}} c {{circa|1900}}", "a b – c c. 1900"),
        ("[[Image:a.png|thumb|x [[y]] z]]before [[word]]s after", "before words after"),
        ("x<math>a^2</math>y<br/>z<sup>2</sup>", "xy\nz2"),
        ("<ref>one</ref>kept<ref name=b/> text<ref>\n{{cite}} <i>x</i></ref>.", "kept text."),
        ("Born ({{birth date|1900|1|1}}, ) and ( ; x).", "Born and (x)."),
        ("{{unclosed [[link", "{{unclosed [[link"),
        ("== A ==\n== B ==\ntext\n=== C ===\n", "B\n\ntext"),
        ("== A ==\n=== B ===\ntext", "A\n\nB\n\ntext"),
        ("<gallery>\na.jpg|x\n</gallery>text", "text"),
        ("", ""),
    ],
)
def test_markup(wikitext: str, text: str) -> None:
    assert to_text(wikitext) == text
