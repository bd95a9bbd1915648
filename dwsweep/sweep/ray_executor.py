"""Packs as Ray tasks: past one machine, on a shared path. A lost node's packs go to another node.

Each task runs a worker process as the local executor does, so that a crash stays inside it, and a task's end frees the
device. What a task wants to say while it runs stands in the pack's progress.json; it is told to stop by a file
``stop`` beside it. ``dwsweep`` is installed on every node, and sweep directory and token store lie on a path that all
nodes share.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records.reader import to_dict
from dwsweep.sweep import causes
from dwsweep.sweep.causes import Ended
from dwsweep.sweep.devices import each_core_a_device
from dwsweep.sweep.executors import Post
from dwsweep.sweep.process import WorkerProcess
from dwsweep.sweep.store import SweepStore
from dwsweep.sweep.worker import Job

POLL_SECONDS = 1.0
_PASSED_ON = ("DWSWEEP_", "JAX_", "XLA_", "WANDB_")  # environment that tasks get from here
_DEVICES = ("GPU", "TPU")


class RayExecutor:
    """Runs jobs on a Ray cluster; ``address`` as ``ray.init`` takes it, None for a cluster of this machine alone.

    A task asks for one node's devices divided by ``workers``: its GPUs, its TPU chips, or on a cluster without either
    its CPUs.

    Raises:
        InputError: Ray is not installed, or no cluster answers at the address.
    """

    def __init__(self, address: str | None, post: Post, workers: int = 1) -> None:
        try:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            import ray
        except ImportError:
            raise InputError("--executor: 'ray'; its package is not installed: pip install 'dwsweep[ray]'") from None
        self._ray = ray
        _check_address(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
        except Exception as error:
            reason = causes.first_line(str(error))
            raise InputError(f"--address: {address}; allowed: a Ray cluster that answers ({reason})") from None
        self._post = post
        self._workers = workers
        self._needs: dict[str, float] = {}
        self._running: dict[str, tuple[Any, SweepStore]] = {}  # by pack: task, directory
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def slots(self) -> int:
        """How many tasks the cluster, as it is now, can run at a time."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        self._needs = needs(nodes, self._workers) or self._needs
        found = sum(int(min(node.get(name, 0.0) / need for name, need in self._needs.items())) for node in nodes)
        return max(1, found)

    def start(self, job: Job) -> None:
        store = SweepStore(job.directory)
        stop = store.pack_directory(job.pack.pack_id) / "stop"
        if stop.exists():
            stop.unlink()
        if not self._needs:
            _ = self.slots
        wanted = dict(self._needs)
        environment = {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
        options: dict[str, Any] = {
            "num_cpus": wanted.pop("CPU", 0),
            "num_gpus": wanted.pop("GPU", 0),
            "resources": wanted,
            "max_retries": 0,  # what is tried again, and how often, is decided by cause
            "runtime_env": {"env_vars": environment},
            "name": job.pack.pack_id,
        }
        # what it reserves and not what its node has: the result must not depend on where it runs
        devices = each_core_a_device(int(options["num_cpus"]))
        task = self._ray.remote(run_job).options(**options).remote(job.to_dict(), devices)
        with self._lock:
            self._running[job.pack.pack_id] = (task, store)
            self._told[job.pack.pack_id] = time.time()

    def stop(self, cause: str) -> None:
        with self._lock:
            running = dict(self._running)
        for pack_id, (task, store) in running.items():
            with contextlib.suppress(OSError):
                paths.write_atomic(store.pack_directory(pack_id) / "stop", cause)
            if (store.progress(pack_id).updated or 0.0) < self._told[pack_id]:
                self._ray.cancel(task)  # it may still wait for a device, and has nothing to bring to a checkpoint

    def kill(self) -> None:
        with self._lock:
            tasks = [task for task, _ in self._running.values()]
        for task in tasks:
            self._ray.cancel(task, force=True)

    def close(self) -> None:
        self._closed = True
        self._thread.join()
        self._ray.shutdown()

    def _watch(self) -> None:
        while not self._closed:
            with self._lock:
                running = dict(self._running)
            ready = self._ray.wait([task for task, _ in running.values()], timeout=POLL_SECONDS)[0] if running else []
            if not running:
                time.sleep(POLL_SECONDS / 5)
            for pack_id, (task, store) in running.items():
                if task in ready:
                    with self._lock:
                        del self._running[pack_id]
                    self._finish(pack_id, task)
                else:
                    self._tell_progress(pack_id, store)

    def _tell_progress(self, pack_id: str, store: SweepStore) -> None:
        try:
            progress = store.progress(pack_id)
        except OSError:
            return  # the next look may find it
        updated = progress.updated or 0.0
        if updated > self._told[pack_id] and progress.tokens_per_second is not None:
            self._told[pack_id] = updated
            self._post(pack_id, {"event": "progress", **to_dict(progress)})

    def _finish(self, pack_id: str, task: Any) -> None:
        try:
            answer = self._ray.get(task)
            for event in answer["events"]:
                self._post(pack_id, event)
            ended = Ended(**answer["ended"])
        except self._ray.exceptions.TaskCancelledError:
            ended = Ended(causes.INTERRUPTED, "stopped")
        except self._ray.exceptions.OutOfMemoryError as error:
            ended = Ended(causes.OOM, f"the node ran out of memory ({causes.first_line(str(error))})")
        except Exception as error:
            ended = Ended(causes.CRASH, f"the node or its Ray worker was lost ({causes.first_line(str(error))})")
        self._post(pack_id, {"event": "ended", "ended": ended})


def _check_address(address: str | None) -> None:
    """Refuse an address where nobody listens: Ray itself would try for ten minutes.

    Raises:
        InputError: nobody answers there.
    """
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not (colon and port.isdigit()):
        return  # "auto", or none
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        line = f"--address: {address}; nobody answers there ({error}); allowed: HOST:PORT of a Ray cluster, or auto"
        raise InputError(line) from None


def needs(nodes: list[Mapping[str, float]], workers: int) -> dict[str, float]:
    """What a task asks for, by resource: the smallest node's devices, of the best kind there is, over ``workers``."""
    for name in (*_DEVICES, "CPU"):
        amounts = [node[name] for node in nodes if node.get(name)]
        if amounts:
            share = min(amounts) / workers
            return {name: max(1.0, float(int(share))) if share >= 1 else share}
    return {}


def run_job(content: dict[str, Any], environment: dict[str, str]) -> dict[str, Any]:
    """The task: one attempt in a worker process of this node, with ``environment`` added to its own."""
    job = Job.from_dict(content)
    stop = SweepStore(job.directory).pack_directory(job.pack.pack_id) / "stop"
    worker = WorkerProcess(environment)
    events: list[dict[str, Any]] = []
    done = threading.Event()

    def heed_stop() -> None:
        while not done.wait(POLL_SECONDS):
            with contextlib.suppress(OSError):
                if stop.exists():
                    worker.stop(stop.read_text())
                    return

    def keep(event: dict[str, Any]) -> None:
        if event["event"] in ("started", "note", "diverged"):
            events.append(event)

    threading.Thread(target=heed_stop, daemon=True).start()
    try:
        ended = worker.train(job, keep)
    finally:
        done.set()
        worker.close()
    return {"ended": asdict(ended), "events": events}
