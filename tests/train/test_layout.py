"""Parameters as one vector: nothing is lost on the way, every element keeps its settings, and a step is the same."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from train_support import OPTIMIZED, make_pack, make_spec

from dwsweep.data.token_store import Store
from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import Model, build
from dwsweep.train.optimizer import as_vector, by_leaf, settings_by_group
from dwsweep.train.program import Blueprint, Program
from dwsweep.train.step import init_state


def make_model(width: int = 32, **options: Any) -> Model:
    spec = make_spec(model={"parametrization": "completep", "base_width": 16, "base_depth": 1, **options})
    shape = spec.block().shape(2, width)
    return build(shape, resolve(shape, spec.model, spec.train, 1.0))


def test_an_update_is_the_same_to_the_last_bit() -> None:
    """No parameter is lost on the way, and each element keeps its settings, or its update would be another's."""
    spec, model = make_spec(), make_model(mlp="gated", positions="rotary", norm="post")
    assert len({settings_by_group(model)[name] for name in jax.tree.leaves(model.groups)}) >= 3
    random = np.random.default_rng(0)
    draw = lambda: jax.tree.map(lambda x: random.normal(size=x.shape).astype(np.float32), model.declared)  # noqa: E731
    params, m, grads = draw(), draw(), draw()
    v = jax.tree.map(np.square, draw())

    def update(layout: Any) -> Any:
        @partial(jax.jit, compiler_options=OPTIMIZED)
        def run(*trees: Any) -> Any:
            params, m, v, grads = (layout.pack(one, jnp) for one in trees)
            step, norm, rate = jnp.int32(4), jnp.float32(0.7), jnp.float32(1e-2)
            optimizer = layout.optimizer(spec.train)
            params, moments = optimizer.update(grads, {"m": m, "v": v}, params, step=step, norm=norm, rate=rate)
            return [layout.unpack(one, jnp) for one in (params, moments["m"], moments["v"])]

        return run(params, m, v, grads)

    jax.tree.map(np.testing.assert_array_equal, update(as_vector(model)), update(by_leaf(model)))


def test_a_program_gives_its_state_by_name_and_takes_it_back(store: Store, tmp_path: Any) -> None:
    blueprint = Blueprint.of(make_pack(store), store)
    state, _ = Program(blueprint, store, blueprint.choices, None, None, 1, 0.0).init()
    assert state["params"].ndim == 2  # on a CPU: a vector for each replica
    named = blueprint.named(state)
    expected = jax.jit(lambda s: init_state(blueprint.model, blueprint.pack.train, s))(jnp.arange(2))
    jax.tree.map(np.testing.assert_array_equal, named, expected)
    assert jax.tree.map(lambda x: (x.shape, x.dtype, x.sharding), named) == jax.tree.map(
        lambda x: (x.shape, x.dtype, x.sharding), blueprint.abstract
    )
    jax.tree.map(np.testing.assert_array_equal, blueprint.laid_out(named), state)
