"""The optimizer of a pack: one Optax transformation, built from the parametrization's groups, and the layout of the
parameters that it updates.

    clip by the global norm of a replica's gradients  →  by label: the chain of ``train.optimizer``

AdamW's chain, element by element (Loshchilov & Hutter 2019; Kingma & Ba 2015), t = steps done + 1:

    m ← β1·m + (1 − β1)·g,   v ← β2·v + (1 − β2)·g²
    p ← p − η_t·( (m/(1 − β1^t)) / (√(v/(1 − β2^t)) + ε) + λ·p )

with the group's ε, λ and ratio of its rate to the base rate. All in float32. Another optimizer is another entry of
``CHAINS``, and its name and its facts in ``spec.sections``.

Muon's chain (Jordan et al. 2024) for the weight matrices of the blocks, O the orthogonal factor of a matrix by Optax's
Newton–Schulz iteration, c the parametrization's factor; AdamW's for everything else:

    m ← μ·m + g
    p ← p − η_t·( c·O(g + μ·m) + λ·p )

Matrices that lie side by side in one array (q, k and v; gate and up) have an O each, and so have layers and replicas.

Between steps a state has its moments by name (``m``, ``v``), so that a checkpoint depends on no class of Optax.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dwsweep.model.transformer import Model, Params
from dwsweep.spec import TrainSpec


class Settings(NamedTuple):
    """Settings of a group of parameters: numbers, or arrays where the parameters of several groups lie in one."""

    epsilon: Any
    weight_decay: Any
    ratio: Any  # ratio of its rate to the base rate
    matrices: tuple[tuple[int, float], ...] = ()  # (columns, Muon's factor) per array; () if it has none


def settings_by_group(model: Model) -> dict[str, Settings]:
    """The settings of each of the parametrization's groups."""
    base = model.scales.learning_rate
    return {
        name: Settings(group.epsilon, group.weight_decay, group.learning_rate / base)
        for name, group in model.scales.groups().items()
    }


