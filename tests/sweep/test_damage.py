"""Damaged files of a sweep: a line each, set aside by the owner of the directory, and the results are the same."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentences import says
from shown import printed
from sweep_tools import WorkerHere, assert_complete, make_plan, order, run, with_standin, work_in

from dwsweep.errors import InputError
from dwsweep.records.metrics import Metrics
from dwsweep.report import status_report as status
from dwsweep.sweep import ownership, runner
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.recorder import lost_rows
from dwsweep.sweep.snapshot import snapshot
from dwsweep.sweep.work_queue import write_plan

pytestmark = pytest.mark.usefixtures("standin_here")

PLAN = make_plan(grid__depths=[1], execution={"checkpoint_steps": 5, "log_steps": 1})  # two packs of two seeds
STOPPED_AT = 17
RECORDS = ("config.json", "status.json", "result.json", "pack.json", "state.json", "progress.json", "manifest.json")


@pytest.fixture(scope="module")
def sweeps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished sweep, and one whose first pack was stopped in the middle."""
    found: dict[str, Path] = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in with_standin().items():
            patch.setenv(name, value)
        for name, stop_after in (("finished", None), ("stopped", STOPPED_AT)):
            patch.setattr(runner, "local_workers", lambda *_, after=stop_after, **__: [WorkerHere(after)])
            found[name] = tmp_path_factory.mktemp(name) / "sweep"
            assert run(PLAN, found[name])[0] == (0 if name == "finished" else 3)
    return found


@pytest.fixture(params=["finished", "stopped"])
def directory(request: pytest.FixtureRequest, sweeps: dict[str, Path], tmp_path: Path) -> Path:
    shutil.copytree(sweeps[request.param], tmp_path / "sweep")
    return tmp_path / "sweep"


def files(directory: Path, name: str) -> list[Path]:
    return sorted(path for path in directory.rglob(name))


def text_of(directory: Path) -> str:
    return printed(status.render(directory), 200)


def listing(directory: Path) -> dict[str, tuple[int, int]]:
    found = {str(path.relative_to(directory)): path.stat() for path in directory.rglob("*") if path.is_file()}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def results(directory: Path) -> list[dict[str, str]]:
    with (directory / "results.csv").open() as file:
        return list(csv.DictReader(file))


WHOLE = {
    "empty": "",
    "cut": '{"state": "do',
    "null": "null",
    "list": "[]",
    "number": "3",
    "text": '"x"',
    "no keys": "{}",
    "deep": "[" * 100_000,
    "no text": "\udcff\udcfe",
    "twice": '{"state": "done", "state": "failed", "run_id": "a", "run_id": "b"}',
    "foreign": '{"run_id": "L9-d9-h1", "pack_id": "L9-d9-h1", "state": 3, "host": [], "calls": {}, "losses": 1}',
}
SETTLED = ("run_id", "status", "loss", "depth", "width", "seed", "learning_rate", "steps", "tokens", "n_params")
VALUES = ["x", [], {}, None, True, -1, 1.5, float("nan"), float("inf"), 10**30, "[/bold]"]


@pytest.mark.parametrize("damage", WHOLE, ids=list(WHOLE))
def test_a_sweep_with_every_file_damaged_ends_with_the_same_results(
    directory: Path, sweeps: dict[str, Path], damage: str
) -> None:
    for name in RECORDS:
        for path in files(directory, name):
            path.write_bytes(WHOLE[damage].encode(errors="surrogateescape"))
    (directory / "locks" / "shard-0-of-1.lock").write_bytes(WHOLE[damage].encode(errors="surrogateescape"))
    before = listing(directory)
    assert "4 runs" in text_of(directory)
    assert listing(directory) == before  # a reader changes nothing
    state, text = run(PLAN, directory)
    assert state == 0, text
    assert_complete(PLAN, directory)
    assert results(directory) == results(sweeps["finished"])
    assert says(text, "sweep: a lock without owner")
    assert files(directory, "config.json.damaged") and "config.json: " in text
    assert "damaged" not in text_of(directory)
    assert work_in(run(PLAN, directory)[1]) == (0, 0, 4)


