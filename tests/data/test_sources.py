"""Each form of source gives its texts, and each broken one a clear line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import sweep_bucket
from corpus_tools import read
from sentences import says

from dwsweep import paths
from dwsweep.data import records, sources
from dwsweep.data.records import Skipped
from dwsweep.data.sources import open_source
from dwsweep.errors import InputError


def zstd(data: bytes) -> bytes:
    import zstandard

    # two frames, as `cat a.zst b.zst` makes
    return b"".join(zstandard.ZstdCompressor().compress(part) for part in (data[:50], data[50:]))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}

LINES = b"".join(json.dumps({"id": i, "text": f"Article {i} – ünï.\n\nBody."}).encode() + b"\n" for i in range(30))
TEXTS = [f"Article {i} – ünï.\n\nBody." for i in range(30)]


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("large", [False, True])
def test_jsonl_in_every_compression(tmp_path: Path, suffix: str, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if large:  # streamed in blocks that cut inside lines
        monkeypatch.setattr(records, "ITEM_BYTES", 37)
    (tmp_path / f"a.jsonl{suffix}").write_bytes(PACKERS[suffix](LINES))
    texts, skipped = read(f"jsonl:{tmp_path}/*.jsonl*")
    assert texts == TEXTS and not skipped.bad


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_truncated_file_is_refused_and_a_misnamed_one_is_read(tmp_path: Path, suffix: str) -> None:
    packed = PACKERS[suffix](LINES)
    (tmp_path / f"cut.jsonl{suffix}").write_bytes(packed[:-7])
    with pytest.raises(InputError, match=rf"cut.jsonl\{suffix}; truncated or damaged"):
        read(f"jsonl:{tmp_path}/cut.jsonl{suffix}")
    for name, content in ((f"plain.jsonl{suffix}", LINES), ("packed.jsonl", packed)):
        (tmp_path / name).write_bytes(content)
        assert read(f"jsonl:{tmp_path}/{name}")[0] == TEXTS


def test_jsonl_bad_lines_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    deep = b'{"text": "x", "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    bad = b'{"text": "cut\n[1, 2]\n{"body_text": "x", "id": 3}\n{"text": "\xff\xfe"}\n\n{"text": 5}\n' + deep
    (tmp_path / "a.jsonl").write_bytes(LINES + bad)
    texts, skipped = read(f"jsonl:{tmp_path}/a.jsonl")
    assert texts == TEXTS and skipped.bad.total() == 6
    assert skipped.bad["not a JSON object"] == 3 and skipped.bad["invalid UTF-8"] == 1
    assert skipped.first_bad == f"not a JSON object: {tmp_path}/a.jsonl, byte {len(LINES)}"


def test_a_record_without_end_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours stay, and memory is bounded by the largest document that is allowed, not by what is unpacked."""
    import tracemalloc

    monkeypatch.setattr(records, "MAX_DOCUMENT_BYTES", 1 << 20)
    monkeypatch.setattr(records, "ITEM_BYTES", 1 << 16)
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wb") as file:
        file.write(LINES + b'{"text": "')
        for _ in range(20):
            file.write(b"a" * (1 << 20))
        file.write(b'"}\n' + LINES)
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    try:
        texts, skipped = read(f"jsonl:{path}")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert texts == TEXTS * 2 and skipped.bad == {"larger than 1 MiB": 1}
    assert f"from byte {len(LINES)}" in str(skipped.first_bad)
    assert peak < 4 << 20


def test_the_named_text_field_is_read_and_those_found_are_named_in_printable_words(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "no", "body_text": "yes"}\n')
    assert read(f"jsonl:{tmp_path}/a.jsonl", "body_text")[0] == ["yes"]
    _, skipped = read(f"jsonl:{tmp_path}/a.jsonl", "prose")
    assert says(skipped.bad, "data: no text field") and "fields found: text, body_text" in str(skipped.first_bad)
    (tmp_path / "a.jsonl").write_text(json.dumps({"\x1b[31m" + "key" * 1000: 1}) + "\n")
    first = str(read(f"jsonl:{tmp_path}/a.jsonl")[1].first_bad)
    assert r"\x1b[31mkey" in first and "\x1b" not in first and len(first) < 400


