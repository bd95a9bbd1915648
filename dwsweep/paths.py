"""File operations, local or in a bucket (``gs://…``, through ``etils.epath``): reading, atomic writes, folders.

A local file is written beside its place and renamed over it; an object in a bucket appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dwsweep.errors import InputError, install

MOST_BYTES = 1 << 33  # limit for a file that is read whole, other than a model's parameters


def as_path(path: str | os.PathLike[str]) -> Any:
    """A ``pathlib.Path``, or for ``gs://…`` an ``epath.Path`` (the same methods).

    Raises:
        InputError: a scheme that is not known.
    """
    text = os.fspath(path)
    # pathlib folds the two slashes of a URL; gs:/bucket is never a local path that anyone meant
    if text.startswith("gs:/"):
        from etils import epath

        _read_listings_anew()
        return epath.Path("gs://" + text.removeprefix("gs:").lstrip("/"))
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", text):
        raise InputError(
            f"{text}: unknown kind of path; must be gs://… or local, such as the folder of a mounted bucket"
        )
    return Path(text)


def reachable(path: str | os.PathLike[str]) -> Any:
    """``as_path`` for a user's path: a bucket without its client is refused at once.

    Raises:
        InputError: the package that reaches the bucket is not installed; a scheme that is not known.
    """
    found = as_path(path)
    if is_remote(found):
        import importlib.util

        import fsspec

        try:
            fsspec.get_filesystem_class("gs")
        except ImportError:
            if importlib.util.find_spec("tensorflow") is None:  # epath uses its file system where it is installed
                raise InputError(f"{found}: paths in such a bucket need a package: {install('gcs')}") from None
    return found


_PASSING = frozenset(
    {errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOTCONN, errno.EREMOTEIO, errno.EHOSTDOWN}
)  # faults of the machine, or of its way to a file system: the same command may do without them
_CLIENTS = ("aiohttp", "fsspec", "gcsfs", "google", "requests", "urllib3")
_NO_ANSWER = re.compile(r"connect|timeout|closed|reset|unavailable|payload|slow ?down|internal", re.IGNORECASE)
_TENSORSTORE = re.compile(r"\b(UNAVAILABLE|DEADLINE_EXCEEDED)\b.*(gs://|http)", re.DOTALL)


def out_of_reach(error: BaseException) -> str | None:
    """One line if a bucket's client got no answer, retries included, or a file system failed for reasons of its own;
    None for any other failure."""
    for link in chain(error):
        if is_of_a_client(link):
            code = str(getattr(link, "code", None) or getattr(link, "status", None))
            told = code.isdecimal() and (int(code) >= 500 or int(code) in (408, 429))
            if told or (not code.isdecimal() and _NO_ANSWER.search(f"{type(link).__name__} {link}")):
                return _no_answer(link)
        elif isinstance(link, ValueError | RuntimeError) and _TENSORSTORE.search(str(link)):
            return _no_answer(link)
        elif isinstance(link, OSError) and link.errno in _PASSING and not isinstance(link, FencedOff):
            return f"the file system fails ({link}); nothing is lost, and the same command continues"
    return None


def chain(error: BaseException) -> list[BaseException]:
    """The error and those that led to it, the last one first."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


def is_of_a_client(error: BaseException) -> bool:
    """Test that a client of buckets raised the error, by the name of its package, without an import."""
    return type(error).__module__.partition(".")[0] in _CLIENTS


def _no_answer(error: BaseException) -> str:
    words = " ".join(str(error).split()) or type(error).__name__
    return f"the bucket does not answer ({words[:200]}); nothing is lost, and the same command continues"


def _read_listings_anew() -> None:
    """Keep fsspec from answering with old listings: workers and parent write into the same bucket.

    A client's final failure becomes our one line, so its own log is not shown.
    """
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    with contextlib.suppress(ImportError):  # TensorFlow's file system is used then, which keeps no listings
        import fsspec

        for protocol in ("gcs", "gs"):
            fsspec.config.conf.setdefault(protocol, {}).setdefault("use_listings_cache", False)


def absolute(path: str | os.PathLike[str]) -> str:
    """Absolute path for any process on this host, or for a bucket anywhere."""
    found = as_path(path)
    return os.fspath(found) if is_remote(found) else os.path.abspath(found)


