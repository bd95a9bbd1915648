"""A sweep directory in a bucket: no append, no rename, metrics in segments."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sweep_bucket
from sentences import says
from sweep_tools import ONE_PACK, assert_complete, make_plan, order, results_of, run, train_here, work_in

from dwsweep import jsonl, paths
from dwsweep.errors import InputError
from dwsweep.records.run import RunResult
from dwsweep.sweep import claim
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.snapshot import snapshot
from dwsweep.trained import runs


@pytest.fixture(autouse=True)
def bucket(standin: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DWSWEEP_CACHE", str(tmp_path / "cache"))
    return sweep_bucket.lead_to(tmp_path / "bucket", monkeypatch)


def test_a_path_of_a_bucket_stays_one() -> None:
    for text in ("gs://bucket/a/b", "gs:/bucket/a/b"):  # pathlib, on its way through a command line, folds slashes
        assert os.fspath(paths.as_path(text)) == "gs://bucket/a/b"
    assert paths.absolute(Path("gs://bucket/a")) == "gs://bucket/a"
    assert isinstance(paths.as_path("gsx/a"), Path)
    for text in ("s3://bucket/a", "s3:/bucket/a"):
        with pytest.raises(InputError, match="must be gs://… or local"):
            paths.as_path(text)


def test_lines_go_up_in_segments(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = paths.as_path("gs://b/run/metrics.jsonl")
    writer = jsonl.LineWriter(path)
    writer.append([{"step": 1}])
    assert not sweep_bucket.objects(bucket)
    writer.flush()
    monkeypatch.setattr(jsonl, "SEGMENT_SECONDS", 0.0)
    writer.append([{"step": 2}, {"step": 3}])
    assert sweep_bucket.objects(bucket) == ["b/run/metrics.jsonl.000001", "b/run/metrics.jsonl.000002"]
    assert jsonl.read_lines(path) == [{"step": 1}, {"step": 2}, {"step": 3}]
    # another process goes on where this one stopped
    other = jsonl.LineWriter(path)
    other.append([{"step": 4}])
    assert sweep_bucket.objects(bucket)[-1].endswith(".000003")
    jsonl.rewrite_lines(path, jsonl.read_lines(path))
    assert sweep_bucket.objects(bucket) == ["b/run/metrics.jsonl"]
    assert [row["step"] for row in jsonl.read_lines(path)] == [1, 2, 3, 4]


def test_a_sweep_in_a_bucket_goes_on_where_it_was_interrupted(bucket: Path, tmp_path: Path) -> None:
    plan, store = make_plan(**ONE_PACK), SweepStore("gs://b/sweep")
    order(tmp_path, terminate_at=17)
    assert run(plan, "gs://b/sweep")[0] == 3
    assert any(store.newest_checkpoint(pack.pack_id) for pack in plan.packs)
    order(tmp_path)
    state, text = run(plan, "gs://b/sweep")
    assert state == 0, text
    assert_complete(plan, "gs://b/sweep")
    assert not [name for name in sweep_bucket.objects(bucket) if ".jsonl.0" in name]
    assert claim.owners("gs://b/sweep") == []
    assert [row["status"] for row in results_of("gs://b/sweep")] == ["done"] * 2
    logs = [(store.pack_directory(pack.pack_id) / "log.txt").read_text() for pack in plan.packs]
    assert any("attempt 1" in log and "attempt 2" in log for log in logs)
    assert work_in(run(plan, "gs://b/sweep")[1]) == (0, 0, 2)
    assert snapshot("gs://b/sweep").count("done") == 2


@pytest.mark.parametrize("host_lost", [False, True])
def test_a_killed_worker_in_a_bucket(
    bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host_lost: bool
) -> None:
    """What it had not uploaded is found by its successor on the same host. A host that dies takes it along, and
    the bucket has what belongs to a checkpoint by then."""
    order(tmp_path, kill_at=17)
    plan = make_plan(**ONE_PACK, execution={"checkpoint_steps": 5, "max_retries": 0})
    assert run(plan, "gs://b/sweep")[0] == 1
    assert list((tmp_path / "cache").rglob("*.jsonl*"))
    if host_lost:
        shutil.rmtree(tmp_path / "cache")
    order(tmp_path)
    train_here(monkeypatch)
    assert run(plan, "gs://b/sweep", retry={"failed"})[0] == 0
    assert_complete(plan, "gs://b/sweep")


def test_parameters_in_a_bucket(bucket: Path) -> None:
    plan, store = make_plan(), SweepStore("gs://b/sweep")
    store.write_plan(plan)
    name, params = plan.runs[0].run_id, {"embedding": np.ones((2, 3), np.float32)}
    store.finish(name, "p", RunResult(3.0, steps=30), np.array([[3.0, 1.0]]), params)
    for place in ("gs://b/sweep", f"gs://b/sweep/runs/{name}"):
        (found,) = runs.find(place)
        np.testing.assert_array_equal(found.arrays()["embedding"], params["embedding"])
    store.params_path(name).write_bytes(b"cut")
    with pytest.raises(InputError, match=r"runs/.*/params\.safetensors: is damaged"):
        found.arrays()
    store.params_path(name).unlink()
    with pytest.raises(InputError, match="is not there"):
        found.arrays()


def test_a_bucket_that_does_not_answer_interrupts_the_sweep(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the clients raise after their own retries, told by the package it comes from."""
    train_here(monkeypatch)
    error = type("ClientConnectorError", (Exception,), {"__module__": "aiohttp.client_exceptions"})
    write = sweep_bucket.Bucket._open

    def fails(self: sweep_bucket.Bucket, path: str, mode: str = "rb", **more: Any) -> Any:
        if mode == "wb" and path.endswith("results.csv"):
            raise error("Cannot connect to host")
        return write(self, path, mode, **more)

    with monkeypatch.context() as patch:
        patch.setattr(sweep_bucket.Bucket, "_open", fails)
        state, text = run(make_plan(), "gs://b/sweep")
    assert state == 3 and says(text, "sweep: bucket does not answer")
    assert run(make_plan(), "gs://b/sweep")[0] == 0


def test_what_a_client_says_of_a_wrong_name_or_key_is_no_silence() -> None:
    failed = type("HttpError", (Exception,), {"__module__": "gcsfs.retry"})
    refused, busy = failed("NoSuchBucket"), failed("slow down")
    refused.code, busy.code = 404, 503  # type: ignore[attr-defined]
    assert paths.out_of_reach(refused) is None and paths.out_of_reach(busy) is not None
    assert paths.out_of_reach(TimeoutError("of a local disk")) is None
