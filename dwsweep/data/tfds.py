"""TFDS source, ``tfds:NAME[/CONFIG][:VERSION]`` or ``tfds:FOLDER``: prepared data sets, read without TensorFlow.

TFDS reads the metadata, the ArrayRecord files and the examples of a prepared data set; TFRecord files are read here,
since TFDS leaves them to TensorFlow. Only a data set that is not prepared yet needs TensorFlow (the extra ``tfds``), in
a process of its own. FOLDER may be remote, such as ``tfds:gs://tfds-data/datasets/wiki40b/en``. Importing TFDS takes
two seconds and waits until text is read.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from dwsweep import paths
from dwsweep.data.files import FoundFile, find_files, is_remote, open_raw, remote_access
from dwsweep.data.records import DocumentSource, Item, Skipped, decode
from dwsweep.data.text_fields import text_column
from dwsweep.errors import InputError, install
from dwsweep.text import one_line

RECORDS_PER_ITEM = 256
BEAM = (
    "this data set is built by Apache Beam, in an environment of its own: pip install tensorflow-datasets "
    "tensorflow-cpu apache-beam, then tfds build NAME --file_format=array_record; reading it needs neither"
)
WITHOUT = "without TensorFlow, data.source wikidump:PATH reads a Wikipedia dump (pages-articles XML)"
_SHARD = re.compile(r"\.(array_record|tfrecord)[^/]*$")
_WIKI40B = re.compile(r"_START_(?:ARTICLE|SECTION|PARAGRAPH)_|_NEWLINE_")


class Examples(NamedTuple):
    """Payload of serialised examples, or the number of those that the parsing worker reads from ArrayRecord shards."""

    place: str  # path of a TFRecord shard, or name of a split
    first: int  # number of the first record in it
    records: list[bytes] | int
    feature: str  # name of the feature that holds the text


@dataclass(frozen=True)
class TfdsRecords(DocumentSource):
    """Shards of a prepared data set, all splits together (dwsweep splits by itself)."""

    folder: str
    text_field: str | None = None  # None: chosen by its name

    @classmethod
    def find(cls, name: str, text_field: str | None, download: bool) -> TfdsRecords:
        folder = _folder(name)
        if folder is None and download:
            _download(name)
            folder = _folder(name)
        if folder is None:
            raise InputError(
                f"data.source: tfds:{name}; not prepared under {_root()}; give the folder of a prepared "
                f"data set, or let `dwsweep prepare` fetch it with the extra ({install('tfds')}); {WITHOUT}"
            )
        shards = tuple(f for f in find_files("tfds", folder) if _SHARD.search(f.path))
        if not shards:
            raise InputError(
                f"data.source: tfds:{name}; {folder} has no .array_record or .tfrecord shards; must have some"
            )
        return cls(shards, folder, text_field)

    def builder(self) -> Any:
        """TFDS builder of the folder; InputError if its metadata are not a data set's."""
        with remote_access(self.folder):
            import tensorflow_datasets as tfds

            try:
                builder = tfds.builder_from_directory(
                    self.folder, file_format="array_record" if self.is_array_record else None
                )
                if not isinstance(builder.info.features, tfds.features.FeaturesDict):
                    raise ValueError("it has no named features")
            except ImportError:
                raise
            except Exception as error:  # errors of TFDS's file parsers
                raise InputError(
                    f"data.source: {self.folder}; not a data set that TFDS can restore ({one_line(error)})"
                ) from None
        return builder

    @property
    def is_array_record(self) -> bool:
        return any(".array_record" in os.path.basename(file.path) for file in self.files)

    def items(self) -> Iterator[Item]:
        builder = self.builder()
        feature = _text_feature(builder, self.folder, self.text_field)
        if not self.is_array_record:
            for file in self.files:
                yield from _tfrecord_items(file, feature)
            return
        for name, split in sorted(builder.info.splits.items()):
            for first in range(0, split.num_examples, RECORDS_PER_ITEM):
                n = min(RECORDS_PER_ITEM, split.num_examples - first)
                yield Item(Examples(name, first, n, feature), split.num_bytes * n // split.num_examples)

    def _stored(self, split: str, first: int, n: int) -> Sequence[bytes]:
        """Records of the ArrayRecord shards of a split."""
        try:
            return _data_source(self, split).__getitems__(range(first, first + n))
        except ImportError:
            raise InputError(f"data.source: {self.folder}; ArrayRecord files need: pip install array_record") from None
        except (RuntimeError, ValueError, IndexError, OSError) as error:
            raise InputError(
                f"data.source: {self.folder}; truncated or damaged ArrayRecord files ({one_line(error)})"
            ) from None

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        place, first, records, feature = item.payload
        if isinstance(records, int):
            place, records = f"{self.folder}, {place}", self._stored(place, first, records)
        for i, record in enumerate(records, first):
            where = f"{place}, record {i}"
            values = feature_of(record, feature)
            if values is None:
                skipped.add_bad("not a tf.train.Example", where)
            elif not values:
                skipped.add_bad(f"no text in the feature {feature}", where)
            for value in values or ():
                text = decode(value, where, skipped)
                if text is not None:
                    yield _WIKI40B.sub("\n", text) if text.lstrip().startswith("_START_ARTICLE_") else text


def feature_of(record: bytes, name: str) -> Sequence[bytes] | None:
    """Bytes values of a feature of a serialised ``tf.train.Example``: empty without the feature, None if ``data`` is no
    example."""
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_pb2

    try:
        features = tf_example_pb2.Example.FromString(record).features.feature
    except DecodeError:
        return None
    return features[name].bytes_list.value if name in features else ()


def _root() -> str:
    return os.path.expanduser(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def _folder(name: str) -> str | None:
    """Folder of the newest prepared version, or None."""
    if _is_prepared(name):
        return name if is_remote(name) else os.path.abspath(os.path.expanduser(name))
    base, _, wanted = name.partition(":") if not is_remote(name) else (name, "", "")
    top = base if is_remote(base) else os.path.join(_root(), base)  # joining two absolute paths gives the second
    versions = [v for v in _subfolders(top) if re.fullmatch(r"\d+\.\d+\.\d+", v) and wanted in ("", v)]
    for v in sorted(versions, key=lambda v: [int(n) for n in v.split(".")], reverse=True):
        if _is_prepared(f"{top}/{v}"):
            return f"{top}/{v}"
    return None


def _is_prepared(folder: str) -> bool:
    with remote_access(folder):
        return bool((paths.as_path(os.path.expanduser(folder)) / "dataset_info.json").exists())


def _subfolders(folder: str) -> list[str]:
    with remote_access(folder):
        path = paths.as_path(folder)
        return [p.name for p in path.iterdir() if p.is_dir()] if path.is_dir() else []


def _download(name: str) -> None:
    """Have TFDS download and prepare the data set as ArrayRecord, in a separate process, since TensorFlow and
    SentencePiece's trainer do not share one."""
    from importlib.util import find_spec

    if is_remote(name) or os.path.isabs(name) or name.startswith((".", "~")):
        return
    if find_spec("tensorflow") is None:
        raise InputError(
            f"data.source: tfds:{name}; not prepared under {_root()}, and downloading it needs TensorFlow: "
            f"{install('tfds')}; or {WITHOUT}"
        )
    code = (
        "import sys, tensorflow_datasets as tfds\n"
        "b = tfds.builder(sys.argv[1], data_dir=sys.argv[2], file_format='array_record')\n"
        "b.download_and_prepare(download_config=tfds.download.DownloadConfig(beam_runner='DirectRunner'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, name, _root()], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raised = re.findall(r"^[A-Za-z_][\w.]*: .+", done.stderr, re.MULTILINE) or done.stderr.split("\n")[-2:-1]
        how = BEAM if "beam" in done.stderr.lower() else WITHOUT
        raise InputError(f"data.source: tfds:{name}; TFDS could not prepare it ({' '.join(raised[-1:])}); {how}")


def _text_feature(builder: Any, folder: str, wanted: str | None) -> str:
    """Name of the text feature; InputError that names the features if none holds text."""
    import numpy as np
    from tensorflow_datasets import features as kinds

    features: dict[str, Any] = dict(sorted(builder.info.features.items()))
    texts = [name for name, f in features.items() if isinstance(f, kinds.Tensor) and np.dtype(f.np_dtype).kind in "OSU"]
    if not wanted and len(texts) == 1:
        return texts[0]
    found = {name: type(f).__name__ for name, f in features.items()}
    return text_column(found, texts, wanted, f"text feature in {folder}; features")


@lru_cache(maxsize=4)
def _data_source(source: TfdsRecords, split: str) -> Any:
    """Data source of a split, one per process: it keeps the shards open."""
    from tensorflow_datasets import decode as decoding

    raw = decoding.DeserializeMethod.RAW_BYTES  # a damaged example then loses only itself
    return source.builder().as_data_source(split, deserialize_method=raw)


def _tfrecord_items(file: FoundFile, feature: str) -> Iterator[Item]:
    """Items of a TFRecord file: length (8 bytes), its checksum (4), data, its checksum (4)."""
    records: list[bytes] = []
    first = at = seen = 0
    with open_raw(file.path) as raw:
        while head := raw.read(12):
            length = struct.unpack("<Q", head[:8])[0] if len(head) == 12 else 0
            data = raw.read(length + 4) if len(head) == 12 and length <= file.n_bytes else b""
            if len(data) != length + 4:
                raise InputError(f"data.source: {file.path}; truncated or damaged TFRecord file, at byte {at:,} of it")
            records.append(data[:-4])
            at += 16 + length
            if len(records) == RECORDS_PER_ITEM:
                yield Item(Examples(file.path, first, records, feature), at - seen)
                first, records, seen = first + len(records), [], at
    if records:
        yield Item(Examples(file.path, first, records, feature), at - seen)
