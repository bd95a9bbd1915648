"""One promise, tested as one: a real sweep, hit at random moments of every phase by signals, a full disk and a failing
fsync, ends with the files of an undisturbed one, to the bit: losses, metrics, held-out documents, parameters that are
kept with their SHA-256, and conditioning.

Two optimizers, one worker and two. ``TORTURE=N`` is the number of moments of each of the four, ``TORTURE_SEED=S``
chooses them; seventy-five each take about an hour on two quiet cores. What was hit is printed:
`pytest -m slow -s tests/sweep/test_torture.py`. In the quick tier ``test_kill`` kills sweeps of the stand-in, and
``train/test_loop`` and ``train/test_bucket`` interrupt and kill the trainer.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkout import TOOLS, environment
from cli_tools import begun
from sweep_tools import write_texts

from dwsweep.sweep import inventory

PHASES = ("import", "compile", "step", "checkpoint", "evaluation", "result", "results.csv", "exit")
ACTIONS = ("KILL", "TERM", "STOP+KILL", "full disk", "fsync")
VICTIMS = ("worker", "parent", "both")
LONGEST = {"checkpoint": 0.05, "result": 0.005, "results.csv": 0.005, "exit": 0.02}  # seconds until it strikes, at most
CLOCKS = {"wall_seconds", "tokens_per_second", "device_seconds", "compile_seconds", "seconds", "updated"}
OF_CLOCKS = {"metrics_sha256", "content_sha256"}  # hashes of rows that hold clocks
PATIENCE = 900.0  # seconds for one moment, on a busy machine
ROOM = "200m"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    """A file system of its own that can be made full; None where we may not mount one."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(mount)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        yield None
        return
    yield mount
    subprocess.run(["umount", "-l", str(mount)], check=True)


class Sweep:
    """A sweep that is run, hit and run again until it is finished."""

    def __init__(self, spec: Path, directory: Path, orders: Path, mount: Path | None) -> None:
        self.spec, self.directory, self.order, self.mount = spec, directory, orders / "order.json", mount
        self.process: subprocess.Popen[str] | None = None
        self.statuses: Counter[int] = Counter()

    def start(self) -> subprocess.Popen[str]:
        if self.mount is not None:
            subprocess.run(["mount", "-o", f"remount,size={ROOM}", str(self.mount)], check=True)
        path = os.pathsep.join([str(TOOLS / "torture"), environment()["PYTHONPATH"]])
        more = {"JAX_PLATFORMS": "cpu", "PYTHONPATH": path, "TORTURE_ORDER": str(self.order)}
        more |= {"DWSWEEP_CACHE": str(self.order.parent / "cache"), "TORTURE_MOUNT": str(self.mount)}
        more |= {"XLA_FLAGS": ""}  # programs as a sweep compiles them
        self.process = begun("run", self.spec, "--out", self.directory, group=True, **more)
        return self.process

    def hit(self, order: dict[str, Any]) -> dict[str, Any] | None:
        """Run until the order was carried out; what was done, or None where the sweep was finished before."""
        found = self.order.with_name("hit.json")
        found.unlink(missing_ok=True)
        self.order.write_text(json.dumps(order))
        deadline = time.monotonic() + PATIENCE
        while not found.exists():
            assert time.monotonic() < deadline, f"{order} was not reached: {self.text()}"
            if self.process is None:
                self.start()
            elif self.process.poll() is not None and self.end() == 0 and not found.exists():
                self.order.unlink(missing_ok=True)
                return None
            time.sleep(0.01)
        if order["action"] in ("full disk", "STOP+KILL") or order["victim"] != "worker":
            self.end()
        return json.loads(found.read_text())

    def end(self) -> int:
        """Wait for the process; its status."""
        assert self.process is not None
        text, _ = self.process.communicate(timeout=PATIENCE)
        status = self.process.returncode
        # 2: a file could not be written, or a worker stands still, and the line says which and how to end it
        stuck = re.search("`(fuser -k [^`]+)`", text)
        assert status in (0, 3, -signal.SIGKILL, -signal.SIGTERM) or "Input/output error" in text or stuck, text
        if stuck:
            subprocess.run(stuck[1].split(), check=True, capture_output=True)
        self.statuses[status] += 1
        self.process = None
        return status

    def finish(self) -> None:
        for _ in range(5):
            if self.process is None:
                self.start()
            if self.end() == 0:
                return
        raise AssertionError(f"it does not end: {self.statuses}")

    def text(self) -> str:
        if self.process is None:
            return ""
        os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.communicate()[0]