@pytest.mark.parametrize("name", RECORDS)
def test_one_wrong_value_ends_with_the_same_results(sweeps: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Each key of a file in turn, each value that it cannot have, and the key left out."""
    begun = "finished" if name in ("config.json", "result.json", "manifest.json") else "stopped"
    shutil.copytree(sweeps[begun], tmp_path / "sweep")
    path = files(tmp_path / "sweep", name)[0]
    original = json.loads(path.read_text())
    for n, key in enumerate(original):
        for k, value in enumerate([*VALUES, ...]):
            content = {n: v for n, v in original.items() if n != key} if value is ... else {**original, key: value}
            path.write_text(json.dumps(content))
            assert len(snapshot(tmp_path / "sweep").runs) == 4
            if k != n % (len(VALUES) + 1):  # all are read; a whole sweep takes longer
                continue
            case = tmp_path / "case"
            shutil.rmtree(case, ignore_errors=True)
            shutil.copytree(tmp_path / "sweep", case)
            state, text = run(PLAN, case)
            assert state == 0, (key, value, text)
            assert_complete(PLAN, case)
            # a count or a time that is merely another one cannot be told from the true one
            for row, true in zip(results(case), results(sweeps["finished"]), strict=True):
                assert (row["run_id"], row["status"], row["loss"]) == (true["run_id"], "done", true["loss"]), (
                    key,
                    value,
                )


@pytest.fixture
def finished(sweeps: dict[str, Path], tmp_path: Path) -> Path:
    shutil.copytree(sweeps["finished"], tmp_path / "sweep")
    return tmp_path / "sweep"


@pytest.fixture
def stopped(sweeps: dict[str, Path], tmp_path: Path) -> Path:
    shutil.copytree(sweeps["stopped"], tmp_path / "sweep")
    return tmp_path / "sweep"


def edit(path: Path, **changes: Any) -> None:
    content = {**json.loads(path.read_text()), **changes}
    content.pop("content_sha256", None)  # as an earlier version wrote it
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("loss", ["x", float("nan"), float("inf"), None, True, -1.0, 1e30])
def test_a_result_without_a_finite_loss_is_trained_again(finished: Path, sweeps: dict[str, Path], loss: Any) -> None:
    name = PLAN.runs[0].run_id
    edit(finished / "runs" / name / "result.json", loss=loss)
    assert "3 done" in text_of(finished) and f"runs/{name}/result.json: loss: " in text_of(finished)
    state, text = run(PLAN, finished)
    assert state == 0 and work_in(text) == (1, 1, 3)
    assert f"runs/{name}/result.json: loss: " in text and says(text, "sweep: a damaged result set aside")
    assert_complete(PLAN, finished)
    assert results(finished) == results(sweeps["finished"])  # by the whole pack: the last bits depend on its size


@pytest.mark.parametrize("content", ["cut", "no array", "shape", "objects"])
def test_documents_that_are_not_whole_are_trained_again(finished: Path, content: str) -> None:
    name = PLAN.runs[0].run_id
    path = finished / "runs" / name / "documents.npy"
    if content == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    elif content == "no array":
        path.write_bytes(b"\x00" * 200)
    else:
        np.save(path, np.ones(3) if content == "shape" else np.array([["a", "b"]]))
    assert "3 done" in text_of(finished) and f"runs/{name}/documents.npy: is " in text_of(finished)
    state, text = run(PLAN, finished)
    assert state == 0 and work_in(text) == (1, 1, 3)
    assert_complete(PLAN, finished)
    assert np.load(path).shape == (1, 2)


def flipped(path: Path) -> np.ndarray:
    """The array with the lowest bit flipped of the first number's exponent."""
    array = np.load(path)
    array.view(np.uint64)[0, 0] ^= np.uint64(1 << 52)
    return array


@pytest.mark.parametrize(
    "other",
    [
        flipped,
        lambda path: np.load(path) * [2, 1],
        lambda path: np.load(path) * 2,
        lambda path: -np.load(path),
        lambda path: np.load(path.parents[1] / PLAN.runs[3].run_id / path.name),
        lambda path: np.load(path) * np.nan,
        lambda path: np.zeros((0, 2)),
    ],
    ids=["a bit flipped", "nats doubled", "all doubled", "negated", "another run's", "no numbers", "none"],
)
def test_documents_that_are_not_those_of_the_loss_are_trained_again(
    finished: Path, other: Callable[[Path], np.ndarray]
) -> None:
    name = PLAN.runs[0].run_id
    path = finished / "runs" / name / "documents.npy"
    whole = path.read_bytes()
    np.save(path, other(path))
    assert "3 done" in text_of(finished) and f"runs/{name}/documents.npy: " in text_of(finished)
    state, text = run(PLAN, finished)
    assert state == 0 and work_in(text) == (1, 1, 3)
    assert f"runs/{name}/documents.npy: " in text and path.read_bytes() == whole


def test_missing_documents_are_said_and_the_loss_stands(finished: Path) -> None:
    name = PLAN.runs[0].run_id
    (finished / "runs" / name / "documents.npy").unlink()
    said = f"runs/{name}/documents.npy: missing; the loss stands"
    assert "4 done" in text_of(finished) and said in text_of(finished)
    state, text = run(PLAN, finished)
    assert state == 0 and work_in(text) == (0, 0, 4) and said in text


def test_a_run_whose_status_alone_is_damaged_is_done(finished: Path) -> None:
    (finished / "runs" / PLAN.runs[0].run_id / "status.json").write_text('{"state": "don')
    assert "4 done" in text_of(finished)
    assert says(run(PLAN, finished)[1], "sweep: a damaged status set aside")
    assert_complete(PLAN, finished)


@pytest.mark.parametrize("name", ["config.json", "status.json", "result.json"])
def test_a_file_of_another_run_is_damage(finished: Path, sweeps: dict[str, Path], name: str) -> None:
    one, other = (finished / "runs" / PLAN.runs[k].run_id / name for k in (0, 3))
    shutil.copy(other, one)
    state, text = run(PLAN, finished)
    assert state == 0 and f"{name}: run_id: '{PLAN.runs[3].run_id}'; must be '{PLAN.runs[0].run_id}'" in text
    assert_complete(PLAN, finished)
    assert results(finished) == results(sweeps["finished"])


def test_a_config_that_contradicts_its_name_is_damage(finished: Path) -> None:
    path = finished / "runs" / PLAN.runs[0].run_id / "config.json"
    before = path.read_text()
    edit(path, seed=7)
    assert says(run(PLAN, finished)[1], "sweep: a damaged config set aside")
    assert path.read_text() == before


def test_an_orphan_without_a_config_has_no_row(finished: Path) -> None:
    plan = make_plan(grid__depths=[1], grid__budgets=[3e4], execution={"checkpoint_steps": 5, "log_steps": 1})
    orphan = next(run.run_id for run in PLAN.runs if run.run_id not in {run.run_id for run in plan.runs})
    (finished / "runs" / orphan / "config.json").write_text("{}")
    run(plan, finished)
    with (finished / "orphans.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1 and all(row["depth"] for row in rows)


@pytest.mark.parametrize("name", ["pack.json", "state.json", "progress.json", "status.json", "config.json"])
def test_a_stopped_pack_resumes_from_its_checkpoint(stopped: Path, name: str) -> None:
    store = SweepStore(stopped)
    pack_id = next(name for name in store.pack_ids() if store.newest_checkpoint(name))
    for path in files(stopped, name):
        path.write_text("[]")
    state, text = run(PLAN, stopped)
    assert state == 0, text
    assert store.pack_state(pack_id).resumed_step == STOPPED_AT
    assert_complete(PLAN, stopped)


def test_a_pack_gets_back_the_members_it_was_written_with(finished: Path) -> None:
    """A seed was added: the plan's pack has three replicas, and the one written under its name has the new one."""
    plan = make_plan(grid__depths=[1], grid__seeds=3, execution={"checkpoint_steps": 5, "log_steps": 1})
    store = SweepStore(finished)
    run(plan, finished)
    written = [store.pack(pack.pack_id) for pack in plan.packs]
    assert all(pack and [replica.seed for replica in pack.replicas] == [2] for pack in written)
    for pack in plan.packs:
        (finished / "packs" / pack.pack_id / "pack.json").write_text("{}")
        (finished / "packs" / pack.pack_id / "state.json").write_text("{")
    assert work_in(run(plan, finished)[1]) == (0, 0, 6)
    assert [store.pack(pack.pack_id) for pack in plan.packs] == written
    assert {store.pack_state(pack.pack_id).state for pack in plan.packs} == {"done"}


def test_a_state_of_a_split_pack_is_told_by_the_packs_that_came_of_it(
    tmp_path: Path,
) -> None:
    order(tmp_path, most_replicas=1)
    assert run(PLAN, tmp_path / "sweep")[0] == 0
    store, parent = SweepStore(tmp_path / "sweep"), PLAN.packs[0].pack_id
    was = store.pack_state(parent)
    assert was.state == "rebuilt" and was.rebuilt_into == (f"{parent}-a", f"{parent}-b")
    for path in files(tmp_path / "sweep", "state.json"):
        path.write_text('{"state": "rebuilt", "rebuilt_into": 3}')
    children = [store.pack(name) for name in was.rebuilt_into]
    for name in was.rebuilt_into:
        (store.pack_directory(name) / "pack.json").write_text("null")
    assert work_in(run(PLAN, tmp_path / "sweep")[1]) == (0, 0, 4)
    assert store.pack_state(parent).rebuilt_into == was.rebuilt_into and store.pack_state(parent).state == "rebuilt"
    for before, after in zip(children, map(store.pack, was.rebuilt_into), strict=True):
        assert before and after and before.replicas == after.replicas and after.rebuilt_from == parent


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda lines: [*lines[:9], b"\xff\x00garbage", b"[1, 2]", b'{"step": "x"}', *lines[9:]],
            "3 damaged lines left out",
        ),
        (lambda lines: [*lines[:5], lines[5][:9]], "the rows of steps 6–17 are lost"),
        (lambda lines: [], "the rows of steps 1–17 are lost"),
        (lambda lines: lines[8:], "the rows of steps 1–8 are lost"),
        (lambda lines: [*lines, b'{"step": 18, "los'], ""),  # a kill inside a write: nothing is lost
    ],
)
def test_metrics_keep_what_can_be_read(stopped: Path, damage: Callable[[list[bytes]], list[bytes]], said: str) -> None:
    store = SweepStore(stopped)
    name = next(name for name in store.run_ids() if (store.run_directory(name) / "metrics.jsonl").exists())
    path = store.run_directory(name) / "metrics.jsonl"
    lines = path.read_bytes().splitlines()
    assert len(lines) == STOPPED_AT
    left = damage(lines)
    path.write_bytes(b"\n".join(left) + (b"\n" if left and left[-1].endswith(b"}") else b""))
    state, text = run(PLAN, stopped)
    assert state == 0, text
    assert text.count("metrics.jsonl: ") == bool(said) and said in text
    steps = [json.loads(line)["step"] for line in path.read_text().splitlines()]
    kept = [json.loads(line)["step"] for line in left if line in lines]
    assert steps == [*kept, *range(STOPPED_AT + 1, 31)]
    result = store.result(name)
    assert result and store.state(name).state == "done"


