"""Two owners of one sweep at once, each unseen by the other: the one that loses writes nothing more and ends with 3."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sweep_bucket
from checkout import TOOLS
from sweep_tools import LEASE_SECONDS, assert_complete, make_plan, order, wait_for, with_standin, workers_of

from dwsweep import paths
from dwsweep.paths import FencedOff
from dwsweep.sweep import ownership
from dwsweep.sweep.directory import SweepStore

pytestmark = pytest.mark.usefixtures("standin")

SLOW = 0.05  # seconds a step: a pack takes longer than a heartbeat
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]


def can_unshare() -> bool:
    return bool(shutil.which("unshare")) and not subprocess.run([*UNSHARE, "true"], capture_output=True).returncode


own_space = pytest.mark.skipif(not can_unshare(), reason="needs the right to make a space of process numbers")


def start(directory: Any, *, apart: bool, takeover: bool = False, **more: str) -> subprocess.Popen[str]:
    """A sweep in a process of its own; ``apart``: in a container of the same host name."""
    command = [sys.executable, str(TOOLS / "sweep_tools.py"), str(directory), "{}", json.dumps({"takeover": takeover})]
    return subprocess.Popen(
        [*(UNSHARE if apart else []), *command],
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
    assert second.returncode != 0 and "another `dwsweep run` owns it" in text, text
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
    assert first.returncode == 3 and "takes the sweep over" in text, text
    order(tmp_path)
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0 and "waiting for its word" in text, text
    assert_complete(make_plan(), tmp_path / "sweep")
    assert int((tmp_path / "sweep" / "locks" / "epoch").read_text()) == 2
    assert not list((tmp_path / "sweep" / "locks").glob("*.claim"))


@own_space
@pytest.mark.parametrize("stopped", ["both", "parent", "worker"])
def test_an_owner_that_slept_through_its_lease_writes_nothing_more(tmp_path: Path, stopped: str) -> None:
    order(tmp_path, step_seconds=SLOW)
    first = start(tmp_path / "sweep", apart=False)
    wait_for(lambda: has_begun(tmp_path / "sweep"))
    workers = workers_of(first.pid)
    victims = {"both": [first.pid, *workers], "parent": [first.pid], "worker": workers}[stopped]
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    second = start(tmp_path / "sweep", apart=True, takeover=True)
    if stopped == "both":  # else the other half still answers, or holds its pack, until it is fenced off
        order(tmp_path)
        wait_for(lambda: (tmp_path / "sweep" / "locks" / "epoch").read_text().strip() == "2")
    else:
        time.sleep(2 * LEASE_SECONDS)
    for pid in victims:
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
@pytest.mark.parametrize("killed", [False, True])
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
