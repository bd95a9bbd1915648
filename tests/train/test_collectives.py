"""What a divided pack exchanges between its devices, read from its compiled program of a CPU with eight devices."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import environment

from dwsweep.sweep.local_worker import CPU_DEVICES

LAYER = 12 * 64**2 * 4  # bytes of a replica's layer, float32
Exchanges = dict[str, list[int]]

PROGRAM = """
import json, re, sys
from math import prod
import numpy as np
from dwsweep.plan import build
from dwsweep.spec import parse_spec
from dwsweep.train.choices import at_hand
from dwsweep.train.compile_only import LeastText
from dwsweep.train.program import Blueprint

SPEC = {"name": "mesh", "grid": {"widths": {3: [64]}, "heads": {"count": 2}, "seeds": 2},
        "train": {"seq_len": 32, "batch_size": 8, "steps": 20}}
for mesh in json.loads(sys.argv[1]):
    spec = parse_spec(SPEC | {"model": {"tied_embeddings": True, "biases": False}, "execution": {"mesh": mesh}})
    plan = build(spec)
    blueprint = Blueprint.of(plan.packs[0], LeastText(257, np.dtype(np.uint16)), at_hand(as_accelerator=True))
    found = {"parameters": [4 * plan.packs[0].shape.n_params_total]}
    loops = blueprint.compiled_dispatch().as_text().partition("\\nENTRY ")[0]  # metrics are gathered after the steps
    for line in re.findall("= (.*)", loops):
        if kind := re.search(r"(.*?) (all-[a-z]+|reduce-scatter|collective-permute)(?:-start)?[(]", line):
            found.setdefault(kind[2], []).extend(
                4 * prod(map(int, filter(None, sizes.split(","))))
                for sizes in re.findall(r"f32[[]([0-9,]*)[]]", kind[1])
            )
    print(json.dumps(found))
"""


def exchanges(*meshes: dict[str, int]) -> list[Exchanges]:
    """Bytes of each array that a step of two replicas exchanges, by the kind of exchange, for each mesh; and of a
    replica's parameters. One process, since JAX takes longer to import than to compile them."""
    tools = Path(__file__).parents[1] / "tools"
    command = [sys.executable, "-c", PROGRAM, json.dumps(meshes)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tools, timeout=600, env=environment(**{CPU_DEVICES: "8"})
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow  # in the quick tier divided packs give the losses of one device
def test_the_batch_exchanges_its_gradients_alone_and_a_divided_state_a_matrix_at_a_time() -> None:
    batch, divided = exchanges({"replica": 2, "data": 4}, {"replica": 2, "fsdp": 4})
    assert set(batch) == {"parameters", "all-reduce"}
    assert sum(batch["all-reduce"]) == batch["parameters"][0] + 4  # of the device's one replica, and its loss
    assert divided["all-gather"] and max(divided["all-gather"]) <= LAYER / 3  # the widest of a layer's, d × 4d
