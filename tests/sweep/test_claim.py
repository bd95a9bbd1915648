"""One owner per directory and shard, by a lock of the kernel and by a lease in a bucket: real processes that live,
sleep, are killed, and do not see each other."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sweep_tools import LEASE_SECONDS, make_plan, wait_for, with_standin

from dwsweep import jsonl, paths
from dwsweep.errors import InputError
from dwsweep.locks import exclusive, locked, opened
from dwsweep.paths import FencedOff
from dwsweep.plan import build
from dwsweep.sweep import claim
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.work_queue import write_plan

pytestmark = pytest.mark.usefixtures("standin")


OWNER = """
import contextlib, os, signal, sys, time
from pathlib import Path
from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.sweep import claim
claim.ANSWER_SECONDS = float(os.environ.get("ANSWER", 900))
where, takeover = sys.argv[1], sys.argv[2] == "takeover"
try:
    with claim.hold(where, takeover=takeover, say=lambda line: print(line, flush=True)):
        print("mine", flush=True)
        for line in sys.stdin:
            if line == "write\\n":
                try:
                    paths.write_atomic(paths.as_path(where) / "a", "a")
                    print("written", flush=True)
                except paths.FencedOff as error:
                    print(f"fenced: {error}", flush=True)
            else:
                break
except InputError as error:
    print(f"refused: {error}", flush=True)
