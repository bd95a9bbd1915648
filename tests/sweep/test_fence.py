"""Two owners of one sweep at once, each unseen by the other: the one that loses writes nothing more and ends with 3."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sweep_bucket
from checkout import TOOLS
from sentences import says
from sweep_tools import LEASE_SECONDS, assert_complete, make_plan, order, wait_for, with_standin, workers_of

from dwsweep import paths
from dwsweep.paths import FencedOff
from dwsweep.records import record as reader
from dwsweep.records.sweep import Owner
from dwsweep.sweep import ownership
from dwsweep.sweep.directory import SweepStore

pytestmark = pytest.mark.usefixtures("standin")

SLOW = 0.05  # seconds a step: a pack takes longer than a heartbeat
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


HOST = [*UNSHARE, "--uts", "--net", "sh", "-c", 'hostname another-host && exec "$@"', "sh"]


def can_unshare(command: list[str]) -> bool:
    return bool(shutil.which("unshare")) and not subprocess.run([*command, "true"], capture_output=True).returncode


own_space = pytest.mark.skipif(not can_unshare(UNSHARE), reason="needs the right to make a space of process numbers")
own_host = pytest.mark.skipif(not can_unshare(HOST), reason="needs the right to make a network and a host name")


def start(
    directory: Any, *, apart: bool = False, host: bool = False, takeover: bool = False, **more: str
) -> subprocess.Popen[str]:
    """A sweep in a process of its own; ``apart``: in a container of the same host name. ``host``: of another name, and
    with a network of its own."""
    command = [sys.executable, str(TOOLS / "sweep_tools.py"), str(directory), "{}", json.dumps({"takeover": takeover})]
    return subprocess.Popen(
        [*(HOST if host else UNSHARE if apart else []), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=with_standin(**more),
        start_new_session=True,
    )


def has_begun(directory: Path) -> bool:
    return any(json.loads(path.read_text()).get("step") for path in directory.glob("packs/*/progress.json"))


def contents(directory: Path) -> dict[str, bytes]:
    """All that the sweep has written; logs and locks of the kernel hold no result."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.suffix in (".json", ".jsonl", ".npy", ".csv", ".yaml")
    }


@own_space
def test_a_second_container_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """One host name, and both are process 1 of their container."""
    order(tmp_path, step_seconds=SLOW)
    first = start(tmp_path / "sweep", apart=True)
    wait_for(lambda: ownership.owners(tmp_path / "sweep"))
    second = start(tmp_path / "sweep", apart=True)
    text, _ = second.communicate(timeout=60)
    assert second.returncode != 0 and says(text, "sweep: owned by another process"), text
    text, _ = first.communicate(timeout=120)
    assert first.returncode == 0, text
    assert_complete(make_plan(), tmp_path / "sweep")


@own_space
def test_a_living_owner_gives_its_word_and_the_next_goes_on(tmp_path: Path) -> None:
    order(tmp_path, step_seconds=SLOW)
    first = start(tmp_path / "sweep", apart=True)
    wait_for(lambda: has_begun(tmp_path / "sweep"))
    second = start(tmp_path / "sweep", apart=True, takeover=True)
    text, _ = first.communicate(timeout=60)
    assert first.returncode == 3 and says(text, "sweep: sweep taken over"), text
    order(tmp_path)
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0 and says(text, "sweep: waits for the owner"), text
    assert_complete(make_plan(), tmp_path / "sweep")
    assert int((tmp_path / "sweep" / "locks" / "epoch").read_text()) == 2
    assert not list((tmp_path / "sweep" / "locks").glob("*.claim"))


@own_host
def test_another_host_waits_for_the_word(tmp_path: Path) -> None:
    order(tmp_path, step_seconds=SLOW)
    first = start(tmp_path / "sweep")
    wait_for(lambda: has_begun(tmp_path / "sweep"))
    refused = start(tmp_path / "sweep", host=True)
    text, _ = refused.communicate(timeout=60)
    assert refused.returncode != 0 and says(text, "sweep: takeover offered"), text
    second = start(tmp_path / "sweep", host=True, takeover=True)
    text, _ = first.communicate(timeout=60)
    assert first.returncode == 3 and "host another-host" in text, text
    order(tmp_path)
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0 and says(text, "sweep: waits for the owner"), text
    assert_complete(make_plan(), tmp_path / "sweep")


