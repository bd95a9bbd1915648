"""Entry point of the command and of ``python -m dwsweep``: Ctrl-C and SIGTERM end it with one line and
status 3."""

from __future__ import annotations

import gc
import os
import signal
import sys


class _Stopped(KeyboardInterrupt):
    """A signal to stop. Python remembers a plain KeyboardInterrupt that left an ``exec``, as dataclasses do on import,
    and ends by SIGINT at last, whatever the exit status."""


def _stop(number: int, frame: object) -> None:
    raise _Stopped


def main() -> None:
    """Import the command line and run it."""
    # small matrices: a second thread of BLAS waits, and for a sixth of a fit's CPU seconds it did so by spinning
    os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    gc.set_threshold(100_000)  # a command makes many objects and few cycles: the search for cycles took 7 % of a fit
    # a scheduler stops a job by SIGTERM; `run` has its own answer later
    for number, usual in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) == usual:
            signal.signal(number, _stop)
    try:
        from dwsweep.cli.app import main as run
    except KeyboardInterrupt:  # imports take most of the first half second
        print("error: interrupted", file=sys.stderr)
        sys.exit(3)
    try:
        run()
    finally:
        gc.freeze()  # no search for cycles in a process that ends: 40 ms


if __name__ == "__main__":
    main()
