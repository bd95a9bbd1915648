"""Footing of a run's last bits: all conditions besides config.json and the tokens.

Two attempts on one footing give equal bits, however often each was interrupted. On another footing sums are taken in
another order, or by other instructions, and last bits differ. Each attempt at a pack is recorded with its footing
(``PackState.started``), and a resume on another one names the differences.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path

from dwsweep.records.record import Positive

PACKAGES = {
    **{"jax": "jax", "jaxlib": "jaxlib", "flax": "flax", "optax": "optax", "orbax": "orbax-checkpoint"},
    "numpy": "numpy",
}
FLAGS = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "NVIDIA_TF32_OVERRIDE",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DEFAULT_PRNG_IMPL",
    "JAX_ENABLE_X64",
)
"""Environment variables that change a program or its rounding; a compiler's options stand beside them."""
_VECTOR = re.compile(r"((avx|amx|sse4|fma|sve|asimd)\w*|f16c|sme2?|bf16|i8mm)")


@dataclass(frozen=True)
class Footing:
    """Host and software of an attempt, found by its worker; ``StartFacts`` has the devices and
    the choices of the program."""

    host: str = ""  # host name, for a person; no bit rests on it
    processor: str | None = None  # name of the processor; None if the system does not give it
    instructions: tuple[str, ...] = ()  # vector instruction sets that XLA may use on a CPU
    cores: Positive | None = None  # cores that the worker may use
    workers: Positive | None = None  # ``execution.workers``, which share the host's cores
    flags: dict[str, str] = field(default_factory=dict)  # environment flags among FLAGS that are set
    backend: str | None = None  # version of the device's own software: CUDA, libtpu
    versions: dict[str, str] = field(default_factory=dict)


def cores() -> list[int]:
    """Cores that this process may use, by its affinity if the system has one."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def here(workers: int | None, backend: str | None) -> Footing:
    """Find the footing of this process."""
    processor, instructions = _processor()
    flags = {name: os.environ[name] for name in FLAGS if os.environ.get(name)}
    return Footing(platform.node(), processor, instructions, len(cores()), workers, flags, backend, versions())


@cache
def _processor() -> tuple[str | None, tuple[str, ...]]:
    """Name and sets of vector instructions of the first core."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8", "replace").partition("\n\n")[0]
    except OSError:
        return platform.processor() or None, ()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    sets = facts.get("flags", facts.get("Features", "")).split()
    name = facts.get("model name") or " ".join(facts[key] for key in ("CPU implementer", "CPU part") if key in facts)
    return name or None, tuple(sorted(one for one in sets if _VECTOR.fullmatch(one)))


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions(packages: Mapping[str, str] = PACKAGES) -> dict[str, str]:
    """Versions of Python and of the installed ``packages`` (name → distribution), by default all that last bits depend
    on."""
    found = {name: _version(package) for name, package in packages.items()}
    return {"python": platform.python_version(), **{name: one for name, one in found.items() if one is not None}}
