"""The device side of a pack: everything that is compiled, placed or chosen for the hardware at hand."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dwsweep.cost import training_flops
from dwsweep.cost.memory import halved, program_fits, resident_bytes
from dwsweep.data.batches import HeldoutSet, check_enough, gather, window_indices
from dwsweep.data.token_store import Store
from dwsweep.errors import InputError
from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import Compute, build
from dwsweep.plan import Pack
from dwsweep.train import attention_autotune
from dwsweep.train.consensus import agreed, all_agree
from dwsweep.train.evaluate import HeldoutLoss, heldout_losses, make_evaluate
from dwsweep.train.lr_schedule import multipliers
from dwsweep.train.mesh import Layout, Load
from dwsweep.train.param_layout import as_vector, by_leaf
from dwsweep.train.step import State, init_state, make_dispatch

CAPACITY = 256
"""Steps that one dispatch can hold at most."""
STREAM_BYTES = 64 << 20
"""Of windows a dispatch when they are streamed from the host."""
CACHE_BYTES = 1_200_000
"""On a CPU, the size of the largest activation (float32) of a microbatch: about half a core's second-level cache.
Measured at L2 d64, L6 d192, L24 d64: 12–25 % faster than the whole batch of 16 × 128 at once."""
UNROLLED_WIDTH, UNROLLED_DEPTH = 128, 12
"""On a CPU, the layers of models at least this wide and at most this deep are unrolled: weights that exceed a core's
cache are then not copied out of their stack for each microbatch. Measured gains: L8 d128 5 %, L12 d192 11 %, L6 d192
17 %, L4 d256 22 %, for some 0.7 s of compilation a layer; L24 d64 none, and four layers at a time lose 5–18 %."""
VECTOR_PARAMETERS = 1_500_000
"""On a CPU, models up to this size are one vector in the training loop. Measured on two cores, steps against those of
the tree: L6 d12 ×1.58, L2 d36 ×1.48, L1 d92 ×1.09, L24 d64 (1.2e6) ×1.0, L6 d192 (2.7e6) ×0.9: larger ones leave the
caches and pay for the copies. A third less to compile at all of them."""
STATE_ARRAYS = 4
"""Float32 arrays of the parameters' size while a step is taken: parameters, two moments, gradients."""
EVAL_SEQUENCES = 64
"""Held-out windows a call, over all replicas at least one each."""


def configure() -> None:
    """Settings of JAX that results or timings depend on; explicit, since their defaults have changed before."""
    jax.config.update("jax_threefry_partitionable", True)
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        # the programs of small models compile in under the default's second and would not be kept
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


def memory_limit(device: jax.Device) -> int | None:
    """Bytes of a device's memory that JAX may use; None on a CPU, and where the backend does not say."""
    if device.platform == "cpu":
        return None
    return (device.memory_stats() or {}).get("bytes_limit")


