"""The device side of a pack: everything that is compiled, placed or chosen for the hardware at hand."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from dwsweep.data.batches import check_enough, gather, window_indices
from dwsweep.data.heldout import HeldoutSet
from dwsweep.data.store import Store
from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import Compute, build
from dwsweep.plan import Pack
from dwsweep.train.evaluate import HeldoutLoss, heldout_losses, make_evaluate
from dwsweep.train.mesh import REPLICA, replica_mesh, replicated, spread, state_shardings
from dwsweep.train.schedule import multipliers
from dwsweep.train.step import State, in_parallel, in_turn, init_state, make_dispatch

CAPACITY = 256
"""Steps that one dispatch can hold at most."""
STREAM_BYTES = 64 << 20
"""Of windows a dispatch when they are streamed from the host."""
RESIDENT_FRACTION = 0.2
"""Of the device's memory that the token store may take."""
CACHE_BYTES = 1_200_000
"""On a CPU, the size of the largest activation (float32) of a microbatch: about half a core's second-level cache.
Measured at L2 d64, L6 d192, L24 d64: 12–25 % faster than the whole batch of 16 × 128 at once."""
EVAL_SEQUENCES = 64
"""Held-out windows a call, over all replicas at least one each."""


def configure() -> None:
    """Settings of JAX that results or timings depend on; explicit, since their defaults have changed before."""
    jax.config.update("jax_threefry_partitionable", True)
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        # the programs of small models compile in under the default's second and would not be kept
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


