"""The command line with the real trainer: several processes of one slice equal one, whatever happens in between."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from checkout import SMOKE
from cli_tools import begun
from sweep_tools import processes_of_a_slice, wait_for

from dwsweep.sweep.directory import SweepStore

SMALL = ("grid.depths=[1,2]", "grid.budgets=[1e4]", "grid.seeds=2", "execution.checkpoint_seconds=1")


def start(directory: Path, steps: int, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    sets = [part for setting in (*SMALL, f"train.steps={steps}") for part in ("--set", setting)]
    distributed = ["--distributed"] if environment else []
    arguments = ("run", str(SMOKE), "--out", str(directory), *sets, *arguments, *distributed)
    return begun(*arguments, **{"JAX_PLATFORMS": "cpu", **environment})


def slice_of_two(directory: Path, steps: int) -> list[subprocess.Popen[str]]:
    return [start(directory, steps, **process) for process in processes_of_a_slice()]


def ends(processes: list[subprocess.Popen[str]]) -> list[int]:
    texts = [process.communicate(timeout=600)[0] for process in processes]
    assert all("Traceback" not in text for text in texts), texts
    return [process.returncode for process in processes]


def results(directory: Path) -> dict[str, dict[str, Any]]:
    with (directory / "results.csv").open() as file:
        return {row["run_id"]: row for row in csv.DictReader(file)}


def assert_alike(one: Path, other: Path) -> None:
    a, b = results(one), results(other)
    assert a.keys() == b.keys() and len(a) == 4
    for run_id, row in a.items():
        assert row["status"] == b[run_id]["status"] == "done"
        assert float(row["loss"]) == pytest.approx(float(b[run_id]["loss"]), abs=1e-4)


@pytest.mark.slow
def test_a_slice_of_two_hosts_equals_one_host(tmp_path: Path) -> None:
    assert ends([start(tmp_path / "one", 40)]) == [0]
    assert ends(slice_of_two(tmp_path / "two", 40)) == [0, 0]
    assert_alike(tmp_path / "one", tmp_path / "two")
    store = SweepStore(tmp_path / "two")
    for pack_id in store.pack_ids():
        assert (store.pack_directory(pack_id) / "log-1.txt").exists()  # the other host had its part in it
    assert len(store.manifest.calls) == 1  # and recorded nothing
    assert ends(slice_of_two(tmp_path / "two", 40)) == [0, 0]  # nothing to train: still both end, and alike


@pytest.mark.slow
@pytest.mark.parametrize("told", [0, 1])
def test_a_slice_that_is_preempted_goes_on(tmp_path: Path, told: int) -> None:
    steps = 1500
    assert ends([start(tmp_path / "one", steps)]) == [0]
    hosts = slice_of_two(tmp_path / "two", steps)
    store = SweepStore(tmp_path / "two")
    wait_for(lambda: any(store.progress(name).step > 20 for name in store.pack_ids()), 300)
    os.kill(hosts[told].pid, signal.SIGTERM)
    assert ends(hosts) == [3, 3]
    assert any(store.newest_checkpoint(name) for name in store.pack_ids())
    assert ends(slice_of_two(tmp_path / "two", steps)) == [0, 0]
    assert_alike(tmp_path / "one", tmp_path / "two")


@pytest.mark.slow
def test_who_trains_a_pack_does_not_show_in_its_last_bits(tmp_path: Path) -> None:
    """The whole sweep with its two workers; each pack by a shard of its own; one pack alone, deleted and trained again.

    On a host with several cores: a worker alone would have all of them, and another number of threads rounds otherwise.
    """
    whole, shards = tmp_path / "whole", tmp_path / "shards"
    assert ends([start(whole, 60)]) == [0]
    for k in range(2):
        assert ends([start(shards, 60, "--shard", f"{k}/2")]) == [0]
    losses = {run_id: row["loss"] for run_id, row in results(whole).items()}
    assert losses == {run_id: row["loss"] for run_id, row in results(shards).items()}
    store = SweepStore(whole)
    lost = store.pack_ids()[0]
    for run_id in store.run_ids():
        if (config := store.config(run_id)) and config.pack_id == lost:
            shutil.rmtree(store.run_directory(run_id))
    shutil.rmtree(store.pack_directory(lost))
    assert ends([start(whole, 60)]) == [0]
    assert losses == {run_id: row["loss"] for run_id, row in results(whole).items()}
