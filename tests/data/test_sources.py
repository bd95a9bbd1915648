"""Each form of source gives its texts, and each broken one a clear line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sentences import says

from dwsweep.data import records
from dwsweep.data.prepare import prepare
from dwsweep.data.records import Skipped
from dwsweep.data.sources import open_source
from dwsweep.errors import InputError
from dwsweep.spec import DataSpec


def read(source: str, text_field: str | None = None) -> tuple[list[str], Skipped]:
    opened, skipped = open_source(source, text_field), Skipped()
    items = list(opened.items())
    assert sum(item.n_bytes for item in items) <= opened.total_bytes
    return [text for item in items for text in opened.documents(item, skipped)], skipped


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
        monkeypatch.setattr(records, "WHOLE_FILE_BYTES", 10)
        monkeypatch.setattr(records, "ITEM_BYTES", 37)
    (tmp_path / f"a.jsonl{suffix}").write_bytes(PACKERS[suffix](LINES))
    texts, skipped = read(f"jsonl:{tmp_path}/*.jsonl*")
    assert texts == TEXTS and not skipped.bad


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_truncated_and_misnamed_compression(tmp_path: Path, suffix: str) -> None:
    packed = PACKERS[suffix](LINES)
    (tmp_path / f"cut.jsonl{suffix}").write_bytes(packed[:-7])
    with pytest.raises(InputError, match=rf"cut.jsonl\{suffix}; truncated or damaged"):
        read(f"jsonl:{tmp_path}/cut.jsonl{suffix}")
    (tmp_path / f"plain.jsonl{suffix}").write_bytes(LINES)
    with pytest.raises(InputError, match="its name states"):
        read(f"jsonl:{tmp_path}/plain.jsonl{suffix}")
    (tmp_path / "packed.jsonl").write_bytes(packed)
    with pytest.raises(InputError, match="its content is"):
        read(f"jsonl:{tmp_path}/packed.jsonl")


def test_damaged_inside(tmp_path: Path) -> None:
    packed = bytearray(bz2.compress(LINES * 50))
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "a.jsonl.bz2").write_bytes(packed)
    with pytest.raises(InputError, match="truncated or damaged bzip2"):
        read(f"jsonl:{tmp_path}/a.jsonl.bz2")


def test_jsonl_bad_lines_are_counted(tmp_path: Path) -> None:
    bad = b'{"text": "cut\n[1, 2]\n{"body_text": "x", "id": 3}\n{"text": "\xff\xfe"}\n\n{"text": 5}\n'
    (tmp_path / "a.jsonl").write_bytes(LINES + bad)
    texts, skipped = read(f"jsonl:{tmp_path}/a.jsonl")
    assert texts == TEXTS
    assert sum(skipped.bad.values()) == 5
    assert skipped.bad["not a JSON object"] == 2 and skipped.bad["invalid UTF-8"] == 1
    assert skipped.first_bad == f"not a JSON object: {tmp_path}/a.jsonl, byte {len(LINES)}"


@pytest.mark.parametrize("large", [False, True])
def test_a_record_without_end_is_passed_over(tmp_path: Path, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its neighbours stay, and memory is bounded by the largest document that is allowed, not by what is unpacked."""
    import tracemalloc

    monkeypatch.setattr(records, "MAX_DOCUMENT_BYTES", 1 << 20)
    monkeypatch.setattr(records, "ITEM_BYTES", 1 << 16)
    monkeypatch.setattr(records, "WORKER_BLOCK_BYTES", 1 << 16)
    monkeypatch.setattr(records, "WHOLE_FILE_BYTES", 10 if large else 1 << 20)
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


def test_an_article_file_that_is_too_large_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_DOCUMENT_BYTES", 1000)
    for name, n in (("a", 900), ("b", 1001), ("c", 10)):
        (tmp_path / f"{name}.txt").write_text(name * n)
    texts, skipped = read(f"text:{tmp_path}/*.txt")
    assert texts == ["a" * 900, "c" * 10] and skipped.bad.total() == 1


