"""Optax's AdamW with the parametrization's groups, clipped by the global norm of each replica.

One update, element by element (Loshchilov & Hutter 2019; Kingma & Ba 2015), t = steps done + 1:

    m ← β1·m + (1 − β1)·g,   v ← β2·v + (1 − β2)·g²
    p ← p − η_t·( (m/(1 − β1^t)) / (√(v/(1 − β2^t)) + ε) + λ·p )

with the group's ε, λ and ratio of its rate to the base rate. All in float32. The transformations are applied leaf by
leaf, since each group has its own ε, and the moments are plain trees, so that a checkpoint names them as it names the
parameters and depends on no class of Optax.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from dwsweep.model.parametrization import Scales
from dwsweep.model.transformer import Params, group_of
from dwsweep.spec import TrainSpec


def clip(grads: Params, norm: jax.Array, limit: float | None) -> Params:
    """``grads`` scaled so that their global norm, which is ``norm``, is at most ``limit``."""
    if limit is None:
        return grads
    factor = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-30))
    return jax.tree.map(lambda g: g * factor, grads)


def adamw(
    params: Params,
    m: Params,
    v: Params,
    grads: Params,
    step: jax.Array,
    rate: jax.Array,
    alive: jax.Array,
    scales: Scales,
    train: TrainSpec,
) -> tuple[Params, Params, Params]:
    """One update of one replica at base learning rate ``rate`` (peak × schedule); unchanged where not ``alive``.

    ``scales`` gives the ratios between the groups' rates; ``step`` is the number of updates before this one.
    """
    b1, b2 = train.betas

    def update(path: Any, p: jax.Array, m: jax.Array, v: jax.Array, g: jax.Array) -> tuple[jax.Array, ...]:
        group = group_of(path, scales)
        adam = optax.scale_by_adam(b1, b2, group.epsilon)
        decay = optax.add_decayed_weights(group.weight_decay)
        direction, moments = adam.update(g, optax.ScaleByAdamState(step, m, v))
        direction, _ = decay.update(direction, decay.init(p), p)
        new_p = p - rate * (group.learning_rate / scales.learning_rate) * direction
        return tuple(jnp.where(alive, new, old) for new, old in ((new_p, p), (moments.mu, m), (moments.nu, v)))

    out = jax.tree_util.tree_map_with_path(update, params, m, v, grads)
    first, second, third = (jax.tree.map(lambda _, item, i=i: item[i], params, out) for i in range(3))
    return first, second, third
