"""``tfds:NAME[/CONFIG][:VERSION]`` or ``tfds:FOLDER``: prepared TensorFlow Datasets, read without TensorFlow.

A prepared data set is a folder with dataset_info.json, features.json and shards of serialised ``tf.train.Example``
protocol buffers, in ArrayRecord or TFRecord files. All of that is read here directly, so neither TensorFlow nor the
TFDS library is imported; only a data set that is not prepared yet needs both (the extra ``tfds``), in a process of its
own. FOLDER may be remote: ``tfds:gs://tfds-data/datasets/wiki40b/en`` reads the copy that Google keeps prepared.
"""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dwsweep.data.source_files import File, find_files, is_remote, open_raw, remote, remote_access
from dwsweep.data.sources import Item, Skipped
from dwsweep.data.text_records import TEXT_FIELDS, Files, decode
from dwsweep.errors import InputError

RECORDS_PER_ITEM = 256
_SHARD = re.compile(r"\.(array_record|tfrecord)[^/]*$")
_WIKI40B = re.compile(r"_START_(?:ARTICLE|SECTION|PARAGRAPH)_|_NEWLINE_")


@dataclass(frozen=True)
class TfdsRecords(Files):
    """The shards of a prepared data set, all splits together (dwsweep makes its own split)."""

    text_field: str = "text"

    @classmethod
    def find(cls, name: str, text_field: str | None, *, download: bool) -> TfdsRecords:
        folder = _folder(name)
        if folder is None and download:
            _download(name)
            folder = _folder(name)
        if folder is None:
            raise InputError(
                f"data.source: tfds:{name}; not prepared under {' or '.join(_roots())}; a folder of a prepared data "
                "set, or `dwsweep prepare` with the extra: pip install 'dwsweep[tfds]'"
            )
        shards = tuple(f for f in find_files("tfds", folder) if _SHARD.search(f.path))
        if not shards:
            raise InputError(
                f"data.source: tfds:{name}; {folder} has no .array_record or .tfrecord shards; one of those formats"
            )
        return cls(shards, _text_field(folder, text_field))

    def items(self) -> Iterator[Item]:
        for file in self.files:
            if ".array_record" in os.path.basename(file.path):
                yield from _array_record_items(file)
            else:
                yield from _tfrecord_items(file)

    def documents(self, item: Item, skipped: Skipped) -> Iterator[str]:
        path, first, payload = item.payload
        records = _read_array_record(path, first, payload) if isinstance(payload, int) else payload
        for i, record in enumerate(records):
            where = f"{path}, record {first + i}"
            try:
                values = example_feature(record, self.text_field.encode())
            except IndexError:
                skipped.add_bad("not a tf.train.Example", where)
                continue
            if not values:
                skipped.add_bad(f"no text in the feature {self.text_field}", where)
                continue
            for value in values:
                text = decode(value, where, skipped)
                if text is not None:
                    yield _WIKI40B.sub("\n", text) if text.lstrip().startswith("_START_ARTICLE_") else text


