"""What fits into a device's memory: `plan` and the trainer decide by the same facts; a refused program is mended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from train_support import FEW, Kept, Killed, make_pack, make_spec

from dwsweep.cost.arithmetic import TOKEN_STORE_SHARE, resident_bytes
from dwsweep.data.token_store import Store
from dwsweep.plan import DataFacts, build
from dwsweep.train.choices import at_hand, choose, concessions, reduce_memory, with_kernel
from dwsweep.train.pack_trainer import train_pack
from dwsweep.train.program import CPU_COMPILER, Blueprint, compile_program, memory_of


class Refused:
    """In place of the compiler: one that has no memory for any program but the ``after``-th."""

    def __init__(
        self, patch: pytest.MonkeyPatch, after: int, said: str = "RESOURCE_EXHAUSTED: Ran out of memory in memory space"
    ) -> None:
        self.tried: list[tuple[int, bool]] = []
        real = Blueprint.compiled_dispatch

        def compiled(blueprint: Blueprint) -> Any:
            self.tried.append((blueprint.choices.microbatch, blueprint.choices.compute.remat))
            if len(self.tried) <= after:
                raise jax.errors.JaxRuntimeError(said)
            return real(blueprint)

        patch.setattr(Blueprint, "compiled_dispatch", compiled)


def test_a_refused_program_is_halved_then_recomputed(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TPUs say it: while compiling, when the process is still sound and needs no restart."""
    compiler, kept = Refused(monkeypatch, after=3), Kept()
    assert train_pack(make_pack(store, make_spec(model=FEW)), store, tmp_path, kept) and len(kept.results) == 2
    assert compiler.tried == [(4, False), (2, False), (1, False), (1, True)]
    assert kept.tried == [4, 2, 1, 1]
    assert kept.facts[0]["microbatch"] == 1 and kept.facts[0]["remat"]
    assert kept.facts[0]["concessions"] == ["microbatch 4 → 1 of 4 sequences", "activations recomputed"]
    assert kept.notes == [
        "the training program did not fit into the device's memory; compiled again with "
        "microbatch 4 → 1 of 4 sequences, activations recomputed"
    ]


def test_what_costs_least_is_conceded_first(store: Store) -> None:
    pack = make_pack(store)
    first = last = choose(pack, store, at_hand(as_accelerator=True))
    steps = []
    while (less := reduce_memory(last, pack)) is not None:
        steps.append((less.microbatch, less.compute.keep_weights, less.compute.remat))
        last = less
    assert steps == [(2, True, False), (1, True, False), (1, False, False), (1, True, True)]
    halved, recomputed = "microbatch 4 → 1 of 4 sequences", "activations recomputed"
    assert concessions(first, last, pack) == [halved, recomputed]
    between = replace(last, compute=replace(last.compute, remat=False, keep_weights=False))
    assert concessions(first, between, pack) == [halved, "attention's weights computed again"]
    asked = make_pack(store, make_spec(execution={"remat": True, "microbatch": 1}))
    assert reduce_memory(choose(asked, store, at_hand(as_accelerator=True)), asked) is None


@pytest.mark.parametrize("attention", ["softmax", "linear"])
def test_only_a_softmax_by_xla_has_weights_to_keep(store: Store, attention: str) -> None:
    pack = make_pack(store, make_spec(model={"attention": attention}, train={"precision": "bfloat16"}))
    found = choose(pack, store, at_hand(as_accelerator=True))
    assert found.compute.keep_weights == (attention == "softmax")
    elsewhere = replace(found, hardware=replace(found.hardware, device=SimpleNamespace(platform="gpu"), target="H200"))
    flash = with_kernel(elsewhere, pack, "cudnn")
    assert flash.compute.kernel == ("cudnn" if attention == "softmax" else "xla")
    assert not flash.compute.keep_weights
    assert with_kernel(flash, pack, "xla").compute == found.compute
    plain = make_pack(store, make_spec(model={"attention": attention}))
    assert not choose(plain, store).compute.keep_weights  # on a CPU


def test_a_device_that_is_not_here_gets_no_kernel_that_its_compiler_refuses(store: Store) -> None:
    grid = {"widths": {2: [192]}, "heads": {"size": 192}}
    pack = make_pack(store, make_spec(grid=grid, train={"precision": "bfloat16"}), width=192)
    found = choose(pack, store, at_hand(as_accelerator=True))
    for platform, why in (("gpu", "head size 192; cudnn takes at most 128"), ("tpu", "the only kernel on tpu")):
        hardware = replace(found.hardware, device=SimpleNamespace(platform=platform), target="H200")
        chosen = with_kernel(replace(found, hardware=hardware), pack, "cudnn")
        assert (chosen.compute.kernel, chosen.attention_why) == ("xla", f"cudnn cannot be used: {why}")


