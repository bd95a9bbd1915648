"""A file layer that fails at its n-th call, and a disk that keeps only what was synced: what a power cut leaves.

In the manner of SQLite's tests (https://www.sqlite.org/testing.html, sections 3.2 and 3.3). The model is the most
pessimistic that POSIX allows: a file has the content of its last fsync, a folder the names of its last fsync.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest


class _File:
    """A file open for writing whose writes are counted; a failing one writes half."""

    def __init__(self, layer: FileLayer, file: Any) -> None:
        self._layer, self._file = layer, file

    def write(self, data: Any) -> Any:
        raw = isinstance(self._file, io.RawIOBase)  # one call of the kernel, which may take a part
        first = self._layer.failed is None
        if self._layer.fails("write"):
            self._file.write(data[: len(data) // 2])
            self._file.flush()
            if raw and first and self._layer.fills:
                return len(data) // 2  # the next call finds the disk full
            raise OSError(self._layer.number, os.strerror(self._layer.number))
        return self._file.write(data[: (len(data) + 1) // 2] if raw and self._layer.short else data)

    def __enter__(self) -> _File:
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._file.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FileLayer:
    """Calls below ``root`` are counted; the ``n``-th fails, and all after it where ``for_good``.

    ``number``: of the error. With ENOSPC a write takes a half, and the one after it fails. ``short``: every write
    takes a half, and none fails.
    """

    def __init__(
        self, root: Path, n: int | None, for_good: bool = False, number: int = errno.EIO, short: bool = False
    ) -> None:
        self.root, self.n, self.for_good, self.number, self.short = str(root), n, for_good, number, short
        self.fills = number == errno.ENOSPC and not for_good
        self.calls: Counter[str] = Counter()
        self.failed: str | None = None  # the call that did
        self._contents: dict[int, bytes] = {}  # by inode, at the last fsync
        self._names: dict[str, dict[str, tuple[bool, int]]] = {}  # of a folder, at the last fsync: is a folder, inode

    def fails(self, call: str) -> bool:
        self.calls[call] += 1
        number = sum(self.calls.values())
        again = self.for_good or (self.fills and call == "write" and self.failed == "write" and number == self.n + 1)
        failing = self.n is not None and (number == self.n or (again and number > self.n))
        if failing and self.failed is None:
            self.failed = call
        return failing

    def install(self, patch: pytest.MonkeyPatch) -> None:
        opened, fsync = io.open, os.fsync

        def open_file(file: Any, mode: str = "r", *more: Any, **named: Any) -> Any:
            ours = isinstance(file, str | os.PathLike) and os.fspath(file).startswith(self.root)
            if not ours or not set(mode) & set("wax+"):
                return opened(file, mode, *more, **named)
            if self.fails("open"):
                raise OSError(self.number, os.strerror(self.number), os.fspath(file))
            return _File(self, opened(file, mode, *more, **named))

        def sync(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if path.startswith(self.root):
                if self.fails("fsync"):
                    raise OSError(self.number, os.strerror(self.number))
                self._synced(path, descriptor)

        patch.setattr(builtins, "open", open_file)
        patch.setattr(io, "open", open_file)
        patch.setattr(os, "fsync", sync)
        for name in ("replace", "rename", "link", "unlink", "remove"):
            patch.setattr(os, name, self._failing(name, getattr(os, name)))
        assert fsync is not os.fsync

    def _failing(self, name: str, real: Any) -> Any:
        def call(path: Any, *more: Any, **named: Any) -> Any:
            ours = isinstance(path, str | os.PathLike) and os.fspath(path).startswith(self.root)
            if ours and self.fails({"replace": "rename", "remove": "unlink"}.get(name, name)):
                raise OSError(self.number, os.strerror(self.number), os.fspath(path))
            return real(path, *more, **named)

        return call

    def _synced(self, path: str, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            entries = list(os.scandir(path))
            self._names[path] = {entry.name: (entry.is_dir(), entry.inode()) for entry in entries}
        else:
            self._contents[found.st_ino] = Path(path).read_bytes()

    def after_power_cut(self, target: Path) -> Path:
        """Make the sweep as the disk has it, at ``target``."""
        self._restore(self.root, target)
        return target

    def _restore(self, folder: str, target: Path) -> None:
        target.mkdir()
        for name, (is_folder, inode) in self._names.get(folder, {}).items():
            if is_folder:
                self._restore(f"{folder}/{name}", target / name)
            else:
                (target / name).write_bytes(self._contents.get(inode, b""))
