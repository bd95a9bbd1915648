"""``results.csv``: one row per run, its columns in the order of the fields here."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from typing import Any

from dwsweep import paths
from dwsweep.records.run_files import DONE, RUNNING, RunConfig, RunResult, RunState


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
        )


COLUMNS = tuple(field.name for field in fields(ResultsRow))


def write(path: Any, rows: Iterable[ResultsRow]) -> None:
    """Write the table atomically."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(astuple(row) for row in rows)
    paths.write_atomic(path, buffer.getvalue())
