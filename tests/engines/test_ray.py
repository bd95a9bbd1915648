"""An external Ray cluster of a head and two nodes on loopback, joined by ``--address``.

A worker is killed, the head is killed and started again, and a raylet is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_tools import PATIENCE, arguments, begun, dwsweep, losses, wait_for
from sweep_tools import workers_of

from dwsweep.sweep.directory import SweepStore

SPEC = arguments(**{"train.steps": 1000, "execution.checkpoint_steps": 100})


@contextmanager
def cluster() -> Iterator[tuple[Any, list[Any]]]:
    """(the cluster, its two nodes for tasks); each node has this host's cores, as a local run has."""
    pytest.importorskip("ray", reason="ray is not installed: pip install -c constraints.txt '.[ray]'")
    from ray.cluster_utils import Cluster

    loopback = {"node_ip_address": "127.0.0.1", "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **loopback})
    try:
        nodes = [made.add_node(num_cpus=len(os.sched_getaffinity(0)), **loopback) for _ in range(2)]
        made.wait_for_nodes()
        yield made, nodes
    finally:
        made.shutdown()


def below(process: int) -> list[int]:
    found = workers_of(process)
    return found + [deeper for one in found for deeper in below(one)]


def trainers(node: Any) -> list[int]:
    """The worker processes of dwsweep on a node."""
    (raylet,) = node.all_processes["raylet"]
    found = []
    for one in below(raylet.process.pid):
        with contextlib.suppress(FileNotFoundError):  # it has ended since
            if b"\0dwsweep.sweep\0" in Path(f"/proc/{one}/cmdline").read_bytes():
                found.append(one)
    return found


def test_a_worker_a_head_and_a_raylet_are_killed_and_the_bits_are_a_local_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # else Ray takes no loopback address
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # 15 by default: beside other work a test would take for ever
    out, log = tmp_path / "sweep", tmp_path / "log"
    store = SweepStore(out)

    def at_work() -> bool:
        return out.exists() and sum(store.progress(name).step > 100 for name in store.pack_ids()) == 2

    def attempts() -> int:
        return sum(store.pack_state(name).attempts for name in store.pack_ids())

    with cluster() as (made, nodes):
        command = ["run", *SPEC, "--out", out, "--executor", "ray", "--address"]
        process = begun(log, *command, made.address)
        wait_for(at_work, log.read_text)
        os.kill(trainers(nodes[0])[0], signal.SIGKILL)
        wait_for(lambda: attempts() == 3, log.read_text)
        made.head_node.kill_gcs_server()
        assert process.wait(PATIENCE) == 3, log.read_text()
        text = log.read_text("utf-8")
        assert "was killed by SIGKILL" in text and "the Ray cluster is lost" in text and "Traceback" not in text, text
    with cluster() as (made, nodes):
        before = attempts()
        process = begun(log, *command, made.address)
        # one pack may have ended before the head was lost: the other one is on either node
        wait_for(lambda: attempts() > before and any(map(trainers, nodes)), log.read_text)
        made.remove_node(next(node for node in nodes if trainers(node)), allow_graceful=False)
        assert process.wait(PATIENCE) == 0, log.read_text()
        assert "was lost" in log.read_text("utf-8")
    local = tmp_path / "local"
    assert dwsweep("run", *SPEC, "--out", local).returncode == 0
    assert losses(out) == losses(local)
