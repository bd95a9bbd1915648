"""Record of runs at equal budgets: ``equal_budgets`` of fit.json, ``equal_budgets.csv``, ``equal_budget_depths.csv``.

A minimum is given only if it is reached: the loss is shown to fall before it and to rise after it, within the tried
range. Otherwise the existing bound is given, and the other end and the minimum are None. Intervals hold one
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from dwsweep.interval import Interval, IntervalOf
from dwsweep.records.record import Count, Positive, Record, one_of
from dwsweep.records.transitions import Numeric, Values

FLOPS, SECONDS = "flops", "device_seconds"  # columns in which a budget may be given
REACHED, NOT_REACHED_LOW, NOT_REACHED_HIGH = "reached", "not_reached_low", "not_reached_high"
UNDECIDED, TOO_FEW = "undecided", "too_few"
TRENDS = ("n_params", "tokens", "depth", "width")  # quantities of the best shape
MINIMUM_STATUSES = (REACHED, NOT_REACHED_LOW, NOT_REACHED_HIGH, UNDECIDED, TOO_FEW)


@dataclass(frozen=True, kw_only=True)
class DepthAtBudget(Record):
    """Best size of one depth at one budget."""

    axis: str  # the equal quantity: flops or device_seconds
    budget: float  # value of the equal quantity
    depth: Positive
    status: Annotated[str, one_of(*MINIMUM_STATUSES)]
    n_params: float | None = None  # non-embedding, at the minimum
    n_params_low: float | None = None
    n_params_high: float | None = None
    n_params_interval = IntervalOf()
    width: float | None = None
    width_low: float | None = None
    width_high: float | None = None
    tokens: float | None = None
    tokens_per_param: float | None = None
    loss: float | None = None  # nats per token, at the minimum
    loss_low: float | None = None
    loss_high: float | None = None
    above_best: float | None = None  # nats above the best depth of this budget
    above_best_low: float | None = None
    above_best_high: float | None = None
    above_best_interval = IntervalOf()
    sizes: Count  # distinct ones tried
    smallest: float  # non-embedding parameters
    largest: float
    tried_width: Numeric  # width of this depth's shape with the lowest mean loss
    tried_n_params: Numeric
    tried_loss: float | None
    misfit: float | None = None  # factor that widens the errors if no smooth curve passes the points
    confidence: float
    reason: str  # reason why there is no minimum


@dataclass(frozen=True, kw_only=True)
class BestAtBudget(Record):
    """Best shape at one budget: the depth whose best size has the least loss, between the tried depths."""

    axis: str
    budget: float
    spread: float  # largest / smallest value of the runs, − 1
    runs: Count
    shapes: Count
    depths: Count
    status: Annotated[str, one_of(*MINIMUM_STATUSES)]
    depth: float | None = None
    depth_low: float | None = None
    depth_high: float | None = None
    depth_interval = IntervalOf()
    n_params: float | None = None
    n_params_low: float | None = None
    n_params_high: float | None = None
    n_params_interval = IntervalOf()
    width: float | None = None
    width_low: float | None = None
    width_high: float | None = None
    width_interval = IntervalOf()
    tokens: float | None = None
    tokens_low: float | None = None
    tokens_high: float | None = None
    tokens_interval = IntervalOf()
    tokens_per_param: float | None = None
    loss: float | None = None
    loss_low: float | None = None
    loss_high: float | None = None
    loss_interval = IntervalOf()
    worst_depth: float | None = None  # worst depth tried, each at its best size
    worst_nats: float | None = None  # loss above the best depth
    worst_nats_low: float | None = None
    worst_nats_high: float | None = None
    worst_nats_interval = IntervalOf()
    worst_percent: float | None = None  # excess in percent of the loss
    tried_depth: int | None  # depth of the shape with the lowest mean loss
    tried_width: Numeric | None
    tried_n_params: Numeric | None
    tried_loss: float | None
    misfit: float | None = None
    noise_source: str
    confidence: float
    reason: str

    def of(self, quantity: str) -> Interval:
        """Interval of a quantity that has a trend over the budgets, one of ``TRENDS``."""
        found = (self.n_params_interval, self.tokens_interval, self.depth_interval, self.width_interval)
        return dict(zip(TRENDS, found, strict=True))[quantity]


@dataclass(frozen=True, kw_only=True)
class BudgetCurve(Record):
    """Loss of one depth against size at one budget, for the figure; sizes are non-embedding parameters."""

    depth: Positive
    n_params: Values
    mean: Values
    se: Values | None  # None if the noise is unknown
    grid: Values
    loss: Values
    half: Values | None  # half the pointwise band


@dataclass(frozen=True, kw_only=True)
class DepthProfile(Record):
    """Loss of the best size of each depth against depth at one budget, for the figure."""

    depth: Values
    loss: Values
    half: Values


@dataclass(frozen=True, kw_only=True)
class Budget(Record):
    """Results of one budget."""

    best: BestAtBudget
    depths: tuple[DepthAtBudget, ...]
    curves: tuple[BudgetCurve, ...] = field(repr=False)
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
    at_budget: float  # the geometric mean of the budgets …
    value: float  # the quantity at that budget
    misfit: float = 1.0  # factor that widens the errors if no power law passes the points


@dataclass(frozen=True, kw_only=True)
class EqualBudgets(Record):
    """The budgets of a table, the smallest first."""

    axis: str
    known_from: str  # evidence by which the budgets were recognised
    only: bool  # every shape was trained to its budget: no curve runs over the axis
    budgets: tuple[Budget, ...]
    trends: tuple[BudgetTrend, ...]  # trends, if there are three budgets or more

    @property
    def best(self) -> list[BestAtBudget]:
        """The rows of equal_budgets.csv."""
        return [budget.best for budget in self.budgets]

    @property
    def depths(self) -> list[DepthAtBudget]:
        """The rows of equal_budget_depths.csv."""
        return [row for budget in self.budgets for row in budget.depths]
