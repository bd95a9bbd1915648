"""Workers on Ray: packs as tasks on several machines with a shared path. A lost node's packs go to another node.

Each task runs a worker process of its node, so that a crash stays inside it. A running task reports in
the pack's progress.json, and a file ``stop`` beside it asks it to stop.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from dwsweep import paths
from dwsweep.errors import InputError, install
from dwsweep.records.pack import PackProgress, StartFacts
from dwsweep.records.run import INTERRUPTED, OOM
from dwsweep.sweep import policy
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Emit, Ended, Event, Job, Note, Post
from dwsweep.sweep.executor import Executor
from dwsweep.sweep.local_worker import CPU_THREADS, WorkerProcess, each_core_a_device, part_of_a_gpu

JOIN_SECONDS = 10.0  # time limit for the first connection to a cluster
ANSWER_SECONDS = 2.0  # time limit for a connection to the head
_DEVICES = ("GPU", "TPU")

POLL_SECONDS = 1.0
LOOK_SECONDS = 5.0  # interval between two looks at the cluster's nodes
LOST_SECONDS = 30.0  # silence of the head after which the cluster counts as lost; after 60 s Ray would end this process
_PASSED_ON = ("DWSWEEP_", "JAX_", "XLA_", "WANDB_", CPU_THREADS)  # environment variables that tasks get from here


def _joined(address: str | None) -> Any:
    """The module ``ray`` in a cluster that it has joined, or started here.

    Raises:
        InputError: Ray is not installed, or no cluster answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if not address:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # without it Ray refuses loopback addresses
    try:
        import ray
    except ImportError:
        raise InputError(f"--executor: 'ray'; its package is not installed: {install('ray')}") from None
    # Ray itself would try for ten minutes
    if error := _unreachable((address or "").removeprefix("ray://"), JOIN_SECONDS):
        line = f"--address: {address}; nobody answers there ({error}); allowed: HOST:PORT of a Ray cluster, or auto"
        raise InputError(line)
    here = {} if address else {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
    try:
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        ray.init(address=address or "local", ignore_reinit_error=True, **quiet, **here)
    except Exception as error:
        reason = policy.first_line(str(error))
        raise InputError(f"--address: {address}; allowed: a Ray cluster that answers ({reason})") from None
    return ray


def _unreachable(address: str, seconds: float) -> OSError | None:
    """Reason why nothing answers at HOST:PORT; None if something answers, or if the address has another form."""
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal()):
        return None  # "auto", or none
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
    except OSError as error:
        return error
    return None


def needs(nodes: list[Mapping[str, float]], workers: int) -> dict[str, float]:
    """Resources of a task: the smallest node's devices of the best kind, divided by ``workers``."""
    for name in (*_DEVICES, "CPU"):
        amounts = [node[name] for node in nodes if node.get(name)]
        if amounts:
            share = min(amounts) / workers
            return {name: max(1.0, float(int(share))) if share >= 1 else share}
    return {}


