"""The Ray executor on a real cluster of this machine: two nodes, one of them killed in mid-run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sweep_tools import assert_complete, environment, make_plan, run, start, wait_for

from dwsweep.errors import InputError
from dwsweep.sweep.store import SweepStore


def test_a_task_asks_for_one_nodes_share() -> None:
    from dwsweep.sweep.ray_cluster import needs

    hosts = [{"CPU": 64.0, "GPU": 8.0}, {"CPU": 32.0, "GPU": 4.0}, {"CPU": 96.0}]
    assert needs(hosts, 1) == {"GPU": 4.0}
    assert needs(hosts, 4) == {"GPU": 1.0}
    assert needs(hosts, 8) == {"GPU": 0.5}
    assert needs([{"CPU": 8.0, "TPU": 4.0}], 4) == {"TPU": 1.0}
    assert needs([{"CPU": 8.0}, {"CPU": 4.0}], 1) == {"CPU": 4.0}
    assert needs([], 1) == {}


@pytest.mark.slow
def test_no_cluster_at_the_address_is_one_clear_line(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    with pytest.raises(InputError, match=r"--address: 127.0.0.1:1; nobody answers there"):
        run(make_plan(), tmp_path / "sweep", executor="ray", address="127.0.0.1:1")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    for name, value in environment(SWEEP_STANDIN=str(tmp_path / "orders.json")).items():
        monkeypatch.setenv(name, value)
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    yield made
    made.shutdown()


@pytest.mark.slow
def test_a_killed_node_and_the_results_are_those_of_a_local_run(cluster: Any, tmp_path: Path) -> None:
    second = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    (tmp_path / "orders.json").write_text('{"*": {"step_seconds": 0.5}}')
    directory = tmp_path / "sweep"
    process = start(directory, executor="ray", address=cluster.address)
    store = SweepStore(directory)

    def packs_under_way() -> bool:
        return sum(store.progress(name).get("step", 0) > 6 for name in store.pack_ids()) == 2

    wait_for(packs_under_way, 120)
    cluster.remove_node(second, allow_graceful=False)
    (tmp_path / "orders.json").write_text("{}")
    text, _ = process.communicate(timeout=240)
    assert process.returncode == 0, text
    assert "was lost" in text and "retry 1 of 2" in text
    assert_complete(make_plan(), directory)
    lost = [name for name in store.pack_ids() if store.pack_state(name).attempts == 2]
    assert len(lost) == 1 and store.pack_state(lost[0]).resumed_step > 0

    local = tmp_path / "local"
    assert run(make_plan(), local)[0] == 0
    for planned in make_plan().runs:
        assert SweepStore(local).result(planned.run_id) == store.result(planned.run_id)


@pytest.mark.slow
def test_ctrl_c_reaches_the_tasks(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "orders.json").write_text('{"*": {"step_seconds": 0.2}}')
    process = start(tmp_path / "sweep", executor="ray", address=cluster.address)
    store = SweepStore(tmp_path / "sweep")
    wait_for(lambda: any(store.progress(name).get("step", 0) > 2 for name in store.pack_ids()), 120)
    os.kill(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 3, text
    interrupted = [name for name in store.pack_ids() if store.pack_state(name).state == "interrupted"]
    assert len(interrupted) == 1 and store.newest_checkpoint(interrupted[0])
    (tmp_path / "orders.json").write_text("{}")
    assert run(make_plan(), tmp_path / "sweep")[0] == 0
    assert_complete(make_plan(), tmp_path / "sweep")
