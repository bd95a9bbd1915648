"""Held-out documents of one run: ``documents.npy``, rows of (summed nats, tokens), compared with the hash in
result.json."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

from dwsweep import paths
from dwsweep.records.run import RunResult


def fault_of_documents(path: Any, result: RunResult) -> str:
    """Fault of a ``documents.npy`` as the documents of ``result``: other bytes than were written, or no file in its
    place; empty if sound.

    A missing file is no fault: the loss stands, and a fit pairs nothing by document. An object of a bucket is whole or
    not there at all, and is not read for this. A result of an earlier version has no hash: ``fit`` compares the sums.
    """
    if paths.is_remote(path):
        return ""
    try:
        found = paths.check_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except IsADirectoryError:
        return "is a folder"
    except paths.NotAFile as error:
        return str(error.strerror)
    version = found.st_ino, found.st_size, found.st_mtime_ns
    if result.documents_sha256 in (None, _sha256(path, *version)):
        return ""
    return "differs from the file written: its SHA-256 is not the one in result.json"


@lru_cache(maxsize=1 << 16)
def _sha256(path: Any, *version: int) -> str:
    """Hash of a file, read once for each ``version`` of it."""
    return hashlib.sha256(paths.read_bytes(path)).hexdigest()
