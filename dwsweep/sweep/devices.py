"""How a host's devices are shared among worker processes, told without JAX: by device files and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dwsweep.errors import InputError

CPU_DEVICES = "JAX_NUM_CPU_DEVICES"


@dataclass(frozen=True)
class Share:
    """What one worker may use."""

    environment: dict[str, str]
    cores: frozenset[int] | None = None  # None: all


def gpus(environment: dict[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Names of the NVIDIA GPUs that this process may use, as CUDA_VISIBLE_DEVICES takes them."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in devices.glob("nvidia*"))
    return [str(k) for k in range(sum(match is not None for match in found))]


def tpus(environment: dict[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Names of the TPU chips of this host, as TPU_VISIBLE_CHIPS takes them."""
    visible = environment.get("TPU_VISIBLE_CHIPS")
    if visible:
        return visible.split(",")
    chips = len(list(devices.glob("accel[0-9]*"))) or len(list(devices.glob("vfio/[0-9]*")))
    return [str(k) for k in range(chips)]


def cores() -> list[int]:
    """The CPU cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def each_core_a_device(count: int, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """What makes JAX take each of ``count`` CPU cores for a device; nothing where the user has said how many.

    It has to be in the environment before JAX is imported, and means nothing where there are accelerators.

    Raises:
        InputError: the user's number is none.
    """
    env = os.environ if environment is None else environment
    said = env.get(CPU_DEVICES, "").strip()
    if said and not (said.isdigit() and int(said) > 0):
        raise InputError(f"{CPU_DEVICES}: {said!r}; allowed: a number of devices from 1 on")
    if said or "xla_force_host_platform_device_count" in env.get("XLA_FLAGS", ""):
        return {}
    return {CPU_DEVICES: str(max(1, count))}


def shares(
    workers: int,
    environment: dict[str, str] | None = None,
    devices: Path = Path("/dev"),
    most: int | None = None,
) -> list[Share]:
    """Divide the host among ``workers`` processes, of ``most`` that there may ever be; one worker has everything.

    Each gets whole GPUs or TPU chips where there are enough, a part of a GPU's memory where workers outnumber GPUs,
    and on a host without either its own CPU cores. Each then has as many devices as it would with ``most``: another
    number rounds otherwise, and which worker trains a pack, or how many packs are left, must not show in the result.
    """
    env = dict(os.environ) if environment is None else environment
    own = cores()
    cpu_devices = each_core_a_device(len(own) // max(workers, most or 1), env)
    if workers <= 1:
        return [Share(cpu_devices)]
    on_cpu = env.get("JAX_PLATFORMS") == "cpu"
    if not on_cpu and (cards := gpus(env, devices)):
        if len(cards) >= workers:
            return [Share({"CUDA_VISIBLE_DEVICES": ",".join(cards[k::workers])}) for k in range(workers)]
        sharing = -(-workers // len(cards))
        fraction = f"{0.9 / sharing:.3f}"
        return [
            Share({"CUDA_VISIBLE_DEVICES": cards[k % len(cards)], "XLA_PYTHON_CLIENT_MEM_FRACTION": fraction})
            for k in range(workers)
        ]
    if not on_cpu and (chips := tpus(env, devices)):
        # a chip belongs to one process; more workers than chips would only wait
        one_chip = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}
        return [Share({**one_chip, "TPU_VISIBLE_CHIPS": chip}) for chip in chips[:workers]]
    if len(own) < workers:
        return [Share(cpu_devices) for _ in range(workers)]
    return [Share(cpu_devices, frozenset(own[k::workers])) for k in range(workers)]
