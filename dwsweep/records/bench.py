"""Bench of a sweep's shapes. ``bench.json``: the rates that ``dwsweep bench`` measured, a list with a row per shape;
``plan`` and ``guide`` take rates from it. ``compiled.json``: the same by ``bench --compile-only --target``; ``plan``
takes it where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Annotated, Any, TypeVar

from pydantic import Field

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records import record as reader
from dwsweep.records.record import Damaged, Positive

FILE_NAME = "bench.json"
COMPILED_NAME = "compiled.json"
Rows = TypeVar("Rows")
Rate = Annotated[float, Field(ge=0, lt=1e150)]  # products of two are finite


@dataclass(frozen=True)
class PackingPoint:
    """The rate of a pack of some replicas, all of them together."""

    replicas: int
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class BenchRow:
    """One shape as it was measured; steps and rates are of all replicas of its pack together.

    Without a default are what a rate needs; a file of another tool may leave out the rest.
    """

    device_kind: str
    devices: Positive = 1  # that the pack takes
    depth: Positive
    width: Positive
    heads: int | None = None
    replicas: int | None = None
    microbatch: int | None = None  # sequences
    attention_kernel: str | None = None
    compile_seconds: float | None = None
    step_seconds: float | None = None
    tokens_per_second: Rate  # on all its devices
    flops_per_token: Rate  # of training
    memory_bytes: int | None = None  # of the program on one device
    achieved_flops: float | None = None  # FLOP/s
    peak_flops: float | None = None  # FLOP/s of one device
    peak_basis: str | None = None  # ``measured …`` or the name of a datasheet
    mfu: float | None = None  # against ``peak_flops``
    datasheet: str | None = None  # the device's name in the table of devices
    packing: tuple[PackingPoint, ...] = ()  # 1, 2, 4 … replicas
    recipe: str | None = None  # block and optimizer in words; None: not recorded


@dataclass(frozen=True)
class CollectiveRow:
    """Exchanges of one kind along the same axes of the mesh, in one step."""

    kind: str  # all-reduce, all-gather, reduce-scatter, all-to-all, collective-permute
    axes: tuple[str, ...]  # of the mesh: replica, data, fsdp
    times: int
    bytes: float  # of all of them
    largest_bytes: float  # of one


@dataclass(frozen=True, kw_only=True)
class CompiledRow:
    """One shape as it was compiled for a number of devices (``--compile-only``).

    Memory and costs are of one device, and of one training step, read from the compiled program. ``roofline_seconds``
    and what follows from it is a bound that no run will reach.
    """

    device_kind: str
    depth: int
    width: int
    n_params_total: int
    replicas: int
    devices: int
    mesh: dict[str, int]  # size of each axis
    microbatch: int  # sequences
    remat: bool
    batch_size: int  # sequences
    compile_seconds: float  # of the training program
    memory_bytes: int | None  # by the compiled program's own analysis
    state_bytes: int  # its part that stays between steps
    n_train_tokens: int | None  # of the token store; None: compiled without one
    target: str | None = None  # what it was compiled for, such as ``TPU-v5e:2x4``; None: the devices at hand
    heads: int | None = None
    head_size: int | None = None
    seq_len: int | None = None
    vocab_size: int | None = None
    precision: str | None = None
    concessions: tuple[str, ...] = ()  # what was given up for a program that fits
    refused: str | None = None  # why it does not fit even so; then there is no roofline
    kernels: int | None = None  # launched
    traffic_bytes: float | None = None  # read and written in main memory
    program_flops: float | None = None  # that XLA counts in the program, elementwise operations included
    flops_per_token: float | None = None  # of training: what the model asks for
    collectives: tuple[CollectiveRow, ...] = ()
    roofline_seconds: float | None = None
    products_seconds: float | None = None  # each part of the roofline alone
    traffic_seconds: float | None = None
    launch_seconds: float | None = None
    link_seconds: float | None = None
    bound: str | None = None  # products, traffic, launches or links: what takes most of the time
    tokens_per_second: float | None = None  # at the roofline, of all replicas on all devices
    mfu: float | None = None  # at the roofline, against the 16-bit peak of the data sheet
    recipe: str | None = None  # as in bench.json
    compile_cpu_seconds: float | None = None  # of all the compiler's threads and processes
    unroll: int | None = None  # layers written out, 1: all in a loop
    training_steps: int | None = None  # of all packs of the shape; None: its length follows from rates


def write(rows: Sequence[BenchRow], directory: str | PathLike[str]) -> Any:
    """Write ``directory/bench.json``; returns its path."""
    path = paths.make_directory(paths.as_path(directory)) / FILE_NAME
    reader.write(path, rows)
    return path


def read(path: str | PathLike[str]) -> list[BenchRow] | None:
    """Read the rows of a bench.json; None where there is no such file.

    Raises:
        InputError: the file is no list of such rows.
    """
    return _rows(path, list[BenchRow], "write it with `dwsweep bench`")


def write_compiled(rows: Sequence[CompiledRow], directory: str | PathLike[str]) -> Any:
    """Write ``directory/compiled.json``, with the rows of other targets that it has; returns its path.

    Raises:
        InputError: the file that is there holds something else.
    """
    path = paths.make_directory(paths.as_path(directory)) / COMPILED_NAME
    others = [row for row in read_compiled(path) or () if row.target not in {row.target for row in rows}]
    reader.write(path, [*others, *rows])
    return path


def kept(rows: Iterable[CompiledRow], directory: str | PathLike[str]) -> Iterator[CompiledRow]:
    """Pass the rows on, each written as it comes: compiling for a whole sweep takes long and may be interrupted."""
    so_far: list[CompiledRow] = []
    for row in rows:
        so_far.append(row)
        write_compiled(so_far, directory)
        yield row


def read_compiled(path: str | PathLike[str]) -> list[CompiledRow] | None:
    """Read the rows of a compiled.json; None where there is no such file.

    Raises:
        InputError: the file is no list of such rows.
    """
    return _rows(path, list[CompiledRow], "write it again with `dwsweep bench --compile-only --target`")


def _rows(path: str | PathLike[str], kind: type[Rows], again: str) -> Rows | None:
    try:
        return reader.read(paths.as_path(path), kind, f"{path} cannot be read", strict=False)
    except (Damaged, OSError) as error:
        raise InputError(f"{error}; {again}") from None
