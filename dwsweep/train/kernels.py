"""Kernels and collectives of one training step, from a compiled program, each with the FLOPs and bytes that XLA counts.

XLA's own ``cost_analysis`` cannot be taken of the program as a whole: it counts the body of a loop once, and memory on
a TPU's chip as if it were the device's. So every kernel, an instruction that the device starts by itself, is handed to
that analysis alone, as the program of one instruction. This module adds how often each runs, which of its arrays lie on
the chip, and the exchanges between devices. train/README.md compares the counts with XLA's of whole programs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np

from dwsweep.cost.roofline import Collective, Kernel, StepCost

FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "add-dependency", "opt-barrier"),
    *("partition-id", "replica-id", "domain"),
}
"""Instructions that start nothing on the device."""
FREE_CALLS = ("AllocateBuffer", "ConcatBitcast", "AssumeGatherIndicesInBound")
"""Custom calls of the TPU compiler that only name memory or state a promise, and start nothing."""
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")
BITS = {"pred": 8, "token": 0, "opaque": 0}
"""Bits of one element, for types whose name does not end in their width."""

_COMPUTATION = re.compile(r"^(ENTRY )?%?(\S+) \([^\n]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_INSTRUCTION = re.compile(r"^ +(ROOT )?%?(\S+) = (.*?) ([a-z][a-z0-9-]*)\(([^\n]*)$", re.MULTILINE)
_ARRAY = re.compile(r"([a-z]+(\d*)\w*)\[([0-9,]*)\](?:\{([^{}]*)\})?")
_METADATA = re.compile(r", metadata=\{[^}]*\}")


class Instruction:
    """One line of a computation."""

    def __init__(self, line: re.Match[str]) -> None:
        self.is_root = bool(line[1])
        self.name, self.type, self.opcode, self.rest = line[2], line[3], line[4], line[5]
        self.literal = self.rest.partition(")")[0]  # number of a parameter, value of a constant
        self.text = line[0].strip().removeprefix("ROOT ")

    @cached_property
    def operands(self) -> list[str]:
        """Names of instructions of the same computation."""
        return re.findall(r"%([^\s,)]+)", self.literal)

    def attribute(self, key: str) -> str:
        """A word of the line such as the computation after ``body=``; empty if it has none."""
        found = re.search(rf"\b{key}=[%\"]?([^\s,)}}\"]+)", self.rest)
        return found[1] if found else ""

    @cached_property
    def arrays(self) -> list[tuple[int, bool]]:
        """(bytes, True if in main memory) of each result array."""
        found = []
        for kind, width, dims, layout in _ARRAY.findall(self.type):
            bits = BITS.get(kind, int(width or 0)) * math.prod(int(n) for n in dims.split(",") if n)
            found.append((math.ceil(bits / 8), not re.search(r"S\([1-9]", layout)))
        return found


Computation = Mapping[str, Instruction]


class Program:
    """The text of a compiled program (``compiled.as_text()``): its computations, by name and in order."""

    def __init__(self, text: str) -> None:
        self.computations: dict[str, Computation] = {}
        self.texts: dict[str, str] = {}
        self.entry = ""
        for found in _COMPUTATION.finditer(_METADATA.sub("", text)):
            name = found[2]
            self.computations[name] = {one.name: one for one in map(Instruction, _INSTRUCTION.finditer(found[3]))}
            self.texts[name] = found[0]
            self.entry = name if found[1] else self.entry
        if not self.entry:
            raise ValueError("no ENTRY computation: this is not the text of a compiled program")

    def called(self, one: Instruction) -> list[str]:
        """Computations that an instruction applies: one of a fusion, two of a loop, several of a conditional."""
        return [name for name in dict.fromkeys(re.findall(r"%([^\s,)}]+)", one.rest)) if name in self.computations]

    def passes(self, inside: Computation, loop: Instruction) -> int | None:
        """Passes through the body of a ``while``; None if their number depends on data.

        Some compilers write it beside the loop. TPU compilers do not; it follows from the condition ``i < limit``,
        the first value of i and the step that the body adds to it.
        """
        if found := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.rest):
            return int(found[1])
        condition, body = (self.computations[loop.attribute(key)] for key in ("condition", "body"))
        test, end = _root(condition), _root(body)
        if test.opcode != "compare" or test.attribute("direction") != "LT":
            return None
        index, limit = condition[test.operands[0]].attribute("index"), _constant(condition, test.operands[1])
        start = inside[loop.operands[0]]
        if not index or limit is None or {start.opcode, end.opcode} != {"tuple"}:
            return None
        first, added = _constant(inside, start.operands[int(index)]), body[end.operands[int(index)]]
        steps = [_constant(body, name) for name in added.operands] if added.opcode == "add" else []
        step = next((n for n in steps if n), None)
        return None if first is None or step is None else max(0, math.ceil((limit - first) / step))

    def alone(self, inside: Computation, one: Instruction) -> str:
        """Text of a program of which ``one`` is the only instruction."""
        needed: dict[str, str] = {}

        def need(caller: Instruction) -> None:
            for name in self.called(caller):
                for inner in self.computations[name].values() if name not in needed else ():
                    need(inner)
                needed[name] = self.texts[name]

        need(one)
        operands = enumerate(dict.fromkeys(one.operands))
        lines = [f"  %{name} = {inside[name].type} parameter({number})" for number, name in operands]
        entry = ["ENTRY %alone {", *lines, f"  ROOT {one.text}", "}"]
        return "\n\n".join(["HloModule alone", *needed.values(), "\n".join(entry)])


def step_cost(text: str) -> StepCost:
    """Cost of one pass through the loop of steps, whose number of passes is an argument.

    Loops inside it are counted as often as they run, and once where that depends on data. A program without such a loop
    is counted as a whole.

    Raises:
        ValueError: the text is no compiled program.
    """
    program = Program(text)
    entry = program.computations[program.entry]
    loops = [one for one in entry.values() if one.opcode == "while" and program.passes(entry, one) is None]
    names = [program.entry] if len(loops) != 1 else [loops[0].attribute("condition"), loops[0].attribute("body")]
    kernels: list[Kernel] = []
    collectives: list[Collective] = []
    for times, inside, one in (launch for name in names for launch in _launched(program, name, 1)):
        kernels.append(Kernel(one.name, times, *_counted(program, inside, one)))
        collectives += _collectives(program, inside, one, times)
    return StepCost(tuple(kernels), tuple(collectives))


def _root(computation: Computation) -> Instruction:
    return next(one for one in computation.values() if one.is_root)


def _constant(inside: Computation, name: str) -> int | None:
    one = inside[name]
    while one.opcode in ("copy", "bitcast"):
        one = inside[one.operands[0]]
    return int(one.literal) if one.opcode == "constant" and one.literal.isdigit() else None


def _launched(program: Program, name: str, times: int) -> Iterator[tuple[int, Computation, Instruction]]:
    """(launches per step, computation, instruction) of every kernel."""
    inside = program.computations[name]
    for one in inside.values():
        if _is_free(inside, one):
            continue
        if one.opcode == "while":
            passes = program.passes(inside, one)
            yield from _launched(program, one.attribute("body"), times * (1 if passes is None else passes))
        elif one.opcode in ("call", "async-start"):
            for called in program.called(one):
                yield from _launched(program, called, times)
        elif one.opcode == "conditional":
            branches = [list(_launched(program, called, times)) for called in program.called(one)]
            yield from max(branches, key=len, default=[])
        else:
            yield times, inside, one


def _is_free(inside: Computation, one: Instruction) -> bool:
    """True for an instruction that starts nothing on the device."""
    if one.opcode == "custom-call":
        return one.attribute("custom_call_target") in FREE_CALLS
    if one.opcode in FREE or one.opcode.endswith("-done"):
        return True
    # a TPU's core makes scalars of scalars itself; only its layouts have tiles
    types = [one.type, *(inside[name].type for name in one.operands)]
    return one.opcode != "while" and bool(re.search(r"[TS]\(", one.type)) and not re.search(r"\[\d", " ".join(types))


def _counted(program: Program, inside: Computation, one: Instruction) -> tuple[float, float]:
    """(FLOPs, bytes in main memory) of one launch, by XLA's cost analysis; for a library call, only its arrays."""
    if one.opcode in ("copy-start", "slice-start"):  # result of both ends, of which one may be larger than the part
        ends = one.arrays[:2]
        return 0.0, sum(min(size for size, _ in ends) for _, in_main in ends if in_main)
    found = None if one.opcode == "custom-call" else _analysis(program.alone(inside, one))
    many = len(one.arrays) > 1
    parts = [(f"bytes accessed{i}{{}}", array) for i, name in enumerate(one.operands) for array in inside[name].arrays]
    parts += [(f"bytes accessedout{{{i if many else ''}}}", array) for i, array in enumerate(one.arrays)]
    if found is None:
        return 0.0, sum(size for _, (size, in_main) in parts if in_main)
    # each reader inside a fusion counts one reading, but the device reads once
    return found.get("flops", 0.0), sum(min(size, found.get(key, 0.0)) for key, (size, in_main) in parts if in_main)


