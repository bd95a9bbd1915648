"""The text of a compiled XLA program as records: computations, their instructions, the arrays those make.

Reads what ``compiled.as_text()`` prints for the CPU, NVIDIA GPUs and TPUs. Nothing here knows what anything costs.

Floating-point operations of the matrix products in a compiled program.

A product of (m × k) and (k × n) counts 2·m·n·k, however the compiler writes it: a dot, a convolution, as on a TPU, or a
call of a library.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import NamedTuple

import numpy as np

BITS = {"pred": 8, "token": 0, "opaque": 0}
"""Bits of one element, for types whose name does not end in their width."""

_ARRAY = re.compile(r"([a-z]+[0-9]*[a-z0-9]*)\[([0-9,<= ]*)\](?:\{([^{}]*)\})?")
_HEAD = re.compile(r"^(ENTRY\s+)?%?([^\s(]+)\s.*->.*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT\s+)?%?([^\s=]+)\s+=\s+(.*)$")
_OPCODE = re.compile(r"\s*([a-z][a-z0-9-]*)\(")


@dataclass(frozen=True)
class Array:
    """An array as it lies in memory."""

    dtype: str
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...] = ()  # axes, the one whose elements are neighbours first
    tile: tuple[int, ...] = ()  # sizes that the minor axes are rounded up to, as on a TPU: (8, 128)
    space: int = 0  # 0 the device's main memory; others lie on the chip or on the host

    @property
    def elements(self) -> int:
        return math.prod(self.dims)

    @property
    def bits(self) -> int:
        return element_bits(self.dtype)

    @property
    def bytes(self) -> int:
        """Bytes of the elements, without padding."""
        return math.ceil(self.elements * self.bits / 8)

    @property
    def padded_bytes(self) -> int:
        """Bytes with the minor axes rounded up to whole tiles."""
        sizes = [self.dims[axis] for axis in self.minor_to_major]
        for i, step in enumerate(reversed(self.tile)):
            if i < len(sizes):
                sizes[i] = math.ceil(sizes[i] / step) * step
        return math.ceil(math.prod(sizes) * self.bits / 8) if sizes else self.bytes


@dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str
    arrays: tuple[Array, ...]  # what it makes; several for a tuple, nested ones one after another
    opcode: str
    operands: tuple[str, ...]  # names of instructions of the same computation
    attributes: str  # the rest of the line
    literal: str  # between the parentheses of the opcode: of a parameter its number, of a constant its value

    @property
    def bytes(self) -> int:
        return sum(array.bytes for array in self.arrays)

    def called(self, key: str = "calls") -> str | None:
        """The computation named by an attribute such as ``calls`` or ``body``."""
        found = re.search(rf"\b{key}=%?([^\s,)}}]+)", self.attributes)
        return found.group(1) if found else None

    def numbers(self, key: str) -> tuple[int, ...]:
        """The list of an attribute such as ``lhs_contracting_dims={1}``; empty where it has none."""
        found = re.search(rf"\b{key}=\{{([0-9, ]*)\}}", self.attributes)
        return tuple(int(n) for n in found.group(1).split(",") if n.strip()) if found else ()


@dataclass(frozen=True)
class Computation:
    name: str
    instructions: dict[str, Instruction]  # by name, in the order of the text
    root: str

    def parameters(self) -> dict[int, Instruction]:
        """The computation's parameters by number."""
        return {int(one.literal): one for one in self.instructions.values() if one.opcode == "parameter"}

    def users(self, name: str) -> list[Instruction]:
        return [one for one in self.instructions.values() if name in one.operands]


@dataclass(frozen=True)
class Module:
    computations: dict[str, Computation]
    entry: str

    def __getitem__(self, name: str) -> Computation:
        return self.computations[name]

    def called_by(self, instruction: Instruction) -> list[Computation]:
        """The computations that ``calls``, ``to_apply`` and the branches of a conditional name."""
        names = [instruction.called(key) for key in ("calls", "to_apply", "true_computation", "false_computation")]
        if branches := re.search(r"branch_computations=\{([^}]*)\}", instruction.attributes):
            names += [name.strip().lstrip("%") for name in branches.group(1).split(",")]
        return [self.computations[name] for name in names if name in self.computations]

    def trip_count(self, inside: Computation, loop: Instruction) -> int | None:
        """How often the body of a ``while`` in ``inside`` runs; None where that depends on data.

        Some compilers write it beside the loop. Those of TPUs do not, and it is read from the condition ``i < limit``,
        the first value of i and the step that the body adds to it.
        """
        if found := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.attributes):
            return int(found.group(1))
        condition, body = (self.computations[loop.called(key) or ""] for key in ("condition", "body"))
        test = condition.instructions[condition.root]
        if test.opcode != "compare" or "direction=LT" not in test.attributes:
            return None
        counter, limit = (condition.instructions[name] for name in test.operands)
        place = re.search(r"index=(\d+)", counter.attributes)
        if counter.opcode != "get-tuple-element" or place is None or limit.opcode != "constant":
            return None
        index = int(place.group(1))
        first = _constant(inside, _element(inside, loop.operands[0], index))
        step = _added(body, _element(body, body.root, index))
        if first is None or not step or not limit.literal.isdigit():
            return None
        return max(0, math.ceil((int(limit.literal) - first) / step))


