"""A file system that is really full: a tmpfs of a few hundred kilobytes, where we may mount one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweep_tools import assert_complete, make_plan, run

from dwsweep.sweep.directory import SweepStore

pytestmark = pytest.mark.usefixtures("standin")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(mount)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


def test_a_full_disk_stops_the_sweep_and_keeps_the_last_checkpoint(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two checkpoints and a third on its way fill the disk."""
    checkpoint_bytes = 190_000
    monkeypatch.setenv("SWEEP_STANDIN_CHECKPOINT_BYTES", str(checkpoint_bytes))
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * (900 * 1024 - int(2.5 * checkpoint_bytes) - 120_000))
    plan = make_plan(grid__depths=[2], grid__budgets=[1e5])
    status, text = run(plan, small_disk / "sweep")
    assert status == 3, text
    assert "full" in text and "No space left on device" in text
    store = SweepStore(small_disk / "sweep")
    pack_id = plan.packs[0].pack_id
    assert store.newest_checkpoint(pack_id) == 2
    assert store.state(plan.runs[0].run_id).state in ("interrupted", "running")
    assert store.pack_state(pack_id).retries == 0

    # nothing has to be repaired by hand once there is room
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert run(plan, small_disk / "sweep")[0] == 0
    assert store.pack_state(pack_id).resumed_step == 10
    assert_complete(plan, small_disk / "sweep")


def test_a_disk_that_is_full_from_the_start(small_disk: Path) -> None:
    with contextlib.suppress(OSError):
        (small_disk / "filler").write_bytes(b"x" * 2_000_000)
    plan = make_plan()
    status, text = run(plan, small_disk / "sweep")
    assert status == 3 and "is full" in text
    (small_disk / "filler").unlink()
    assert run(plan, small_disk / "sweep")[0] == 0
    assert_complete(plan, small_disk / "sweep")
