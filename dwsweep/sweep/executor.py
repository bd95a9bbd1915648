"""The executor: runs each attempt at a pack in a thread of its own, by a worker that is idle or newly hired.

A new kind of worker is a class with the methods of ``Worker`` in a file of its own, and a line in
``runner._make_executor``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from dwsweep.sweep import policy
from dwsweep.sweep.events import Emit, Ended, Job, Post


class Worker(Protocol):
    """Trains one pack at a time; only ``train`` blocks, and the others may come from another thread meanwhile."""

    def train(self, job: Job, on_event: Emit) -> Ended:
        """Make one attempt and return its end; events other than the end go to ``on_event``."""

    def stop(self, cause: str) -> None:
        """Ask this attempt, and those to come, for a checkpoint and an end."""

    def kill(self) -> None:
        """End the attempt now."""

    def close(self) -> None:
        """Let an idle worker leave."""


class Executor:
    """Posts the events of each job; the last one is ``Ended``.

    ``hire`` makes a worker when none is idle; ``slots`` is the number of jobs that may run at the same time.
    """

    def __init__(self, hire: Callable[[], Worker], slots: int, post: Post) -> None:
        self.slots = slots
        self._hire, self._post = hire, post
        self._idle: list[Worker] = []
        self._serving: dict[str, Worker] = {}  # worker by pack
        self._threads: list[threading.Thread] = []
        self._stop_cause: str | None = None

    def start(self, job: Job) -> None:
        """Begin an attempt; returns at once."""
        worker = self._idle.pop() if self._idle else self._hire()
        self._serving[job.pack_id] = worker
        if self._stop_cause:
            worker.stop(self._stop_cause)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=self._serve, args=(worker, job), daemon=True))
        self._threads[-1].start()

    def stop(self, cause: str) -> None:
        """Ask all running attempts for a checkpoint and an end."""
        self._stop_cause = cause
        for worker in list(self._serving.values()):
            worker.stop(cause)

    def kill(self, pack_id: str | None = None) -> None:
        """End the attempt at a pack, or all of them, now."""
        for name, worker in list(self._serving.items()):
            if pack_id in (None, name):
                worker.kill()

    def close(self) -> None:
        """Release everything; no attempt is running any more."""
        for thread in self._threads:
            thread.join()
        for worker in self._idle:
            worker.close()

    def _serve(self, worker: Worker, job: Job) -> None:
        try:
            ended = worker.train(job, partial(self._post, job.pack_id))
        except Exception as error:  # a fault in this thread must not leave the sweep waiting for ever
            ended = Ended(*policy.of_exception(error))
            with suppress(Exception):  # nor must one of the worker's end
                worker.kill()
        self._idle.append(worker)
        self._end(job.pack_id, ended)

    def _end(self, pack_id: str, ended: Ended) -> None:
        """Post the end of an attempt, once."""
        if self._serving.pop(pack_id, None) is not None:
            self._post(pack_id, ended)