def _element(inside: Computation, name: str, index: int) -> Instruction | None:
    made = inside.instructions[name]
    return inside.instructions[made.operands[index]] if made.opcode == "tuple" else None


def _constant(inside: Computation, one: Instruction | None) -> int | None:
    while one is not None and one.opcode in ("copy", "bitcast"):
        one = inside.instructions[one.operands[0]]
    return int(one.literal) if one is not None and one.opcode == "constant" and one.literal.isdigit() else None


def _added(inside: Computation, one: Instruction | None) -> int | None:
    """The constant that an addition adds."""
    if one is None or one.opcode != "add":
        return None
    return next((n for name in one.operands if (n := _constant(inside, inside.instructions[name])) is not None), None)


def element_bits(dtype: str) -> int:
    """Bits of one element: 16 for ``bf16``, 8 for ``f8e4m3fn`` and ``pred``."""
    if dtype in BITS:
        return BITS[dtype]
    width = re.match(r"[a-z]+(\d+)", dtype)
    return int(width.group(1)) if width else 0


def arrays_of(text: str) -> tuple[Array, ...]:
    """The arrays of a type such as ``(s32[], bf16[8,34]{1,0:T(8,128)(2,1)})``."""
    return tuple(_array(*found.groups()) for found in _ARRAY.finditer(text))


def _array(dtype: str, dims: str, layout: str | None) -> Array:
    sizes = tuple(int(n.strip("<= ")) for n in dims.split(",") if n.strip())
    order, _, rest = (layout or "").partition(":")
    tile = re.search(r"T\(([0-9,]+)\)", rest)
    space = re.search(r"S\((\d+)\)", rest)
    return Array(
        dtype,
        sizes,
        tuple(int(n) for n in order.split(",") if n.strip()),
        tuple(int(n) for n in tile.group(1).split(",")) if tile else (),
        int(space.group(1)) if space else 0,
    )


def parse(text: str) -> Module:
    """Parse a program.

    Raises:
        ValueError: the text has no entry computation.
    """
    computations: dict[str, Computation] = {}
    entry = name = root = ""
    inside: dict[str, Instruction] | None = None
    for line in text.splitlines():
        if inside is None:
            if head := _HEAD.match(line):
                name, inside, root = head.group(2), {}, ""
                entry = name if head.group(1) else entry
        elif line.startswith("}"):
            computations[name] = Computation(name, inside, root or next(reversed(inside), ""))
            inside = None
        elif found := _INSTRUCTION.match(line):
            one = _instruction(found.group(2), found.group(3))
            inside[one.name] = one
            root = one.name if found.group(1) else root
    if not entry:
        raise ValueError("no ENTRY computation: this is not the text of a compiled program")
    return Module(computations, entry)


def _instruction(name: str, rest: str) -> Instruction:
    stop = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    opcode = _OPCODE.match(rest, stop)
    if opcode is None:
        raise ValueError(f"cannot read the instruction %{name} = {rest[:80]}")
    end = _closing(rest, opcode.end() - 1)
    literal = rest[opcode.end() : end]
    operands = tuple(part.group(1) for part in re.finditer(r"%([^\s,)]+)", literal))
    return Instruction(name, arrays_of(rest[:stop]), opcode.group(1), operands, rest[end + 1 :], literal)


