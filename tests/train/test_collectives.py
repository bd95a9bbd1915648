"""What a divided pack exchanges between its devices, read from its compiled program: here of a CPU with eight devices,
in ``test_chips`` of real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from checkout import environment

from dwsweep.sweep.local_executor import CPU_DEVICES

SPEC = """
name: mesh
grid: {widths: {3: [64]}, heads: {count: 2}, seeds: 2, learning_rates: [2.0e-3]}
model: {biases: false, tied_embeddings: true}
train: {seq_len: 32, batch_size: 8, steps: 20, precision: float32}
"""
LAYER = 12 * 64**2 * 4  # bytes of a replica's layer, float32


AS_ON = """
import sys
from pytest import MonkeyPatch
from train_support import compile_for
from dwsweep.cli.app import main
compile_for(sys.argv.pop(1), MonkeyPatch())
main()
"""


def compiled(folder: Path, mesh: str, *more: str, platform: str = "cpu") -> dict[str, Any]:
    """The row of ``bench --compile-only`` for eight devices divided as ``mesh`` says, of what is written for
    ``platform``."""
    spec = folder / "mesh.yaml"
    spec.write_text(SPEC)
    sets = (f"execution.mesh={{{mesh}}}", *more)
    arguments = ["bench", spec, "--compile-only", "--devices", "8", "--json", *(x for s in sets for x in ("--set", s))]
    command = [sys.executable, "-c", AS_ON, platform, *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, timeout=600, env=environment(**{CPU_DEVICES: "8"})
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    return row


def test_replicas_exchange_nothing_and_the_batch_only_its_gradients(tmp_path: Path) -> None:
    row = compiled(tmp_path, "replica: 2, data: 4")
    (only,) = row["collectives"]
    assert (only["kind"], only["axes"], only["times"]) == ("all-reduce", ["data"], 1)
    assert only["bytes"] == 4 * (row["n_params_total"] + 1)  # of the device's one replica: gradients, and the loss


@pytest.mark.parametrize("mesh", ["replica: 2, fsdp: 4", pytest.param("data: 2, fsdp: 2", marks=pytest.mark.slow)])
def test_a_divided_state_is_gathered_a_matrix_at_a_time(tmp_path: Path, mesh: str) -> None:
    row = compiled(tmp_path, mesh)
    assert row["collectives"]
    for one in row["collectives"]:
        assert "replica" not in one["axes"]
        replicas = row["replicas"] / row["mesh"]["replica"]
        if one["kind"] == "all-gather":
            assert one["largest_bytes"] <= replicas * LAYER / 3  # the widest of a layer's matrices, d × 4d


@pytest.mark.slow
def test_what_is_written_for_a_gpu_is_divided_as_what_is_written_for_a_cpu(tmp_path: Path) -> None:
    """With all biases: the gradients of a norm's gain and bias are summed together on the one and not on the other."""
    rows = [compiled(tmp_path, "fsdp: 4", "model.biases=true", platform=platform) for platform in ("cpu", "cuda")]
    cpu, gpu = ({one["kind"]: one["bytes"] for one in row["collectives"]} for row in rows)
    counts = [{one["kind"]: one["times"] for one in row["collectives"]} for row in rows]
    assert counts[0]["all-gather"] == counts[1]["all-gather"] and cpu["all-gather"] == gpu["all-gather"]
    assert abs(gpu["all-reduce"] / cpu["all-reduce"] - 1) < 0.01
