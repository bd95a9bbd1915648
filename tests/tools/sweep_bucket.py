"""A bucket without a network: ``gs://`` kept in a local folder, with a bucket's manners.

An object appears whole when its writer closes it; there is no append and no rename; folders are only prefixes of
names. Every process of a test sees the same objects: the folder is named by ``SWEEP_BUCKET``.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec

if TYPE_CHECKING:
    import pytest

PROTOCOLS = ("gcs", "gs")


class Bucket(fsspec.AbstractFileSystem):
    protocol = PROTOCOLS
    cachable = False

    @property
    def root(self) -> Path:
        # read each time: epath keeps one instance for all tests of a process
        root = Path(os.environ["SWEEP_BUCKET"])
        root.mkdir(parents=True, exist_ok=True)
        return root

    def _names(self) -> dict[str, Path]:
        return {urllib.parse.unquote(p.name): p for p in self.root.iterdir() if not p.name.startswith(".")}

    def _file(self, path: str) -> Path:
        return self.root / urllib.parse.quote(self._strip_protocol(path), safe="")

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        found: dict[str, dict[str, Any]] = {}
        for name, file in self._names().items():
            if name == path:
                found[name] = {"name": name, "size": file.stat().st_size, "type": "file"}
            elif name.startswith(f"{path}/"):
                head, _, rest = name[len(path) + 1 :].partition("/")
                child = f"{path}/{head}"
                size = 0 if rest else file.stat().st_size
                found[child] = {"name": child, "size": size, "type": "directory" if rest else "file"}
        if not found:
            raise FileNotFoundError(path)
        return list(found.values()) if detail else sorted(found)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        file = self._file(path)
        if file.exists():
            return {"name": path, "size": file.stat().st_size, "type": "file"}
        self.ls(path)
        return {"name": path, "size": 0, "type": "directory"}

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Buckets have no folders."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Buckets have no folders."""

    def rm_file(self, path: str) -> None:
        self._file(path).unlink()

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for name in self.expand_path(path, recursive=recursive, maxdepth=maxdepth):
            with contextlib.suppress(FileNotFoundError):  # as gcsfs does: a folder is no object
                self.rm_file(name)

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        raise NotImplementedError("objects cannot be renamed")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Mode ``create`` decides between writers, as Google's ``ifGenerationMatch=0`` does."""
        draft, target = self.root / f".{os.getpid()}.{threading.get_ident()}", self._file(path)
        draft.write_bytes(value)
        try:
            (os.link if mode == "create" else os.replace)(draft, target)
        finally:
            draft.unlink(missing_ok=True)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:  # type: ignore[override]
        if mode == "rb":
            return io.BytesIO(self._file(path).read_bytes())
        if mode != "wb":
            raise NotImplementedError(f"objects cannot be opened with mode {mode}")
        return _Upload(self._file(path))


class _Upload(io.BytesIO):
    def __init__(self, target: Path) -> None:
        super().__init__()
        self.target = target

    def close(self) -> None:
        if not self.closed:
            draft = self.target.with_name(f".{os.getpid()}.{threading.get_ident()}.{self.target.name}"[:200])
            draft.write_bytes(self.getvalue())
            draft.replace(self.target)
        super().close()


def use() -> None:
    """Let both names of the protocol lead to the folder, in this process."""
    for protocol in PROTOCOLS:
        fsspec.register_implementation(protocol, Bucket, clobber=True)


def lead_to(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Let ``gs://`` lead to ``folder``, in this process and those that it starts."""
    patch.setenv("SWEEP_BUCKET", str(folder))
    folder.mkdir(exist_ok=True)
    use()
    return folder


def objects(folder: Path) -> list[str]:
    """The names of all objects."""
    return sorted(urllib.parse.unquote(path.name) for path in folder.iterdir() if not path.name.startswith("."))


if "SWEEP_BUCKET" in os.environ:
    use()
