"""A pack's life: what is recorded, and that no interruption, dispatch length or way of reading data changes a bit."""

from __future__ import annotations

import errno
import gc
import math
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import train_support
from flax.traverse_util import unflatten_dict
from train_support import FEW, Kept, Killed, KilledAt, make_store, same_bits, stop_after, train

from dwsweep.data.heldout import heldout_set
from dwsweep.data.token_store import Store
from dwsweep.errors import InputError
from dwsweep.plan import Pack
from dwsweep.spec import Spec
from dwsweep.train.checkpoint import Checkpoints
from dwsweep.train.pack_trainer import train_pack
from dwsweep.train.program import Blueprint, Program
from dwsweep.train.step import heldout_losses, make_evaluate

again = pytest.mark.usefixtures("programs_again")


UNNORMED: dict[str, Any] = {**FEW, "norm_type": "none"}  # its loss overflows; behind norms it is a uniform guess's


def make_spec(**sections: dict[str, Any]) -> Spec:
    """Few arrays, since each is compiled for: a pack with all of them is killed and resumed in ``test_bucket``."""
    return train_support.make_spec(**{"model": FEW, **sections})


def make_pack(store: Store, spec: Spec | None = None, **shape: Any) -> Pack:
    return train_support.make_pack(store, spec or make_spec(), **shape)


class Whole(NamedTuple):
    """Trained pack, and what it left in the process: objects with programs, arrays, functions in JAX's cache."""

    kept: Kept
    folder: Path
    left: tuple[list[str], int, int]


