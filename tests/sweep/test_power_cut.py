"""Every call of the file layer fails once, and for good; then the power is cut: nothing said to be done is lost."""

from __future__ import annotations

import csv
import errno
import json
from pathlib import Path
from typing import Any

import pytest
from file_layer import FileLayer
from sweep_tools import assert_complete, make_plan, run

from dwsweep import jsonl, paths
from dwsweep.sweep import claim
from dwsweep.sweep.directory import SweepStore

pytestmark = pytest.mark.usefixtures("standin_here")

PLAN = make_plan(
    grid__depths=[1], grid__budgets=[3e4], train__steps=6, execution={"checkpoint_steps": 2, "keep_params": "none"}
)  # one pack of two seeds


@pytest.fixture(autouse=True)
def no_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls come by the clock, and would be others in each trial."""
    monkeypatch.setattr(claim, "HEARTBEAT_SECONDS", 3600.0)


def trial(folder: Path, n: int | None, for_good: bool, **more: Any) -> tuple[FileLayer, dict[str, float], str]:
    """A sweep whose n-th call fails: (the layer, loss of each run that was said to be done, how it ended)."""
    said: dict[str, float] = {}
    finish = SweepStore.finish
    paths._on_disk.clear()  # what this process knows of a disk that was another sweep's

    def finished(store: SweepStore, run_id: str, pack_id: str, result: Any, *more: Any) -> None:
        finish(store, run_id, pack_id, result, *more)
        said[run_id] = result.loss

    layer = FileLayer(folder / "sweep", n, for_good, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepStore, "finish", finished)
        layer.install(patch)
        status, _ = run(PLAN, folder / "sweep")
        ended = f"status {status}"
    return layer, said, ended


def settled(directory: Path) -> list[dict[str, str]]:
    with (directory / "results.csv").open() as file:
        return [{name: row[name] for name in ("run_id", "status", "loss", "steps")} for row in csv.DictReader(file)]


def check(folder: Path, n: int, for_good: bool, number: int, expected: list[dict[str, str]]) -> None:
    folder.mkdir()
    layer, said, ended = trial(folder, n, for_good, number=number)
    assert ended in ("status 0", "status 3"), (n, layer.failed)  # the machine failed, and no run or input did
    after = layer.after_power_cut(folder / "after")
    store = SweepStore(after)
    if ended == "status 0":  # which says so of every run
        said = {row["run_id"]: float(row["loss"]) for row in expected}
    for run_id, loss in said.items():
        assert store.state(run_id).state == "done", (n, layer.failed, run_id)
        result = store.result(run_id)
        assert result is not None and result.loss == loss, (n, layer.failed, run_id)
    paths._on_disk.clear()
    status, text = run(PLAN, after)
    assert status == 0, (n, layer.failed, text)
    assert_complete(PLAN, after)
    assert settled(after) == expected


def test_a_power_cut_after_the_end_loses_nothing(tmp_path: Path) -> None:
    layer, said, ended = trial(tmp_path, None, False)
    assert ended == "status 0" and len(said) == 2 and min(layer.calls[name] for name in ("open", "fsync", "rename")) > 5
    store = SweepStore(layer.after_power_cut(tmp_path / "after"))
    assert {name for name in store.run_ids() if store.state(name).state == "done"} == set(said)
    assert all(store.config(name) is not None for name in said) and len(store.planned()) == 2


def test_writes_that_take_a_part_lose_nothing(tmp_path: Path) -> None:
    layer, said, ended = trial(tmp_path, None, False, short=True)
    assert ended == "status 0" and len(said) == 2 and layer.calls["write"] > 50
    assert_complete(PLAN, tmp_path / "sweep")


def test_a_disk_that_fills_and_empties_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = jsonl.LineWriter(path)
    writer.append([{"step": 1}])
    for kept in (0, 3):  # cut off at once, or, where that fails too, by the next line; so is what a kill left
        layer = FileLayer(tmp_path, 2, number=errno.ENOSPC)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(OSError, match="No space left"):
            layer.install(patch)
            writer.append([{"step": 2}])
        assert len(path.read_text().splitlines()) == 1
        path.write_text(path.read_text() + '{"step": 2}'[:kept])
    writer.append([{"step": 2}, {"step": 3}])
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 3]


# every second call fails in the quick tier, in one of the two ways; each in both in the slow tier
PARTS = [
    pytest.param(part, for_good, marks=() if part % 2 == for_good and part % 4 < 2 else pytest.mark.slow)
    for part in range(8)
    for for_good in (False, True)
]


@pytest.mark.parametrize(("part", "for_good"), PARTS)
def test_every_failing_call(tmp_path: Path, for_good: bool, part: int) -> None:
    """A share of all calls each: those whose number is ``part`` modulo 8."""
    (tmp_path / "whole").mkdir()
    layer, *_ = trial(tmp_path / "whole", None, False)
    expected = settled(tmp_path / "whole" / "sweep")
    error = (errno.EIO, errno.ENOSPC, errno.ESTALE, errno.EMFILE)[part % 4]
    numbers = [n for n in range(1, sum(layer.calls.values()) + 1) if n % 8 == part]
    assert len(numbers) > 5
    for n in numbers:
        check(tmp_path / str(n), n, for_good, error, expected)
