"""Packs that are left to train: edited specs, fixed membership, splits, shards."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
from sentences import says, shows
from sweep_tools import ONE_PACK, Sweep, WorkerHere, make_plan, work_in

from dwsweep.plan import Pack
from dwsweep.records.run import RunResult, RunState
from dwsweep.sweep import work_queue
from dwsweep.sweep.events import Job
from dwsweep.sweep.snapshot import snapshot

pytestmark = pytest.mark.usefixtures("standin_here")


def times(sweep: Sweep) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in sweep.directory.glob("runs/*/result.json")}


def test_a_seed_more_trains_only_that_seed(sweep: Sweep) -> None:
    sweep.finish(make_plan())
    before, plan = times(sweep), make_plan(grid__seeds=3)
    assert work_in(sweep.finish(plan)) == (4, 4, 8)
    assert {name: time for name, time in times(sweep).items() if name in before} == before
    # the plan's pack has three replicas; written with the one that was missing, it stays so
    written = sweep.store.pack(plan.packs[0].pack_id)
    assert written and [replica.seed for replica in written.replicas] == [2]
    record = json.loads((sweep.store.pack_directory(plan.packs[0].pack_id) / "pack.json").read_text())
    assert shows(record["reason"], "sweep: replicas of a partial pack", numbers=True)


def test_a_changed_setting_trains_anew_and_orphans_are_kept(sweep: Sweep) -> None:
    sweep.finish(make_plan(grid__depths=[1]))
    before = times(sweep)
    text = sweep.finish(make_plan(grid__depths=[1], train__steps=20))
    assert work_in(text)[:2] == (4, 2) and "4 runs in the directory are not in this" in text
    assert says(text, "sweep: runs of another spec")
    assert set(before) < set(times(sweep)) and snapshot(sweep.directory).orphans == 4
    assert {row["steps"] for row in sweep.rows()} == {"20"}
    # back to the old spec: all there
    assert work_in(sweep.finish(make_plan(grid__depths=[1]))) == (0, 0, 4)


def test_execution_may_change_between_calls(sweep: Sweep) -> None:
    sweep.order(stop_at=17)
    assert sweep.run(make_plan())[0] == 3
    plan = make_plan(execution={"checkpoint_steps": 3, "max_retries": 5, "log_steps": 1})
    assert [p.pack_id for p in plan.packs] == [p.pack_id for p in make_plan().packs]
    sweep.finish(plan)
    packs = map(sweep.store.pack, sweep.store.pack_ids())  # one of them had begun
    assert {pack.execution.checkpoint_steps for pack in packs if pack} == {3}


@pytest.mark.parametrize(("orders", "status", "keeps"), [({"stop_at": 17}, 3, True), ({"raise_at": 2}, 1, False)])
def test_a_pack_with_a_checkpoint_is_finished_before_its_runs_move_to_another_and_one_without_gives_them_away(
    sweep: Sweep, orders: dict[str, int], status: int, keeps: bool
) -> None:
    sweep.order(**orders)
    old, plan, store = make_plan(**ONE_PACK), make_plan(**ONE_PACK, grid__seeds=3), sweep.store
    before, after = old.packs[0].pack_id, plan.packs[0].pack_id
    assert before != after and sweep.run(old)[0] == status
    sweep.finish(plan, retry={"failed"})
    assert [store.state(r.run_id).pack_id for r in plan.runs] == [*[before if keeps else after] * 2, after]
    assert not keeps or store.pack_state(before).started[-1].step == 17


def test_a_split_pack_stays_split_over_an_interruption(sweep: Sweep) -> None:
    sweep.order(most_replicas=1, stop_at=12)
    plan, store = make_plan(**ONE_PACK), sweep.store
    assert sweep.run(plan)[0] == 3
    parent = plan.packs[0].pack_id
    assert store.pack_state(parent).state == "rebuilt"
    assert "2 runs in 2 packs" in sweep.finish(plan)
    assert store.pack_state(f"{parent}-a").started[-1].step == 12
    assert store.pack_state(parent).attempts == 4  # not tried again as a whole


@pytest.mark.parametrize("lost", ["result.json", "runs/…", "runs/… after a seed was added"])
def test_a_lost_result_is_trained_again_by_the_pack_as_it_was(sweep: Sweep, lost: str) -> None:
    """Trained alone its last bits would differ; the results beside it stand."""
    plan, store = make_plan(**ONE_PACK, execution={"checkpoint_steps": 5}), sweep.store
    sweep.finish(plan)
    name, pack = plan.runs[0].run_id, store.pack(plan.packs[0].pack_id)
    if lost.endswith("added"):
        plan = make_plan(**ONE_PACK, grid__seeds=3)
        sweep.finish(plan)
    before, packs = times(sweep), store.pack_ids()
    if lost == "result.json":
        store.path_of(RunResult, name).unlink()
    else:
        shutil.rmtree(store.run_directory(name))
    (unit,) = work_queue.make(plan, store).units
    assert unit.pack == pack and unit.runs == {name}
    assert work_in(sweep.finish(plan)) == (1, 1, len(before) - 1)
    assert store.pack_ids() == packs and pack and store.pack_state(pack.pack_id).state == "done"
    after = times(sweep)
    assert {name for name in before if after[name] != before[name]} == {name}
    for run_id in before:
        result = store.result(run_id)
        assert result and result.pack_size == (2 if run_id in pack.run_ids else 1)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_shards_divide_the_packs(sweep: Sweep, count: int) -> None:
    plan, store = make_plan(grid__budgets=[1e4, 3e4, 1e5, 3e5]), sweep.store
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


def test_a_worker_trains_the_pack_that_its_file_holds(sweep: Sweep) -> None:
    plan, store = make_plan(**ONE_PACK), sweep.store
    (pack,) = plan.packs
    store.write_plan(plan)
    store.write_pack(replace(pack, replicas=pack.replicas[:1]))
    job = Job(pack.pack_id, str(sweep.directory), "/nowhere")
    assert WorkerHere().train(job, lambda event: None).kind == "done"
    assert [store.state(name).state for name in pack.run_ids] == ["done", "pending"]
    store.path_of(Pack, pack.pack_id).write_text("{}")
    ended = WorkerHere().train(job, lambda event: None)
    assert ended.kind == "error" and f"packs/{pack.pack_id}/pack.json" in ended.cause
