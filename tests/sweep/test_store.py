"""The sweep directory: atomic files, the recorder's order of writing, results.csv from the directories alone."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sweep_tools import Sweep, make_plan, results_of

from dwsweep import jsonl, paths
from dwsweep.plan import Pack
from dwsweep.records import record, sweep
from dwsweep.records.columns import RESULTS
from dwsweep.records.pack import PackProgress, StartFacts
from dwsweep.records.run import RunResult, RunState
from dwsweep.sweep import results_table
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Event
from dwsweep.sweep.recorder import RunRecorder
from dwsweep.sweep.results_table import rebuild_results, results_text

pytestmark = pytest.mark.usefixtures("standin_here")


@pytest.fixture
def pack() -> Pack:
    return make_plan().packs[0]


@pytest.fixture
def store(sweep: Sweep) -> SweepStore:
    sweep.store.write_plan(make_plan())
    return sweep.store


def recorder(store: SweepStore, pack: Pack, **options: Any) -> tuple[RunRecorder, list[Event]]:
    events: list[Event] = []
    return RunRecorder(store, pack, events.append, **options), events


def steps_of(store: SweepStore, run_id: str) -> list[int]:
    return [row["step"] for row in jsonl.read_lines(store.run_directory(run_id) / "metrics.jsonl")]


def rows(*steps: int) -> list[dict[str, Any]]:
    return [{"step": step, "loss": 1.0} for step in steps]


RECORD = RunResult(loss=3.0, loss_stderr=0.1, steps=30, tokens=61440, pack_size=2, flops=10**9)
DOCUMENTS = np.array([[3.0, 1.0]])


def test_a_file_of_a_later_version_is_read(store: SweepStore) -> None:
    paths.make_directory(store.pack_directory("p"))
    record.write(store.pack_directory("p") / "state.json", {"state": "done", "invented_later": 1})
    assert store.pack_state("p").state == "done"
    record.write(paths.make_directory(store.run_directory("r")) / "status.json", {"state": "done", "new": 1})
    record.write(store.run_directory("r") / "result.json", {"loss": 3.0, "new": 1})
    assert store.state("r").state == "done"


def test_a_finished_run_is_frozen(store: SweepStore, pack: Pack) -> None:
    name = pack.replicas[0].run_ids[0]
    one, events = recorder(store, pack)
    one.started(StartFacts(step=0))
    one.metrics(name, rows(1, 2))
    one.finished(name, RECORD, DOCUMENTS)
    assert one.unfinished() == [pack.replicas[1].run_ids[0]]
    two, _ = recorder(store, pack)
    two.started(StartFacts(step=1))
    two.metrics(name, rows(2, 3))
    two.finished(name, replace(RECORD, loss=9.0), DOCUMENTS)
    two.diverged(name, 3, float("nan"))
    two.interrupted("why not")
    assert store.state(name).state == "done" and (result := store.result(name)) and result.loss == 3.0
    assert steps_of(store, name) == [1, 2]
    assert result.flops and result.flops > 0 and result.pack_id == pack.pack_id
    assert np.load(store.run_directory(name) / "documents.npy").shape == (1, 2)
    assert [type(event).__name__ for event in events] == ["StartFacts"]
    # nor is a run that another pack has
    three, _ = recorder(store, pack, frozen=[pack.replicas[1].run_ids[0]])
    three.started(StartFacts(step=0))
    three.finished(pack.replicas[1].run_ids[0], RECORD, DOCUMENTS)
    assert store.state(pack.replicas[1].run_ids[0]).state == "interrupted"


def test_a_run_whose_held_out_loss_is_no_number_has_diverged_at_its_end(store: SweepStore, pack: Pack) -> None:
    name = pack.replicas[0].run_ids[0]
    one, _ = recorder(store, pack)
    one.started(StartFacts(step=0))
    one.finished(name, replace(RECORD, loss=float("nan")), DOCUMENTS)
    found = store.state(name)
    assert (found.state, found.step) == ("diverged", 30) and "held-out loss nan after step 30" in str(found.cause)
    assert store.result(name) is None


def test_a_folder_in_the_place_of_a_file_is_named_as_the_file(store: SweepStore) -> None:
    store.results_path.mkdir()
    with pytest.raises(IsADirectoryError) as refused:
        rebuild_results(store)
    assert refused.value.filename == str(store.results_path)


def test_results_are_rebuilt_from_the_directories_alone(sweep: Sweep, tmp_path: Path) -> None:
    plan, store = make_plan(), sweep.store
    sweep.finish(plan)
    manifest, before = store.manifest, store.results_path.read_text()
    assert {"dwsweep", "python", "jax", "flax", "optax"} <= set(manifest.versions) and "stand-in" in manifest.devices
    assert manifest.calls[0]["flags"]["executor"] == "local"
    store.results_path.unlink()
    elsewhere = tmp_path / "moved"
    shutil.move(sweep.directory, elsewhere)
    assert rebuild_results(SweepStore(elsewhere)).read_text() == before
    found = results_of(elsewhere)
    assert tuple(found[0]) == RESULTS
    assert RESULTS[:20] == (
        *("run_id", "depth", "width", "heads", "head_size", "seed", "learning_rate", "parametrization", "budget"),
        *("n_params", "n_params_total", "tokens", "steps", "loss", "loss_stderr", "bits_per_byte", "status"),
        *("wall_seconds", "tokens_per_second", "flops"),
    )
    assert all((value == "") == (name in ("arm", "embedding_rank")) for row in found for name, value in row.items())
    # without the plan too: every run that has a directory
    (elsewhere / "plan.csv").unlink()
    rebuild_results(SweepStore(elsewhere))
    assert sorted(row["run_id"] for row in results_of(elsewhere)) == sorted(run.run_id for run in plan.runs)


def test_a_setting_becomes_a_column_by_its_name_alone(store: SweepStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sweep, results_table):
        monkeypatch.setattr(module, "RESULTS", (*RESULTS, "warmup_steps", "activation", "mlp_hidden"))
    found = list(csv.DictReader(results_text(store).splitlines()))
    assert {(row["warmup_steps"], row["activation"]) for row in found} == {("2", "gelu")}
    assert [row["mlp_hidden"] for row in found] == [str(4 * int(row["width"])) for row in found]
    assert {(row["tokens"], row["loss"], row["flops"]) for row in found} == {(str(30 * 2048), "", "")}


def test_finished_leaves_out_what_is_to_be_tried_again(store: SweepStore) -> None:
    names = store.run_ids()
    for name, state in zip(names, ("done", "diverged", "failed", "oom", "interrupted", "running"), strict=False):
        store.write_state(name, RunState(state))
    record.write(store.run_directory(names[0]) / "result.json", {"loss": 3.0})
    assert set(store.finished().values()) == {"done", "diverged", "failed", "oom"}
    assert set(store.finished(retry={"failed"}).values()) == {"done", "diverged"}
    assert set(store.finished(retry={"diverged"}).values()) == {"done", "failed", "oom"}
    assert SweepStore("/does/not/exist").finished() == {}
    (store.run_directory(names[0]) / "result.json").write_text("")  # lost with a disk: trained again
    assert store.state(names[0]).state == "pending" and set(store.finished().values()) == {"diverged", "failed", "oom"}


def test_a_finished_pack_keeps_its_record_and_a_failed_one_what_it_resumes_from(sweep: Sweep) -> None:
    """Also one whose replicas others took over. A kill between the last result and the end of the pack may leave the
    progress and a checkpoint, or half of one; the next call removes them."""
    sweep.order({"L1-d48-h2": {"most_replicas": 1}, "L2-d64-h2": {"raise_at": 17}})
    plan, store = make_plan(execution={"checkpoint_steps": 5, "max_retries": 0}), sweep.store
    assert sweep.run(plan)[0] == 1
    states = {name: store.pack_state(name).state for name in store.pack_ids()}
    assert {*states.values()} == {"done", "rebuilt", "failed"}

    def files() -> dict[str, set[str]]:
        return {name: {*paths.names_in(store.pack_directory(name))} for name in store.pack_ids()}

    kept, more = {"pack.json", "state.json"}, {"progress.json", "checkpoints"}  # its log is made by a worker process
    expected = {name: kept | more if state == "failed" else kept for name, state in states.items()}
    assert files() == expected
    for name in states:
        store.write_progress(name, PackProgress(step=30, steps=30))
    first = next(name for name, state in states.items() if state == "done")
    store.write(first, replace(store.pack_state(first), state="running"))
    for left in ("7", "8.orbax-checkpoint-tmp"):
        (store.pack_directory(first) / "checkpoints" / left).mkdir(parents=True)
    assert sweep.run(plan)[0] == 1
    assert files() == expected and store.pack_state(first).state == "done"
    sweep.finish(plan, retry={"failed"})
    assert {*map(frozenset, files().values())} == {frozenset(kept)}
