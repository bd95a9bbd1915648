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
import json, sys
from pytest import MonkeyPatch
from train_support import compile_for
from dwsweep.cli.app import main
compile_for(sys.argv[1], MonkeyPatch())
for arguments in json.loads(sys.argv[2]):
    sys.argv = ["dwsweep", *arguments]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    print(chr(0))
"""


def compiled(folder: Path, *meshes: str, more: str = "", platform: str = "cpu") -> list[dict[str, Any]]:
    """The row of ``bench --compile-only`` for eight devices divided as each of ``meshes`` says, of what is written for
    ``platform``; with ``more`` set in the spec. One process, since JAX takes longer to import than to compile them."""
    spec = folder / "mesh.yaml"
    spec.write_text(SPEC)
    calls = []
    for mesh in meshes:
        sets = [x for s in (f"execution.mesh={{{mesh}}}", more) if s for x in ("--set", s)]
        calls.append(["bench", str(spec), "--compile-only", "--devices", "8", "--json", *sets])
    command = [sys.executable, "-c", AS_ON, platform, json.dumps(calls)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=folder, timeout=600, env=environment(**{CPU_DEVICES: "8"})
    )
    assert done.returncode == 0, done.stderr
    *printed, _ = done.stdout.split(chr(0))
    return [row for text in printed for row in json.loads(text)]


REPLICAS, DIVIDED = "replica: 2, data: 4", "replica: 2, fsdp: 4"


@pytest.fixture(scope="module")
def of_two_replicas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Rows of two meshes."""
    meshes = (REPLICAS, DIVIDED)
    return dict(zip(meshes, compiled(tmp_path_factory.mktemp("meshes"), *meshes), strict=True))


def test_replicas_exchange_nothing_and_the_batch_only_its_gradients(of_two_replicas: dict[str, Any]) -> None:
    row = of_two_replicas[REPLICAS]
    (only,) = row["collectives"]
    assert (only["kind"], only["axes"], only["times"]) == ("all-reduce", ["data"], 1)
    assert only["bytes"] == 4 * (row["n_params_total"] + 1)  # of the device's one replica: gradients, and the loss


@pytest.mark.parametrize("mesh", [DIVIDED, pytest.param("data: 2, fsdp: 2", marks=pytest.mark.slow)])
def test_a_divided_state_is_gathered_a_matrix_at_a_time(
    tmp_path: Path, mesh: str, of_two_replicas: dict[str, Any]
) -> None:
    row = of_two_replicas[mesh] if mesh in of_two_replicas else compiled(tmp_path, mesh)[0]
    assert row["collectives"]
    for one in row["collectives"]:
        assert "replica" not in one["axes"]
        replicas = row["replicas"] / row["mesh"]["replica"]
        if one["kind"] == "all-gather":
            assert one["largest_bytes"] <= replicas * LAYER / 3  # the widest of a layer's matrices, d × 4d


@pytest.mark.slow
def test_what_is_written_for_a_gpu_is_divided_as_what_is_written_for_a_cpu(tmp_path: Path) -> None:
    """With all biases: the gradients of a norm's gain and bias are summed together on the one and not on the other."""
    rows = [
        row
        for platform in ("cpu", "cuda")
        for row in compiled(tmp_path, "fsdp: 4", more="model.biases=true", platform=platform)
    ]
    cpu, gpu = ({one["kind"]: one["bytes"] for one in row["collectives"]} for row in rows)
    counts = [{one["kind"]: one["times"] for one in row["collectives"]} for row in rows]
    assert counts[0]["all-gather"] == counts[1]["all-gather"] and cpu["all-gather"] == gpu["all-gather"]
    assert abs(gpu["all-reduce"] / cpu["all-reduce"] - 1) < 0.01