# a whole owner and its worker alone, and each kind of successor, once; the other pairs in the slow tier
QUICK = (("both", False), ("worker", True))
ASLEEP = [
    pytest.param(stopped, host, marks=() if (stopped, host) in QUICK else pytest.mark.slow)
    for stopped in ("both", "parent", "worker")
    for host in (False, True)
]


@own_host
@pytest.mark.parametrize(("stopped", "host"), ASLEEP)
def test_an_owner_that_slept_through_its_lease_writes_nothing_more(tmp_path: Path, stopped: str, host: bool) -> None:
    order(tmp_path, step_seconds=SLOW)
    first = start(tmp_path / "sweep", apart=False)
    wait_for(lambda: has_begun(tmp_path / "sweep"))
    workers = workers_of(first.pid)
    victims = {"both": [first.pid, *workers], "parent": [first.pid], "worker": workers}[stopped]
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    second = start(tmp_path / "sweep", apart=True, host=host, takeover=True)
    if stopped == "both":  # else the other half still answers, or holds its pack, until it is fenced off
        order(tmp_path)
        wait_for(lambda: (tmp_path / "sweep" / "locks" / "epoch").read_text().strip() == "2")
    else:
        time.sleep(2 * LEASE_SECONDS)
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):  # a parent that woke first has ended its worker
            os.kill(pid, signal.SIGCONT)
    text, _ = first.communicate(timeout=60)
    assert first.returncode == 3, text
    order(tmp_path)
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0, text
    assert_complete(make_plan(), tmp_path / "sweep")
    before = contents(tmp_path / "sweep")
    time.sleep(0.5)
    assert contents(tmp_path / "sweep") == before


