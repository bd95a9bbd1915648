"""Paths of a command line, in this process: in a bucket as on a disk, empty ones refused, brackets left alone."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
import sweep_bucket
from cli_tools import Command
from report_sweeps import rows, write_csv

from dwsweep import paths
from dwsweep.design import study
from dwsweep.records import bench as bench_record
from dwsweep.records.bench import BenchRow

pytestmark = pytest.mark.usefixtures("short_guideline")

SPEC = """
name: small
grid: {depths: [1, 2], budgets: [1.0e4, 3.0e4], heads: {count: 2}, seeds: 1}
train: {seq_len: 64, batch_size: 4, steps: 5}
"""
BENCH = [BenchRow(device_kind="NVIDIA H200", depth=1, width=32, tokens_per_second=1e6, flops_per_token=1e6)]


@pytest.fixture(autouse=True)
def spec_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DWSWEEP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "spec.yaml").write_text(SPEC)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], set[str]]:
    """The names of all objects."""
    folder = sweep_bucket.lead_to(tmp_path / "bucket", monkeypatch)
    return lambda: set(sweep_bucket.objects(folder))


@pytest.mark.usefixtures("without_drawing")
def test_every_command_reads_and_writes_in_a_bucket(
    dwsweep: Command, bucket: Callable[[], set[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_csv(rows((2, 4), sizes=4, low=1e5, high=1e6), tmp_path / "table.csv")
    paths.write_atomic(paths.as_path("gs://b/sweep/results.csv"), table.read_text())
    paths.write_atomic(paths.as_path("gs://b/spec.yaml"), SPEC)
    bench_record.write(BENCH, "gs://b/sweep")
    monkeypatch.setitem(study.__globals__, "alternatives", lambda *_: ())  # most of the time of `design`

    def done(*arguments: str) -> str:
        result = dwsweep(*arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert "gs://b/sweep/fit/fit.json" in done("fit", "gs://b/sweep")
    assert {"b/sweep/fit/cells.csv", "b/sweep/fit/guideline.md"} <= bucket()
    assert done("report", "gs://b/sweep") == "gs://b/sweep/report.html\n"
    done("guide", "--params", "1M", "--fit", "gs://b/sweep", "--out", "gs://b/g")
    done("design", "gs://b/spec.yaml", "--fit", "gs://b/sweep")
    out = done("plan", "gs://b/spec.yaml", "--json", "--out", "gs://b/sweep")
    assert json.loads(out)["totals"]["time_basis"].startswith("measured by `bench` on NVIDIA H200")
    assert {"b/sweep/report.html", "b/g/guide.png", "b/sweep/plan.csv"} <= bucket()
    assert "4 pending" in done("status", "gs://b/sweep")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("gs:")]


@pytest.mark.parametrize("arguments", [("plan", "spec.yaml", "--out", "PATH"), ("fit", "PATH")], ids=" ".join)
def test_wrong_paths_are_one_line(
    dwsweep: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    def missing(*_: Any) -> None:
        raise ImportError("Please install gcsfs")

    monkeypatch.setattr(fsspec, "get_filesystem_class", missing)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    for path, words in (
        ("", "must be a path"),
        ("gs://b/x", "pip install -c constraints.txt '.[gcs]'"),
        ("hdfs://b/x", "must be gs://… or local"),
    ):
        result = dwsweep(*(path if item == "PATH" else item for item in arguments))
        assert (result.returncode, result.stdout) == (2, "") and words in result.stderr
        assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]


def test_no_command_reads_markup_in_what_it_is_given(dwsweep: Command) -> None:
    name = "x/[bold]x[/nope]:smile:"
    result = dwsweep("plan", "spec.yaml", "--out", name, "--set", f"data.source='text:{name}'")
    assert (result.returncode, result.stderr) == (0, f"wrote {name}/plan.csv\n") and f"text:{name}" in result.stdout
    assert dwsweep("status", name).returncode == 0
