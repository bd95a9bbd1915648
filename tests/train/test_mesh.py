"""One model over several devices: losses as on one, and checkpoints that move between them. Hosts: sweep/."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkout import TOOLS, environment
from train_devices import trained
from train_support import FEW

from dwsweep.data.token_store import Store
from dwsweep.errors import InputError
from dwsweep.spec import MeshSpec
from dwsweep.train.mesh import WORTHWHILE_FLOPS, Load, divide

RANKED = {**FEW, "embedding_rank": 8}  # one of its arrays only fsdp divides
LOAD = Load(replicas=3, batch=16, state_bytes=1 << 20, step_flops=1e9, memory_bytes=80 << 30)


def test_replicas_are_spread_before_a_model_is_divided() -> None:
    assert divide(1, LOAD, whole=False) == (1, 1, 1)
    assert divide(8, LOAD, whole=False) == (3, 1, 1)
    assert divide(8, replace(LOAD, replicas=8), whole=False) == (8, 1, 1)
    large = replace(LOAD, step_flops=100 * WORTHWHILE_FLOPS)
    assert divide(8, large, whole=False) == (3, 2, 1)
    assert divide(8, replace(large, replicas=1), whole=False) == (1, 8, 1)
    # no further than is worth its communication
    assert divide(8, replace(large, replicas=1, step_flops=5 * WORTHWHILE_FLOPS), whole=False) == (1, 4, 1)
    # what does not fit is divided whole, parameters too
    assert divide(8, replace(LOAD, replicas=1, state_bytes=60 << 30), whole=False) == (1, 1, 8)
    assert divide(8, replace(LOAD, replicas=1, state_bytes=60 << 30, batch=12), whole=False) == (1, 1, 6)


def test_cores_divide_the_batch_and_not_the_replicas() -> None:
    on_cpu = replace(LOAD, on_cpu=True)
    assert divide(2, on_cpu, whole=False) == (1, 2, 1)
    assert divide(6, on_cpu, whole=False) == (1, 4, 1)
    assert divide(2, replace(on_cpu, batch=5), whole=False) == (1, 1, 1)
    assert divide(8, on_cpu, whole=False, asked=MeshSpec(replica=3, data=2)) == (3, 2, 1)


def test_several_hosts_use_all_devices_or_say_why_not() -> None:
    assert divide(4, replace(LOAD, replicas=2), whole=True) == (2, 2, 1)
    assert divide(6, LOAD, whole=True) == (3, 2, 1)
    with pytest.raises(InputError, match=r"data 5.*divisor of train.batch_size = 16"):
        divide(15, LOAD, whole=True)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (MeshSpec(data=16), "at most 8 devices"),
        (MeshSpec(replica=2), "divisor of the pack's 3 replicas"),
        (MeshSpec(data=3), "divisor of train.batch_size = 16"),
    ],
)
def test_a_mesh_that_cannot_be_is_refused(asked: MeshSpec, words: str) -> None:
    with pytest.raises(InputError, match=rf"execution\.mesh: .*{words}"):
        divide(8, LOAD, whole=False, asked=asked)
    assert divide(8, LOAD, whole=False, asked=MeshSpec(replica=3, fsdp=2)) == (3, 1, 2)


@pytest.fixture(scope="module")
def store_path(store: Store) -> str:
    return str(store.path)


@pytest.fixture(scope="module")
def alone(store_path: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of one device."""
    found = train_here(tmp_path_factory.mktemp("alone"), store=store_path, sections=sections())
    assert found["facts"][0]["devices"] == 1
    return found


def train(folder: Path, *runs: dict[str, Any]) -> list[dict[str, Any]]:
    """Results of one run after another, in a process with devices of its own."""
    paths = [folder / f"run{i}.json" for i in range(len(runs))]
    for path, orders in zip(paths, runs, strict=True):
        result = str(path.with_suffix(".out"))
        path.write_text(json.dumps({"directory": str(folder / "pack"), "result": result, **orders}))
    command = [sys.executable, str(TOOLS / "train_devices.py"), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(path.with_suffix(".out").read_text()) for path in paths]


def train_here(folder: Path, **orders: Any) -> dict[str, Any]:
    """In this process, which has one device."""
    return trained({"directory": str(folder / "pack"), **orders})


