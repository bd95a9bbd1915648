"""Paths of a command line, in this process: in a bucket as on a disk, empty ones refused, brackets left alone."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
import sweep_bucket
from cli_tools import Command
from report_sweeps import rows, write_csv

from dwsweep import paths
from dwsweep.data import prepare
from dwsweep.records import bench as bench_record
from dwsweep.records.bench import BenchRow
from dwsweep.report import plan_report
from dwsweep.sweep import runner

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

    def done(*arguments: str) -> str:
        result = dwsweep(*arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert "gs://b/sweep/fit/fit.json" in done("fit", "gs://b/sweep", "--draws", "100")
    assert {"b/sweep/fit/cells.csv", "b/sweep/fit/loss_vs_depth.png", "b/sweep/fit/loss_vs_depth.svg"} <= bucket()
    assert done("report", "gs://b/sweep") == "gs://b/sweep/report.html\n"
    done("guide", "--params", "1M", "--fit", "gs://b/sweep", "--bench", "gs://b/sweep/bench.json", "--out", "gs://b/g")
    done("design", "gs://b/spec.yaml", "--fit", "gs://b/sweep")
    out = done("plan", "gs://b/spec.yaml", "--json", "--out", "gs://b/sweep")
    assert json.loads(out)["totals"]["time_basis"].startswith("measured by `bench` on NVIDIA H200")
    assert {"b/sweep/report.html", "b/g/guide.png", "b/sweep/plan.csv"} <= bucket()
    assert "4 pending" in done("status", "gs://b/sweep")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("gs:")]


WITH_PATHS = [
    ("plan", "PATH"),
    ("plan", "spec.yaml", "--out", "PATH"),
    ("fit", "PATH"),
    ("guide", "--fit", "PATH"),
    ("guide", "--bench", "PATH"),
    ("design", "spec.yaml", "--fit", "PATH"),
    ("report", "PATH"),
]


@pytest.mark.parametrize("arguments", WITH_PATHS, ids=" ".join)
def test_wrong_paths_are_one_line_for_every_command(
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


def test_run_plans_with_the_rates_that_plan_showed(
    dwsweep: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held_out = SimpleNamespace(splits={"validation": SimpleNamespace(n_documents=100)})
    store = SimpleNamespace(
        data_hash="f" * 64, n_train_tokens=10**6, n_validation_tokens=10**4, path=tmp_path, manifest=held_out
    )
    carried_out: list[Any] = []
    monkeypatch.setattr(prepare, "prepare", lambda _: store)
    monkeypatch.setattr(prepare, "find", lambda _: store)
    monkeypatch.setattr(runner, "run_sweep", lambda plan, *_, **__: carried_out.append(plan) or 0)
    bench_record.write(BENCH, "runs/small")
    shown = dwsweep("plan", "spec.yaml", "--json")
    assert shown.returncode == 0 and dwsweep("run", "spec.yaml").returncode == 0
    assert json.loads(json.dumps(plan_report.to_json(carried_out[0]))) == json.loads(shown.stdout)
    assert carried_out[0].estimates.device_seconds > 0


HOSTILE = "x/[bold]x[/nope]:smile:"


def test_no_command_reads_markup_in_what_it_is_given(dwsweep: Command) -> None:
    result = dwsweep("plan", "spec.yaml", "--out", HOSTILE)
    assert (result.returncode, result.stderr) == (0, f"wrote {HOSTILE}/plan.csv\n")
    result = dwsweep("plan", "spec.yaml", "--set", f"data.source='text:{HOSTILE}'")
    assert result.returncode == 0 and f"text:{HOSTILE}" in result.stdout
    assert dwsweep("status", HOSTILE).returncode == 0
    result = dwsweep("fit", HOSTILE)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
