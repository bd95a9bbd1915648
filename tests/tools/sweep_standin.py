"""A small trainer in place of the real one: steps, checkpoints, resumes and fails as told, in milliseconds, no JAX.

``standin/sitecustomize.py`` puts it into workers. Each replica's state is a hash chain, so that a
result is right only if every step was taken once and in order. What shall go wrong stands in a JSON file named by
``SWEEP_STANDIN``: ``{"<pack label>": {…}}``, or ``"*"`` for every pack.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep import paths
from dwsweep.cost.arithmetic import training_flops
from dwsweep.errors import InputError
from dwsweep.plan import Pack
from dwsweep.records.footing import Footing
from dwsweep.records.pack import StartFacts
from dwsweep.records.run import RunResult
from dwsweep.sweep.recorder import RunRecorder


def expected_loss(pack: Pack, seed: int, learning_rate: float, steps: int) -> float:
    """Result of an undisturbed run."""
    value = _seed_of(pack, seed, learning_rate)
    for step in range(1, steps + 1):
        value = _advance(value, step)
    return _loss(value)


def train_pack(
    pack: Pack, store: Any, directory: Any, recorder: Any, *, should_stop: Any, following: Pack | None = None
) -> bool:
    orders = _orders(pack)
    follows = not isinstance(recorder, RunRecorder)  # a process of a slice beside process 0
    step, values = _restore(directory, pack)
    _fail_before_start(pack, orders)
    microbatch = pack.execution.microbatch or pack.train.batch_size
    recorder.compiling(microbatch)
    if "compiles_until" in orders:  # as a compiler does, without a look at anything else
        (directory / "compiles").touch()
        while not Path(orders["compiles_until"]).exists():
            time.sleep(0.05)
    footing = Footing(host=str(os.getpid()), cores=orders.get("cores", 2), versions={"stand-in": "1"})
    recorder.started(StartFacts("stand-in", attention_kernel="none", microbatch=microbatch, step=step, footing=footing))
    every = pack.execution.checkpoint_steps or 10
    while step < pack.branch_steps[-1]:
        if should_stop() or step == orders.get("stop_at"):
            if not follows:
                recorder.flush()
                _save(directory, step, values)
            return False
        step += 1
        values = [_advance(value, step) for value in values]
        time.sleep(orders.get("step_seconds", 0.0))
        if step == orders.get("hang_at"):
            (directory / "hangs").touch()
            until, deadline = orders.get("hang_until"), time.monotonic() + orders["hang_seconds"]
            while time.monotonic() < deadline and not (until and Path(until).exists()):
                time.sleep(0.05)
        _fail_at(step, orders, directory)
        for replica, value in zip(pack.replicas, values, strict=True):
            row = {"step": step, "loss": _loss(value), "learning_rate": 1.0, "grad_norm": 1.0, "seconds": 0.0}
            for run_id, end in zip(replica.run_ids, pack.branch_steps, strict=True):
                if step <= end:
                    recorder.metrics(run_id, [row])
                if step == orders.get("diverge_at") and replica.seed == orders.get("diverge_seed"):
                    recorder.diverged(run_id, step, float("nan"))
                elif step == end and not (orders.get("diverge_at") and replica.seed == orders.get("diverge_seed")):
                    kept = {"w": np.array([_loss(value)])} if pack.execution.keep_params == "all" else None
                    recorder.finished(run_id, _result(pack, value, step), np.array([[_loss(value), 1.0]]), kept)
        recorder.progress(step, pack.branch_steps[-1], 1000.0, [_loss(value) for value in values])
        if step % every == 0 and not follows:
            recorder.flush()
            _save(directory, step, values)
    if not follows:
        recorder.flush()
        _save(directory, step, values)
    return True


def _fail_before_start(pack: Pack, orders: dict[str, Any]) -> None:
    microbatch = pack.execution.microbatch or pack.train.batch_size
    if microbatch > orders.get("largest_microbatch", 10**9) or len(pack.replicas) > orders.get("most_replicas", 10**9):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234 bytes.")
    if orders.get("wrong_input"):
        raise InputError("train.seq_len: 128; allowed: what the stand-in likes")


def _fail_at(step: int, orders: dict[str, Any], directory: Path) -> None:
    if orders.get("once"):
        done = directory / f"failed-at-{step}"
        if done.exists():
            return
        if step in (orders.get("raise_at"), orders.get("kill_at"), orders.get("exit_at")):
            done.touch()
    if step == orders.get("raise_at"):
        raise RuntimeError("the device fell off the bus")
    if step == orders.get("kill_at"):
        os.kill(os.getpid(), signal.SIGKILL)
    if step == orders.get("exit_at"):
        print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True)
        os.abort()
    if step == orders.get("terminate_at"):
        os.kill(os.getpid(), signal.SIGTERM)


def _result(pack: Pack, value: str, step: int) -> RunResult:
    tokens = step * pack.train.batch_size * pack.train.seq_len
    return RunResult(
        loss=_loss(value),
        loss_stderr=0.01,
        bits_per_byte=1.0,
        steps=step,
        tokens=tokens,
        wall_seconds=1.0,
        tokens_per_second=1000.0,
        device_seconds=1.0,
        flops=training_flops(pack.shape, tokens),
        attention_kernel="none",
        device_kind="stand-in",
        pack_size=len(pack.replicas),
        heldout_tokens=1,
    )


def _orders(pack: Pack) -> dict[str, Any]:
    path = os.environ.get("SWEEP_STANDIN")
    if not path or not Path(path).exists():
        return {}
    content = json.loads(Path(path).read_text())
    return {**content.get("*", {}), **content.get(pack.shape.label, {})}


def _seed_of(pack: Pack, seed: int, learning_rate: float) -> str:
    return hashlib.sha256(f"{pack.shape} {seed} {learning_rate}".encode()).hexdigest()


def _advance(value: str, step: int) -> str:
    return hashlib.sha256(f"{value} {step}".encode()).hexdigest()


def _loss(value: str) -> float:
    return 2.0 + int(value[:8], 16) / 2**32


def _save(directory: Path, step: int, values: list[str]) -> None:
    folder = directory / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    numbers = _numbers(directory)
    paths.write_atomic(folder / str(numbers[-1] + 1 if numbers else 1), json.dumps({"step": step, "values": values}))
    for number in numbers[:-1]:
        (folder / str(number)).unlink()


def _restore(directory: Path, pack: Pack) -> tuple[int, list[str]]:
    numbers = _numbers(directory)
    if not numbers:
        return 0, [_seed_of(pack, replica.seed, replica.learning_rate) for replica in pack.replicas]
    content = json.loads((directory / "checkpoints" / str(numbers[-1])).read_text())
    return content["step"], content["values"]


def _numbers(directory: Path) -> list[int]:
    return sorted(int(name) for name in paths.names_in(directory / "checkpoints") if name.isdigit())
