"""The update of a replica against Optax's own AdamW, and the schedule against Optax's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dwsweep.model.parametrization import resolve
from dwsweep.model.transformer import build, group_of
from dwsweep.spec import ModelSpec, parse_spec
from dwsweep.train.optimizer import adamw, clip
from dwsweep.train.schedule import multipliers


def spec_of(**train):
    content = {"name": "t", "grid": {"widths": {2: [16]}}, "train": {"seq_len": 8, "steps": 20, **train}}
    return parse_spec({**content, "data": {"vocab_size": 256}})


def test_three_updates_equal_optax_adamw() -> None:
    spec = spec_of(weight_decay=0.3, epsilon=1e-6)
    shape = spec.block().shape(2, 16)
    rate = 3e-3
    # under `standard` all groups share rate and epsilon, so one optax.adamw with a mask for the decay says the same
    scales = resolve(shape, ModelSpec(parametrization="standard"), spec.train, rate)
    params = build(shape, scales).init(jax.random.key(0))
    mask = jax.tree_util.tree_map_with_path(lambda path, _: group_of(path, scales).weight_decay > 0, params)
    reference = optax.chain(
        optax.clip_by_global_norm(0.5), optax.adamw(rate, 0.9, 0.95, eps=1e-6, weight_decay=0.3, mask=mask)
    )
    theirs, memory = params, reference.init(params)
    ours, m, v = params, *(jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    for step in range(3):
        keys = iter(jax.random.split(jax.random.key(step + 1), len(jax.tree.leaves(params))))
        grads = jax.tree.map(lambda p, keys=keys: jax.random.normal(next(keys), p.shape), params)
        updates, memory = reference.update(grads, memory, theirs)
        theirs = optax.apply_updates(theirs, updates)
        grads = clip(grads, optax.tree.norm(grads), 0.5)
        alive = jnp.array(True)
        ours, m, v = adamw(ours, m, v, grads, jnp.int32(step), jnp.float32(rate), alive, scales, spec.train)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=1e-7)


def test_a_replica_that_is_not_alive_keeps_its_state() -> None:
    spec = spec_of()
    shape = spec.block().shape(2, 16)
    scales = resolve(shape, spec.model, spec.train, 1e-3)
    params = build(shape, scales).init(jax.random.key(0))
    nan = jax.tree.map(lambda p: jnp.full_like(p, jnp.nan), params)
    zeros = jax.tree.map(jnp.zeros_like, params)
    dead = jnp.array(False)
    new, m, v = adamw(params, zeros, zeros, nan, jnp.int32(0), jnp.float32(1e-3), dead, scales, spec.train)
    jax.tree.map(np.testing.assert_array_equal, (new, m, v), (params, zeros, zeros))


def test_cosine_with_warmup_equals_optax() -> None:
    train = spec_of(steps=100, warmup_steps=10, schedule="cosine").train
    reference = optax.warmup_cosine_decay_schedule(0.0, 1.0, 10, 100)
    # ours counts the step that is being taken, so the first one already has a rate and the last one is not wasted
    ours = multipliers(0, 100, 100, train)
    assert ours[0] > 0
    assert ours.max() == 1
    np.testing.assert_allclose(ours[:10], [reference(s + 1) for s in range(10)], atol=1e-6)
    np.testing.assert_allclose(ours[10:], [reference(s) for s in range(10, 100)], atol=0.02)