def _unless_exhausted(compile: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """(what it compiles, None), or (None, the compiler's word that there is not enough memory for it).

    A compiler that lays out the whole memory of a device, as TPUs' does, refuses here what others fail at when it runs.
    """
    try:
        return compile(), None
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return None, error


def _converted(state: State, how: Callable[[Any], Any]) -> State:
    return {**state, **{name: how(state[name]) for name in ("params", "m", "v")}}


class Engine:
    """Compiled functions and placed data of one pack. Nothing is compiled before ``compile``."""

    def __init__(
        self,
        pack: Pack,
        store: Store,
        *,
        devices: Sequence[jax.Device] | None = None,
        memory_bytes: int | None = None,
        as_accelerator: bool = False,
    ) -> None:
        """``devices``: by default all. ``memory_bytes`` of a device: by default what it says. ``as_accelerator``: a
        program for a CPU that is divided as an accelerator's would be, to learn of its memory without one."""
        configure()
        self.pack, self.store = pack, store
        shape, train, execution = pack.shape, pack.train, pack.execution
        self.n_windows = check_enough(store.n_train_tokens, train.seq_len, train.batch_size)
        # rates enter as ratios to the base rate, so one set of scales serves all replicas
        scales = resolve(shape, pack.model, train, 1.0)
        self.device = (devices or jax.local_devices())[0]
        self.memory_limit = memory_bytes or memory_limit(self.device)
        self.on_cpu = self.device.platform == "cpu" and not as_accelerator
        self.devices = devices
        unroll = min(execution.unroll or self._unroll(), shape.depth)
        self.compute = Compute(train.precision, attention_autotune.XLA, execution.remat, unroll)
        self.model = build(shape, scales, self.compute)
        self._lie(self._layout())
        self.microbatch = self._microbatch(execution.microbatch)
        self.first = (self.microbatch, self.compute.remat, self.layout)  # before any concession
        self.kernel: attention_autotune.Choice | None = None
        self.seeds = sorted({replica.seed for replica in pack.replicas})
        self.seed_of = tuple(self.seeds.index(replica.seed) for replica in pack.replicas)
        self.streamed = not resident_bytes(
            store.n_train_tokens, store.dtype.itemsize, self.memory_limit, execution.data_on_device
        )
        self.capacity = CAPACITY
        if self.streamed:
            step_bytes = len(self.seeds) * train.batch_size * (train.seq_len + 1) * store.dtype.itemsize
            self.capacity = max(1, min(self.capacity, STREAM_BYTES // step_bytes))
        self._dispatch: Any = None
        self.fixed_steps: int | None = None  # of every dispatch; None: they follow the clock
        self.compile_seconds = 0.0
        self.step_seconds: float | None = None
        self.last_steps = 1

    @cached_property
    def tokens(self) -> jax.Array:
        """The token store on the device; where batches are streamed, next to nothing in its place."""
        return self.layout.put(
            np.zeros(1, self.store.dtype) if self.streamed else self._in_vocabulary(self.store.train_tokens())
        )

    @cached_property
    def learning_rates(self) -> jax.Array:
        """Peak rate of each replica."""
        rates = np.array([replica.learning_rate for replica in self.pack.replicas], np.float32)
        return self.layout.put(rates, self.layout.by_replica)

    def _lie(self, layout: Layout) -> None:
        """Lay the pack out so, with all that follows from it."""
        self.layout, self.each = layout, layout.each(self.on_cpu)
        self._compute(placement=layout.placement)
        # an accelerator's memory is dearer, and of several hosts none has the whole state
        own = self.on_cpu and layout.placement is None and jax.process_count() == 1
        small = self.pack.shape.n_params_total <= VECTOR_PARAMETERS
        self.arrangement = (as_vector if own and small else by_leaf)(self.model)
        for placed in ("tokens", "learning_rates"):
            self.__dict__.pop(placed, None)

    def _compute(self, **changes: Any) -> None:
        """Compute the model in another way."""
        self.compute = replace(self.compute, **changes)
        self.model = build(self.pack.shape, self.model.scales, self.compute)

    def _layout(self, must_divide: bool = False) -> Layout:
        shape, train = self.pack.shape, self.pack.train
        load = Load(
            replicas=len(self.pack.replicas),
            batch=train.batch_size,
            state_bytes=STATE_ARRAYS * 4 * shape.n_params_total,
            step_flops=training_flops(shape, train.batch_size * train.seq_len),
            memory_bytes=self.memory_limit,
            on_cpu=self.on_cpu,
            must_divide=must_divide,
        )
        return Layout.of(load, self.devices, self.pack.execution.mesh)

    def _microbatch(self, asked: int | None) -> int:
        """The largest divisor of the batch that is at most ``asked``, in whole rows for every device of a model."""
        shape, batch, split = self.pack.shape, self.pack.train.batch_size, self.layout.split
        if asked is None and self.on_cpu:
            widest = max(shape.mlp_hidden, shape.vocab_size, shape.heads * shape.seq_len)
            asked = max(1, CACHE_BYTES // (4 * shape.seq_len * widest)) * split
        asked = min(asked or batch, batch)
        sizes = [n for n in range(split, batch + 1, split) if batch % n == 0]
        return max((n for n in sizes if n <= asked), default=sizes[0])

    def _unroll(self) -> int:
        shape = self.pack.shape
        wide_and_shallow = shape.width >= UNROLLED_WIDTH and shape.depth <= UNROLLED_DEPTH
        return shape.depth if self.on_cpu and wide_and_shallow else 1

    @property
    def abstract(self) -> State:
        """Shapes, dtypes and shardings of the state with its arrays by name."""
        seeds = jax.ShapeDtypeStruct((len(self.pack.replicas),), jnp.int32)
        return self._with_shardings(jax.eval_shape(lambda s: init_state(self.model, s), seeds))

    @property
    def _abstract_arranged(self) -> State:
        """The same of the state as it lies while training."""
        return self._with_shardings(jax.eval_shape(self._packed, self.abstract))

    def _with_shardings(self, shapes: State) -> State:
        shardings = self.layout.state_shardings(shapes)
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)

    def _packed(self, state: State) -> State:
        return _converted(state, lambda tree: self.arrangement.pack(tree, jnp))

    def named(self, state: State) -> State:
        """The state with its arrays by name, as checkpoints have it, from the state as ``dispatch`` has it."""
        if self.arrangement.is_tree:
            return state
        # a copy: the vector may be donated while a view of it is still being written
        apart = _converted(state, lambda vector: self.arrangement.unpack(np.array(vector), np))
        return jax.device_put(apart, self.layout.state_shardings(apart))

    def arranged(self, state: State) -> State:
        """What ``named`` was made of."""
        if self.arrangement.is_tree:
            return state
        joined = _converted(state, lambda tree: self.arrangement.pack(jax.tree.map(np.asarray, tree), np))
        return jax.device_put(joined, self.layout.state_shardings(joined))

    def compile(self, asked_kernel: str | None = None, trying: Callable[[int], None] = lambda microbatch: None) -> None:
        """Choose the attention kernel and compile, ahead of time and once, the training and the evaluation function.

        ``asked_kernel`` in place of the spec's: that of the checkpoint which training resumes from. While the program
        does not fit into the device's memory, by its own analysis or because the compiler refuses it, less is asked of
        that memory (``_concede``) and it is compiled again, after ``trying`` was called with the microbatch.

        Raises:
            jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED, when nothing is left to concede.
        """
        began = time.monotonic()
        before = self.kernel
        self.choose_kernel(asked_kernel)
        if self._dispatch is not None and before is not None and before.kernel == self.compute.kernel:
            return  # it was compiled ahead
        while True:
            self._dispatch, refusal = _unless_exhausted(self._compiled_dispatch)
            if all_agree(refusal is None and self._fits()):
                break
            if not self._concede():
                if refusal is not None:
                    raise refusal
                break  # by its own analysis only: it may still run
            trying(self.microbatch)
        split = self.layout.split
        self.eval_batch = max(1, EVAL_SEQUENCES // len(self.pack.replicas) // split) * split
        while True:
            self._evaluate, refusal = _unless_exhausted(self._compiled_evaluate)
            if all_agree(refusal is None):
                break
            if self.eval_batch == split:
                raise refusal or RuntimeError("the evaluation does not fit into another process's memory")
            self.eval_batch = max(1, self.eval_batch // 2 // split) * split
        self.compile_seconds += time.monotonic() - began

    def _fits(self) -> bool:
        needed = self.memory_bytes
        return self.memory_limit is None or needed is None or program_fits(needed, self.memory_limit)

    def _concede(self) -> bool:
        """Ask for less of the device's memory by one step, the cheapest first; False when nothing is left.

        Small microbatches cost speed on wide devices, recomputed activations a third more FLOPs, a divided state
        communication in every layer.
        """
        smaller = halved(self.pack.train.batch_size, self.microbatch, self.layout.split)
        if smaller is not None:
            self.microbatch = smaller
        elif not self.compute.remat:
            self._compute(remat=True)
        else:
            divided = self._layout(must_divide=True)
            if divided.sizes["fsdp"] <= self.layout.sizes["fsdp"]:
                return False
            self._lie(divided)
            self.microbatch = self._microbatch(self.microbatch)
        return True

    @property
    def concessions(self) -> list[str]:
        """What was given up for a program that fits, in words."""
        microbatch, remat, layout = self.first
        out = []
        if self.microbatch != microbatch:
            out.append(f"microbatch {microbatch} → {self.microbatch} of {self.pack.train.batch_size} sequences")
        if self.compute.remat != remat:
            out.append("activations recomputed")
        if self.layout != layout:
            out.append(f"parameters and moments divided over {self.layout.sizes['fsdp']} devices")
        return out

    def choose_kernel(self, asked: str | None = None) -> None:
        """Measure what attention there is, unless the spec or ``asked`` says which."""
        asked = asked or self.pack.execution.attention
        rows = self.microbatch * len(self.pack.replicas) // self.layout.size
        choice = attention_autotune.choose(asked, self.pack.shape, self.pack.train.precision, rows, self.device)
        # measured on each host, and hosts that differ would not run the same program
        names = (attention_autotune.XLA, attention_autotune.CUDNN)
        self.kernel = replace(choice, kernel=names[agreed(names.index(choice.kernel))])
        self._compute(kernel=self.kernel.kernel)

    def _compiled_evaluate(self) -> Any:
        T = self.pack.train.seq_len
        evaluate = jax.jit(make_evaluate(self.model), out_shardings=self.layout.replicated)
        windows = jax.ShapeDtypeStruct((self.eval_batch, T + 1), self.store.dtype, sharding=self.layout.by_sequence)
        return evaluate.lower(self.abstract["params"], windows).compile()

    def _compiled_dispatch(self) -> Any:
        train = self.pack.train
        state = self._abstract_arranged
        shardings = jax.tree.map(lambda x: x.sharding, state)
        axis = self.layout.batch_axis
        microbatch = self.microbatch // (self.layout.split if axis else 1)
        dispatch = make_dispatch(
            self.model, train, self.seed_of, self.capacity, microbatch, self.streamed, self.each, axis, self.arrangement
        )
        K, S, B, T = self.capacity, len(self.seeds), train.batch_size, train.seq_len
        here = self.layout.replicated
        indices = jax.ShapeDtypeStruct((K, S, B), jnp.int32, sharding=here)
        windows = jax.ShapeDtypeStruct((K, S, B, T + 1), self.store.dtype, sharding=here)
        tokens = 1 if self.streamed else self.store.n_train_tokens
        arguments = (
            state,
            jax.ShapeDtypeStruct((tokens,), self.store.dtype, sharding=here),
            windows if self.streamed else indices,
            jax.ShapeDtypeStruct((K,), jnp.float32, sharding=here),
            jax.ShapeDtypeStruct((len(self.pack.replicas),), jnp.float32, sharding=self.layout.by_replica),
            jax.ShapeDtypeStruct((), jnp.int32, sharding=here),
        )
        out = (shardings, self.layout.replicated)
        return jax.jit(dispatch, donate_argnums=0, out_shardings=out).lower(*arguments).compile()

    @property
    def facts(self) -> dict[str, Any]:
        """What the hardware decided, for the record."""
        return {
            "device_kind": self.device.device_kind,
            "devices": self.layout.size,
            "mesh": self.layout.sizes,
            "attention_kernel": self.kernel.kernel if self.kernel else None,
            "attention_why": self.kernel.why if self.kernel else None,
            "microbatch": self.microbatch,
            "remat": self.compute.remat,
            "concessions": self.concessions,
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

    @property
    def state_bytes(self) -> int:
        """Of parameters and moments on one device."""
        leaves = jax.tree.leaves(self.abstract)
        return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)

    def init(self) -> State:
        """The state before the first step."""
        began = time.monotonic()
        seeds = self.layout.put(np.array([replica.seed for replica in self.pack.replicas], np.int32))
        state = self.compiled_init()(seeds)
        jax.block_until_ready(state)
        self.compile_seconds += time.monotonic() - began
        return state

    def compiled_init(self) -> Any:
        """The program that makes this state from the replicas' seeds (R,): each device its own part."""
        shardings = jax.tree.map(lambda x: x.sharding, self._abstract_arranged)
        seeds = jax.ShapeDtypeStruct((len(self.pack.replicas),), jnp.int32, sharding=self.layout.replicated)
        make = jax.jit(lambda s: self._packed(init_state(self.model, s)), out_shardings=shardings)
        return make.lower(seeds).compile()

    def copy(self, state: State) -> State:
        """A second state that survives the donation of the first."""
        shardings = jax.tree.map(lambda x: x.sharding, state)
        return jax.jit(lambda tree: jax.tree.map(jnp.copy, tree), out_shardings=shardings)(state)

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
            return self.layout.put(indices), self.layout.put(rates)
        windows = np.zeros((*indices.shape, train.seq_len + 1), self.store.dtype)
        windows[:n] = gather(self.store.shards("train"), indices[:n].astype(np.int64), train.seq_len)
        return self.layout.put(self._in_vocabulary(windows)), self.layout.put(rates)

    def _in_vocabulary(self, tokens: np.ndarray) -> np.ndarray:
        """The same tokens. A look-up on the device would clamp what is too large, and its loss would be NaN.

        Raises:
            InputError: the store is damaged.
        """
        largest, size = int(tokens.max(initial=0)), self.pack.shape.vocab_size
        if largest >= size:
            raise InputError(
                f"token store {self.store.path}: holds token {largest}, must be below data.vocab_size {size}; "
                "it is damaged: delete it and run `dwsweep prepare` again"
            )
        return tokens

    def dispatch(self, state: State, step: int, n: int, stop: int | None) -> tuple[State, dict[str, jax.Array]]:
        """Put ``n`` steps from ``step`` on in the device's queue; ``state`` is consumed. Returns without waiting."""
        batches, rates = self._batches(step, n, stop)
        return self._dispatch(state, self.tokens, batches, rates, self.learning_rates, self.layout.put(np.int32(n)))

    def evaluate(self, state: State, heldout: HeldoutSet) -> list[HeldoutLoss]:
        """Held-out loss of each replica."""

        def call(params: Any, windows: np.ndarray) -> jax.Array:
            return self._evaluate(params, self.layout.put(windows, self.layout.by_sequence))

        self._in_vocabulary(heldout.windows)
        return heldout_losses(call, self.named(state)["params"], heldout, self.eval_batch)
