"""The Ray executor on a stand-in whose cluster falls apart as told; tests/engines has a real one."""

from __future__ import annotations

import functools
import queue
import socket
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sentences import says
from sweep_tools import make_plan, wait_for

from dwsweep.errors import InputError
from dwsweep.records.pack import PackProgress
from dwsweep.sweep import ray_worker
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Ended, Event, Job
from dwsweep.sweep.ray_worker import RayExecutor, needs


def test_a_task_asks_for_one_nodes_share() -> None:
    hosts = [{"CPU": 64.0, "GPU": 8.0}, {"CPU": 32.0, "GPU": 4.0}, {"CPU": 96.0}]
    assert needs(hosts, 1) == {"GPU": 4.0}
    assert needs(hosts, 4) == {"GPU": 1.0}
    assert needs(hosts, 8) == {"GPU": 0.5}
    assert needs([{"CPU": 8.0, "TPU": 4.0}], 4) == {"TPU": 1.0}
    assert needs([{"CPU": 8.0}, {"CPU": 4.0}], 1) == {"CPU": 4.0}
    assert needs([], 1) == {}


class FakeRay(types.ModuleType):
    """What the executor asks of Ray. Tasks are those of the test: they end when it says so."""

    class Cancelled(Exception):
        pass

    exceptions = types.SimpleNamespace(TaskCancelledError=Cancelled, OutOfMemoryError=MemoryError)

    def __init__(self) -> None:
        super().__init__("ray")
        self.head = socket.create_server(("127.0.0.1", 0))
        self.cluster = [{"NodeID": "own", "Alive": True, "Resources": {"CPU": 4.0}}]
        self.init_arguments: dict[str, Any] = {}
        self.asked: list[tuple[dict[str, Any], tuple[Any, ...]]] = []  # options and arguments of each task
        self.ends: dict[int, Any] = {}  # by task: what it returns or raises
        self.left = False

    def init(self, **arguments: Any) -> None:
        self.init_arguments = arguments

    def shutdown(self) -> None:
        self.left = True

    def get_runtime_context(self) -> Any:
        address = f"127.0.0.1:{self.head.getsockname()[1]}" if self.head.fileno() >= 0 else ""
        return types.SimpleNamespace(gcs_address=address, get_node_id=lambda: "own")

    def nodes(self) -> list[dict[str, Any]]:
        return self.cluster

    def remote(self, function: Any) -> Any:
        def submit(options: dict[str, Any], *arguments: Any) -> int:
            self.asked.append((options, arguments))
            return len(self.asked) - 1

        return types.SimpleNamespace(
            options=lambda **options: types.SimpleNamespace(remote=functools.partial(submit, options))
        )

    def wait(self, tasks: list[int], timeout: float) -> tuple[list[int], list[int]]:
        time.sleep(0.01)
        return [task for task in tasks if task in self.ends], []

    def get(self, task: int) -> Any:
        if isinstance(self.ends[task], Exception):
            raise self.ends[task]
        return self.ends[task]

    def cancel(self, task: int, force: bool = False) -> None:
        self.ends[task] = self.Cancelled()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name in ("POLL_SECONDS", "LOOK_SECONDS", "LOST_SECONDS"):
        monkeypatch.setattr(ray_worker, name, 0.05)
    yield fake
    fake.head.close()


class Posts(queue.Queue[tuple[str, Event]]):
    """The events of an executor, in order."""

    def __call__(self, pack_id: str, event: Event) -> None:
        self.put((pack_id, event))

    def next(self) -> tuple[str, Event]:
        return self.get(timeout=30)

    def ended(self) -> Ended:
        event = self.next()[1]
        assert isinstance(event, Ended)
        return event


def jobs(directory: Path) -> list[Job]:
    packs = make_plan().packs
    for pack in packs:
        SweepStore(directory).write_pack(pack)
    return [Job(pack.pack_id, str(directory), "/nowhere") for pack in packs]


