"""Record of runs at equal budgets: ``equal_budgets`` of fit.json, ``equal_budgets.csv``.

A minimum is given only if it is reached: the loss is shown to fall before it and to rise after it, within the tried
range. Otherwise the existing bound is given, and the other end and the minimum are None. Intervals hold one
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from dwsweep.interval import IntervalOf
from dwsweep.records.record import Count, Positive, Record, one_of
from dwsweep.records.transitions import Numeric, Values

FLOPS, SECONDS = "flops", "device_seconds"  # columns in which a budget may be given
REACHED, NOT_REACHED_LOW, NOT_REACHED_HIGH = "reached", "not_reached_low", "not_reached_high"
UNDECIDED, TOO_FEW = "undecided", "too_few"
TRENDS = ("n_params", "tokens", "depth", "width")  # quantities of the best shape
MINIMUM_STATUSES = (REACHED, NOT_REACHED_LOW, NOT_REACHED_HIGH, UNDECIDED, TOO_FEW)


@dataclass(frozen=True, kw_only=True)
class AtBudget(Record):
    """Best shape at one budget: of all depths, or of one tried depth (``of_depth``), at its best size."""

    axis: str  # the equal quantity: flops or device_seconds
    budget: float  # value of the equal quantity
    of_depth: Positive | None = None
    status: Annotated[str, one_of(*MINIMUM_STATUSES)]
    depth: float | None = None
    depth_low: float | None = None
    depth_high: float | None = None
    depth_interval = IntervalOf()
    n_params: float | None = None  # non-embedding
    n_params_low: float | None = None
    n_params_high: float | None = None
    n_params_interval = IntervalOf()
    width: float | None = None
    width_low: float | None = None
    width_high: float | None = None
    width_interval = IntervalOf()
    tokens: float | None = None
    loss: float | None = None  # nats per token
    above_best: float | None = None  # nats of a depth above the best one; of the worst depth in the row of all depths
    above_best_low: float | None = None
    above_best_high: float | None = None
    above_best_interval = IntervalOf()
    worst_depth: float | None = None  # worst depth tried, each at its best size
    worst_percent: float | None = None  # its excess over the best loss, percent
    tried_depth: int  # the shape tried with the lowest mean loss, of all depths or of this one
    tried_width: Numeric
    tried_loss: float
    confidence: float
    reason: str  # reason why there is no minimum

    @property
    def tokens_per_param(self) -> float | None:
        return self.tokens / self.n_params if self.tokens and self.n_params else None


@dataclass(frozen=True, kw_only=True)
class DepthProfile(Record):
    """Loss of the best size of each depth against depth at one budget, for the figure."""

    depth: Values
    loss: Values
    half: Values  # half the pointwise band


@dataclass(frozen=True, kw_only=True)
class Budget(Record):
    """Results of one budget."""

    best: AtBudget
    depths: tuple[AtBudget, ...]
    profile: DepthProfile | None = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class BudgetTrend(Record):
    """quantity ∝ budget^exponent over the budgets at which it is reached."""

    quantity: str  # one of TRENDS: a quantity of the best shape
    exponent: float
    exponent_low: float | None
    exponent_high: float | None
    exponent_interval = IntervalOf()
    budgets: Count


@dataclass(frozen=True, kw_only=True)
class EqualBudgets(Record):
    """The budgets of a table, the smallest first."""

    axis: str
    known_from: str  # evidence by which the budgets were recognised
    only: bool  # every shape was trained to its budget: no curve runs over the axis
    budgets: tuple[Budget, ...]
    trends: tuple[BudgetTrend, ...]  # trends, if there are three budgets or more

    @property
    def best(self) -> list[AtBudget]:
        return [budget.best for budget in self.budgets]

    @property
    def rows(self) -> list[AtBudget]:
        """The rows of equal_budgets.csv: of each budget the best shape, then each depth."""
        return [row for budget in self.budgets for row in (budget.best, *budget.depths)]
