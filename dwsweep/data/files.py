"""Files of a source: found by glob (local or gs://), opened through the compression that their first bytes show."""

from __future__ import annotations

import bz2
import glob as _glob
import gzip
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import PurePath
from typing import IO, Any

from dwsweep import paths
from dwsweep.errors import InputError, install
from dwsweep.text import one_line


def _zstandard(raw: IO[bytes]) -> Any:
    import pyarrow as pa  # whose reader, unlike zstandard's, refuses a stream that ends inside a frame

    return pa.CompressedInputStream(raw, "zstd")


PACKED: tuple[tuple[str, re.Pattern[bytes], Callable[[IO[bytes]], Any]], ...] = (
    ("gzip", re.compile(rb"\x1f\x8b"), lambda raw: gzip.GzipFile(fileobj=raw)),
    ("bzip2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), bz2.BZ2File),
    ("xz", re.compile(rb"\xfd7zXZ\x00"), lzma.LZMAFile),
    ("zstandard", re.compile(rb"\x28\xb5\x2f\xfd"), _zstandard),
)
"""Name, first bytes and reader of each compression."""


@dataclass(frozen=True)
class FoundFile:
    """Identity of a file that was found: path, size and time, known without reading it."""

    path: str
    n_bytes: int
    modified_ns: int


def is_remote(path: str) -> bool:
    return "://" in path


@contextmanager
def remote_access(path: str) -> Iterator[None]:
    """InputError of one line for every error of a remote file system, a missing package included."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = one_line(error)
        if isinstance(error, ImportError) and path.startswith("gs://"):
            reason = f"{reason}; gs:// needs the extra: {install('gcs')}"
        raise InputError(f"data.source: {path}; cannot be read ({reason})") from None


def stat(path: str) -> FoundFile:
    if is_remote(path):
        with remote_access(path):
            remote = paths.as_path(path).stat()
            return FoundFile(path, int(remote.length), int((remote.mtime or 0) * 1_000_000_000))
    local = os.stat(path)
    return FoundFile(path, local.st_size, local.st_mtime_ns)


def find_files(kind: str, pattern: str) -> tuple[FoundFile, ...]:
    """Files of ``pattern``: a file, all files below a folder, or a glob (also ``**``); sorted by path.

    Hidden files are left out. InputError if no file is found.
    """
    if not pattern:
        raise InputError(f"data.source: {kind}:; must have a path or a glob after the colon")
    if is_remote(pattern):
        found = _remote_paths(pattern)
    else:
        pattern = os.path.abspath(os.path.expanduser(pattern))
        if os.path.isdir(pattern):
            found = [os.path.join(folder, f) for folder, _, names in os.walk(pattern) for f in names]
            found = [p for p in found if not any(x.startswith(".") for x in PurePath(p).relative_to(pattern).parts)]
        elif os.path.isfile(pattern):
            found = [pattern]
        else:
            found = [p for p in _glob.glob(pattern, recursive=True) if os.path.isfile(p)]
    if not found:
        empty = not is_remote(pattern) and os.path.isdir(pattern)
        absent = "this folder holds no files" if empty else "no such file"
        raise InputError(
            f"data.source: {kind}:{pattern}; {absent}; give a file, a folder with files, or a glob that matches some"
        )
    return tuple(stat(p) for p in sorted(found))


def _remote_paths(pattern: str) -> list[str]:
    head = pattern.split("*")[0].split("?")[0].split("[")[0]
    with remote_access(pattern):
        if head == pattern:
            path = paths.as_path(pattern)
            if not path.is_dir():
                return [pattern] if path.exists() else []
            found = _below(path)
        else:
            folder = head.rpartition("/")[0]
            found = [p for p in paths.as_path(folder).glob(pattern[len(folder) + 1 :]) if not p.is_dir()]
        return [os.fspath(p) for p in found if not p.name.startswith(".")]


def _below(folder: Any) -> list[Any]:
    """All files below an epath folder (its own recursive glob refuses remote folders)."""
    children = [p for p in folder.iterdir() if not p.name.startswith(".")]
    return [q for p in children for q in (_below(p) if p.is_dir() else [p])]


def open_raw(path: str) -> IO[bytes]:
    """Binary stream of the raw bytes of a file."""
    if is_remote(path):
        with remote_access(path):
            return paths.as_path(path).open("rb")
    return open(path, "rb")


@contextmanager
def open_stream(path: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Decompressed and raw stream of a file; the raw one shows progress. Errors of reading become one InputError."""
    with open_raw(path) as raw:
        head = raw.read(16)
        raw.seek(0)
        packed = ((name, reader) for name, first, reader in PACKED if first.match(head))
        name, reader = next(packed, ("file", nullcontext))
        try:
            with reader(raw) as stream:
                yield stream, raw
        except (EOFError, lzma.LZMAError, OSError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # a full disk or a lost mount; the file's content is not the cause
            raise InputError(
                f"data.source: {path}; truncated or damaged {name} ({error}); copy or download it again"
            ) from None