def _roots() -> list[str]:
    return [os.path.expanduser(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")]


def _folder(name: str) -> str | None:
    """The newest prepared version's folder, or None."""
    if _exists(name, "dataset_info.json"):
        return name if is_remote(name) else os.path.abspath(os.path.expanduser(name))
    base, _, wanted = name.partition(":") if not is_remote(name) else (name, "", "")
    for root in [""] if is_remote(base) or os.path.isabs(base) else _roots():
        top = os.path.join(root, base) if root else base
        versions = [v for v in _subfolders(top) if re.fullmatch(r"\d+\.\d+\.\d+", v)]
        versions = [v for v in versions if not wanted or v == wanted]
        for v in sorted(versions, key=lambda v: [int(n) for n in v.split(".")], reverse=True):
            if _exists(f"{top}/{v}", "dataset_info.json"):
                return f"{top}/{v}"
    return None


def _exists(folder: str, name: str) -> bool:
    if not is_remote(folder):
        return os.path.isfile(os.path.join(os.path.expanduser(folder), name))
    with remote_access(folder):
        return bool((remote(folder) / name).exists())


def _subfolders(folder: str) -> list[str]:
    if is_remote(folder):
        with remote_access(folder):
            path = remote(folder)
            return [p.name for p in path.iterdir() if p.is_dir()] if path.exists() else []
    return [e.name for e in os.scandir(folder) if e.is_dir()] if os.path.isdir(folder) else []


def _download(name: str) -> None:
    """Lets TFDS download and prepare the data set as ArrayRecord; in a process of its own, since TensorFlow and
    SentencePiece's trainer do not share one."""
    from importlib.util import find_spec

    if is_remote(name) or os.path.isabs(name) or name.startswith((".", "~")):
        return
    if find_spec("tensorflow") is None:
        raise InputError(
            f"data.source: tfds:{name}; not prepared under {' or '.join(_roots())}, and downloading it needs "
            "TensorFlow: pip install 'dwsweep[tfds]'"
        )
    code = (
        "import sys, tensorflow_datasets as tfds\n"
        "b = tfds.builder(sys.argv[1], data_dir=sys.argv[2], file_format='array_record')\n"
        "b.download_and_prepare(download_config=tfds.download.DownloadConfig(beam_runner='DirectRunner'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, name, _roots()[0]], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raised = re.findall(r"^[A-Za-z_][\w.]*: .+", done.stderr, re.MULTILINE) or done.stderr.split("\n")[-2:-1]
        raise InputError(f"data.source: tfds:{name}; TFDS could not prepare it ({' '.join(raised[-1:])})")


def _text_field(folder: str, wanted: str | None) -> str:
    """The text feature; InputError that names the features when there is none."""
    try:
        with open_raw(f"{folder}/features.json") as file:
            features: dict[str, Any] = json.loads(file.read())["featuresDict"]["features"]
    except FileNotFoundError:
        return wanted or "text"
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"data.source: {folder}; features.json is not that of a TFDS data set with named features"
        ) from None
    texts = [name for name, f in features.items() if _is_text(f)]
    for name in (wanted,) if wanted else TEXT_FIELDS:
        if name in texts:
            return str(name)
    if not wanted and len(texts) == 1:
        return texts[0]
    found = ", ".join(f"{n} ({f.get('pythonClassName', '?').rpartition('.')[2]})" for n, f in features.items())
    raise InputError(
        f"data.text_field: {wanted or ' or '.join(TEXT_FIELDS)}; no such text feature in {folder}; "
        f"features found: {found}"
    )


def _is_text(feature: dict[str, Any]) -> bool:
    return "text" in feature or feature.get("tensor", {}).get("dtype") in ("string", "object", "bytes")


def _array_record_items(file: File) -> Iterator[Item]:
    n = _array_record_size(file.path)
    for first in range(0, n, RECORDS_PER_ITEM):
        stop = min(first + RECORDS_PER_ITEM, n)
        yield Item((file.path, first, stop), file.n_bytes * stop // n - file.n_bytes * first // n)


def _array_record_size(path: str) -> int:
    with _array_record(path) as reader:
        return reader.num_records()


def _read_array_record(path: str, first: int, stop: int) -> list[bytes]:
    with _array_record(path) as reader:
        return reader.read(list(range(first, stop)))


@contextmanager
def _array_record(path: str) -> Iterator[Any]:
    """An ArrayRecordReader; InputError where the file is damaged or the package has no wheel for this platform."""
    try:
        from array_record.python.array_record_module import ArrayRecordReader
    except ImportError:
        raise InputError(f"data.source: {path}; ArrayRecord files need: pip install array_record") from None
    try:
        reader = ArrayRecordReader(path)
        yield reader
        reader.close()
    except (RuntimeError, ValueError, IndexError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"data.source: {path}; truncated or damaged ArrayRecord file ({reason})") from None


def _tfrecord_items(file: File) -> Iterator[Item]:
    """TFRecord: length (8 bytes), its checksum (4), data, its checksum (4); optionally gzip around the whole."""
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
                yield Item((file.path, first, records), at - seen)
                first, records, seen = first + len(records), [], at
    if records:
        yield Item((file.path, first, records), at - seen)


def example_feature(example: bytes, name: bytes) -> list[bytes]:
    """The bytes values of a feature of a serialised ``tf.train.Example``, [] when it is not there.

    Example {1: Features {1: map entry {1: key, 2: Feature {1: BytesList {1: repeated bytes}}}}}, all of them
    length-delimited fields of the protocol buffers' wire format.
    """
    for features in _fields(example):
        for entry in _fields(features):
            parts = dict(_numbered(entry))
            if parts.get(1) == name:
                return [v for bytes_list in _fields(parts.get(2, b"")) for v in _fields(bytes_list)]
    return []


def _fields(message: bytes) -> list[bytes]:
    """The length-delimited values of field 1."""
    return [value for number, value in _numbered(message) if number == 1]


def _numbered(message: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        if tag & 7 != 2:
            return  # Example holds nothing else before its values
        length, at = _varint(message, at)
        yield tag >> 3, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        if shift == 63:  # ten bytes at most: a number has 64 bits
            raise IndexError("not a number of a protocol buffer")
        shift += 7
