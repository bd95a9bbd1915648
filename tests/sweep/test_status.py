"""The status of a sweep, from its directory alone, while others write it."""

from __future__ import annotations

import io
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Command
from rich.console import Console
from sentences import says
from shown import printed
from spec_tools import only
from sweep_tools import ONE_PACK, Sweep, make_plan, wait_for

from dwsweep import fit_table
from dwsweep.errors import InputError
from dwsweep.plan import Plan
from dwsweep.records.pack import PackProgress, PackState
from dwsweep.records.run import DONE, RunState
from dwsweep.report import status_report as status
from dwsweep.report.progress import ProgressView
from dwsweep.sweep import claim
from dwsweep.sweep.snapshot import snapshot

pytestmark = pytest.mark.usefixtures("standin")


def text_of(directory: Path, width: int = 100) -> str:
    return printed(status.render(snapshot(directory)), width)


@pytest.fixture
def large(sweep: Sweep) -> Plan:
    """The plan of the sweep, of which nothing is trained: 400 runs."""
    plan = make_plan(grid=only({d: list(range(8, 168, 8)) for d in (1, 2, 4, 6)}, seeds=5))
    sweep.store.write_plan(plan)
    return plan


def test_json_has_every_run_with_its_state(dwsweep: Command, sweep: Sweep, large: Plan) -> None:
    found = json.loads(dwsweep("status", sweep.directory, "--json").stdout)
    assert [row["run_id"] for row in found["runs"]] == [run.run_id for run in large.runs]
    assert {row["run_state"] for row in found["runs"]} == {"pending"} and found["live"] is False
    refused = dwsweep("status", sweep.directory, "--json", "--follow")
    assert refused.returncode == 2 and "--json" in refused.stderr


@pytest.mark.usefixtures("standin_here")
def test_arms_have_rows_of_their_own(sweep: Sweep) -> None:
    """Losses of two recipes are not averaged into one, nor by a fit; a name may hold what rich reads as markup."""
    arms = [{}, {"name": "[/red] x", "model.norm": "post"}]
    sweep.finish(make_plan(grid=only({1: [32]}, arms=arms)))
    lines = text_of(sweep.directory).splitlines()
    losses = [line.split()[-1] for line in lines if "32" in line]
    assert [line.split("  ")[0].strip() for line in lines[1:]] == ["arm", "base", "[/red] x"]
    results = [float(row["loss"]) for row in sweep.rows()]
    means = [sum(part) / 2 for part in (results[:2], results[2:])]
    assert losses == [f"{mean:.4f}" for mean in means]
    with pytest.raises(InputError, match=r"holds 2 \(.*\), which would be averaged; compare them with"):
        fit_table(sweep.directory)


def test_failures_show_their_cause_and_the_end_of_the_log(sweep: Sweep) -> None:
    sweep.order(raise_at=3)
    sweep.run(make_plan(**ONE_PACK, execution={"max_retries": 0}))
    text = text_of(sweep.directory, 160)
    assert "2 failed" in text
    assert says(text, "sweep: causes of failures")
    assert "│ RuntimeError: the device fell off the bus" in text
    assert "└ packs/L2-d64-h2-" in text


ESCAPES = ("\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "\x0eat\x0f", "\u202eevil", "a\rb", "a\x08b", "[bold]x[/bold]")


@pytest.mark.parametrize("place", ["cause", "log_tail"])
def test_a_failure_in_hostile_words_steers_no_terminal(dwsweep: Command, sweep: Sweep, place: str) -> None:
    plan = make_plan()
    sweep.store.write_plan(plan)
    for words in ESCAPES:
        sweep.store.write_state(plan.runs[0].run_id, RunState("failed", **{place: words}))
        text = dwsweep("status", sweep.directory).stdout
        assert "1 failed" in text and all(character.isprintable() or character == "\n" for character in text)


def test_a_running_sweep_is_read_while_it_is_written_and_followed_to_its_end(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "FOLLOW_SECONDS", 0.2)
    sweep.order(step_seconds=0.1)
    process, store = sweep.start(), sweep.store
    wait_for(lambda: any(store.progress(name).step > 1 for name in store.pack_ids()))
    sweep.order()  # the packs after it take no time
    seen = [snapshot(sweep.directory) for _ in range(10)]
    text = text_of(sweep.directory)
    assert [(now.is_live, now.count("running")) for now in seen] == [(True, 2)] * 10
    assert "running pack" in text and "stand-in" in text and "1,000" in text and "left" in text
    assert f"process {process.pid}" in text and re.search(r" · [1-9]\d*% · about ", text)
    console = Console(file=io.StringIO(), width=100)
    status.follow(sweep.directory, console)
    assert process.wait(timeout=10) == 0
    assert "8 runs · 8 done" in console.file.getvalue()  # type: ignore[attr-defined]


def test_runs_of_a_killed_parent_are_interrupted(sweep: Sweep, large: Plan) -> None:
    run = large.runs[0]
    sweep.store.write_state(run.run_id, RunState("running", 3, None, run.pack_id))
    now = snapshot(sweep.directory)
    assert not now.is_live and now.runs[0].state.state == "interrupted"
    with claim.hold(sweep.directory):
        assert snapshot(sweep.directory).runs[0].state.state == "running"


def test_a_pack_before_its_first_step_runs(sweep: Sweep, large: Plan) -> None:
    """Of an owner that lives: its workers import and compile, and a run has no state of its own yet."""
    pack_id, where = large.packs[0].pack_id, sweep.directory
    sweep.store.write(pack_id, PackState("running", 1, begun=time.time() + 1))
    assert snapshot(where).count("running") == 0
    with claim.hold(where):
        assert snapshot(where).count("running") == len(large.packs[0].run_ids)
        assert "starts" in next(line for line in text_of(where).splitlines() if line.startswith(pack_id))
        sweep.store.write(pack_id, PackState("running", 1, begun=time.time() - 1000))  # of an owner that was killed
        assert snapshot(where).count("running") == 0
        assert "between packs" in text_of(where)


def test_time_left_is_the_work_that_is_left_at_the_present_rate(sweep: Sweep, large: Plan) -> None:
    view = ProgressView(Console(file=io.StringIO()))
    view.expect(large.packs, "large", {})
    me, now = "me", snapshot(sweep.directory)
    first, last = large.packs[0], large.packs[-1]
    for pack in (first, last):
        view.started(pack)
    view.ended(first.pack_id, "done", True)
    assert view.time_left() is None is status.time_left(now)
    progress = PackProgress(10, 30, tokens_per_second=1000.0)
    view.stepped(last.pack_id, progress)
    runs = []
    for one in now.runs:
        state = {first.pack_id: RunState(DONE), last.pack_id: RunState("running")}.get(one.pack_id, one.state)
        runs.append(replace(one, state=state))
    live: Any = replace(now, runs=tuple(runs), progress={last.pack_id: progress}, owners=(me,))
    flops = {pack.pack_id: sum(one.plan.flops for one in runs if one.pack_id == pack.pack_id) for pack in large.packs}
    left = sum(flops.values()) - flops[first.pack_id] - flops[last.pack_id] / 3
    rate = 1000.0 * flops[last.pack_id] / (len(last.run_ids) * now.runs[0].plan.tokens)
    assert view.time_left() == pytest.approx(left / rate) == status.time_left(live)
    assert view.fraction() == pytest.approx(1 - left / sum(flops.values()))