class RayExecutor(Executor):
    """Executor on the Ray cluster at ``address``, as ``ray.init`` takes it (or ``RAY_ADDRESS``); else on one of this
    machine alone.

    A task asks for one node's devices divided by ``workers``: its GPUs, its TPU chips, or on a cluster without either
    its CPUs. That is computed for the smallest node at the start and holds for the whole call, since a pack's
    reservation decides the last bits of its result, and must not depend on the nodes left.

    Ray's calls block while the cluster's head is away, and only the threads of attempts make them; another thread
    watches the head. If the head stays away, or this machine's own Ray is gone, all attempts end as interrupted: their
    packs are not at fault.

    A cluster that is started here listens on the loopback interface alone. One that is joined listens on its nodes'
    other interfaces too, and whoever reaches its ports may run code there.

    Raises:
        InputError: Ray is not installed, no cluster answers at the address, or it has no node with devices.
    """

    def __init__(self, address: str | None, post: Post, workers: int = 1) -> None:
        self.ray = _joined(address := address or os.environ.get("RAY_ADDRESS"))
        context = self.ray.get_runtime_context()
        self._own_node, self._head = context.get_node_id(), ""
        with contextlib.suppress(Exception):  # a Ray client has no such node, and finds it its own way
            self._head = str(context.gcs_address)
        self._needs = needs(self._nodes(), workers)
        if not self._needs:
            self.ray.shutdown()
            raise InputError(
                f"--address: {address}; none of its live nodes has a CPU, GPU or TPU for tasks; allowed: a cluster "
                "with a worker node (have the autoscaler keep one: what a pack asks for follows from it)"
            )
        super().__init__(partial(RayWorker, self), self._places(), post)
        self.lost: str | None = None
        self._looked = time.monotonic()
        self._closed = threading.Event()
        threading.Thread(target=self._guard, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        if self.lost is None:  # else threads may wait for the cluster inside a call of Ray
            super().close()
        self.ray.shutdown()  # from a lost cluster it takes some seconds

    def submit(self, job: Job) -> Any:
        """Hand a task over to Ray, which starts it when a node has its devices."""
        wanted = dict(self._needs)
        # an argument: a ``runtime_env``, which may hold keys, would stand in Ray's logs
        environment = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        if 0 < wanted.get("GPU", 1.0) < 1:
            environment |= part_of_a_gpu(math.ceil(1 / wanted["GPU"]))
        # the reservation, not the node's resources: the result must not depend on the node
        environment |= each_core_a_device(int(wanted.get("CPU", 0)))
        options: dict[str, Any] = {
            "num_cpus": wanted.pop("CPU", 0),
            "num_gpus": wanted.pop("GPU", 0),
            "resources": wanted,
            "max_retries": 0,  # retries are decided by cause
            "name": job.pack_id,
        }
        return self.ray.remote(run_job).options(**options).remote(job, environment)

    def look(self) -> None:
        """Look at the cluster's nodes, at times."""
        if time.monotonic() - self._looked >= LOOK_SECONDS and not self._silent():  # else Ray would not answer
            self._looked = time.monotonic()
            self.slots = self._places()
            if reason := self._dead_raylet():
                self.give_up(reason)

    def give_up(self, reason: str) -> None:
        """End all attempts as interrupted; workers that still live reach their checkpoints."""
        self.lost = f"the Ray cluster is lost: {reason}"
        for pack_id, worker in list(self._serving.items()):
            cast(RayWorker, worker).tell(self.lost)
            self._end(pack_id, Ended(INTERRUPTED, self.lost))

    def failed(self, error: Exception) -> Ended:
        """End of an attempt by the exception of its task."""
        if isinstance(error, self.ray.exceptions.TaskCancelledError):
            return Ended(INTERRUPTED, "stopped")
        if isinstance(error, self.ray.exceptions.OutOfMemoryError):
            return Ended(OOM, f"the node ran out of memory ({_reason(error)})")
        if reason := self._silent() or self._dead_raylet():
            self.give_up(reason)
        return Ended(policy.CRASH, f"the node or its Ray worker was lost ({_reason(error)})")

    def _nodes(self) -> list[Mapping[str, float]]:
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def _places(self) -> int:
        """Number of tasks that the present cluster can run at a time; one may always wait for a node."""
        found = sum(int(min(node.get(k, 0.0) / need for k, need in self._needs.items())) for node in self._nodes())
        return max(1, found)

    def _dead_raylet(self) -> str:
        alive = {node["NodeID"] for node in self.ray.nodes() if node["Alive"]}
        return "" if self._own_node in alive else "the raylet of this machine has died"

    def _silent(self) -> str:
        """Reason why the head's address does not answer; asked without Ray, whose calls block while it is away."""
        return f"its head does not answer ({error})" if (error := _unreachable(self._head, ANSWER_SECONDS)) else ""

    def _guard(self) -> None:
        """Watch the head, in a thread that makes no call of Ray."""
        answered = time.monotonic()
        while not self._closed.wait(POLL_SECONDS) and self.lost is None:
            if not self._silent():
                answered = time.monotonic()
            elif time.monotonic() - answered > LOST_SECONDS:
                self.give_up(f"its head has not answered for {LOST_SECONDS:.0f} s")


class RayWorker:
    """Worker of one Ray task at a time, which runs a worker process on its node."""

    def __init__(self, cluster: RayExecutor) -> None:
        self._cluster = cluster
        self._stop_cause: str | None = None
        self._is_killed = False
        self._stop: Any = None  # file that asks the task to stop

    def train(self, job: Job, on_event: Emit) -> Ended:
        store, cluster = SweepStore(job.directory), self._cluster
        self._stop = store.pack_directory(job.pack_id) / "stop"
        with contextlib.suppress(FileNotFoundError):
            self._stop.unlink()
        try:
            task = None if cluster.lost else self._watch(job, store, on_event)
        except Exception as error:
            cluster.give_up(_reason(error))
        if cluster.lost:
            return Ended(INTERRUPTED, cluster.lost)
        try:
            *events, ended = cluster.ray.get(task)
        except Exception as error:
            return cluster.failed(error)
        for event in events:
            on_event(event)
        return cast(Ended, ended)

    def _watch(self, job: Job, store: SweepStore, on_event: Emit) -> Any:
        """Submit the task and report its progress until it has ended; returns it."""
        before = seen = _progress(store, job.pack_id).updated  # by an earlier attempt
        is_told, ray, task = False, self._cluster.ray, self._cluster.submit(job)
        while not ray.wait([task], timeout=POLL_SECONDS)[0] and not self._cluster.lost:
            self._cluster.look()
            progress = _progress(store, job.pack_id)
            if progress.updated != seen:
                seen = progress.updated
                if progress.tokens_per_second is not None:
                    on_event(progress)
            if self._stop_cause and not is_told:
                is_told = True
                self.tell(self._stop_cause)
                if seen == before:  # it waits for a device and has nothing to checkpoint
                    ray.cancel(task)
            if self._is_killed:
                self._is_killed = False
                ray.cancel(task, force=True)
        return task

    def tell(self, cause: str) -> None:
        """Ask the task, on whatever node, for a checkpoint and an end."""
        with contextlib.suppress(OSError):
            paths.write_atomic(self._stop, cause)

    def stop(self, cause: str) -> None:
        self._stop_cause = cause

    def kill(self) -> None:
        self._is_killed = True

    def close(self) -> None: ...


def _reason(error: BaseException) -> str:
    return policy.first_line(str(error)) or type(error).__name__


def _progress(store: SweepStore, pack_id: str) -> PackProgress:
    """Progress of a pack by its progress.json; none if it cannot be read, for the next look may find it.

    ``updated`` is by the clock of the node that wrote it, so only a change means anything.
    """
    with contextlib.suppress(OSError, ValueError):
        return store.progress(pack_id)
    return PackProgress()


def run_job(job: Job, environment: dict[str, str]) -> list[Event]:
    """Run the task: one attempt in a worker process of this node, with ``environment`` added to its own.

    Returns messages for a person or the manifest, the end last.
    """
    stop = SweepStore(job.directory).pack_directory(job.pack_id) / "stop"
    worker = WorkerProcess(environment)
    events: list[Event] = []
    done = threading.Event()

    def heed_stop() -> None:
        while not done.wait(POLL_SECONDS):
            with contextlib.suppress(OSError):
                if stop.exists():
                    worker.stop(stop.read_text("utf-8"))
                    return

    def keep(event: Event) -> None:
        if isinstance(event, StartFacts | Note):
            events.append(event)

    threading.Thread(target=heed_stop, daemon=True).start()
    try:
        ended = worker.train(job, keep)
    finally:
        done.set()
        worker.close()
    return [*events, ended]
