"""A replica that has ended keeps its state, and the schedule is Optax's; the update itself: test_train_step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import build
from dwsweep.spec import parse_spec
from dwsweep.train.lr_schedule import multipliers
from dwsweep.train.optimizer import adamw, settings_of


def spec_of(**train):
    content = {"name": "t", "grid": {"widths": {2: [16]}}, "train": {"seq_len": 8, "steps": 20, **train}}
    return parse_spec({**content, "data": {"vocab_size": 256}})


def test_a_replica_that_is_not_alive_keeps_its_state() -> None:
    spec = spec_of()
    shape = spec.block().shape(2, 16)
    scales = resolve(shape, spec.model, spec.train, 1e-3)
    params = build(shape, scales).init(jax.random.key(0))
    nan = jax.tree.map(lambda p: jnp.full_like(p, jnp.nan), params)
    zeros = jax.tree.map(jnp.zeros_like, params)
    dead = jnp.array(False)
    settings = settings_of(params, scales)
    new, m, v = adamw(params, zeros, zeros, nan, jnp.int32(0), jnp.float32(1e-3), dead, settings, spec.train)
    jax.tree.map(np.testing.assert_array_equal, (new, m, v), (params, zeros, zeros))


def test_cosine_with_warmup_equals_optax() -> None:
    """Ours counts the step that is being taken: the first one already has a rate, and no step is wasted at zero."""
    train = spec_of(steps=100, warmup_steps=10, schedule="cosine").train
    reference = optax.warmup_cosine_decay_schedule(0.0, 1.0, 10, 100)
    ours = multipliers(0, 100, 100, train)
    np.testing.assert_allclose(ours[:10], [reference(s + 1) for s in range(10)], atol=1e-6)
    np.testing.assert_allclose(ours[10:], [reference(s) for s in range(10, 100)], atol=1e-6)