class Engine:
    """Compiled functions and placed data of one pack. Nothing is compiled before ``compile``."""

    def __init__(
        self,
        pack: Pack,
        store: Store,
        *,
        dispatch_steps: int | None = None,
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
        configure()
        self.pack, self.store, self.fixed_steps = pack, store, dispatch_steps
        shape, train, execution = pack.shape, pack.train, pack.execution
        self.n_windows = check_enough(store.n_train_tokens, train.seq_len, train.batch_size)
        self.mesh = replica_mesh(len(pack.replicas), devices)
        self.device = self.mesh.devices.flat[0]
        # rates enter as ratios to the base rate, so one set of scales serves all replicas
        scales = resolve(shape, pack.model, train, 1.0)
        self.kernel = "xla"
        self.compute = Compute(train.precision, self.kernel, execution.remat, min(execution.unroll, shape.depth))
        self.model = build(shape, scales, self.compute)
        self.on_cpu = self.device.platform == "cpu"
        self.each = spread(in_turn if self.on_cpu else in_parallel, self.mesh)
        self.microbatch = self._microbatch()
        self.seeds = sorted({replica.seed for replica in pack.replicas})
        self.seed_of = tuple(self.seeds.index(replica.seed) for replica in pack.replicas)
        self.streamed = not self._fits()
        self.capacity = CAPACITY
        if self.streamed:
            step_bytes = len(self.seeds) * train.batch_size * (train.seq_len + 1) * store.dtype.itemsize
            self.capacity = max(1, min(self.capacity, STREAM_BYTES // step_bytes))
        self.everywhere = replicated(self.mesh)
        self.learning_rates = self._put(
            np.array([replica.learning_rate for replica in pack.replicas], np.float32),
            NamedSharding(self.mesh, PartitionSpec(REPLICA)),
        )
        self.tokens = self._put(np.zeros(1, store.dtype) if self.streamed else store.train_tokens())
        self.compile_seconds = 0.0
        self.step_seconds: float | None = None
        self.last_steps = 1

    def _microbatch(self) -> int:
        shape, batch, asked = self.pack.shape, self.pack.train.batch_size, self.pack.execution.microbatch
        if asked is None and self.on_cpu:
            widest = max(shape.mlp_hidden, shape.vocab_size, shape.heads * shape.seq_len)
            asked = max(1, CACHE_BYTES // (4 * shape.seq_len * widest))
        asked = min(asked or batch, batch)
        return max(n for n in range(1, asked + 1) if batch % n == 0)

    def _fits(self) -> bool:
        asked = self.pack.execution.data_on_device
        size = self.store.n_train_tokens * self.store.dtype.itemsize
        if self.store.n_train_tokens >= 2**31 or asked is False:  # indices on the device are 32-bit
            return False
        limit = (self.device.memory_stats() or {}).get("bytes_limit") if not self.on_cpu else None
        return bool(asked) or size <= RESIDENT_FRACTION * (limit or 16 << 30)

    def _put(self, x: Any, sharding: Any = None) -> jax.Array:
        return jax.device_put(x, sharding or self.everywhere)

    @property
    def abstract(self) -> State:
        """The state's shapes, dtypes and shardings."""
        seeds = jax.ShapeDtypeStruct((len(self.pack.replicas),), jnp.int32)
        shapes = jax.eval_shape(lambda s: init_state(self.model, s), seeds)
        return jax.tree.map(
            lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, state_shardings(self.mesh, shapes)
        )

    def compile(self) -> None:
        """Compile, ahead of time and once, the training and the evaluation function."""
        began = time.monotonic()
        state, train, R = self.abstract, self.pack.train, len(self.pack.replicas)
        shardings = jax.tree.map(lambda x: x.sharding, state)
        dispatch = make_dispatch(
            self.model, train, self.seed_of, self.capacity, self.microbatch, self.streamed, self.each
        )
        batches, rates = self._batches(0, 0, None)
        arguments = (state, self.tokens, batches, rates, self.learning_rates, self._put(np.int32(0)))
        out = (shardings, self.everywhere)
        self._dispatch = jax.jit(dispatch, donate_argnums=0, out_shardings=out).lower(*arguments).compile()
        T = train.seq_len
        self.eval_batch = max(1, EVAL_SEQUENCES // R)
        evaluate = jax.jit(make_evaluate(self.model), out_shardings=self.everywhere)
        windows = jax.ShapeDtypeStruct((self.eval_batch, T + 1), self.store.dtype, sharding=self.everywhere)
        self._evaluate = evaluate.lower(state["params"], windows).compile()
        self.compile_seconds += time.monotonic() - began

    @property
    def facts(self) -> dict[str, Any]:
        """What the hardware decided, for the record."""
        return {
            "device_kind": self.device.device_kind,
            "devices": self.mesh.devices.size,
            "attention_kernel": self.kernel,
            "microbatch": self.microbatch,
            "streamed": self.streamed,
            "pack_size": len(self.pack.replicas),
            "compile_seconds": self.compile_seconds,
        }

    @property
    def memory_bytes(self) -> int | None:
        """Of the training program on one device, by its own analysis; None where the backend gives none."""
        analysis = self._dispatch.memory_analysis()
        if analysis is None:
            return None
        held = analysis.argument_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
        return int(held + analysis.temp_size_in_bytes)

    def init(self) -> State:
        """The state before the first step."""
        began = time.monotonic()
        shardings = jax.tree.map(lambda x: x.sharding, self.abstract)
        seeds = self._put(np.array([replica.seed for replica in self.pack.replicas], np.int32))
        state = jax.jit(lambda s: init_state(self.model, s), out_shardings=shardings)(seeds)
        jax.block_until_ready(state)
        self.compile_seconds += time.monotonic() - began
        return state

    def copy(self, state: State) -> State:
        """A second state that survives the donation of the first."""
        return jax.tree.map(lambda x: x.copy(), state)

    def steps_for(self, seconds: float, room: int) -> int:
        """Steps of the next dispatch: about ``seconds`` long, at most ``room``; grows gently from 1."""
        if self.fixed_steps is not None:
            return min(self.fixed_steps, self.capacity, room)
        wanted = self.last_steps if self.step_seconds is None else int(seconds / self.step_seconds)
        self.last_steps = max(1, min(wanted, 4 * self.last_steps, self.capacity))
        return min(self.last_steps, room)

    def timed(self, steps: int, seconds: float) -> None:
        """A dispatch of ``steps`` steps took this long."""
        self.step_seconds = seconds / steps

    def _batches(self, step: int, n: int, stop: int | None) -> tuple[jax.Array, jax.Array]:
        train = self.pack.train
        indices = np.zeros((self.capacity, len(self.seeds), train.batch_size), np.int32)
        for row, seed in enumerate(self.seeds):
            indices[:n, row] = window_indices(seed, step, n, train.batch_size, self.n_windows)
        rates = np.zeros(self.capacity, np.float32)
        rates[:n] = multipliers(step, n, stop, train)
        if not self.streamed:
            return self._put(indices), self._put(rates)
        windows = np.zeros((*indices.shape, train.seq_len + 1), self.store.dtype)
        windows[:n] = gather(self.store.shards("train"), indices[:n].astype(np.int64), train.seq_len)
        return self._put(windows), self._put(rates)

    def dispatch(self, state: State, step: int, n: int, stop: int | None) -> tuple[State, dict[str, jax.Array]]:
        """Put ``n`` steps from ``step`` on in the device's queue; ``state`` is consumed. Returns without waiting."""
        batches, rates = self._batches(step, n, stop)
        return self._dispatch(state, self.tokens, batches, rates, self.learning_rates, self._put(np.int32(n)))

    def evaluate(self, state: State, heldout: HeldoutSet) -> list[HeldoutLoss]:
        """Held-out loss of each replica."""

        def call(params: Any, windows: np.ndarray) -> jax.Array:
            return self._evaluate(params, self._put(windows))

        return heldout_losses(call, state["params"], heldout, self.eval_batch)
