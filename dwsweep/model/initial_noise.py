"""Normal noise by position: any part of one long draw, without the rest of it.

A counter-based generator (Salmon et al. 2011, Threefry-2×32) computes element i from (key, i) alone. An initialisation
that asks for each array's own part is then divided among devices as the array is, and no device holds the whole draw.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry2x32_p


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
