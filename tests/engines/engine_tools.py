"""A sweep by the real trainer for the engines: small, the same on each, and compared with a local run's to the bit.

All processes share one compilation cache and compile quickly, as the other tests do: what is compared was compiled
alike.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkout import SMOKE, environment

from dwsweep import paths

SMALL = {
    "grid.depths": [1, 2],
    "grid.budgets": [1e4],
    "grid.seeds": 2,
    "train.steps": 2500,
    "execution.workers": 1,
    "execution.checkpoint_steps": 250,
}
DWSWEEP = [sys.executable, "-m", "dwsweep"]


def arguments(**changes: Any) -> list[str]:
    """SPEC and overrides of the small sweep: two packs of two seeds."""
    overrides = [f"{key}={json.dumps(value)}" for key, value in {**SMALL, **changes}.items()]
    return [str(SMOKE), *(part for override in overrides for part in ("--set", override))]


PATIENCE = 1200.0  # seconds that a command or a condition may take: a guard against a hang, on a busy machine too


def dwsweep(*given: Any, seconds: float = PATIENCE, **more: str) -> subprocess.CompletedProcess[str]:
    command = [*DWSWEEP, *map(str, given)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment(**more))


def begun(log: Path, *given: Any, **more: str) -> subprocess.Popen[bytes]:
    """A `dwsweep` that goes on beside the test, with what it prints in ``log``."""
    with open(log, "wb") as file:
        return subprocess.Popen([*DWSWEEP, *map(str, given)], stdout=file, stderr=file, env=environment(**more))


def losses(directory: Any) -> dict[str, str]:
    """Loss of each run to the last digit; its state where it has none."""
    rows = csv.DictReader((paths.as_path(directory) / "results.csv").read_text("utf-8").splitlines())
    return {row["run_id"]: row["loss"] or row["status"] for row in rows}


def wait_for(condition: Callable[[], Any], what: Callable[[], str] = str, seconds: float = PATIENCE) -> Any:
    """The condition's value once it is true; ``what`` tells how things stand where it does not come true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.5)
    raise AssertionError(f"it did not happen in {seconds} s: {what()}")
