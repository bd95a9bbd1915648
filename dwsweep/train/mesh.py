"""Layout of a pack on its devices.

Three axes: replicas are spread first, since they need no communication; only a model that is large, or that does not
fit, is then divided within itself: its batch over ``data``, and its parameters too over ``fsdp`` (Rajbhandari et al.
2020; Zhao et al. 2023). The cores of a CPU, devices too, divide the batch and not the replicas, so that a replica gives
the same bits in a pack of any size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dwsweep.errors import InputError
from dwsweep.model.transformer import Placement
from dwsweep.spec import MeshSpec
from dwsweep.train.step import ReplicaMap, StepFunction, sequentially, vectorized

REPLICA, DATA, FSDP = "replica", "data", "fsdp"
BATCH = (DATA, FSDP)

WORTHWHILE_FLOPS = 1e12
"""FLOPs of a device's share of one training step below which dividing a model costs more in communication than it
gains: some 2 ms of a modern accelerator."""
STATE_FRACTION = 0.5
"""Share of a device's memory that parameters, moments and gradients may take before they are divided."""


@dataclass(frozen=True)
class Load:
    """Facts of a pack that decide how devices are divided."""

    replicas: int
    batch: int  # sequences
    state_bytes: int  # state of one replica: parameters, moments, gradients
    step_flops: float  # FLOPs of one replica
    memory_bytes: int | None  # memory of one device
    on_cpu: bool = False
    must_divide: bool = False  # the state, whatever these numbers are: the program did not fit


