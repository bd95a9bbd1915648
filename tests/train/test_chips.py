"""Programs of the trainer compiled by the vendors' compilers for chips that are not here (`make test-chips`).

Nothing runs: what is checked is that they compile, fit, and are divided among devices.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checkout import SWEEPS

from dwsweep.cost.arithmetic import program_fits
from dwsweep.cost.devices import find
from dwsweep.plan import build
from dwsweep.records.bench import CompiledRow
from dwsweep.spec import load_spec, parse_spec
from dwsweep.train.compile_only import compile_only
from dwsweep.train.targets import elsewhere

pytestmark = pytest.mark.chips

TARGETS = ["TPU-v5e", "TPU-v5p", "H200"]
LARGE = {
    "name": "large",
    "grid": {"widths": {12: [1024]}, "heads": {"count": 8}, "seeds": 1},
    "train": {"seq_len": 512, "batch_size": 32, "steps": 10, "precision": "bfloat16"},
}
TOO_LARGE = {
    "name": "too-large",
    "grid": {"widths": {6: [1024]}, "heads": {"count": 8}, "seeds": 1},
    "model": {"biases": False},
    "train": {"seq_len": 512, "batch_size": 256, "steps": 10, "precision": "bfloat16"},
}
DIVIDED = {
    "name": "divided",
    "grid": {"widths": {4: [256]}, "heads": {"count": 2}, "seeds": 4},
    "model": {"biases": False},
    "train": {"seq_len": 128, "batch_size": 16, "steps": 10, "precision": "bfloat16"},
}


def compiled(content: dict[str, Any] | Path, target: str, *overrides: str) -> CompiledRow:
    """The row of the only shape of a spec."""
    spec = load_spec(content, overrides) if isinstance(content, Path) else parse_spec(content)
    (row,) = compile_only(build(spec), None, [elsewhere(target)])
    return row


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("content", "overrides"),
    [
        (SWEEPS / "smoke.yaml", ["grid.depths=[6]", "grid.budgets=[1.0e5]"]),
        (SWEEPS / "levine-mini.yaml", ["grid.depths=[12]", "grid.budgets=[1.0e6]"]),
        (LARGE, []),
    ],
    ids=["smoke", "levine-mini", "large"],
)
def test_a_shape_compiles_and_fits(content: dict[str, Any] | Path, overrides: list[str], target: str) -> None:
    row = compiled(content, target, *overrides)
    assert row.target == target and row.devices == 1 and row.refused is None
    device = find(row.device_kind)
    assert device is not None and row.memory_bytes is not None
    assert row.state_bytes < row.memory_bytes and program_fits(row.memory_bytes, device.usable_bytes)


def test_a_program_that_a_tpu_refuses_is_conceded_until_it_fits() -> None:
    """The compiler raises RESOURCE_EXHAUSTED, and no figure of memory comes before that."""
    row = compiled(TOO_LARGE, "TPU-v5e")
    assert row.concessions[0].startswith(f"microbatch {row.batch_size} → ")
    assert program_fits(row.memory_bytes, 16e9)


@pytest.mark.parametrize("target", ["TPU-v5e:2x2", "H200:4"])
def test_four_devices_have_a_replica_each(target: str) -> None:
    row = compiled(DIVIDED, target)
    assert row.mesh == {"replica": 4, "data": 1, "fsdp": 1}
