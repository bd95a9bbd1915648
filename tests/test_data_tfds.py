"""Prepared TensorFlow Datasets, made and read here without TensorFlow."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dwsweep.data.prepare import find, prepare
from dwsweep.data.sources import Skipped, open_source
from dwsweep.data.tfds import example_feature
from dwsweep.errors import InputError
from dwsweep.spec import DataSpec

EXAMPLES = [{"title": f"T{i}", "text": f"Article {i} – ünï. " * (i + 1), "id": i} for i in range(50)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set "tiny/en" in two versions, written by TFDS itself."""
    tfds = pytest.importorskip("tensorflow_datasets")
    root = tmp_path_factory.mktemp("tfds")
    for version, examples in (("1.9.0", EXAMPLES[:2]), ("1.10.0", EXAMPLES)):
        folder = root / "tiny" / "en" / version
        folder.mkdir(parents=True)
        features = tfds.features.FeaturesDict(
            {"title": tfds.features.Text(), "text": tfds.features.Text(), "id": tfds.features.Scalar(np.int64)}
        )
        identity = tfds.core.dataset_info.DatasetIdentity(
            name="tiny", version=tfds.core.Version(version), data_dir=str(folder), module_name="tiny"
        )
        info = tfds.core.DatasetInfo(builder=identity, features=features)
        writer = tfds.core.SequentialWriter(info, max_examples_per_shard=20, file_format="array_record")
        writer.initialize_splits(["train"])
        writer.add_examples({"train": examples})
        writer.close_all()
    return root


def read(source: str, text_field: str | None = None) -> tuple[list[str], Skipped]:
    opened, skipped = open_source(source, text_field), Skipped()
    return [text for item in opened.items() for text in opened.documents(item, skipped)], skipped


def test_the_same_texts_as_tfds_reads(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow_datasets as tfds

    reference = tfds.builder_from_directory(str(root / "tiny/en/1.10.0")).as_data_source("train")
    expected = [record["text"].decode() for record in reference]
    assert sorted(expected) == sorted(e["text"] for e in EXAMPLES)
    monkeypatch.setenv("TFDS_DATA_DIR", str(root))
    for name in ("tiny/en", "tiny/en:1.10.0", f"{root}/tiny/en", f"{root}/tiny/en/1.10.0"):
        texts, skipped = read(f"tfds:{name}")
        assert texts == expected and not skipped.bad
    assert len(read("tfds:tiny/en:1.9.0")[0]) == 2
    assert read("tfds:tiny/en", "title")[0][:2] == ["T0", "T1"]


def test_tfrecord_shards(root: Path, tmp_path: Path) -> None:
    """The same examples in TFRecord files, written byte by byte: length, checksum, data, checksum."""
    from array_record.python.array_record_module import ArrayRecordReader

    records = []
    for shard in sorted((root / "tiny/en/1.10.0").glob("*array_record*")):
        reader = ArrayRecordReader(str(shard))
        records += reader.read_all()
        reader.close()
    for name in ("features.json", "dataset_info.json"):
        (tmp_path / name).write_bytes((root / "tiny/en/1.10.0" / name).read_bytes())
    shard = tmp_path / "tiny-train.tfrecord-00000-of-00001"
    shard.write_bytes(b"".join(struct.pack("<QI", len(r), 0) + r + bytes(4) for r in records))
    assert read(f"tfds:{tmp_path}")[0] == read(f"tfds:{root}/tiny/en")[0]
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(InputError, match="truncated or damaged TFRecord file"):
        read(f"tfds:{tmp_path}")


def test_prepare_without_tensorflow(root: Path, tmp_path: Path) -> None:
    data = DataSpec(source=f"tfds:{root}/tiny/en", vocab_size=256, validation_fraction=0.1, cache_dir=str(tmp_path))
    store = prepare(data, progress=False)
    assert store.manifest["n_documents"] == 50 and find(data) == store
    assert "tensorflow" not in sys.modules


def test_wiki40b_marks_become_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    from dwsweep.data import tfds

    text = "\n_START_ARTICLE_\nCape\n_START_SECTION_\nHistory\n_START_PARAGRAPH_\nOne._NEWLINE_Two."
    monkeypatch.setattr(tfds, "example_feature", lambda record, name: [text.encode()])
    source: Any = SimpleNamespace(text_field="text")
    item = SimpleNamespace(payload=("p", 0, [b""]))
    (cleaned,) = tfds.TfdsRecords.documents(source, item, Skipped())  # type: ignore[arg-type]
    assert [line for line in cleaned.split("\n") if line] == ["Cape", "History", "One.", "Two."]


def test_what_is_missing_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(InputError, match=rf"tfds:wikipedia/20230601.en; not prepared under {tmp_path}"):
        open_source("tfds:wikipedia/20230601.en")
    assert find(DataSpec(source="tfds:wikipedia", cache_dir=str(tmp_path))) is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs TensorFlow: pip install 'dwsweep\[tfds\]'"):
        prepare(DataSpec(source="tfds:wikipedia/20230601.en", cache_dir=str(tmp_path)), progress=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())  # as if TensorFlow were there
    with pytest.raises(InputError, match=r"TFDS could not prepare it \(.*DatasetNotFoundError") as error:
        prepare(DataSpec(source="tfds:no_such_data_set", cache_dir=str(tmp_path)), progress=False)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"no such text feature .*features found: id \(Scalar\), text \(Text\), title"):
        open_source(f"tfds:{root}/tiny/en", "prose")

    for name in ("features.json", "dataset_info.json"):
        (tmp_path / name).write_bytes((root / "tiny/en/1.10.0" / name).read_bytes())
    with pytest.raises(InputError, match=r"no .array_record or .tfrecord shards"):
        open_source(f"tfds:{tmp_path}")
    (tmp_path / "tiny-train.array_record-00000-of-00001").write_bytes(b"not an array record" * 100)
    with pytest.raises(InputError, match="damaged ArrayRecord"):
        read(f"tfds:{tmp_path}")


def test_example_feature() -> None:
    title = b"\n\x0e\n\x05title\x12\x05\n\x03\n\x01a"
    number = b"\n\n\n\x01n\x12\x05\x1a\x03\n\x01\x03"
    text = b"\n\x12\n\x04text\x12\n\n\x08\n\x06h\xc3\xa9llo"
    example = b"\n0" + title + number + text
    assert example_feature(example, b"text") == ["h\u00e9llo".encode()]
    assert example_feature(example, b"title") == [b"a"]
    assert example_feature(example, b"n") == [] == example_feature(example, b"other") == example_feature(b"", b"text")


def test_a_record_that_is_no_example_is_skipped() -> None:
    from dwsweep.data.sources import Item
    from dwsweep.data.tfds import TfdsRecords

    skipped = Skipped()
    records = [b"\x0a\xff", b"\x0a" + b"\xff" * 100_000]  # cut inside a length; a length without end
    assert not list(TfdsRecords(()).documents(Item(("x.tfrecord", 0, records), 0), skipped))
    assert skipped.bad == {"not a tf.train.Example": 2}
