"""Cost of a sweep on this host, measured: compile seconds, step time, rate, MFU and memory of each pack.

A rate is that of the program a sweep runs: the same compiled function, the same batches. The clock is read with the
device synchronised on both sides, after one dispatch that is not counted, and the best of three counts, since other
work on a machine can only slow a step down.
"""

from __future__ import annotations

import time
import timeit
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dwsweep.cost.arithmetic import training_flops_per_token
from dwsweep.cost.duration import recipe_of
from dwsweep.data.token_store import Store
from dwsweep.plan import Pack, Plan
from dwsweep.records.bench import BenchRow
from dwsweep.train.choices import CAPACITY
from dwsweep.train.program import Blueprint, Program, compile_program

REPEATS = 3
MEASURE_SECONDS = 0.5  # least time of one timed dispatch of one step or more
PEAK_SIZE = {"cpu": 1024}  # side of the square matrices of the peak; elsewhere 8192


def bench(plan: Plan, store: Store) -> Iterator[BenchRow]:
    """Measure each shape of ``plan`` once, yielding a row as soon as it is known."""
    peak = measured_peak(plan.spec.train.precision)
    for pack in plan.pack_of_each_shape:
        full = measure(pack, store)
        achieved = full.tokens_per_second * full.flops_per_token
        yield replace(
            full,
            achieved_flops=achieved,
            peak_flops=peak,
            peak_basis=f"measured, {plan.spec.train.precision} matrix product",
            mfu=achieved / (peak * full.devices),
        )


def measure(pack: Pack, store: Store) -> BenchRow:
    """Compile one pack and time its training step; MFU is left out."""
    program = compile_program(Blueprint.of(pack, store), store)
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
        recipe=recipe_of(shape, train.optimizer),
    )


def _timed(program: Program, state: Any, step: int, n: int, total: int) -> tuple[Any, float]:
    began = time.perf_counter()
    state, metrics = program.dispatch(state, step, n, max(total, step + n))
    jax.block_until_ready((state, metrics))
    return state, time.perf_counter() - began


def measured_peak(precision: str) -> float:
    """FLOP/s of a large square matrix product in the sweep's precision on one device: the reference of MFU.

    On a CPU the product takes all cores, however many of them are devices.
    """
    device = jax.local_devices()[0]
    side = PEAK_SIZE.get(device.platform, 8192)
    # numbers of no pattern: a GPU's product of equal ones draws less power and runs an eighth faster
    draws = np.random.default_rng(0).standard_normal((side, side), np.float32)
    x = jax.device_put(jnp.asarray(draws, precision), device)
    product = jax.jit(lambda a, b: jnp.dot(a, b, preferred_element_type=jnp.float32)).lower(x, x).compile()
    product(x, x).block_until_ready()
    best = min(timeit.repeat(lambda: product(x, x).block_until_ready(), repeat=5, number=1))
    shared_by = len(jax.local_devices()) if device.platform == "cpu" else 1
    return 2.0 * side**3 / best / shared_by
