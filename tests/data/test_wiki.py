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
def test_a_dump_gives_its_articles_as_text(
    tmp_path: Path, packed: bool, item_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
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


UNCLOSED = "a <ref name=" * 2000
UNCLOSED_REASON = "pages with too much markup that is never closed"


def test_a_page_that_the_parser_cannot_take_is_skipped(tmp_path: Path) -> None:
    good = [page(f"Good {i}", f"tea {i}") for i in range(2)]
    (tmp_path / "dump.xml").write_bytes(export(good[0], page("Bad", UNCLOSED), good[1]))
    texts, skipped = read(f"wikidump:{tmp_path}/dump.xml")
    assert texts == ["Good 0\n\ntea 0", "Good 1\n\ntea 1"]
    assert skipped.bad == {UNCLOSED_REASON: 1}
    assert str(skipped.first_bad).startswith(f"{UNCLOSED_REASON}: {tmp_path}/dump.xml, from byte")
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
        ("{{" * 742 + "}}" * 742, "pages that cannot be parsed"),
        (UNCLOSED, UNCLOSED_REASON),
        ("{|\n|-\n|a\n" * 2000, UNCLOSED_REASON),
        ("{{a|x=" * 2000, UNCLOSED_REASON),
        ("<!-- " * 100_000, UNCLOSED_REASON),
        ("<b>x " * 5000, UNCLOSED_REASON),
        ("x" * ((4 << 20) + 1), "pages of more than 4 Mi characters"),
    ],
    ids=range(7),
)
def test_markup_out_of_bounds_is_refused_with_its_reason(wikitext: str, reason: str) -> None:
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
def test_markup_within_bounds_is_read(wikitext: str, n_characters: int | None) -> None:
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
        ("Born ({{IPA|x}}, ) and ( ; x).", "Born and (x)."),
        ("{{unclosed [[link", "{{unclosed [[link"),
        ("== A ==\n== B ==\ntext\n=== C ===\n", "B\n\ntext"),
        ("== A ==\n=== B ===\ntext", "A\n\nB\n\ntext"),
        ("<gallery>\na.jpg|x\n</gallery>text", "text"),
        ("", ""),
    ],
)
def test_markup_leaves_the_words(wikitext: str, text: str) -> None:
    assert to_text(wikitext) == text


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("a town with {{formatnum:12345}} people", "a town with 12,345 people"),
        ("{{formatnum: 9.5 }} or {{formatnum:1234567.25}}", "9.5 or 1,234,567.25"),
        ("a {{convert|5|to|10|km|mi|abbr=on}} walk", "a 5 to 10 km walk"),
        ("{{cvt|2413|ft|0}}, {{convert|22|e6acre|km2}}", "2,413 ft, 22 million acre"),
        ("{{convert|3|ft|6|in|m}} by {{convert|4|x|6|m|ft}}", "3 ft 6 in by 4 × 6 m"),
        ("{{convert|120|sqmi|km2|abbr=on|sp=us}} at {{convert|20|C|F}}", "120 sq mi at 20 °C"),
        ("{{convert|31|m|ft|0}} and {{convert|1/2|mi}}", "31 m and 1/2 mi"),
        ("born {{birth date and age|1950|4|2}}, began {{start date|1911|5}}", "born April 2, 1950, began May 1911"),
        ("died {{death date|1990|12|31|1920|1|5|df=yes}} in {{end date|1990}}", "died 31 December 1990 in 1990"),
        ("{{birth-date|4 May 1900}}, {{dts|4 May 1900}}", "4 May 1900, 4 May 1900"),
        ("{{frac|3}}, {{frac|1|2}}, {{frac|2|1|2}}, {{sfrac|n|4}}", "1/3, 1/2, 2 1/2, n/4"),
        ("{{As of|2014}} and {{as of|2014|5|lc=y}}", "As of 2014 and as of May 2014"),
        ("{{as of|2014|5|3|df=US}}; {{as of|1999|since=y|lc=y}}", "As of May 3, 2014; since 1999"),
        ("{{as of|2014|alt=in that year}}", "in that year"),
        ("CO{{sub|2}} and 10{{sup|6}}", "CO2 and 106"),
        ("{{nihongo|warm wind|暖風|danpū|so|x}} and {{nihongo|''kata''}}", "warm wind (暖風, danpū, so) and kata"),
        ("He said:\n{{blockquote|text=No more.}}\nand {{quote|Go|author=X}}", "He said:\n\nNo more.\n\nand\nGo"),
        ("{{HMS|Heron|22}}, {{USS|Finch|CV-1|6}}, {{USS|Finch||2}}", "HMS Heron (22), USS Finch, Finch"),
        ("{{ship|SS|Wren}} of the {{sclass-|Bird|tug}}s", "SS Wren of the Bird-class tugs"),
        ("{{flagicon|France}} {{flag|France}} won", "France won"),
        ("{{circa|1900|1910}}, {{floruit|1200}}, {{reign|1558|1603}}", "c. 1900 – c. 1910, fl. 1200, r. 1558–1603"),
        ("{{val|1.25|0.5|e=3|u=m}}, {{val|1.5|(7)}}, 3{{e|-20}}", "1.25 ± 0.5 × 10^3 m, 1.5(7), 3 × 10^-20"),
        ("B{{music|flat}}, the {{ordinal|22}} and {{ordinal|112}}", "B♭, the 22nd and 112th"),
        ("{{US$|5}} or {{GBP|1,000}}, {{gaps|12|345}}", "US$5 or £1,000, 12345"),
        ("{{convert}} {{frac}} {{as of}} {{birth date}} {{nihongo}} {{convert|x}}", "As of x"),
        ("{{unknown|text}} {{formatnum:{{inflation|US|5}}}} {{e:x}}", ""),
    ],
)
def test_the_words_of_a_template_stay_in_their_sentence(wikitext: str, text: str) -> None:
    assert to_text(wikitext) == text


def test_a_store_of_text_made_by_other_rules_is_not_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dump.xml").write_bytes(export(*PAGES))
    before = open_source(f"wikidump:{tmp_path}/dump.xml").identity()
    monkeypatch.setattr(wiki, "VERSION", wiki.VERSION + 1)
    assert open_source(f"wikidump:{tmp_path}/dump.xml").identity() != before
