"""Packs that are left to train: edited specs, fixed membership, splits, shards."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from sentences import says, shows
from sweep_tools import WorkerHere, assert_complete, make_plan, order, run, work_in

from dwsweep.plan import Pack, Plan
from dwsweep.records.run import RunResult, RunState
from dwsweep.sweep import work_queue
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Job
from dwsweep.sweep.snapshot import snapshot

pytestmark = pytest.mark.usefixtures("standin_here")


def stop_in_the_middle(tmp_path: Path, plan: Plan) -> None:
    """Leaves the first pack with a checkpoint at step 17 and the others untouched."""
    order(tmp_path, stop_at=17)
    assert run(plan, tmp_path / "sweep")[0] == 3
    order(tmp_path)


def times(directory: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in directory.glob("runs/*/result.json")}


def test_a_seed_more_trains_only_that_seed(tmp_path: Path) -> None:
    run(make_plan(), tmp_path / "sweep")
    before = times(tmp_path / "sweep")
    plan = make_plan(grid__seeds=3)
    status, text = run(plan, tmp_path / "sweep")
    assert status == 0 and work_in(text) == (4, 4, 8)
    assert {name: time for name, time in times(tmp_path / "sweep").items() if name in before} == before
    assert_complete(plan, tmp_path / "sweep")
    store = SweepStore(tmp_path / "sweep")
    # the plan's pack has three replicas; written with the one that was missing, it stays so
    written = store.pack(plan.packs[0].pack_id)
    assert written and [replica.seed for replica in written.replicas] == [2]
    record = json.loads((tmp_path / "sweep" / "packs" / plan.packs[0].pack_id / "pack.json").read_text())
    assert shows(record["reason"], "sweep: replicas of a partial pack", numbers=True)


def test_a_changed_setting_trains_anew_and_orphans_are_kept(tmp_path: Path) -> None:
    run(make_plan(grid__depths=[1]), tmp_path / "sweep")
    before = times(tmp_path / "sweep")
    plan = make_plan(grid__depths=[1], train__steps=20)
    status, text = run(plan, tmp_path / "sweep")
    assert status == 0 and work_in(text)[:2] == (4, 2) and "4 runs in the directory are not in this" in text
    assert says(text, "sweep: runs of another spec")
    assert set(before) < set(times(tmp_path / "sweep"))
    assert_complete(plan, tmp_path / "sweep")
    assert snapshot(tmp_path / "sweep").orphans == 4
    with (tmp_path / "sweep" / "results.csv").open() as file:
        assert {row["steps"] for row in csv.DictReader(file)} == {"20"}
    # back to the old spec: all there
    status, text = run(make_plan(grid__depths=[1]), tmp_path / "sweep")
    assert status == 0 and work_in(text) == (0, 0, 4)


def test_execution_may_change_between_calls(tmp_path: Path) -> None:
    stop_in_the_middle(tmp_path, make_plan())
    plan = make_plan(execution={"checkpoint_steps": 3, "max_retries": 5, "log_steps": 1})
    assert [p.pack_id for p in plan.packs] == [p.pack_id for p in make_plan().packs]
    assert run(plan, tmp_path / "sweep")[0] == 0
    store = SweepStore(tmp_path / "sweep")
    packs = [store.pack(name) for name in store.pack_ids()]  # one of them had begun
    assert {pack.execution.checkpoint_steps for pack in packs if pack} == {3}
    assert_complete(plan, tmp_path / "sweep")


def test_a_pack_with_a_checkpoint_is_finished_before_its_runs_move_to_another(tmp_path: Path) -> None:
    old = make_plan(grid__depths=[2], grid__budgets=[1e5])
    stop_in_the_middle(tmp_path, old)
    plan = make_plan(grid__depths=[2], grid__budgets=[1e5], grid__seeds=3)
    assert old.packs[0].pack_id != plan.packs[0].pack_id
    assert run(plan, tmp_path / "sweep")[0] == 0
    store = SweepStore(tmp_path / "sweep")
    assert store.pack_state(old.packs[0].pack_id).started[-1].step == 17
    packs_of = {r.seed: store.state(r.run_id).pack_id for r in plan.runs}
    assert packs_of == {0: old.packs[0].pack_id, 1: old.packs[0].pack_id, 2: plan.packs[0].pack_id}
    assert_complete(plan, tmp_path / "sweep")


def test_a_pack_that_never_got_a_checkpoint_gives_its_runs_away(tmp_path: Path) -> None:
    order(tmp_path, raise_at=2)
    old = make_plan(grid__depths=[2], grid__budgets=[1e5])
    assert run(old, tmp_path / "sweep")[0] == 1
    order(tmp_path)
    plan = make_plan(grid__depths=[2], grid__budgets=[1e5], grid__seeds=3)
    assert run(plan, tmp_path / "sweep", retry={"failed"})[0] == 0
    store = SweepStore(tmp_path / "sweep")
    assert {store.state(r.run_id).pack_id for r in plan.runs} == {plan.packs[0].pack_id}
    assert_complete(plan, tmp_path / "sweep")


def test_a_split_pack_stays_split_over_an_interruption(tmp_path: Path) -> None:
    order(tmp_path, most_replicas=1, stop_at=12)
    plan = make_plan(grid__depths=[2], grid__budgets=[1e5])
    assert run(plan, tmp_path / "sweep")[0] == 3
    store, parent = SweepStore(tmp_path / "sweep"), plan.packs[0].pack_id
    assert store.pack_state(parent).state == "rebuilt"
    order(tmp_path)
    status, text = run(plan, tmp_path / "sweep")
    assert status == 0 and "2 runs in 2 packs" in text
    assert store.pack_state(f"{parent}-a").started[-1].step == 12
    assert store.pack_state(parent).attempts == 4  # not tried again as a whole
    assert_complete(plan, tmp_path / "sweep")


@pytest.mark.parametrize("lost", ["result.json", "runs/…", "runs/… after a seed was added"])
def test_a_lost_result_is_trained_again_by_the_pack_as_it_was(tmp_path: Path, lost: str) -> None:
    """Trained alone its last bits would differ; the results beside it stand."""
    changes = {"grid__depths": [2], "grid__budgets": [1e5]}
    plan = make_plan(**changes, execution={"checkpoint_steps": 5})
    run(plan, tmp_path / "sweep")
    store, name = SweepStore(tmp_path / "sweep"), plan.runs[0].run_id
    pack = store.pack(plan.packs[0].pack_id)
    if lost.endswith("added"):
        plan = make_plan(**changes, grid__seeds=3)
        run(plan, tmp_path / "sweep")
    before, packs = times(tmp_path / "sweep"), store.pack_ids()
    if lost == "result.json":
        store.path_of(RunResult, name).unlink()
    else:
        shutil.rmtree(store.run_directory(name))
    (unit,) = work_queue.make(plan, store).units
    assert unit.pack == pack and unit.runs == {name}
    status, text = run(plan, tmp_path / "sweep")
    assert status == 0 and work_in(text) == (1, 1, len(before) - 1)
    assert store.pack_ids() == packs and pack and store.pack_state(pack.pack_id).state == "done"
    after = times(tmp_path / "sweep")
    assert {name for name in before if after[name] != before[name]} == {name}
    for run_id in before:
        result = store.result(run_id)
        assert result and result.pack_size == (2 if run_id in pack.run_ids else 1)
    assert_complete(plan, tmp_path / "sweep")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_shards_divide_the_packs(tmp_path: Path, count: int) -> None:
    plan = make_plan(grid__budgets=[1e4, 3e4, 1e5, 3e5])
    store = SweepStore(tmp_path / "sweep")
    store.write_plan(plan)
    parts = [work_queue.make(plan, store, (k, count)) for k in range(count)]
    packs = [unit.pack.pack_id for part in parts for unit in part.units]
    assert sorted(packs) == sorted(pack.pack_id for pack in plan.packs)
    assert sorted(name for part in parts for name in part.run_ids) == sorted(r.run_id for r in plan.runs)
    # dealt out by cost, so that no shard has all the long ones
    longest = [unit.pack.pack_id for part in parts[: len(plan.packs)] for unit in part.units[:1]]
    assert set(longest) == {pack.pack_id for pack in work_queue.ordered(plan.packs)[:count]}
    # what one shard finished meanwhile does not move packs between the others
    for name in parts[0].run_ids:
        store.write_state(name, RunState("done"))
    for k in range(1, count):
        again = work_queue.make(plan, store, (k, count))
        assert [unit.pack.pack_id for unit in again.units] == [unit.pack.pack_id for unit in parts[k].units]


def test_a_worker_trains_the_pack_that_its_file_holds(tmp_path: Path) -> None:
    plan = make_plan(grid__depths=[1], grid__budgets=[3e4])
    store, (pack,) = SweepStore(tmp_path / "sweep"), plan.packs
    store.write_plan(plan)
    store.write_pack(replace(pack, replicas=pack.replicas[:1]))
    job = Job(pack.pack_id, str(tmp_path / "sweep"), "/nowhere")
    assert WorkerHere().train(job, lambda event: None).kind == "done"
    assert [store.state(name).state for name in pack.run_ids] == ["done", "pending"]
    store.path_of(Pack, pack.pack_id).write_text("{}")
    ended = WorkerHere().train(job, lambda event: None)
    assert ended.kind == "error" and f"packs/{pack.pack_id}/pack.json" in ended.cause
