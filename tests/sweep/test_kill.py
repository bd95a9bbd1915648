"""kill −9 of workers and parents at random moments: what is left is finished, and the results are the same bits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import ROOT, TOOLS
from cli_tools import DWSWEEP
from sentences import says
from sweep_tools import (
    REAL,
    assert_complete,
    environment,
    make_plan,
    order,
    run,
    start,
    train_here,
    wait_for,
    with_standin,
    workers_of,
    write_texts,
)

from dwsweep.sweep.directory import SweepStore

pytestmark = pytest.mark.usefixtures("standin")

SMALL = {"grid__depths": [1], "execution": {"checkpoint_steps": 3, "max_retries": 100, "workers": 2}}


def kill_until_done(
    begin: Callable[[], subprocess.Popen[str]], kills: int, seconds: tuple[float, float], seed: int, patience: float
) -> tuple[int, int]:
    """(workers killed, parents killed) until ``kills`` are done; then the sweep is left to finish."""
    chance = random.Random(seed)
    # both in turn, in an order that the seed decides: whatever a machine's speed, each is killed several times
    victims = [victim for _ in range(kills) for victim in chance.sample(("worker", "parent"), 2)][:kills]
    killed = {"worker": 0, "parent": 0}
    deadline = time.monotonic() + patience
    process = begin()
    while sum(killed.values()) < kills:
        assert time.monotonic() < deadline, f"only {killed} in {patience} s"
        if process.poll() is not None:
            break  # finished before all kills were done
        time.sleep(chance.uniform(*seconds))
        workers = workers_of(process.pid)
        if victims[sum(killed.values())] == "worker":
            if workers:
                os.kill(chance.choice(workers), signal.SIGKILL)
                killed["worker"] += 1
        elif process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            killed["parent"] += 1
            process = begin()
    text, _ = process.communicate(timeout=patience)
    if process.returncode == -signal.SIGKILL:
        process = begin()
        text, _ = process.communicate(timeout=patience)
    assert process.returncode == 0, text
    return killed["worker"], killed["parent"]


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """``test_torture`` kills the real trainer, many times."""
    order(tmp_path, step_seconds=0.1)
    directory = tmp_path / "sweep"
    workers, parents = kill_until_done(lambda: start(directory, SMALL), 2, (0.05, 1.5), seed=1, patience=400)
    assert workers and parents and workers + parents == 2
    assert_complete(make_plan(**SMALL), directory)


def test_an_orphaned_worker_reaches_its_checkpoint_and_leaves(tmp_path: Path) -> None:
    """Although it was stopped (SIGSTOP): the kernel wakes it when its parent dies."""
    order(tmp_path, step_seconds=0.3)
    changes = {"execution": {"checkpoint_steps": 1000}}
    process = start(tmp_path / "sweep", changes)
    store = SweepStore(tmp_path / "sweep")
    pack_id = wait_for(lambda: next((p for p in store.pack_ids() if store.progress(p).step > 1), None))
    worker = workers_of(process.pid)[0]
    os.kill(worker, signal.SIGSTOP)
    wait_for(lambda: state_of(worker) == "T")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: state_of(worker) in ("", "Z"))
    assert store.newest_checkpoint(pack_id) == 1
    states = {store.state(name).cause for name in store.run_ids() if store.state(name).pack_id == pack_id}
    assert states == {"the parent process is gone"}


PAUSED_IMPORT = """
import runpy, sys, time
from pathlib import Path
runpy.run_path({standin!r})
class Pause:
    def find_spec(self, name, path=None, target=None):
        if name == "dwsweep.sweep.worker" and "dwsweep.sweep" in sys.orig_argv:
            Path({mark!r}).touch()
            time.sleep(1.5)
sys.meta_path.insert(0, Pause())
"""


def while_a_worker_imports(tmp_path: Path, then: Callable[[int, int], None]) -> subprocess.Popen[str]:
    """Call ``then`` with (parent, worker) while the worker imports; returns the parent."""
    folder = tmp_path / "paused"
    folder.mkdir()
    code = PAUSED_IMPORT.format(mark=str(tmp_path / "imports"), standin=str(TOOLS / "standin" / "sitecustomize.py"))
    (folder / "sitecustomize.py").write_text(code)
    process = start(tmp_path / "sweep", more={"PYTHONPATH": f"{folder}:{environment()['PYTHONPATH']}"})
    wait_for((tmp_path / "imports").exists)
    then(process.pid, workers_of(process.pid)[0])
    return process


def state_of(pid: int) -> str:
    """The kernel's letter for what a process does; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