def test_each_of_several_text_files_is_an_article_unless_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ba":
        (tmp_path / f"{name}.txt").write_text(f"\ufeffArticle {name}\n\nwith a blank line\n", "utf-8")
    (tmp_path / ".hidden").write_text("no")
    expected = [f"Article {name}\n\nwith a blank line\n" for name in "ab"]
    assert read(f"text:{tmp_path}")[0] == read(f"text:{tmp_path}/*.txt")[0] == expected
    monkeypatch.setattr(records, "MAX_DOCUMENT_BYTES", 1000)
    for name, n in (("a", 1000), ("b", 1001)):
        (tmp_path / f"{name}.txt").write_text(name * n)
    texts, skipped = read(f"text:{tmp_path}/*.txt")
    assert texts == ["a" * 1000] and skipped.bad.total() == 1


@pytest.mark.parametrize("block", [1 << 20, 23])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_single_file_of_articles(tmp_path: Path, block: int, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if block < 100:
        monkeypatch.setattr(records, "ITEM_BYTES", block)
    articles = [f"Title {i}{end}body line é" for i in range(20)]
    (tmp_path / "a.txt").write_bytes((f"{end}{end}".join(articles) + end).encode())
    texts = [t.strip() for t in read(f"text:{tmp_path}/a.txt")[0]]
    assert texts == [a.replace("\r\n", "\n") for a in articles]


def test_several_large_text_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "ARTICLE_BYTES", 10)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("one article\n\nanother one\n")
    with pytest.raises(InputError, match=r"a.txt has 25 bytes, .* give one file"):
        read(f"text:{tmp_path}/*.txt")


def test_parquet_gives_its_text_column_and_says_which_row_or_column_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(31), "text": [*TEXTS, None]}), path, row_group_size=16)
    monkeypatch.setattr(sources, "_PARQUET_ROWS", 4)
    texts, skipped = read(f"parquet:{path}")
    assert texts == TEXTS and skipped.bad == {"null text": 1}
    assert str(skipped.first_bad).endswith("a.parquet, row group 1, row 14")
    with pytest.raises(
        InputError, match=r"data.text_field: prose; no such string column .*id \(int64\), text \(string\)"
    ):
        read(f"parquet:{path}", "prose")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="not a whole Parquet file"):
        read(f"parquet:{path}")


def test_stdlib_docs_are_the_documentation_of_python() -> None:
    source = open_source("stdlib-docs")
    first = next(iter(source.items()))
    texts = list(source.documents(first, Skipped()))
    assert texts[0].startswith('The "assert" statement')
    assert len(texts) > 70 and source.total_bytes > 5_000_000
    assert source == open_source("stdlib-docs")


@pytest.mark.parametrize("source", ["jsonl:gs://b/*.jsonl", "parquet:gs://b/x.parquet", "tfds:gs://b/wiki"])
def test_a_bucket_without_its_package_names_the_extra(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from etils import epath

    def missing(path: str) -> None:
        raise ImportError("Please install gcsfs to access Google Storage")

    monkeypatch.setattr(epath, "Path", missing)
    with pytest.raises(InputError, match=r"data.source: gs://b.*pip install -c constraints.txt '\.\[gcs\]'") as error:
        open_source(source)
    assert len(error.value.lines) == 1


def test_files_in_a_bucket_are_read_as_local_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``gs://`` through epath; TFDS' data sets in a bucket: ``test_tfds``."""
    pytest.importorskip("fsspec")
    sweep_bucket.lead_to(tmp_path / "bucket", monkeypatch)
    for i, name in enumerate("ab"):
        path = paths.as_path(f"gs://bucket/wiki/AA/{name}.jsonl.gz")
        path.write_bytes(gzip.compress(json.dumps({"text": f"article {i}"}).encode()))
    assert read("jsonl:gs://bucket/wiki")[0] == read("jsonl:gs://bucket/wiki/AA/*.gz")[0] == ["article 0", "article 1"]
    assert read("jsonl:gs://bucket/wiki/AA/b.jsonl.gz")[0] == ["article 1"]
    for source, message in (
        ("jsonl:gs://bucket/none/*.gz", "no such file"),
        ("jsonl:/nonexistent", "no such file"),
        (f"text:{tmp_path / 'bucket'}/none", "no such file"),
    ):
        with pytest.raises(InputError, match=message):
            open_source(source)
