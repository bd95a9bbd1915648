"""Cost of one training step of a compiled program: kernels, memory traffic, matrix products, collectives.

Counted from its text (``hlo``), with no device and no clock. A kernel is an instruction that the device starts by
itself: a fusion, a product, a copy. Its traffic is what it reads and writes in main memory: its operands and its
results, but of an array that is updated in place, or of which a slice is read, only that slice.

The least time that a compiled step can take on a device: the roofline of each kernel, one after another.

    seconds = Σ over kernels max(products / peak, bytes / bandwidth, launch) + Σ over collectives bytes / links

(Williams et al. 2009, kernel by kernel: two kernels do not hide each other's traffic.) A bound, not a prediction: no
kernel reaches its roof, and compilers overlap some of the exchange between devices with computation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from dwsweep.cost.devices import Device
from dwsweep.cost.hlo import Array, Computation, Instruction, Module, Products, groups_of, parse, products_in

FREE = {
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "add-dependency",
    "opt-barrier",
    "partition-id",
    "replica-id",
    "domain",
}
"""Instructions that start nothing on the device."""
FREE_CALLS = ("AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound")
"""Custom calls of the TPU compiler that name memory or promise something, and start nothing either."""
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")


class Traffic(NamedTuple):
    """Bytes read and written in main memory."""

    bytes: float = 0.0  # of elements
    padded: float = 0.0  # with arrays rounded up to whole tiles, as a TPU moves them

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(self.bytes + other.bytes, self.padded + other.padded)


@dataclass(frozen=True)
class Kernel:
    """One kernel; all figures but ``times`` are of one launch."""

    name: str
    times: int  # per step
    traffic: Traffic
    products: Products


@dataclass(frozen=True)
class Collective:
    """One exchange between devices."""

    kind: str
    times: int  # per step
    bytes: float  # of one: what is reduced, or what is gathered together
    groups: tuple[tuple[int, ...], ...]  # of devices, numbered as in the mesh; none: all in one


@dataclass(frozen=True)
class StepCost:
    """Cost of one training step on one device."""

    kernels: tuple[Kernel, ...]
    collectives: tuple[Collective, ...]
    endless: int = 0  # loops whose number of passes is not known, counted as one pass

    @property
    def launches(self) -> int:
        return sum(kernel.times for kernel in self.kernels)

    @property
    def traffic(self) -> Traffic:
        each = [(kernel.times, kernel.traffic) for kernel in self.kernels]
        return Traffic(sum(n * t.bytes for n, t in each), sum(n * t.padded for n, t in each))

    @property
    def products(self) -> Products:
        total = Products()
        for kernel in self.kernels:
            flops, padded, bits = kernel.products
            total = total.plus(Products(kernel.times * flops, kernel.times * padded, bits))
        return total


def step_cost(text: str) -> StepCost:
    """Cost of one pass through the loop of steps, the one whose number of passes is given when it is called.

    Loops inside it are counted as often as they run. A program without such a loop is counted as a whole.

    Raises:
        ValueError: the text is none of a compiled program.
    """
    module = parse(text)
    entry = module[module.entry]
    whiles = [one for one in entry.instructions.values() if one.opcode == "while"]
    loops = [one for one in whiles if module.trip_count(entry, one) is None]
    names = [entry.name] if len(loops) != 1 else [loops[0].called("condition") or "", loops[0].called("body") or ""]
    kernels: list[Kernel] = []
    collectives: list[Collective] = []
    endless = 0
    for times, inside, one in (launch for name in names for launch in _launched(module, module[name], 1)):
        if one.opcode == "while":
            endless += 1
            continue
        kernels.append(Kernel(one.name, times, _traffic(module, inside, one), products_in(module, inside, one)))
        collectives += _collectives(module, inside, one, times)
    return StepCost(tuple(kernels), tuple(collectives), endless)


def axes_of(groups: tuple[tuple[int, ...], ...], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The axes of a mesh of ``sizes`` along which the devices of a group differ."""
    names, lengths = list(sizes), list(sizes.values())
    found = set()
    for group in groups or (tuple(range(math.prod(lengths))),):
        places = [np.unravel_index(device, lengths) for device in group]
        found |= {name for i, name in enumerate(names) if len({place[i] for place in places}) > 1}
    return tuple(name for name in names if name in found)


