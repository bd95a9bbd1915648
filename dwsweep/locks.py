"""Locks of the kernel, freed when their process dies, however it dies.

They hold among the processes of one host, and of several where the file system supports it. A bucket has no locks: a
file of the user's cache on this host stands in.

Not the package filelock: its ``FileLock`` is this same call, without a message to the waiting process, and its
``SoftFileLock``, for file systems without locks, stays behind when its owner is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from dwsweep import paths

TRY_SECONDS = 0.5  # `status` locks a file for a moment to see whether it is free


@contextlib.contextmanager
def exclusive(path: Any, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Lock that admits one process at a time to the block; waits for its turn, and calls ``waiting`` once if it must.

    Without effect if the file system has no locks.
    """
    if not paths.is_remote(path):
        paths.make_directory(path.parent)
    with opened(path) as file:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def opened(path: Any, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    """Descriptor of a file to be locked, for a bucket's path of a file of this host.

    A link is not followed: whoever else may write here cannot point us at another file.
    """
    if paths.is_remote(path):
        path = (
            paths.make_directory(paths.cache_root() / "locks")
            / hashlib.sha256(os.fspath(path).encode()).hexdigest()[:16]
        )
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def locked(descriptor: int, how: int, seconds: float = TRY_SECONDS) -> bool:
    """Lock an open file, within some ``seconds``; whether it is locked."""
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
