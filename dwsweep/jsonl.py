"""Files of appended JSON lines, such as metrics.jsonl.

A bucket has no append: lines are kept on this host and uploaded as numbered segments beside the file
(``metrics.jsonl.000001``), which reading joins and ``rewrite_lines`` folds into one object.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dwsweep import paths

SEGMENT_SECONDS = 30.0  # interval between two uploads of appended lines


def bytes_of_lines(path: Any) -> bytes:
    """The bytes of a file of appended lines, uploaded segments included; none where there is no file."""
    data = b""
    for part in [path, *_segments(path)]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError, paths.NotAFile):
            data += paths.read_bytes(part)
    return data


def lines_of(data: bytes) -> Iterator[dict[str, object] | None]:
    """The row of every line that is not blank; None for a line that holds none."""
    for line in data.decode(errors="replace").split("\n"):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            yield row if isinstance(row, dict) else None


def read_lines(path: Any) -> list[dict[str, object]]:
    """The rows of a file of JSON lines, uploaded segments included; lines without a row are left out."""
    return [row for row in lines_of(bytes_of_lines(path)) if row is not None]


def rewrite_lines(path: Any, rows: Iterable[Mapping[str, object]]) -> None:
    """Replace the file, its segments included, by these rows."""
    segments = _segments(path)
    paths.write_atomic(path, "".join(map(_line, rows)))
    for segment in segments:
        segment.unlink()


class LineWriter:
    """Appender of JSON lines: at once to a local file; for a bucket to a file of this host, uploaded in segments.

    What a killed process had not uploaded is uploaded by the next one on this host.
    """

    def __init__(self, path: Any) -> None:
        self.path = path
        self._remote = paths.is_remote(path)
        self._local = _staging(path) if self._remote else path
        self._uploaded_at = time.monotonic()
        self.flush()

    def append(self, rows: Iterable[Mapping[str, object]]) -> None:
        paths.check_fence(self.path)
        _append(self._local, "".join(map(_line, rows)).encode())
        if self._remote and time.monotonic() - self._uploaded_at >= SEGMENT_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Upload what waits; nothing to do for a local file."""
        if self._remote and self._local.exists():
            paths.check_fence(self.path)
            last = max((int(part.name.rsplit(".", 1)[1]) for part in _segments(self.path)), default=0)
            text = self._local.read_text("utf-8")
            self.path.with_name(f"{self.path.name}.{last + 1:06d}").write_text(text[: text.rfind("\n") + 1], "utf-8")
            self._local.unlink()
        self._uploaded_at = time.monotonic()


def _append(path: Path, data: bytes) -> None:
    """Append whole lines to a local file, all of them or none.

    One call writes them, so that a reader sees no half row. Where it takes a part, as on a disk that fills up, the rest
    follows; where that fails, the part is cut off again. Half a line that a kill left is cut off first.
    """
    with open(path, "a+b", buffering=0) as file:
        start = end = file.seek(0, os.SEEK_END)
        while start and file.seek(start - 1) >= 0 and file.read(1) != b"\n":
            start -= 1
        if start < end:
            file.truncate(start)
        left = memoryview(data)
        try:
            while left:
                left = left[file.write(left) or 0 :]
        except BaseException:
            with contextlib.suppress(OSError):
                file.truncate(start)
            raise


def _staging(path: Any) -> Path:
    """Local path of lines that wait for their upload."""
    name = hashlib.sha256(os.fspath(path).encode()).hexdigest()[:16]
    return paths.make_directory(paths.cache_root() / "uploads") / f"{name}.jsonl"


def _segments(path: Any) -> list[Any]:
    if not paths.is_remote(path):
        return []
    prefix = f"{path.name}."
    names = [name for name in paths.names_in(path.parent) if name.startswith(prefix)]
    return [path.parent / name for name in names if name.removeprefix(prefix).isdecimal()]


def _line(row: Mapping[str, object]) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"
