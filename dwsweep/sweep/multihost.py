"""Multihost slice (``--distributed``): processes on several hosts that train each pack together.

Every host starts the same command. ``jax.distributed`` finds the others by itself on TPU, Slurm and Open MPI; elsewhere
the environment has ``DWSWEEP_COORDINATOR`` (HOST:PORT of process 0), ``DWSWEEP_PROCESSES`` and ``DWSWEEP_PROCESS``
(from 0). Process 0 decides and writes. Workers are in a ``Slice``, parents in ``join_slice``; only a worker imports
JAX here.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dwsweep.errors import InputError
from dwsweep.sweep.events import Joined
from dwsweep.sweep.local_worker import WorkerProcess

MAX_RESTARTS = 20  # restarts of a worker that follows; process 0 decides about retries
HEARTBEAT_SECONDS = 30  # time until the other processes end after one is gone
_VARIABLES = ("DWSWEEP_COORDINATOR", "DWSWEEP_PROCESSES", "DWSWEEP_PROCESS")


def settings(environment: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of ``jax.distributed.initialize``; empty if JAX finds them itself.

    Raises:
        InputError: some of the variables are missing or are no numbers.
    """
    given = [environment.get(name) for name in _VARIABLES]
    if not any(given):
        return {}
    try:
        coordinator, processes, process = given[0], int(given[1] or ""), int(given[2] or "")
    except ValueError:
        processes, process = 0, 0
    if not given[0] or not 0 <= process < processes:
        shown = " ".join(f"{name}={value or ''}" for name, value in zip(_VARIABLES, given, strict=True))
        raise InputError(f"--distributed: {shown}; allowed: all three, with 0 ≤ process < processes")
    return {"coordinator_address": coordinator, "num_processes": processes, "process_id": process}


class Slice:
    """Slice of processes; made once, before anything else of JAX is used."""

    def __init__(self) -> None:
        import jax

        if os.environ.get("JAX_PLATFORMS") == "cpu":
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
        arguments = settings(os.environ)
        if "heartbeat_timeout_seconds" in inspect.signature(jax.distributed.initialize).parameters:
            arguments["heartbeat_timeout_seconds"] = HEARTBEAT_SECONDS
        jax.distributed.initialize(**arguments)
        self.index = jax.process_index()
        self.count = jax.process_count()
        self._asked = 0

    def share(self, text: str) -> str:
        """Share the value of process 0 with every process; the values of the others do not count, and they wait."""
        import numpy as np
        from jax.experimental.multihost_utils import broadcast_one_to_all

        data = text.encode() if self.index == 0 else b""
        size = int(broadcast_one_to_all(np.int32(len(data))))
        buffer = np.zeros(size, np.uint8)
        buffer[: len(data)] = np.frombuffer(data, np.uint8)
        return np.asarray(broadcast_one_to_all(buffer), np.uint8).tobytes().decode()

    def must_stop(self, wish: bool) -> int | None:
        """First process that wants to stop, or None; the same answer in every process, which all have to ask.

        A preemption notice to any of them counts: JAX takes SIGTERM for one, and agrees on the step.
        """
        import numpy as np
        from jax.experimental import multihost_utils

        self._asked += 1
        wishes = np.asarray(multihost_utils.process_allgather(np.int32(wish))).reshape(-1)
        if wishes.any():
            return int(np.argmax(wishes))
        try:
            noticed = multihost_utils.reached_preemption_sync_point(self._asked)
        except RuntimeError:  # no preemption service here
            return None
        return self.index if noticed else None

    def leave(self) -> None:
        import jax

        jax.distributed.shutdown()


def join_slice(store_path: str, lead: Callable[[WorkerProcess], int], say: Callable[[str], None]) -> int:
    """Join the slice with a worker of this host; lead the sweep where it is process 0, follow elsewhere.

    Returns the exit status, the same on every host.

    Raises:
        InputError: the slice cannot be joined, or is described wrongly in the environment.
    """
    settings(os.environ)
    worker = WorkerProcess(slice_store=store_path)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "worker.log"
        place = _join(worker, log)
        if place.process > 0:
            say(f"process {place.process} of {place.processes}: follows process 0")
            return _follow(worker, log, say)
        status = 1
        try:
            status = lead(worker)
        except InputError:
            status = 2
            raise
        finally:
            # the others wait for it, even if this process fails
            worker.release(status, log)
        return status


def _join(worker: WorkerProcess, log: Path) -> Joined:
    try:
        return worker.join(log)
    except RuntimeError as error:
        raise InputError(
            f"--distributed: this host could not join the others ({error}); set {', '.join(_VARIABLES)}"
        ) from None
    except BaseException:  # Ctrl-C during the wait: this process would keep the coordinator's port
        worker.kill()
        raise


def _follow(worker: WorkerProcess, log: Path, say: Callable[[str], None]) -> int:
    def on_signal(number: int, _frame: Any) -> None:
        # the whole slice stops at a checkpoint; in a thread: the handler may have interrupted whoever holds the pipe
        threading.Thread(target=worker.stop, args=(f"stopped by {signal.Signals(number).name}",)).start()

    with handled(on_signal, signal.SIGINT, signal.SIGTERM):
        for _ in range(MAX_RESTARTS):
            status = worker.follow()
            if status is not None:
                return status
            say("the worker ended with another process of the slice; joins again")
            _join(worker, log)
    return 1


@contextlib.contextmanager
def handled(handler: Any, *numbers: int) -> Iterator[None]:
    """Handle these signals by ``handler`` while the block runs."""
    old = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, before in old.items():
            signal.signal(number, before)
