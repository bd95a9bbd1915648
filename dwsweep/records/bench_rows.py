"""``bench.json``: what ``dwsweep bench`` measured, a list with a row per shape; ``plan`` and ``guide`` take rates from
it. ``compiled.json``: the same of ``bench --compile-only --target``; ``plan`` takes it where nothing was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records.reader import parse as reader_parse
from dwsweep.records.reader import to_dict

FILE_NAME = "bench.json"
COMPILED_NAME = "compiled.json"


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
    devices: int = 1  # that the pack takes
    depth: int
    width: int
    heads: int | None = None
    replicas: int | None = None
    microbatch: int | None = None  # sequences
    attention_kernel: str | None = None
    compile_seconds: float | None = None
    step_seconds: float | None = None
    tokens_per_second: float  # on all its devices
    flops_per_token: float  # of training
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
    padded_traffic_bytes: float | None = None  # with arrays rounded up to whole tiles, as a TPU moves them
    product_flops: float | None = None  # of the matrix products in the program
    padded_product_flops: float | None = None  # with sides rounded up to those of a TPU's matrix unit
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


def write(rows: Sequence[BenchRow], directory: str | PathLike[str]) -> Any:
    """``directory/bench.json``; returns its path."""
    path = paths.make_directory(paths.as_path(directory)) / FILE_NAME
    paths.write_json(path, [asdict(row) for row in rows])
    return path


def read(path: str | PathLike[str]) -> list[BenchRow] | None:
    """The rows of a file; None where there is no such file.

    Raises:
        InputError: the file is no list of such rows.
    """
    try:
        content = json.loads(paths.as_path(path).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"calibration: {path} cannot be read ({error}); write it with `dwsweep bench`") from None
    return parse(content, str(path))


def write_compiled(rows: Sequence[CompiledRow], directory: str | PathLike[str]) -> Any:
    """``directory/compiled.json``, with the rows of other targets that it has; returns its path.

    Raises:
        InputError: the file that is there holds something else.
    """
    path = paths.make_directory(paths.as_path(directory)) / COMPILED_NAME
    others = [row for row in read_compiled(path) or () if row.target not in {row.target for row in rows}]
    paths.write_json(path, [to_dict(row) for row in (*others, *rows)])
    return path


def kept(rows: Iterable[CompiledRow], directory: str | PathLike[str]) -> Iterator[CompiledRow]:
    """The same rows, each written as it comes: compiling for a whole sweep takes long and may be interrupted."""
    so_far: list[CompiledRow] = []
    for row in rows:
        so_far.append(row)
        write_compiled(so_far, directory)
        yield row


def read_compiled(path: str | PathLike[str]) -> list[CompiledRow] | None:
    """The rows of a file; None where there is no such file.

    Raises:
        InputError: the file is no list of such rows.
    """
    try:
        content = json.loads(paths.as_path(path).read_text("utf-8"))
        if not isinstance(content, list):
            raise ValueError("it is no list")
        return [reader_parse(CompiledRow, row) for row in content]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, TypeError, ValueError, RecursionError) as error:
        again = "write it again with `dwsweep bench --compile-only --target`"
        raise InputError(f"{path} cannot be read ({error}); {again}") from None


def parse(content: Any, name: str) -> list[BenchRow]:
    """
    Raises:
        InputError: the content is no list of rows, or a rate cannot be taken from one of them.
    """
    needed = ("device_kind", "depth", "width", "tokens_per_second", "flops_per_token")
    if not isinstance(content, list):
        raise InputError(f"{name}: holds {type(content).__name__}; must be a list of rows with {', '.join(needed)}")
    return [_row(row, f"{name}: row {index}", needed) for index, row in enumerate(content)]


def _row(row: Any, where: str, needed: Sequence[str]) -> BenchRow:
    missing = [key for key in needed if not isinstance(row, dict) or key not in row]
    if missing:
        raise InputError(f"{where} has no {', '.join(missing)}; write it with `dwsweep bench`")
    known: dict[str, Any] = {field.name: row[field.name] for field in fields(BenchRow) if field.name in row}
    try:
        known |= {
            "device_kind": str(row["device_kind"]),
            "devices": int(row.get("devices") or 1),
            "depth": int(row["depth"]),
            "width": int(row["width"]),
            "tokens_per_second": float(row["tokens_per_second"] or 0),
            "flops_per_token": float(row["flops_per_token"]),
            "packing": tuple(PackingPoint(**point) for point in row.get("packing") or ()),
        }
        found = BenchRow(**known)
        rate = found.tokens_per_second * found.flops_per_token / found.devices
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise InputError(f"{where} has a value that is no number; run `dwsweep bench`") from None
    if not (found.depth > 0 and found.width > 0 and found.devices > 0 and 0 <= rate < math.inf):
        raise InputError(f"{where} has a value below 0 or not finite; run `dwsweep bench`")
    return found
