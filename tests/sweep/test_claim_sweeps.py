"""Whole sweeps whose owner is refused, followed or asleep, on what looks like another host too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from sentences import says
from sweep_tools import (
    assert_complete,
    make_plan,
    order,
    run,
    start,
    wait_for,
    work_in,
)

from dwsweep.sweep.directory import SweepStore

pytestmark = pytest.mark.usefixtures("standin")

HOST = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--uts", "--net"]
HOST += ["sh", "-c", 'hostname another-host && exec "$@"', "sh"]  # what looks like another host
own_host = pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run([*HOST, "true"], capture_output=True).returncode != 0,
    reason="needs the right to make spaces of process numbers and names",
)
SLOW = 0.4  # seconds a step: a pack takes longer than a heartbeat, and a busy machine to start a process


def has_begun(place: str) -> bool:
    store = SweepStore(place)
    return any(store.progress(name).step for name in store.pack_ids())


def test_two_shards_at_once_and_no_parent_imports_jax(tmp_path: Path) -> None:
    """``sweep_tools`` ends a parent that does with another status."""
    order(tmp_path, step_seconds=0.01)
    shards = [start(tmp_path / "sweep", shard=[k, 2]) for k in (0, 1)]
    texts = [process.communicate(timeout=120)[0] for process in shards]
    assert [process.returncode for process in shards] == [0, 0], texts
    assert all(work_in(text)[:2] == (4, 2) for text in texts)
    assert_complete(make_plan(), tmp_path / "sweep")
    lines = (tmp_path / "sweep" / "results.csv").read_text().splitlines()
    assert len(lines) == 9 and all(",done," in line for line in lines[1:])
    # the whole sweep has nothing left to do
    assert work_in(run(make_plan(), tmp_path / "sweep")[1]) == (0, 0, 8)


@own_host
@pytest.mark.parametrize("place", ["lock", pytest.param("lease", marks=pytest.mark.slow)], indirect=True)
def test_a_takeover_from_another_host_brings_the_packs_to_a_checkpoint(place: str, tmp_path: Path) -> None:
    order(tmp_path, step_seconds=SLOW)
    first = start(place)
    wait_for(lambda: has_begun(place))
    second = start(place, by=HOST, takeover=True)
    text, _ = first.communicate(timeout=60)
    assert first.returncode == 3 and says(text, "sweep: sweep taken over") and "host another-host" in text, text
    order(tmp_path)
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0 and says(text, "sweep: waits for the owner"), text
    assert_complete(make_plan(), place)
