"""Worker processes of ``prepare``: an ordered map that holds few jobs at a time and leaves Ctrl-C to the parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from dwsweep.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    workers: int,
    initializer: Callable[..., None],
    initargs: tuple[Any, ...],
) -> Iterator[Result]:
    """Results of ``function`` on each job, in the jobs' order, with at most 2·workers + 2 jobs in flight.

    A single worker is this process. Other processes are spawned, since a fork would break the caller's threads.
    """
    if workers == 1:
        initializer(*initargs)
        yield from map(function, jobs)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(initializer, initargs))
    waiting: deque[Future[Result]] = deque()
    try:
        for job in jobs:
            with _no_interrupts():  # submit starts the processes
                future = pool.submit(function, job)
            waiting.append(future)
            if len(waiting) > 2 * workers + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise InputError(
            f"data.workers: {workers}; a worker process of prepare died (out of memory, or a script that starts it "
            "without `if __name__ == '__main__'`); set fewer workers, or 1 for no extra process"
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Delay of Ctrl-C while processes start: the children inherit a blocked SIGINT, and the parent receives the signal
    at the end, so that no process stays half started (a thread of BLAS may receive SIGINT meanwhile)."""
    came: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
            if came:
                signal.raise_signal(signal.SIGINT)


def _start(initializer: Callable[..., None], initargs: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initializer(*initargs)


def _end_with_parent() -> None:
    """End this worker when its parent has died, even by SIGKILL; otherwise the worker would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
