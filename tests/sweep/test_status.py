"""The status of a sweep, from its directory alone, while others write it."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_tools import Command
from rich.console import Console
from sentences import says
from shown import printed
from spec_tools import only
from sweep_tools import make_plan, order, run, start, train_here, wait_for

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.plan import Plan
from dwsweep.records import record
from dwsweep.records.pack import PackState
from dwsweep.records.run import DONE, RunResult, RunState
from dwsweep.report import status_report as status
from dwsweep.sweep import claim
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.forecast import time_left
from dwsweep.sweep.snapshot import Measured, Snapshot, Stage, measured, snapshot

pytestmark = pytest.mark.usefixtures("standin")


def text_of(directory: Path, width: int = 100) -> str:
    return printed(status.render(directory), width)


def large(tmp_path: Path) -> tuple[Plan, SweepStore]:
    plan = make_plan(grid=only({d: list(range(8, 168, 8)) for d in (1, 2, 4, 6)}, seeds=5))
    store = SweepStore(tmp_path / "sweep")
    store.write_plan(plan)
    return plan, store


def test_json_has_every_run_with_its_state(dwsweep: Command, tmp_path: Path) -> None:
    plan, _ = large(tmp_path)
    found = json.loads(dwsweep("status", tmp_path / "sweep", "--json").stdout)
    assert [row["run_id"] for row in found["runs"]] == [run.run_id for run in plan.runs]
    assert {row["run_state"] for row in found["runs"]} == {"pending"} and found["live"] is False
    refused = dwsweep("status", tmp_path / "sweep", "--json", "--follow")
    assert refused.returncode == 2 and "--json" in refused.stderr


def test_no_sweep_directory_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"DIR: .*must be a directory made by `dwsweep run`"):
        status.render(tmp_path / "nothing")


def test_arms_have_rows_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses of two recipes are not averaged into one; a name may hold what rich reads as markup."""
    train_here(monkeypatch)
    arms = [{}, {"name": "[/red] x", "model.norm": "post"}]
    run(make_plan(grid=only({1: [32]}, arms=arms)), tmp_path / "sweep")
    lines = text_of(tmp_path / "sweep").splitlines()
    losses = [line.split()[-1] for line in lines if "32" in line]
    assert [line.split("  ")[0].strip() for line in lines[1:]] == ["arm", "base", "[/red] x"]
    results = [
        SweepStore(tmp_path / "sweep").state(row.run_id).loss
        for row in (one.plan for one in snapshot(tmp_path / "sweep").runs)
    ]
    means = [sum(part) / 2 for part in (results[:2], results[2:])]  # type: ignore[arg-type]
    assert losses == [f"{mean:.4f}" for mean in means]


def test_failures_show_their_cause_and_the_end_of_the_log(tmp_path: Path) -> None:
    order(tmp_path, {"L2-d64-h2": {"raise_at": 3}})
    run(make_plan(grid__depths=[2], grid__budgets=[1e5], execution={"max_retries": 0}), tmp_path / "sweep")
    text = text_of(tmp_path / "sweep", 160)
    assert "2 failed" in text
    assert says(text, "sweep: causes of failures")
    assert "│ RuntimeError: the device fell off the bus" in text
    assert "└ packs/L2-d64-h2-" in text


ESCAPES = ("\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "\x0eat\x0f", "\u202eevil", "a\rb", "a\x08b", "[bold]x[/bold]")


@pytest.mark.parametrize("place", ["cause", "log_tail"])
def test_a_failure_in_hostile_words_steers_no_terminal(dwsweep: Command, tmp_path: Path, place: str) -> None:
    plan, store = make_plan(), SweepStore(tmp_path / "sweep")
    store.write_plan(plan)
    for words in ESCAPES:
        store.write_state(plan.runs[0].run_id, RunState("failed", **{place: words}))
        text = dwsweep("status", tmp_path / "sweep").stdout
        assert "1 failed" in text and all(character.isprintable() or character == "\n" for character in text)


def test_a_running_sweep_is_read_while_it_is_written_and_followed_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "FOLLOW_SECONDS", 0.2)
    order(tmp_path, step_seconds=0.1)
    process = start(tmp_path / "sweep")
    store = SweepStore(tmp_path / "sweep")
    wait_for(lambda: any(store.progress(name).step > 1 for name in store.pack_ids()))
    order(tmp_path)  # the packs after it take no time
    seen = [snapshot(tmp_path / "sweep") for _ in range(10)]
    text = text_of(tmp_path / "sweep")
    assert [(now.is_live, now.count("running")) for now in seen] == [(True, 2)] * 10
    assert "running pack" in text and "stand-in" in text and "1,000" in text and "left" in text
    assert f"process {process.pid}" in text
    left = time_left(seen[-1])
    assert left is not None and left > 0
    console = Console(file=io.StringIO(), width=100)
    status.follow(tmp_path / "sweep", console)
    assert process.wait(timeout=10) == 0
    assert "8 runs · 8 done" in console.file.getvalue()  # type: ignore[attr-defined]


