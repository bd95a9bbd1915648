"""Progress of a pass over bytes, on standard error."""

from __future__ import annotations

import sys
import time
from typing import Any

from dwsweep import terminal

LINE_SECONDS = 15.0  # interval between two lines where the output is no terminal


class ByteProgress:
    """A progress bar for a pass over bytes, on standard error: MB/s and time left; plain lines where it is no terminal.

    A context manager; ``advance(n)`` after each piece of ``n`` bytes.
    """

    def __init__(self, title: str, total_bytes: int, *, show: bool = True) -> None:
        self.title, self.total, self.done = title, total_bytes, 0
        self._show = show
        self._bar: Any = None
        self._started = self._said = time.monotonic()

    def __enter__(self) -> ByteProgress:
        if self._show and sys.stderr.isatty():
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
            self._bar = Progress(TextColumn("{task.description}"), *columns, console=terminal.console(stderr=True))
            self._task = self._bar.add_task(self.title, total=self.total or None)
            self._bar.start()
        return self

    def advance(self, n_bytes: int) -> None:
        self.done += n_bytes
        if self._bar:
            self._bar.update(self._task, completed=self.done)
        elif self._show and time.monotonic() - self._said >= LINE_SECONDS:
            self._said = time.monotonic()
            self._line()

    def _line(self) -> None:
        seconds = time.monotonic() - self._started
        rate = self.done / max(seconds, 1e-9)
        left = f", {max(0.0, self.total - self.done) / rate:,.0f} s left" if rate and self.total > self.done else ""
        total = f" of {self.total / 1e6:,.1f}" if self.total else ""
        print(
            f"{self.title}: {self.done / 1e6:,.1f}{total} MB, {rate / 1e6:,.1f} MB/s{left}", file=sys.stderr, flush=True
        )

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()
        elif self._show and self._said != self._started:
            self._line()
