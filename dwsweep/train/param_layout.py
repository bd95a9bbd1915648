"""How a replica's parameters lie in the training loop: as the tree they are, or as one vector.

In one vector whatever is done to each element alone (Adam), to all together (the norm, the mean over devices) or to the
state as a whole (the loops that carry it) is one operation, not one per leaf: a third of a program's operations
otherwise, each to be compiled, and on a CPU each to be started in every step. It costs a copy of the parameters and one
of the gradients, which a large model on an accelerator has no room for.

Nothing outside the compiled step sees it: checkpoints and evaluation have the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dwsweep.model.transformer import Model, Params
from dwsweep.spec import TrainSpec
from dwsweep.train.optimizer import Optimizer, Settings, settings_by_group


@dataclass(frozen=True)
class ParamLayout:
    """Of parameters, and of moments and gradients, which lie as they do.

    ``pack`` and ``unpack`` take the tree and what becomes of it, with any leading axes, and the module whose arrays
    those are: ``jax.numpy``, or ``numpy``, for which nothing is compiled.
    """

    pack: Callable[[Params, Any], Any]
    unpack: Callable[[Any, Any], Params]
    labels: Any  # of the optimizer's settings, where the parameters lie
    settings: Callable[[], dict[str, Settings]]  # by label
    is_tree: bool = False  # nothing to do

    def optimizer(self, train: TrainSpec) -> Optimizer:
        """The pack's optimizer for parameters that lie so."""
        return Optimizer(train, self.labels, self.settings)


def by_leaf(model: Model) -> ParamLayout:
    """The tree itself; each array has its group's settings.

    A label per array and not per group, for the same bits whatever else is in the group: XLA replaces a division by
    Adam's bias correction by a product with its inverse only where no other array is divided by it.
    """

    def same(params: Params, xp: Any) -> Params:
        return params

    labels = jax.tree_util.tree_map_with_path(lambda path, _: jax.tree_util.keystr(path), model.groups)
    by_group = settings_by_group(model)
    names = zip(jax.tree.leaves(labels), jax.tree.leaves(model.groups), strict=True)
    settings = {label: by_group[group] for label, group in names}
    return ParamLayout(same, same, labels, lambda: settings, is_tree=True)


def as_vector(model: Model) -> ParamLayout:
    """One vector (…, n_params_total), float32, for elementwise optimizers; leaves with the same settings lie side by
    side, and the settings are vectors too."""
    leaves, structure = jax.tree.flatten(model.declared)
    by_group = settings_by_group(model)
    settings = [by_group[name] for name in jax.tree.leaves(model.groups)]
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

    def spread() -> dict[str, Settings]:
        # computed from an element's place where it is needed, and never stored
        last = {settings[i]: end for i, end in zip(order, ends, strict=True)}
        place = jnp.arange(ends[-1])
        return {"all": Settings(*(_steps(place, [*last.values()], column) for column in zip(*last, strict=True)))}

    return ParamLayout(pack, unpack, "all", spread)


def _steps(place: jax.Array, ends: list[int], values: tuple[float, ...]) -> jax.Array:
    """Value i at the places before end i and not before the one before it."""
    out = jnp.full(place.shape, values[-1], jnp.float32)
    for end, value in zip(ends[-2::-1], values[-2::-1], strict=True):
        out = jnp.where(place < end, jnp.float32(value), out)
    return out
