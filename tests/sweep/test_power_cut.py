"""Every call of the file layer fails once, and for good; then the power is cut: nothing said to be done is lost."""

from __future__ import annotations

import builtins
import errno
import hashlib
import io
import json
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sweep_tools import assert_complete, make_plan, results_of, run

from dwsweep import jsonl, paths
from dwsweep.sweep import claim
from dwsweep.sweep.directory import SweepStore

pytestmark = pytest.mark.usefixtures("standin_here")

PLAN = make_plan(
    grid__depths=[1], grid__budgets=[3e4], train__steps=6, execution={"checkpoint_steps": 2, "keep_params": "all"}
)  # one pack of two seeds


# A file layer that fails at its n-th call, and a disk that keeps only what was synced, in the manner of SQLite's tests
# (https://www.sqlite.org/testing.html, sections 3.2 and 3.3). The model is the most pessimistic that POSIX allows: a
# file has the content of its last fsync, a folder the names of its last fsync.


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
        return self._file.write(data)

    def __enter__(self) -> _File:
        self._file.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._file.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FileLayer:
    """Calls below ``root`` are counted; the ``n``-th fails, and all after it where ``for_good``.

    ``number``: of the error. With ENOSPC a write takes a half, and the one after it fails.
    """

    def __init__(self, root: Path, n: int | None, for_good: bool = False, number: int = errno.EIO) -> None:
        self.root, self.n, self.for_good, self.number = str(root), n, for_good, number
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


@pytest.fixture(autouse=True)
def no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls come by the clock, and would be others in each trial."""
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 3600.0)


def trial(
    folder: Path, n: int | None, for_good: bool, **more: Any
) -> tuple[FileLayer, dict[str, float], tuple[int, str]]:
    """A sweep whose n-th call fails: (the layer, loss of each run that was said to be done, status and text)."""
    said: dict[str, float] = {}
    finish = SweepStore.finish
    paths._on_disk.clear()  # what this process knows of a disk that was another sweep's

    def finished(store: SweepStore, run_id: str, pack_id: str, result: Any, *more: Any) -> None:
        finish(store, run_id, pack_id, result, *more)
        said[run_id] = result.loss

    layer = FileLayer(folder / "sweep", n, for_good, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepStore, "finish", finished)
        layer.install(patch)
        return layer, said, run(PLAN, folder / "sweep")


def settled(directory: Path) -> list[dict[str, str]]:
    return [{name: row[name] for name in ("run_id", "status", "loss", "steps")} for row in results_of(directory)]


def check(folder: Path, n: int, for_good: bool, number: int, expected: list[dict[str, str]]) -> None:
    folder.mkdir()
    layer, said, (status, text) = trial(folder, n, for_good, number=number)
    assert status in (0, 3), (n, layer.failed)  # the machine failed, and no run or input did
    assert status == 0 or number != errno.ENOSPC or "is full" in text, (n, layer.failed, text)
    after = layer.after_power_cut(folder / "after")
    store = SweepStore(after)
    if status == 0:  # which says so of every run
        said = {row["run_id"]: float(row["loss"]) for row in expected}
    for run_id, loss in said.items():
        assert store.state(run_id).state == "done", (n, layer.failed, run_id)
        result = store.result(run_id)
        assert result is not None and result.loss == loss, (n, layer.failed, run_id)
    paths._on_disk.clear()
    status, text = run(PLAN, after)
    assert status == 0, (n, layer.failed, text)
    assert_complete(PLAN, after)
    assert settled(after) == expected
    for run_id in store.run_ids():  # no result without the parameters beside it
        kept, result = store.params_path(run_id).read_bytes(), store.result(run_id)
        assert result and result.params_sha256 == hashlib.sha256(kept).hexdigest(), (n, layer.failed, run_id)


def test_a_disk_that_fills_and_empties_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = jsonl.LineWriter(path)
    writer.append([{"step": 1}])
    for kept in (0, 3):  # cut off at once, or, where that fails too, by the next line; so is what a kill left
        layer = FileLayer(tmp_path, 2, number=errno.ENOSPC)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="No space left"):
            layer.install(patch)
            writer.append([{"step": 2}])
        assert len(path.read_text().splitlines()) == 1
        path.write_text(path.read_text() + '{"step": 2}'[:kept])
    writer.append([{"step": 2}, {"step": 3}])
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3]


# every fourth call fails in the quick tier, in one of the two ways; each in both in the slow tier
PARTS = [
    pytest.param(part, for_good, marks=() if part in (0, 5) and part % 2 == for_good else pytest.mark.slow)
    for part in range(8)
    for for_good in (False, True)
]


@pytest.mark.parametrize(("part", "for_good"), PARTS)
def test_every_failing_call(tmp_path: Path, for_good: bool, part: int) -> None:
    """A share of all calls each: those whose number is ``part`` modulo 8."""
    (tmp_path / "whole").mkdir()
    layer, *_ = trial(tmp_path / "whole", None, False)
    expected = settled(tmp_path / "whole" / "sweep")
    error = (errno.EIO, errno.ENOSPC, errno.ESTALE, errno.EMFILE)[part % 4]
    numbers = [n for n in range(1, sum(layer.calls.values()) + 1) if n % 8 == part]
    assert len(numbers) > 5
    for n in numbers:
        check(tmp_path / str(n), n, for_good, error, expected)
