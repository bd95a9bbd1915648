"""The tables of a sweep, one row per run: ``plan.csv`` (what is to be done) and ``results.csv`` (what came out). Their
columns stand in the order of the fields here.

A new column is a field below and its value: in ``dwsweep.plan.units`` for the plan, in ``ResultsRow.of`` for the
results.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from typing import Annotated, Any

from pydantic import Field

from dwsweep import paths
from dwsweep.records.reader import Positive, one_of, parse
from dwsweep.records.run_files import DONE, RUNNING, RunConfig, RunResult, RunState

RUN, SKIP, DROP = "RUN", "SKIP", "DROP"  # to be trained; already there; left out

Flops = Annotated[float, Field(gt=0, lt=1e300, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One run: its shape, cost and fate. None, an empty field, where a figure is unknown or waits for the data."""

    run_id: str
    pack_id: str = ""  # none where the run is dropped
    action: Annotated[str, one_of(RUN, SKIP, DROP)]
    reason: str = ""  # why it is skipped or dropped, or what to know about it
    depth: Positive
    width: Positive
    heads: int | None = None
    head_size: int | None = None
    seed: int | None = None
    learning_rate: float | None = None  # base learning rate
    budget: float | None = None  # target n_params
    n_params: Positive  # weight matrices of the blocks
    n_params_total: int | None = None
    steps: Positive
    tokens: Positive
    mismatch: float | None = None  # n_params / budget − 1
    hidden_learning_rate: float | None = None  # of the hidden weights, as the parametrization resolves the base rate
    residual_multiplier: float | None = None
    flops: Flops  # of the run's training
    flops_6nd: float | None = None
    epochs: float | None = None  # passes over the training tokens
    device_seconds: float | None = None  # the run's share of its pack, on one device
    pack_size: int | None = None  # replicas
    pack_memory_bytes: float | None = None  # on one device
    microbatch: int | None = None  # sequences
    pack_checkpoint_bytes: float | None = None  # while it trains
    time_basis: Annotated[str, one_of("measured", "compiled", "assumed")] | None = (
        None  # of device_seconds: measured, compiled or assumed
    )
    arm: str | None = None  # of a sweep with arms


PLAN_COLUMNS = tuple(field.name for field in fields(PlanRow))


def plan_csv(rows: Iterable[PlanRow]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(PLAN_COLUMNS)
    writer.writerows(astuple(row) for row in rows)
    return buffer.getvalue()


def parse_plan_csv(text: str) -> Iterator[PlanRow]:
    """
    Raises:
        InputError: a row is none of a plan.
    """
    for row in csv.DictReader(io.StringIO(text)):
        yield parse(PlanRow, {name: value for name, value in row.items() if name is not None and value})


@dataclass(frozen=True)
class ResultsRow:
    """One run: what was asked, what came out, what it cost. None, an empty field, where it is not known."""

    run_id: str
    depth: int
    width: int
    heads: int
    head_size: int
    seed: int
    learning_rate: float
    parametrization: str | None
    budget: float | None  # target n_params
    n_params: int  # weight matrices of the blocks
    n_params_total: int
    tokens: int
    steps: int
    loss: float | None  # held-out nats per token
    loss_stderr: float | None
    bits_per_byte: float | None
    status: str
    wall_seconds: float | None  # of the whole pack
    tokens_per_second: float | None  # of the whole pack
    flops: int | None
    batch_size: int | None  # sequences per step
    seq_len: int
    vocab_size: int
    optimizer: str | None
    schedule: str | None
    precision: str | None
    attention_kernel: str | None
    data_hash: str | None
    device_kind: str | None
    pack_size: int | None
    device_seconds: float | None  # the run's share of its pack
    embedding_rank: int | None  # of a factored embedding
    arm: str | None  # of a sweep with arms

    @classmethod
    def of(cls, config: RunConfig, state: RunState, result: RunResult | None) -> ResultsRow:
        """The row of a run; ``result`` counts only where the state is done."""
        found: Any = result if state.state == DONE else None
        shape, train = config.shape, config.train
        return cls(
            run_id=config.run_id,
            depth=shape.depth,
            width=shape.width,
            heads=shape.heads,
            head_size=shape.head_size,
            seed=config.seed,
            learning_rate=config.learning_rate,
            parametrization=config.model.get("parametrization"),
            budget=config.budget,
            n_params=config.n_params,
            n_params_total=config.n_params_total,
            tokens=config.tokens,
            steps=config.steps,
            loss=found and found.loss,
            loss_stderr=found and found.loss_stderr,
            bits_per_byte=found and found.bits_per_byte,
            status="interrupted" if state.state == RUNNING else state.state,
            wall_seconds=found and found.wall_seconds,
            tokens_per_second=found and found.tokens_per_second,
            flops=found and found.flops,
            batch_size=train.get("batch_size"),
            seq_len=shape.seq_len,
            vocab_size=shape.vocab_size,
            optimizer=train.get("optimizer"),
            schedule=train.get("schedule"),
            precision=train.get("precision"),
            attention_kernel=found and found.attention_kernel,
            data_hash=config.data_hash,
            device_kind=found and found.device_kind,
            pack_size=found and found.pack_size,
            device_seconds=found and found.device_seconds,
            embedding_rank=shape.embedding_rank,
            arm=config.arm,
        )


RESULTS_COLUMNS = tuple(field.name for field in fields(ResultsRow))


def write_results(path: Any, rows: Iterable[ResultsRow]) -> None:
    """Write the table atomically."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(RESULTS_COLUMNS)
    writer.writerows(astuple(row) for row in rows)
    paths.write_atomic(path, buffer.getvalue())
