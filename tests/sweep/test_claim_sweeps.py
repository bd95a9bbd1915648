"""Whole sweeps whose owner is refused, followed, killed or asleep, on what looks like another host too."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sweep_bucket
from checkout import TOOLS
from hosts import HOST, own_host
from sentences import says
from sweep_tools import (
    LEASE_SECONDS,
    assert_complete,
    make_plan,
    order,
    run,
    start,
    wait_for,
    with_standin,
    work_in,
    workers_of,
)

from dwsweep.errors import InputError
from dwsweep.sweep import claim
from dwsweep.sweep.directory import SweepStore

pytestmark = pytest.mark.usefixtures("standin")

SLOW = 0.4  # seconds a step: a pack takes longer than a heartbeat, and a busy machine to start a process


def begin(place: str, *, apart: bool = False, takeover: bool = False, **more: str) -> subprocess.Popen[str]:
    """A sweep in a process of its own; ``apart``: on what looks like another host."""
    command = [sys.executable, str(TOOLS / "sweep_tools.py"), place, "{}", json.dumps({"takeover": takeover})]
    return subprocess.Popen(
        [*(HOST if apart else []), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=with_standin(**more),
        start_new_session=True,
    )


def has_begun(place: str) -> bool:
    store = SweepStore(place)
    return any(store.progress(name).step for name in store.pack_ids())


def contents(directory: Path) -> dict[str, bytes]:
    """All that the sweep has written; logs and locks of the kernel hold no result."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.suffix in (".json", ".jsonl", ".npy", ".csv", ".yaml")
    }


def test_two_shards_at_once(tmp_path: Path) -> None:
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
    first = begin(place)
    wait_for(lambda: has_begun(place))
    refused = begin(place, apart=True)
    text, _ = refused.communicate(timeout=60)
    assert refused.returncode != 0 and says(text, "sweep: owned by another process"), text
    second = begin(place, apart=True, takeover=True)
    text, _ = first.communicate(timeout=60)
    assert first.returncode == 3 and says(text, "sweep: sweep taken over") and "host another-host" in text, text
    order(tmp_path)
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0 and says(text, "sweep: waits for the owner"), text
    assert_complete(make_plan(), place)


@pytest.mark.parametrize("stopped", ["both", *(pytest.param(k, marks=pytest.mark.slow) for k in ("parent", "worker"))])
def test_a_sweep_that_slept_through_its_lease_is_ended_and_goes_on(tmp_path: Path, stopped: str) -> None:
    order(tmp_path, step_seconds=SLOW)
    first = begin(str(tmp_path / "sweep"))
    wait_for(lambda: has_begun(str(tmp_path / "sweep")))
    workers = workers_of(first.pid)
    for pid in {"both": [first.pid, *workers], "parent": [first.pid], "worker": workers}[stopped]:
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(InputError, match="--takeover"), claim.hold(tmp_path / "sweep"):  # nobody takes it unasked
        pass
    second = begin(str(tmp_path / "sweep"), takeover=True)
    if stopped == "worker":  # its parent lives, and ends it in its own time
        time.sleep(LEASE_SECONDS)
        os.kill(workers[0], signal.SIGCONT)
    order(tmp_path)
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0, text
    assert first.wait(60) == (3 if stopped == "worker" else -signal.SIGKILL)
    assert_complete(make_plan(), tmp_path / "sweep")


@own_host
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sweep_in_a_bucket_that_slept_or_was_killed_writes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    order(tmp_path, step_seconds=SLOW)
    shared = {"SWEEP_BUCKET": str(tmp_path / "bucket"), "SWEEP_STANDIN": str(tmp_path / "orders.json")}
    caches = [{"DWSWEEP_CACHE": str(tmp_path / f"cache{k}"), "TMPDIR": str(tmp_path / f"tmp{k}")} for k in range(2)]
    for cache in caches:
        Path(cache["TMPDIR"]).mkdir()
    sweep_bucket.lead_to(tmp_path / "bucket", monkeypatch)
    first = begin("gs://b/sweep", **shared, **caches[0])
    wait_for(lambda: has_begun("gs://b/sweep"))
    asleep = [first.pid, *workers_of(first.pid)]
    for pid in asleep:
        os.kill(pid, signal.SIGKILL if killed else signal.SIGSTOP)
    second = begin("gs://b/sweep", apart=True, takeover=True, **shared, **caches[1])
    wait_for(lambda: list((tmp_path / "bucket").glob("*of-1.2.lock")))
    order(tmp_path)
    if not killed:
        for pid in asleep:
            with contextlib.suppress(ProcessLookupError):  # a parent that woke first has ended its worker
                os.kill(pid, signal.SIGCONT)
    text, _ = first.communicate(timeout=90)
    assert killed or first.returncode == 3, text
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0, text
    assert_complete(make_plan(), "gs://b/sweep")
    before = contents(tmp_path / "bucket")
    time.sleep(0.5)
    assert contents(tmp_path / "bucket") == before
