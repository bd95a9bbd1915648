"""A slice of two hosts, as two processes of this machine: process 0 decides and writes, the other follows."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from sweep_tools import assert_complete, make_plan, order, processes_of_a_slice, run, start, wait_for, workers_of

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


def test_ray_and_a_slice_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--distributed: with --executor ray"):
        run(make_plan(), tmp_path / "sweep", executor="ray", distributed=True)


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
    texts = [host.communicate(timeout=300)[0] for host in hosts]
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
