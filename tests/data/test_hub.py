"""hf: a local data set folder through ``datasets`` itself; what is wrong with a source is said without it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import corpus_tools
import pytest

from dwsweep.data.hub import HubRows
from dwsweep.data.prepare import find, prepare
from dwsweep.data.sources import open_source
from dwsweep.errors import InputError
from dwsweep.spec import DataSpec

TEXTS = [f"Row {i} – ünï. " * (i % 7 + 1) + f"end {i}" for i in range(600)]
CONFIGS = """---
configs:
- config_name: first
  data_files: first/*.parquet
- config_name: second
  data_files: second/*.parquet
---
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two configurations; the first has its text in two shards and several row groups, and a test split."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(name: str, texts: list[str]) -> None:
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": list(range(len(texts))), "content": texts}), path, row_group_size=100)

    write("first/train-00000-of-00002.parquet", TEXTS[:350])
    write("first/train-00001-of-00002.parquet", TEXTS[350:])
    write("first/test-00000-of-00001.parquet", TEXTS[:40])
    write("second/train-00000-of-00001.parquet", TEXTS[:80])
    (tmp_path / "set" / "README.md").write_text(CONFIGS)
    return tmp_path / "set"


def data_spec(source: str, tmp_path: Path, **settings: object) -> DataSpec:
    return corpus_tools.data_spec(source, tmp_path / "cache", vocab_size=256, **settings)


@pytest.mark.hf
def test_a_local_folder_gives_what_its_files_hold(folder: Path, tmp_path: Path) -> None:
    data = data_spec(f"hf:{folder}/first@train", tmp_path)
    assert find(data) is None
    store = prepare(data, progress=False)
    same = prepare(data_spec(f"parquet:{folder}/first/train-*.parquet", tmp_path), progress=False)
    assert store.data_hash == same.data_hash and store.manifest.n_documents == len(TEXTS)
    found = find(data)
    assert found is not None and found.path == store.path
    counts = {f"hf:{folder}/first@test": 40, f"hf:{folder}/first": 600}
    for source, n in counts.items():
        assert prepare(data_spec(source, tmp_path), progress=False).manifest.n_documents == n
    (folder / "first" / "note.txt").write_text("a file more is another state of the folder")
    assert find(data) is None


@pytest.mark.hf
def test_what_is_not_there_is_one_line_with_what_is(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "train.parquet").write_bytes((folder / "second/train-00000-of-00001.parquet").read_bytes()[:99])
    for source, settings, wanted in (
        (f"{folder}", {}, "Please pick one among the available configs: .'first', 'second'"),
        (f"{folder}/first@validation", {}, "Bad split: validation. Available splits"),
        (
            f"{folder}/first",
            {"text_field": "body"},
            "data.text_field: body; no such string field in .*found: id .int64",
        ),
        (f"{folder}/first", {"text_field": "id"}, r"data.text_field: id; .* id \(int64\), content \(string\)"),
        (f"{tmp_path}/cut", {}, "cannot be read"),
    ):
        with pytest.raises(InputError, match=wanted) as error:
            prepare(data_spec(f"hf:{source}", tmp_path, **settings), progress=False)
        assert len(error.value.lines) == 1 and "\n" not in str(error.value)
    assert not list((tmp_path / "cache").glob("*.partial"))


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("@train", "must be NAME"),
        ("a/b@c@d", "must be NAME"),
        ("a/b?revision=", "must be NAME"),
        ("./nowhere/x", "no such folder"),
        ("a b/c", "must be a folder, or OWNER/NAME"),
    ],
)
def test_a_form_that_is_none(source: str, wanted: str) -> None:
    with pytest.raises(InputError, match=f"data.source: hf:.*{wanted}"):
        open_source(f"hf:{source}")


def test_a_commit_given_in_full_needs_no_network_and_tells_stores_apart(folder: Path) -> None:
    first, second, other = (
        open_source(f"hf:own/set/en@test?revision={commit * 40}", field)
        for commit, field in (("a", None), ("b", None), ("a", "body"))
    )
    assert isinstance(first, HubRows)
    assert (first.name, first.config, first.split, first.revision) == ("own/set", "en", "test", "a" * 40)
    assert first.identity() == other.identity() != second.identity()
    with pytest.raises(InputError, match="a local folder has no revision"):
        open_source(f"hf:{folder}?revision=main")


def test_without_the_extra_one_line_names_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("datasets", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, package, None)
    for source in (f"hf:{folder}/first", "hf:own/set"):
        with pytest.raises(InputError, match=r"pip install -c constraints.txt '\.\[hf\]'"):
            prepare(data_spec(source, tmp_path), progress=False)


@pytest.mark.hf
def test_a_data_set_of_the_hub_is_read_at_one_commit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The libraries' two calls, answered in place of the Hub: the commit of a name, and rows at a commit."""
    import datasets
    import huggingface_hub

    commit, asked, load = "c0ffee" * 6 + "c0ff", [], datasets.load_dataset

    def rows(*place: str, **options: Any) -> Any:
        asked.append((*place, options["split"], options["revision"]))
        files = {"train": f"{folder}/first/train-*.parquet"}
        return load("parquet", data_files=files, split="train", streaming=True)

    answer = SimpleNamespace(sha=commit)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: answer)
    monkeypatch.setattr(datasets, "load_dataset", rows)
    manifest = prepare(data_spec("hf:own/set/first", tmp_path), progress=False).manifest
    assert (manifest.revision, manifest.n_documents) == (commit, len(TEXTS))
    assert asked == [("own/set", "first", "train", commit)]
