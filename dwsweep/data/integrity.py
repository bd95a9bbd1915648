"""Whether files are what was written, found out once per folder and change of its files.

Reading a store of 20 GB takes seconds, and every worker opens it. So the verdict is remembered with the sizes and the
times of the files it holds for: beside them, or for a read-only folder in the user's cache, or in this process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dwsweep import paths

VERIFIED = "verified.json"
_BLOCK_BYTES = 1 << 22

_verified: dict[Path, str] = {}  # folder → fingerprint of its files


def checksums(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 (hex) of each file, several at a time. OSError where one cannot be read."""
    names = list(names)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return dict(zip(names, pool.map(lambda name: _sha256(folder / name), names), strict=True))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def fingerprint(folder: Path, names: Iterable[str]) -> str:
    """What changes when one of the files does: names, sizes, and times of writing and of any change."""
    stats = [(name, (folder / name).stat()) for name in sorted(names)]
    found = [f"{name} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}" for name, s in stats]
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def is_verified(folder: Path, found: str) -> bool:
    """Whether the files with this fingerprint were verified before, by any process that could leave word of it."""
    if _verified.get(folder) == found:
        return True
    return any(_read(place) == found for place in _places(folder))


def remember(folder: Path, found: str) -> None:
    """Keep the verdict that the files with this fingerprint are whole."""
    _verified[folder] = found
    for place in _places(folder):
        try:
            paths.make_directory(place.parent)
            paths.write_json(place, {"files": found})
            return
        except OSError:  # read-only, or full
            continue


def _read(place: Path) -> str | None:
    try:
        return (paths.read_json(place) or {}).get("files")
    except OSError:
        return None


def _places(folder: Path) -> tuple[Path, Path]:
    name = hashlib.sha256(os.fspath(folder).encode()).hexdigest()[:16]
    return folder / VERIFIED, paths.cache_root() / "verified" / f"{name}.json"
