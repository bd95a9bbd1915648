"""Ray executor: packs as Ray tasks on several machines with a shared path. A lost node's packs go to another node.

Each task runs a worker process as the local executor does, so that a crash stays inside it. A running task reports in
the pack's progress.json, and a file ``stop`` beside it asks it to stop.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError, install
from dwsweep.records.pack import PackProgress, StartFacts
from dwsweep.records.run import INTERRUPTED, OOM
from dwsweep.sweep import policy
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Diverged, Ended, Event, Job, Note, Post
from dwsweep.sweep.local_executor import CPU_THREADS, WorkerProcess, each_core_a_device, part_of_a_gpu

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


@dataclass
class _Task:
    job: Job
    store: SweepStore
    seen: Any  # last time read in progress.json; at first, the time an earlier attempt left
    ref: Any = None  # Ray's task; None: not handed over yet
    heard: bool = False  # progress of this attempt


class RayExecutor:
    """Executor on the Ray cluster at ``address``, as ``ray.init`` takes it (or ``RAY_ADDRESS``); else on one of this
    machine alone.

    A task asks for one node's devices divided by ``workers``: its GPUs, its TPU chips, or on a cluster without either
    its CPUs. That is computed for the smallest node at the start and holds for the whole call, since a pack's
    reservation decides the last bits of its result, and must not depend on the nodes left.

    Ray's calls block while the cluster's head is away. One thread makes them all; another watches the head; if the head
    stays away, or this machine's own Ray is gone, all attempts end as interrupted: their packs are not at fault.

    A cluster that is started here listens on the loopback interface alone. One that is joined listens on its nodes'
    other interfaces too, and whoever reaches its ports may run code there.

    Raises:
        InputError: Ray is not installed, no cluster answers at the address, or it has no node with devices.
    """

    def __init__(self, address: str | None, post: Post, workers: int = 1) -> None:
        self._ray = _joined(address := address or os.environ.get("RAY_ADDRESS"))
        context = self._ray.get_runtime_context()
        self._own_node, self._head = context.get_node_id(), ""
        with contextlib.suppress(Exception):  # a Ray client has no such node, and finds it its own way
            self._head = str(context.gcs_address)
        self._needs = needs(self._nodes(), workers)
        if not self._needs:
            self._ray.shutdown()
            raise InputError(
                f"--address: {address}; none of its live nodes has a CPU, GPU or TPU for tasks; allowed: a cluster "
                "with a worker node (have the autoscaler keep one: what a pack asks for follows from it)"
            )
        self.slots = self._places()
        self._post = post
        self._tasks: dict[str, _Task] = {}  # task by pack
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  # orders to the Ray thread
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._lost: str | None = None
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._work, self._guard)]
        for thread in self._threads:
            thread.start()

    def start(self, job: Job) -> None:
        store = SweepStore(job.directory)
        stop = store.pack_directory(job.pack_id) / "stop"
        with contextlib.suppress(FileNotFoundError):
            stop.unlink()
        task = _Task(job, store, _progress(store, job.pack_id).updated)
        with self._lock:
            self._tasks[job.pack_id] = task
        if self._lost:
            self._give_up(self._lost)
        else:
            self._orders.put(lambda: self._submit(task))

    def stop(self, cause: str) -> None:
        for pack_id, task in self._running().items():
            with contextlib.suppress(OSError):
                paths.write_atomic(task.store.pack_directory(pack_id) / "stop", cause)
        self._orders.put(self._cancel_waiting)

    def kill(self, pack_id: str | None = None) -> None:
        self._orders.put(lambda: self._cancel(pack_id))

    def close(self) -> None:
        self._closed.set()
        if not self._lost:  # the threads may wait for the cluster inside a call of Ray
            for thread in self._threads:
                thread.join()
        self._ray.shutdown()  # from a lost cluster it takes some seconds

    # thread that talks to Ray

    def _work(self) -> None:
        looked = time.monotonic()
        while not self._closed.is_set() and not self._lost:
            try:
                while True:
                    self._orders.get_nowait()()
            except queue.Empty:
                pass
            except Exception as error:
                self._give_up(_reason(error))
                return
            try:
                self._look_at_tasks()
                if time.monotonic() - looked > LOOK_SECONDS:
                    looked = time.monotonic()
                    self._look_at_nodes()
            except Exception as error:
                self._give_up(_reason(error))

    def _submit(self, task: _Task) -> None:
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
            "name": task.job.pack_id,
        }
        task.ref = self._ray.remote(run_job).options(**options).remote(task.job, environment)

    def _look_at_tasks(self) -> None:
        running = {name: task for name, task in self._running().items() if task.ref is not None}
        if not running:
            time.sleep(POLL_SECONDS / 5)
            return
        ready = self._ray.wait([task.ref for task in running.values()], timeout=POLL_SECONDS)[0]
        for pack_id, task in running.items():
            if task.ref in ready:
                self._finish(pack_id, task)
            else:
                self._report_progress(pack_id, task)

    def _look_at_nodes(self) -> None:
        self.slots = self._places()
        if reason := self._own_node_gone():
            self._give_up(reason)

    def _nodes(self) -> list[Mapping[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def _places(self) -> int:
        """Number of tasks that the present cluster can run at a time; one may always wait for a node."""
        found = sum(int(min(node.get(k, 0.0) / need for k, need in self._needs.items())) for node in self._nodes())
        return max(1, found)

    def _own_node_gone(self) -> str | None:
        """Cause of the death of this machine's Ray; None while it lives."""
        if not self._answers():
            return None  # Ray would not answer
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        return None if self._own_node in alive else "the raylet of this machine has died"

    def _answers(self) -> bool:
        """True if a process listens at the head's address; asked without Ray, whose calls block while it is away."""
        return _unreachable(self._head, ANSWER_SECONDS) is None

    def _report_progress(self, pack_id: str, task: _Task) -> None:
        progress = _progress(task.store, pack_id)
        if progress.updated != task.seen and progress.tokens_per_second is not None:
            task.seen, task.heard = progress.updated, True
            self._post(pack_id, progress)

    def _finish(self, pack_id: str, task: _Task) -> None:
        try:
            *events, ended = self._ray.get(task.ref)
            for event in events:
                self._post(pack_id, event)
        except self._ray.exceptions.TaskCancelledError:
            ended = Ended(INTERRUPTED, "stopped")
        except self._ray.exceptions.OutOfMemoryError as error:
            ended = Ended(OOM, f"the node ran out of memory ({_reason(error)})")
        except Exception as error:
            if (reason := self._own_node_gone()) or not self._answers():
                self._give_up(reason or _reason(error))
                return
            ended = Ended(policy.CRASH, f"the node or its Ray worker was lost ({_reason(error)})")
        with self._lock:
            mine = self._tasks.pop(pack_id, None)
        if mine is not None:
            self._post(pack_id, ended)

    def _cancel_waiting(self) -> None:
        """Cancel tasks that still wait for a device and have nothing to checkpoint."""
        for pack_id, task in self._running().items():
            if task.ref is not None and not task.heard and _progress(task.store, pack_id).updated == task.seen:
                self._ray.cancel(task.ref)

    def _cancel(self, pack_id: str | None) -> None:
        for name, task in self._running().items():
            if task.ref is not None and pack_id in (None, name):
                self._ray.cancel(task.ref, force=True)

    def _running(self) -> dict[str, _Task]:
        with self._lock:
            return dict(self._tasks)

    # thread that watches the head

    def _guard(self) -> None:
        answered = time.monotonic()
        while not self._closed.wait(POLL_SECONDS) and not self._lost:
            if self._answers():
                answered = time.monotonic()
            elif time.monotonic() - answered > LOST_SECONDS:
                self._give_up(f"its head has not answered for {LOST_SECONDS:.0f} s")

    def _give_up(self, reason: str) -> None:
        """End all attempts as interrupted; workers that still live reach their checkpoints."""
        self._lost = reason
        with self._lock:
            tasks, self._tasks = self._tasks, {}
        cause = f"the Ray cluster is lost: {reason}"
        for pack_id, task in tasks.items():
            with contextlib.suppress(OSError):
                paths.write_atomic(task.store.pack_directory(pack_id) / "stop", cause)
            self._post(pack_id, Ended(INTERRUPTED, cause))


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
        if isinstance(event, StartFacts | Note | Diverged):
            events.append(event)

    threading.Thread(target=heed_stop, daemon=True).start()
    try:
        ended = worker.train(job, keep)
    finally:
        done.set()
        worker.close()
    return [*events, ended]
