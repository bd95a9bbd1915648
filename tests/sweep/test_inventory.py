"""Each byte of a finished sweep is checked: what was changed is found, said, and written again where it can be."""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Command
from sentences import says, shows
from sweep_tools import WorkerHere, assert_complete, make_plan, run, with_standin

from dwsweep import paths, results
from dwsweep.errors import InputError
from dwsweep.fit.data.table import read_table
from dwsweep.records import record as reader
from dwsweep.records.documents import _fault_of_documents
from dwsweep.records.metrics import read_metrics
from dwsweep.records.record import quoted_text, sealed, table_text, unquoted_text
from dwsweep.records.run import RunResult
from dwsweep.report.runs_table import rows_of
from dwsweep.sweep import inventory, runner
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.snapshot import settle_results, snapshot
from dwsweep.sweep.work_queue import write_plan

pytestmark = pytest.mark.usefixtures("standin_here")

PLAN = make_plan(grid__depths=[1], execution={"checkpoint_steps": 5, "log_steps": 1})  # two packs of two seeds


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("finished") / "sweep"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in with_standin().items():
            patch.setenv(name, value)
        patch.setattr(runner, "local_workers", lambda *_, **__: [WorkerHere()])
        assert run(PLAN, directory)[0] == 0
    return directory


@pytest.fixture
def sweep(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "sweep")
    return tmp_path / "sweep"


def faults(directory: Path) -> list[tuple[str, str]]:
    _fault_of_documents.cache_clear()
    return [(kind, why) for kind, _, why in inventory._look(SweepStore(directory)) if why]


@pytest.mark.parametrize("trials", [3, pytest.param(36, marks=pytest.mark.slow)])
def test_every_changed_byte_is_found(sweep: Path, trials: int) -> None:
    """Flips of a bit, other digits and cuts, at random places of every kind of file."""
    assert faults(sweep) == []
    rng = random.Random(58)
    names = ("*.json", "metrics.jsonl", "*.npy", "*.csv", "spec.yaml")
    kinds = {path.name for name in names for path in sweep.rglob(name) if "locks" not in path.parts}
    assert len(kinds) > 10
    for kind in sorted(kinds):
        for trial in range(trials):
            path = rng.choice(sorted(sweep.rglob(kind)))
            whole = path.read_bytes()
            changed, place = bytearray(whole), rng.randrange(len(whole))
            if trial % 3 == 0:
                changed = changed[:place]
            elif trial % 3 == 1:
                changed[place] ^= 1 << rng.randrange(8)
            else:
                digits = [i for i, byte in enumerate(whole) if chr(byte).isdigit()]
                place = rng.choice(digits) if digits else place
                changed[place] = ord("0") + (changed[place] + 1) % 10
            path.write_bytes(bytes(changed))
            assert faults(sweep), (kind, trial, place, whole[max(0, place - 20) : place + 20])
            path.write_bytes(whole)
    assert faults(sweep) == []


@pytest.mark.parametrize("name", ["config.json", "status.json", "result.json", "pack.json", "state.json"])
def test_verify_writes_again_what_follows_from_other_files(sweep: Path, name: str) -> None:
    path = sorted(sweep.rglob(name))[0]
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1))
    found = inventory.verify(sweep)
    lost = [fault.kind for finding in found.findings for fault in finding.lost]
    # the data of the stand-in is on no host, so that nothing that needs the plan can be written again
    assert lost == [f"{path.parts[-3]}/*/{name}"] and not found.is_whole
    assert says(found.notes, "sweep: not made again without the plan")
    assert run(PLAN, sweep)[0] == 0
    assert_complete(PLAN, sweep)
    assert inventory.verify(sweep).is_whole


@pytest.mark.parametrize("name", ["pack.json", "state.json", "manifest.json", "packs"])
def test_a_missing_file_of_a_finished_pack_is_a_fault_and_is_written_again(sweep: Path, name: str) -> None:
    """Without pack.json a lost result would train in a pack of another size; without manifest.json nothing could tell
    a changed plan, and lengths in seconds would follow other rates."""
    path = sorted(sweep.rglob(name))[0]
    before = {one: one.read_bytes() for one in sweep.rglob("pack.json")}
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    expected = {"packs": {"packs/*/pack.json", "packs/*/state.json"}, "manifest.json": {name}}
    assert {kind for kind, _ in faults(sweep)} == expected.get(name, {f"packs/*/{name}"})
    assert not inventory.verify(sweep).is_whole  # the stand-in's data is on no host
    status, text = run(PLAN, sweep)
    assert status == 0 and "is missing" in text
    assert faults(sweep) == []
    assert {one: one.read_bytes() for one in sweep.rglob("pack.json")} == before


