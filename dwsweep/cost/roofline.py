"""Roofline of one training step: the least time that its kernels and exchanges can take on a device.

    seconds = Σ over kernels max(FLOPs / peak, bytes / bandwidth, launch) + Σ over collectives bytes / links

(Williams et al. 2009, kernel by kernel: two kernels do not hide each other's traffic.) A bound, not a prediction: no
kernel reaches its roof, and compilers overlap some of the exchange between devices with computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dwsweep.cost.devices import Device

LAUNCH_SECONDS = {"gpu": 2.5e-6, "tpu": 0.5e-6}
"""Assumptions: between the starts of two kernels that are too short to hide the launch of the next one on a GPU, and
between two instructions on a TPU, which starts them by itself."""
TF32_SHARE = 0.5
"""Share of an NVIDIA GPU's 16-bit peak that products of float32 operands reach as TF32, XLA's default there. A TPU
rounds such operands to bfloat16 by default, at the full rate."""

PRODUCTS, TRAFFIC, LAUNCHES, LINKS = "products", "traffic", "launches", "links"


@dataclass(frozen=True)
class Kernel:
    """Kernel, with FLOPs and bytes per launch."""

    name: str
    times: int  # launches per step
    flops: float
    bytes: float  # bytes read and written in main memory


@dataclass(frozen=True)
class Collective:
    """Collective: one exchange between devices."""

    kind: str
    times: int  # per step
    bytes: float  # bytes of one exchange: the summed or gathered array
    groups: tuple[tuple[int, ...], ...]  # groups of devices, numbered as in the mesh; empty: one group


@dataclass(frozen=True)
class StepCost:
    """Cost of one training step on one device."""

    kernels: tuple[Kernel, ...]
    collectives: tuple[Collective, ...]

    @property
    def launches(self) -> int:
        return sum(kernel.times for kernel in self.kernels)

    @property
    def flops(self) -> float:
        return sum(kernel.times * kernel.flops for kernel in self.kernels)

    @property
    def bytes(self) -> float:
        return sum(kernel.times * kernel.bytes for kernel in self.kernels)


@dataclass(frozen=True)
class Roofline:
    """Seconds per step, as in ``records.bench.CompiledRow``: the first is the bound, the others each part alone."""

    roofline_seconds: float
    products_seconds: float
    traffic_seconds: float
    launch_seconds: float
    link_seconds: float | None  # None: the program has collectives, and the table lacks the device's links
    bound: str  # largest part of the time: products, traffic, launches or links


def roofline(cost: StepCost, device: Device, precision: str) -> Roofline:
    """Roofline of one step on ``device``, its products in ``precision``."""
    peak = device.peak_flops * (1.0 if device.is_tpu or precision != "float32" else TF32_SHARE)
    launch = LAUNCH_SECONDS["tpu" if device.is_tpu else "gpu"]
    names = (PRODUCTS, TRAFFIC, LAUNCHES)
    alone = [0.0, 0.0, 0.0]
    held = dict.fromkeys((*names, LINKS), 0.0)  # seconds of the kernels, by the part that limits them
    for kernel in cost.kernels:
        parts = (kernel.flops / peak, kernel.bytes / device.bandwidth, launch)
        alone = [total + kernel.times * part for total, part in zip(alone, parts, strict=True)]
        held[names[parts.index(max(parts))]] += kernel.times * max(parts)
    link = _link_seconds(cost.collectives, device)
    held[LINKS] = link or 0.0
    products, traffic, launches = alone
    return Roofline(sum(held.values()), products, traffic, launches, link, max(held, key=held.__getitem__))


def _link_seconds(collectives: Sequence[Collective], device: Device) -> float | None:
    """Seconds of the collectives in rings: each of g devices sends (g−1)/g of a gathered or scattered array, twice that
    of a summed array."""
    if not collectives:
        return 0.0
    if device.link_bandwidth is None:
        return None
    total = 0.0
    for one in collectives:
        size = max((len(group) for group in one.groups), default=0)
        share = (size - 1) / size if size else 1.0
        factor = {"all-reduce": 2 * share, "collective-permute": 1.0}.get(one.kind, share)
        total += one.times * factor * one.bytes / device.link_bandwidth
    return total
