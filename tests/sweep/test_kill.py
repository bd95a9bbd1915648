"""kill −9 of workers and parents at random moments: what is left is finished, and the results are the same bits."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT, TOOLS
from cli_tools import DWSWEEP, begun
from corpus_tools import write_texts
from sentences import says
from sweep_tools import REAL, Sweep, environment, make_plan, wait_for, with_standin, workers_of

from dwsweep.sweep import inventory
from dwsweep.sweep.directory import SweepStore

pytestmark = pytest.mark.usefixtures("standin")

SMALL = {"grid__depths": [1], "execution": {"checkpoint_steps": 3, "max_retries": 100, "workers": 2}}
ACTIONS = ("KILL", "TERM", "STOP+KILL")


def hit(process: subprocess.Popen[str], victim: str, action: str, chance: random.Random) -> bool:
    """Kill, stop or end a worker, the parent or both; False where there is none."""
    workers = workers_of(process.pid)
    victims = [*([process.pid] if victim != "worker" else []), *(workers if victim == "both" else workers[:1])]
    if victim == "worker" or action == "STOP+KILL":
        victims = [chance.choice(workers)] if workers else []
    for pid in victims:
        os.kill(pid, {"KILL": signal.SIGKILL, "TERM": signal.SIGTERM}.get(action, signal.SIGSTOP))
    if action == "STOP+KILL":  # the kernel wakes a worker whose threads all stand still as its parent dies
        threads = [f"{pid}/task/{path.name}" for pid in victims for path in Path(f"/proc/{pid}/task").glob("*")]
        wait_for(lambda: {state_of(thread) for thread in threads} <= {"T", "Z", ""})
        process.kill()
    return bool(victims)


def hit_until_done(
    begin: Callable[[], subprocess.Popen[str]],
    moments: list[tuple[str, str]],
    seconds: tuple[float, float],
    chance: random.Random,
) -> int:
    """Run a sweep, again after each of the ``moments`` (victim, action) that ended it, to its end; how many came."""
    process, count = begin(), 0
    while True:
        if process.poll() is None and count < len(moments):
            time.sleep(chance.uniform(*seconds))
            count += process.poll() is None and hit(process, *moments[count], chance)
            continue
        text, _ = process.communicate(timeout=900)
        assert process.returncode in (0, 3, -signal.SIGKILL, -signal.SIGTERM), text
        if process.returncode == 0:
            return count
        process = begin()


def test_killed_at_random_moments(sweep: Sweep) -> None:
    """The slow tier hits the real trainer, many times."""
    sweep.order(step_seconds=0.1)
    moments = [("worker", "KILL"), ("parent", "KILL")]
    assert hit_until_done(lambda: sweep.start(SMALL), moments, (0.05, 1.5), random.Random(1)) == 2
    sweep.complete(make_plan(**SMALL))


CLOCKS = {"wall_seconds", "tokens_per_second", "device_seconds", "compile_seconds", "seconds", "updated"}
OF_CLOCKS = {"metrics_sha256", "content_sha256"}  # hashes of rows that hold clocks


def contract(directory: Path) -> dict[str, Any]:
    """The files of a finished sweep by name, without what a clock says."""

    def without_clocks(row: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in row.items() if name not in CLOCKS | OF_CLOCKS}

    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name, left = str(path.relative_to(directory)), (".tmp", "manifest.json", "log.txt", "state.json", "plan.csv")
        if path.is_dir() or path.parent.name == "locks" or name.endswith(left):
            continue
        if path.suffix == ".csv":
            found[name] = list(map(without_clocks, csv.DictReader(path.read_text().splitlines())))
        elif path.suffix == ".jsonl" or path.name == "result.json":
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            found[name] = [without_clocks(json.loads(line)) for line in lines]
        else:
            found[name] = path.read_bytes()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "optimizer"), [(1, "adamw"), (2, "adamw"), (2, "muon")])
def test_a_real_sweep_under_fire_ends_with_the_same_bits(tmp_path: Path, workers: int, optimizer: str) -> None:
    """Losses, metrics, held-out documents, parameters. ``TORTURE=N`` is the number of moments, ``TORTURE_SEED=S``
    chooses them."""
    chance = random.Random(f"{os.environ.get('TORTURE_SEED', '0')} {workers} {optimizer}")
    spec, source = tmp_path / "real.yaml", write_texts(tmp_path / "text", words=4000)
    sets = f"{{workers: {workers}, keep_params: all, "
    text = REAL.format(source=source, cache=tmp_path / "cache").replace("execution: {", f"execution: {sets}")
    spec.write_text(text.replace("warmup_steps: 5", f"warmup_steps: 5, optimizer: {optimizer}"))
    env = {"JAX_PLATFORMS": "cpu", "DWSWEEP_CACHE": str(tmp_path / "cache"), "XLA_FLAGS": ""}

    def begin(name: str) -> subprocess.Popen[str]:
        return begun("run", spec, "--out", tmp_path / name, group=True, **env)

    began = time.monotonic()
    hit_until_done(lambda: begin("calm"), [], (0, 0), chance)
    took = time.monotonic() - began
    expected = contract(tmp_path / "calm")
    assert sum(name.endswith("params.safetensors") for name in expected) == 8
    left, sweeps = int(os.environ.get("TORTURE", "15")), 0
    while left > 0:
        moments = [(chance.choice(("worker", "parent", "both")), chance.choice(ACTIONS)) for _ in range(left)]
        left -= hit_until_done(lambda name=f"wild{sweeps}": begin(name), moments, (0.5, took), chance)
        found = contract(tmp_path / f"wild{sweeps}")
        assert found.keys() == expected.keys() and not [name for name in found if found[name] != expected[name]]
        found = inventory.verify(tmp_path / f"wild{sweeps}")
        assert not any(file.why for files in found.values() for file in files)
        sweeps += 1


def test_an_orphaned_worker_reaches_its_checkpoint_and_leaves(sweep: Sweep) -> None:
    """Although it was stopped (SIGSTOP): the kernel wakes it when its parent dies."""
    sweep.order(step_seconds=0.3)
    process, store = sweep.start({"execution": {"checkpoint_steps": 1000}}), sweep.store
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


def state_of(pid: int | str) -> str:
    """The kernel's letter for a process, or a thread ``PID/task/TID``; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""


