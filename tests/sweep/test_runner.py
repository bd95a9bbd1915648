"""A sweep from its parent's side: finished, repeated, failed by cause, stopped; real processes, a stand-in trainer."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from sentences import says
from sweep_tools import (
    ONE_PACK,
    Sweep,
    WorkerHere,
    assert_complete,
    make_plan,
    order,
    start,
    wait_for,
    work_in,
    workers_of,
)

from dwsweep import terminal
from dwsweep.errors import InputError
from dwsweep.plan import build
from dwsweep.report.progress import ProgressView
from dwsweep.sweep import runner
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.runner import run_sweep
from dwsweep.sweep.work_queue import parse_shard

pytestmark = pytest.mark.usefixtures("standin")
here = pytest.mark.usefixtures("standin_here")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sweep_is_trained_once_by_its_workers_the_long_packs_first(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    plan = make_plan(execution={"workers": workers})
    sweep.order(step_seconds=0.02 * (workers - 1))
    status, text = sweep.run(plan)
    assert status == 0 and work_in(text)[:2] == (8, 4) and "8 done" in text
    sweep.complete(plan)
    names = {path.name for path in sweep.directory.iterdir()}
    assert names == {"spec.yaml", "plan.csv", "results.csv", "manifest.json", "packs", "runs", "locks"}
    logs = {path: path.read_text() for path in sweep.directory.glob("packs/*/log.txt")}
    assert len({log.split("process ")[1] for log in logs.values()}) == workers
    starts = sorted(sweep.store.pack_ids(), key=lambda name: sweep.store.pack_state(name).begun or 0.0)
    longest = ["L1-d92-h2", "L2-d64-h2", "L1-d48-h2", "L2-d36-h2"]
    assert workers > 1 or [name.rsplit("-", 1)[0] for name in starts] == longest

    monkeypatch.setattr(runner, "local_workers", lambda *_: pytest.fail("a worker for nothing"))
    assert work_in(sweep.finish(plan)) == (0, 0, 8)
    assert {path: path.read_text() for path in logs} == logs


def test_a_worker_that_fails_is_replaced_and_its_pack_goes_on(sweep: Sweep) -> None:
    """After a crash from its checkpoint; an abort for want of memory, known by the log, with half the microbatch."""
    failures = {
        "L1-d92-h2": {"raise_at": 13, "once": True},
        "L2-d64-h2": {"exit_at": 7, "once": True},
        "L1-d48-h2": {"largest_microbatch": 8},
    }
    sweep.order(failures)
    plan, store = make_plan(), sweep.store
    status, text = sweep.run(plan)
    assert status == 0 and says(text, "sweep: retry after a crash") and says(text, "sweep: out of memory")
    sweep.complete(plan)
    packs = {pack.shape.label: pack.pack_id for pack in plan.packs}
    crashed, aborted, refused, last = (store.pack_state(packs[label]) for label in [*failures, "L2-d36-h2"])
    assert [event.kind for state in (crashed, aborted, refused) for event in state.events] == ["crash", "oom", "oom"]
    assert "fell off the bus" in crashed.events[0].cause and not last.events
    assert crashed.started[-1].step == 10  # the steps before were not taken again
    logs = [store.log_path(packs[label]).read_text() for label in [*failures, "L2-d36-h2"]]
    pids = [pid for log in logs for pid in re.findall(r"process (\d+)", log)]
    # each failure has another worker, which trains the next pack until it fails itself
    assert len(pids) == 7 and len({*pids}) == 4 and pids[1::2] == pids[2::2]


@here
def test_a_run_that_always_raises_fails_with_its_cause_and_the_others_finish(sweep: Sweep) -> None:
    sweep.order({"L2-d64-h2": {"raise_at": 13}})
    plan, store = make_plan(grid__depths=[2], execution={"checkpoint_steps": 5}), sweep.store
    status, text = sweep.run(plan)
    assert status == 1 and says(text, "sweep: given up") and "--retry failed" in text
    states = {r.run_id: store.state(r.run_id) for r in plan.runs}
    failed = [state for run_id, state in states.items() if run_id.startswith("L2-d64")]
    assert [state.state for state in failed] == ["failed", "failed"]
    assert failed[0].cause == "RuntimeError: the device fell off the bus"
    assert sum(state.state == "done" for state in states.values()) == 2
    assert store.pack_state(next(p for p in store.pack_ids() if p.startswith("L2-d64"))).attempts == 3

    # a second call leaves it alone and still says so by its status
    status, text = sweep.run(plan)
    assert status == 1 and "nothing to train" in text and "fell off the bus" in text
    sweep.finish(plan, retry={"failed"})
    assert [row["status"] for row in sweep.rows()] == ["done"] * 4


@here
@pytest.mark.parametrize(
    ("orders", "state", "attempts", "cause"),
    [
        ({"wrong_input": True}, "failed", 1, "allowed: what the stand-in likes"),
        ({"most_replicas": 0}, "oom", 5, "RESOURCE_EXHAUSTED"),
    ],
)
def test_wrong_input_is_not_tried_again_and_one_replica_that_never_fits_ends_as_oom(
    sweep: Sweep, orders: dict[str, Any], state: str, attempts: int, cause: str
) -> None:
    sweep.order(**orders)
    plan = make_plan(**ONE_PACK, grid__seeds=1)
    status, text = sweep.run(plan)
    ended = sweep.store.state(plan.runs[0].run_id)
    assert (status, ended.state) == (1, state) and cause in (ended.cause or "") and cause in text
    assert sweep.store.pack_state(plan.packs[0].pack_id).attempts == attempts
    assert [(row["status"], row["loss"]) for row in sweep.rows()] == [(state, "")]


@here
def test_out_of_memory_halves_the_microbatch_then_splits_the_pack(sweep: Sweep) -> None:
    sweep.order(most_replicas=1)
    plan, store = make_plan(**ONE_PACK, grid__seeds=3), sweep.store
    status, text = sweep.run(plan)
    assert status == 0, text
    parent = plan.packs[0].pack_id
    state = store.pack_state(parent)
    *halvings, last = [event.action for event in state.events]
    assert last.startswith("split into") and halvings == [
        "microbatch 16 → 8 of 16 sequences",
        "microbatch 8 → 4 of 16 sequences",
        "microbatch 4 → 2 of 16 sequences",
    ]
    assert state.state == "rebuilt" and state.rebuilt_into == (f"{parent}-a", f"{parent}-b")
    child = json.loads((store.pack_directory(f"{parent}-b") / "pack.json").read_text())
    assert child["rebuilt_from"] == parent and "RESOURCE_EXHAUSTED" in child["reason"]
    assert len(child["replicas"]) == 1
    sweep.complete(plan)
    assert {getattr(store.result(r.run_id), "pack_size", None) for r in plan.runs} == {1}


@here
def test_a_resume_elsewhere_names_what_differs(sweep: Sweep) -> None:
    plan, said = make_plan(**ONE_PACK), []
    for orders in ({"stop_at": 7}, {"stop_at": 9}, {"stop_at": 11, "cores": 1}, {"cores": 1}):
        sweep.order(**orders)
        said.append(sweep.run(plan)[1])
    assert ["other hardware or software" in text for text in said] == [False, False, True, False]
    assert says(said[2], "sweep: other hardware or software")
    started = sweep.store.pack_state(plan.packs[0].pack_id).started
    found = [(facts.step, facts.footing.cores) for facts in started if facts.footing]
    assert found == [(0, 2), (7, 2), (9, 1), (11, 1)]


@here
def test_a_fault_of_the_parent_ends_its_attempt_as_one_of_a_worker(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, faults = WorkerHere.train, iter([MemoryError("of the parent")])

    def fails_once(worker: WorkerHere, *given: object) -> object:
        if fault := next(faults, None):
            raise fault
        return train(worker, *given)

    killed: list[WorkerHere] = []
    monkeypatch.setattr(WorkerHere, "train", fails_once)
    monkeypatch.setattr(WorkerHere, "kill", lambda worker: killed.append(worker))
    plan = make_plan(**ONE_PACK)
    sweep.finish(plan)
    assert sweep.store.pack_state(plan.packs[0].pack_id).events[0].kind == "oom"
    assert len(killed) == 1  # a worker in an unknown state trains nothing more


@here
def test_divergence_is_a_result_and_is_tried_again_only_on_request(sweep: Sweep) -> None:
    sweep.order(diverge_at=12, diverge_seed=1)
    plan, store = make_plan(**ONE_PACK, grid__seeds=3), sweep.store
    status, text = sweep.run(plan)
    losses = [result.loss for r in plan.runs if (result := store.result(r.run_id))]
    assert status == 0 and f"2 runs done, held-out loss {sum(losses) / 2:.4f}, 1 diverged" in text
    assert "1/1 packs, 100%" in text
    lost = next(r for r in plan.runs if r.seed == 1)
    assert store.state(lost.run_id).state == "diverged" and store.state(lost.run_id).step == 12
    kept = {r.run_id: store.run_directory(r.run_id) / "result.json" for r in plan.runs if r.seed != 1}
    before = {name: path.stat().st_mtime_ns for name, path in kept.items()}
    assert sweep.run(plan)[1].startswith("nothing to train")

    assert work_in(sweep.finish(plan, retry={"diverged"})) == (1, 1, 2)
    assert store.state(lost.run_id).pack_id == f"{plan.packs[0].pack_id}-r1"
    assert {name: path.stat().st_mtime_ns for name, path in kept.items()} == before


@here
def test_a_signal_stops_at_a_checkpoint_and_the_next_call_goes_on(sweep: Sweep) -> None:
    sweep.order(step_seconds=0.3)
    process, store = sweep.start(), sweep.store
    wait_for(lambda: any(store.progress(name).step > 2 for name in store.pack_ids()))
    os.kill(process.pid, signal.SIGHUP)  # a closed terminal is no reason to stop
    # a terminal's Ctrl-C goes to the whole foreground group; the workers stand outside of it and are told by the parent
    os.killpg(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 3 and "KeyboardInterrupt" not in text, text
    assert says(text, "sweep: resume by the same command")
    assert not workers_of(process.pid)
    interrupted = [name for name in store.pack_ids() if store.pack_state(name).state == "interrupted"]
    assert len(interrupted) == 1
    assert "interrupted" in {store.state(name).state for name in store.run_ids()}
    sweep.finish(make_plan())
    assert store.pack_state(interrupted[0]).started[-1].step > 2


def test_a_second_signal_stops_at_once(sweep: Sweep) -> None:
    sweep.order(hang_at=3, hang_seconds=60.0)
    process = sweep.start()
    wait_for(lambda: list(sweep.directory.glob("packs/*/hangs")))
    os.kill(process.pid, signal.SIGINT)
    assert process.stdout and runner.KILL_NOTICE in [process.stdout.readline().strip() for _ in range(2)]
    os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 3


@here
@pytest.mark.parametrize("descriptor", ["a closed pipe", "a full disk"])
def test_a_console_that_is_gone_does_not_end_the_sweep(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, descriptor: str
) -> None:
    reader, pipe = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    with open(pipe if descriptor == "a closed pipe" else full, "w", closefd=False) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        view = ProgressView(terminal.console())
        assert run_sweep(make_plan(), "/nowhere", sweep.directory, view=view) == 0
    sweep.complete(make_plan())
    os.close(pipe)
    os.close(full)


def test_shards_are_parsed() -> None:
    assert parse_shard(None) == (0, 1)
    assert parse_shard("3/8") == (3, 8)
    slurm = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_COUNT": "4"}
    assert parse_shard("slurm", {**slurm, "SLURM_ARRAY_TASK_STEP": "2"}) == (3, 4)
    for wrong in ("8/8", "1", "-1/4", "a/b", "1/0", "slurm", "0/²", "٠/٤", f"0/{'9' * 76}"):
        with pytest.raises(InputError, match="allowed: I/N"):
            parse_shard(wrong, {})
    # the packs of a task beyond the count would be nobody's: --array=1,4,9 has no such numbering
    for uneven in ({"SLURM_ARRAY_TASK_STEP": "0"}, {"SLURM_ARRAY_TASK_STEP": "4"}, {"SLURM_ARRAY_TASK_COUNT": "3"}):
        with pytest.raises(InputError, match="is not one of a regular array"):
            parse_shard("slurm", {**slurm, **uneven})


def test_a_plan_without_data_and_a_file_in_place_of_the_directory_are_refused(sweep: Sweep) -> None:
    with pytest.raises(InputError, match="not prepared"):
        sweep.run(build(make_plan().spec))
    assert not sweep.directory.exists()
    sweep.directory.touch()
    with pytest.raises(InputError, match=r"--out: .*must be a directory"):
        sweep.run(make_plan())


@here
def test_fewer_workers_than_were_asked_for_are_said(sweep: Sweep) -> None:
    assert says(sweep.finish(make_plan(execution={"workers": 2})), "sweep: fewer workers")


def test_two_shards_at_once_and_no_parent_imports_jax(sweep: Sweep) -> None:
    """``sweep_tools`` ends a parent that does with another status."""
    sweep.order(step_seconds=0.01)
    shards = [sweep.start(shard=[k, 2]) for k in (0, 1)]
    texts = [process.communicate(timeout=120)[0] for process in shards]
    assert [process.returncode for process in shards] == [0, 0], texts
    assert all(work_in(text)[:2] == (4, 2) for text in texts)
    assert [row["status"] for row in sweep.rows()] == ["done"] * 8
    # the whole sweep has nothing left to do
    assert work_in(sweep.finish(make_plan())) == (0, 0, 8)


@pytest.mark.parametrize("place", ["lock", pytest.param("lease", marks=pytest.mark.slow)], indirect=True)
def test_a_takeover_brings_the_packs_to_a_checkpoint(place: str, tmp_path: Path) -> None:
    order(tmp_path, step_seconds=0.4)  # a pack takes longer than a heartbeat, and a busy machine to start a process
    first, store = start(place), SweepStore(place)
    wait_for(lambda: any(store.progress(name).step for name in store.pack_ids()))
    second = start(place, takeover=True)
    text, _ = first.communicate(timeout=60)
    assert first.returncode == 3 and says(text, "sweep: sweep taken over"), text
    order(tmp_path)
    text, _ = second.communicate(timeout=120)
    assert second.returncode == 0 and says(text, "sweep: waits for the owner"), text
    assert_complete(make_plan(), place)