def test_deeply_nested_json_is_skipped(tmp_path: Path) -> None:
    """Counted by depth, not by where the parser gives up; brackets inside a text are only text."""
    texts = ["[{" * 5000, '\\"[' * 300, "[" * 90]
    lines = [json.dumps({"text": text, "x": [[1]] * 200}) for text in texts]
    deep = ['{"text": "x", "a": ' + "[" * n + "]" * n + "}" for n in (99, 100, 100_000)]
    unclosed = ['{"text": "' + '\\"[' * 50_000, '{"text": "' + "[" * 50_000 + "\\"]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, *deep, *unclosed, "[" * 100_000]))
    read_texts, skipped = read(f"jsonl:{tmp_path}/a.jsonl")
    assert read_texts == [*texts, "x"]
    assert skipped.bad == {"nested more than 100 deep": 3, "not a JSON object": 2}


def test_what_a_source_says_in_a_message_is_printable(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"\x1b[31m" + "key" * 1000: 1}) + "\n")
    first = str(read(f"jsonl:{tmp_path}/a.jsonl")[1].first_bad)
    assert r"\x1b[31mkey" in first and "\x1b" not in first and len(first) < 400


def test_named_text_field(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "no", "body_text": "yes"}\n')
    assert read(f"jsonl:{tmp_path}/a.jsonl", "body_text")[0] == ["yes"]
    _, skipped = read(f"jsonl:{tmp_path}/a.jsonl", "prose")
    assert says(skipped.bad, "data: no text field") and "fields found: text, body_text" in str(skipped.first_bad)


def test_text_one_file_an_article(tmp_path: Path) -> None:
    for name in "ba":
        (tmp_path / f"{name}.txt").write_text(f"\ufeffArticle {name}\n\nwith a blank line\n", "utf-8")
    (tmp_path / ".hidden").write_text("no")
    expected = [f"Article {name}\n\nwith a blank line\n" for name in "ab"]
    assert read(f"text:{tmp_path}")[0] == read(f"text:{tmp_path}/*.txt")[0] == expected
    assert len(read(f"text:{tmp_path}/*.txt?articles=blank")[0]) == 4
    with pytest.raises(InputError, match="file or blank"):
        read(f"text:{tmp_path}/*.txt?articles=lines")


@pytest.mark.parametrize("block", [1 << 20, 23])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_single_file_of_articles(tmp_path: Path, block: int, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if block < 100:
        monkeypatch.setattr(records, "WHOLE_FILE_BYTES", 10)
        monkeypatch.setattr(records, "ITEM_BYTES", block)
    articles = [f"Title {i}{end}body line é" for i in range(20)]
    (tmp_path / "a.txt").write_bytes((f"{end}{end}".join(articles) + end).encode())
    texts = [t.strip() for t in read(f"text:{tmp_path}/a.txt")[0]]
    assert texts == [a.replace("\r\n", "\n") for a in articles]


def test_several_large_text_files_must_say_what_an_article_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "WHOLE_FILE_BYTES", 10)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("one article\n\nanother one\n")
    with pytest.raises(InputError, match=r"add \?articles=blank"):
        read(f"text:{tmp_path}/*.txt")
    assert len(read(f"text:{tmp_path}/*.txt?articles=file")[0]) == 2


def test_no_border_in_a_huge_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "WHOLE_FILE_BYTES", 10)
    monkeypatch.setattr(records, "ITEM_BYTES", 50)
    monkeypatch.setattr(records, "MAX_DOCUMENT_BYTES", 200)
    (tmp_path / "a.jsonl").write_text("x" * 1000)
    with pytest.raises(InputError, match=r"1 of 1 records are bad .*no border between records"):
        prepare(DataSpec(source=f"jsonl:{tmp_path}/a.jsonl", cache_dir=str(tmp_path / "cache")), progress=False)


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(31), "text": [*TEXTS, None]}), path, row_group_size=10)
    texts, skipped = read(f"parquet:{path}")
    assert texts == TEXTS and skipped.bad == {"null text": 1}
    with pytest.raises(
        InputError, match=r"data.text_field: prose; no such string column .*id \(int64\), text \(string\)"
    ):
        read(f"parquet:{path}", "prose")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="not a whole Parquet file"):
        read(f"parquet:{path}")
    path.rename(tmp_path / "a.parquet.gz")
    with pytest.raises(InputError, match="compressed inside"):
        read(f"parquet:{tmp_path}/a.parquet.gz")