def _launched(module: Module, inside: Computation, times: int) -> Iterator[tuple[int, Computation, Instruction]]:
    """(times per step, the computation it stands in, the instruction) of all that starts a kernel, and of each loop
    whose number of passes is not known."""
    for one in inside.instructions.values():
        if _is_free(inside, one):
            continue
        if one.opcode == "while":
            passes = module.trip_count(inside, one)
            if passes is None:
                yield times, inside, one
                yield from _launched(module, module[one.called("condition") or ""], times)
            # a loop whose end is known is not asked for it in each pass
            yield from _launched(module, module[one.called("body") or ""], times * (1 if passes is None else passes))
        elif one.opcode in ("call", "async-start"):
            for called in module.called_by(one):
                yield from _launched(module, called, times)
        elif one.opcode == "conditional":
            branches = [list(_launched(module, called, times)) for called in module.called_by(one)]
            yield from max(branches, key=len, default=[])
        else:
            yield times, inside, one


def _is_free(inside: Computation, one: Instruction) -> bool:
    """True for an instruction that starts nothing on the device."""
    if one.opcode == "custom-call":
        return (one.called("custom_call_target") or "").strip('"') in FREE_CALLS
    return one.opcode in FREE or one.opcode.endswith("-done") or _is_scalar_arithmetic(inside, one)


def _is_scalar_arithmetic(inside: Computation, one: Instruction) -> bool:
    """True if it makes scalars of scalars on a TPU, whose core does that by itself between two kernels."""
    arrays = [*one.arrays, *(array for name in one.operands for array in inside.instructions[name].arrays)]
    on_tpu = any(array.tile or array.space for array in one.arrays)
    return on_tpu and one.opcode != "while" and not any(array.dims for array in arrays)


def _size(array: Array) -> Traffic:
    return Traffic(array.bytes, array.padded_bytes) if array.space == 0 else Traffic()


def _total(arrays: tuple[Array, ...]) -> Traffic:
    return reduce(Traffic.plus, map(_size, arrays), Traffic())


def _traffic(module: Module, inside: Computation, one: Instruction) -> Traffic:
    """Memory traffic of one launch."""
    operands = [inside.instructions[name] for name in one.operands if name in inside.instructions]
    if one.opcode == "fusion":
        called = module.called_by(one)[0]
        total = _written(module, called, called.instructions[called.root], _total(one.arrays))
        parameters = called.parameters()
        for i, operand in enumerate(operands):
            if any(array.space == 0 for array in operand.arrays):
                total = total.plus(_read(module, called, parameters[i], _total(operand.arrays)))
        return total
    opcode = one.opcode.removesuffix("-start")
    if opcode in ("dynamic-slice", "slice", "gather"):
        # a start makes (operand, result, context): the last array that is no scalar is the slice
        made = _size([array for array in one.arrays if array.dims or len(one.arrays) == 1][-1])
        part = [array for array in one.arrays if array.dims][-1:]
        read = Traffic(part[0].bytes, part[0].padded_bytes) if part and _in_main(operands[0]) else Traffic()
        return made.plus(read)
    if opcode in ("dynamic-update-slice", "scatter"):
        update = _total(operands[1 if opcode == "dynamic-update-slice" else 2].arrays)
        return update.plus(update if _in_main(one) else Traffic())
    if opcode == "copy" and one.opcode != opcode:
        return _size(one.arrays[0]).plus(_total(operands[0].arrays))  # it makes (destination, source, context)
    read = _total(tuple(array for operand in operands for array in operand.arrays))
    if one.opcode.endswith("-start"):
        return read.plus(read)
    return read.plus(_total(one.arrays))


def _in_main(one: Instruction) -> bool:
    return bool(one.arrays) and one.arrays[0].space == 0


def _read(module: Module, inside: Computation, one: Instruction, whole: Traffic) -> Traffic:
    """Bytes that a fusion reads of one of its values, of size ``whole``: all, unless every use takes a slice."""
    total = Traffic()
    for user in inside.users(one.name):
        first = user.operands[0] == one.name and one.name not in user.operands[1:]
        if user.opcode == "bitcast":
            total = total.plus(_read(module, inside, user, whole))
        elif user.opcode in ("dynamic-slice", "slice", "gather") and first:
            total = total.plus(Traffic(user.arrays[0].bytes, user.arrays[0].padded_bytes))
        elif user.opcode == "dynamic-update-slice" and first:
            continue
        elif user.opcode == "scatter" and first:
            update = inside.instructions[user.operands[2]].arrays[0]
            total = total.plus(Traffic(update.bytes, update.padded_bytes))
        elif user.opcode == "fusion":
            called = module.called_by(user)[0]
            for i, name in enumerate(user.operands):
                if name == one.name:
                    total = total.plus(_read(module, called, called.parameters()[i], whole))
        elif user.opcode == "tuple" and user.name == inside.root:
            continue  # handed on as it is
        else:
            return whole
        if total.bytes >= whole.bytes:
            return whole
    return total