def test_every_write_asks_the_fence(tmp_path: Path) -> None:
    store = SweepStore(tmp_path)
    with ownership.hold(tmp_path) as owner:
        fence = ownership.fence_of(tmp_path, owner)
        paths.write_atomic(tmp_path / "a", "1")
        writer = paths.LineWriter(tmp_path / "lines")
        writer.append([{"step": 1}])
        (lock,) = (tmp_path / "locks").glob("*.lock")
        content = json.loads(lock.read_text())
        content.pop("content_sha256")
        lock.write_text(json.dumps({**content, "nonce": "another", "epoch": owner.epoch + 1}))
        for write in (
            lambda: paths.write_atomic(tmp_path / "a", "2"),
            lambda: paths.write_array(tmp_path / "b.npy", [1.0]),
            lambda: writer.append([{"step": 2}]),
            lambda: paths.rewrite_lines(tmp_path / "lines", []),
            lambda: store.update_manifest(lambda manifest: manifest.with_call()),
            fence.check,
        ):
            with pytest.raises(FencedOff, match="nothing more"):
                write()
        lock.unlink()
        with pytest.raises(FencedOff):
            fence.check()
    assert (tmp_path / "a").read_text() == "1" and len(paths.read_lines(tmp_path / "lines")) == 1
    paths.write_atomic(tmp_path / "a", "3")  # the fence went with its owner


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A sweep in a bucket."""
    sweep_bucket.lead_to(tmp_path / "bucket", monkeypatch)
    return paths.as_path("gs://b/sweep")


def test_one_of_many_makes_an_object(bucket: Any) -> None:
    gate = threading.Barrier(8)

    def make(k: int) -> bool:
        gate.wait()
        return paths.create(bucket / "locks" / "x", str(k))

    with ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            found = list(pool.map(make, range(8)))
            assert sum(found) == 1 and (bucket / "locks" / "x").read_text() == str(found.index(True))
            (bucket / "locks" / "x").unlink()
    assert paths.create(bucket / "y", "1") and not paths.create(bucket / "y", "2")


def test_a_bucket_without_conditions_is_looked_at_once_more(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "SETTLE_SECONDS", 0.3)
    monkeypatch.delattr(sweep_bucket.Bucket, "pipe_file")
    gate = threading.Barrier(4)

    def make(k: int) -> bool:
        gate.wait()
        return paths.create(bucket / "x", str(k))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(make, range(4)))
    assert sum(found) == 1 and (bucket / "x").read_text() == str(found.index(True))


def elsewhere(bucket: Any, epoch: int, shard: tuple[int, int] = (0, 1)) -> Owner:
    """The lock of an owner on another host that sleeps since long."""
    owner = replace(Owner.this_process(shard), host="elsewhere", epoch=epoch, renewed=time.time() - 1000)
    reader.write(ownership._lock_of(bucket / "locks", owner), owner)
    return owner


@pytest.mark.parametrize("shard", [(0, 1), (1, 2)])
def test_a_late_renewal_in_a_bucket_does_not_hide_the_next_owner(bucket: Any, shard: tuple[int, int]) -> None:
    """It read its lock, slept, and renews what it read: of the same shard, or of another division."""
    old = elsewhere(bucket, 4, shard)
    asleep = ownership.fence_of(bucket, old)
    asleep.check()
    with ownership.hold(bucket, takeover=True) as owner:
        assert owner.epoch == 5
        fence = ownership.fence_of(bucket, owner)
        reader.write(ownership._lock_of(bucket / "locks", old), old)
        time.sleep(ownership.LOOK_SECONDS)
        with pytest.raises(FencedOff, match="epoch 5"):
            asleep.check()
        fence.check()
        paths.write_atomic(bucket / "a", "1")


@pytest.mark.parametrize("counted", [False, True])
def test_two_that_take_over_at_once_are_one(bucket: Any, monkeypatch: pytest.MonkeyPatch, counted: bool) -> None:
    """Both have seen the old lock only; they would give out the same epoch, or the second one has counted the first."""
    elsewhere(bucket, 4)
    gate, create, write = threading.Barrier(2), paths.create, paths.write_atomic
    if not counted:
        monkeypatch.setattr(paths, "write_atomic", lambda path, text: gate.wait() >= 0 and write(path, text))
    monkeypatch.setattr(paths, "create", lambda path, content: gate.wait() >= 0 and create(path, content))

    def take(k: int) -> Owner | None:
        time.sleep(0.2 * k * counted)
        return ownership._create_owner(bucket, bucket / "locks", (0, 1), print)

    def is_owner(one: Owner) -> bool:
        try:
            ownership.fence_of(bucket, one).check()
        except FencedOff:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        made = [one for one in pool.map(take, range(2)) if one is not None]
    assert sum(map(is_owner, made)) == 1
    assert counted or len(made) == 1


def test_the_epoch_grows_with_every_owner(tmp_path: Path) -> None:
    epochs = []
    for _ in range(3):
        with ownership.hold(tmp_path) as owner:
            epochs.append(owner.epoch)
    assert epochs == [1, 2, 3]


def test_an_owner_renews_its_lock(tmp_path: Path) -> None:
    with ownership.hold(tmp_path) as owner:
        wait_for(lambda: ownership.owners(tmp_path)[0].beats >= 2, 10)
        assert ownership.owners(tmp_path)[0].nonce == owner.nonce


@own_space
@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_takeover_in_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    """Both see one bucket, and neither the other's processes."""
    order(tmp_path, step_seconds=SLOW)
    bucket = {"SWEEP_BUCKET": str(tmp_path / "bucket"), "SWEEP_STANDIN": str(tmp_path / "orders.json")}
    caches = [{"DWSWEEP_CACHE": str(tmp_path / f"cache{k}"), "TMPDIR": str(tmp_path / f"tmp{k}")} for k in range(2)]
    for cache in caches:
        Path(cache["TMPDIR"]).mkdir()
    first = start("gs://b/sweep", apart=True, **bucket, **caches[0])
    sweep_bucket.lead_to(tmp_path / "bucket", monkeypatch)
    objects = tmp_path / "bucket"
    wait_for(lambda: any(json.loads(path.read_text()).get("step") for path in objects.glob("*progress.json")))
    if killed:
        os.killpg(first.pid, signal.SIGKILL)
    second = start("gs://b/sweep", apart=True, takeover=True, **bucket, **caches[1])
    text, _ = first.communicate(timeout=90)
    assert killed or first.returncode == 3, text
    order(tmp_path)
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0, text
    assert_complete(make_plan(), "gs://b/sweep")
