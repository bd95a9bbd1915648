"""How a command ends for the shell: its exit status, and one line of standard error for whatever stopped it."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable

from dwsweep import terminal
from dwsweep.errors import InputError

DONE, SOME_FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 3


def of(command: Callable[[], int | None]) -> int:
    """Run ``command``, which returns its status, or None where it has none of its own.

    Bad input, whoever found it, is one clear line and ``WRONG_INPUT``; a defect of ours keeps its traceback.
    """
    terminal.tolerant_streams()
    code = _status(command)
    lost = terminal.lost_output()
    # a command without a status of its own has its output as its result; a reader that left had what it wanted
    if code is None and lost is not None and lost.errno != errno.EPIPE:
        _print_error(f"standard output: {lost.strerror}")
        code = WRONG_INPUT
    return code or DONE


def _status(command: Callable[[], int | None]) -> int | None:
    try:
        code = command()
        if code == 128 + signal.SIGINT:  # typer's own status for Ctrl-C
            raise KeyboardInterrupt
        return code
    except InputError as error:
        for line in error.lines:
            _print_error(line)
        return WRONG_INPUT
    except KeyboardInterrupt:
        _print_error("interrupted")
        return INTERRUPTED
    except OSError as error:  # a folder that is a file, no right to write, a full disk
        named = error.filename is not None and error.strerror is not None
        _print_error(f"{error.filename}: {error.strerror}" if named else str(error) or type(error).__name__)
        return WRONG_INPUT
    except Exception as error:
        # typer may bring its own click, so its usage errors are recognised by what they can do
        if not hasattr(error, "format_message"):
            if type(error).__name__ == "Abort":
                return INTERRUPTED
            raise
        if message := error.format_message():  # empty where the help was shown for want of arguments
            _print_error(" ".join(message.replace(": Value error, ", ": ").split()))  # typer's, by way of pydantic
        return WRONG_INPUT


def _print_error(line: str) -> None:
    print(f"error: {line}", file=sys.stderr)