def test_a_finished_run_whose_folder_is_gone_is_lost(sweep: Path) -> None:
    first = sorted((sweep / "runs").iterdir())[0]
    whole = {one.name: one.read_bytes() for one in first.iterdir() if one.name == "documents.npy"}
    shutil.rmtree(first)
    found = inventory.verify(sweep)
    assert [fault.path for finding in found.findings for fault in finding.lost if fault.path.name == "result.json"] == [
        first / "result.json"
    ]
    assert not found.is_whole
    assert run(PLAN, sweep)[0] == 0
    assert {name: (first / name).read_bytes() for name in whole} == whole
    assert inventory.verify(sweep).is_whole


def test_results_follow_the_runs(sweep: Path) -> None:
    path, said = sweep / "results.csv", []
    whole = path.read_bytes()
    settle_results(sweep, said.append)
    assert said == []
    path.write_bytes(whole.replace(b",2.", b",3.", 1))
    settle_results(sweep, said.append)
    assert path.read_bytes() == whole and says(said.pop(), "sweep: damaged results set aside")
    path.unlink()
    settle_results(sweep, said.append)
    assert path.read_bytes() == whole and said
    moved = sweep.with_name("moved")
    shutil.copytree(sweep, moved)  # other times and inodes, and the same runs
    said.clear()
    settle_results(moved, said.append)
    assert said == []


def test_a_changed_plan_is_said_and_one_that_plan_wrote_is_not(sweep: Path) -> None:
    path = sweep / "plan.csv"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b",30,", b",31,", 1))
    assert says(snapshot(sweep).damaged, "sweep: changed plan")
    path.write_bytes(whole)
    assert not snapshot(sweep).damaged
    write_plan(make_plan(grid__depths=[1], grid__seeds=3), sweep)
    assert path.read_bytes() != whole and not snapshot(sweep).damaged
    assert "plan.csv" not in dict(faults(sweep))


def test_every_reader_of_results_checks_them(sweep: Path) -> None:
    """The Python interface writes the table of a sweep again, with a warning; whoever names the file is refused."""
    path = sweep / "results.csv"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b",2.", b",3.", 1))
    with pytest.raises(InputError, match="is not the table that was derived from the runs beside it"):
        read_table(path)
    with pytest.raises(InputError, match="is not the table that was derived"):
        rows_of(path)
    with pytest.warns(UserWarning, match=r"results.csv: is not the table of the runs; set aside"):
        results._settled(sweep)
    assert path.read_bytes() == whole and len(read_table(path).rows) == 4 == len(rows_of(path))
    elsewhere = sweep.with_name("results.csv")  # a copy has no hash beside it
    elsewhere.write_bytes(whole.replace(b",2.", b",3.", 1))
    assert len(read_table(elsewhere).rows) == 4


