"""Each kind of file, each fault, each command: what was damaged is found, said, and made again where that can be.

``TABLE`` has the outcomes. Whatever the fault, ``run`` ends with the results of the undamaged sweep, and no command
changes its answer without a word.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_tools import Command
from corpus_tools import data_spec, write_texts
from shown import printed
from spec_tools import spec_of
from sweep_tools import SMALL, WorkerHere, assert_complete, order, results_of, run, with_standin, work_in

from dwsweep import paths, results
from dwsweep.data.prepare import prepare
from dwsweep.errors import InputError
from dwsweep.fit.data.table import read_table
from dwsweep.plan import DataFacts, Plan, build
from dwsweep.records.documents import _sha256
from dwsweep.records.metrics import metrics_of, read_metrics
from dwsweep.records.record import quoted_text, table_text, unquoted_text
from dwsweep.report import status_report
from dwsweep.sweep import inventory, runner
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.results_table import settle_results
from dwsweep.sweep.snapshot import snapshot
from dwsweep.sweep.work_queue import write_plan

pytestmark = pytest.mark.usefixtures("standin_here")

STOPPED_AT = 17
EXECUTION = {"checkpoint_steps": 5, "log_steps": 1, "keep_params": "all"}


class Made:
    """Two packs of two seeds, finished, and stopped inside the first; their text is on this host, so that ``verify``
    can make the plan again."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        for name, value in with_standin().items():
            patch.setenv(name, value)
        data = data_spec(write_texts(root / "text", words=200), root / "cache", vocab_size=256, validation_fraction=0.2)
        self.spec = spec_of(SMALL, grid__depths=[1], execution=EXECUTION, data=data.model_dump())
        self.tokens = prepare(self.spec.data, progress=False)
        self.plan: Plan = build(self.spec, data=DataFacts.of(self.tokens))
        self.folder: dict[str, Path] = {}
        for name, stop_after in (("finished", None), ("stopped", STOPPED_AT)):
            patch.setattr(runner, "local_workers", lambda *_, after=stop_after, **__: [WorkerHere(after)])
            self.folder[name] = root / name / "sweep"
            self.folder[name].parent.mkdir()
            assert run(self.plan, self.folder[name])[0] == (0 if name == "finished" else 3)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        return Made(tmp_path_factory.mktemp("made"), patch)


@pytest.fixture
def finished(made: Made, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.folder["finished"], tmp_path / "sweep"))


@pytest.fixture
def stopped(made: Made, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.folder["stopped"], tmp_path / "sweep"))


def text_of(directory: Path) -> str:
    return printed(status_report.render(snapshot(directory)), 200)


def listing(directory: Path) -> dict[str, tuple[int, int]]:
    found = {str(path.relative_to(directory)): path.lstat() for path in directory.rglob("*") if not path.is_dir()}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in found.items()}


def faults(directory: Path) -> list[tuple[str, str]]:
    _sha256.cache_clear()
    return [(file.kind, file.why) for file in inventory.look(SweepStore(directory)) if file.why]


def files(directory: Path, name: str) -> list[Path]:
    return sorted(path for path in directory.rglob(name) if "locks" not in path.parts)


# the faults


