"""Tables of a sweep, one row per run: ``plan.csv`` (work to do) and ``results.csv`` (results).

``records.columns`` has the columns of results.csv, each found by its name in the run's files. Those of plan.csv are the
fields here, in their order, and take their values in ``plan.units``.

The file of a sweep as a whole: ``manifest.json``.
"""

from __future__ import annotations

import csv
import io
import os
import platform
import subprocess
import sys
import time
from collections import ChainMap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dwsweep.records.columns import RESULTS
from dwsweep.records.footing import versions
from dwsweep.records.pack import StartFacts
from dwsweep.records.record import Positive, columns_of, csv_text, one_of, parse, unquoted_text
from dwsweep.records.run import DONE, INTERRUPTED, RUNNING, RunConfig, RunResult, RunState

RUN, SKIP, DROP = "RUN", "SKIP", "DROP"  # to train; done before; left out

Flops = Annotated[float, Field(gt=0, lt=1e300, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One run: its shape, cost and fate. None, an empty field, where a figure is unknown or waits for the data."""

    run_id: str
    pack_id: str = ""  # empty for a dropped run
    action: Annotated[str, one_of(RUN, SKIP, DROP)]
    reason: str = ""  # reason for a skip or drop, or a remark
    depth: Positive
    width: Positive
    heads: int | None = None
    head_size: int | None = None
    seed: int | None = None
    learning_rate: float | None = None  # base learning rate
    budget: float | None = None  # target n_params
    n_params: Positive  # weight matrices of the blocks
    n_params_total: int | None = None
    steps: Positive
    tokens: Positive
    mismatch: float | None = None  # n_params / budget − 1
    hidden_learning_rate: float | None = None  # derived by the parametrization from the base rate
    residual_multiplier: float | None = None
    flops: Flops  # FLOPs of the run's training
    flops_6nd: float | None = None
    epochs: float | None = None  # passes over the training tokens
    device_seconds: float | None = None  # the run's share of its pack, on one device
    pack_size: int | None = None  # replicas
    pack_memory_bytes: float | None = None  # memory on one device
    microbatch: int | None = None  # sequences
    pack_checkpoint_bytes: float | None = None  # while it trains
    time_basis: Annotated[str, one_of("measured", "compiled", "assumed")] | None = (
        None  # source of device_seconds: measured or assumed; compiled: written by an earlier version
    )
    arm: str | None = None  # arm of the run, in a sweep with arms


def plan_csv(rows: Iterable[PlanRow]) -> str:
    return csv_text(rows, PlanRow, str)


def parse_plan_csv(text: str) -> Iterator[PlanRow]:
    """
    Raises:
        InputError: a row is none of a plan.
    """
    for row in csv.DictReader(io.StringIO(text)):
        yield parse(PlanRow, {name: unquoted_text(value) for name, value in row.items() if name is not None and value})


_MEASURED = [name for name in columns_of(RunResult) if name in RESULTS and name not in columns_of(RunConfig)]
"""Columns of results.csv that a run's result.json gives; its config.json gives all others but the status."""


def results_row(config: RunConfig, state: RunState, result: RunResult | None) -> dict[str, Any]:
    """One run by the columns of results.csv: settings, results, cost.

    None, an empty field, where it is not known. ``result`` counts only where the state is done.
    """
    done = vars(result) if result is not None and state.state == DONE else {}
    measured = {name: done.get(name) for name in _MEASURED}
    status = INTERRUPTED if state.state == RUNNING else state.state
    found = ChainMap({**measured, "status": status}, vars(config), vars(config.shape), config.model, config.train)
    return {name: found.get(name) for name in RESULTS}


_PACKAGES = {name: name for name in ("dwsweep", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")}
_CALLS_KEPT = 100


@dataclass(frozen=True)
class Manifest:
    """``manifest.json``: versions, hosts and calls that made a sweep."""

    versions: dict[str, str] = field(default_factory=dict)  # dwsweep, Python, packages; last call
    calls: tuple[dict[str, Any], ...] = ()  # time, host, command, flags and git_commit of each `run`, oldest first
    devices: dict[str, dict[str, Any]] = field(default_factory=dict)  # reports of workers, by device_kind
    files: dict[str, str] | None = None  # SHA-256 (hex) of the spec and the tables as last written

    def with_call(self, **flags: Any) -> Manifest:
        """Copy with this call added: time, host, command line, flags, versions, git commit."""
        call = {
            "time": timestamp(),
            "host": platform.node(),
            "command": sys.argv,
            "flags": flags,
            "git_commit": git_commit(),
        }
        return replace(self, versions=versions(_PACKAGES), calls=(*self.calls, call)[-_CALLS_KEPT:])

    def with_device(self, facts: StartFacts) -> Manifest:
        """Copy with a worker's report on its devices, once per kind."""
        kind = facts.device_kind
        if kind is None or kind in self.devices:
            return self
        found = {"devices": facts.devices, "attention_kernel": facts.attention_kernel}
        known = {name: value for name, value in found.items() if value is not None}
        return replace(self, devices=self.devices | {kind: known})


RESULTS_NAME = "results.csv"


def timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


@cache  # the code of a process is the one that it was started with
def git_commit() -> str | None:
    """The commit of the package's own working tree, with ``+`` where it has changes; None outside of one."""
    root = Path(__file__).parent.parent

    def git(*arguments: str) -> str:
        environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=5, check=True, env=environment
        )
        return done.stdout.strip()

    try:
        if not git("ls-files", "__init__.py"):
            return None  # installed into a folder of another repository
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return None
