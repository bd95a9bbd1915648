"""Bench of a sweep's shapes. ``bench.json``: the rates that ``dwsweep bench`` measured, a list with a row per shape;
``plan`` and ``guide`` take rates from it. ``bench --compile-only`` prints its rows and keeps none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Annotated, Any

from pydantic import Field

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records import record as reader
from dwsweep.records.record import Damaged, Positive

FILE_NAME = "bench.json"
Rate = Annotated[float, Field(ge=0, lt=1e150)]  # products of two are finite


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
    recipe: str | None = None  # block and optimizer in words; None: not recorded


@dataclass(frozen=True, kw_only=True)
class CompiledRow:
    """One shape's training program, compiled and not run; sizes are of one device."""

    target: str | None  # compilation target, such as ``TPU-v5e:2x4``; None: the devices at hand
    device_kind: str
    depth: int
    width: int
    n_params_total: int
    replicas: int
    devices: int
    mesh: dict[str, int]  # size of each axis
    microbatch: int  # sequences
    remat: bool
    unroll: int  # layers written out, 1: all in a loop
    batch_size: int  # sequences
    seq_len: int
    precision: str
    recipe: str  # block and optimizer in words
    compile_seconds: float
    memory_bytes: int | None  # estimate by the compiler's own analysis
    state_bytes: int  # part of memory that stays between steps
    n_train_tokens: int | None  # size of the token store; None: compiled without a store
    step_flops: int  # model FLOPs of one step of all replicas on all devices, by formula (``cost.arithmetic``)
    xla_flops: float | None  # FLOPs of one device's program by XLA, which counts the body of each loop once
    concessions: tuple[str, ...] = ()  # memory savings that the program needed
    refused: str | None = None  # why it does not fit even so


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
    try:
        return reader.read(paths.as_path(path), list[BenchRow], f"{path} cannot be read", strict=False)
    except (Damaged, OSError) as error:
        raise InputError(f"{error}; write it with `dwsweep bench`") from None
