"""Record of losses along a column of the table (heads, depth, …): ``along`` of fit.json, and the rows of ``along.csv``.

A group is one comparison: one arm at one depth and size, or at one size if the column is the depth. Within a group
all intervals hold together, at the confidence of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dwsweep.interval import IntervalOf
from dwsweep.records.record import Count, Positive, Record, one_of
from dwsweep.records.transitions import Numeric
from dwsweep.text import SHORT

BEST, NOT_APART, WORSE, UNKNOWN = "best", "not told apart", "worse", "noise unknown"
BASE, OTHER, NEITHER = "base", "other", "neither"


@dataclass(frozen=True, kw_only=True)
class AlongRow(Record):
    """Value of the column in one group.

    Losses are in the unit of the table, at ``budget``. Those above the best are above the lowest true loss of the
    group, whichever value has it, so their intervals allow for the best having been chosen by its loss.
    """

    arm: str
    column: str
    value: Numeric
    depth: Positive
    budget: float | None  # size at which losses are compared; None if the column is a size
    width: Numeric
    heads: Numeric | None
    head_size: Numeric | None
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
    above_base: float | None = None  # loss above the first arm at this value
    above_base_low: float | None = None
    above_base_high: float | None = None
    above_base_interval = IntervalOf()
    verdict: Annotated[str, one_of(BEST, NOT_APART, WORSE, UNKNOWN)]
    confidence: float


@dataclass(frozen=True, kw_only=True)
class AlongCurve(Record):
    """Group: its values in rising order, and their joint verdict."""

    arm: str
    depth: Positive | None  # None if the column is the depth
    budget: float | None
    rows: tuple[AlongRow, ...]
    best: Numeric  # value with the lowest loss
    worse_from: Numeric | None  # least value at and above which all are shown to be worse than the best
    worse_to: Numeric | None  # largest value up to which every value is shown to be worse
    spread: float | None  # loss of the worst value − loss of the best value, less the part due to noise
    spread_low: float | None
    spread_high: float | None
    spread_interval = IntervalOf()
    worst: Numeric
    sentence: str

    def percent(self, nats: float | None) -> float | None:
        """Nats as percent of the lowest loss; None for None."""
        return None if nats is None else 100.0 * nats / min(row.loss for row in self.rows if row.loss is not None)


@dataclass(frozen=True, kw_only=True)
class ArmDivergence(Record):
    """Divergence: value from which another arm differs from the first, in one group.

    start: first value at and above which ``ahead`` is ahead at every tried value, by the simultaneous band. after: last
    value below ``start`` at which the other arm is shown ahead, so that the arms diverge between the two; None: no
    lead is shown below ``start``.
    """

    base: str
    arm: str
    depth: Positive | None
    budget: float | None
    ahead: Annotated[str, one_of(BASE, OTHER, NEITHER)]
    start: Numeric | None
    after: Numeric | None
    pairing: str  # kind of pairing, or the reason for none
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Along(Record):
    """The losses along one column, of all arms."""

    column: str
    unit: Annotated[str, one_of(*SHORT)]
    arms: tuple[str, ...]
    confidence: float
    answer: tuple[str, ...]
    curves: tuple[AlongCurve, ...]
    partings: tuple[ArmDivergence, ...]
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[AlongRow]:
        return [row for curve in self.curves for row in curve.rows]

    @property
    def groups(self) -> list[tuple[int | None, float | None]]:
        """(depth, budget) of the groups of all arms, each once."""
        return list(dict.fromkeys((curve.depth, curve.budget) for curve in self.curves))