def test_a_worker_stopped_while_it_imports_does_not_outlive_its_parent(tmp_path: Path) -> None:
    stopped: list[int] = []

    def stop_and_kill(parent: int, worker: int) -> None:
        stopped.append(worker)
        os.kill(worker, signal.SIGSTOP)
        wait_for(lambda: state_of(worker) == "T")
        os.kill(parent, signal.SIGKILL)

    while_a_worker_imports(tmp_path, stop_and_kill).wait()
    try:
        wait_for(lambda: state_of(stopped[0]) in ("", "Z"), 30)
    finally:
        if state_of(stopped[0]) == "T":
            os.kill(stopped[0], signal.SIGKILL)


def test_a_worker_preempted_while_it_imports_is_an_interruption(tmp_path: Path) -> None:
    process = while_a_worker_imports(tmp_path, lambda parent, worker: os.kill(worker, signal.SIGTERM))
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 3 and "preempted (SIGTERM)" in text, text


@pytest.mark.parametrize("last", ["", '{"type": "Tra'])
def test_an_idle_worker_leaves_when_its_parent_is_gone(tmp_path: Path, last: str) -> None:
    """Also where the parent died in the middle of a line."""
    command = [sys.executable, "-m", "dwsweep.sweep"]
    worker = subprocess.run(command, input=last, text=True, env=with_standin(), timeout=60, capture_output=True)
    assert worker.returncode == 0 and json.loads(worker.stdout) == {"type": "Released", "status": 3}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_compiles_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Its compiler never ends, and its parent is killed or told to stop. Nothing is lost: no step was taken."""
    order(tmp_path, compiles_until=str(tmp_path / "never"))
    process = start(tmp_path / "sweep")
    wait_for(lambda: list(tmp_path.glob("sweep/packs/*/compiles")))
    (worker,) = workers_of(process.pid)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (3 if number == signal.SIGTERM else -9)
    wait_for(lambda: state_of(worker) in ("", "Z"))
    order(tmp_path)
    train_here(monkeypatch)
    assert run(make_plan(), tmp_path / "sweep")[0] == 0
    assert_complete(make_plan(), tmp_path / "sweep")


def test_a_successor_waits_for_the_orphaned_worker(tmp_path: Path) -> None:
    """The orphan sits in a long step; the next call must not train the same pack beside it."""
    end = tmp_path / "end"
    orders = {"hang_at": 3, "hang_seconds": 150.0, "hang_until": str(end)}
    order(tmp_path, **orders)
    process = start(tmp_path / "sweep")
    wait_for(lambda: list((tmp_path / "sweep").glob("packs/*/hangs")))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    order(tmp_path)
    successor = start(tmp_path / "sweep")
    assert successor.stdout is not None
    heard = next(line for line in successor.stdout if "earlier run" in line)  # as it comes, and no further
    assert says(heard, "sweep: waits for an earlier worker")
    end.touch()
    text, _ = successor.communicate(timeout=120)
    assert successor.returncode == 0, text
    assert_complete(make_plan(), tmp_path / "sweep")


@pytest.mark.slow
def test_the_real_trainer_really_out_of_memory(tmp_path: Path) -> None:
    """XLA asks for more than the address space holds; half the microbatch fits. The batch stays the same."""
    write_texts(tmp_path)
    spec = tmp_path / "large.yaml"
    spec.write_text(
        REAL.format(text=tmp_path / "*.txt", cache=tmp_path / "cache")
        .replace("depths: [1, 2], budgets: [8.0e3, 3.0e4]", "widths: {1: [64]}")
        .replace("seq_len: 32, batch_size: 4, steps: 400, warmup_steps: 5", "seq_len: 256, batch_size: 512, steps: 2")
        .replace("checkpoint_steps: 20", "microbatch: 512, checkpoint_steps: 1")
    )
    env = environment(JAX_PLATFORMS="cpu", DWSWEEP_CACHE=str(tmp_path / "cache"), PYTHONPATH=str(ROOT))
    command = f'ulimit -v 3000000; exec {" ".join(DWSWEEP)} run "$0" --out {tmp_path / "sweep"}'
    done = subprocess.run(["bash", "-c", command, str(spec)], env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "out of memory" in done.stdout and "microbatch 512 → 256 of 512 sequences" in done.stdout
    store = SweepStore(tmp_path / "sweep")
    assert [store.state(name).state for name in store.run_ids()] == ["done", "done"]
    assert store.pack_state(store.pack_ids()[0]).events[0].kind == "oom"
