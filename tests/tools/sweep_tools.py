"""Small sweeps on the stand-in trainer, in this process or with a parent process of their own that can be killed."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import sweep_standin
from checkout import TOOLS, environment, free_address
from rich.console import Console
from spec_tools import spec_of

from dwsweep import terminal
from dwsweep.paths import as_path
from dwsweep.plan import DataFacts, Pack, Plan, build
from dwsweep.report.progress import ProgressView
from dwsweep.sweep import runner, worker
from dwsweep.sweep.directory import SweepStore
from dwsweep.sweep.events import Ended, Event
from dwsweep.sweep.runner import run_sweep

if TYPE_CHECKING:  # parents of a sweep, forty in the tests, would take a tenth of a second to import it
    import pytest

LEASE_SECONDS = 2.0  # of every owner in a test

SMALL = {
    "name": "small",
    "grid": {"depths": [1, 2], "budgets": [3e4, 1e5], "seeds": 2},
    "train": {"steps": 30, "warmup_steps": 2},
    "execution": {"checkpoint_steps": 5},
}


ONE_PACK: dict[str, Any] = {"grid__depths": [2], "grid__budgets": [1e5]}
"""Changes for ``make_plan``: the pack of one shape."""

REAL = """
name: real
grid: {{depths: [1, 2], budgets: [8.0e3, 3.0e4], seeds: 2, heads: {{count: 2}}}}
data: {{source: "{source}", vocab_size: 256, validation_fraction: 0.1, cache_dir: "{cache}"}}
train: {{seq_len: 32, batch_size: 4, steps: 400, warmup_steps: 5}}
execution: {{checkpoint_steps: 20, max_retries: 100, log_steps: 1}}
"""


def make_plan(**changes: Any) -> Plan:
    """Four packs of two seeds, 30 steps each; ``changes`` as ``spec_of`` takes them."""
    return build(spec_of(SMALL, **changes), data=DataFacts("f00d", 10**6, 10**4))


def with_standin(**more: str) -> dict[str, str]:
    """An environment in which workers train with the stand-in."""
    return environment(TOOLS / "standin", **more)


def order(folder: Path, each: dict[str, Any] | None = None, **every: Any) -> None:
    """Behaviour of the stand-in (see there), for every pack, or for ``each`` by its label."""
    (folder / "orders.json").write_text(json.dumps({**(each or {}), "*": every}))


def run(plan: Plan, directory: Any, **options: Any) -> tuple[int, str]:
    """(exit status, what was printed) of a sweep in this process."""
    console = Console(file=io.StringIO(), width=200)
    status = run_sweep(plan, "/nowhere", directory, view=ProgressView(console), **options)
    return status, console.file.getvalue()  # type: ignore[attr-defined]


def results_of(directory: Any) -> list[dict[str, str]]:
    """The rows of results.csv."""
    return list(csv.DictReader((as_path(directory) / "results.csv").read_text("utf-8").splitlines()))


class Sweep:
    """The sweep of a test in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.directory = folder, folder / "sweep"
        self.store = SweepStore(self.directory)

    def order(self, each: dict[str, Any] | None = None, **every: Any) -> None:
        order(self.folder, each, **every)

    def run(self, plan: Plan, **options: Any) -> tuple[int, str]:
        return run(plan, self.directory, **options)

    def start(self, changes: dict[str, Any] | None = None, **options: Any) -> subprocess.Popen[str]:
        return start(self.directory, changes, **options)

    def complete(self, plan: Plan) -> None:
        assert_complete(plan, self.directory)

    def finish(self, plan: Plan, **options: Any) -> str:
        """What is printed of a sweep that ends well, by a stand-in to which nothing happens any more."""
        self.order()
        status, text = self.run(plan, **options)
        assert status == 0, text
        self.complete(plan)
        return text

    def rows(self) -> list[dict[str, str]]:
        return results_of(self.directory)


