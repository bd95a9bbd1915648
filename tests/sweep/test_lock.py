"""One owner per directory and shard, told by real processes that live, die and change their number."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from sweep_tools import assert_complete, make_plan, order, run, start, train_here, wait_for, work_in

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.paths import exclusive
from dwsweep.plan import build
from dwsweep.records.sweep import Owner, process_start
from dwsweep.sweep import ownership
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.work_queue import write_plan

pytestmark = pytest.mark.usefixtures("standin")


def put(directory: Path, owner: Owner) -> None:
    folder = directory / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"shard-{owner.shard[0]}-of-{owner.shard[1]}.lock"
    (folder / name).write_text(json.dumps(asdict(owner)))


def test_a_second_owner_is_refused_by_host_and_process(tmp_path: Path) -> None:
    with (
        ownership.hold(tmp_path) as owner,
        pytest.raises(InputError, match=f"host {platform.node()}, process {os.getpid()}"),
        ownership.hold(tmp_path),
    ):
        raise AssertionError("two owners")
    assert owner.pid == os.getpid()
    with ownership.hold(tmp_path):
        pass
    assert ownership.owners(tmp_path) == []


def test_a_dead_owner_on_this_host_is_taken_over(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "60"])
    put(tmp_path, replace(Owner.this_process((0, 1)), pid=process.pid, started=process_start(process.pid) or ""))
    with pytest.raises(InputError), ownership.hold(tmp_path):
        pass
    process.kill()
    process.wait()
    with ownership.hold(tmp_path) as owner:
        assert owner.pid == os.getpid()


def test_a_zombie_is_dead(tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    time.sleep(0.3)
    assert process_start(process.pid) is None
    process.wait()


def test_a_process_number_given_again_is_not_the_owner(tmp_path: Path) -> None:
    boot = Owner.this_process((0, 1)).started.partition(":")[0]
    put(tmp_path, replace(Owner.this_process((0, 1)), started=f"{boot}:1", nonce="x"))
    with ownership.hold(tmp_path) as owner:
        assert owner.nonce != "x"


def test_another_host_only_by_takeover(tmp_path: Path) -> None:
    put(tmp_path, replace(Owner.this_process((0, 1)), host="elsewhere", pid=77))
    with pytest.raises(InputError, match=r"host elsewhere, process 77.*--takeover"), ownership.hold(tmp_path):
        pass
    with ownership.hold(tmp_path, takeover=True) as owner:
        assert owner.host == platform.node()


def test_takeover_does_not_take_a_living_owner_on_this_host(tmp_path: Path) -> None:
    with ownership.hold(tmp_path), pytest.raises(InputError), ownership.hold(tmp_path, takeover=True):
        pass


def test_shards_live_side_by_side_and_other_divisions_are_refused(tmp_path: Path) -> None:
    with ownership.hold(tmp_path, (0, 2)), ownership.hold(tmp_path, (1, 2)):
        assert len(ownership.owners(tmp_path)) == 2
        for other in ((0, 2), (0, 1), (2, 3)):
            with pytest.raises(InputError, match="shard"), ownership.hold(tmp_path, other):
                pass
        assert len(ownership.owners(tmp_path)) == 2


def test_a_lock_taken_over_is_not_removed_by_its_old_owner(tmp_path: Path) -> None:
    with ownership.hold(tmp_path):
        put(tmp_path, replace(Owner.this_process((0, 1)), nonce="the new owner's"))
    assert [owner.nonce for owner in ownership.owners(tmp_path)] == ["the new owner's"]


def test_a_lock_that_a_power_cut_left_empty_is_no_owner(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "shard-0-of-1.lock").touch()
    with ownership.hold(tmp_path) as owner:
        assert [found.nonce for found in ownership.owners(tmp_path)] == [owner.nonce]


def test_plan_writes_beside_no_owner(tmp_path: Path) -> None:
    plan = make_plan()
    path = write_plan(plan, tmp_path / "sweep")
    whole = path.read_text()
    assert ownership.owners(tmp_path / "sweep") == [] and whole.count("\n") == 9
    with (
        ownership.hold(tmp_path / "sweep", (1, 2)),
        pytest.raises(InputError, match=f"owns it .*process {os.getpid()}"),
    ):
        write_plan(make_plan(grid__seeds=1), tmp_path / "sweep")
    put(tmp_path / "sweep", replace(Owner.this_process((0, 1)), pid=2**22 - 1, started="gone"))
    write_plan(plan, tmp_path / "sweep")  # a dead owner is none, and its lock stays for `run` to take over
    assert path.read_text() == whole and len(ownership.owners(tmp_path / "sweep")) == 1


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


def test_a_lock_file_follows_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "precious"
    victim.write_text("kept")
    (tmp_path / "guard").symlink_to(victim)
    with pytest.raises(OSError, match="guard"), exclusive(tmp_path / "guard"):
        pass
    (tmp_path / "kept.guard").write_text("kept")
    with exclusive(tmp_path / "kept.guard"):
        pass
    assert victim.read_text() == (tmp_path / "kept.guard").read_text() == "kept"


@pytest.mark.parametrize("kind", ["link", "writable", "file"])
def test_locks_of_a_bucket_lie_in_a_folder_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = tmp_path / f"dwsweep-locks-{os.getuid()}"
    bucket = paths.as_path("gs://bucket/sweep/locks/guard")
    with exclusive(bucket):
        assert folder.stat().st_mode & 0o777 == 0o700 and len(list(folder.iterdir())) == 1
    shutil.rmtree(folder)
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(InputError, match=r"dwsweep-locks-.*TMPDIR"), exclusive(bucket):
        pass


def test_of_many_at_once_one_gets_it(tmp_path: Path) -> None:
    """Six processes race for the lock of a dead owner."""
    put(tmp_path, replace(Owner.this_process((0, 1)), pid=2**22 - 1, started="gone", nonce="x"))
    code = (
        "import sys\nfrom dwsweep.sweep import ownership as owned\nfrom dwsweep.errors import InputError\n"
        "print('imported', flush=True)\nsys.stdin.readline()\n"
        "try:\n    with owned.hold(sys.argv[1]):\n        print('mine', flush=True)\n        sys.stdin.readline()\n"
        "except InputError:\n    print('refused', flush=True)\n"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(6)
    ]
    for racer in racers:
        assert racer.stdout and racer.stdout.readline() == "imported\n"
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("\n")
        racer.stdin.flush()
    said = [racer.stdout.readline().strip() for racer in racers if racer.stdout]  # the owner holds it until all have
    assert sorted(said) == ["mine", *["refused"] * 5]
    for racer in racers:
        racer.communicate(timeout=60)


def test_two_runners_at_once(tmp_path: Path) -> None:
    order(tmp_path, step_seconds=0.02)
    first = start(tmp_path / "sweep")
    wait_for(lambda: ownership.owners(tmp_path / "sweep"))
    with pytest.raises(InputError, match=f"process {first.pid}"):
        run(make_plan(), tmp_path / "sweep")
    text, _ = first.communicate(timeout=120)
    assert first.returncode == 0, text
    assert_complete(make_plan(), tmp_path / "sweep")


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


def test_a_killed_parent_leaves_a_lock_that_the_next_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order(tmp_path, step_seconds=0.03)
    first = start(tmp_path / "sweep")
    wait_for(lambda: list((tmp_path / "sweep").glob("packs/*/progress.json")))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert ownership.owners(tmp_path / "sweep")[0].pid == first.pid
    order(tmp_path)
    train_here(monkeypatch)
    assert run(make_plan(), tmp_path / "sweep")[0] == 0
    assert_complete(make_plan(), tmp_path / "sweep")
