"""TensorBoard and Weights & Biases beside metrics.jsonl, read back from their own files."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from sweep_tools import ONE_PACK, Sweep, make_plan

from dwsweep.errors import InputError
from dwsweep.jsonl import read_lines

pytestmark = pytest.mark.usefixtures("standin_here")


def test_a_logger_that_is_not_installed_is_refused_by_name(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"execution.loggers: 'wandb'.*pip install -c constraints.txt '\.\[wandb\]'"):
        sweep.run(make_plan(**ONE_PACK, execution={"loggers": ["wandb"]}))
    assert not sweep.directory.exists()


def scalars(folder: Path) -> dict[str, dict[int, float]]:
    """Tag → step → value of the event files in a folder, read without TensorBoard."""
    from tensorboardX.proto import event_pb2
    from tensorboardX.record_writer import masked_crc32c

    found: dict[str, dict[int, float]] = {}
    for path in sorted(folder.glob("events*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            record = data[at + 12 : at + 12 + length]
            assert masked_crc32c(record) == int.from_bytes(data[at + 12 + length : at + 16 + length], "little")
            event = event_pb2.Event.FromString(record)
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
            at += 16 + length
    return found


def test_tensorboard_over_an_interruption(sweep: Sweep) -> None:
    pytest.importorskip("tensorboardX")
    sweep.order(stop_at=17)
    plan = make_plan(**ONE_PACK, execution={"loggers": ["tensorboard"], "checkpoint_steps": 5})
    assert sweep.run(plan)[0] == 3
    sweep.finish(plan)
    for planned in plan.runs:
        directory = sweep.store.run_directory(planned.run_id)
        rows = read_lines(directory / "metrics.jsonl")
        found = scalars(sweep.directory / "tensorboard" / planned.run_id)
        assert found["train/loss"] == pytest.approx({row["step"]: row["loss"] for row in rows})
        assert found["result/loss"][30] == pytest.approx(json.loads((directory / "result.json").read_text())["loss"])


def test_wandb_offline(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    plan = make_plan(**ONE_PACK, execution={"loggers": ["wandb"]})
    sweep.finish(plan)
    folders = sorted((sweep.directory / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    logged = b"".join(path.read_bytes() for folder in folders for path in folder.glob("run-*.wandb"))
    for planned in plan.runs:
        assert planned.run_id.encode() in logged
    assert b"grad_norm" in logged and b"bits_per_byte" in logged


class Run:
    """A run of W&B that keeps the steps that it is given."""

    def __init__(self, steps: list[int]) -> None:
        self.steps, self.step, self.summary = steps, steps[-1] + 1 if steps else 0, dict[str, Any]()

    def log(self, row: dict[str, float], step: int) -> None:
        self.steps.append(step)

    def finish(self, exit_code: int = 0) -> None: ...


def test_wandb_gets_no_step_twice_where_a_pack_goes_on_from_a_checkpoint(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb, held = pytest.importorskip("wandb"), dict[str, list[int]]()
    monkeypatch.setattr(wandb, "init", lambda **given: Run(held.setdefault(given["id"], [])))
    sweep.order(raise_at=17, once=True)
    assert sweep.run(make_plan(**ONE_PACK, execution={"loggers": ["wandb"]}))[0] == 0
    assert list(held.values()) == [list(range(1, 31))] * 2


def test_a_logger_that_fails_is_left_out_with_a_message_and_the_runs_are_trained(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setattr(wandb, "init", lambda **_: (_ for _ in ()).throw(wandb.UsageError("No API key configured")))
    text = sweep.finish(make_plan(**ONE_PACK, execution={"loggers": ["wandb"]}))
    assert text.count("wandb failed and is left out from now on: ") == 1, text