"""


class Process:
    """A process that owns a sweep directory until it is told to end."""

    def __init__(self, place: str, *, takeover: bool = False, **more: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, place, "takeover" if takeover else ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=with_standin(**more),
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def rest(self) -> str:
        return self.process.communicate(timeout=60)[0]

    def kill(self) -> None:
        with self.process:  # closes its pipes
            self.process.kill()


@pytest.fixture
def owner(place: str) -> Iterator[Process]:
    """Another process that owns the directory."""
    made = Process(place)
    assert made.line() == "mine"
    yield made
    with contextlib.suppress(ProcessLookupError):
        os.kill(made.process.pid, signal.SIGCONT)
    made.kill()


def test_a_second_owner_is_refused_by_host_and_process_until_the_first_is_killed(place: str, owner: Process) -> None:
    said = f"host {platform.node()}, process {owner.process.pid}, since.*--takeover"
    with pytest.raises(InputError, match=said), claim.hold(place):
        raise AssertionError("two owners")
    assert [found.pid for found in claim.owners(place)] == [owner.process.pid]
    owner.kill()
    with claim.hold(place):
        assert [found.pid for found in claim.owners(place)] == [os.getpid()]
    assert claim.owners(place) == []


def test_a_claimant_that_is_killed_stops_nobody(place: str) -> None:
    """Its request is heeded while it lives, and never afterwards."""
    asked: list[str] = []
    with claim.hold(place, lost=lambda why, at_once: asked.append(why)):
        claimant = Process(place, takeover=True)
        wait_for(lambda: asked)
        claimant.kill()
    asked.clear()
    with claim.hold(place, lost=lambda why, at_once: asked.append(why)):
        time.sleep(3 * claim.HEARTBEAT_SECONDS)
    assert not asked


@pytest.mark.parametrize("wakes", [True, False])
def test_an_owner_that_does_not_let_go_is_named_where_a_lock_is_its_and_followed_where_a_lease_is(
    place: str, owner: Process, wakes: bool
) -> None:
    """One that sleeps on, and one that slept for less than the lease and is not called gone."""
    if place[0] == "/" and wakes:
        pytest.skip("a lock does not tell the two apart")
    owner.process.send_signal(signal.SIGSTOP)
    claimant = Process(place, takeover=True, ANSWER=str(1.5 * LEASE_SECONDS))
    assert "held by" in claimant.line()
    began = time.monotonic()
    if wakes:
        time.sleep(0.5 * LEASE_SECONDS)
        owner.process.send_signal(signal.SIGCONT)
    text = claimant.line()
    assert not wakes or time.monotonic() - began > LEASE_SECONDS
    owner.process.send_signal(signal.SIGCONT)
    assert owner.process.poll() is None
    owner.tell("write")
    if place[0] == "/":
        assert text.startswith("refused") and f"host {platform.node()}, process {owner.process.pid}" in text
        assert owner.line() == "written"  # it owns it still
    else:  # the epoch stops it
        assert text == "mine" and owner.line().startswith("fenced")
        claimant.tell("end")
    claimant.rest()


def test_a_second_claimant_is_refused(tmp_path: Path) -> None:
    with claim.hold(tmp_path):
        first = Process(str(tmp_path), takeover=True)
        assert "held by" in first.line()
        second = Process(str(tmp_path), takeover=True).rest()
        assert "refused: --takeover" in second and f"process {first.process.pid}" in second
        first.kill()


def test_shards_live_side_by_side_and_other_divisions_are_refused(place: str) -> None:
    with claim.hold(place, (0, 2)), claim.hold(place, (1, 2)):
        assert len(claim.owners(place)) == 2
        for other in ((0, 2), (0, 1), (2, 3)):
            with pytest.raises(InputError, match="shard"), claim.hold(place, other):
                pass
        assert len(claim.owners(place)) == 2
    with claim.hold(place, (2, 3)):
        assert [found.shard for found in claim.owners(place)] == [(2, 3)]


@pytest.mark.parametrize("counts", [(1, 1), (1, 2)])
def test_of_two_at_once_one_gets_it_and_none_may_where_their_divisions_differ(
    place: str, counts: tuple[int, int]
) -> None:
    """Of two that each see the other, both may give up; never both own."""
    gate, held, owned = threading.Barrier(2), list[int](), list[int]()

    def take(count: int) -> None:
        gate.wait()
        with contextlib.suppress(InputError), claim.hold(place, (0, count)):
            held.append(count)
            owned.append(count)
            assert len(held) == 1
            time.sleep(0.3)
            held.remove(count)

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(take, counts)] == [None, None]
    assert owned or counts == (1, 2)


def test_every_write_asks_the_claim(place: str) -> None:
    store = SweepStore(place)
    root = paths.as_path(place)
    with claim.hold(place) as mine:
        paths.write_atomic(root / "a", "1")
        writer = jsonl.LineWriter(root / "lines")
        writer.append([{"step": 1}])
        lock = paths.as_path(mine.lock)
        if mine.epoch:
            (lock.parent / f"shard-0-of-2.{mine.epoch + 1}.lock").write_text("{}")
            time.sleep(claim.LOOK_SECONDS)
        else:
            lock.unlink()
        for write in (
            lambda: paths.write_atomic(root / "a", "2"),
            lambda: paths.write_array(root / "b.npy", [1.0]),
            lambda: writer.append([{"step": 2}]),
            lambda: jsonl.rewrite_lines(root / "lines", []),
            lambda: store.update_manifest(lambda manifest: manifest.with_call()),
            mine.check,
        ):
            with pytest.raises(FencedOff, match="nothing more"):
                write()
    assert (root / "a").read_text() == "1"
    paths.write_atomic(root / "a", "3")  # the claim went with its owner


def test_a_worker_of_a_former_owner_comes_to_no_work(tmp_path: Path) -> None:
    with claim.hold(tmp_path) as former:
        pass
    with claim.hold(tmp_path), pytest.raises(FencedOff), former.at_work(tmp_path):
        pass


def test_a_worker_of_an_earlier_owner_that_never_ends_is_named_by_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "ORPHAN_SECONDS", 0.5)
    with claim.hold(tmp_path):
        pass
    workers = tmp_path / "locks" / "shard-0-of-1.workers"
    with opened(workers) as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        with pytest.raises(InputError, match=f"has not ended.*fuser -k {workers}"), claim.hold(tmp_path):
            pass
    with claim.hold(tmp_path):
        pass


@pytest.mark.parametrize("why", ["no locks", "locks of one host"])
def test_without_locks_across_hosts_a_lease_owns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if why == "no locks":
        monkeypatch.setattr(fcntl, "flock", no_locks)
    else:
        monkeypatch.setattr(claim, "_mount_options", lambda folder: {"rw", "local_lock=all"})
    said: list[str] = []
    with claim.hold(tmp_path, say=said.append) as mine:
        assert mine.epoch == 1 and "no locks across hosts" in said[0]
        wait_for(lambda: (claim.owners(tmp_path)[0].renewed or 0) > claim.owners(tmp_path)[0].since + 0.5, 10)
        with pytest.raises(InputError, match=f"process {os.getpid()}"), claim.hold(tmp_path):
            pass
        monkeypatch.undo()
        with pytest.raises(InputError, match="owns it by a lease"), claim.hold(tmp_path):  # a host that has locks
            pass


def test_options_are_of_the_innermost_mount(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text(
        f"/dev/x / ext4 rw 0 0\nserver:/a {tmp_path} nfs4 rw,local_lock=none 0 0\n"
        f"server:/b {tmp_path}/with\\040space lustre rw,localflock 0 0\nserver:/c {tmp_path}/with nfs rw,nolock 0 0\n"
    )
    assert claim._mount_options(tmp_path / "with space" / "locks", table) == {"rw", "localflock"}
    assert claim._mount_options(tmp_path / "without", table) == {"rw", "local_lock=none"}


def test_plan_writes_beside_no_owner(tmp_path: Path) -> None:
    plan = make_plan()
    path = write_plan(plan, tmp_path / "sweep")
    whole = path.read_text()
    assert claim.owners(tmp_path / "sweep") == [] and whole.count("\n") == 9
    with claim.hold(tmp_path / "sweep", (1, 2)), pytest.raises(InputError, match=f"owns it .*process {os.getpid()}"):
        write_plan(make_plan(grid__seeds=1), tmp_path / "sweep")
    assert path.read_text() == whole


def test_plan_without_hashes_leaves_a_sweep_alone_that_has_begun(tmp_path: Path) -> None:
    unhashed = build(make_plan().spec)
    path = write_plan(unhashed, tmp_path / "sweep")
    assert "unhashed" in path.read_text()
    SweepStore(tmp_path / "sweep").write_plan(make_plan())
    before = path.read_text()
    with pytest.raises(InputError, match=r"a sweep has begun there.*`dwsweep prepare`") as refused:
        write_plan(unhashed, tmp_path / "sweep")
    assert len(refused.value.lines) == 1 and path.read_text() == before
    write_plan(make_plan(grid__seeds=1), tmp_path / "sweep")
    assert path.read_text() != before


def test_locks_of_a_bucket_lie_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DWSWEEP_CACHE", str(tmp_path))
    with exclusive(paths.as_path("gs://bucket/sweep/locks/guard")):
        (file,) = (tmp_path / "locks").iterdir()
        with opened(file) as descriptor:
            assert not locked(descriptor, fcntl.LOCK_EX, seconds=0.0)