def test_stdlib_docs() -> None:
    source = open_source("stdlib-docs")
    first = next(iter(source.items()))
    texts = list(source.documents(first, Skipped()))
    assert texts[0].startswith('The "assert" statement')
    assert len(texts) > 70 and source.total_bytes > 5_000_000
    assert source == open_source("stdlib-docs")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("wiki:x", "data.source: wiki:x; must be one of stdlib-docs, tfds:"),
        ("stdlib-docs:x", "one of stdlib-docs"),
        ("text:", "a path or a glob after the colon"),
        ("text:/nonexistent/*.txt", "no such file"),
        ("jsonl:/nonexistent", "no such file"),
    ],
)
def test_sources_that_are_not_there(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_source(source)


def test_a_folder_without_files_is_called_empty(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this folder holds no files"):
        open_source(f"text:{tmp_path}")


REMOTE = """
import gzip, json, struct
import fsspec
from etils import epath
from fsspec.implementations.memory import MemoryFileSystem
from dwsweep.data.records import Skipped
from dwsweep.data.sources import open_source

class Bucket(MemoryFileSystem):
    protocol, store, pseudo_dirs = ("gs", "gcs"), {}, [""]

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("gs://").removeprefix("gcs://"))

for name in ("gs", "gcs"):
    fsspec.register_implementation(name, Bucket, clobber=True)
folder = epath.Path("gs://bucket/wiki/AA")
folder.mkdir(parents=True, exist_ok=True)
for i, name in enumerate("ab"):
    (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress(json.dumps({"text": f"article {i}"}).encode()))

def read(pattern, kind="jsonl"):
    source = open_source(f"{kind}:{pattern}")
    return [text for item in source.items() for text in source.documents(item, Skipped())]

assert read("gs://bucket/wiki") == read("gs://bucket/wiki/AA/*.gz") == ["article 0", "article 1"]
assert read("gs://bucket/wiki/AA/b.jsonl.gz") == ["article 1"]
from tensorflow_datasets.proto import tf_example_pb2

text = {"pythonClassName": "tensorflow_datasets.core.features.text_feature.Text", "text": {}}
kind = "tensorflow_datasets.core.features.features_dict.FeaturesDict"
features = {"pythonClassName": kind, "featuresDict": {"features": {"text": text}}}
split = {"name": "train", "shardLengths": ["1"], "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"}
info = {"name": "tiny", "version": "1.0.0", "fileFormat": "tfrecord", "splits": [split]}
example = tf_example_pb2.Example()
example.features.feature["text"].bytes_list.value.append(b"article")
record = example.SerializeToString()
folder = epath.Path("gs://bucket/tiny/en/1.0.0")
folder.mkdir(parents=True, exist_ok=True)
(folder / "features.json").write_text(json.dumps(features))
(folder / "dataset_info.json").write_text(json.dumps(info))
framed = struct.pack("<QI", len(record), 0) + record + bytes(4)
(folder / "tiny-train.tfrecord-00000-of-00001").write_bytes(framed)
assert read("gs://bucket/tiny/en", "tfds") == ["article"]

try:
    read("gs://bucket/none/*.gz")
except ValueError as error:
    assert "no such file" in str(error), error
else:
    raise AssertionError("a bucket without the files was accepted")
"""


@pytest.mark.parametrize(
    "source",
    [
        "jsonl:gs://b/x.jsonl",
        "jsonl:gs://b/*.jsonl",
        "text:gs://b/d",
        "wikidump:gs://b/a.xml.bz2",
        "parquet:gs://b/*.parquet",
        "tfds:gs://b/wiki",
    ],
)
def test_remote_files_without_their_package(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from etils import epath

    def missing(path: str) -> None:
        raise ImportError("Please install gcsfs to access Google Storage")

    monkeypatch.setattr(epath, "Path", missing)
    with pytest.raises(InputError, match=r"data.source: gs://b.*pip install -c constraints.txt '\.\[gcs\]'") as error:
        open_source(source)
    assert len(error.value.lines) == 1


def test_remote_files() -> None:
    """gs:// through epath; an in-memory file system stands for the bucket, in a process of its own."""
    pytest.importorskip("fsspec")
    done = subprocess.run([sys.executable, "-c", REMOTE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
