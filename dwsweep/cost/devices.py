"""Devices: peak rates, each from its maker's public data sheet. Other devices are unknown, never guessed; a user may
give their rates: ``tflops=165,gb=24,gbps=1008``.

A device is what JAX counts as one: a GPU, a TPU chip, and for TPU v2 and v3 one of the chip's two cores.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import cache

GB = 1e9
JAX_SHARE_OF_GPU = 0.75
"""Share of a GPU's memory that JAX takes for itself unless XLA_PYTHON_CLIENT_MEM_FRACTION is set."""


@dataclass(frozen=True)
class Device:
    """One row of the table of devices."""

    name: str
    peak_flops: float  # dense 16-bit matrix products, FLOP/s (half of a figure given "with sparsity")
    memory_bytes: float
    bandwidth: float  # memory bandwidth, bytes/s
    kinds: tuple[str, ...]  # JAX's names for it (``jax.Device.device_kind``)
    source: str

    @property
    def usable_bytes(self) -> float:
        """Bytes that JAX may use by default; on a GPU, JAX leaves a part to other processes."""
        return self.memory_bytes * (1.0 if self.is_tpu else JAX_SHARE_OF_GPU)

    @property
    def is_tpu(self) -> bool:
        """True of TPUs; all others, those given by their rates among them, count as GPUs."""
        return self.name.startswith("TPU")


def _device(name: str, tflops: float, memory_gb: float, gb_per_second: float, kinds: str, source: str) -> Device:
    """Device from the units of a data sheet."""
    return Device(name, tflops * 1e12, memory_gb * GB, gb_per_second * GB, tuple(kinds.split("|")), source)


_NVIDIA = "NVIDIA data sheet, {}"
_GEFORCE = "NVIDIA white paper, {} architecture"
_CLOUD = "Google Cloud TPU documentation, system architecture, {}"

# name, dense 16-bit TFLOP/s, memory in GB, memory bandwidth in GB/s, JAX's device_kind, source
DEVICES: tuple[Device, ...] = (
    # 4,500 TFLOP/s with sparsity
    _device("B200", 2250, 180, 8000, "NVIDIA B200", _NVIDIA.format("HGX B200")),
    # 1,979 TFLOP/s with sparsity on the sheets of both
    _device("H200", 989, 141, 4800, "NVIDIA H200", _NVIDIA.format("H200 (SXM)")),
    _device("H100", 989, 80, 3350, "NVIDIA H100|NVIDIA H100 80GB HBM3", _NVIDIA.format("H100 (SXM)")),
    # 1,513 with sparsity
    _device("H100-PCIe", 756, 80, 2000, "NVIDIA H100 PCIe", _NVIDIA.format("H100 (PCIe)")),
    _device("A100-80GB", 312, 80, 2039, "A100|NVIDIA A100-SXM4-80GB", _NVIDIA.format("A100 (80GB SXM)")),
    _device("A100-80GB-PCIe", 312, 80, 1935, "NVIDIA A100 80GB PCIe", _NVIDIA.format("A100 (80GB PCIe)")),
    _device("A100-40GB", 312, 40, 1555, "NVIDIA A100-SXM4-40GB|NVIDIA A100-PCIE-40GB", _NVIDIA.format("A100 (40GB)")),
    # 733 with sparsity; the sheet prints 362 dense
    _device("L40S", 362, 48, 864, "NVIDIA L40S", _NVIDIA.format("L40S")),
    # 309.7 with sparsity
    _device("A6000", 154.8, 48, 768, "NVIDIA RTX A6000|RTX A6000", _NVIDIA.format("RTX A6000")),
    # GeForce: rate with float32 accumulation, as in training; the rate with float16 accumulation is twice that
    _device("RTX 5090", 209.5, 32, 1792, "NVIDIA GeForce RTX 5090", _GEFORCE.format("RTX Blackwell")),
    _device("RTX 4090", 165.2, 24, 1008, "NVIDIA GeForce RTX 4090", _GEFORCE.format("Ada")),
    _device("RTX 3090", 71, 24, 936, "NVIDIA GeForce RTX 3090", _GEFORCE.format("GA102")),
    # 2,614.9 with sparsity
    _device("MI300X", 1307.4, 192, 5300, "AMD Instinct MI300X", "AMD data sheet, Instinct MI300X"),
    # 242 with sparsity
    _device("L4", 121, 24, 300, "NVIDIA L4", _NVIDIA.format("L4")),
    _device("A10", 125, 24, 600, "NVIDIA A10", _NVIDIA.format("A10")),
    # float16: these two have no bfloat16 units
    _device("V100", 125, 16, 900, "Tesla V100-SXM2-16GB", _NVIDIA.format("V100 (SXM2)")),
    _device("V100-32GB", 125, 32, 900, "Tesla V100-SXM2-32GB", _NVIDIA.format("V100 (SXM2)")),
    _device("T4", 65, 16, 320, "Tesla T4", _NVIDIA.format("T4")),
    _device("TPU-v6e", 918, 32, 1640, "TPU v6e|TPU v6 lite", _CLOUD.format("v6e (Trillium)")),
    _device("TPU-v5p", 459, 95, 2765, "TPU v5p|TPU v5", _CLOUD.format("v5p")),
    _device("TPU-v5e", 197, 16, 819, "TPU v5e|TPU v5 lite", _CLOUD.format("v5e")),
    _device("TPU-v4", 275, 32, 1228, "TPU v4", _CLOUD.format("v4")),
    # 123 TFLOP/s, 32 GB and 900 GB/s a chip; JAX counts its two cores
    _device("TPU-v3", 61.5, 16, 450, "TPU v3", _CLOUD.format("v3, one of two cores")),
    # 45 TFLOP/s, 16 GB and 700 GB/s a chip
    _device("TPU-v2", 22.5, 8, 350, "TPU v2", _CLOUD.format("v2, one of two cores")),
)


GIVEN = "tflops=…,gb=…,gbps=…"
_RATES = ("tflops", "gb", "gbps")


def given(text: str) -> Device | None:
    """Device given by its rates, ``tflops=165,gb=24,gbps=1008``: dense 16-bit TFLOP/s, GB and GB/s of memory; None
    unless the text gives exactly these three, each above 0."""
    rates = dict[str, float]()
    for part in text.lower().split(","):
        name, _, value = part.partition("=")
        try:
            rates[name.strip()] = float(value)
        except ValueError:
            return None
    if sorted(rates) != sorted(_RATES) or not all(0.0 < rate < 1e9 for rate in rates.values()):
        return None
    return _device(text, rates["tflops"], rates["gb"], rates["gbps"], "", "given")


@cache
def find(name: str | None) -> Device | None:
    """Device by a name of the table, by JAX's ``device_kind``, or by its rates (``given``); None if unknown.

    Case, spaces and hyphens do not matter: ``RTX-4090``. Only whole names match: an A10G is no A10, and a MIG slice of
    an H100 no H100.
    """
    if "=" in (name or ""):
        return given(name or "")
    wanted = _plain(name or "")
    for device in DEVICES:
        if wanted in map(_plain, (device.name, *device.kinds)):
            return device
    return None


def _plain(name: str) -> str:
    """Name without case, spaces and hyphens."""
    return re.sub(r"[\s_-]", "", name).lower()


def suggestion(name: str) -> str:
    """Names of the table, the most similar first, for a message about an unknown device."""
    names = [device.name for device in DEVICES]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    return ", ".join(dict.fromkeys([*near, *names]))