def _closing(text: str, start: int) -> int:
    """Index at which the parenthesis at ``start`` is closed."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise ValueError(f"no closing parenthesis: {text[start : start + 80]}")


def groups_of(instruction: Instruction) -> tuple[tuple[int, ...], ...]:
    """The groups of devices among which a collective takes place; none where all take part in one.

    Written as ``{{0,1},{2,3}}``, as the rows of an iota, ``[2,2]<=[4]`` or ``[2,4]<=[4,2]T(1,0)``, or as axes of a
    mesh, ``mesh['a'=2,'b'=4] {'a'}``, of which one may be a part: ``'b':(2)2``.
    """
    text = instruction.attributes
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", text):
        return _along(mesh.group(1), mesh.group(2))
    if listed := re.search(r"(?:replica_groups|source_target_pairs)=\{((?:\{[0-9,]*\},?)*)\}", text):
        return tuple(tuple(map(int, g.split(","))) for g in re.findall(r"\{([0-9,]+)\}", listed.group(1)))
    if iota := re.search(r"replica_groups=\[([0-9,]+)\]<=\[([0-9,]+)\](?:T\(([0-9,]+)\))?", text):
        rows, sizes = (tuple(map(int, iota.group(i).split(","))) for i in (1, 2))
        order = tuple(map(int, iota.group(3).split(","))) if iota.group(3) else tuple(range(len(sizes)))
        flat = _transposed(sizes, order)
        each = math.prod(rows[1:])
        return tuple(tuple(flat[i : i + each]) for i in range(0, len(flat), each))
    return ()


def _along(mesh: str, axes: str) -> tuple[tuple[int, ...], ...]:
    """The groups along some axes of a mesh, each given as ``'name'=size`` and ``'name'`` or ``'name':(before)size``."""
    chosen = {name: (before, size) for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", axes)}
    sizes: list[int] = []
    varying: list[int] = []  # of the axes, each cut where only a part of it is meant
    for name, text in re.findall(r"'([^']+)'=(\d+)", mesh):
        size = int(text)
        before, part = chosen.get(name, ("", ""))
        cut = (int(before), int(part), size // int(before) // int(part)) if part else (size,)
        if name in chosen:
            varying.append(len(sizes) + (1 if part else 0))
        sizes += cut
    fixed = [i for i in range(len(sizes)) if i not in varying]
    flat = _transposed(tuple(sizes), (*fixed, *varying))
    each = math.prod(sizes[i] for i in varying)
    return tuple(tuple(flat[i : i + each]) for i in range(0, len(flat), each))


def _transposed(sizes: tuple[int, ...], order: tuple[int, ...]) -> list[int]:
    """0 … n−1 in an array of ``sizes``, read with its axes in ``order``."""
    found: list[int] = np.arange(math.prod(sizes)).reshape(sizes).transpose(order).ravel().tolist()
    return found


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
    """Matrix products of one launch, inside a fusion with all that it calls."""
    if one.opcode == "dot":
        return _dot(inside, one)
    if one.opcode == "convolution":
        return _convolution(inside, one)
    if one.opcode == "custom-call" and "cublas" in (one.called("custom_call_target") or ""):
        return _library_product(inside, one)
    called = module.called_by(one) if one.opcode == "fusion" else []
    parts = (products_in(module, inner, part) for inner in called for part in inner.instructions.values())
    return reduce(Products.plus, parts, Products())


def _up(n: float, step: int) -> float:
    return math.ceil(n / step) * step


def _product(batch: float, m: float, n: float, k: float, bits: int) -> Products:
    columns = min(_up(m, SUBLANES) * _up(n, SYSTOLIC_SIDE), _up(n, SUBLANES) * _up(m, SYSTOLIC_SIDE))
    return Products(2 * batch * m * n * k, 2 * batch * _up(k, SYSTOLIC_SIDE) * columns, bits)


def _operand(inside: Computation, one: Instruction, i: int) -> Array:
    return inside.instructions[one.operands[i]].arrays[0]


Axes = Sequence[int]


def _dot(inside: Computation, one: Instruction) -> Products:
    names = (f"{side}_{kind}_dims" for kind in ("contracting", "batch") for side in ("lhs", "rhs"))
    return _of_dims(inside, one, *map(one.numbers, names))


def _of_dims(
    inside: Computation, one: Instruction, left_k: Axes, right_k: Axes, left_b: Axes, right_b: Axes
) -> Products:
    """Count a product from the axes of its operands that are summed over (k) or in both (b)."""
    left, right = _operand(inside, one, 0), _operand(inside, one, 1)
    k = math.prod(left.dims[i] for i in left_k)
    batch = math.prod(left.dims[i] for i in left_b)
    m = math.prod(size for i, size in enumerate(left.dims) if i not in (*left_k, *left_b))
    n = math.prod(size for i, size in enumerate(right.dims) if i not in (*right_k, *right_b))
    return _product(batch, m, n, k, max(left.bits, right.bits))


def _library_product(inside: Computation, one: Instruction) -> Products:
    """Count a call of cuBLAS, whose backend configuration names the dimensions."""
    found = re.search(r'"dot_dimension_numbers":(\{[^}]*\})', one.attributes)
    if found is None:
        return Products()
    dims = {key: [int(n) for n in value] for key, value in json.loads(found.group(1)).items() if value}
    names = (f"{side}_{kind}_dimensions" for kind in ("contracting", "batch") for side in ("lhs", "rhs"))
    return _of_dims(inside, one, *(dims.get(name, ()) for name in names))


def _convolution(inside: Computation, one: Instruction) -> Products:
    """Count a convolution, the form in which TPUs write a product: only elements that meet, no padding or holes."""
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
