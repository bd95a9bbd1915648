"""Checkpoints in a bucket that Orbax cannot write to: it reaches local folders and ``gs://`` alone.

They are written to a folder of this host and copied once they are whole. Orbax's own mark ``commit_success.txt`` goes
last, as in ``gs://``. What counts is in the bucket: a new process begins with an empty folder and what it fetches.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import jax

from dwsweep import paths
from dwsweep.errors import InputError

MARK = "commit_success.txt"


def needs_mirror(directory: Any) -> bool:
    return paths.is_remote(paths.as_path(directory)) and not os.fspath(directory).startswith("gs://")


class Mirror:
    """The copy on this host of the checkpoints in ``remote``, as they are in the bucket when it is made.

    Raises:
        InputError: several hosts train the pack, each of which would have its own copy.
    """

    def __init__(self, remote: Any) -> None:
        if jax.process_count() > 1:
            raise InputError(f"--distributed: with --out {remote}; allowed: a shared folder or gs://")
        self.remote = remote
        name = hashlib.sha256(os.fspath(remote).encode()).hexdigest()[:16]
        self.local = paths.cache_root() / "checkpoints" / name
        paths.remove(self.local)
        paths.make_directory(self.local)
        self._there = {int(name) for name in paths.names_in(remote) if self._is_whole(name)}
        for number in self._there:
            _copy(self.remote / str(number), self.local / str(number))

    def _is_whole(self, name: str) -> bool:
        return name.isdecimal() and bool((self.remote / name / MARK).exists())

    def upload(self, numbers: list[int]) -> None:
        """Copy the whole ones that are not there, and remove those that are kept no longer."""
        for number in sorted(set(numbers) - self._there):
            paths.remove(self.remote / str(number))  # the beginning of one by a killed process
            _copy(self.local / str(number), self.remote / str(number), last=MARK)
            self._there.add(number)
        for number in sorted(self._there - set(numbers)):
            (self.remote / str(number) / MARK).unlink()
            paths.remove(self.remote / str(number))
            self._there.discard(number)

    def close(self) -> None:
        paths.remove(self.local)


def _copy(source: Any, target: Any, last: str = "") -> None:
    """All that is in a folder, the entry ``last`` after all others."""
    paths.make_directory(target)
    for entry in sorted(source.iterdir(), key=lambda entry: entry.name == last):
        if entry.is_dir():
            _copy(entry, target / entry.name)
        else:
            (target / entry.name).write_bytes(entry.read_bytes())
