"""Entry of a worker process, ``python -m dwsweep.sweep``: settings before its imports, which take about a second.

The parent's Ctrl-C and its closed terminal are not the worker's: the parent asks it to stop. SIGTERM waits until the
worker can heed it. A worker that was stopped (SIGSTOP) wakes when its parent dies: it leads a process group of the
parent's session, and the kernel sends a stopped group SIGHUP and SIGCONT when that becomes an orphan.
"""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Import the worker and run it."""
    gc.set_threshold(100_000)  # looking for cycles took a tenth of importing, tracing and compiling; `release` does
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    from dwsweep.sweep.worker import main as run

    status = run()
    sys.stderr.flush()
    os._exit(status)  # exit at once: a compilation begun ahead must not hold up or break the interpreter's end


if __name__ == "__main__":
    main()
