"""The same decoder-only transformer in plain JAX, as one would write it in an afternoon: one jitted step, Optax.

In the manner of nanodo: blocks one after another, in a Python loop or in ``jax.lax.scan``; softmax attention by
``einsum``; derivatives by ``jax.grad``; ``optax.adamw`` behind ``optax.clip_by_global_norm``; batches gathered on the
host; JAX's own choice of devices and threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dwsweep.shapes import Shape
from dwsweep.spec import TrainSpec

Params = dict[str, Any]


def unstacked(params: Mapping[str, Any], depth: int) -> Params:
    """The parameters of a ``dwsweep`` model (without a replica axis), its blocks a list of trees."""
    return {**params, "blocks": [jax.tree.map(lambda leaf, i=i: leaf[i], params["blocks"]) for i in range(depth)]}


def norm(x: jax.Array, p: Params) -> jax.Array:
    mean, variance = jnp.mean(x, -1, keepdims=True), jnp.var(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["gain"] + p["bias"]


def linear(x: jax.Array, p: Params) -> jax.Array:
    return x @ p["kernel"] + p["bias"]


def block(x: jax.Array, p: Params, shape: Shape) -> jax.Array:
    B, T, _ = x.shape
    qkv = linear(norm(x, p["attention_norm"]), p["attention"]["qkv"]).reshape(B, T, 3, shape.heads, -1)
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    scores = jnp.einsum("bthp,bshp->bhts", q, k) / math.sqrt(shape.head_size)
    weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((T, T), bool)), scores, -1e30), axis=-1)
    mixed = jnp.einsum("bhts,bshp->bthp", weights, v).reshape(B, T, -1)
    x = x + linear(mixed, p["attention"]["out"])
    h = jax.nn.gelu(linear(norm(x, p["mlp_norm"]), p["mlp"]["up"]), approximate=True)
    return x + linear(h, p["mlp"]["down"])


def loss(params: Params, windows_BxT1: jax.Array, shape: Shape) -> jax.Array:
    """Mean next-token loss in nats."""
    tokens, targets = windows_BxT1[:, :-1], windows_BxT1[:, 1:]
    x = params["embedding"][tokens] + params["positions"][: tokens.shape[1]]
    if isinstance(params["blocks"], list):
        for p in params["blocks"]:
            x = block(x, p, shape)
    else:
        x, _ = jax.lax.scan(lambda x, p: (block(x, p, shape), None), x, params["blocks"])
    logits = norm(x, params["final_norm"]) @ params["unembedding"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


class Trainer:
    """One replica: parameters, Optax's state and the jitted step."""

    def __init__(self, params: Params, shape: Shape, train: TrainSpec, learning_rate: float) -> None:
        assert train.grad_clip is not None
        clip, (b1, b2) = optax.clip_by_global_norm(train.grad_clip), train.betas

        def adamw(rate: jax.Array) -> optax.GradientTransformation:
            return optax.chain(clip, optax.adamw(rate, b1, b2, train.epsilon, weight_decay=train.weight_decay))

        @partial(jax.jit, donate_argnums=(0, 1))
        def step(params: Params, state: Any, windows: jax.Array, rate: jax.Array) -> tuple[Params, Any, jax.Array]:
            value, grads = jax.value_and_grad(loss)(params, windows, shape)
            updates, state = adamw(rate).update(grads, state, params)
            return optax.apply_updates(params, updates), state, value

        self.params = jax.tree.map(jnp.array, params)
        self.state = adamw(jnp.float32(1.0)).init(self.params)
        self.learning_rate, self.seq_len, self._step = learning_rate, shape.seq_len, step
        self.offsets = np.arange(shape.seq_len + 1)

    def step(self, tokens: np.ndarray, indices_B: np.ndarray, rate: float) -> jax.Array:
        """One step on the windows ``indices_B``; ``rate`` is the schedule's multiplier. The loss before the step."""
        windows = tokens[indices_B[:, None] * self.seq_len + self.offsets]
        rate = np.float32(self.learning_rate * rate)
        self.params, self.state, value = self._step(self.params, self.state, windows, rate)
        return value
