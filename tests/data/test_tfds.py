"""Prepared TensorFlow Datasets, made and read here without TensorFlow."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sweep_bucket
from corpus_tools import data_spec, read

from dwsweep import paths
from dwsweep.data.prepare import find, prepare
from dwsweep.data.sources import open_source
from dwsweep.errors import InputError
from dwsweep.spec import DataSpec

tfds = pytest.importorskip("tensorflow_datasets")

EXAMPLES = [{"title": f"T{i}", "text": f"Article {i} – ünï. " * (i + 1), "id": i} for i in range(50)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set "tiny/en" in two versions, written by TFDS itself."""
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


def test_the_same_texts_as_tfds_reads(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = tfds.builder_from_directory(str(root / "tiny/en/1.10.0")).as_data_source("train")
    expected = [record["text"].decode() for record in reference]
    assert sorted(expected) == sorted(e["text"] for e in EXAMPLES)
    monkeypatch.setenv("TFDS_DATA_DIR", str(root))
    for name in ("tiny/en", "tiny/en:1.10.0", f"{root}/tiny/en", f"{root}/tiny/en/1.10.0"):
        texts, skipped = read(f"tfds:{name}")
        assert texts == expected and not skipped.bad
    assert len(read("tfds:tiny/en:1.9.0")[0]) == 2
    assert read("tfds:tiny/en", "title")[0][:2] == ["T0", "T1"]


def tfrecords(root: Path, folder: Path, records: list[bytes]) -> Path:
    """A data set with these records in one TFRecord file, written byte by byte: length, checksum, data, checksum."""
    for name in ("features.json", "dataset_info.json"):
        (folder / name).write_bytes((root / "tiny/en/1.10.0" / name).read_bytes())
    shard = folder / "tiny-train.tfrecord-00000-of-00001"
    shard.write_bytes(b"".join(struct.pack("<QI", len(r), 0) + r + bytes(4) for r in records))
    return shard


def example(**features: bytes) -> bytes:
    from tensorflow_datasets.proto import tf_example_pb2

    made = tf_example_pb2.Example()
    for name, value in features.items():
        made.features.feature[name].bytes_list.value.append(value)
    return made.SerializeToString()


def test_tfrecord_files_hold_the_same_texts_on_disk_and_in_a_bucket(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from array_record.python.array_record_module import ArrayRecordReader

    records = []
    for shard in sorted((root / "tiny/en/1.10.0").glob("*array_record*")):
        reader = ArrayRecordReader(str(shard))
        records += reader.read_all()
        reader.close()
    shard = tfrecords(root, tmp_path, records)
    expected = read(f"tfds:{root}/tiny/en")[0]
    assert read(f"tfds:{tmp_path}")[0] == expected
    sweep_bucket.lead_to(tmp_path / "bucket", monkeypatch)
    for file in (shard, tmp_path / "features.json", tmp_path / "dataset_info.json"):
        paths.as_path(f"gs://bucket/tiny/en/1.10.0/{file.name}").write_bytes(file.read_bytes())
    for name in ("gs://bucket/tiny/en", "gs://bucket/tiny/en/1.10.0"):
        assert read(f"tfds:{name}")[0] == expected
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(InputError, match="truncated or damaged TFRecord file"):
        read(f"tfds:{tmp_path}")


WITHOUT_TENSORFLOW = """
import sys
sys.path.append(sys.argv[2])
from dwsweep.data.prepare import find, prepare
from dwsweep.spec import DataSpec
data = DataSpec.model_validate_json(sys.argv[1])
store = prepare(data, progress=False)
assert "tensorflow" not in sys.modules, "TensorFlow was imported"
assert "tensorflow_datasets" in sys.modules
"""


def test_prepare_without_tensorflow(root: Path, tmp_path: Path) -> None:
    """Though one is installed that could be imported."""
    package = tmp_path / "site" / "tensorflow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '2.20.0'\n")
    data = data_spec(f"tfds:{root}/tiny/en", tmp_path, vocab_size=256)
    command = [sys.executable, "-c", WITHOUT_TENSORFLOW, data.model_dump_json(), str(package.parent)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    store = find(data)
    assert store is not None and store.manifest.n_documents == 50


def test_wiki40b_marks_become_lines(root: Path, tmp_path: Path) -> None:
    text = "\n_START_ARTICLE_\nCape\n_START_SECTION_\nHistory\n_START_PARAGRAPH_\nOne._NEWLINE_Two."
    tfrecords(root, tmp_path, [example(text=text.encode())])
    (cleaned,) = read(f"tfds:{tmp_path}")[0]
    assert [line for line in cleaned.split("\n") if line] == ["Cape", "History", "One.", "Two."]


def test_what_is_missing_is_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(InputError, match=rf"tfds:wikipedia/20230601.en; not prepared under {tmp_path}"):
        open_source("tfds:wikipedia/20230601.en")
    assert find(DataSpec(source="tfds:wikipedia", cache_dir=str(tmp_path))) is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"needs TensorFlow: .*'\.\[tfds\]'; or without TensorFlow, data.source wiki"):
        prepare(DataSpec(source="tfds:wikipedia/20230601.en", cache_dir=str(tmp_path)), progress=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())  # as if TensorFlow were there
    failed = subprocess.CompletedProcess([], 1, stderr="warning\ntfds.DatasetNotFoundError: no such\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: failed)
    with pytest.raises(InputError, match=r"TFDS could not prepare it \(.*DatasetNotFoundError") as error:
        prepare(DataSpec(source="tfds:no_such_data_set", cache_dir=str(tmp_path)), progress=False)
    assert "\n" not in str(error.value)
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"no such text feature .*features found: id \(Scalar\), text \(Text\), title"):
        read(f"tfds:{root}/tiny/en", "prose")

    for name in ("features.json", "dataset_info.json"):
        (tmp_path / name).write_bytes((root / "tiny/en/1.10.0" / name).read_bytes())
    with pytest.raises(InputError, match=r"no .array_record or .tfrecord shards"):
        open_source(f"tfds:{tmp_path}")
    shards = [file.name for file in (root / "tiny/en/1.10.0").glob("*array_record*")]
    (tmp_path / min(shards)).write_bytes(b"not an array record" * 100)
    with pytest.raises(InputError, match="damaged ArrayRecord"):
        read(f"tfds:{tmp_path}")
    (tmp_path / "features.json").write_text('{"featuresDict": 5}')
    with pytest.raises(InputError, match="not a data set that TFDS can restore") as error:
        read(f"tfds:{tmp_path}")
    assert len(error.value.lines) == 1 and "\n" not in str(error.value)


def test_a_record_that_is_no_example_is_skipped(root: Path, tmp_path: Path) -> None:
    """Cut inside a length; a length without end; without the feature; not UTF-8. Its neighbours stay."""
    bad = [b"\x0a\xff", b"\x0a" + b"\xff" * 100_000, example(title=b"T"), example(text=b"\xff")]
    shard = tfrecords(root, tmp_path, [example(text=b"first"), *bad, example(text=b"last")])
    texts, skipped = read(f"tfds:{tmp_path}")
    assert texts == ["first", "last"]
    assert skipped.bad == {"not a tf.train.Example": 2, "no text in the feature text": 1, "invalid UTF-8": 1}
    assert skipped.first_bad == f"not a tf.train.Example: {shard}, record 1"
