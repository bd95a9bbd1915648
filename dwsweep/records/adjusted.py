"""Adjustment of a heap of runs, in ``fit.json``: held values, effect of each column, inseparable columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

from dwsweep.interval import Interval, IntervalOf
from dwsweep.records.answers import BEST_VALUE, EFFECT, N_PARAMS, RATIO, AnswerRow
from dwsweep.records.record import Count, Record, one_of
from dwsweep.text import of_digits


@dataclass(frozen=True, kw_only=True)
class AdjustedColumn(Record):
    """Column whose values differ between runs. matters: root mean square of its effect on the losses, nats."""

    name: str  # name in words
    column: str  # our name of the table's column
    kind: Annotated[str, one_of("number", "text", "rate")]
    held: str  # held value in words, "best" for a learning rate
    value: float | None = None  # held number; None for a text, and for each net's best rate
    low: float | None = None  # smallest value among the runs, if it is a number
    high: float | None = None
    r: float  # correlation with ln depth at equal size
    matters: float
    matters_low: float
    matters_high: float
    matters_interval = IntervalOf()


@dataclass(frozen=True, kw_only=True)
class Adjustment(Record):
    """Adjustment of the losses of a heap.

    inseparable: columns that this table cannot separate from depth.
    rates: best learning rate of each depth at the middle size. along_tokens: estimate is the ratio to the best depth
    after the least tokens, the first.
    """

    runs: Count
    columns: tuple[AdjustedColumn, ...]
    follow: tuple[str, ...] = ()  # columns that follow the shape and count as part of it
    scatter: float  # sd of a run about the surface, nats
    shared: float | None = None  # sd that the points of one run share, nats
    inseparable: tuple[str, ...] = ()
    rates: tuple[AnswerRow, ...] = ()
    along_tokens: tuple[AnswerRow, ...] = ()  # best depths by tokens, if runs have several counts
    equal: tuple[AnswerRow, ...] = ()  # best depths at equal size, total size, FLOPs and time, as far as runs show them
    at_budgets: tuple[AnswerRow, ...] = ()  # of the budgets that the runs were trained to, the smallest first
    growth: tuple[AnswerRow, ...] = ()  # powers of the budget by which N, tokens and depth of the best net grow

    @property
    def after_other_tokens(self) -> list[AnswerRow]:
        """Rows of ``along_tokens`` that ``equal`` does not have."""
        known = {(of_digits(row.n_params or 0.0), row.tokens) for row in self.equal if row.equal == N_PARAMS}
        return [row for row in self.along_tokens if (of_digits(row.n_params or 0.0), row.tokens) not in known]

    def answers(self, known: Collection[float | None]) -> Iterator[AnswerRow]:
        """Rows of answers.csv. known: sizes whose best depth at equal N the surface gives."""
        nets, no_depth = (*self.equal, *self.at_budgets), Interval().columns("depth")
        yield from (row for row in nets if row.equal != N_PARAMS or row.n_params not in known)
        yield from self.growth
        for row in nets:
            if not row.n_params_interval.unbounded:
                size: dict[str, Any] = {"column": N_PARAMS, **row.n_params_interval.columns("estimate"), **no_depth}
                reason = "" if row.n_params else row.reason
                yield replace(row, question=BEST_VALUE, monte_carlo_error=None, reason=reason, **size)
        yield from (replace(row, **Interval().columns("estimate")) for row in self.after_other_tokens)
        for row in self.along_tokens:
            if row.estimate is not None:
                yield replace(row, question=RATIO, column="tokens", **no_depth)
        yield from self.rates
        for one in self.columns:
            effect = one.matters_interval.columns("estimate")
            yield AnswerRow(question=EFFECT, equal=N_PARAMS, column=one.column, value=one.held, **effect)


@dataclass(frozen=True, kw_only=True)
class NextRun(Record):
    """Net to train next. ln_depth_sd: expected sd of ln of the best depth after it and those before it. flops: of its
    training, 6·N per token."""

    depth: Count
    width: Count
    n_params: float
    ln_depth_sd: float
    flops: float


@dataclass(frozen=True, kw_only=True)
class NextRuns(Record):
    """Nets that narrow ``best``, the best depth at a size, in order. held: values to train them at. ln_depth_sd:
    of the best depth at present. tokens: of each net; None: 20 per parameter. beyond: whether the size is above those
    of the table."""

    best: AnswerRow
    ln_depth_sd: float
    runs: tuple[NextRun, ...]
    beyond: bool = False
    tokens: float | None = None
    held: tuple[str, ...] = ()