def test_a_cluster_of_this_machine_listens_on_loopback_and_keys_are_no_part_of_the_runtime_environment(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    posts = Posts()
    executor = RayExecutor(None, posts, workers=2)
    assert ray.init_arguments["address"] == "local" and ray.init_arguments["_node_ip_address"] == "127.0.0.1"
    assert ray.init_arguments["include_dashboard"] is False
    assert executor.slots == 2
    executor.start(jobs(tmp_path)[0])
    ((options, (_, environment)),) = wait_for(lambda: ray.asked)
    assert "secret" not in str(options) and environment["WANDB_API_KEY"] == "secret"
    # half of the node: as many devices and threads as one of two workers on one host of four cores
    assert (options["num_cpus"], environment["JAX_NUM_CPU_DEVICES"], environment["NPROC"]) == (2.0, "2", "2")
    ray.ends[0] = [Ended("done")]
    assert posts.ended().kind == "done"
    executor.close()
    assert ray.left


def test_what_a_task_asks_for_does_not_follow_from_the_nodes_that_are_left(ray: FakeRay, tmp_path: Path) -> None:
    ray.cluster = [
        {"NodeID": name, "Alive": True, "Resources": {"GPU": count}} for name, count in (("own", 4.0), ("other", 1.0))
    ]
    executor = RayExecutor("auto", Posts(), workers=2)
    assert ray.init_arguments == {**ray.init_arguments, "address": "auto"} and executor.slots == 10
    executor.start(jobs(tmp_path)[0])
    wait_for(lambda: ray.asked)
    ray.cluster[1]["Alive"] = False
    wait_for(lambda: executor.slots == 8)
    executor.start(jobs(tmp_path)[1])
    wait_for(lambda: len(ray.asked) == 2)
    assert {options["num_gpus"] for options, _ in ray.asked} == {0.5}
    # two processes share a GPU: neither takes most of its memory
    assert {arguments[1]["XLA_PYTHON_CLIENT_MEM_FRACTION"] for _, arguments in ray.asked} == {"0.450"}
    executor.kill()
    executor.close()


def test_a_cluster_without_devices_is_one_clear_line(ray: FakeRay) -> None:
    ray.cluster = [{"NodeID": "own", "Alive": True, "Resources": {"memory": 1e9}}]
    with pytest.raises(InputError, match=r"--address: auto; none of its live nodes has a CPU, GPU or TPU"):
        RayExecutor("auto", Posts())
    assert ray.left


def test_a_damaged_progress_file_does_not_end_the_watch(ray: FakeRay, tmp_path: Path) -> None:
    posts = Posts()
    executor = RayExecutor("auto", posts)
    job = jobs(tmp_path)[0]
    store = SweepStore(tmp_path)
    path = store.pack_directory(job.pack_id) / "progress.json"
    executor.start(job)
    wait_for(lambda: ray.asked)
    path.write_text('{"upd')
    time.sleep(0.1)
    path.write_text('{"updated": 17.0, "step": 3, "steps": 30, "tokens_per_second": 1.0}')
    assert posts.next()[1] == PackProgress(3, 30, 1.0, updated=17.0)
    ray.ends[0] = RuntimeError("the node died")
    assert posts.ended().kind == "crash"  # the cluster is well: it counts as the pack's failure
    executor.close()


@pytest.mark.parametrize("lost", ["head", "raylet"])
def test_a_lost_cluster_interrupts_all_packs(ray: FakeRay, tmp_path: Path, lost: str) -> None:
    posts = Posts()
    executor = RayExecutor("auto", posts)
    first, second, third, _ = jobs(tmp_path)
    executor.start(first)
    executor.start(second)
    wait_for(lambda: len(ray.asked) == 2)
    if lost == "head":
        ray.head.close()
    else:
        ray.cluster[0]["Alive"] = False
        ray.ends[0] = RuntimeError("the local raylet died")
    ends = [posts.ended(), posts.ended()]
    assert {ended.kind for ended in ends} == {"interrupted"}
    assert all(says(ended.cause, "sweep: Ray cluster lost") for ended in ends)
    # workers that still live are told to reach their checkpoints
    assert (SweepStore(tmp_path).pack_directory(first.pack_id) / "stop").read_text() == ends[0].cause
    executor.start(third)  # the sweep may have begun another one meanwhile
    assert posts.ended().kind == "interrupted"
    executor.stop("stopped")
    executor.close()


def test_a_task_that_waits_for_a_node_is_cancelled_and_one_at_work_is_told_to_stop(
    ray: FakeRay, tmp_path: Path
) -> None:
    posts = Posts()
    executor = RayExecutor("auto", posts)
    at_work, waiting, _, _ = jobs(tmp_path)
    folder, other = (SweepStore(tmp_path).pack_directory(job.pack_id) for job in (at_work, waiting))
    for path in (folder, other):  # an earlier attempt's, by a clock that is ahead
        (path / "progress.json").write_text('{"updated": 1e12, "step": 2, "tokens_per_second": 1.0}')
    for tasks, job in enumerate((at_work, waiting), start=1):  # in this order: each has a thread of its own
        executor.start(job)
        wait_for(lambda tasks=tasks: len(ray.asked) == tasks)
    (folder / "progress.json").write_text('{"updated": 5.0, "step": 0, "tokens_per_second": 1.0}')
    assert posts.next()[0] == at_work.pack_id
    executor.stop("stopped by SIGINT")
    assert posts.next() == (waiting.pack_id, Ended("interrupted", "stopped"))
    assert wait_for(lambda: (folder / "stop").exists() and 0 not in ray.ends)
    assert (folder / "stop").read_text() == "stopped by SIGINT"
    executor.kill()
    assert posts.ended().kind == "interrupted"
    executor.close()
