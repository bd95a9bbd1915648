"""The files of one run: ``config.json``, ``status.json``, ``result.json``, ``metrics.jsonl`` (a row per logged step),
``documents.npy`` and, where they are kept, ``params.safetensors`` and ``eval.json``. ``samples.json`` of a sweep: texts
of its models, for the page.

``bench.json``: what ``dwsweep bench`` measured, a list with a row per shape; ``plan`` and ``guide`` take rates from
it. ``compiled.json``: the same of ``bench --compile-only --target``; ``plan`` takes it where nothing was measured.

Rates at which the lengths of runs were fixed (``train.seconds``): a list in manifest.json.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from typing import Annotated, Any, Required, TypedDict, TypeVar, cast

from pydantic import Field

from dwsweep import paths
from dwsweep.errors import InputError
from dwsweep.records.record import (
    Amount,
    Count,
    Damaged,
    Name,
    Number,
    Positive,
    PositiveNumber,
    holding,
    one_of,
    plain,
    to_dict,
)
from dwsweep.records.record import read as read_record
from dwsweep.shapes import Shape

PENDING, RUNNING, DONE, DIVERGED = "pending", "running", "done", "diverged"
FAILED, OOM, INTERRUPTED = "failed", "oom", "interrupted"

RUN_STATES = (DONE, RUNNING, PENDING, INTERRUPTED, DIVERGED, FAILED, OOM)
FINAL = frozenset({DONE, DIVERGED})  # has a result that stands
STOPPED = frozenset({FAILED, OOM})  # ended without a result; tried again on request

# sections of a run's spec, with all their keys; those that others read are checked
ModelFacts = Annotated[dict[str, Any], holding(parametrization=str)]
TrainFacts = Annotated[dict[str, Any], holding(batch_size=int, optimizer=str, schedule=str, precision=str)]

METRICS = ("loss", "learning_rate", "grad_norm", "seconds")


@dataclass(frozen=True)
class RunConfig:
    """``config.json``: everything that was decided about a run before it was trained."""

    run_id: Name
    pack_id: str  # the pack that the plan put it into
    seed: Count
    learning_rate: PositiveNumber  # base learning rate
    budget: PositiveNumber | None  # target n_params; None where widths were given
    steps: Positive
    tokens: Positive  # steps · batch_size · seq_len
    n_params: Positive  # weight matrices of the blocks
    n_params_total: Positive  # embeddings, biases and norms included
    data_hash: str | None
    shape: Shape
    model: ModelFacts
    data: dict[str, Any]  # the section ``data`` of the spec
    train: TrainFacts
    arm: str | None = None  # of a sweep with arms


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One text of ``samples.json``: what a trained model wrote after ``prompt``."""

    run_id: Name
    depth: Annotated[int, Field(ge=1)]
    width: Annotated[int, Field(ge=1)]
    loss: Amount  # held-out nats per token
    prompt: str
    seed: Annotated[int, Field(ge=0)]
    text: str


@dataclass(frozen=True)
class RunState:
    """``status.json``: where a run stands."""

    state: Annotated[str, one_of(*RUN_STATES)] = PENDING
    step: Count | None = None  # last step known when the state was written
    loss: Number = None  # held-out nats per token when done, last training loss otherwise
    pack_id: Name | None = None  # the pack that trains or trained it
    cause: str | None = None  # why it failed, diverged or was interrupted; one line
    log_tail: str | None = None  # the last lines of the worker's log, where it failed
    updated: Amount = None  # seconds since the epoch
    run_id: Name | None = None  # the run that it was written for; None in files of earlier versions