def test_what_cannot_fit_by_arithmetic_is_not_compiled(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it only may be too large the compiler is asked."""
    pack, tried = make_pack(store, make_spec(model=FEW)), []
    whole = memory_of(Blueprint.of(pack, store, at_hand(as_accelerator=True)).compiled_dispatch())
    assert whole is not None

    def asked(blueprint: Blueprint) -> Any:
        tried.append((blueprint.choices.microbatch, blueprint.choices.compute.remat))
        raise Killed  # nothing of what it would have returned is looked at

    monkeypatch.setattr(Blueprint, "compiled_dispatch", asked)
    for memory in (1000, whole):
        with pytest.raises(Killed):
            compile_program(Blueprint.of(pack, store, at_hand(as_accelerator=True, memory_bytes=memory)), store)
    assert tried == [(1, True), (4, False)]


@pytest.mark.parametrize(("said", "tried"), [("RESOURCE_EXHAUSTED: Ran out of memory", 4), ("INTERNAL: no such", 1)])
def test_a_refusal_is_raised_where_nothing_is_left_to_concede_and_another_failure_at_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, tried: int
) -> None:
    compiler, kept = Refused(monkeypatch, after=9, said=said), Kept()
    with pytest.raises(jax.errors.JaxRuntimeError, match=said):
        train_pack(make_pack(store), store, tmp_path, kept)
    assert len(kept.tried) == len(compiler.tried) == tried and not kept.facts


def test_an_evaluation_that_is_refused_takes_fewer_windows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def compiled(blueprint: Blueprint, batch: int) -> Any:
        tried.append(batch)
        if len(tried) < 3:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.")

    monkeypatch.setattr(Blueprint, "compiled_evaluate", compiled)
    fits = SimpleNamespace(memory_analysis=lambda: None)
    monkeypatch.setattr(Blueprint, "compiled_dispatch", lambda blueprint: fits)
    assert compile_program(Blueprint.of(make_pack(store), store), store).eval_batch == 8
    assert tried == [32, 16, 8]


@pytest.mark.parametrize("asked", [None, True, False])
def test_plan_and_trainer_agree_on_the_token_store(store: Store, asked: bool | None) -> None:
    """Held-out text is read from the host and takes nothing: only the training tokens count, for both."""
    size = store.n_train_tokens * store.dtype.itemsize
    for memory in (None, size / TOKEN_STORE_SHARE * 1.001, size / TOKEN_STORE_SHARE * 0.999):
        planned = resident_bytes(store.n_train_tokens, 2, memory, asked)
        spec = make_spec(execution={"data_on_device": asked})
        hardware = at_hand(memory_bytes=int(memory) if memory else None)
        assert choose(make_pack(store, spec), store, hardware).streamed == (planned == 0)
        assert planned in (0, size)


def test_plan_uses_what_jax_may_use_of_a_device() -> None:
    facts = DataFacts("0" * 64, 10**9, 10**12)
    spec = make_spec(execution={"device": "H200"})
    (pack,) = build(spec, data=facts).estimates.packs.values()
    assert pack.memory.data == 2 * 10**9  # and not the held-out text's 2 TB
    (pack,) = build(spec, data=DataFacts("0" * 64, 11 * 10**9, 1)).estimates.packs.values()
    assert pack.memory.data == 0  # 22 GB are more than a fifth of 0.75 · 141 GB


@pytest.mark.slow
def test_programs_for_a_cpu_are_compiled_at_the_level_that_is_recorded(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, kept = make_pack(store, make_spec(model=FEW), depth=1, width=8, replicas=((0, 1e-2),)), Kept()
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    assert Blueprint.of(pack, store).compiler_options is None  # a level that the user sets stands
    monkeypatch.setenv("XLA_FLAGS", "")
    assert Blueprint.of(pack, store).compiler_options == CPU_COMPILER
    assert Blueprint.of(pack, store, at_hand(as_accelerator=True)).compiler_options is None
    train_pack(pack, store, tmp_path, kept, should_stop=lambda: True)
    level = "xla_backend_optimization_level"
    assert kept.facts[0]["footing"]["flags"] == {level: CPU_COMPILER[level]}
