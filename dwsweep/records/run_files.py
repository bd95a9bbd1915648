"""The files of one run: ``config.json``, ``status.json``, ``result.json``, ``metrics.jsonl`` (a row per logged step)
and ``documents.npy``."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any, Required, TypedDict, cast

from pydantic import Field

from dwsweep import paths
from dwsweep.records.fixed_rates import Promise
from dwsweep.records.reader import (
    Amount,
    Count,
    Damaged,
    Name,
    Number,
    Positive,
    PositiveNumber,
    holding,
    one_of,
    to_dict,
)
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
    promise: Promise | None = None  # of ``train.seconds``: how long it was to take, and at which rate
    arm: str | None = None  # of a sweep with arms


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

    def to_dict(self) -> dict[str, Any]:
        return to_dict(self)


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


def versions() -> dict[str, str]:
    """Of Python and the packages that a run's last bits depend on, as they are here."""
    packages = {"jax": "jax", "flax": "flax", "optax": "optax", "orbax": "orbax-checkpoint"}
    return {"python": platform.python_version(), **{name: version(package) for name, package in packages.items()}}


def check_documents(path: Any, name: str) -> None:
    """Refuse a ``documents.npy`` that is not whole: rows of (summed nats, tokens), one per held-out document.

    Only the header and the size are looked at. A missing file passes: without it a fit pairs nothing by document, and
    the loss stands. An object of a bucket is whole or not there at all.

    Raises:
        Damaged: it is cut short, no array, or an array of another shape.
    """
    if paths.is_remote(path):
        return
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError:
        raise
    except Exception as error:  # numpy has many ways to say that a header or a length is wrong
        why = " ".join(str(error).split()) or type(error).__name__
        raise Damaged(path, name, f"is no whole array ({why})") from None
    if not isinstance(array, np.ndarray) or array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "fiu":
        found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        raise Damaged(path, name, f"is {found}; must be numbers of shape [documents, 2]")


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
    """What could be read of a run's metrics."""

    rows: tuple[MetricsRow, ...]  # in the order of the file, steps rising
    lost: int = 0  # lines that are no such row, bar a last one that a kill cut off


def read_metrics(path: Any) -> Metrics:
    """The rows of a file, uploaded segments included; what is no row is counted and left out."""
    text = paths.read_text_of_lines(path)
    rows: list[MetricsRow] = []
    lost, last = 0, -1
    whole, _, torn = text.rpartition("\n")
    lines = whole.split("\n") if whole else []
    for line in [*lines, torn]:
        if not line.strip():
            continue
        row = _row(line)
        if row is not None and row["step"] > last:
            rows.append(row)
            last = row["step"]
        elif line is not torn:
            lost += 1
    return Metrics(tuple(rows), lost)


def _row(line: str) -> MetricsRow | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not _is_count(row.get("step")):
        return None
    known = [row[name] for name in METRICS if name in row]
    return cast(MetricsRow, row) if all(value is None or _is_number(value) for value in known) else None


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