def test_a_table_is_read_while_it_is_written(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hash comes a moment after it."""
    derived = sweep / "derived.json"
    old, waits = derived.read_bytes(), []
    derived.write_bytes(sealed(json.dumps({"files": {"results.csv": "0" * 64}}, indent=1) + "\n").encode())
    monkeypatch.setattr(time, "sleep", lambda seconds: waits.append(seconds) or derived.write_bytes(old))
    assert len(read_table(sweep).rows) == 4 and len(waits) == 1


def test_rows_of_metrics_are_missed(sweep: Path) -> None:
    one, other = sorted(sweep.rglob("metrics.jsonl"))[:2]
    whole = one.read_text().splitlines(keepends=True)
    assert read_metrics(one).lost == 0
    one.write_text("".join(whole[:10] + whole[13:]))
    assert read_metrics(one).lost == 3
    one.write_text("".join([*whole[:10], whole[10].replace("1", "2", 1), *whole[11:]]))
    assert read_metrics(one).lost == 1
    shutil.copy(other, one)  # another run's
    assert read_metrics(one).rows == ()
    one.write_text("".join(whole[:-4]))
    assert [kind for kind, _ in faults(sweep)] == ["runs/*/metrics.jsonl"]
    found = inventory.verify(sweep)
    (finding,) = (finding for finding in found.findings if finding.lost)
    assert shows(finding.lost[0].why, "sweep: lost rows", numbers=True)


def test_a_whole_number_that_no_float_holds_is_a_lost_line(tmp_path: Path) -> None:
    path, huge = tmp_path / "metrics.jsonl", "9" * 400
    path.write_text(f'{{"step":1,"loss":2.0}}\n{{"step":2,"loss":{huge}}}\n{{"step":{huge},"loss":2.0}}\n')
    found = read_metrics(path)
    assert [row["step"] for row in found.rows] == [1] and found.lost == 2


NO_FILES = ("fifo", "device", "loop")


@pytest.mark.parametrize("each", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_is_no_file_never_blocks(sweep: Path, dwsweep: Command, each: bool) -> None:
    """A FIFO, a device, a loop of links in place of each file: every command ends; ``each``: all of them."""
    paths_ = [path for name in ("*.json", "*.jsonl", "*.npy", "*.csv", "spec.yaml") for path in sweep.rglob(name)]
    by_name = {path.name: path for path in paths_ if "locks" not in path.parts}
    for k, path in enumerate(by_name.values()):
        whole = path.read_bytes()
        # in turn, and a FIFO where every command looks
        always = path.name in ("results.csv", "spec.yaml")
        for kind in NO_FILES if each else ("fifo",) if always else NO_FILES[k % 3 :][:1]:
            path.unlink()
            if kind == "fifo":
                os.mkfifo(path)
            elif kind == "device":
                path.symlink_to("/dev/zero")
            else:
                path.symlink_to(path.name)
            slow = ("fit", "report") if kind == "fifo" and always else ()
            for command in ("status", *slow):
                done = dwsweep(command, sweep)
                assert done.returncode in (0, 2) and "Traceback" not in done.stderr, (path.name, kind, command)
            assert path.name in ("results.csv", "orphans.csv") or faults(sweep), (path.name, kind)
            path.unlink(missing_ok=True)
            path.write_bytes(whole)


def test_the_hash_of_a_record_is_its_last_key(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    reader.write(path, RunResult(loss=2.5, steps=3))
    assert list(json.loads(path.read_text()))[-1] == "content_sha256"
    assert reader.read(path, RunResult) == RunResult(loss=2.5, steps=3)
    path.write_text(json.dumps({"loss": 2.5, "steps": 3}))  # an earlier version
    assert reader.read(path, RunResult) == RunResult(loss=2.5, steps=3)
    reader.write(path, RunResult(loss=2.5, steps=3))
    text = path.read_text()
    for changed in (
        text.replace("2.5", "2.6"),
        text.replace("content_sha256", "content_sha257"),
        text.replace('"steps": 3', '"steps":  3'),
        text.rstrip("\n"),
    ):
        path.write_text(changed)
        with pytest.raises(reader.Damaged, match="content_sha256"):
            reader.read(path, RunResult)


def test_a_formula_is_a_text_in_a_table() -> None:
    rows: list[dict[str, Any]] = [
        {"a": text, "b": -1.5, "c": -2} for text in ("=cmd|x", "@x", "+x", "-x", "'=x", "x=1")
    ]
    read = list(csv.DictReader(table_text(rows, ("a", "b", "c"), str).splitlines()))
    assert [row["a"] for row in read] == ["'=cmd|x", "'@x", "'+x", "'-x", "''=x", "x=1"]
    assert {(row["b"], row["c"]) for row in read} == {("-1.5", "-2")}
    assert [unquoted_text(row["a"]) for row in read] == [row["a"] for row in rows]
    assert [quoted_text(text) for text in ("-1.5", "+3", "-1e-3", "-inf")] == ["-1.5", "+3", "-1e-3", "-inf"]


def test_the_same_parameters_are_the_same_bytes(tmp_path: Path) -> None:
    import numpy as np
    from safetensors.numpy import load_file

    arrays = {name: np.arange(n, dtype=np.float32) for n, name in enumerate(("b", "a", "ü"), 1)}
    found = {paths.write_safetensors(tmp_path / "p.safetensors", arrays, run_id="x", more="y")[0] for _ in range(40)}
    assert len(found) == 1
    read = load_file(tmp_path / "p.safetensors")
    assert all((read[name] == array).all() for name, array in arrays.items()) and read.keys() == arrays.keys()