def orders(chance: random.Random, moments: int, can_fill: bool) -> list[dict[str, Any]]:
    """So many moments: phases in turn in a random order each, actions and victims at random."""
    actions = [action for action in ACTIONS if can_fill or action != "full disk"]
    found: list[dict[str, Any]] = []
    while len(found) < moments:
        for phase in chance.sample(PHASES, len(PHASES)):
            order = {"phase": phase, "action": chance.choice(actions), "victim": chance.choice(VICTIMS)}
            if phase in ("import", "exit"):
                order["role"] = chance.choice(("worker", "parent"))
            found.append({**order, "after": chance.uniform(0.0, LONGEST.get(phase, 0.5))})
    return found[:moments]


def contract(directory: Path) -> dict[str, Any]:
    """The files of the contract by name, without what a clock says."""
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_dir() or path.parent.name == "locks" or path.name in ("manifest.json", "log.txt"):
            continue
        if path.name in ("state.json", "progress.json"):  # attempts
            found[name] = None
        elif path.suffix == ".csv":
            with path.open(newline="") as file:
                found[name] = [{k: v for k, v in row.items() if k not in CLOCKS} for row in csv.DictReader(file)]
        elif path.suffix == ".jsonl":
            found[name] = [without_clocks(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.name in ("status.json", "result.json"):
            found[name] = without_clocks(json.loads(path.read_text()))
        else:
            found[name] = path.read_bytes()
    return found


def without_clocks(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in CLOCKS | OF_CLOCKS}


SPEC = """
name: real
grid: {{depths: [1, 2], budgets: [8.0e3], seeds: 2, heads: {{count: 2}}}}
data: {{source: "text:{text}", vocab_size: 256, validation_fraction: 0.1, cache_dir: "{cache}"}}
train: {{seq_len: 32, batch_size: 4, steps: 300, warmup_steps: 5, optimizer: {optimizer},
  conditioning: {conditioning}}}
execution: {{workers: {workers}, checkpoint_steps: 50, max_retries: 100, log_steps: 1, keep_params: all}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "optimizer"), [(1, "adamw"), (1, "muon"), (2, "adamw"), (2, "muon")])
def test_a_sweep_under_fire_ends_with_the_same_bits(
    tmp_path: Path, disk: Path | None, workers: int, optimizer: str
) -> None:
    chosen = random.Random(f"{os.environ.get('TORTURE_SEED', '0')} {workers} {optimizer}")
    moments = orders(chosen, int(os.environ.get("TORTURE", "15")), disk is not None)
    write_texts(tmp_path)
    spec = tmp_path / "real.yaml"
    asked = {"workers": workers, "optimizer": optimizer, "conditioning": str(optimizer == "muon").lower()}
    spec.write_text(SPEC.format(text=tmp_path / "*.txt", cache=tmp_path / "cache", **asked))
    calm = Sweep(spec, tmp_path / "calm" / "sweep", tmp_path, None)
    calm.finish()
    calm.finish()  # once more, with nothing to train: plan.csv then says SKIP
    expected = contract(calm.directory)
    assert sum(name.endswith("params.safetensors") for name in expected) == 4
    assert any("conditioning" in row for row in expected[next(n for n in expected if n.endswith(".jsonl"))]) == (
        optimizer == "muon"
    )

    hits: list[dict[str, Any]] = []
    sweeps = 0
    wild = Sweep(spec, (disk or tmp_path) / "sweep", tmp_path, disk)
    for order in moments:
        while (hit := wild.hit(order)) is None:  # it was finished before its phase came: the next sweep
            sweeps += compared(wild, expected)
        assert hit["phase"] in hit["inside"]
        hits.append(hit)
        print(
            f"{len(hits):>4} {hit['action']:>10} to {hit['victim']:<6} by the {hit['role']} in {hit['inside']}",
            flush=True,
        )
    wild.finish()
    sweeps += compared(wild, expected)
    print(f"{workers} worker(s), {optimizer}: {len(hits)} moments in {sweeps} sweeps, all equal; {dict(wild.statuses)}")
    assert {hit["phase"] for hit in hits} == {order["phase"] for order in moments}


def compared(sweep: Sweep, expected: dict[str, Any]) -> int:
    """Hold a finished sweep against the undisturbed one, and remove it."""
    sweep.finish()
    assert not any(finding.faulty for finding in inventory.verify(sweep.directory))
    found = contract(sweep.directory)
    assert set(found) == set(expected), sorted(set(found) ^ set(expected))
    for name, content in expected.items():
        assert found[name] == content, name
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(sweep.directory)
    return 1