def digit(path: Path, other: Path) -> None:
    whole = path.read_bytes()
    place = next(k for k in range(len(whole) // 2, len(whole)) if chr(whole[k]).isdigit() or path.suffix == ".npy")
    path.write_bytes(whole[:place] + (b"1" if whole[place : place + 1] != b"1" else b"2") + whole[place + 1 :])


def missing(path: Path, other: Path) -> None:
    path.unlink()


def another(path: Path, other: Path) -> None:
    shutil.copy(other, path)


def fifo(path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path)


FAULTS: dict[str, Callable[[Path, Path], None]] = {one.__name__: one for one in (digit, missing, another, fifo)}
TABLE: dict[str, tuple[str, dict[str, str]]] = {
    # file: (outcome of status, of reading the results, of run; outcomes of faults that have others)
    "spec.yaml": ("same, same, same", {}),
    "plan.csv": ("said, same, same", {"missing": "refused, same, same"}),
    "results.csv": ("same, said, says", {}),
    "manifest.json": ("said, same, says", {"missing": "same, same, says"}),
    "config.json": ("same, said, says", {}),
    "result.json": ("said, said, trains 1", {"missing": "other, said, trains 1"}),
    "documents.npy": ("said, said, trains 1", {"missing": "same, same, same"}),  # the loss stands
    "metrics.jsonl": ("same, said, same", {}),
    "params.safetensors": ("same, same, same", {}),  # `export` reads it, and compares it
    "pack.json": ("same, same, says", {"missing": "same, same, same"}),
    "state.json": ("same, same, says", {"another": "same, same, same"}),  # it names no pack
}


def of_status(made: Made, directory: Path, path: Path, fault: str) -> str:
    """And of ``verify``, which names the file; a reader changes nothing."""
    before = listing(directory)
    found = [file for files in inventory.verify(directory).values() for file in files if file.why and file.path == path]
    if (path.name, fault) != ("state.json", "another"):  # it names no pack
        assert len(found) == 1, found
        assert bool(re.search(r"missing|does not exist", found[0].why)) == (fault == "missing"), found
    try:
        text = text_of(directory)
    except InputError as error:
        assert path.name in str(error)
        return "refused"
    finally:
        assert listing(directory) == before
    return "same" if text == text_of(made.folder["finished"]) else "said" if path.name in text else "other"


def of_reading(made: Made, directory: Path, path: Path, fault: str) -> str:
    """Of ``fit`` and its like, which bring results.csv up to date and read it."""
    said: list[str] = []
    settle_results(directory, said.append)
    left_out = [metrics_of(run).left_out(run.name) for run in sorted((directory / "runs").iterdir())]
    if any(left_out) or said:
        return "said"
    return "same" if rows_read(directory) == rows_read(made.folder["finished"]) else "SILENT"


def rows_read(directory: Path) -> str:
    return str([vars(row) if hasattr(row, "__dict__") else row for row in read_table(directory / "results.csv").rows])


def of_run(made: Made, directory: Path, path: Path, fault: str) -> str:
    """It ends with the results of the undamaged sweep; what is left damaged takes no part in them."""
    status, text = run(made.plan, directory)
    assert status == 0, text
    assert results_of(directory) == results_of(made.folder["finished"])
    left = {kind.rpartition("/")[2] for kind, _ in faults(directory)}
    harmless = {"metrics.jsonl", "params.safetensors", "pack.json"}
    assert left <= harmless | ({"documents.npy"} if fault == "missing" else set())
    trained = work_in(text)[0]
    return f"trains {trained}" if trained else "says" if path.name in text else "same"


@pytest.mark.parametrize("name", TABLE)
def test_each_fault_of_a_kind_of_file_has_its_outcome(made: Made, tmp_path: Path, name: str) -> None:
    several = len(files(made.folder["finished"], name)) > 1
    left_out = {*(["another"] if not several else []), *(["fifo"] if name != "result.json" else [])}
    usual, others = TABLE[name]
    for fault in (one for one in FAULTS if one not in left_out):
        found = []
        for command in (of_status, of_reading, of_run):
            _sha256.cache_clear()
            directory = Path(shutil.copytree(made.folder["finished"], tmp_path / "sweep"))
            path = files(directory, name)[0]
            FAULTS[fault](path, files(directory, name)[-1])
            found.append(command(made, directory, path, fault))
            shutil.rmtree(directory)
        assert ", ".join(found) == others.get(fault, usual), fault


RECORDS = ("config.json", "status.json", "result.json", "pack.json", "state.json", "progress.json", "manifest.json")
VALUES = ["x", [], {}, None, True, -1, 1.5, float("nan"), float("inf"), 10**30, "[/bold]"]


@pytest.mark.parametrize("name", RECORDS)
def test_one_wrong_value_ends_with_the_same_results(made: Made, tmp_path: Path, name: str) -> None:
    """Each key of a file in turn, each value that it cannot have, and the key left out."""
    begun = "finished" if name in ("config.json", "result.json", "manifest.json") else "stopped"
    directory = Path(shutil.copytree(made.folder[begun], tmp_path / "sweep"))
    path = files(directory, name)[0]
    original = json.loads(path.read_text())
    original.pop("content_sha256")  # as an earlier version wrote it
    for n, key in enumerate(original):
        for k, value in enumerate([*VALUES, ...]):
            content = {n: v for n, v in original.items() if n != key} if value is ... else {**original, key: value}
            path.write_text(json.dumps(content))
            assert len(snapshot(directory).runs) == 4
            if n or k:  # all are read; a whole sweep takes longer
                continue
            case = tmp_path / "case"
            shutil.rmtree(case, ignore_errors=True)
            shutil.copytree(directory, case)
            state, text = run(made.plan, case)
            assert state == 0, (key, value, text)
            assert_complete(made.plan, case)
            # a count or a time that is merely another one cannot be told from the true one
            for row, true in zip(results_of(case), results_of(made.folder["finished"]), strict=True):
                assert [row[k] for k in ("run_id", "status", "loss")] == [true["run_id"], "done", true["loss"]], key


def test_a_sweep_of_an_earlier_version_is_read(made: Made, finished: Path) -> None:
    """It wrote the state of finished runs too, and no hash of the file of metrics."""
    for path in (finished / "runs").iterdir():
        result = json.loads((path / "result.json").read_text())
        for name in ("metrics_sha256", "content_sha256"):
            result.pop(name)
        (path / "result.json").write_text(json.dumps(result))
        state = {"state": "done", "step": 30, "loss": result["loss"], "pack_id": result["pack_id"], "run_id": path.name}
        (path / "status.json").write_text(json.dumps(state))
    assert faults(finished) == [] and "4 done" in text_of(finished)
    assert work_in(run(made.plan, finished)[1]) == (0, 0, 4)
    one = files(finished, "metrics.jsonl")[0]
    one.write_text("".join(one.read_text().splitlines(keepends=True)[:-3]))
    assert metrics_of(one.parent).lost == 3
    files(finished, "result.json")[0].unlink()
    assert work_in(run(made.plan, finished)[1]) == (1, 1, 3)
    assert results_of(finished) == results_of(made.folder["finished"])


def test_a_split_pack_whose_records_are_lost_is_not_trained_again(made: Made, tmp_path: Path) -> None:
    order(tmp_path, most_replicas=1)
    assert run(made.plan, tmp_path / "sweep")[0] == 0
    for path in files(tmp_path / "sweep", "state.json"):
        path.write_text('{"state": "rebuilt", "rebuilt_into": 3}')
    assert work_in(run(made.plan, tmp_path / "sweep")[1]) == (0, 0, 4)
    store = SweepStore(tmp_path / "sweep")
    assert {store.pack_state(pack_id).state for pack_id in store.pack_ids()} == {"done"}


def test_metrics_of_a_stopped_run_keep_what_can_be_read(made: Made, stopped: Path) -> None:
    """A line that a kill cut off is not damage: its step comes again."""
    first, second = files(stopped, "metrics.jsonl")[:2]
    lines = first.read_bytes().splitlines()
    assert len(lines) == STOPPED_AT
    bad = [b"\xff\x00garbage", b"[1, 2]", b'{"step": "x"}']
    first.write_bytes(b"\n".join([*lines[:9], *bad, *lines[9:]]) + b"\n")
    second.write_bytes(second.read_bytes() + b'{"step": 18, "los')
    state, text = run(made.plan, stopped)
    assert state == 0 and "3 damaged lines left out" in text and text.count("metrics.jsonl: ") == 1
    for path in (first, second):
        assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [*range(1, 31)]


def test_a_folder_in_the_place_of_metrics_is_set_aside(made: Made, stopped: Path) -> None:
    first = files(stopped, "metrics.jsonl")[0]
    first.unlink()
    (first / "kept").mkdir(parents=True)
    state, text = run(made.plan, stopped)
    assert state == 0 and f"{first.parent.name}/metrics.jsonl: is a folder" in text
    assert first.is_file() and (first.with_name("metrics.jsonl.damaged") / "kept").is_dir()


def test_a_damaged_file_is_one_note_of_a_fit(finished: Path, dwsweep: Command) -> None:
    files(finished, "config.json")[0].write_text("{")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = dwsweep("fit", finished)
    assert done.stderr.count("config.json: is not valid JSON") == 1


def test_a_whole_number_that_no_float_holds_is_a_lost_line(tmp_path: Path) -> None:
    path, huge = tmp_path / "metrics.jsonl", "9" * 400
    path.write_text(f'{{"step":1,"loss":2.0}}\n{{"step":2,"loss":{huge}}}\n{{"step":{huge},"loss":2.0}}\n')
    found = read_metrics(path)
    assert [row["step"] for row in found.rows] == [1] and found.lost == 2


@pytest.mark.parametrize("name", ["", "shard-0-of-1.lock"])
def test_a_link_in_the_place_of_locks_is_refused_and_never_followed(
    made: Made, stopped: Path, tmp_path: Path, name: str
) -> None:
    path, elsewhere = stopped / "locks" / name, tmp_path / "elsewhere"
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)
    before = listing(tmp_path)
    assert "4 runs" in text_of(stopped)
    for command in (run, write_plan):
        with pytest.raises(InputError, match=f"--out: {path}; must be no link"):
            command(made.plan, stopped)
    assert listing(tmp_path) == before


def test_a_plan_that_cannot_be_read_is_one_line(finished: Path) -> None:
    text = (finished / "plan.csv").read_text()
    damaged = [text.replace(",30,", f",{value},").encode() for value in (1.5, "nan", -3)]
    damaged += [b"\xff\xfe" + text.encode(), b"action\n" + b"x" * 200_000]  # not UTF-8; no such field
    for damage in (*damaged, b"a,b\n1,2\n", b"action,run_id,pack_id,depth\nRUN,x,y,deep\n", b"action\nRUN\n"):
        (finished / "plan.csv").write_bytes(damage)
        with pytest.raises(InputError, match=r"plan\.csv is not one that `dwsweep run` wrote"):
            snapshot(finished)
        settle_results(finished, pytest.fail)  # a fit reads the results


def test_a_plan_that_plan_wrote_is_not_damage(made: Made, finished: Path) -> None:
    more = made.spec.model_copy(update={"grid": made.spec.grid.model_copy(update={"seeds": 3})})
    write_plan(build(more, data=DataFacts.of(made.tokens)), finished)
    assert not snapshot(finished).damaged and "plan.csv" not in dict(faults(finished))


@pytest.mark.parametrize("named", ["", "results.csv"])
def test_a_table_that_was_changed_is_not_read_as_the_table_of_the_runs(finished: Path, named: str) -> None:
    path = finished / "results.csv"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b",2.", b",3.", 1))
    with pytest.warns(UserWarning, match=r"results.csv: is not the table of the runs; set aside"):
        results._settled([finished / named])
    assert path.read_bytes() == whole and len(read_table(path).rows) == 4
    elsewhere = finished.with_name("results.csv")  # a copy has no runs beside it
    shutil.copy(path, elsewhere)
    moved = Path(shutil.copytree(finished, finished.with_name("moved")))  # other times and inodes, and the same runs
    said: list[str] = []
    for place in (elsewhere, moved):
        settle_results(place, said.append)
    assert said == []


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
    from safetensors.numpy import load_file

    arrays = {name: np.arange(n, dtype=np.float32) for n, name in enumerate(("b", "a", "ü"), 1)}
    found = {paths.write_safetensors(tmp_path / "p.safetensors", arrays)[0] for _ in range(40)}
    assert len(found) == 1
    read = load_file(tmp_path / "p.safetensors")
    assert all((read[name] == array).all() for name, array in arrays.items()) and read.keys() == arrays.keys()
