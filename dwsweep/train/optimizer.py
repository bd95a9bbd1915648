"""Optax's AdamW with the parametrization's groups, clipped by the global norm of each replica.

One update, element by element (Loshchilov & Hutter 2019; Kingma & Ba 2015), t = steps done + 1:

    m ← β1·m + (1 − β1)·g,   v ← β2·v + (1 − β2)·g²
    p ← p − η_t·( (m/(1 − β1^t)) / (√(v/(1 − β2^t)) + ε) + λ·p )

with the group's ε, λ and ratio of its rate to the base rate. All in float32. Each array has settings of its own, since
each group has its own ε, and the moments are plain arrays, so that a checkpoint names them as it names the parameters
and depends on no class of Optax.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dwsweep.model.parametrization import Scales
from dwsweep.model.transformer import Params, group_of
from dwsweep.spec import TrainSpec


def clip(grads: Any, norm: jax.Array, limit: float | None) -> Any:
    """``grads`` scaled so that their global norm, which is ``norm``, is at most ``limit``."""
    if limit is None:
        return grads
    factor = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-30))
    return jax.tree.map(lambda g: g * factor, grads)


class Settings(NamedTuple):
    """Of an array of parameters: numbers where all of it is of one group, else arrays of its shape."""

    epsilon: Any
    weight_decay: Any
    ratio: Any  # of its rate to the base rate


def settings_of(params: Params, scales: Scales) -> Any:
    """A tree as ``params`` with the ``Settings`` of each leaf in its place."""

    def one(path: Any, _: Any) -> Settings:
        group = group_of(path, scales)
        return Settings(group.epsilon, group.weight_decay, group.learning_rate / scales.learning_rate)

    return jax.tree_util.tree_map_with_path(one, params)


def adamw(
    params: Any,
    m: Any,
    v: Any,
    grads: Any,
    step: jax.Array,
    rate: jax.Array,
    alive: jax.Array,
    settings: Any,
    train: TrainSpec,
) -> tuple[Any, Any, Any]:
    """One update of one replica at base learning rate ``rate`` (peak × schedule); unchanged where not ``alive``.

    ``params``, ``m``, ``v``, ``grads``: trees of one structure, or an array each, with the ``settings`` of each array
    in its place; ``step``: the number of updates before this one.
    """
    b1, b2 = train.betas

    def update(p: jax.Array, m: jax.Array, v: jax.Array, g: jax.Array, own: Settings) -> tuple[jax.Array, ...]:
        adam = optax.scale_by_adam(b1, b2, own.epsilon)
        decay = optax.add_decayed_weights(own.weight_decay)
        direction, moments = adam.update(g, optax.ScaleByAdamState(step, m, v))
        direction, _ = decay.update(direction, decay.init(p), p)
        new_p = p - rate * own.ratio * direction
        return tuple(jnp.where(alive, new, old) for new, old in ((new_p, p), (moments.mu, m), (moments.nu, v)))

    out = jax.tree.map(update, params, m, v, grads, settings)
    first, second, third = (jax.tree.map(lambda _, item, i=i: item[i], params, out) for i in range(3))
    return first, second, third