@dataclass(frozen=True)
class RunResult:
    """``result.json``: what a finished run yielded. A loss is a finite number or there is no result."""

    loss: Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]  # held-out nats per token
    loss_stderr: Amount = None  # of the sample of held-out documents, nats per token
    bits_per_byte: Amount = None
    train_loss: Number = None  # of the last step, nats per token
    steps: Count | None = None
    tokens: Count | None = None
    wall_seconds: Amount = None  # training clock of the whole pack along this run's path
    tokens_per_second: Amount = None  # of the whole pack
    device_seconds: Amount = None  # the run's share of its pack
    compile_seconds: Amount = None
    flops: Count | None = None  # of its training, forward and backward
    attention_kernel: str | None = None
    device_kind: str | None = None
    pack_size: Positive | None = None  # replicas that trained together
    pack_id: Name | None = None
    versions: dict[str, str] | None = None  # of Python and the packages that results depend on
    run_id: Name | None = None  # the run that it was written for; None in files of earlier versions
    params_sha256: str | None = None  # of params.safetensors (hex); None: the parameters were not kept
    params_bytes: Count | None = None
    heldout_tokens: Positive | None = None  # that the loss is the mean over; None in files of earlier versions
    documents_sha256: str | None = None  # of documents.npy (hex); None in files of earlier versions
    metrics_rows: Count | None = None  # lines of metrics.jsonl when the run was done; None in files of earlier versions


@dataclass(frozen=True)
class TaskScores:
    """Scores of a run in one task of lm-evaluation-harness."""

    scores: dict[str, float]  # by metric
    errors: dict[str, float]  # standard error of those that have one
    limit: Positive | None = None  # examples at most; None: all
    shots: Count | None = None  # solved examples before each; None: as the task says
    versions: dict[str, str] | None = None


@dataclass(frozen=True)
class Evaluation:
    """``eval.json``: how a finished run does in downstream tasks."""

    run_id: Name
    params_sha256: str  # of the parameters that were evaluated
    tasks: dict[str, TaskScores]

    def columns(self) -> dict[str, float]:
        """The scores and their standard errors by the columns of results.csv: ``eval_TASK_METRIC``, ``…_stderr``."""
        found: dict[str, float] = {}
        for task, told in self.tasks.items():
            for metric, value in told.scores.items():
                name = re.sub(r"\W+", "_", f"eval_{task}_{metric}")
                found[name] = value
                if metric in told.errors:
                    found[f"{name}_stderr"] = told.errors[metric]
        return found


SUM_TOLERANCE = 1e-9  # of the loss: only the order of the additions differs between writing and checking


def fault_of_documents(path: Any, result: RunResult) -> str:
    """Tell why a ``documents.npy`` is not the one behind ``result``, empty where it is: rows of (summed nats, tokens),
    one per held-out document, with Σ nats / Σ tokens = loss and, where it is recorded, Σ tokens = heldout_tokens.

    Faults: other bytes than were written, cut short, no array, an array of another shape or with impossible values,
    another loss or another number of tokens; a FIFO, a loop of links or another thing that is no file. A missing
    file has none: without it a fit pairs nothing by document, and the loss stands. An object of a bucket is whole or
    not there at all, and is not read for this.
    """
    if paths.is_remote(path):
        return ""
    try:
        found = paths.check_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except IsADirectoryError:
        return "is a folder"
    except paths.NotAFile as error:
        return str(error.strerror)
    version = found.st_ino, found.st_size, found.st_mtime_ns
    return _fault_of_documents(path, result.loss, result.heldout_tokens, result.documents_sha256, *version)


@lru_cache(maxsize=1 << 16)
def _fault_of_documents(path: Any, loss: float, tokens_read: int | None, digest: str | None, *version: int) -> str:
    """Fault of the documents of a loss over so many tokens; empty for nothing. Read once for each ``version``
    of the file."""
    import numpy as np

    try:
        data = paths.read_bytes(path)
        array = _array(data)
    except PermissionError:
        raise
    except Exception as error:  # numpy has many ways to say that a header or a length is wrong
        return f"is no whole array ({' '.join(str(error).split()) or type(error).__name__})"
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "fiu":
        found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        return f"is {found}; must be numbers of shape [documents, 2]"
    with np.errstate(all="ignore"):
        nats, tokens = array.astype(np.float64).sum(axis=0)
        sums_to = nats / tokens
    if not (np.isfinite(array).all() and (array >= 0).all() and tokens > 0):
        return "has numbers that are not finite, or negative; nats and tokens are neither"
    if not abs(sums_to - loss) <= SUM_TOLERANCE * max(1.0, loss):
        return f"sums to {sums_to:.10g} nats per token; the recorded loss is {loss:.10g}"
    if tokens_read is not None and tokens != tokens_read:
        return f"is of {tokens:.10g} held-out tokens; the recorded loss is of {tokens_read}"
    if digest is not None and hashlib.sha256(data).hexdigest() != digest:
        return "is not what was written: its SHA-256 is not the one in result.json"
    return ""