@pytest.fixture(scope="module")
def whole(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The default pack, trained without interruption: what every other way to train it has to equal. JAX refuses every
    transfer that is not asked for, and no cycle is collected meanwhile."""
    folder = tmp_path_factory.mktemp("whole")
    cached = jax.jit(lambda x: x + 1)
    cached(1.0)
    arrays = len(jax.live_arrays())
    gc.disable()
    try:
        with jax.transfer_guard("disallow"):
            kept = train(make_pack(store), store, folder)
    finally:
        gc.enable()
    objects = [type(found).__name__ for found in gc.get_objects() if isinstance(found, Blueprint | Program)]
    return Whole(kept, folder, (objects, len(jax.live_arrays()) - arrays, cached._cache_size()))


@pytest.mark.device
def test_a_pack_is_trained_and_recorded(store: Store, whole: Whole) -> None:
    kept, folder, _ = whole
    assert [*kept.results] == ["s0-lr0.01-12", "s1-lr0.01-12"] and not kept.ended
    for run_id in kept.results:
        losses = kept.losses(run_id)
        assert len(losses) == 12
        assert abs(losses[0] - math.log(256)) < 0.1
        result = kept.results[run_id]
        assert result.loss < losses[0] - 0.5  # it learned something
        nats, tokens = kept.documents[run_id].sum(axis=0)
        assert result.loss == pytest.approx(nats / tokens, rel=1e-12)
        assert result.steps == 12 and result.tokens == 12 * 4 * 16 and result.pack_size == 2
        assert result.device_seconds == pytest.approx(result.wall_seconds / 2)
        assert 0 < result.loss_stderr < 1 and result.bits_per_byte > 0
        assert set(result.versions) == {"python", "jax", "jaxlib", "flax", "optax", "orbax", "numpy"}
    footing = kept.facts[0]["footing"]
    assert footing["cores"] and footing["versions"] == kept.results["s0-lr0.01-12"].versions and footing["backend"]
    assert kept.losses("s0-lr0.01-12") != kept.losses("s1-lr0.01-12")
    assert not (folder / "checkpoints").exists()  # its results prove that it is complete


@pytest.mark.device
@again
@pytest.mark.parametrize(
    ("steps", "stops", "dispatches", "resumes"),
    [(1, (), 12, []), (12, (), 1, []), (3, (0, 1, 0, 2), 4, [3, 3, 9])],
)
def test_neither_the_length_of_a_dispatch_nor_an_interruption_changes_a_bit(
    store: Store, tmp_path: Path, whole: Whole, steps: int, stops: tuple[int, ...], dispatches: int, resumes: list[int]
) -> None:
    other = train(make_pack(store), store, tmp_path, *stops, steps=steps)
    same_bits(whole.kept, other)
    assert len(other.dispatches) == dispatches and other.resumes == resumes
    assert other.results["s0-lr0.01-12"].wall_seconds > 0


def test_branches_are_exact_by_one_program_also_when_interrupted(
    store: Store, tmp_path: Path, compiling: list[str]
) -> None:
    spec = make_spec(train={"schedule": "wsd", "cooldown_fraction": 0.4})
    pack = make_pack(store, spec, branch_steps=(5, 12))
    whole = train(pack, store, tmp_path / "whole", steps=2)
    assert len(whole.results) == 4 and len(compiling) == 1
    # a branch equals a run of that length alone, and the trunk is not disturbed by it
    for alone in (5, 12):
        single = train(make_pack(store, spec, branch_steps=(alone,)), store, tmp_path / f"alone{alone}")
        for run_id in single.results:
            assert whole.results[run_id].loss == single.results[run_id].loss
            assert whole.losses(run_id) == single.losses(run_id)
    # dispatches: trunk 0-2, 2-3; branch 3-5; trunk 3-5, 5-7; cool-down 7-9, 9-11, 11-12; stopped at 2, 3 and 9
    parts = train(pack, store, tmp_path / "parts", 1, 2, 3, steps=2)
    assert parts.resumes == [2, 3, 9]
    same_bits(whole, parts)
    rates = [whole.rows["s0-lr0.01-5"][step]["learning_rate"] for step in range(1, 6)]
    np.testing.assert_allclose(rates, [0.005, 0.01, 0.01, 0.01, 0.005], rtol=1e-6)


@again
def test_measuring_the_conditioning_changes_no_bit(store: Store, tmp_path: Path) -> None:
    """At the start, after parts of the longest run and at each end; the same when the pack is interrupted."""
    wsd: dict = {"schedule": "wsd", "cooldown_fraction": 0.4}
    specs = (make_spec(train={**wsd, "conditioning": measured}) for measured in (False, True))
    off, on = (make_pack(store, spec, branch_steps=(5, 12)) for spec in specs)
    plain = train(off, store, tmp_path / "off", steps=5)
    whole = train(on, store, tmp_path / "on", steps=5)
    for run_id, result in plain.results.items():
        assert whole.losses(run_id) == plain.losses(run_id)
        assert whole.results[run_id].loss == result.loss
        np.testing.assert_array_equal(whole.documents[run_id], plain.documents[run_id])
        rows = whole.rows[run_id]
        measured = {step: row["conditioning"] for step, row in rows.items() if "conditioning" in row}
        assert [*measured] == [step for step in (1, 3, 5, 12) if step <= max(rows)]
        assert all(len(each) == 2 and min(each) > 1 for each in (rows[1]["conditioning_at_start"], *measured.values()))
        assert not any("conditioning" in row for row in plain.rows[run_id].values())
    # a pack that began without it goes on with it: nothing of the result depends on it
    began = Kept()
    assert not train_pack(off, store, tmp_path / "late", began, should_stop=stop_after(1), dispatch_steps=5)
    parts = train(on, store, tmp_path / "late", 1, steps=2)
    for run_id, rows in parts.rows.items():
        assert all(
            row.get("conditioning") == whole.rows[run_id][step].get("conditioning") for step, row in rows.items()
        )
        assert parts.results[run_id].loss == plain.results[run_id].loss


@pytest.fixture(scope="module")
def large(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A pack of three: two seeds, one of them at two rates."""
    replicas = ((0, 1e-2), (1, 1e-2), (1, 3e-3))
    return train(make_pack(store, replicas=replicas), store, tmp_path_factory.mktemp("large"))


@pytest.mark.device
@again
def test_a_pack_of_one_equals_a_replica_of_a_larger_pack(store: Store, tmp_path: Path, large: Kept) -> None:
    """To float tolerance only: batched products may add in another order. 1e-4 nats after 12 steps at a high rate."""
    for seed, rate in ((0, 1e-2), (1, 3e-3)):
        alone = train(make_pack(store, replicas=((seed, rate),)), store, tmp_path / f"{seed}{rate}")
        run_id = f"s{seed}-lr{rate:g}-12"
        np.testing.assert_allclose(alone.losses(run_id), large.losses(run_id), atol=1e-4)
        assert alone.results[run_id].loss == pytest.approx(large.results[run_id].loss, abs=1e-4)


def test_a_seed_sees_the_same_batches_at_every_learning_rate(large: Kept) -> None:
    """Common random numbers: equal first losses for equal seeds, since parameters and batch are the same."""
    first = {run_id: large.losses(run_id)[0] for run_id in large.rows}
    assert first["s1-lr0.01-12"] == pytest.approx(first["s1-lr0.003-12"], abs=1e-6)
    assert first["s1-lr0.01-12"] != first["s0-lr0.01-12"]
    assert large.losses("s1-lr0.01-12")[-1] != large.losses("s1-lr0.003-12")[-1]


@pytest.mark.device
@again
def test_streamed_batches_are_the_resident_ones(store: Store, tmp_path: Path, whole: Whole) -> None:
    """Another program, which adds in another order where it is compiled in a hurry."""
    found = train(make_pack(store, make_spec(execution={"data_on_device": False})), store, tmp_path)
    resident = whole.kept
    assert found.facts[0]["streamed"] and not resident.facts[0]["streamed"]
    assert found.results.keys() == resident.results.keys()
    for run_id in found.results:
        np.testing.assert_allclose(found.losses(run_id), resident.losses(run_id), atol=1e-5)
        np.testing.assert_allclose(found.documents[run_id], resident.documents[run_id], rtol=1e-5)


@again
def test_a_diverged_replica_leaves_its_pack_undisturbed(store: Store, tmp_path: Path) -> None:
    spec = make_spec(model=UNNORMED, train={"grad_clip": None, "warmup_steps": 0})
    good, bad = (0, 1e-2), (1, 1e30)
    kept = train(make_pack(store, spec, replicas=(good, bad)), store, tmp_path / "pack")
    assert [*kept.results] == ["s0-lr0.01-12"] and [*kept.ended] == ["s1-lr1e+30-12"]
    step, loss = kept.ended["s1-lr1e+30-12"]
    assert step == 2 and not math.isfinite(loss)
    assert max(kept.rows["s1-lr1e+30-12"]) <= step
    # the good one to the last bit as beside a good neighbour, and the same when the pack is interrupted later
    beside = train(make_pack(store, spec, replicas=(good, (1, 1e-2))), store, tmp_path / "beside")
    assert kept.losses("s0-lr0.01-12") == beside.losses("s0-lr0.01-12")
    parts = train(make_pack(store, spec, replicas=(good, bad)), store, tmp_path / "parts", 2)
    same_bits(kept, parts)


@again
def test_a_pack_whose_replicas_all_diverged_ends(store: Store, tmp_path: Path) -> None:
    spec = make_spec(model=UNNORMED, train={"grad_clip": None, "warmup_steps": 0})
    kept = train(make_pack(store, spec, replicas=((0, 1e30), (1, 1e30))), store, tmp_path, steps=2)
    assert [*kept.ended] == ["s0-lr1e+30-12", "s1-lr1e+30-12"]
    assert not kept.results and len(kept.dispatches) <= 3  # one is in the queue when the news comes


@again
@pytest.mark.parametrize("late", [False, True])
def test_a_kill_costs_the_steps_after_a_checkpoint_and_one_that_could_not_be_written_is_written_again(
    store: Store, tmp_path: Path, whole: Whole, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """The save at step 8 fails, at once or in its thread; the attempt ends, and the next one saves that step."""
    pack = make_pack(store, make_spec(execution={"checkpoint_steps": 4}))
    name = "_before_commit" if late else "_hashes"
    saved, method, failures = [], getattr(Checkpoints, name), iter([False, True])

    def fails_once(checkpoints: Checkpoints, *given: object) -> object:
        if next(failures, False):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        saved.append(checkpoints.directory)
        return method(checkpoints, *given)

    monkeypatch.setattr(Checkpoints, name, fails_once)
    kept = Kept()
    with pytest.raises(OSError, match="Input/output error"):
        train_pack(pack, store, tmp_path, kept, dispatch_steps=1)
    assert [name for name in os.listdir(tmp_path / "checkpoints") if name.isdigit()] == ["1"]
    killed = KilledAt(9)
    with pytest.raises(Killed):
        train_pack(pack, store, tmp_path, killed, dispatch_steps=1)
    assert killed.resumes == [4] and killed.flushed_at == 8
    assert len(saved) == (2 if late else 3)  # hashes are computed for a restore, too
    rest = Kept()
    train_pack(pack, store, tmp_path, rest, dispatch_steps=1)
    assert rest.resumes == [8] and not rest.notes
    assert whole.kept.losses("s0-lr0.01-12")[8:] == rest.losses("s0-lr0.01-12")
    assert whole.kept.results["s1-lr0.01-12"].loss == rest.results["s1-lr0.01-12"].loss


def test_a_pack_leaves_nothing_behind(whole: Whole) -> None:
    """Neither arrays and programs, in cycles that only a collection ends, nor what JAX caches of other functions."""
    objects, arrays, cached = whole.left
    assert not objects and arrays <= 0 and cached == 0


@pytest.fixture
def compiling(programs_again: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads in which training functions are compiled."""
    threads, compiled = list[str](), Blueprint.compiled_dispatch

    def noted(blueprint: Blueprint) -> Any:
        threads.append(threading.current_thread().name)
        return compiled(blueprint)

    monkeypatch.setattr(Blueprint, "compiled_dispatch", noted)
    return threads


def test_the_next_pack_is_compiled_while_this_one_trains(store: Store, tmp_path: Path, compiling: list[str]) -> None:
    spec = make_spec(execution={"compile_ahead": True})
    first, second = make_pack(store, spec), make_pack(store, spec, width=12)
    # until the second is trained, which waits for its programs however long they take
    train_pack(first, store, tmp_path / "first", Kept(), following=second, dispatch_steps=3)
    ahead = train(second, store, tmp_path / "second")
    assert len(compiling) == 2 and compiling.count(threading.current_thread().name) == 1
    plain = train(make_pack(store, width=12), store, tmp_path / "plain")
    same_bits(plain, ahead)


@pytest.mark.parametrize(("split", "resident"), [("train", True), ("train", False), ("validation", True)])
def test_tokens_beyond_the_vocabulary_are_a_damaged_store_and_no_divergence(
    tmp_path: Path, split: str, resident: bool
) -> None:
    store = make_store(tmp_path / "store")
    # damaged under the open store: whatever is verified when it is opened has been
    for file in store.path.glob(f"{split}*.bin"):
        with file.open("r+b") as tokens:
            tokens.write(b"\xff" * file.stat().st_size)
    spec = make_spec(execution={"data_on_device": resident})
    blueprint = Blueprint.of(make_pack(store, spec), store)
    program = Program(blueprint, store, blueprint.choices, None, None, 1, 0.0)  # refused before anything compiled runs
    with pytest.raises(InputError, match=r"token 65535, must be below data\.vocab_size 256"):
        if split == "validation":
            program.evaluate({}, heldout_set(store, 16))
        elif resident:
            program.tokens  # noqa: B018
        else:
            program.dispatch({}, 0, 12, 12)


@again
def test_checkpoints_of_another_pack_are_refused_by_name(store: Store, tmp_path: Path) -> None:
    pack = make_pack(store)
    train_pack(pack, store, tmp_path, Kept(), should_stop=stop_after(1), dispatch_steps=3)
    with pytest.raises(InputError, match="replicas"):
        train(make_pack(store, replicas=((0, 1e-2), (7, 1e-2))), store, tmp_path)
    with pytest.raises(InputError, match=r"current\.params\.blocks\.mlp\.up\.kernel: float32\[2, 2, 16, 64\]"):
        train(replace(pack, shape=make_spec().block().shape(2, 20)), store, tmp_path)


@again
def test_parameters_that_are_kept_give_the_loss_of_their_run(store: Store, tmp_path: Path) -> None:
    spec = make_spec(
        train={"schedule": "wsd", "tokens": 12 * 64, "token_branches": [6 * 64]}, execution={"keep_params": "best"}
    )
    pack = make_pack(store, spec, branch_steps=(6, 12))
    kept = train(pack, store, tmp_path, 1)
    losses = {run_id: result.loss for run_id, result in kept.results.items()}
    best = {min((name for name in losses if name.endswith(f"-{n}")), key=losses.__getitem__) for n in (6, 12)}
    assert set(kept.params) == best
    evaluate = jax.jit(make_evaluate(Blueprint.of(pack, store).model))
    heldout = heldout_set(store, pack.shape.seq_len)
    for run_id, arrays in kept.params.items():
        assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
        params = unflatten_dict({name: array[None] for name, array in arrays.items()}, sep=".")
        (found,) = heldout_losses(evaluate, params, heldout, 8)
        assert found.loss == pytest.approx(losses[run_id], abs=1e-6)
