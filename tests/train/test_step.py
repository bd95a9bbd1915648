"""One step: the update against optax, microbatches against the batch, a known step, the packs' independence."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from train_support import FEW, make_model, make_spec

from dwsweep.train.choices import configure
from dwsweep.train.optimizer import by_leaf, clip_by_norm
from dwsweep.train.step import PATIENCE, init_state, loss_and_grads, make_dispatch, sequentially, vectorized

configure()
SPEC = make_spec()


def test_adamw_is_optax_with_one_transform_a_group() -> None:
    model = make_model(make_spec(model={"biases": False}), width=32)  # m_N = 2: the groups differ
    params = jax.jit(model.init)(jax.random.key(0))
    spec, rate = make_spec(train={"grad_clip": 0.5}), 3e-2
    reference = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.multi_transform(
            {
                name: optax.adamw(rate * g.learning_rate, 0.9, 0.95, g.epsilon, weight_decay=g.weight_decay)
                for name, g in model.scales.groups().items()
            },
            model.groups,
        ),
    )
    ours_too = by_leaf(model).optimizer(spec.train)

    @jax.jit
    def their_step(params: Any, state: Any, grads: Any) -> Any:
        updates, state = reference.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    @jax.jit
    def our_step(params: Any, moments: Any, grads: Any, step: jax.Array) -> Any:
        norm = optax.tree.norm(grads)
        return ours_too.update(grads, moments, params, step=step, norm=norm, rate=jnp.float32(rate))

    ours, theirs, state = params, params, reference.init(params)
    moments = ours_too.init(params)
    assert moments.keys() == {"m", "v"}
    random = np.random.default_rng(0)
    for step in range(3):
        grads = jax.tree.map(lambda p: jnp.array(random.normal(size=p.shape), jnp.float32), params)
        theirs, state = their_step(theirs, state, grads)
        ours, moments = our_step(ours, moments, grads, jnp.int32(step))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-7), ours, theirs)


def test_gradients_above_the_limit_are_scaled_to_it() -> None:
    grads = {"a": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}
    assert optax.tree.norm(grads) == 5

    def clip(limit: float | None) -> Any:
        return clip_by_norm(limit).update(grads, optax.EmptyState(), norm=jnp.float32(5))[0]

    np.testing.assert_allclose(clip(1.0)["a"], [0.6, 0.0], rtol=1e-6)
    assert clip(10.0)["b"] == 4
    assert clip(None) is grads


@pytest.mark.device
def test_microbatches_add_up_to_the_batch() -> None:
    model = make_model(make_spec(model=FEW))
    params, tree = jax.jit(model.init)(jax.random.key(0)), by_leaf(model)
    windows = jax.random.randint(jax.random.key(7), (4, 17), 0, 256)
    whole, parts = (jax.jit(lambda p, w, n=n: loss_and_grads(model, p, w, n, tree))(params, windows) for n in (4, 2))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7), whole, parts)


CAPACITY = PATIENCE + 20


@cache
def compiled(replica_map: Any = vectorized) -> tuple[Any, Any]:
    """(initial state of a seed each, dispatch) of three replicas: one program for every number of steps and rate."""
    model = make_model()
    dispatch = make_dispatch(model, SPEC.train, (0, 1, 2), CAPACITY, 4, False, replica_map)
    return jax.jit(lambda s: init_state(model, SPEC.train, s)), jax.jit(dispatch)


def run(rates: list[float], steps: int, replica_map: Any = vectorized, **changed: Any) -> tuple[Any, Any]:
    """State and metrics (rows of the steps taken) of seeds 0, 1 and 2 after ``steps`` steps.

    From the start, or from a state with parts ``changed``.
    """
    init, dispatch = compiled(replica_map)
    tokens = jax.random.randint(jax.random.key(5), (2000,), 0, 256).astype(jnp.uint16)
    indices = jnp.stack([jax.random.randint(jax.random.key(s), (CAPACITY, 4), 0, 120) for s in range(3)], axis=1)
    state = {**init(jnp.arange(3)), **changed}
    state, metrics = dispatch(state, tokens, indices, jnp.ones(CAPACITY), jnp.array(rates), jnp.int32(steps))
    return state, {**metrics, **{name: metrics[name][:steps] for name in ("loss", "grad_norm")}}


GOLDEN_LOSSES = [[5.54843, 5.54591], [5.55095, 5.52991], [5.54948, 5.54547]]  # three steps of two seeds


@pytest.mark.device
def test_a_known_first_step() -> None:
    """A golden step: if it moves, old checkpoints and results are no longer comparable; say so where you change it."""
    (first, _), (state, metrics) = (run([1e-2, 1e-2, 1e-2], steps) for steps in (1, 3))
    losses = np.asarray(metrics["loss"])[:, :2]
    assert abs(losses[0] - math.log(256)).max() < 0.02
    np.testing.assert_allclose(losses, GOLDEN_LOSSES, atol=2e-4)
    # Adam's first step has size η·ratio on every parameter with a gradient that is not tiny
    start = compiled()[0](jnp.arange(3))["params"]
    moved = np.abs(np.asarray(first["params"]["unembedding"]) - np.asarray(start["unembedding"]))
    assert np.median(moved) == pytest.approx(1e-2, rel=0.01)
    assert int(state["step"]) == 3


@pytest.mark.device
def test_replicas_one_after_another_and_vectorized_agree() -> None:
    """Two programs for the same arithmetic; the batched one may add in another order."""
    one, other = (run([1e-2, 1e-3, 1e-2], 4, how) for how in (vectorized, sequentially))
    np.testing.assert_allclose(one[1]["loss"], other[1]["loss"], rtol=1e-5)
    np.testing.assert_allclose(one[0]["params"]["embedding"], other[0]["params"]["embedding"], atol=1e-4)


def test_a_loss_above_the_bound_for_long_is_divergence() -> None:
    """Finite but hopeless: a rate of 5 keeps the loss far above ln V + 3 until patience ends."""
    state, metrics = run([5.0, 1e-3, 1e-3], CAPACITY)
    losses = np.asarray(metrics["loss"])
    bound = math.log(256) + 3
    first_bad = int(np.argmax(losses[SPEC.train.warmup_steps :, 0] > bound)) + SPEC.train.warmup_steps
    assert np.isfinite(losses[: first_bad + PATIENCE, 0]).all()
    assert (losses[first_bad : first_bad + PATIENCE, 0] > bound).all()
    assert state["alive"].tolist() == [False, True, True]
    assert int(state["diverged_step"][0]) == first_bad + PATIENCE
    frozen = losses[first_bad + PATIENCE :, 0]
    assert len(frozen) > 3 and int(state["diverged_step"][1]) == -1


def test_a_replica_that_has_ended_keeps_its_state() -> None:
    """Also in the step in which it ends: what is not finite reaches neither parameters nor moments."""
    state = jax.device_get(compiled()[0](jnp.arange(3)))  # to NumPy: JAX compiles a program for each shape it indexes
    bad = state["params"]["unembedding"].copy()
    bad[2, 0, 0] = np.inf
    state |= {"alive": np.array([False, True, True]), "params": {**state["params"], "unembedding": bad}}
    after, _ = jax.device_get(run([1e-2] * 3, 2, alive=state["alive"], params=state["params"]))
    assert after["alive"].tolist() == [False, True, False] and after["diverged_step"].tolist() == [-1, -1, 1]
    for name in ("params", "m", "v"):
        for old, new in zip(*map(jax.tree.leaves, (state[name], after[name])), strict=True):
            np.testing.assert_array_equal(new[[0, 2]], old[[0, 2]])
        moved = [
            np.abs(new[1] - old[1]).max()
            for old, new in zip(*map(jax.tree.leaves, (state[name], after[name])), strict=True)
        ]
        assert min(moved) > 0 or name == "v"
