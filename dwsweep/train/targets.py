"""Targets: devices to compile for, at hand or not here.

A device that is not here is a description that the vendor's compiler takes for the real one: nothing can run on it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import jax

from dwsweep.cost.devices import Device, find
from dwsweep.errors import InputError, install
from dwsweep.plan import Plan
from dwsweep.text import one_line
from dwsweep.train.choices import Hardware, at_hand


def here(plan: Plan) -> Hardware:
    """One device at hand; its memory is the part of ``execution.device``'s that JAX may use, if the spec names one."""
    named = find(plan.spec.execution.device) if plan.spec.execution.device else None
    memory = int(named.usable_bytes) if named else None
    return at_hand(jax.local_devices()[:1], memory_bytes=memory, as_accelerator=True)


TPUS = {"TPU-v6e": ("v6e", "2x2"), "TPU-v5p": ("v5p", "2x2x1"), "TPU-v5e": ("v5e", "2x2"), "TPU-v4": ("v4", "2x2x1")}
"""TPUs by name: the compiler's name, and the smallest topology, from which a single chip is taken."""


@dataclass(frozen=True)
class Chip:
    """Facts of a GPU that the compiler needs beyond the table of devices, from the maker's tuning guide."""

    capability: tuple[int, int]
    multiprocessors: int
    fpus: int  # float32 units of a multiprocessor
    clock_ghz: float  # boost
    l2_bytes: int
    shared_bytes: int  # shared memory of a multiprocessor for all its blocks; one block may take 1 KiB less
    memory_bytes: int


GPUS = {
    "H200": Chip((9, 0), 132, 128, 1.98, 50 << 20, 228 << 10, 150_000_000_000),
    "H100": Chip((9, 0), 132, 128, 1.98, 50 << 20, 228 << 10, 85_000_000_000),
    "A100-80GB": Chip((8, 0), 108, 64, 1.41, 40 << 20, 164 << 10, 85_000_000_000),
    "A100-40GB": Chip((8, 0), 108, 64, 1.41, 40 << 20, 164 << 10, 42_000_000_000),
}


def elsewhere(name: str) -> Hardware:
    """Absent devices by a name such as ``H200``, ``H200:4`` or ``TPU-v5e:2x4``; without a topology one.

    Raises:
        InputError: no such target, or its compiler is not installed.
    """
    wanted, _, topology = name.partition(":")
    device = find(wanted)
    if device is None or device.name not in {*TPUS, *GPUS}:
        raise InputError(f"--target: {name!r}; allowed: {', '.join([*GPUS, *TPUS])}, each with a topology such as :2x2")
    if topology and not re.fullmatch(r"\d+(x\d+)*", topology):
        raise InputError(f"--target: {name!r}; a topology is sizes such as 2x4, or the number of GPUs of one host")
    try:
        found = (_tpu if device.name in TPUS else _gpu)(device, topology or None)
    except InputError:
        raise
    except Exception as error:  # either plugin failed, with any type of error: bad topology, or not loadable
        raise InputError(f"--target: {name!r}: {one_line(error)}") from error
    devices = found if topology else found[:1]
    hardware = at_hand(devices, memory_bytes=int(device.usable_bytes), as_accelerator=True)
    return replace(hardware, target=name)


def _tpu(device: Device, topology: str | None) -> Sequence[Any]:
    """Chips of a TPU slice, by libtpu alone."""
    if find_spec("libtpu") is None:
        raise InputError(f"--target: {device.name} needs the TPU compiler: {install('tpu')}")
    # Without a TPU, libtpu would ask the metadata server of a cloud that is not there, for minutes, and then refuse.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    _without_a_chip()
    from jax.experimental import topologies

    family, smallest = TPUS[device.name]
    described = topologies.get_topology_desc(platform="tpu", topology_name=f"{family}:{topology or smallest}")
    return described.devices


def _gpu(device: Device, topology: str | None) -> Sequence[Any]:
    """GPUs of one host (``4``), or of several (``2x8``: hosts × GPUs), by JAX's CUDA plugin alone."""
    if not any(find_spec(f"jax_cuda{major}_plugin") for major in (13, 12)):
        raise InputError(f"--target: {device.name} needs the GPU compiler: {install('cuda')}")
    # The plugin otherwise compares its libraries with a driver that is not there.
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    _without_a_chip()
    from jax._src import xla_bridge
    from jax.experimental import topologies

    # The first backend registers all plugins, other platforms' too; without that "cuda" would be unknown.
    jax.local_devices()
    hosts, _, each = (topology or "1").rpartition("x")
    described = topologies.get_topology_desc(
        platform="cuda", target_config=gpu_config(device), topology=f"1x{hosts or 1}x{each}"
    )
    _platforms_without_a_backend(xla_bridge)
    return described.devices


def _without_a_chip() -> None:
    """Run everything on the CPU and open no chip of this host. In effect before the first backend."""
    jax.config.update("jax_platforms", "cpu")


def _platforms_without_a_backend(xla_bridge: Any) -> None:
    """Platform ``gpu`` for lowering: JAX looks it up among initialised backends, and none of them has a GPU (jax issues
    23971 and 28376)."""
    canonical = xla_bridge.canonicalize_platform
    if getattr(canonical, "knows_cuda", False):
        return

    def canonicalize_platform(platform: str) -> str:
        return "cuda" if platform in ("gpu", "cuda") else canonical(platform)

    canonicalize_platform.knows_cuda = True  # type: ignore[attr-defined]
    xla_bridge.canonicalize_platform = canonicalize_platform


def gpu_config(device: Device) -> str:
    """The compiler's description of a GPU (``stream_executor.GpuTargetConfigProto``, as text)."""
    chip = GPUS[device.name]
    kind = next(kind for kind in device.kinds if kind.startswith("NVIDIA "))  # JAX's name of the compilation target
    major, minor = chip.capability
    info = {
        "threads_per_block_limit": 1024,
        "threads_per_warp": 32,
        "shared_memory_per_block": 48 << 10,
        "shared_memory_per_core": chip.shared_bytes,
        "threads_per_core_limit": 2048,
        "core_count": chip.multiprocessors,
        "fpus_per_core": chip.fpus,
        "block_dim_limit_x": 2**31 - 1,
        "block_dim_limit_y": 2**16 - 1,
        "block_dim_limit_z": 2**16 - 1,
        "memory_bandwidth": int(device.bandwidth),
        "l2_cache_size": chip.l2_bytes,
        "clock_rate_ghz": chip.clock_ghz,
        "device_memory_size": chip.memory_bytes,
        "shared_memory_per_block_optin": chip.shared_bytes - 1024,
        "registers_per_core_limit": 65_536,
        "registers_per_block_limit": 65_536,
    }
    fields = " ".join(f"{key}: {value}" for key, value in info.items())
    return (
        f"gpu_device_info {{ {fields} cuda_compute_capability {{ major: {major} minor: {minor} }} }} "
        'platform_name: "CUDA" dnn_version_info { major: 9 minor: 10 } '
        "runtime_version { major: 12 minor: 9 patch: 0 } "
        f'device_description_str: "{kind}"'
    )