def _written(module: Module, inside: Computation, root: Instruction, whole: Traffic) -> Traffic:
    """Bytes that a fusion writes of its result, of size ``whole``: all, unless it updates a slice in place."""
    if root.opcode == "tuple":
        parts = [inside.instructions[name] for name in root.operands]
        total = reduce(Traffic.plus, (_written(module, inside, part, _total(part.arrays)) for part in parts), Traffic())
        return Traffic(min(total.bytes, whole.bytes), min(total.padded, whole.padded))
    if root.opcode == "bitcast" and root.operands[0] in inside.instructions:
        return _written(module, inside, inside.instructions[root.operands[0]], whole)
    if root.opcode == "fusion":
        called = module.called_by(root)[0]
        return _written(module, called, called.instructions[called.root], whole)
    if root.opcode == "parameter":
        return Traffic()  # handed on as it is
    if root.opcode in ("dynamic-update-slice", "scatter") and _is_argument(inside, root.operands[0]):
        update = inside.instructions[root.operands[1 if root.opcode == "dynamic-update-slice" else 2]].arrays[0]
        if whole.bytes:
            return Traffic(min(update.bytes, whole.bytes), min(update.padded_bytes, whole.padded))
    return whole


def _is_argument(inside: Computation, name: str) -> bool:
    one = inside.instructions[name]
    while one.opcode == "bitcast":
        one = inside.instructions[one.operands[0]]
    return one.opcode == "parameter" or _is_free(inside, one)  # memory that nothing has been written to


def _collectives(module: Module, inside: Computation, one: Instruction, times: int) -> list[Collective]:
    kind = one.opcode.removesuffix("-start")
    if kind in COLLECTIVES:
        given = sum(inside.instructions[name].bytes for name in one.operands)
        # a start makes operands and results
        made = one.bytes - given if one.opcode != kind else one.bytes
        return [Collective(kind, times, made if kind == "all-gather" else given, groups_of(one))]
    if one.opcode != "fusion":
        return []
    found = []
    for called in module.called_by(one):
        for part in called.instructions.values():
            found += _collectives(module, called, part, times)
    return found


LAUNCH_SECONDS = {"gpu": 2.5e-6, "tpu": 0.5e-6}
"""Assumptions: between the starts of two kernels that are too short to hide the launch of the next one on a GPU, and
between two instructions on a TPU, which starts them by itself."""
TF32_SHARE = 0.5
"""Share of an NVIDIA GPU's 16-bit peak that products of float32 operands reach as TF32, XLA's default there. A TPU
rounds such operands to bfloat16 by default, at the full rate."""

PRODUCTS, TRAFFIC, LAUNCHES, LINKS = "products", "traffic", "launches", "links"


@dataclass(frozen=True)
class Roofline:
    """Seconds per step, as ``records.run.CompiledRow`` has them; the first is the bound, the others each part alone."""

    roofline_seconds: float
    products_seconds: float
    traffic_seconds: float
    launch_seconds: float
    link_seconds: float | None  # None: there are collectives, and the device's links are not in the table
    bound: str  # which of the parts takes most of the time: products, traffic, launches or links


def roofline(cost: StepCost, device: Device) -> Roofline:
    """Roofline of one step on ``device``."""
    each = [(kernel.times, _parts(kernel, device)) for kernel in cost.kernels]
    alone = [float(sum(times * parts[i] for times, parts in each)) for i in range(3)]
    link = _link_seconds(cost.collectives, device)
    names = (PRODUCTS, TRAFFIC, LAUNCHES)
    held = dict.fromkeys(names, 0.0)  # seconds of the kernels that each of the parts holds back
    for times, parts in each:
        held[names[parts.index(max(parts))]] += times * max(parts)
    held[LINKS] = link or 0.0
    return Roofline(
        roofline_seconds=sum(held.values()),
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
    """Seconds of a collective in rings: each of g devices sends (g−1)/g of what is gathered or scattered, and twice
    that of what is summed and handed back to all."""
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
