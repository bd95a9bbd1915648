"""The compiled program of a pack: many steps per dispatch, the held-out loss, the state before the first step.

``compile_program`` makes a ``Program`` of a ``Blueprint``; neither changes afterwards: the state is passed in and out.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dwsweep.cost.arithmetic import program_fits
from dwsweep.data.batches import check_enough, window_indices
from dwsweep.data.heldout import HeldoutSet
from dwsweep.data.token_store import Store, windows_of
from dwsweep.errors import InputError
from dwsweep.model.attention import SEQUENCES, mean_condition
from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import Model, build
from dwsweep.plan import Pack
from dwsweep.plan.schedule import multipliers
from dwsweep.records import footing
from dwsweep.records.pack import StartFacts
from dwsweep.train.choices import (
    Choices,
    Hardware,
    TokensView,
    choose,
    concessions,
    pack_seeds,
    reduce_memory,
    too_large,
    with_kernel,
)
from dwsweep.train.mesh import Layout, all_agree, gathered
from dwsweep.train.optimizer import ParamLayout, as_vector, by_leaf
from dwsweep.train.step import REST, HeldoutLoss, State, heldout_losses, init_state, make_dispatch, make_evaluate

CPU_COMPILER: dict[str, str | bool] = {"xla_backend_optimization_level": "1"}
"""Options of XLA's compiler for a CPU. At LLVM's first level programs compile in a seventh less time than at its third,
the default, to steps as fast and to the same bits. Accelerators keep the default, since LLVM makes their kernels."""
EVAL_SEQUENCES = 64
"""Held-out windows per call over all replicas, at least one each."""


@dataclass(frozen=True)
class Blueprint:
    """Blueprint of a pack: its functions and the shapes of their arguments, before compilation."""

    pack: Pack
    tokens: TokensView
    choices: Choices
    model: Model  # program compiled by the choices

    @classmethod
    def of(cls, pack: Pack, tokens: TokensView, hardware: Hardware | None = None) -> Blueprint:
        """Build from the choices for the pack on ``hardware``, by default this host's devices.

        Raises:
            InputError: there is less text than a batch takes, or the devices cannot be divided as in the spec.
        """
        check_enough(tokens.n_train_tokens, pack.train.seq_len, pack.train.batch_size)
        choices = choose(pack, tokens, hardware)
        # rates enter as ratios to the base rate, so one set of scales serves all replicas
        scales = resolve(pack.shape, pack.model, pack.train, 1.0)
        return cls(pack, tokens, choices, build(pack.shape, scales, choices.compute))

    def under(self, choices: Choices) -> Blueprint:
        """Rebuild under other choices; the model is built again only where they compute it differently."""
        same = choices.compute == self.model.compute
        model = self.model if same else build(self.pack.shape, self.model.scales, choices.compute)
        return replace(self, choices=choices, model=model)

    @property
    def layout(self) -> Layout:
        return self.choices.layout

    @cached_property
    def compiler_options(self) -> dict[str, str | bool] | None:
        """Options of XLA's compiler for this pack's programs; what ``XLA_FLAGS`` sets stands."""
        given = os.environ.get("XLA_FLAGS", "")
        own = {name: value for name, value in CPU_COMPILER.items() if f"--{name}" not in given}
        return own if own and self.choices.hardware.on_cpu else None

    @cached_property
    def param_layout(self) -> ParamLayout:
        """Layout of the parameters in the training loop."""
        return (as_vector if self.choices.as_vector else by_leaf)(self.model)

    @cached_property
    def abstract(self) -> State:
        """Shapes, dtypes and shardings of the state with arrays by name, for checkpoints."""
        return self._abstract(None)

    @cached_property
    def _abstract_laid_out(self) -> State:
        """Shapes, dtypes and shardings of the state as it lies while training."""
        return self._abstract(self.param_layout)

    def _abstract(self, layout: ParamLayout | None) -> State:
        seeds = jax.ShapeDtypeStruct((len(self.pack.replicas),), jnp.int32)
        shapes = jax.eval_shape(lambda s: init_state(self.model, self.pack.train, s, layout), seeds)
        shardings = self.layout.state_shardings(shapes)
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)

    def named(self, state: State) -> State:
        """State with arrays by name, for checkpoints, from the state of ``dispatch``."""
        if self.param_layout.is_tree:
            return state
        # a copy: the vector may be donated while a view of it is still being written
        return self._converted(state, lambda vector: self.param_layout.unpack(np.array(vector), np))

    def laid_out(self, state: State) -> State:
        """State for ``dispatch`` from the state with arrays by name: the inverse of ``named``."""
        if self.param_layout.is_tree:
            return state
        return self._converted(state, lambda tree: self.param_layout.pack(jax.tree.map(np.asarray, tree), np))

    def _converted(self, state: State, how: Callable[[Any], Any]) -> State:
        converted = {name: arrays if name in REST else how(arrays) for name, arrays in state.items()}
        return jax.device_put(converted, self.layout.state_shardings(converted))

    @property
    def state_bytes(self) -> int:
        """Bytes of parameters and moments on one device."""
        leaves = jax.tree.leaves(self.abstract)
        return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)

    def compiled_init(self) -> Any:
        """The program that makes the state from the replicas' seeds (R,): each device its own part."""
        shardings = jax.tree.map(lambda x: x.sharding, self._abstract_laid_out)
        seeds = jax.ShapeDtypeStruct((len(self.pack.replicas),), jnp.int32, sharding=self.layout.replicated)
        make = jax.jit(lambda s: init_state(self.model, self.pack.train, s, self.param_layout), out_shardings=shardings)
        return make.lower(seeds).compile(self.compiler_options)

    def compiled_evaluate(self, batch: int) -> Any:
        """The program (parameters by name, ``batch`` windows) → nats of each target."""
        T = self.pack.train.seq_len
        evaluate = jax.jit(make_evaluate(self.model), out_shardings=self.layout.replicated)
        windows = jax.ShapeDtypeStruct((batch, T + 1), self.tokens.dtype, sharding=self.layout.by_sequence)
        return evaluate.lower(self.abstract["params"], windows).compile(self.compiler_options)

    def compiled_heads(self) -> Any:
        """The program (parameters by name, windows (B, T + 1)) → outputs of all blocks' heads (R, L, B, T, H·P).

        In float32 whatever the precision of training, which would hide the smallest singular values.
        """
        compute = replace(self.model.compute, dtype="float32", kernel="xla", remat=False)
        model = build(self.pack.shape, self.model.scales, compute)

        def one(params: Any, windows: jax.Array) -> jax.Array:
            return model.heads(params, windows[:, :-1].astype(jnp.int32))

        split = self.layout.split
        batch = math.ceil(SEQUENCES / split) * split
        # every device has all windows: a CPU exchanges nothing
        here = self.layout.replicated
        windows = jax.ShapeDtypeStruct((batch, self.pack.train.seq_len + 1), self.tokens.dtype, sharding=here)
        with jax.default_matmul_precision("highest"):
            heads = jax.jit(jax.vmap(one, in_axes=(0, None)), out_shardings=here)
            return heads.lower(self.abstract["params"], windows).compile(self.compiler_options)

    def compiled_dispatch(self) -> Any:
        """The program of many steps: see ``step.make_dispatch``."""
        train, choices, seeds = self.pack.train, self.choices, pack_seeds(self.pack)
        state = self._abstract_laid_out
        shardings = jax.tree.map(lambda x: x.sharding, state)
        axis = self.layout.batch_axis
        dispatch = make_dispatch(
            self.model,
            train,
            seed_of=tuple(seeds.index(replica.seed) for replica in self.pack.replicas),
            capacity=choices.capacity,
            microbatch=choices.microbatch // (self.layout.split if axis else 1),
            streamed=choices.streamed,
            replica_map=self.layout.replica_map(choices.hardware.on_cpu),
            batch_axis=axis,
            layout=self.param_layout,
        )
        K, S, B, T = choices.capacity, len(seeds), train.batch_size, train.seq_len
        here = self.layout.replicated
        indices = jax.ShapeDtypeStruct((K, S, B), jnp.int32, sharding=here)
        windows = jax.ShapeDtypeStruct((K, S, B, T + 1), self.tokens.dtype, sharding=here)
        tokens = 1 if choices.streamed else self.tokens.n_train_tokens
        arguments = (
            state,
            jax.ShapeDtypeStruct((tokens,), self.tokens.dtype, sharding=here),
            windows if choices.streamed else indices,
            jax.ShapeDtypeStruct((K,), jnp.float32, sharding=here),
            jax.ShapeDtypeStruct((len(self.pack.replicas),), jnp.float32, sharding=self.layout.by_replica),
            jax.ShapeDtypeStruct((), jnp.int32, sharding=here),
        )
        program = jax.jit(dispatch, donate_argnums=0, out_shardings=(shardings, here))
        return program.lower(*arguments).compile(self.compiler_options)