def assert_close(a: dict[str, Any], b: dict[str, Any]) -> None:
    """To float tolerance: sums over devices add in another order. 1e-4 nats after 12 steps at a high rate."""
    assert a["results"].keys() == b["results"].keys() and a["results"]
    for run_id, losses in a["losses"].items():
        np.testing.assert_allclose(losses, b["losses"][run_id], atol=1e-4)
        assert a["results"][run_id] == pytest.approx(b["results"][run_id], abs=1e-4)


def sections(**mesh: int) -> dict[str, Any]:
    # eight sequences per batch, so that eight devices have one each; few arrays, since each is compiled for
    execution = {"mesh": mesh} if mesh else {}
    return {"model": RANKED, "train": {"batch_size": 8}, "execution": {"log_steps": 1, **execution}}


@pytest.mark.parametrize(
    ("mesh", "resumes"),
    [
        pytest.param({"data": 8}, True, marks=pytest.mark.slow),
        pytest.param({"fsdp": 8}, True, marks=pytest.mark.slow),
        pytest.param({"replica": 2, "data": 2, "fsdp": 2}, True, marks=pytest.mark.slow),
        ({"data": 2, "fsdp": 2}, False),
    ],
    ids=str,
)
def test_several_devices_equal_one_and_their_checkpoint_resumes_on_one(
    store_path: str, tmp_path: Path, alone: dict[str, Any], mesh: dict[str, int], resumes: bool
) -> None:
    """And on as many as before, in the slow tier."""
    common = {"store": store_path, "dispatch_steps": 3}
    devices = math.prod(mesh.values())
    among = {**common, "sections": sections(**mesh), "devices": devices}
    copy = tmp_path / "copy"
    stopped = {**among, "dispatches": 2, "init_memory": True, "copy_to": str(copy / "pack")}
    first, *on_all = train(tmp_path, stopped, *([among] if resumes else []))
    assert first["facts"][0]["devices"] == devices > 1
    assert first["interrupted"] and first["step"] == 6
    for run_id, losses in first["losses"].items():
        np.testing.assert_allclose(losses, alone["losses"][run_id][:6], atol=1e-4)
    if "fsdp" in mesh:
        # a device makes its own part of the state and never holds the one draw that all of it is a part of
        assert first["init_memory"]["temporary"] < first["init_memory"]["state"]
    on_one = train_here(copy, **common, sections=sections())
    for rest in (*on_all, on_one):
        assert rest["resumes"] == [6] and not rest["notes"]
        assert_close({**alone, "losses": {}}, rest)


@pytest.mark.slow
def test_muon_on_eight_devices_equals_one(store_path: str, tmp_path: Path) -> None:
    """The orthogonal factor is of a whole matrix, however its parts lie on the devices."""
    common = {"store": store_path, "dispatch_steps": 6}
    muon = {"optimizer": "muon"}
    one = {**sections(), "train": {**sections()["train"], **muon}}
    mesh = sections(replica=2, data=2, fsdp=2)
    (eight,) = train(tmp_path, {**common, "sections": {**mesh, "train": {**mesh["train"], **muon}}, "devices": 8})
    assert eight["facts"][0]["devices"] == 8
    assert_close(train_here(tmp_path / "one", **common, sections=one), eight)


@pytest.mark.slow  # in the quick tier four devices equal one
def test_two_cores_equal_one_and_a_pack_of_any_size(store_path: str, tmp_path: Path, alone: dict[str, Any]) -> None:
    # bits of two programs are compared: compiled as a sweep's are
    common = {"store": store_path, "sections": sections(), "devices": 2, "optimized": True}
    apart = {**common, "replicas": 1, "directory": str(tmp_path / "apart")}
    packed, single = train(tmp_path, {**common, "conditions": True}, apart)
    assert packed["collectives"] == []  # what measures the attention's conditioning waits for no other core
    assert packed["facts"][0]["mesh"] == {"replica": 1, "data": 2, "fsdp": 1}
    assert_close(alone, packed)
    (run_id,) = single["results"]
    assert single["losses"][run_id] == packed["losses"][run_id]
    assert single["results"][run_id] == packed["results"][run_id]
