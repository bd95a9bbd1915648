"""Where attempts run: the interface, and the worker processes of this host behind it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from dwsweep.sweep import policy
from dwsweep.sweep.core_shares import shares
from dwsweep.sweep.events import Ended, Job, Post
from dwsweep.sweep.worker_process import WorkerProcess


class Executor(Protocol):
    """Posts the events of each job; the last one is ``Ended``."""

    @property
    def slots(self) -> int:
        """Jobs that run at the same time."""

    def start(self, job: Job) -> None:
        """Begin an attempt; returns at once."""

    def stop(self, cause: str) -> None:
        """Ask all running attempts for a checkpoint and an end."""

    def kill(self, pack_id: str | None = None) -> None:
        """End the attempt at a pack, or all of them, now."""

    def close(self) -> None:
        """Release everything; no attempt is running any more."""


class LocalExecutor:
    """Worker processes on this host, one thread here for each.

    ``keep`` leaves them running when the executor is closed: whoever made them lets them go.
    """

    def __init__(self, workers: Sequence[WorkerProcess], post: Post, keep: bool = False) -> None:
        self.slots = len(workers)
        self._post = post
        self._keep = keep
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._workers = list(workers)
        self._serving: dict[WorkerProcess, str | None] = dict.fromkeys(self._workers)  # the pack of each
        self._threads = [threading.Thread(target=self._serve, args=(w,), daemon=True) for w in self._workers]
        for thread in self._threads:
            thread.start()

    def start(self, job: Job) -> None:
        self._jobs.put(job)

    def stop(self, cause: str) -> None:
        for worker in self._workers:
            worker.stop(cause)

    def kill(self, pack_id: str | None = None) -> None:
        for worker, serves in list(self._serving.items()):
            if pack_id in (None, serves):
                worker.kill()

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, worker: WorkerProcess) -> None:
        while (job := self._jobs.get()) is not None:
            pack_id = job.pack.pack_id
            self._serving[worker] = pack_id
            try:
                ended = worker.train(job, partial(self._post, pack_id))
            except Exception as error:  # a fault in here must not leave the sweep waiting for ever
                worker.kill()
                ended = Ended(*policy.of_exception(error))
            self._serving[worker] = None
            self._post(pack_id, ended)
        if not self._keep:
            worker.close()


def local_workers(workers: int, packs: int, first: int = 0) -> list[WorkerProcess]:
    """Worker processes on this host for so many packs: each with the part of its devices that one of ``workers`` has.

    ``first`` is the part to begin with: shards on one host that have a pack each take different parts.
    """
    parts = shares(workers)
    chosen = [parts[(first + k) % len(parts)] for k in range(min(packs, len(parts)))]
    return [WorkerProcess(part.environment, part.cores) for part in chosen]