@dataclass(frozen=True)
class Program:
    """The compiled functions of a pack, and its data on the devices."""

    blueprint: Blueprint
    store: Store
    first: Choices  # choices before any memory saving
    run_dispatch: Any
    run_evaluate: Any
    eval_batch: int  # windows per call of the evaluation
    compile_seconds: float
    run_heads: Any = None  # attention heads, if the spec measures their conditioning

    @property
    def choices(self) -> Choices:
        return self.blueprint.choices

    @property
    def concessions(self) -> list[str]:
        """Words for the memory savings that let the program fit."""
        return concessions(self.first, self.choices, self.blueprint.pack)

    def facts(self, compile_seconds: float, step: int) -> StartFacts:
        """Facts of the pack on its hardware, for the record; training begins at ``step``."""
        choices = self.choices
        here = footing.here(
            self.blueprint.pack.execution.workers, choices.hardware.device.client.platform_version.splitlines()[0]
        )
        options = {name: str(value) for name, value in (self.blueprint.compiler_options or {}).items()}
        return StartFacts(
            device_kind=choices.hardware.device.device_kind,
            devices=choices.layout.size,
            mesh=choices.layout.sizes,
            attention_kernel=choices.compute.kernel,
            attention_why=choices.attention_why,
            microbatch=choices.microbatch,
            remat=choices.compute.remat,
            unroll=choices.compute.unroll,
            concessions=tuple(self.concessions),
            streamed=choices.streamed,
            pack_size=len(self.blueprint.pack.replicas),
            compile_seconds=compile_seconds,
            step=step,
            footing=replace(here, flags={**here.flags, **options}),
        )

    @property
    def memory_bytes(self) -> int | None:
        """Bytes of the training program on one device, by its own analysis; None if the backend gives none."""
        return memory_of(self.run_dispatch)

    @cached_property
    def tokens(self) -> jax.Array:
        """The token store on the device; if batches are streamed, a tiny array in its place."""
        store = self.store
        return self.choices.layout.put(
            np.zeros(1, store.dtype) if self.choices.streamed else self._in_vocabulary(store.tokens("train"))
        )

    @cached_property
    def learning_rates(self) -> jax.Array:
        """Peak rate of each replica."""
        rates = np.array([replica.learning_rate for replica in self.blueprint.pack.replicas], np.float32)
        return self.choices.layout.put(rates, self.choices.layout.by_replica)

    @cached_property
    def run_init(self) -> Any:
        """The compiled function from seeds to a state, apart from the others: a pack that resumes does not need it."""
        return self.blueprint.compiled_init()

    def init(self) -> tuple[State, float]:
        """(the state before the first step, seconds that it took to compile and make it)."""
        began = time.monotonic()
        seeds = np.array([replica.seed for replica in self.blueprint.pack.replicas], np.int32)
        state = self.run_init(self.choices.layout.put(seeds))
        jax.block_until_ready(state)
        return state, time.monotonic() - began

    def copy(self, state: State) -> State:
        """Copy of the state, which survives the donation of the first."""
        shardings = jax.tree.map(lambda x: x.sharding, state)
        return jax.jit(lambda tree: jax.tree.map(jnp.copy, tree), out_shardings=shardings)(state)

    def dispatch(self, state: State, step: int, n: int, stop: int | None) -> tuple[State, dict[str, jax.Array]]:
        """Put ``n`` steps from ``step`` on in the device's queue; ``state`` is consumed. Returns without waiting.

        ``stop``: the length of the run that the steps belong to, as ``plan.schedule.multipliers`` takes it.
        """
        batches, rates = self._batches(step, n, stop)
        steps = self.choices.layout.put(np.int32(n))
        return self.run_dispatch(state, self.tokens, batches, rates, self.learning_rates, steps)

    def _batches(self, step: int, n: int, stop: int | None) -> tuple[jax.Array, jax.Array]:
        train, store, capacity = self.blueprint.pack.train, self.store, self.choices.capacity
        put, seeds = self.choices.layout.put, pack_seeds(self.blueprint.pack)
        n_windows = check_enough(store.n_train_tokens, train.seq_len, train.batch_size)
        indices = np.zeros((capacity, len(seeds), train.batch_size), np.int32)
        for row, seed in enumerate(seeds):
            indices[:n, row] = window_indices(seed, step, n, train.batch_size, n_windows)
        rates = np.zeros(capacity, np.float32)
        rates[:n] = multipliers(step, n, stop, train)
        if not self.choices.streamed:
            return put(indices), put(rates)
        batches = np.zeros((*indices.shape, train.seq_len + 1), store.dtype)
        batches[:n] = windows_of(store.tokens("train"), indices[:n], train.seq_len)
        return put(self._in_vocabulary(batches)), put(rates)

    def _in_vocabulary(self, tokens: np.ndarray) -> np.ndarray:
        """Check that tokens are in the vocabulary, and return them. A look-up on the device would clamp larger ones,
        and the loss would be NaN.

        Raises:
            InputError: the store is damaged.
        """
        largest, size = int(tokens.max(initial=0)), self.blueprint.pack.shape.vocab_size
        if largest >= size:
            raise InputError(
                f"token store {self.store.path}: holds token {largest}, must be below data.vocab_size {size}; "
                "it is damaged: delete it and run `dwsweep prepare` again"
            )
        return tokens

    def evaluate(self, state: State, heldout: HeldoutSet) -> list[HeldoutLoss]:
        """Held-out loss of each replica."""

        def call(params: Any, windows: np.ndarray) -> jax.Array:
            return self.run_evaluate(params, self.choices.layout.put(windows, self.choices.layout.by_sequence))

        self._in_vocabulary(heldout.windows)
        return heldout_losses(call, self.blueprint.named(state)["params"], heldout, self.eval_batch)

    def params(self, state: State, replicas: Sequence[int]) -> dict[int, dict[str, np.ndarray]]:
        """Parameters of some replicas on the host, float32, by their dotted name. Every process has to call this.

        Array by array, so that no device has to hold a divided model whole.
        """
        found: dict[int, dict[str, np.ndarray]] = {i: {} for i in replicas}
        for path, leaf in jax.tree_util.tree_leaves_with_path(self.blueprint.named(state)["params"]):
            whole = gathered(leaf)
            for i in replicas:
                found[i][".".join(str(key.key) for key in path)] = whole[i].copy()
        return found

    def conditions(self, state: State, heldout: HeldoutSet) -> np.ndarray:
        """Condition number of each block's attention under each replica's parameters, (R, L); NaN if there is none.

        The geometric mean over the first held-out windows (see ``model.attention``).
        """
        (batch, _) = self.run_heads.in_avals[0][1].shape
        n = min(SEQUENCES, len(heldout.windows))
        windows = np.resize(heldout.windows[:n], (batch, heldout.windows.shape[1]))
        put = self.choices.layout.put(self._in_vocabulary(windows))
        heads = jax.device_get(self.run_heads(self.blueprint.named(state)["params"], put))
        return mean_condition(heads[:, :, :n])


