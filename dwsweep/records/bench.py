"""Bench of a sweep's shapes. ``bench.json``: the rates that ``dwsweep bench`` measured, a list with a row per shape;
``plan`` and ``guide`` take rates from it. ``compiled.json``: the same by ``bench --compile-only --target``; ``plan``
takes it if nothing was measured.
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
    """Rate of a pack, all replicas together."""

    replicas: int
    tokens_per_second: float


@dataclass(frozen=True, kw_only=True)
class BenchRow:
    """Measurement of one shape; steps and rates are of all replicas of its pack together.

    Fields without a default make a rate; a file of another tool may leave out the rest.
    """

    device_kind: str
    devices: Positive = 1  # number of devices of the pack
    depth: Positive
    width: Positive
    heads: int | None = None
    replicas: int | None = None
    microbatch: int | None = None  # sequences
    attention_kernel: str | None = None
    compile_seconds: float | None = None
    step_seconds: float | None = None
    tokens_per_second: Rate  # rate of all devices of the pack
    flops_per_token: Rate  # training FLOPs
    memory_bytes: int | None = None  # memory of the program on one device
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
    axes: tuple[str, ...]  # mesh axes: replica, data, fsdp
    times: int
    bytes: float  # sum over all calls
    largest_bytes: float  # largest single call


@dataclass(frozen=True, kw_only=True)
class CompiledRow:
    """Program of one shape compiled for a number of devices (``--compile-only``).

    Memory and costs are of one device, and of one training step, read from the compiled program. ``roofline_seconds``
    and values derived from it are bounds that no run will reach.
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
    compile_seconds: float  # compilation of the training program
    memory_bytes: int | None  # estimate by the compiler's own analysis
    state_bytes: int  # part of memory that stays between steps
    n_train_tokens: int | None  # size of the token store; None: compiled without a store
    target: str | None = None  # compilation target, such as ``TPU-v5e:2x4``; None: the devices at hand
    heads: int | None = None
    head_size: int | None = None
    seq_len: int | None = None
    vocab_size: int | None = None
    precision: str | None = None
    concessions: tuple[str, ...] = ()  # memory savings that the program needed
    refused: str | None = None  # why it does not fit even so; then there is no roofline
    kernels: int | None = None  # launched
    traffic_bytes: float | None = None  # read and written in main memory
    program_flops: float | None = None  # FLOPs that XLA counts, elementwise operations included
    flops_per_token: float | None = None  # FLOPs of the model in training
    collectives: tuple[CollectiveRow, ...] = ()
    roofline_seconds: float | None = None
    products_seconds: float | None = None  # each part of the roofline alone (three fields)
    traffic_seconds: float | None = None
    launch_seconds: float | None = None
    link_seconds: float | None = None
    bound: str | None = None  # largest part of the time: products, traffic, launches or links
    tokens_per_second: float | None = None  # rate at the roofline, all replicas on all devices
    mfu: float | None = None  # utilisation at the roofline, against the 16-bit peak of the data sheet
    recipe: str | None = None  # recipe in the words of bench.json
    compile_cpu_seconds: float | None = None  # CPU time of all the compiler's threads and processes
    unroll: int | None = None  # layers written out, 1: all in a loop
    training_steps: int | None = None  # steps of all packs of the shape; None: rates decide the length


def write(rows: Sequence[BenchRow], directory: str | PathLike[str]) -> Any:
    """Write ``directory/bench.json``; returns its path."""
    path = paths.make_directory(paths.as_path(directory)) / FILE_NAME
    reader.write(path, rows)
    return path


def read(path: str | PathLike[str]) -> list[BenchRow] | None:
    """Read the rows of a bench.json; None if there is no such file.

    Raises:
        InputError: the file is no list of such rows.
    """
    return _rows(path, list[BenchRow], "write it with `dwsweep bench`")


def write_compiled(rows: Sequence[CompiledRow], directory: str | PathLike[str]) -> Any:
    """Write ``directory/compiled.json``, keeping its rows of other targets; returns its path.

    Raises:
        InputError: the file that is there holds something else.
    """
    path = paths.make_directory(paths.as_path(directory)) / COMPILED_NAME
    others = [row for row in read_compiled(path) or () if row.target not in {row.target for row in rows}]
    reader.write(path, [*others, *rows])
    return path


def kept(rows: Iterable[CompiledRow], directory: str | PathLike[str]) -> Iterator[CompiledRow]:
    """Pass the rows on and write each at once: compiling for a whole sweep takes long and may be interrupted."""
    so_far: list[CompiledRow] = []
    for row in rows:
        so_far.append(row)
        write_compiled(so_far, directory)
        yield row


def read_compiled(path: str | PathLike[str]) -> list[CompiledRow] | None:
    """Read the rows of a compiled.json; None if there is no such file.

    Raises:
        InputError: the file is no list of such rows.
    """
    return _rows(path, list[CompiledRow], "write it again with `dwsweep bench --compile-only --target`")


def _rows(path: str | PathLike[str], kind: type[Rows], again: str) -> Rows | None:
    try:
        return reader.read(paths.as_path(path), kind, f"{path} cannot be read", strict=False)
    except (Damaged, OSError) as error:
        raise InputError(f"{error}; {again}") from None
