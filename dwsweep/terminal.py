"""Standard output and standard error that never end the program: a closed pipe, a full disk, a lost terminal or an
encoding without the character costs output, not work.

One console for everything that is shown: control characters in it are spelled out, whatever file they came from.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

from dwsweep.text import printable

if TYPE_CHECKING:
    from rich.console import Console


PLAIN_WIDTH = 100  # columns where the output is no terminal; tables are made for it

_lost: list[OSError] = []  # first failure of standard output


class _Descriptor(io.FileIO):
    """Raw stream whose failed writes are dropped; each write is tried, for a full disk may have space again."""

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
            if written is None:  # a non-blocking reader at the other end is slow
                select.select([], [self.fileno()], [])
            return written or 0
        except OSError as error:
            if self.fileno() == 1 and not _lost:
                _lost.append(error)
            return len(data)


@cache
def _console() -> type[Console]:
    """Console class of the package: rich's, but no text can steer the terminal."""
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                if segment.control is not None or segment.text == "\n" or segment.text.isprintable():
                    yield segment
                else:
                    yield Segment(printable(segment.text, keep="\n\t"), segment.style)

    return PrintableConsole


def console(stderr: bool = False) -> Console:
    """A rich console on standard output, or on standard error, that never raises.

    A text is printed as it is: brackets in a path are not markup and ``:x:`` in a name is no emoji. Control characters
    are spelled out.
    """
    Console = _console()
    name = "stderr" if stderr else "stdout"
    stream = getattr(sys, name)
    tolerant = _tolerant(stream)
    # look up an unbreakable stream for each line: a test or a notebook may replace it for a while
    to = {"stderr": stderr} if tolerant is stream else {"file": tolerant}
    made = Console(**to, markup=False, emoji=False)
    if not made.is_terminal and not os.environ.get("COLUMNS", "").isdigit():
        made.width = PLAIN_WIDTH
    return made


def waiting(what: str) -> Any:
    """Spinner during ``what``; nothing if the output is no terminal."""
    return console(stderr=True).status(what)


def plain_text(table: Any) -> str:
    """A rich table or group of them as text, without colours and ``PLAIN_WIDTH`` columns wide."""
    Console = _console()
    plain = Console(
        width=PLAIN_WIDTH, color_system=None, force_terminal=False, legacy_windows=False, markup=False, emoji=False
    )
    with plain.capture() as capture:
        plain.print(table, crop=False)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def show(table: Callable[[], Any], content: Callable[[], Any], wants_json: bool) -> None:
    """Tables for a person, or JSON; only the requested form is made."""
    if wants_json:
        import json

        print(json.dumps(content(), indent=1, allow_nan=False))
        return
    console().print(table(), crop=False)


def tolerant_streams() -> None:
    """Make ``sys.stdout`` and ``sys.stderr`` of this process tolerant; called once, before anything is printed."""
    for descriptor in range(3):  # a closed descriptor 0–2 would be reused by the next open()
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is getattr(sys, f"__{name}__"):  # otherwise the stream belongs to somebody else
            setattr(sys, name, _tolerant(stream))


def lost_output() -> OSError | None:
    """Reason why standard output did not arrive, if it did not: EPIPE if the reader of a pipe has left."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    return _lost[0] if _lost else None


def _tolerant(stream: TextIO | None) -> TextIO:
    """Stream in a form that never fails; the stream itself if it is already safe, or has no file descriptor."""
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