def work_in(text: str) -> tuple[int, int, int]:
    """(runs to train, their packs, runs finished before) as a sweep printed them."""
    work = re.search(r"(\d+) runs in (\d+) packs to train(?:; (\d+) finished before)?", text)
    if work:
        return int(work[1]), int(work[2]), int(work[3] or 0)
    done = re.search(r"nothing to train: (\d+) done", text)
    assert done, text
    return 0, 0, int(done[1])


def start(
    directory: Path | str, changes: dict[str, Any] | None = None, more: dict[str, str] | None = None, **options: Any
) -> subprocess.Popen[str]:
    """A sweep whose parent is a process of its own, with ``more`` in its environment."""
    command = [sys.executable, __file__, str(directory), json.dumps(changes or {})]
    return subprocess.Popen(
        [*command, json.dumps(options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=with_standin(**(more or {})),
        start_new_session=True,
    )


def processes_of_a_slice() -> list[dict[str, str]]:
    """The environments of two processes that are hosts to ``dwsweep run --distributed``."""
    common = {"DWSWEEP_COORDINATOR": free_address(), "DWSWEEP_PROCESSES": "2"}
    return [{**common, "DWSWEEP_PROCESS": str(k)} for k in range(2)]


def train_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``run`` train in this process: for tests of what is decided and written, not of processes that die."""
    monkeypatch.setattr(runner, "local_workers", lambda *_, **__: [WorkerHere()])


def train_with_standin(job: Any, pack: Pack, directory: Any, recorder: Any, **more: Any) -> Any:
    return sweep_standin.train_pack(pack, job.store_path, directory, recorder, **more)


class WorkerHere:
    """A worker without a process: packs train in this one, so that a hundred sweeps take seconds.

    ``stop_after`` is how often the trainer may ask whether to go on.
    """

    def __init__(self, stop_after: int | None = None) -> None:
        self.asked, self.stop_after = 0, stop_after

    def train(self, job: Any, on_event: Callable[[Event], None]) -> Ended:
        import pytest

        channel: Any = SimpleNamespace(emit=on_event, group=None, stop_cause="stopped", should_stop=self.should_stop)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(worker, "train", train_with_standin)
            return worker.attempt(job, channel)

    def should_stop(self) -> bool:
        self.asked += 1
        return self.stop_after is not None and self.asked > self.stop_after

    def stop(self, cause: str) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


def wait_for(condition: Callable[[], Any], seconds: float = 60.0, said: Callable[[], str] = str) -> Any:
    """The condition's value once it is true; what was ``said`` until then, where it does not come true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"it did not happen in {seconds} s: {said()}")


def workers_of(parent: int) -> list[int]:
    """Live worker processes of a parent."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, ppid = path.read_text().rsplit(")", 1)[1].split()[:2]
            if int(ppid) == parent and state != "Z":
                found.append(int(path.parent.name))
    return found


def assert_complete(plan: Plan, directory: Any) -> None:
    """Every run has the result of an undisturbed run, and every step of its metrics exactly once and in order."""
    store = SweepStore(directory)
    packs: dict[str, Pack] = {pack.pack_id: pack for pack in plan.packs}
    for run in plan.runs:
        assert store.state(run.run_id).state == "done", run.run_id
        expected = sweep_standin.expected_loss(packs[run.pack_id], run.seed, run.learning_rate, run.steps)
        assert (result := store.result(run.run_id)) and result.loss == expected
        lines = (store.run_directory(run.run_id) / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == list(range(1, run.steps + 1))


if __name__ == "__main__":
    arguments = json.loads(sys.argv[3])
    if "shard" in arguments:
        arguments["shard"] = tuple(arguments["shard"])
    view = ProgressView(terminal.console())
    status = run_sweep(make_plan(**json.loads(sys.argv[2])), "/nowhere", sys.argv[1], view=view, **arguments)
    if {"jax", "flax", "optax", "orbax"} & {name.split(".")[0] for name in sys.modules}:
        sys.exit("the parent imported JAX")
    sys.exit(status)
