"""Entry of a worker process, ``python -m dwsweep.sweep``: settings before its imports, which take about a second.

The parent's Ctrl-C and its closed terminal are not the worker's: the parent asks it to stop. SIGTERM waits until the
worker can heed it. A worker that was stopped (SIGSTOP) could not see that its parent is gone, and would hold its device
for ever: the kernel wakes it when its parent dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # option of Linux's prctl


def wake_when_the_parent_dies() -> None:
    """Ask the kernel for SIGCONT at the parent's death (Linux): it wakes a stopped process and spares a running one."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGCONT)


def main() -> None:
    """Import the worker and run it."""
    gc.set_threshold(100_000)  # looking for cycles took a tenth of importing, tracing and compiling; `release` does
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    wake_when_the_parent_dies()
    from dwsweep.sweep.worker import main as run

    status = run()
    sys.stderr.flush()
    os._exit(status)  # exit at once: a compilation begun ahead must not hold up or break the interpreter's end


if __name__ == "__main__":
    main()
