"""Parameters as one vector: nothing is lost on the way, every element keeps its settings, and a step is the same.

That a checkpoint holds them by name, ``test_mesh`` shows: a tree's is resumed as a vector.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from train_support import OPTIMIZED, make_model, make_spec

from dwsweep.train.optimizer import as_vector, by_leaf, settings_by_group


def test_an_update_is_the_same_to_the_last_bit() -> None:
    """No parameter is lost on the way, and each element keeps its settings, or its update would be another's."""
    block = {"base_width": 16, "base_depth": 1, "mlp": "gated", "positions": "rotary", "norm": "post"}
    spec = make_spec(model={"parametrization": "completep", **block})
    model = make_model(spec, width=32)
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
