"""``plan.csv``: one row per run, its columns in the order of the fields here.

A new column is a field below and its value in ``dwsweep.plan.rows``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, fields
from typing import Annotated

from pydantic import Field

from dwsweep.records.reader import Positive, one_of, parse

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


COLUMNS = tuple(field.name for field in fields(PlanRow))


def to_csv(rows: Iterable[PlanRow]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(astuple(row) for row in rows)
    return buffer.getvalue()


def from_csv(text: str) -> Iterator[PlanRow]:
    """
    Raises:
        InputError: a row is none of a plan.
    """
    for row in csv.DictReader(io.StringIO(text)):
        yield parse(PlanRow, {name: value for name, value in row.items() if name is not None and value})
