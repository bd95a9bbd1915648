"""Locks of the kernel, freed when their process dies, however it dies. They hold among the processes of one host,
and of several where the file system supports it. A bucket has none: there a file of this host stands in.

Not the package filelock: its ``FileLock`` is this same call, without a word to who waits, and its ``SoftFileLock``, for
file systems without locks, stays behind when its owner is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from dwsweep import paths
from dwsweep.errors import InputError

PACK_WAIT_SECONDS = 180.0  # for an orphaned worker to reach its checkpoint


@contextlib.contextmanager
def exclusive(path: Any, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """One process at a time inside the block; waits for its turn, and calls ``waiting`` once if it must.

    Without effect where the file system has no locks.
    """
    with _lock_file(path) as file:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def if_free(path: Any) -> Iterator[bool]:
    """Hold the lock inside the block, if nobody else does; whether it is held."""
    with _lock_file(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


@contextlib.contextmanager
def one_worker(pack_directory: Any, waiting: Callable[[str], None]) -> Iterator[None]:
    """Keep the worker of a dead parent and its successor from training one pack at the same time.

    A worker whose parent was killed still writes its last checkpoint; the next one waits for it, and says so once.

    Raises:
        RuntimeError: the other worker holds the pack for too long.
    """
    with _lock_file(pack_directory / "worker.lock") as file:
        deadline = time.monotonic() + PACK_WAIT_SECONDS
        said = False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    waiting(f"{pack_directory.name}: waits for the worker of an earlier run to reach its checkpoint")
                    said = True
                if time.monotonic() > deadline:
                    raise RuntimeError(f"another worker still trains {pack_directory.name}") from None
                time.sleep(0.1)
            except OSError:
                break  # a file system without locks
        yield


@contextlib.contextmanager
def _lock_file(path: Any) -> Iterator[IO[bytes]]:
    if paths.is_remote(path):
        path = _own_folder() / hashlib.sha256(os.fspath(path).encode()).hexdigest()[:16]
    else:
        paths.make_directory(path.parent)
    # nothing is written, and a link is not followed: whoever else may write here cannot point us at another file
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(descriptor, "r+b", buffering=0) as file:
        yield file


def _own_folder() -> Path:
    """A folder of this host that only this user can write: the temporary folder is everybody's.

    Raises:
        InputError: something else stands in its place.
    """
    folder = Path(tempfile.gettempdir()) / f"dwsweep-locks-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise InputError(
            f"{folder}: must be a folder that belongs to this user and that nobody else can write; remove it, or name "
            "another temporary folder in TMPDIR"
        )
    return folder
