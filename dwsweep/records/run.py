"""Run of a sweep: ``config.json``, the decisions before it is trained; ``status.json``, its state until it is done;
``result.json``, its result, which alone makes it done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from dwsweep.records.record import Amount, Count, Name, Number, Positive, PositiveNumber, holding, one_of
from dwsweep.shapes import Shape

PENDING, RUNNING, DONE, DIVERGED = "pending", "running", "done", "diverged"
FAILED, OOM, INTERRUPTED = "failed", "oom", "interrupted"

RUN_STATES = (DONE, RUNNING, PENDING, INTERRUPTED, DIVERGED, FAILED, OOM)
FINAL = frozenset({DONE, DIVERGED})  # states whose result stands
STOPPED = frozenset({FAILED, OOM})  # states without a result that are tried again on request

# sections of a run's spec with all their keys; only the keys that others read are checked
ModelFacts = Annotated[dict[str, Any], holding(parametrization=str)]
TrainFacts = Annotated[dict[str, Any], holding(batch_size=int, optimizer=str, schedule=str, precision=str)]


@dataclass(frozen=True)
class RunConfig:
    """``config.json``: all decisions about a run before its training."""

    run_id: Name
    pack_id: str  # pack into which the plan put it
    seed: Count
    learning_rate: PositiveNumber  # base learning rate
    budget: PositiveNumber | None  # target n_params; None if widths were given
    steps: Positive
    tokens: Positive  # steps · batch_size · seq_len
    n_params: Positive  # weight matrices of the blocks
    n_params_total: Positive  # embeddings, biases and norms included
    data_hash: str | None
    shape: Shape
    model: ModelFacts
    data: dict[str, Any]  # the section ``data`` of the spec
    train: TrainFacts
    arm: str | None = None  # arm of the run, in a sweep with arms


@dataclass(frozen=True)
class RunState:
    """State of a run; ``status.json`` of one that is not done."""

    state: Annotated[str, one_of(*RUN_STATES)] = PENDING
    step: Count | None = None  # last step known when the state was written
    loss: Number = None  # held-out nats per token if done, else last training loss
    pack_id: Name | None = None  # the pack that trains or trained it
    cause: str | None = None  # cause of a failure, divergence or interruption; last log lines of a failed worker
    log_tail: str | None = None  # the last lines of the worker's log, where it failed
    updated: Amount = None  # seconds since the epoch
    run_id: Name | None = None  # run for which the state was written; None in files of earlier versions


@dataclass(frozen=True)
class RunResult:
    """``result.json``: result of a finished run. A loss is a finite number or there is no result."""

    loss: Annotated[float, Field(ge=0, lt=1e6, allow_inf_nan=False)]  # held-out nats per token
    loss_stderr: Amount = None  # standard error over the sampled held-out documents, nats per token
    bits_per_byte: Amount = None
    train_loss: Number = None  # training loss at the last step, nats per token
    steps: Count | None = None
    tokens: Count | None = None
    wall_seconds: Amount = None  # training clock of the whole pack along this run's path
    tokens_per_second: Amount = None  # rate of the whole pack
    device_seconds: Amount = None  # the run's share of its pack
    compile_seconds: Amount = None
    flops: Count | None = None  # FLOPs of training, forward and backward
    attention_kernel: str | None = None
    device_kind: str | None = None
    pack_size: Positive | None = None  # replicas that trained together
    pack_id: Name | None = None
    versions: dict[str, str] | None = None  # versions of Python and of the packages that results depend on
    run_id: Name | None = None  # run for which the result was written; None in files of earlier versions
    params_sha256: str | None = None  # hash (hex) of params.safetensors; None: the parameters were not kept
    params_bytes: Count | None = None
    heldout_tokens: Positive | None = None  # tokens over which the loss is the mean; None in files of earlier versions
    documents_sha256: str | None = None  # hash (hex) of documents.npy; None in files of earlier versions
    metrics_sha256: str | None = None  # hash (hex) of metrics.jsonl; None in files of earlier versions
    metrics_rows: Count | None = None  # lines of metrics.jsonl when the run was done; None in files of earlier versions
