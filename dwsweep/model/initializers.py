"""How parameters are declared and how they start: each says its group and its kind of start, one draw fills them all.

A module declares its parameters by ``parameter``; the group and the kind of start are metadata of the ``nnx.Param``,
which outlive the module (``nnx.split``) and which the optimizer's groups come from too. The modules do not draw their
values themselves from ``nnx.Rngs``, for two reasons. The values of a seed are parts of one long draw, in the order of
the parameters' names, and a result depends on them to the last bit; a draw per module would be another sequence. And a
program with a draw for each array takes longer to compile, of three replicas 10 s of CPU in place of 0.7 s at L6 d12,
4 s in place of 0.7 s at L6 d192.

A counter-based generator (Salmon et al. 2011, Threefry-2×32) computes element i from (key, i) alone. An initialisation
that asks for each array's own part is then divided among devices as the array is, and no device holds the whole draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.extend.random import threefry2x32_p

from dwsweep.model.parametrization import Scales

Params = dict[str, Any]
"""A nested dict of arrays, or of anything that there is one of for each parameter."""

NORMAL, ONES, ZEROS = "normal", "ones", "zeros"


@dataclass(frozen=True)
class Matrices:
    """The matrices of one array (…, n_in, Σ n_out), side by side; none in what is no weight of a block."""

    n_in: int = 0
    n_out: tuple[int, ...] = ()


def parameter(group: str, *shape: int, start: str = NORMAL, matrices: Matrices = Matrices()) -> nnx.Param:
    """A parameter of the parametrization's ``group``, which starts from a normal of the group's scale, ones or zeros.

    The value here stands for its shape only: modules are built abstractly and filled by ``initial_values``.
    """
    return nnx.Param(jnp.zeros(shape), group=group, start=start, matrices=matrices)


def metadata(declared: nnx.State, name: str) -> Params:
    """What each parameter says of itself under ``name``."""
    found = jax.tree.map(lambda p: p.get_metadata(name), declared, is_leaf=lambda x: isinstance(x, nnx.Variable))
    return nnx.to_pure_dict(found)


def initial_values(key: jax.Array, declared: nnx.State, scales: Scales, *, divided: bool) -> Params:
    """The parameters of one replica, float32, from a typed key of the default generator.

    On one device all is drawn at once. Of a model that is ``divided`` no device has room for all of it: there each
    array draws its own part, and each device its share. The bits are the same.
    """
    shapes, starts, groups = nnx.to_pure_dict(declared), metadata(declared, "start"), scales.groups()
    leaves = zip(jax.tree.leaves(shapes), jax.tree.leaves(starts), strict=True)
    drawn = sum(leaf.size for leaf, start in leaves if start == NORMAL)
    noise = _parts(key) if divided else _whole(key, drawn)
    at = 0

    def fill(leaf: jax.ShapeDtypeStruct, start: str, group: str) -> jax.Array:
        nonlocal at
        if start != NORMAL:
            return jnp.ones(leaf.shape) if start == ONES else jnp.zeros(leaf.shape)
        at += leaf.size
        return groups[group].init_std * noise(at - leaf.size, leaf.shape)

    return jax.tree.map(fill, shapes, starts, metadata(declared, "group"))


Noise = Callable[[int, tuple[int, ...]], jax.Array]
"""(start, shape) → that part of one normal draw."""


def _parts(key: jax.Array) -> Noise:
    return lambda start, shape: normal_part(key, start, shape)


def _whole(key: jax.Array, size: int) -> Noise:
    noise = jax.random.normal(key, (size,))
    return lambda start, shape: noise[start : start + math.prod(shape)].reshape(shape)


def normal_part(key: jax.Array, start: int, shape: tuple[int, ...]) -> jax.Array:
    """Elements ``start`` … of ``jax.random.normal(key, (n,))``, any n large enough, in ``shape``: float32, bit by bit.

    That is JAX's partitionable Threefry: a normal deviate is √2·erf⁻¹(u), u uniform in (−1, 1) from 23 random bits.
    ``key`` is a typed key of the default generator.
    """
    k1, k2 = jax.random.key_data(key)
    high, low = _counters(start, shape)
    first, second = threefry2x32_p.bind(k1, k2, high, low)
    one_to_two = jax.lax.bitcast_convert_type((first ^ second) >> 9 | np.uint32(0x3F800000), jnp.float32)
    least = np.nextafter(np.float32(-1), np.float32(0))
    u = jnp.maximum(least, (one_to_two - 1) * (np.float32(1) - least) + least)
    # the barrier: a compiler may join this factor with the caller's, and round once where two products round twice
    return jax.lax.optimization_barrier(np.float32(math.sqrt(2)) * jax.lax.erf_inv(u))


def _counters(start: int, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Upper and lower 32 bits of start + position in ``shape``: a large model has more elements than 32 bits count."""
    with jax.enable_x64(True):
        at = jnp.full(shape, start, jnp.uint64)
        stride = 1
        for axis in reversed(range(len(shape))):
            at += jax.lax.broadcasted_iota(jnp.uint64, shape, axis) * np.uint64(stride)
            stride *= shape[axis]
        return (at >> np.uint64(32)).astype(jnp.uint32), at.astype(jnp.uint32)