def test_a_worker_preempted_while_it_imports_is_an_interruption(sweep: Sweep, tmp_path: Path) -> None:
    folder = tmp_path / "paused"
    folder.mkdir()
    code = PAUSED_IMPORT.format(mark=str(tmp_path / "imports"), standin=str(TOOLS / "standin" / "sitecustomize.py"))
    (folder / "sitecustomize.py").write_text(code)
    process = sweep.start(more={"PYTHONPATH": f"{folder}:{environment()['PYTHONPATH']}"})
    wait_for((tmp_path / "imports").exists)
    os.kill(workers_of(process.pid)[0], signal.SIGTERM)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 3 and "preempted (SIGTERM)" in text, text


def test_an_idle_worker_leaves_when_its_parent_died_in_the_middle_of_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dwsweep.sweep"]
    worker = subprocess.run(
        command, input='{"type": "Tra', text=True, env=with_standin(), timeout=60, capture_output=True
    )
    assert worker.returncode == 0 and json.loads(worker.stdout) == {"type": "Released", "status": 3}


@pytest.mark.usefixtures("standin_here")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_compiles_is_not_waited_for(sweep: Sweep, number: signal.Signals) -> None:
    """Its compiler never ends, and its parent is killed or told to stop. Nothing is lost: no step was taken."""
    sweep.order(compiles_until=str(sweep.folder / "never"))
    process = sweep.start()
    wait_for(lambda: list(sweep.directory.glob("packs/*/compiles")))
    (worker,) = workers_of(process.pid)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (3 if number == signal.SIGTERM else -9)
    wait_for(lambda: state_of(worker) in ("", "Z"))
    sweep.finish(make_plan())


def test_a_successor_waits_for_the_orphaned_worker(sweep: Sweep) -> None:
    """The orphan sits in a long step; the next call must not train the same pack beside it."""
    end = sweep.folder / "end"
    sweep.order(hang_at=3, hang_seconds=150.0, hang_until=str(end))
    process = sweep.start()
    wait_for(lambda: list(sweep.directory.glob("packs/*/hangs")))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    sweep.order()
    successor = sweep.start()
    assert successor.stdout is not None
    heard = next(line for line in successor.stdout if "earlier run" in line)  # as it comes, and no further
    assert says(heard, "sweep: waits for an earlier worker")
    end.touch()
    text, _ = successor.communicate(timeout=120)
    assert successor.returncode == 0, text
    sweep.complete(make_plan())


@pytest.mark.slow
def test_the_real_trainer_really_out_of_memory(tmp_path: Path) -> None:
    """XLA asks for more than the address space holds; half the microbatch fits. The batch stays the same."""
    spec, source = tmp_path / "large.yaml", write_texts(tmp_path / "text", words=4000)
    spec.write_text(
        REAL.format(source=source, cache=tmp_path / "cache")
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
