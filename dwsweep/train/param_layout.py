"""How a replica's parameters lie in the training loop: as the tree they are, or as one vector.

In one vector whatever is done to each element alone (Adam), to all together (the norm, the mean over devices) or to the
state as a whole (the loops that carry it) is one operation, not one a leaf: a third of a program's operations
otherwise, each to be compiled, and on a CPU each to be started in every step. It costs a copy of the parameters and one
of the gradients, which a large model on an accelerator has no room for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dwsweep.model.transformer import Model, Params
from dwsweep.train.optimizer import Settings, settings_of


@dataclass(frozen=True)
class Arrangement:
    """Of parameters, and of moments and gradients, which lie as they do.

    ``pack`` and ``unpack`` take the tree and what becomes of it, with any leading axes, and the module whose arrays
    those are: ``jax.numpy``, or ``numpy``, for which nothing is compiled.
    """

    pack: Callable[[Params, Any], Any]
    unpack: Callable[[Any, Any], Params]
    settings: Callable[[], Any]  # of the optimizer, for one replica
    is_tree: bool = False  # nothing to do


def by_leaf(model: Model) -> Arrangement:
    """The tree itself."""

    def same(params: Params, xp: Any) -> Params:
        return params

    return Arrangement(same, same, lambda: settings_of(declared(model), model.scales), is_tree=True)


def as_vector(model: Model) -> Arrangement:
    """One vector (…, n_params_total), float32; leaves with the same settings lie side by side."""
    shapes = declared(model)
    leaves, structure = jax.tree.flatten(shapes)
    settings = jax.tree.leaves(settings_of(shapes, model.scales), is_leaf=lambda x: isinstance(x, Settings))
    order = sorted(range(len(leaves)), key=lambda i: (settings[i], i))
    ends = np.cumsum([leaves[i].size for i in order])

    def pack(params: Params, xp: Any = jnp) -> Any:
        parts = jax.tree.leaves(params)
        flat = [parts[i].reshape(*parts[i].shape[: parts[i].ndim - leaves[i].ndim], -1) for i in order]
        return xp.concatenate(flat, axis=-1)

    def unpack(vector: Any, xp: Any = jnp) -> Params:
        found = dict(zip(order, xp.split(vector, ends[:-1], axis=-1), strict=True))
        shaped = [found[i].reshape(*vector.shape[:-1], *leaf.shape) for i, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, shaped)

    def spread() -> Settings:
        # computed from an element's place where it is needed, and never stored
        last = {settings[i]: end for i, end in zip(order, ends, strict=True)}
        place = jnp.arange(ends[-1])
        return Settings(*(_steps(place, [*last.values()], column) for column in zip(*last, strict=True)))

    return Arrangement(pack, unpack, spread)


def _steps(place: jax.Array, ends: list[int], values: tuple[float, ...]) -> jax.Array:
    """Value i at the places before end i and not before the one before it."""
    out = jnp.full(place.shape, values[-1], jnp.float32)
    for end, value in zip(ends[-2::-1], values[-2::-1], strict=True):
        out = jnp.where(place < end, jnp.float32(value), out)
    return out


def declared(model: Model) -> Params:
    """Shapes and dtypes of the parameters of one replica."""
    return jax.eval_shape(lambda: model.init(jax.random.key(0)))
