"""What a sweep costs on this host: compile seconds, step time, rate, MFU and memory of each pack, gain from packing.

A rate is that of the program a sweep runs: the same compiled function, the same batches. The clock is read with the
device synchronised on both sides, after one dispatch that is not counted, and the best of three counts, since other
work on a machine can only slow a step down.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from dwsweep.cost import find, training_flops_per_token
from dwsweep.data.token_store import Store, token_dtype
from dwsweep.errors import InputError
from dwsweep.plan import Pack, Plan
from dwsweep.records.bench_rows import BenchRow, CompiledRow, PackingPoint
from dwsweep.train.choices import CAPACITY, at_hand
from dwsweep.train.program import Blueprint, Program, compile_program

REPEATS = 3
MEASURE_SECONDS = 0.5  # of one timed dispatch, at least one step
PEAK_SIZE = {"cpu": 1024}  # side of the square matrices of the peak; elsewhere 8192


def bench(plan: Plan, store: Store) -> Iterator[BenchRow]:
    """Measure each shape of ``plan`` once, yielding a row as soon as it is known."""
    peak = measured_peak(plan.spec.train.precision)
    seen: set[Any] = set()
    for pack in plan.packs:
        if pack.shape in seen:
            continue
        seen.add(pack.shape)
        packing: list[PackingPoint] = []
        full: BenchRow | None = None
        spread = pack.execution.mesh.replica if pack.execution.mesh else 1
        for size in (n for n in sizes(len(pack.replicas)) if n % spread == 0):
            full = measure(replace(pack, replicas=pack.replicas[:size]), store)
            packing.append(PackingPoint(size, full.tokens_per_second))
        assert full is not None
        achieved = full.tokens_per_second * full.flops_per_token
        device = find(full.device_kind)
        yield replace(
            full,
            achieved_flops=achieved,
            peak_flops=peak,
            peak_basis=f"measured, {plan.spec.train.precision} matrix product",
            mfu=achieved / (peak * full.devices),
            datasheet=device.name if device else None,
            packing=tuple(packing),
        )


@dataclass(frozen=True)
class _LeastText:
    """In place of a token store that is not prepared: as many tokens as one batch needs."""

    n_train_tokens: int
    dtype: np.dtype


def compile_only(plan: Plan, store: Store | None, counts: Sequence[int]) -> Iterator[CompiledRow]:
    """Compile each shape of ``plan`` for each number of devices, without allocating a model; yields a row at once.

    No text is needed: without a ``store`` the memory is that of a program whose token store takes next to none.

    On a CPU the program is divided as an accelerator's would be; a device's memory is what JAX may use of that of
    ``execution.device``, where the spec names one.

    Raises:
        InputError: there are fewer devices.
    """
    devices = jax.local_devices()
    if max(counts) > len(devices):
        raise InputError(f"--devices: {max(counts)}; allowed: at most {len(devices)}, which JAX found here")
    named = find(plan.spec.execution.device) if plan.spec.execution.device else None
    memory = int(named.usable_bytes) if named else None
    train = plan.spec.train
    least = _LeastText(train.batch_size * train.seq_len + 1, token_dtype(plan.spec.data.vocab_size))
    text = store or cast(Store, least)
    shapes = {pack.shape: pack for pack in reversed(plan.packs)}
    for pack in reversed(shapes.values()):
        for count in counts:
            hardware = at_hand(devices[:count], memory_bytes=memory, as_accelerator=True)
            program = compile_program(Blueprint.of(pack, text, hardware))
            yield CompiledRow(
                device_kind=hardware.device.device_kind,
                depth=pack.shape.depth,
                width=pack.shape.width,
                n_params_total=pack.shape.n_params_total,
                replicas=len(pack.replicas),
                devices=count,
                mesh=program.choices.layout.sizes,
                microbatch=program.choices.microbatch,
                remat=program.choices.compute.remat,
                batch_size=pack.train.batch_size,
                compile_seconds=program.compile_seconds,
                memory_bytes=program.memory_bytes,
                state_bytes=program.blueprint.state_bytes,
                n_train_tokens=store.n_train_tokens if store else None,
            )


def sizes(replicas: int) -> list[int]:
    """1, 2, 4 … and the pack's own size last."""
    powers = [1 << k for k in range(replicas.bit_length()) if 1 << k < replicas]
    return [*powers, replicas]


def measure(pack: Pack, store: Store) -> BenchRow:
    """One pack: compile it and time its training step; MFU and packing are left out."""
    # a replica of a shortened pack still trains its own seed, so only the number of them differs
    program = compile_program(Blueprint.of(pack, store))
    state, init_seconds = program.init()
    total = pack.branch_steps[-1]
    state, seconds = _timed(program, state, 0, 1, total)
    state, seconds = _timed(program, state, 1, 1, total)
    steps = max(1, min(CAPACITY, program.choices.capacity, int(MEASURE_SECONDS / max(seconds, 1e-6))))
    best = float("inf")
    for k in range(REPEATS):
        state, seconds = _timed(program, state, 2 + k * steps, steps, total)
        best = min(best, seconds / steps)
    shape, train, R = pack.shape, pack.train, len(pack.replicas)
    return BenchRow(
        device_kind=program.choices.hardware.device.device_kind,
        devices=program.choices.layout.size,
        depth=shape.depth,
        width=shape.width,
        heads=shape.heads,
        replicas=R,
        microbatch=program.choices.microbatch,
        attention_kernel=program.choices.compute.kernel,
        compile_seconds=program.compile_seconds + init_seconds,
        step_seconds=best,
        tokens_per_second=R * train.batch_size * train.seq_len / best,
        flops_per_token=training_flops_per_token(shape),
        memory_bytes=program.memory_bytes,
    )


def _timed(program: Program, state: Any, step: int, n: int, total: int) -> tuple[Any, float]:
    began = time.perf_counter()
    state, metrics = program.dispatch(state, step, n, max(total, step + n))
    jax.block_until_ready((state, metrics))
    return state, time.perf_counter() - began


def measured_peak(precision: str) -> float:
    """FLOP/s of a large square matrix product in the sweep's precision on one device: the roof that MFU refers to.

    On a CPU the product takes all cores, however many of them are devices.
    """
    device = jax.local_devices()[0]
    side = PEAK_SIZE.get(device.platform, 8192)
    x = jax.device_put(jnp.ones((side, side), precision), device)
    product = jax.jit(lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32)).lower(x, x).compile()
    product(x, x).block_until_ready()
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        product(x, x).block_until_ready()
        best = min(best, time.perf_counter() - began)
    shared_by = len(jax.local_devices()) if device.platform == "cpu" else 1
    return 2.0 * side**3 / best / shared_by
