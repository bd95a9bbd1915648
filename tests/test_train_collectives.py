"""What a divided pack exchanges between its devices, read from its compiled program: here of a CPU with eight devices,
in ``test_chips`` of real ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SPEC = """
name: mesh
grid: {widths: {3: [64]}, heads: {count: 2}, seeds: 2, learning_rates: [2.0e-3]}
model: {biases: false, tied_embeddings: true}
train: {seq_len: 32, batch_size: 8, steps: 20, precision: float32}
"""
LAYER = 12 * 64**2 * 4  # bytes of a replica's layer, float32


def compiled(folder: Path, mesh: str) -> dict[str, Any]:
    """The row of ``bench --compile-only`` for eight devices divided as ``mesh`` says."""
    spec = folder / "mesh.yaml"
    spec.write_text(SPEC)
    arguments = ["bench", spec, "--compile-only", "--devices", "8", "--set", f"execution.mesh={{{mesh}}}", "--json"]
    command = [sys.executable, "-m", "dwsweep", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)
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
