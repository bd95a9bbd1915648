"""Entry point of the command and of ``python -m dwsweep``: from its first line on, Ctrl-C and SIGTERM are one line and
status 3."""

from __future__ import annotations

import gc
import signal
import sys


def main() -> None:
    """Import the command line and run it."""
    gc.set_threshold(100_000)  # a command makes many objects and few cycles: looking for these took 7 % of a fit
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:  # a scheduler stops a job so; `run` has its own answer later
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from dwsweep.cli.app import main as run
    except KeyboardInterrupt:  # imports take most of the first half second
        print("error: interrupted", file=sys.stderr)
        sys.exit(3)
    run()


if __name__ == "__main__":
    main()
