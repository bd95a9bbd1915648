"""The least time that a compiled step can take on a device: the roofline of each kernel, one after another.

    seconds = Σ over kernels max(products / peak, bytes / bandwidth, launch) + Σ over collectives bytes / links

(Williams et al. 2009, kernel by kernel: two kernels do not hide each other's traffic.) A bound, not a prediction: no
kernel reaches its roof, and compilers overlap some of the exchange between devices with computation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dwsweep.cost.compiled_costs import Collective, Kernel, StepCost
from dwsweep.cost.devices import Device

LAUNCH_SECONDS = {"gpu": 2.5e-6, "tpu": 0.5e-6}
"""Assumptions: between the starts of two kernels that are too short to hide the launch of the next one on a GPU, and
between two instructions on a TPU, which starts them by itself."""
TF32_SHARE = 0.5
"""Of the 16-bit peak of an NVIDIA GPU, what products of float32 operands reach as TF32, XLA's default there. A TPU
rounds such operands to bfloat16 by default, at the full rate."""

PRODUCTS, TRAFFIC, LAUNCHES, LINKS = "products", "traffic", "launches", "links"


@dataclass(frozen=True)
class Roofline:
    """Seconds per step; the first is the bound, the others are each part alone."""

    seconds: float
    products_seconds: float
    traffic_seconds: float
    launch_seconds: float
    link_seconds: float | None  # None: there are collectives, and the device's links are not in the table
    bound: str  # which of the parts takes most of the time: products, traffic, launches or links


def roofline(cost: StepCost, device: Device) -> Roofline:
    """Of one step on ``device``."""
    each = [(kernel.times, _parts(kernel, device)) for kernel in cost.kernels]
    alone = [float(sum(times * parts[i] for times, parts in each)) for i in range(3)]
    link = _link_seconds(cost.collectives, device)
    names = (PRODUCTS, TRAFFIC, LAUNCHES)
    held = dict.fromkeys(names, 0.0)  # seconds of the kernels that each of the parts holds back
    for times, parts in each:
        held[names[parts.index(max(parts))]] += times * max(parts)
    held[LINKS] = link or 0.0
    return Roofline(
        seconds=sum(held.values()),
        products_seconds=alone[0],
        traffic_seconds=alone[1],
        launch_seconds=alone[2],
        link_seconds=link,
        bound=max(held, key=held.__getitem__),
    )


def _parts(kernel: Kernel, device: Device) -> tuple[float, float, float]:
    """Seconds of one launch: products, traffic, the launch itself."""
    is_tpu = device.name.startswith("TPU")
    flops, padded, bits = kernel.products
    peak = device.peak_flops * (TF32_SHARE if bits > 16 and not is_tpu else 1.0)
    products = (padded if is_tpu else flops) / peak
    traffic = (kernel.traffic.padded if is_tpu else kernel.traffic.bytes) / device.bandwidth
    return products, traffic, LAUNCH_SECONDS["tpu" if is_tpu else "gpu"]


def _link_seconds(collectives: Sequence[Collective], device: Device) -> float | None:
    """In rings: of g devices each sends (g−1)/g of what is gathered or scattered, and twice that of what is summed and
    handed back to all."""
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