def compile_program(
    blueprint: Blueprint,
    store: Store,
    asked_kernel: str | None = None,
    trying: Callable[[int], None] = lambda microbatch: None,
) -> Program:
    """Choose the attention kernel and compile the training and the evaluation function.

    ``asked_kernel`` in place of the spec's: that of the checkpoint which training resumes from. While the program does
    not fit into the device's memory, by its own analysis or because the compiler refuses it, less is asked of that
    memory (``choices.reduce_memory``) and it is compiled again, after ``trying`` was called with the microbatch.

    Raises:
        jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED, when the memory cannot be reduced further.
    """
    began = time.monotonic()
    first, blueprint, dispatch, refusal = fitting_dispatch(blueprint, asked_kernel, trying)
    if refusal is not None:
        raise refusal
    pack = blueprint.pack
    split = blueprint.layout.split
    batch = max(1, EVAL_SEQUENCES // len(pack.replicas) // split) * split
    while True:
        evaluate, refusal = _unless_exhausted(partial(blueprint.compiled_evaluate, batch))
        if all_agree(refusal is None):
            break
        if batch == split:
            raise refusal or RuntimeError("the evaluation does not fit into another process's memory")
        batch = max(1, batch // 2 // split) * split
    heads = blueprint.compiled_heads() if pack.train.conditioning else None
    return Program(blueprint, store, first, dispatch, evaluate, batch, time.monotonic() - began, heads)


def fitting_dispatch(
    blueprint: Blueprint, asked_kernel: str | None = None, trying: Callable[[int], None] = lambda microbatch: None
) -> tuple[Choices, Blueprint, Any, Exception | None]:
    """Choose the largest microbatch that fits and compile its training function (first part of ``compile_program``).

    Returns:
        (the choices before any concession, the blueprint that was compiled, the compiled function, the refusal). The
        refusal is the compiler's RESOURCE_EXHAUSTED when the memory cannot be reduced; the function is None then.
    """
    pack = blueprint.pack
    first = with_kernel(blueprint.choices, pack, asked_kernel)
    blueprint = blueprint.under(first)
    while True:
        less = reduce_memory(blueprint.choices, pack)
        if less is not None and too_large(blueprint.choices, pack):
            blueprint = blueprint.under(less)
            continue
        dispatch, refusal = _unless_exhausted(blueprint.compiled_dispatch)
        if all_agree(refusal is None and fits(dispatch, first.hardware.memory_bytes)):
            return first, blueprint, dispatch, None
        if less is None:  # only its own analysis calls it too large: it may still run
            return first, blueprint, dispatch, refusal
        blueprint = blueprint.under(less)
        trying(less.microbatch)


def _unless_exhausted(compile: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """(compiled program, None), or (None, the compiler's out-of-memory message).

    A compiler that lays out the whole memory of a device, as TPUs' does, reports out of memory at compile time, others
    when the program runs.
    """
    try:
        return compile(), None
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return None, error


def fits(compiled: Any, limit: int | None) -> bool:
    needed = memory_of(compiled)
    return limit is None or needed is None or program_fits(needed, limit)


def memory_of(compiled: Any) -> int | None:
    """Bytes of a compiled program on one device, by its own analysis; None if the backend gives none."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    held = analysis.argument_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return int(held + analysis.temp_size_in_bytes)