@pytest.mark.parametrize(
    ("steps", "end", "log_steps", "lacks"),
    [
        ([1, 10, 20], 25, 10, ""),
        ([1, 5, 10], 19, 10, ""),  # an earlier call logged every fifth step
        ([1, 10, 20], 25, 1, ""),  # this one would log each
        ([1, 10], 25, 10, "the rows of steps 11–25 are lost"),
        ([], 0, 10, ""),
        ([1], 5, 10, ""),
    ],
)
def test_rows_that_were_never_due_are_not_missed(steps: list[int], end: int, log_steps: int, lacks: str) -> None:
    rows = [{"step": step} for step in steps]
    assert lost_rows(Metrics(tuple(rows)), rows, end, log_steps) == lacks


def test_a_plan_that_cannot_be_read_is_one_line(finished: Path) -> None:
    text = (finished / "plan.csv").read_text()
    damaged = [text.replace(",30,", f",{value},").encode() for value in (1.5, "nan", -3)]
    for damage in (*damaged, b"\xff\xfe" + text.encode(), b"action\n" + b"x" * 200_000):  # not UTF-8; no such field
        (finished / "plan.csv").write_bytes(damage)
        with pytest.raises(InputError, match=r"plan\.csv is not one that `dwsweep run` wrote"):
            snapshot(finished)