def _analysis(text: str) -> dict[str, float] | None:
    """XLA's cost analysis of a program; None if it cannot read the program, such as a vendor's own instruction."""
    # JAX has no public name for the analysis of a program that it did not compile
    from jaxlib import _jax

    reader: Any = import_module("jaxlib._hlo") if find_spec("jaxlib._hlo") else _jax  # older place, before jaxlib 0.10
    try:
        module = reader.hlo_module_from_text(text)
    except (ValueError, jax.errors.JaxRuntimeError):
        return None
    found: dict[str, float] = _jax.hlo_module_cost_analysis(jax.local_devices()[0].client, module)
    return found


def _collectives(program: Program, inside: Computation, one: Instruction, times: int) -> list[Collective]:
    kind = one.opcode.removesuffix("-start")
    if kind in COLLECTIVES:
        given = sum(size for name in one.operands for size, _ in inside[name].arrays)
        made = sum(size for size, _ in one.arrays) - (given if one.opcode != kind else 0)  # a start makes both
        return [Collective(kind, times, made if kind == "all-gather" else given, groups_of(one.rest))]
    called = program.called(one) if one.opcode == "fusion" else []
    parts = ((program.computations[name], part) for name in called for part in program.computations[name].values())
    return [found for inner, part in parts for found in _collectives(program, inner, part, times)]


