"""Standard output and standard error that never end the program: a closed pipe, a full disk, a terminal that is gone
or an encoding without the character costs what was to be shown, not the work."""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_WIDTH = 100  # columns where the output is no terminal; tables are made for it

_lost: list[OSError] = []  # of standard output, the first failure


class _Descriptor(io.FileIO):
    """A file descriptor whose failed writes are dropped; each write is tried, for a full disk may have space again."""

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
            if written is None:  # the other end made it non-blocking, and reads slowly
                select.select([], [self.fileno()], [])
            return written or 0
        except OSError as error:
            if self.fileno() == 1 and not _lost:
                _lost.append(error)
            return len(data)


def console(stderr: bool = False) -> Console:
    """A rich console on standard output, or on standard error, that never raises."""
    from rich.console import Console

    name = "stderr" if stderr else "stdout"
    stream = getattr(sys, name)
    tolerant = _tolerant(stream)
    # a stream that cannot break is looked up anew for each line: it may be replaced for a while (by a test, a notebook)
    made = Console(stderr=stderr) if tolerant is stream else Console(file=tolerant)
    if made.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return made
    made.width = PLAIN_WIDTH
    return made


def tolerant_streams() -> None:
    """Make ``sys.stdout`` and ``sys.stderr`` of this process tolerant; called once, before anything is printed."""
    for descriptor in range(3):  # a closed one would go to the next file that is opened, and prints into that file
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):  # else it is somebody's own
            setattr(sys, name, _tolerant(stream))


def lost_output() -> OSError | None:
    """Why something printed on standard output did not arrive, if so: EPIPE where the reader of a pipe has left."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    return _lost[0] if _lost else None


def _tolerant(stream: TextIO | None) -> TextIO:
    """The stream in a form that never fails; itself where it already is, or does not lead to a file descriptor."""
    if stream is None or stream.closed:
        return open(os.devnull, "w", encoding="utf-8")
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # PYTHONUNBUFFERED leaves the buffer out
    if isinstance(raw, _Descriptor) or not isinstance(raw, io.FileIO) or not isinstance(stream, io.TextIOWrapper):
        return stream
    with contextlib.suppress(OSError):
        stream.flush()
    mine: Any = _Descriptor(stream.fileno(), "w", closefd=False)
    tolerant = mine if raw is buffer else io.BufferedWriter(mine)
    line, through = stream.line_buffering, stream.write_through
    return io.TextIOWrapper(tolerant, stream.encoding, "replace", line_buffering=line, write_through=through)
