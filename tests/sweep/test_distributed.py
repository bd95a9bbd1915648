"""A slice of two hosts, as two processes of this machine: process 0 decides and writes, the other follows."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from checkout import SMOKE
from cli_tools import begun
from sweep_tools import (
    assert_complete,
    make_plan,
    order,
    processes_of_a_slice,
    results_of,
    start,
    wait_for,
    workers_of,
)

from dwsweep.errors import InputError
from dwsweep.sweep import multihost
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Joined
from dwsweep.sweep.multihost import settings


def test_the_slice_is_described_whole_or_not_at_all() -> None:
    assert settings({}) == {}
    whole = {"DWSWEEP_COORDINATOR": "a:1", "DWSWEEP_PROCESSES": "4", "DWSWEEP_PROCESS": "3"}
    assert settings(whole) == {"coordinator_address": "a:1", "num_processes": 4, "process_id": 3}
    for wrong in ({"DWSWEEP_PROCESS": "4"}, {"DWSWEEP_PROCESSES": "x"}, {"DWSWEEP_COORDINATOR": ""}):
        with pytest.raises(InputError, match="allowed: all three"):
            settings({**whole, **wrong})


def test_another_host_than_the_first_says_so_and_ends_as_the_first_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its worker dies with another's, the host joins again."""
    released = [None, 3]
    follower = SimpleNamespace(
        join=lambda log: Joined(1, 2), follow=lambda: released.pop(0), stop=lambda cause: None, kill=lambda: None
    )
    monkeypatch.setattr(multihost, "WorkerProcess", lambda **_: follower)
    said: list[str] = []
    assert multihost.join_slice("/nowhere", lambda worker: pytest.fail("two leaders"), said.append) == 3
    assert said[0] == "process 1 of 2: follows process 0" and ["joins again" in line for line in said] == [False, True]


def two_hosts(tmp_path: Path, directory: Path) -> list[subprocess.Popen[str]]:
    orders = {"JAX_PLATFORMS": "cpu", "SWEEP_STANDIN": str(tmp_path / "orders.json")}
    return [start(directory, more={**orders, **process}, distributed=True) for process in processes_of_a_slice()]


def ends(hosts: list[subprocess.Popen[str]]) -> tuple[list[int], list[str]]:
    texts = [host.communicate(timeout=600)[0] for host in hosts]
    assert all("Traceback" not in text for text in texts), texts
    return [host.returncode for host in hosts], texts


def test_interrupted_while_it_waits_for_the_others(tmp_path: Path) -> None:
    """Its worker goes too: left behind, it would hold the coordinator's port against the next attempt."""
    host, other = two_hosts(tmp_path, tmp_path / "sweep")
    other.kill()
    (worker,) = wait_for(lambda: workers_of(host.pid), 60)
    host.send_signal(signal.SIGINT)
    host.communicate(timeout=60)
    wait_for(lambda: not Path(f"/proc/{worker}").exists(), 30)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_killed_worker_of_a_slice(tmp_path: Path, lost: int) -> None:
    order(tmp_path, step_seconds=0.2)
    directory = tmp_path / "sweep"
    hosts = two_hosts(tmp_path, directory)
    store = SweepStore(directory)
    wait_for(lambda: any(store.progress(name).step > 6 for name in store.pack_ids()), 120)
    os.kill(workers_of(hosts[lost].pid)[0], signal.SIGKILL)
    order(tmp_path)
    statuses, texts = ends(hosts)
    assert statuses == [0, 0], texts
    assert "joins again" in texts[1] and "retry 1 of 2" in texts[0]
    assert_complete(make_plan(), directory)


# The real trainer by the command line: several processes of one slice equal one, whatever happens in between.


SMALL = ("grid.depths=[1,2]", "grid.budgets=[1e4]", "grid.seeds=2", "execution.checkpoint_seconds=1")


def command(directory: Path, steps: int, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    sets = [part for setting in (*SMALL, f"train.steps={steps}") for part in ("--set", setting)]
    distributed = ["--distributed"] if environment else []
    arguments = ("run", str(SMOKE), "--out", str(directory), *sets, *arguments, *distributed)
    return begun(*arguments, **{"JAX_PLATFORMS": "cpu", **environment})


def slice_of_two(directory: Path, steps: int) -> list[subprocess.Popen[str]]:
    return [command(directory, steps, **process) for process in processes_of_a_slice()]


def results(directory: Path) -> dict[str, dict[str, str]]:
    return {row["run_id"]: row for row in results_of(directory)}


def assert_alike(one: Path, other: Path) -> None:
    a, b = results(one), results(other)
    assert a.keys() == b.keys() and len(a) == 4
    for run_id, row in a.items():
        assert row["status"] == b[run_id]["status"] == "done"
        assert float(row["loss"]) == pytest.approx(float(b[run_id]["loss"]), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("told", [0, 1])
def test_a_slice_of_two_hosts_that_is_preempted_goes_on_and_equals_one_host(tmp_path: Path, told: int) -> None:
    steps = 1500
    assert ends([command(tmp_path / "one", steps)])[0] == [0]
    hosts = slice_of_two(tmp_path / "two", steps)
    store = SweepStore(tmp_path / "two")
    wait_for(lambda: any(store.progress(name).step > 20 for name in store.pack_ids()), 300)
    os.kill(hosts[told].pid, signal.SIGTERM)
    assert ends(hosts)[0] == [3, 3]
    assert any(store.newest_checkpoint(name) for name in store.pack_ids())
    for _ in range(2):  # the second time there is nothing to train: still both end, and alike
        assert ends(slice_of_two(tmp_path / "two", steps))[0] == [0, 0]
    assert_alike(tmp_path / "one", tmp_path / "two")
    for pack_id in store.pack_ids():
        assert (store.pack_directory(pack_id) / "log-1.txt").exists()  # the other host had its part in it
    assert len(store.manifest.calls) == 2  # of the first host, and none of the call that trained nothing


@pytest.mark.slow
def test_who_trains_a_pack_does_not_show_in_its_last_bits(tmp_path: Path) -> None:
    """The whole sweep with its two workers; each pack by a shard of its own; one pack alone, deleted and trained again.

    On a host with several cores: a worker alone would have all of them, and another number of threads rounds otherwise.
    """
    whole, shards = tmp_path / "whole", tmp_path / "shards"
    assert ends([command(whole, 60)])[0] == [0]
    for k in range(2):
        assert ends([command(shards, 60, "--shard", f"{k}/2")])[0] == [0]
    losses = {run_id: row["loss"] for run_id, row in results(whole).items()}
    assert losses == {run_id: row["loss"] for run_id, row in results(shards).items()}
    store = SweepStore(whole)
    lost = store.pack_ids()[0]
    for run_id in store.run_ids():
        if (config := store.config(run_id)) and config.pack_id == lost:
            shutil.rmtree(store.run_directory(run_id))
    shutil.rmtree(store.pack_directory(lost))
    assert ends([command(whole, 60)])[0] == [0]
    assert losses == {run_id: row["loss"] for run_id, row in results(whole).items()}