def groups_of(attributes: str) -> tuple[tuple[int, ...], ...]:
    """The groups of devices among which a collective takes place; none if all take part in one.

    Written as ``{{0,1},{2,3}}``, as the rows of an iota, ``[2,2]<=[4]`` or ``[2,4]<=[4,2]T(1,0)``, or as axes of a
    mesh, ``mesh['a'=2,'b'=4] {'a'}``, of which one may be a part: ``'b':(2)2``.
    """
    if mesh := re.search(r"replica_groups=mesh\[([^\]]*)\]\s*\{([^}]*)\}", attributes):
        return _along(mesh[1], mesh[2])
    if listed := re.search(r"(?:replica_groups|source_target_pairs)=\{((?:\{[0-9,]*\},?)*)\}", attributes):
        return tuple(tuple(map(int, group.split(","))) for group in re.findall(r"\{([0-9,]+)\}", listed[1]))
    if iota := re.search(r"replica_groups=\[([0-9,]+)\]<=\[([0-9,]+)\](?:T\(([0-9,]+)\))?", attributes):
        rows, sizes = (tuple(map(int, iota[i].split(","))) for i in (1, 2))
        order = tuple(map(int, iota[3].split(","))) if iota[3] else tuple(range(len(sizes)))
        return _rows(sizes, order, math.prod(rows[1:]))
    return ()


def _along(mesh: str, axes: str) -> tuple[tuple[int, ...], ...]:
    """The groups along some axes of a mesh, each given as ``'name'=size`` and ``'name'`` or ``'name':(before)size``."""
    chosen = {name: (before, size) for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", axes)}
    sizes: list[int] = []
    varying: list[int] = []  # places of the axes, each cut where only a part of it is meant
    for name, text in re.findall(r"'([^']+)'=(\d+)", mesh):
        before, part = chosen.get(name, ("", ""))
        cut = (int(before), int(part), int(text) // int(before) // int(part)) if part else (int(text),)
        if name in chosen:
            varying.append(len(sizes) + (1 if part else 0))
        sizes += cut
    fixed = [i for i in range(len(sizes)) if i not in varying]
    return _rows(tuple(sizes), (*fixed, *varying), math.prod(sizes[i] for i in varying))


def _rows(sizes: tuple[int, ...], order: tuple[int, ...], each: int) -> tuple[tuple[int, ...], ...]:
    """0 … n−1 in an array of ``sizes``, read with its axes in ``order`` and cut into rows of ``each``."""
    flat: Any = np.arange(math.prod(sizes)).reshape(sizes).transpose(order).reshape(-1, each)
    return tuple(map(tuple, flat.tolist()))


def axes_of(groups: tuple[tuple[int, ...], ...], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Axes of a mesh of ``sizes`` along which the devices of a group differ."""
    names, lengths = list(sizes), list(sizes.values())
    found = set()
    for group in groups or (tuple(range(math.prod(lengths))),):
        places = [np.unravel_index(device, lengths) for device in group]
        found |= {name for i, name in enumerate(names) if len({place[i] for place in places}) > 1}
    return tuple(name for name in names if name in found)