FOLDERS = (
    "plan.csv",
    "results.csv",
    "manifest.json",
    "locks/guard",
    "locks/results.guard",
    "locks/shard-0-of-1.lock",
    "runs/{run}/metrics.jsonl",
    "runs/{run}/result.json",
    "runs/{run}/documents.npy",
    "runs/{run}/status.json",
    "packs/{pack}/log.txt",
    "packs/{pack}/state.json",
)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_where_a_file_belongs_is_set_aside(directory: Path, sweeps: dict[str, Path], name: str) -> None:
    first = next(run for run in PLAN.runs if run.pack_id == PLAN.packs[0].pack_id)
    path = directory / name.format(run=first.run_id, pack=first.pack_id)
    if path.exists():
        path.unlink()
    path.mkdir(parents=True)
    (path / "kept").write_text("by whoever made the folder")
    state, text = run(PLAN, directory)
    assert state == 0, text
    assert path.name in text and f"set aside as {path.name}.damaged" in text
    assert (path.with_name(f"{path.name}.damaged") / "kept").exists()
    assert results(directory) == results(sweeps["finished"])
    assert "4 done" in text_of(directory) and "damaged" not in text_of(directory)


@pytest.mark.parametrize("name", ["locks", "locks/guard", "locks/shard-0-of-1.lock"])
def test_a_lock_that_is_a_link_to_elsewhere_is_never_followed(directory: Path, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    if name == "locks":
        shutil.rmtree(directory / "locks")
        elsewhere.mkdir()
    else:
        (directory / name).unlink(missing_ok=True)
        elsewhere.write_text("precious")
    (directory / name).symlink_to(elsewhere)
    assert "4 runs" in text_of(directory)
    state, text = run(PLAN, directory)
    assert state == 0 and f"set aside as {Path(name).name}.damaged" in text
    assert not list(elsewhere.iterdir()) if name == "locks" else elsewhere.read_text() == "precious"
    assert (directory / "locks").is_dir() and not (directory / "locks").is_symlink()


def test_plan_does_not_write_beside_locks_that_are_elsewhere(finished: Path, tmp_path: Path) -> None:
    shutil.rmtree(finished / "locks")
    (tmp_path / "elsewhere").mkdir()
    (finished / "locks").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="its locks is a link to elsewhere"):
        write_plan(PLAN, finished)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_what_killed_processes_left_half_written_is_swept_up(stopped: Path) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    ended, folders = f".result.json.{dead.pid}.tmp", [stopped, stopped / "locks"]
    folders += [stopped / "runs" / PLAN.runs[0].run_id, stopped / "packs" / PLAN.packs[0].pack_id]
    for folder in folders:
        (folder / ended).write_text("{")
    alive = stopped / "runs" / PLAN.runs[0].run_id / f".result.json.{os.getppid()}.tmp"  # as of an orphaned worker
    alive.write_text("{")
    state, text = run(PLAN, stopped)
    assert state == 0 and says(text, "sweep: half-written files removed")
    assert list(stopped.rglob(".*.tmp")) == [alive]
    # beside another shard, whose process may be one of another host, only what is this shard's own
    for folder in folders:
        (folder / ended).write_text("{")
    config = stopped / "runs" / PLAN.runs[0].run_id / f".config.json.{dead.pid}.tmp"
    config.write_text("{")
    with ownership.hold(stopped, (0, 2)):
        run(PLAN, stopped, shard=(1, 2))
    left = {path.parent for path in stopped.rglob(ended)}
    assert {stopped, stopped / "locks"} <= left and len(left) < 4 and config.exists()
