"""Loss along a column of the table (heads, depth, …): ``along`` of fit.json, and the rows of ``along.csv``.

A group is what is compared: one arm at one depth and size, or at one size where the column is the depth. Within a group
all intervals hold together, at the confidence of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dwsweep.records.fit_rows import FitPart, Numeric
from dwsweep.records.reader import Count, Positive, one_of

BEST, NOT_APART, WORSE, UNKNOWN = "best", "not told apart", "worse", "noise unknown"
BASE, OTHER, NEITHER = "base", "other", "neither"


@dataclass(frozen=True, kw_only=True)
class AlongRow(FitPart):
    """One value of the column in one group.

    Losses are in the unit of the table, at ``budget``. Those above the best are above the lowest true loss of the
    group, whichever value has it, so their intervals allow for the best having been chosen by its loss.
    """

    arm: str
    column: str
    value: Numeric
    depth: Positive
    budget: float | None  # size at which losses are compared; None where the column is a size
    width: Numeric
    heads: Numeric | None
    head_size: Numeric | None
    n_params: Numeric  # non-embedding
    learning_rate: Numeric | None
    n: Count  # runs
    loss: float | None
    se: float | None
    correction: float  # added to the mean of the runs, for ``n_params`` is not quite ``budget``
    above_best: float | None
    above_best_low: float | None
    above_best_high: float | None
    above_first: float | None  # above the first value of the group
    above_first_low: float | None
    above_first_high: float | None
    above_base: float | None = None  # above the first arm at this value
    above_base_low: float | None = None
    above_base_high: float | None = None
    verdict: Annotated[str, one_of(BEST, NOT_APART, WORSE, UNKNOWN)]
    confidence: float


@dataclass(frozen=True, kw_only=True)
class AlongCurve(FitPart):
    """One group: its values in rising order, and what they say together."""

    arm: str
    depth: Positive | None  # None where the column is the depth
    budget: float | None
    rows: tuple[AlongRow, ...]
    best: Numeric  # value with the lowest loss
    worse_from: Numeric | None  # from here on every value is shown to be worse than the best one
    worse_to: Numeric | None  # up to here every value is
    spread: float | None  # loss of the worst value − that of the best, less what noise adds to it
    spread_low: float | None
    spread_high: float | None
    worst: Numeric
    sentence: str

    @property
    def known(self) -> bool:
        """Whether there are intervals."""
        return self.spread_high is not None

    def percent(self, nats: float | None) -> float | None:
        """Of the lowest loss; None where that is not positive."""
        lowest = min((row.loss for row in self.rows if row.loss is not None), default=0.0)
        return None if nats is None or lowest <= 0.0 else 100.0 * nats / lowest

    def at(self, value: Numeric) -> AlongRow:
        return next(row for row in self.rows if row.value == value)


@dataclass(frozen=True, kw_only=True)
class ArmsParting(FitPart):
    """Where another arm leaves the first one, in one group. start: the first value from which on ``ahead`` is ahead at
    every value tried, by the simultaneous band. after: the last value below it at which the other one is shown ahead:
    they part between the two; None: below ``start`` nothing is shown."""

    base: str
    arm: str
    depth: Positive | None
    budget: float | None
    ahead: Annotated[str, one_of(BASE, OTHER, NEITHER)]
    start: Numeric | None
    after: Numeric | None
    pairing: str  # by what, or why not
    sentence: str


@dataclass(frozen=True, kw_only=True)
class EqualShape(FitPart):
    """A shape whose loss is shown to be no worse than the baseline's by more than the margin: ``along_equal.csv``."""

    arm: str
    depth: Positive
    width: Numeric
    heads: Numeric | None
    head_size: Numeric | None
    n_params: Numeric
    saved_percent: float  # of the baseline's n_params
    loss: float | None
    worse: float | None  # than the baseline
    worse_high: float | None  # at most, at the confidence; holds for all shapes of the table together
    equal: bool  # worse_high is below the margin


@dataclass(frozen=True, kw_only=True)
class EqualToBaseline(FitPart):
    """Every shape against a baseline. margin: nats by which a shape may be worse."""

    arm: str
    baseline: str
    n_params: Numeric
    loss: float
    margin: float
    confidence: float
    rows: tuple[EqualShape, ...]  # the most that is saved first
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Along(FitPart):
    """The losses along one column, of all arms."""

    column: str
    unit: Annotated[str, one_of("nats per token", "bits per byte")]
    arms: tuple[str, ...]
    inputs: tuple[str, ...]
    confidence: float
    answer: tuple[str, ...]
    curves: tuple[AlongCurve, ...]
    partings: tuple[ArmsParting, ...]
    equal: tuple[EqualToBaseline, ...] = ()  # of each arm, where a baseline was asked for
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[AlongRow]:
        return [row for curve in self.curves for row in curve.rows]

    @property
    def groups(self) -> list[tuple[int | None, float | None]]:
        """(depth, budget) of the groups, those of all arms once."""
        return list(dict.fromkeys((curve.depth, curve.budget) for curve in self.curves))
