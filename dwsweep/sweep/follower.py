"""``--distributed``: the parents of a slice. The one whose worker is process 0 leads; the others keep theirs alive."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from dwsweep.errors import InputError
from dwsweep.sweep.multihost import settings
from dwsweep.sweep.worker_process import WorkerProcess

MAX_RESTARTS = 20  # of a worker that follows; what is tried again is process 0's decision


def join_slice(store_path: str, lead: Callable[[WorkerProcess], int], console: Console) -> int:
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
        if place["process"] > 0:
            say = f"process {place['process']} of {place['processes']}: follows process 0"
            console.print(say, highlight=False)
            return _follow(worker, log, console)
        status = 1
        try:
            status = lead(worker)
        except InputError:
            status = 2
            raise
        finally:
            # the others wait for a word, also where this process fails
            worker.release(status, log)
        return status


def _join(worker: WorkerProcess, log: Path) -> dict[str, Any]:
    try:
        return worker.join(log)
    except RuntimeError as error:
        raise InputError(f"--distributed: this host could not join the others ({error})") from None
    except BaseException:  # Ctrl-C while it waits for the others: left alone, it would hold the coordinator's port
        worker.kill()
        raise


def _follow(worker: WorkerProcess, log: Path, console: Console) -> int:
    with _passed_on(worker):
        for _ in range(MAX_RESTARTS):
            status = worker.follow()
            if status is not None:
                return status
            console.print("the worker ended with another process of the slice; joins again", highlight=False)
            _join(worker, log)
    return 1


@contextlib.contextmanager
def _passed_on(worker: WorkerProcess) -> Iterator[None]:
    """Ctrl-C and SIGTERM of this host stop the whole slice at a checkpoint."""

    def on_signal(number: int, _frame: Any) -> None:
        # in a thread: the handler may have interrupted whoever holds the worker's pipe
        threading.Thread(target=worker.stop, args=(f"stopped by {signal.Signals(number).name}",)).start()

    old = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