def _array(data: bytes) -> Any:
    """The array of a .npy file. What costs time is its header, which thousands of files have in common."""
    import numpy as np

    start = data.find(b"\n") + 1  # ends the header
    shape, in_order_of_fortran, dtype = _header(data[:start])
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded")
    array = np.frombuffer(data, dtype, offset=start)
    return array.reshape(shape, order="F" if in_order_of_fortran else "C")


@lru_cache(maxsize=64)
def _header(data: bytes) -> tuple[tuple[int, ...], bool, Any]:
    import numpy as np

    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)


class MetricsRow(TypedDict, total=False):
    """One logged step. A mapping: files are cut and joined line by line, with whatever else a line holds."""

    step: Required[int]
    loss: float | None  # training, nats per token
    learning_rate: float | None
    grad_norm: float | None
    seconds: float | None  # of training so far
    conditioning: list[float | None]  # after this step: condition number of each block's attention (train.conditioning)
    conditioning_at_start: list[float | None]  # in the first row: the same before the first step


@dataclass(frozen=True)
class Metrics:
    """The readable rows of a run's metrics."""

    rows: tuple[MetricsRow, ...]  # in the order of the file, steps rising
    lost: int = 0  # lines that are no such row, bar a last one that a kill cut off


def read_metrics(path: Any) -> Metrics:
    """The rows of a file, uploaded segments included; what is no row, is not as it was written or is another run's is
    counted and left out, and so are lines that were taken out of the middle."""
    text = paths.read_text_of_lines(path)
    rows: list[MetricsRow] = []
    bad, last, last_number = 0, -1, 0
    found = list(paths.checked_lines(text, path))
    if found and found[-1][1] is None and not text.endswith("\n"):
        found.pop()  # a kill cut it off
    for number, content in found:
        row = _metrics_row(content) if content is not None else None
        if row is None or row["step"] <= last or (number is not None and number <= last_number):
            bad += 1
            continue
        rows.append(row)
        last, last_number = row["step"], number or last_number + 1
    return Metrics(tuple(rows), max(bad, last_number - len(rows)))


def _metrics_row(row: dict[str, Any]) -> MetricsRow | None:
    if not _is_count(row.get("step")):
        return None
    known = [row[name] for name in METRICS if name in row]
    return cast(MetricsRow, row) if all(value is None or _is_number(value) for value in known) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
    paths.write_json(path, [plain(row) for row in rows])
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
    paths.write_json(path, [to_dict(row) for row in (*others, *rows)])
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
        return read_record(paths.as_path(path), kind, f"{path} cannot be read", strict=False)
    except (Damaged, OSError) as error:
        raise InputError(f"{error}; {again}") from None


@dataclass(frozen=True)
class FixedRate:
    """Rate of one shape on one kind of device, saved with the first plan of a sweep that needed it (manifest.json)."""

    shape: str  # its label, such as L12-d128-h2
    n_params_total: Positive
    flops_per_token: Positive  # of training
    tokens_per_step: Positive
    precision: str
    device: str
    time_basis: Annotated[str, one_of("measured", "compiled", "assumed")]
    tokens_per_second: PositiveNumber  # of one device, all replicas of a pack together
    distance: PositiveNumber | None = None  # in depth and width to the shape that was benched, 1: itself
    fixed: str | None = None  # time of saving; None: not saved yet
    recipe: str | None = None  # block and optimizer in words; None: not recorded

    @property
    def kind(self) -> tuple[str, int, int, int, str]:
        """Shape, size, cost of a token, tokens of a step, precision: the rate of another kind is another one."""
        return self.shape, self.n_params_total, self.flops_per_token, self.tokens_per_step, self.precision

    @property
    def origin(self) -> str:
        """Where the rate comes from, in words."""
        when = f"fixed {self.fixed}" if self.fixed else "not fixed yet: the first `run` or `plan --out` does that"
        return f"{self.time_basis} {'on' if self.time_basis == 'measured' else 'for'} {self.device}; {when}"
