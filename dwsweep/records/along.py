"""Record of losses along a column of the table (heads, depth, …): ``along`` of fit.json, and the rows of ``along.csv``.

A group is one comparison: one depth and size, or one size if the column is the depth. Within a group all intervals hold
together, at the confidence of the fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated

from dwsweep.interval import IntervalOf
from dwsweep.records.answers import DIFFERENCE, N_PARAMS, AnswerRow
from dwsweep.records.record import Count, Positive, Record, one_of
from dwsweep.records.transitions import Numeric
from dwsweep.text import SHORT

BEST, NOT_APART, WORSE, UNKNOWN = "best", "not told apart", "worse", "noise unknown"


@dataclass(frozen=True, kw_only=True)
class AlongRow(Record):
    """Value of the column in one group.

    Losses are in the unit of the table, at ``budget``. Those above the best are above the lowest true loss of the
    group, whichever value has it, so their intervals allow for the best having been chosen by its loss.
    """

    column: str
    value: Numeric
    depth: Positive
    budget: float  # size at which losses are compared
    width: Numeric
    n_params: Numeric  # non-embedding
    learning_rate: Numeric | None
    n: Count  # runs
    loss: float | None
    se: float | None
    correction: float  # correction of the runs' mean, since ``n_params`` differs slightly from ``budget``
    above_best: float | None
    above_best_low: float | None
    above_best_high: float | None
    above_best_interval = IntervalOf()
    verdict: Annotated[str, one_of(BEST, NOT_APART, WORSE, UNKNOWN)]

    @property
    def group(self) -> tuple[int | None, float]:
        """(depth, budget) that the values of a group share; no depth if the column is it."""
        return None if self.column == "depth" else self.depth, self.budget


@dataclass(frozen=True, kw_only=True)
class Along(Record):
    """The losses along one column. rows: group by group, in rising order of the column."""

    column: str
    unit: Annotated[str, one_of(*SHORT)]
    confidence: float
    answer: tuple[str, ...]
    rows: tuple[AlongRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def curves(self) -> list[list[AlongRow]]:
        """Rows of each group."""
        return [list(rows) for _, rows in groupby(self.rows, key=lambda row: row.group)]

    @property
    def answers(self) -> Iterator[AnswerRow]:
        """Rows of answers.csv: the loss of each value above the best one of its group."""
        for row in self.rows:
            at = {name: row[name] for name in ("column", "value", "depth", "width")}
            above = row.above_best_interval.columns("estimate")
            yield AnswerRow(question=DIFFERENCE, equal=N_PARAMS, n_params=row.budget, reason=row.verdict, **at, **above)
