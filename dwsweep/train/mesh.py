"""Which devices a pack uses: replicas are spread over a host's devices before one model is ever split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dwsweep.train.step import Each

REPLICA = "replica"


def replica_mesh(n_replicas: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A one-axis mesh of as many local devices as divide the replicas evenly."""
    devices = list(devices or jax.local_devices())
    count = max(n for n in range(1, len(devices) + 1) if n_replicas % n == 0)
    return Mesh(np.array(devices[:count]), (REPLICA,))


def spread(each: Each, mesh: Mesh) -> Each:
    """``each`` on every device of the mesh for its own replicas, without communication."""
    if mesh.devices.size == 1:
        return each

    def apply(function: Callable[[Any], Any], replicas: Any) -> Any:
        split = PartitionSpec(REPLICA)
        local = partial(each, function)
        return jax.shard_map(local, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)(replicas)

    return apply


def replicated(mesh: Mesh) -> NamedSharding:
    """The same on every device."""
    return NamedSharding(mesh, PartitionSpec())


def state_shardings(mesh: Mesh, state: Any) -> Any:
    """Leaves with a leading replica axis are split along it, scalars are replicated."""
    split = NamedSharding(mesh, PartitionSpec(REPLICA))
    return jax.tree.map(lambda leaf: split if leaf.ndim else replicated(mesh), state)