def test_runs_of_a_killed_parent_are_interrupted(tmp_path: Path) -> None:
    plan, store = large(tmp_path)
    store.write_state(plan.runs[0].run_id, RunState("running", 3, None, plan.runs[0].pack_id))
    now = snapshot(tmp_path / "sweep")
    assert not now.is_live and now.runs[0].state.state == "interrupted"
    with claim.hold(tmp_path / "sweep"):
        assert snapshot(tmp_path / "sweep").runs[0].state.state == "running"


def test_mfu_is_a_dash_where_the_peak_is_not_known(tmp_path: Path) -> None:
    plan, store = large(tmp_path)
    pack_id = plan.runs[0].pack_id
    store.write_state(plan.runs[0].run_id, RunState("running", 3, None, pack_id))
    for device, expected in (("stand-in", "–"), ("NVIDIA H100 80GB HBM3", "%")):
        progress = {"step": 1, "steps": 30, "tokens_per_second": 1e9, "started": {"device_kind": device, "devices": 1}}
        record.write(paths.make_directory(store.pack_directory(pack_id)) / "progress.json", progress)
        with claim.hold(tmp_path / "sweep"):
            row = next(line for line in text_of(tmp_path / "sweep", 140).splitlines() if line.startswith(pack_id))
        assert row.split(device)[0].split()[-1].endswith(expected)


@contextlib.contextmanager
def at_work(sweep: Path, pack_id: str, **ago: float) -> Iterator[Snapshot]:
    """The sweep 1000 s after its owner took it, while a worker has a pack that made no step yet; ``ago``: the seconds
    since each time in its state."""
    with claim.hold(sweep), pytest.MonkeyPatch.context() as patch:
        now = time.time() + 1000.0
        times = {name: now - seconds for name, seconds in ago.items()}
        SweepStore(sweep).write(pack_id, PackState("running", 1, **times))
        patch.setattr("dwsweep.sweep.snapshot.time", SimpleNamespace(time=lambda: now))
        yield snapshot(sweep)


def test_a_pack_that_compiles_is_shown_to_compile_and_for_how_long(tmp_path: Path) -> None:
    plan, _ = large(tmp_path)
    pack_id = plan.packs[0].pack_id
    with at_work(tmp_path / "sweep", pack_id, begun=130, compiling=42) as now:
        shown = printed(status.show(now), 200)
        assert f"{len(plan.packs[0].run_ids)} compiling" in shown and f"{pack_id}: compiling for 42 s" in shown
        assert "between packs" not in shown
        assert status.to_json(tmp_path / "sweep")["stages"][pack_id]["stage"] == "compiling"
    with at_work(tmp_path / "sweep", pack_id, begun=7) as now:  # the compilation of an earlier attempt is over
        assert f"{pack_id}: starting for 7" in printed(status.show(now), 200)
    with at_work(tmp_path / "sweep", pack_id, begun=2000, compiling=1999) as now:  # of an owner that was killed
        assert not now.stages and "between packs" in printed(status.show(now), 200)
    assert not snapshot(tmp_path / "sweep").stages


def test_time_left_follows_from_the_packs_that_are_done(tmp_path: Path) -> None:
    """Between packs and while one compiles too; a pack waits as long as the nearest one took per FLOP."""
    plan, _ = large(tmp_path)
    now = snapshot(tmp_path / "sweep")
    me: Any = "me"
    pack = plan.packs[0].pack_id
    done = [run for run in now.runs if run.pack_id == pack]
    rest = [run for run in now.runs if run.pack_id != pack]
    finished = [replace(run, state=RunState(DONE, run.plan.steps, 3.0)) for run in done]
    result = RunResult(3.0, wall_seconds=20.0, compile_seconds=5.0)
    found = measured((run, result) for run in finished)
    flops = sum(run.plan.flops for run in done)
    assert found == {pack: Measured(flops, max(run.plan.flops for run in done), 20.0, 5.0)}
    live = replace(now, runs=(*finished, *rest), owners=(me,), measured=found)
    packs = {run.pack_id for run in rest}
    left = sum(run.plan.flops for run in rest) * 20.0 / flops + 5.0 * len(packs)
    assert time_left(live) == pytest.approx(left)
    busy = next(iter(packs))
    assert time_left(replace(live, stages={busy: Stage("compiling", 3.0)})) == pytest.approx(left - 3.0)
    assert time_left(replace(live, measured={})) is None and time_left(replace(live, owners=())) is None
