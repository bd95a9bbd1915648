"""One writer and one reader: any value of a record has one text, and what is read is what was written."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dwsweep.errors import InputError
from dwsweep.interval import Interval
from dwsweep.records import record
from dwsweep.records.record import Record


@dataclass(frozen=True, kw_only=True)
class Row(Record):
    loss: float | None
    depth: int
    note: str | None = None


@dataclass(frozen=True)
class Hashed:
    name: str
    params_sha256: str


@dataclass(frozen=True)
class File:
    rows: tuple[Row, ...]
    best: Interval
    curve: tuple[float | None, ...] = ()
    cause: str | None = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1.0, math.nan], [2.0, math.inf]]), [[1.0, None], [2.0, None]]),
        (math.inf, None),
        ((1, "a", None), [1, "a", None]),
        (Interval(1.0, None, math.inf), {"value": 1.0, "low": None, "high": None, "error": 0.0}),
        ({4: Row(loss=math.nan, depth=2)}, {"4": {"loss": None, "depth": 2, "note": None}}),
    ],
)
def test_a_value_is_plain_json(value: Any, text: Any) -> None:
    found = record.plain(value)
    assert found == text and json.loads(json.dumps(found)) == text


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path, rows = tmp_path / "file.json", (Row(loss=3.0, depth=2), Row(loss=None, depth=4, note="→ 4"))
    file = File(rows, Interval(2.0, 1.5, None), (1.0, None, 3.0))
    record.write(path, file)
    text = path.read_text("utf-8")
    assert record.read(path, File) == file
    assert '"curve": [ 1.0, null, 3.0 ]' in text and "→ 4" in text and "cause" not in text and '"note": null' in text
    record.write(path, list(rows))
    assert record.read(path, tuple[Row, ...]) == rows


def test_a_changed_file_is_refused_and_one_of_an_earlier_version_without_a_hash_of_itself_is_read(
    tmp_path: Path,
) -> None:
    """Though its last key is a hash, of something else."""
    path, row = tmp_path / "file.json", Hashed("a", "0" * 64)
    record.write(path, row)
    text = path.read_text("utf-8")
    path.write_text(text.replace('"a"', '"b"'))
    with pytest.raises(InputError, match="was changed or damaged after it was written"):
        record.read(path, Hashed)
    path.write_text(text[: text.index(f',\n "{record.SEAL}"')] + "\n}\n")
    assert record.read(path, Hashed) == row


def test_half_a_character_of_a_file_name_is_written(tmp_path: Path) -> None:
    name = b"r\xff".decode(errors="surrogateescape")
    record.write(tmp_path / "file.json", {"name": name})
    assert json.loads((tmp_path / "file.json").read_text("utf-8"))["name"] == name
    assert record.line_of({"name": name, "end": "\u2028"}).isascii()


def test_a_wrong_value_names_file_and_key(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"rows": [{"loss": 1.0, "depth": "2"}], "best": {}}')
    with pytest.raises(InputError, match=r"file\.json: rows\[0\]\.depth: '2'; must be a valid integer"):
        record.read(path, File)
