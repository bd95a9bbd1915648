"""Held-out documents of one run: ``documents.npy``, checked against the loss in result.json."""

from __future__ import annotations

import hashlib
import io
from functools import lru_cache
from typing import Any

from dwsweep import paths
from dwsweep.records.run import RunResult

SUM_TOLERANCE = 1e-9  # tolerance relative to the loss: writing and checking add in different orders


def fault_of_documents(path: Any, result: RunResult) -> str:
    """Fault of a ``documents.npy`` as the documents of ``result``, empty if sound: rows of (summed nats, tokens), one
    per held-out document, with Σ nats / Σ tokens = loss and, if recorded, Σ tokens = heldout_tokens.

    Faults: other bytes than were written, cut short, no array, an array of another shape or with impossible values,
    another loss or another number of tokens; a FIFO, a loop of links or another thing that is no file. A missing file
    is no fault: the loss stands, and a fit pairs nothing by document. An object of a bucket is whole or
    not there at all, and is not read for this.
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
    return _fault_of_documents(path, result.loss, result.heldout_tokens, result.documents_sha256, *version)


@lru_cache(maxsize=1 << 16)
def _fault_of_documents(path: Any, loss: float, tokens_read: int | None, digest: str | None, *version: int) -> str:
    """Fault of the documents of a loss over so many tokens; empty for nothing. Read once for each ``version``
    of the file."""
    import numpy as np

    try:
        data = paths.read_bytes(path)
        array = _array(data)
    except PermissionError:
        raise
    except Exception as error:  # numpy reports a bad header or length by many errors
        return f"is no whole array ({' '.join(str(error).split()) or type(error).__name__})"
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "fiu":
        found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        return f"is {found}; must be numbers of shape [documents, 2]"
    with np.errstate(all="ignore"):
        nats, tokens = array.astype(np.float64).sum(axis=0)
        sums_to = nats / tokens
    if not (np.isfinite(array).all() and (array >= 0).all() and tokens > 0):
        return "has numbers that are not finite, or negative; nats and tokens are neither"
    if not abs(sums_to - loss) <= SUM_TOLERANCE * max(1.0, loss):
        return f"sums to {sums_to:.10g} nats per token; the recorded loss is {loss:.10g}"
    if tokens_read is not None and tokens != tokens_read:
        return f"is of {tokens:.10g} held-out tokens; the recorded loss is of {tokens_read}"
    if digest is not None and hashlib.sha256(data).hexdigest() != digest:
        return "differs from the file written: its SHA-256 is not the one in result.json"
    return ""


def _array(data: bytes) -> Any:
    """Array of a .npy file. What costs time is its header, which thousands of files have in common."""
    import numpy as np

    start = data.find(b"\n") + 1  # ends the header
    shape, in_order_of_fortran, dtype = _header(data[:start])
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded")
    array = np.frombuffer(data, dtype, offset=start)
    return array.reshape(shape, order="F" if in_order_of_fortran else "C")


@lru_cache(maxsize=64)
def _header(data: bytes) -> tuple[tuple[int, ...], bool, Any]:
    import numpy as np

    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)
