"""One writer and one reader: any value of a record has one text, and what is read is what was written; the footing of a
run's last bits; the list of columns."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dwsweep.cli.analysis import Axis
from dwsweep.errors import InputError
from dwsweep.fit.data import roles
from dwsweep.fit.data.shape import BLOCK
from dwsweep.interval import Interval
from dwsweep.records import footing, record
from dwsweep.records.columns import ALIASES, AXES, COLUMNS, IN_ANY_CASE, REQUIRED, RESULTS, of_type
from dwsweep.records.footing import Footing
from dwsweep.records.pack import StartFacts
from dwsweep.records.record import Record
from dwsweep.report.runs_table import RUN_COLUMNS


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


# Footing of last bits


def test_the_footing_here_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    found = footing.here(3, "cpu")
    assert found.flags["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=true" and "JAX_PLATFORMS" not in found.flags
    assert found.workers == 3 and (found.cores or 0) >= 1 and {"jax", "jaxlib", "python"} <= set(found.versions)
    assert all(one.islower() for one in found.instructions) and "smep" not in found.instructions


ONE = Footing("a", "EPYC", ("avx2", "avx512f"), 2, 1, {"XLA_FLAGS": "--x"}, "cpu", {"jax": "0.10.2", "python": "3.11"})


def test_what_changed_is_named_and_what_is_unknown_is_not() -> None:
    one = StartFacts("cpu", 2, {"replica": 2}, microbatch=16, attention_kernel="xla", footing=ONE)
    other = replace(one, devices=1, mesh={"replica": 1}, microbatch=8, step=7, compile_seconds=1.0)
    assert one.differences(other) == ["devices", "mesh", "microbatch"]
    assert one.differences(replace(one, footing=None)) == [] == StartFacts().differences(one)
    changed = replace(ONE, host="b", cores=None, flags={}, versions={"jax": "0.11.0", "python": "3.11"})
    assert one.differences(replace(one, footing=changed)) == ["flags", "versions"]


# The list of columns


NAMES = [column.name for column in COLUMNS]


def test_every_list_names_columns_that_are_known() -> None:
    of_roles, of_page = {*roles.KNOWN} - {BLOCK, *chain(*ALIASES.values())}, {name for name, _ in RUN_COLUMNS.values()}
    assert {*RESULTS, *REQUIRED, *of_roles, *of_page} <= set(NAMES) <= set(roles.KNOWN)


def test_a_column_stands_once_and_an_axis_has_an_option() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert list(AXES) == [axis.value for axis in Axis]
    assert set(AXES) <= set(of_type("count")) and set(ALIASES) <= set(IN_ANY_CASE)
    usual = [alias for aliases in ALIASES.values() for alias in aliases]
    assert len(set(usual)) == len(usual) and not set(usual) & set(IN_ANY_CASE)
