"""One model over several devices: losses as on one, and checkpoints that move between them. Hosts: sweep/."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from train_support import FEW, Kept, make_pack, make_spec, stop_after

from dwsweep.data.token_store import Store
from dwsweep.errors import InputError
from dwsweep.spec import MeshSpec, Spec
from dwsweep.train.mesh import WORTHWHILE_FLOPS, Load, divide
from dwsweep.train.pack_trainer import train_pack
from dwsweep.train.program import Blueprint

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
    refused = replace(LOAD, replicas=1, on_cpu=True, must_divide=True)  # by a compiler
    assert divide(8, refused, whole=False) == (1, 1, 8) and divide(1, refused, whole=False) == (1, 1, 1)


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


def spec_of(optimizer: str = "adamw", **mesh: int) -> Spec:
    # eight sequences per batch, so that eight devices have one each; few arrays, since each is compiled for
    train, execution = {"batch_size": 8, "optimizer": optimizer}, {"log_steps": 1, "mesh": mesh or {"data": 1}}
    return make_spec(model=RANKED, train=train, execution=execution)


def trained(
    store: Store, folder: Path, spec: Spec, *, devices: int = 1, seeds: int = 2, dispatches: int | None = None
) -> Kept:
    """What is recorded of a pack, to its end or for so many dispatches of three steps."""
    kept, pack = Kept(), make_pack(store, spec, replicas=tuple((seed, 1e-2) for seed in range(seeds)))
    ended = train_pack(pack, store, folder, kept, should_stop=stop_after(dispatches or 100), dispatch_steps=3)
    assert kept.facts[0]["devices"] == devices and ended == (dispatches is None)
    return kept


def assert_close(a: Kept, b: Kept) -> None:
    """To float tolerance: sums over devices add in another order. 1e-4 nats after 12 steps at a high rate."""
    assert a.results.keys() == b.results.keys() and a.results
    for run_id, result in a.results.items():
        assert result.loss == pytest.approx(b.results[run_id].loss, abs=1e-4)
        for step, row in b.rows[run_id].items():
            assert a.rows[run_id][step]["loss"] == pytest.approx(row["loss"], abs=1e-4)


@pytest.mark.devices(8)
@pytest.mark.usefixtures("programs_again")
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
    store: Store, tmp_path: Path, mesh: dict[str, int], resumes: bool
) -> None:
    """And on as many as before, in the slow tier."""
    devices = math.prod(mesh.values())
    alone = trained(store, tmp_path / "alone", spec_of())
    first = trained(store, tmp_path / "first", spec_of(**mesh), devices=devices, dispatches=2)
    for run_id in first.rows:
        np.testing.assert_allclose(first.losses(run_id), alone.losses(run_id)[:6], atol=1e-4)
    if "fsdp" in mesh:
        # a device makes its own part of the state and never holds the one draw that all of it is a part of
        blueprint = Blueprint.of(make_pack(store, spec_of(**mesh)), store)
        assert blueprint.compiled_init().memory_analysis().temp_size_in_bytes < blueprint.state_bytes
    for n, on in enumerate([{}, *([mesh] if resumes else [])]):
        shutil.copytree(tmp_path / "first", tmp_path / f"rest{n}")
        rest = trained(store, tmp_path / f"rest{n}", spec_of(**on), devices=devices if on else 1)
        assert rest.resumes == [6] and not rest.notes
        assert_close(alone, rest)


@pytest.mark.slow
@pytest.mark.devices(8)
def test_muon_on_eight_devices_equals_one(store: Store, tmp_path: Path) -> None:
    """The orthogonal factor is of a whole matrix, however its parts lie on the devices."""
    eight = spec_of("muon", replica=2, data=2, fsdp=2)
    one = trained(store, tmp_path / "one", spec_of("muon"))
    assert_close(one, trained(store, tmp_path / "eight", eight, devices=8))


@pytest.mark.slow  # in the quick tier four devices equal one
@pytest.mark.devices(2)
@pytest.mark.optimized  # bits of two programs are compared
def test_two_cores_equal_one_and_a_pack_of_any_size(store: Store, tmp_path: Path) -> None:
    both = make_spec(model=RANKED, train={"batch_size": 8}, execution={"log_steps": 1})
    packed, single = (trained(store, tmp_path / f"{n}", both, devices=2, seeds=n) for n in (2, 1))
    heads = Blueprint.of(make_pack(store, both), store).compiled_heads().as_text()
    # what measures the attention's conditioning waits for no other core
    assert not [name for name in ("all-gather", "all-reduce", "all-to-all") if name in heads]
    assert packed.facts[0]["mesh"] == {"replica": 1, "data": 2, "fsdp": 1}
    assert_close(trained(store, tmp_path / "alone", spec_of()), packed)
    (run_id,) = single.results
    assert single.losses(run_id) == packed.losses(run_id)
    assert single.results[run_id].loss == packed.results[run_id].loss
