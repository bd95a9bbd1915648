"""A sweep by the real trainer for the engines: small, the same on each, and compared with a local run's to the bit.

All processes share one compilation cache and compile quickly, as the other tests do: what is compared was compiled
alike.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import sweep_tools
from checkout import SMOKE, environment
from cli_tools import DWSWEEP, in_a_process

SMALL = {
    "grid.depths": [1, 2],
    "grid.budgets": [1e4],
    "grid.seeds": 2,
    "train.steps": 2500,
    "execution.workers": 1,
    "execution.checkpoint_steps": 250,
}


def arguments(**changes: Any) -> list[str]:
    """SPEC and overrides of the small sweep: two packs of two seeds."""
    overrides = [f"{key}={json.dumps(value)}" for key, value in {**SMALL, **changes}.items()]
    return [str(SMOKE), *(part for override in overrides for part in ("--set", override))]


PATIENCE = 1200.0  # seconds that a command or a condition may take: a guard against a hang, on a busy machine too
dwsweep = partial(in_a_process, seconds=PATIENCE)


def wait_for(condition: Callable[[], Any], said: Callable[[], str] = str) -> Any:
    return sweep_tools.wait_for(condition, PATIENCE, said)


def begun(log: Path, *given: Any, **more: str) -> subprocess.Popen[bytes]:
    """A `dwsweep` that goes on beside the test, with what it prints in ``log``."""
    with open(log, "wb") as file:
        return subprocess.Popen([*DWSWEEP, *map(str, given)], stdout=file, stderr=file, env=environment(**more))


def losses(directory: Any) -> dict[str, str]:
    """Loss of each run to the last digit; its state where it has none."""
    return {row["run_id"]: row["loss"] or row["status"] for row in sweep_tools.results_of(directory)}