def divide(devices: int, load: Load, *, whole: bool, asked: MeshSpec | None = None) -> tuple[int, int, int]:
    """Devices along (replica, data, fsdp); their product is at most ``devices``.

    ``whole``: all devices have to take part, as on several hosts, where each process runs the same program.

    Raises:
        InputError: the requested devices, or all of them, do not divide the replicas or the batch.
    """
    if asked is not None:
        sizes = (asked.replica, asked.data, asked.fsdp)
        _check(sizes, devices, load, whole, "execution.mesh")
        return sizes
    if load.on_cpu and not whole and not load.must_divide:
        return 1, max(n for n in range(1, devices + 1) if load.batch % n == 0), 1
    if whole:
        replica = math.gcd(load.replicas, devices)
        rest = devices // replica
    else:
        replica = max(n for n in range(1, devices + 1) if load.replicas % n == 0)
        rest = max(n for n in range(1, devices // replica + 1) if load.batch % n == 0)
    crowded = load.must_divide or (
        load.memory_bytes is not None
        and load.replicas // replica * load.state_bytes > STATE_FRACTION * load.memory_bytes
    )
    if not whole and not crowded:
        shares = (n for n in range(1, rest + 1) if rest % n == 0 and load.batch % n == 0)
        rest = max(n for n in shares if n == 1 or load.step_flops / n >= WORTHWHILE_FLOPS)
    sizes = (replica, 1, rest) if crowded else (replica, rest, 1)
    _check(sizes, devices, load, whole, "--distributed")
    return sizes


def _check(sizes: tuple[int, int, int], devices: int, load: Load, whole: bool, key: str) -> None:
    replica, data, fsdp = sizes
    count = math.prod(sizes)
    shown = f"{key}: replica {replica}, data {data}, fsdp {fsdp}"
    if count > devices or (whole and count != devices):
        raise InputError(f"{shown}; allowed: a product of {'' if whole else 'at most '}{devices} devices")
    if load.replicas % replica:
        raise InputError(f"{shown}; allowed: replica a divisor of the pack's {load.replicas} replicas")
    if load.batch % (data * fsdp):
        raise InputError(f"{shown}; allowed: data · fsdp a divisor of train.batch_size = {load.batch}")


@dataclass(frozen=True)
class Layout:
    """Mesh of devices, and the placement of a pack's parts on it."""

    mesh: Mesh

    @classmethod
    def of(cls, load: Load, devices: Sequence[jax.Device] | None = None, asked: MeshSpec | None = None) -> Layout:
        """Lay a pack over ``devices``; by default this host's devices, or the devices of all processes."""
        whole = jax.process_count() > 1
        devices = list(devices or (jax.devices() if whole else jax.local_devices()))
        sizes = divide(len(devices), load, whole=whole, asked=asked)
        return cls(Mesh(np.array(devices[: math.prod(sizes)]).reshape(sizes), (REPLICA, DATA, FSDP)))

    @property
    def size(self) -> int:
        return self.mesh.devices.size

    @property
    def sizes(self) -> dict[str, int]:
        """Devices along each axis."""
        return dict(self.mesh.shape)

    @property
    def split(self) -> int:
        """Devices among which one model is divided."""
        return self.mesh.shape[DATA] * self.mesh.shape[FSDP]

    @property
    def replicated(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def by_replica(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(REPLICA))

    @property
    def by_sequence(self) -> NamedSharding:
        """Sharding of windows (B, T + 1) that all replicas read."""
        return NamedSharding(self.mesh, PartitionSpec(BATCH))

    @property
    def batch_axis(self) -> str | None:
        """The axis along which a step sees a part of the batch, and has to sum over; None if XLA divides it."""
        return DATA if self.mesh.shape[DATA] > 1 and self.mesh.shape[FSDP] == 1 else None

    @property
    def placement(self) -> Placement | None:
        """Constraints that the model gives the partitioner; None if no parameters are divided."""
        if self.mesh.shape[FSDP] == 1:
            return None
        return Placement(NamedSharding(self.mesh, PartitionSpec(BATCH, None, None)), self.replicated)

    def state_shardings(self, state: Any) -> Any:
        """Shardings: leaves with a leading replica axis are split along it, and in a divided model along one more;
        scalars are replicated."""

        def one(path: Any, leaf: Any) -> NamedSharding:
            if not leaf.ndim:
                return self.replicated
            layered = any(getattr(key, "key", None) == "blocks" for key in path)
            axis = self._divided_axis(leaf.shape, 2 if layered else 1)
            return NamedSharding(
                self.mesh, PartitionSpec(REPLICA, *(FSDP if i == axis else None for i in range(1, leaf.ndim)))
            )

        return jax.tree_util.tree_map_with_path(one, state)

    def _divided_axis(self, shape: tuple[int, ...], first: int) -> int | None:
        """The longest axis of a matrix that divides evenly; vectors are small, and every layer is read by itself."""
        fsdp = self.mesh.shape[FSDP]
        if fsdp == 1 or len(shape) - first < 2:
            return None
        axes = [axis for axis in range(first, len(shape)) if shape[axis] % fsdp == 0]
        return max(axes, key=lambda axis: shape[axis], default=None)

    def put(self, x: Any, sharding: NamedSharding | None = None) -> jax.Array:
        """Put an array of the host on the devices; every process gives the same."""
        sharding = sharding or self.replicated
        if sharding.is_fully_addressable:
            return jax.device_put(x, sharding)
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

    def replica_map(self, on_cpu: bool) -> ReplicaMap:
        """Function that applies a step to all replicas."""
        base = sequentially if on_cpu else vectorized
        if self.size == 1 or (self.mesh.shape[REPLICA] == 1 and self.mesh.shape[FSDP] > 1):
            return base
        divided = self.mesh.shape[FSDP] > 1

        def apply(function: StepFunction, replicas: Any, windows: jax.Array) -> Any:
            # Each device works for its own replicas. XLA may not decide that: it would exchange data that no replica
            # needs of another. With fsdp XLA divides the rest of a model; otherwise the step says what it shares.
            spec = PartitionSpec(REPLICA)
            local = jax.shard_map(
                partial(base, function),
                mesh=self.mesh,
                in_specs=(spec, spec if divided else PartitionSpec(REPLICA, DATA)),
                out_specs=spec,
                axis_names={REPLICA} if divided else set(),
                check_vma=False,
            )
            return local(replicas, windows)

        return apply


# Decisions that every process of a pack has to share: process 0's is taken. The length of a dispatch and the moment of
# a checkpoint follow a clock, and each process has its own; if they drifted apart, one would wait for ever in a
# collective that the others never enter.


def agreed(value: int) -> int:
    """Value of process 0 in every process; all processes have to call this; its own value if it is the only one."""
    if jax.process_count() == 1:
        return value
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return int(broadcast_one_to_all(np.int32(value)))


def all_agree(fact: bool) -> bool:
    """True if the fact holds in every process; all of them have to call this."""
    if jax.process_count() == 1:
        return fact
    from jax.experimental.multihost_utils import process_allgather

    return bool(np.asarray(process_allgather(np.int32(fact))).all())


def gathered(array: jax.Array) -> np.ndarray:
    """The whole array on the host, in every process, all of which have to call this."""
    if array.is_fully_addressable:
        return np.asarray(array)
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(array, tiled=True))