def clip_by_norm(limit: float | None) -> optax.GradientTransformationExtraArgs:
    """Gradients scaled so that their global norm is at most ``limit``; unchanged if it is None.

    ``update`` takes the ``norm``, which a step reports too. (Optax's own divides each element by it and multiplies by
    the limit, which rounds otherwise.)
    """

    def update(updates: Any, state: Any, params: Any = None, *, norm: jax.Array, **_: Any) -> tuple[Any, Any]:
        if limit is None:
            return updates, state
        factor = jnp.minimum(1.0, limit / jnp.maximum(norm, 1e-30))
        return jax.tree.map(lambda g: g * factor, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def scale_by_rate(ratio: Any) -> optax.GradientTransformationExtraArgs:
    """Scale a direction by −rate·ratio; ``update`` takes the replica's base ``rate`` of this step."""

    def update(updates: Any, state: Any, params: Any = None, *, rate: jax.Array, **_: Any) -> tuple[Any, Any]:
        return jax.tree.map(lambda direction: -(rate * ratio) * direction, updates), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def adamw(train: TrainSpec, group: Settings) -> optax.GradientTransformationExtraArgs:
    """AdamW for the parameters of one group."""
    b1, b2 = train.betas
    return optax.chain(
        optax.scale_by_adam(b1, b2, group.epsilon),
        optax.add_decayed_weights(group.weight_decay),
        scale_by_rate(group.ratio),
    )


def orthogonalized(matrices: tuple[tuple[int, float], ...]) -> optax.GradientTransformation:
    """Each matrix (…, n_in, columns) of an array times its factor after its orthogonal factor took its place."""
    # Optax's own momentum is off: it is Optax's trace, whose state has a name
    turn = optax.contrib.scale_by_muon(
        beta=0.0,
        nesterov=False,
        weight_dimension_numbers=lambda parts: jax.tree.map(
            lambda _: optax.contrib.MuonDimensionNumbers(-2, -1), parts
        ),
    )
    ends = np.cumsum([columns for columns, _ in matrices])[:-1]

    def of_array(array: jax.Array) -> jax.Array:
        parts = jnp.split(array, ends, axis=-1)
        turned, _ = turn.update(parts, turn.init(parts))
        return jnp.concatenate([factor * part for part, (_, factor) in zip(turned, matrices, strict=True)], axis=-1)

    return optax.stateless(lambda updates, params: jax.tree.map(of_array, updates))


def muon(train: TrainSpec, group: Settings) -> optax.GradientTransformationExtraArgs:
    """Muon for the matrices of the blocks, AdamW for the rest."""
    if not group.matrices:
        return adamw(train, group)
    return optax.chain(
        optax.trace(train.momentum, nesterov=True),
        orthogonalized(group.matrices),
        optax.add_decayed_weights(group.weight_decay),
        scale_by_rate(group.ratio),
    )


CHAINS: dict[str, Callable[[TrainSpec, Settings], optax.GradientTransformationExtraArgs]] = {
    "adamw": adamw,
    "muon": muon,
}
"""Chain of a group of parameters, by the name in ``train.optimizer``."""

NAMES = {"mu": "m", "nu": "v"}
"""Fields of Optax's states that are kept per parameter, by their names in a checkpoint; others keep Optax's name."""
COUNT = "count"
"""Field that counts updates, equal for all parameters."""

Moments = dict[str, Any]
"""Moments: values per parameter that an optimizer keeps between steps, by name, each a tree like the parameters."""


@dataclass(frozen=True)
class Optimizer:
    """The optimizer of a pack whose parameters lie in one way (see ``ParamLayout``)."""

    train: TrainSpec
    labels: Any  # tree like the parameters, with the name of each parameter's settings
    settings: Callable[[], dict[str, Settings]]  # settings by name; called while a step is traced

    def transformation(self) -> optax.GradientTransformationExtraArgs:
        """Clipping, then each group's chain; ``update`` takes ``norm`` and ``rate`` besides Optax's arguments."""
        chain = CHAINS[self.train.optimizer]
        chains = {name: chain(self.train, own) for name, own in self.settings().items()}
        return optax.chain(clip_by_norm(self.train.grad_clip), optax.partition(chains, self.labels))

    def init(self, params: Any) -> Moments:
        """The moments of one replica before its first step."""
        return _by_name(self.transformation().init(params), params)

    def update(
        self, grads: Any, moments: Moments, params: Any, *, step: jax.Array, norm: jax.Array, rate: jax.Array
    ) -> tuple[Any, Moments]:
        """(parameters, moments) of one replica after a step at base learning rate ``rate`` (peak × schedule).

        ``norm``: of ``grads``; ``step``: the number of updates before this one.
        """
        transformation = self.transformation()
        like = jax.eval_shape(transformation.init, params)
        state = _as_optax(like, moments, step)
        updates, state = transformation.update(grads, state, params, norm=norm, rate=rate)
        return optax.apply_updates(params, updates), _by_name(state, params)


Place = tuple[str, tuple[Any, ...]]
"""Place of an array in Optax's state: the field that it is or is part of, and the path of its parameter."""


def _place(path: tuple[Any, ...]) -> Place:
    last = max(i for i, key in enumerate(path) if isinstance(key, jax.tree_util.GetAttrKey))
    field = path[last].name
    return NAMES.get(field, field), path[last + 1 :]


def _by_name(state: Any, params: Any) -> Moments:
    """Moments in Optax's state; None if a group's chain holds nothing of that name."""
    found = {_place(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    return {
        name: jax.tree_util.tree_map_with_path(lambda path, _, name=name: found.get((name, path)), params)
        for name in sorted({name for name, _ in found} - {COUNT})
    }


def _as_optax(like: Any, moments: Moments, step: jax.Array) -> Any:
    """Optax's state with the structure of ``like``, from its moments."""
    found = {
        (name, path): leaf for name, tree in moments.items() for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }

    def fill(path: tuple[Any, ...], _: Any) -> jax.Array:
        name, at = _place(path)
        return step if name == COUNT else found[name, at]

    return jax.tree_util.tree_map_with_path(fill, like)


@dataclass(frozen=True)
class ParamLayout:
    """Memory layout of parameters, and equally of moments and gradients: the tree they are, or one vector, whose
    operations are fewer to compile and to start, for a copy of the parameters and one of the gradients.

    ``pack`` and ``unpack`` take the tree or its packed form, with any leading axes, and the module of its arrays:
    ``jax.numpy``, or ``numpy``, for which nothing is compiled.
    """

    pack: Callable[[Params, Any], Any]
    unpack: Callable[[Any, Any], Params]
    labels: Any  # labels of the optimizer's settings, laid out as the parameters
    settings: Callable[[], dict[str, Settings]]  # settings by label
    is_tree: bool = False  # nothing to do

    def optimizer(self, train: TrainSpec) -> Optimizer:
        """Optimizer of the pack for this layout."""
        return Optimizer(train, self.labels, self.settings)


def by_leaf(model: Model) -> ParamLayout:
    """Layout as a tree; each array has its group's settings.

    A label per array and not per group, for the same bits whatever else is in the group: XLA replaces a division by
    Adam's bias correction by a product with its inverse only where no other array is divided by it.
    """

    def same(params: Params, xp: Any) -> Params:
        return params

    labels = jax.tree_util.tree_map_with_path(lambda path, _: jax.tree_util.keystr(path), model.groups)
    by_group, factor = settings_by_group(model), model.scales.orthogonal_factor
    leaves = zip(*(jax.tree.leaves(tree) for tree in (labels, model.groups, model.matrices)), strict=True)
    settings = {
        label: by_group[group]._replace(matrices=tuple((n, factor(matrices.n_in, n)) for n in matrices.n_out))
        for label, group, matrices in leaves
    }
    return ParamLayout(same, same, labels, lambda: settings, is_tree=True)


def as_vector(model: Model) -> ParamLayout:
    """Layout as one vector (…, n_params_total), float32, for elementwise optimizers; leaves with the same settings lie
    side by side, and the settings are vectors too."""
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
        # computed from an element's place if needed, never stored
        last = {settings[i][:3]: end for i, end in zip(order, ends, strict=True)}
        place = jnp.arange(ends[-1])
        columns = [_steps(place, [*last.values()], column) for column in zip(*last, strict=True)]
        return {"all": Settings(columns[0], columns[1], columns[2])}

    return ParamLayout(pack, unpack, "all", spread)


def _steps(place: jax.Array, ends: list[int], values: tuple[float, ...]) -> jax.Array:
    """Value i between end i − 1 and end i."""
    out = jnp.full(place.shape, values[-1], jnp.float32)
    for end, value in zip(ends[-2::-1], values[-2::-1], strict=True):
        out = jnp.where(place < end, jnp.float32(value), out)
    return out