def is_remote(path: Any) -> bool:
    """True for a path in a bucket; a text is a local path."""
    return not isinstance(path, (Path, str))


def make_directory(path: Any) -> Any:
    """Make a local folder with its parents. A bucket has none: its client would make a misspelled bucket instead."""
    if not is_remote(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


class NotAFile(OSError):
    """Error of a path that is no regular file (a FIFO, a device, a loop of links) or larger than any file of
    dwsweep."""

    def __init__(self, path: Any, why: str) -> None:
        super().__init__(errno.EINVAL, why, str(path))

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def check_file(path: Any, most_bytes: int = MOST_BYTES) -> os.stat_result:
    """Refuse a file that would block its reader or never end, before opening it; the file's status otherwise.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        IsADirectoryError: it is a folder.
        NotAFile: a FIFO, a device, a socket, a loop of links, or more than ``most_bytes``.
    """
    try:
        found = os.stat(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotAFile(path, "is a loop of links; must be a file") from None
        raise
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        raise NotAFile(path, "is a FIFO, a device or a socket; must be a file")
    if found.st_size > most_bytes:
        raise NotAFile(path, f"has {found.st_size:,} bytes; must have at most {most_bytes:,}")
    return found


def read_bytes(path: Any, most_bytes: int = MOST_BYTES) -> bytes:
    """All bytes of a regular file, or of an object in a bucket.

    Raises:
        OSError: as ``check_file``; or it cannot be read.
    """
    if is_remote(path):
        return bytes(path.read_bytes())
    check_file(path, most_bytes)
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def read_text(path: Any, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file in UTF-8.

    Raises:
        UnicodeDecodeError: it is no UTF-8.
        OSError: as ``read_bytes``.
    """
    return read_bytes(path, most_bytes).decode()


def holds(path: Any, text: str) -> bool:
    """True if a file can be read and is this text."""
    try:
        return read_bytes(path) == text.encode()
    except OSError:
        return False


class FencedOff(OSError):
    """Loss of ownership: another process owns the sweep directory, and this one may not write into it."""

    def __init__(self, why: str) -> None:
        super().__init__(errno.ESTALE, why)

    def __str__(self) -> str:
        return str(self.strerror)


_fences: dict[str, Callable[[], None]] = {}  # directory with a slash → function that raises if another process owns it


@contextlib.contextmanager
def fence(directory: Any, check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` before every write of this process into the directory, while the block runs."""
    root = os.fspath(directory).rstrip("/") + "/"
    before = _fences.get(root)
    _fences[root] = check
    try:
        yield
    finally:
        if before is None:
            _fences.pop(root, None)
        else:
            _fences[root] = before


def check_fence(path: Any) -> None:
    """Call the fence of the path's directory, if it has one.

    Raises:
        FencedOff: the directory has another owner.
    """
    if _fences:
        place = os.fspath(path)
        for root, check in [*_fences.items()]:
            if place.startswith(root):
                check()


def write_atomic(path: Any, content: str | bytes, *, durable: bool = False, folder: bool = True) -> None:
    """Replace ``path`` by ``content`` in one step. ``durable`` waits until the disk has it; without ``folder`` its
    name may still be lost in a power cut, until the folder is synced with a later write.

    Raises:
        OSError: the disk is full or the folder cannot be written; the old content is still there.
        FencedOff: somebody else owns the directory; the old content is still there.
    """
    data = content.encode() if isinstance(content, str) else content
    if is_remote(path):
        check_fence(path)
        path.write_bytes(data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        check_fence(path)  # check as late as possible
        os.replace(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename in (None, str(temporary)) and not isinstance(error, FencedOff):
            error.filename = str(path)  # a full disk names no file, a folder in its place the temporary one
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable and folder:
        sync_folder(path.parent)


def create(path: Any, content: str) -> bool:
    """Write a new file; whether this call did. Of several processes at once one does.

    A bucket decides by a condition of the request (``ifGenerationMatch=0``), which fsspec calls mode ``create``.

    Raises:
        InputError: the client of the bucket knows no such condition.
    """
    data = content.encode()
    if not is_remote(path):
        try:
            with open(path, "xb") as file:
                file.write(data)
        except FileExistsError:
            return False
        return True
    if path.exists():
        return False
    import fsspec

    system, name = fsspec.core.url_to_fs(os.fspath(path))
    try:
        if not system.async_impl and type(system).pipe_file is fsspec.AbstractFileSystem.pipe_file:
            raise NotImplementedError  # fsspec's own default looks first and then writes
        system.pipe_file(name, data, mode="create")
    except FileExistsError:
        return False
    except (TypeError, NotImplementedError, ValueError):
        raise InputError(f"{path}: its client makes no object on the condition that none is there; update it") from None
    return True


_on_disk: set[tuple[str, int]] = set()  # folders whose names this process has brought to the disk, with their inodes


def sync_folder(folder: Any) -> None:
    """Sync the names in a local folder, and in up to three folders above it."""
    if is_remote(folder):
        return
    _sync(folder)
    for _ in range(3):
        parent = folder.parent
        key = str(folder), os.stat(folder).st_ino
        if key in _on_disk or parent == folder:
            return
        _sync(parent)
        _on_disk.add(key)
        folder = parent


def sync_file(path: Any) -> None:
    """Sync a local file's content, if it exists."""
    if not is_remote(path):
        with contextlib.suppress(FileNotFoundError):
            _sync(path)


def _sync(path: Any) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):  # a file system that cannot sync folders
            error.filename = error.filename or str(path)
            raise
    finally:
        os.close(descriptor)


def read_json(path: Any) -> dict[str, object] | None:
    """The mapping in a JSON file; None when the file is missing or, after a power cut, not whole."""
    try:
        content = json.loads(read_bytes(path))
    except (FileNotFoundError, NotADirectoryError, NotAFile, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def write_array(path: Any, array: Any) -> str:
    """Write an array as .npy, durably but for its name (``folder`` in ``write_atomic``); returns its SHA-256 (hex)."""
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array)
    data = buffer.getvalue()
    write_atomic(path, data, durable=True, folder=False)
    return hashlib.sha256(data).hexdigest()


def write_safetensors(path: Any, arrays: Mapping[str, Any], framework: str = "np") -> tuple[str, int]:
    """Write arrays by name as safetensors; returns the file's SHA-256 (hex) and its bytes.

    The library keeps meta data in a hash table: with one key of them the same arrays are the same bytes.
    """
    from safetensors.numpy import save

    if not is_remote(path):  # a killed process leaves a half-written file as large as the whole one
        for stale in path.parent.glob(f".{path.name}.*.tmp"):
            remove(stale)
    data = save(dict(arrays), metadata={"format": framework})
    write_atomic(path, data, durable=True)
    return hashlib.sha256(data).hexdigest(), len(data)


def names_in(path: Any) -> list[str]:
    """Sorted names in a folder; none when it does not exist."""
    try:
        if not is_remote(path):
            return sorted(entry for entry in os.listdir(path) if not entry.startswith("."))
        return sorted(entry.name for entry in path.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove(path: Any) -> None:
    """Remove a file, or a folder with its content; nothing to do where there is none."""
    with contextlib.suppress(FileNotFoundError):
        if not path.is_dir() or is_link(path):
            path.unlink()
        elif isinstance(path, Path):
            import shutil

            shutil.rmtree(path)
        else:
            path.rmtree()


def is_there(path: Any) -> bool:
    """True if anything has this name, a broken link included."""
    return bool(path.exists()) if is_remote(path) else os.path.lexists(path)


def is_link(path: Any) -> bool:
    """Test that the path itself is a link; a bucket has no links."""
    return isinstance(path, Path) and path.is_symlink()


def set_aside(path: Any) -> str:
    """Rename an unusable file to ``<name>.damaged``, replacing an earlier one; returns the new name."""
    aside = path.with_name(f"{path.name}.damaged")
    remove(aside)
    if is_remote(path):
        aside.write_bytes(path.read_bytes())
        path.unlink()
    else:
        os.replace(path, aside)
    return str(aside.name)


def cache_root() -> Path:
    """The user's cache on this host: $DWSWEEP_CACHE, else ~/.cache/dwsweep.

    Raises:
        InputError: it is not local.
    """
    root = as_path(os.environ.get("DWSWEEP_CACHE") or "~/.cache/dwsweep")
    if is_remote(root):
        raise InputError(f"DWSWEEP_CACHE: {root}; must be a local folder: training maps the token stores into memory")
    return root.expanduser().absolute()
