"""How a host's devices are shared among worker processes, found without JAX: from device files and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dwsweep.errors import InputError

CORES_VARIABLE = "DWSWEEP_CORES"  # numbers of the CPU cores that a worker stays on, such as 0,2
CPU_DEVICES = "JAX_NUM_CPU_DEVICES"
CPU_THREADS = "NPROC"  # XLA's name for the size of its thread pool


@dataclass(frozen=True)
class Share:
    """What one worker may use."""

    environment: dict[str, str]
    cores: frozenset[int] | None = None  # None: all


def gpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
    """Names of the NVIDIA GPUs that this process may use, as CUDA_VISIBLE_DEVICES takes them."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name.strip() for name in visible.split(",") if name.strip() not in ("", "-1")]
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in devices.glob("nvidia*"))
    return [str(k) for k in range(sum(match is not None for match in found))]


def tpus(environment: Mapping[str, str], devices: Path = Path("/dev")) -> list[str]:
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
    """What makes JAX take each of ``count`` CPU cores for a device, with so many threads in XLA's pool.

    The pool's size is part of it, because XLA divides a matrix product among its threads, and sums of other parts
    round otherwise; by default it follows the cores that happen to be free to the process. A number that the user has
    set in the environment stands. Both have to be there before JAX is imported; accelerators do not heed the first.

    Raises:
        InputError: the user's number of devices is none.
    """
    env = os.environ if environment is None else environment
    said = env.get(CPU_DEVICES, "").strip()
    if said and not (said.isdecimal() and said.isascii() and int(said) > 0):
        raise InputError(f"{CPU_DEVICES}: {said!r}; allowed: a number of devices from 1 on")
    found = {} if env.get(CPU_THREADS, "").strip() else {CPU_THREADS: str(max(1, count))}
    if not (said or "xla_force_host_platform_device_count" in env.get("XLA_FLAGS", "")):
        found[CPU_DEVICES] = str(max(1, count))
    return found


def shares(workers: int, environment: Mapping[str, str] | None = None, devices: Path = Path("/dev")) -> list[Share]:
    """Divide the host among ``workers`` processes: equal parts, whichever of them are at work.

    Each gets whole GPUs or TPU chips where there are enough (one chip each), a part of a GPU's memory where workers
    outnumber GPUs, and on a host without either its own CPU cores. What does not divide evenly stays idle.

    The last bits of a result depend on the number of devices that a pack is spread over and, on a CPU, on the threads
    of XLA's pool. Both follow from ``execution.workers`` and from what the host has (cores or devices ÷ workers),
    never from the number of packs left or from which worker takes one: a worker alone has its part and no more. Hosts
    with other numbers of devices for each worker give results that differ in the last bits; where there are fewer
    cores than workers, each worker has one device and one thread, on a core that it shares.
    """
    env = dict(os.environ) if environment is None else environment
    workers = max(1, workers)
    own = cores()
    each = max(1, len(own) // workers)
    host = each_core_a_device(each, env)
    if workers == 1:
        return [Share(host)]
    on_cpu = env.get("JAX_PLATFORMS") == "cpu"
    if not on_cpu and (cards := gpus(env, devices)):
        if len(cards) >= workers:
            visible = [cards[k::workers][: len(cards) // workers] for k in range(workers)]
            return [Share({"CUDA_VISIBLE_DEVICES": ",".join(part)}) for part in visible]
        memory = part_of_a_gpu(-(-workers // len(cards)))
        return [Share({"CUDA_VISIBLE_DEVICES": cards[k % len(cards)], **memory}) for k in range(workers)]
    if not on_cpu and (chips := tpus(env, devices)):
        # a chip belongs to one process; more workers than chips would only wait
        one_chip = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}
        return [Share({**one_chip, "TPU_VISIBLE_CHIPS": chip}) for chip in chips[:workers]]
    parts = [frozenset(own[(k * each + i) % len(own)] for i in range(each)) for k in range(workers)]
    return [Share(host, part) for part in parts]


def part_of_a_gpu(sharing: int) -> dict[str, str]:
    """What keeps one of ``sharing`` processes on a GPU to its part of the memory; by default JAX takes most of it."""
    return {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / sharing:.3f}"}
