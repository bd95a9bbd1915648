"""Floating-point operations of the matrix products in a compiled program.

A product of (m × k) and (k × n) counts 2·m·n·k, however the compiler writes it: a dot, a convolution, as on a TPU, or a
call of a library.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from functools import cache
from typing import NamedTuple

from dwsweep.cost.hlo import Array, Computation, Instruction, Module

SYSTOLIC_SIDE = 128
"""Rows and columns of a TPU's matrix unit, and lanes of its registers (v6e multiplies 256 × 256)."""
SUBLANES = 8


class Products(NamedTuple):
    """Floating-point operations of matrix products: 2·m·n·k each."""

    flops: float = 0.0
    padded: float = 0.0  # with k and n (or m) rounded up to the side of a systolic array
    bits: int = 0  # of an operand's element, the widest

    def plus(self, other: Products) -> Products:
        return Products(self.flops + other.flops, self.padded + other.padded, max(self.bits, other.bits))


def products_in(module: Module, inside: Computation, one: Instruction) -> Products:
    """Of one launch, those inside a fusion with all that it calls."""
    if one.opcode == "dot":
        return _dot(inside, one)
    if one.opcode == "convolution":
        return _convolution(inside, one)
    if one.opcode == "custom-call" and "cublas" in (one.called("custom_call_target") or ""):
        return _library_product(inside, one)
    total = Products()
    if one.opcode == "fusion":
        for called in module.called_by(one):
            for part in called.instructions.values():
                total = total.plus(products_in(module, called, part))
    return total


def _up(n: float, step: int) -> float:
    return math.ceil(n / step) * step


def _product(batch: float, m: float, n: float, k: float, bits: int) -> Products:
    columns = min(_up(m, SUBLANES) * _up(n, SYSTOLIC_SIDE), _up(n, SUBLANES) * _up(m, SYSTOLIC_SIDE))
    return Products(2 * batch * m * n * k, 2 * batch * _up(k, SYSTOLIC_SIDE) * columns, bits)


def _operand(inside: Computation, one: Instruction, i: int) -> Array:
    return inside.instructions[one.operands[i]].arrays[0]


def _dot(inside: Computation, one: Instruction) -> Products:
    left, right = _operand(inside, one, 0), _operand(inside, one, 1)
    return _of_dims(
        left,
        right,
        one.numbers("lhs_contracting_dims"),
        one.numbers("rhs_contracting_dims"),
        one.numbers("lhs_batch_dims"),
        one.numbers("rhs_batch_dims"),
    )


def _of_dims(
    left: Array,
    right: Array,
    left_k: tuple[int, ...],
    right_k: tuple[int, ...],
    left_b: tuple[int, ...],
    right_b: tuple[int, ...],
) -> Products:
    k = math.prod(left.dims[i] for i in left_k)
    batch = math.prod(left.dims[i] for i in left_b)
    m = math.prod(size for i, size in enumerate(left.dims) if i not in (*left_k, *left_b))
    n = math.prod(size for i, size in enumerate(right.dims) if i not in (*right_k, *right_b))
    return _product(batch, m, n, k, max(left.bits, right.bits))


def _library_product(inside: Computation, one: Instruction) -> Products:
    """A call of cuBLAS, whose backend configuration names the dimensions."""
    found = re.search(r'"dot_dimension_numbers":(\{[^}]*\})', one.attributes)
    if found is None:
        return Products()
    dims = {key: tuple(int(n) for n in value) for key, value in json.loads(found.group(1)).items() if value}
    names = (f"{side}_{kind}_dimensions" for kind in ("contracting", "batch") for side in ("lhs", "rhs"))
    return _of_dims(_operand(inside, one, 0), _operand(inside, one, 1), *(dims.get(name, ()) for name in names))


def _convolution(inside: Computation, one: Instruction) -> Products:
    """As TPUs write a product. Only pairs of elements that meet are counted, not those with padding or holes."""
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", one.attributes)
    if labels is None:
        return Products()
    left, kernel, out = labels.groups()
    data, weights, made = _operand(inside, one, 0), _operand(inside, one, 1), one.arrays[0]
    window = dict(re.findall(r"(\w+)=([^\s}]+)", (re.search(r"window=\{([^}]*)\}", one.attributes) or [""])[0]))
    spatial = sorted(c for c in out if c.isdigit())
    meetings = 1
    for i, axis in enumerate(spatial):
        low = int(window["pad"].split("x")[i].split("_")[0]) if "pad" in window else 0
        steps = [
            int(window[key].split("x")[i]) if key in window else 1 for key in ("stride", "lhs_dilate", "rhs_dilate")
        ]
        sizes = data.dims[left.index(axis)], weights.dims[kernel.index(axis)], made.dims[out.index(axis)]
        meetings *= _meetings(*sizes, low, *steps)
    groups = re.search(r"batch_group_count=(\d+)", one.attributes)
    rows = made.dims[out.index("b")] / (int(groups.group(1)) if groups else 1)
    depth, columns = weights.dims[kernel.index("i")], made.dims[out.index("f")]
    return _product(meetings, rows, columns, depth, max(data.bits, weights.bits))


@cache
def _meetings(data: int, kernel: int, out: int, low: int, stride: int, data_holes: int, kernel_holes: int) -> int:
    """Pairs (place of the output, element of the kernel) along one axis for which there is an element of the data."""
    if data_holes == kernel_holes == 1 and kernel == 1 and low == 0:
        return min(out, math.ceil(data / stride))
    reach = (data - 1) * data_holes + 1
    found = Counter(
        0 <= (at := o * stride - low + k * kernel_holes) < reach and at % data_holes == 0
        for o in range(out)
        for k in range(kernel)
    )
    return found[True]
