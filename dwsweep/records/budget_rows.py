"""Runs trained at equal compute: the best size of each depth and the best depth at each budget, as ``fit.json`` and
``equal_budgets.csv``, ``equal_budget_depths.csv`` have them.

A minimum is given only where it is reached: the loss surely falls before it and surely rises after it, within what was
tried. Otherwise the bound stands that there is, and the other end and the minimum itself are None. Intervals hold one
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from dwsweep.records.fit_rows import FitPart, Numeric
from dwsweep.records.reader import Count, Positive, one_of

REACHED, NOT_REACHED_LOW, NOT_REACHED_HIGH = "reached", "not_reached_low", "not_reached_high"
UNDECIDED, TOO_FEW = "undecided", "too_few"
MINIMUM_STATUSES = (REACHED, NOT_REACHED_LOW, NOT_REACHED_HIGH, UNDECIDED, TOO_FEW)
Values = tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class DepthAtBudget(FitPart):
    """One depth at one budget: the size at which its loss is least."""

    axis: str  # what was equal: flops or device_seconds
    budget: float  # its value
    depth: Positive
    status: Annotated[str, one_of(*MINIMUM_STATUSES)]
    n_params: float | None  # non-embedding, at the minimum
    n_params_low: float | None
    n_params_high: float | None
    width: float | None
    width_low: float | None
    width_high: float | None
    tokens: float | None
    tokens_per_param: float | None
    loss: float | None  # nats per token, at the minimum
    loss_low: float | None
    loss_high: float | None
    above_best: float | None  # nats above the best depth of this budget
    above_best_low: float | None
    above_best_high: float | None
    sizes: Count  # distinct ones tried
    smallest: float  # non-embedding parameters
    largest: float
    tried_width: Numeric  # of the shape of this depth with the lowest mean loss
    tried_n_params: Numeric
    tried_loss: float | None
    misfit: float | None  # factor by which the errors were widened, since no smooth curve passes the points
    confidence: float
    reason: str  # why there is no minimum


@dataclass(frozen=True, kw_only=True)
class BestAtBudget(FitPart):
    """One budget: the depth whose best size has the least loss, between the depths that were tried."""

    axis: str
    budget: float
    spread: float  # of the runs' own values: largest / smallest − 1
    runs: Count
    shapes: Count
    depths: Count
    status: Annotated[str, one_of(*MINIMUM_STATUSES)]
    depth: float | None
    depth_low: float | None
    depth_high: float | None
    n_params: float | None
    n_params_low: float | None
    n_params_high: float | None
    width: float | None
    width_low: float | None
    width_high: float | None
    tokens: float | None
    tokens_low: float | None
    tokens_high: float | None
    tokens_per_param: float | None
    loss: float | None
    loss_low: float | None
    loss_high: float | None
    worst_depth: float | None  # of the depths tried, each at its best size
    worst_nats: float | None  # above the best depth
    worst_nats_low: float | None
    worst_nats_high: float | None
    worst_percent: float | None  # of the loss
    tried_depth: int | None  # of the shape with the lowest mean loss
    tried_width: Numeric | None
    tried_n_params: Numeric | None
    tried_loss: float | None
    misfit: float | None
    noise_source: str
    confidence: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class BudgetCurve(FitPart):
    """Loss of one depth against size at one budget, for the figure; sizes are non-embedding parameters."""

    depth: Positive
    n_params: Values
    mean: Values
    se: Values | None  # None where the noise is not known
    grid: Values
    loss: Values
    half: Values | None  # half the pointwise band


@dataclass(frozen=True, kw_only=True)
class DepthProfile(FitPart):
    """Loss of the best size of each depth against depth at one budget, for the figure."""

    depth: Values
    loss: Values
    half: Values


@dataclass(frozen=True, kw_only=True)
class Budget(FitPart):
    """All that a fit says of one budget."""

    best: BestAtBudget
    depths: tuple[DepthAtBudget, ...]
    curves: tuple[BudgetCurve, ...] = field(repr=False)
    profile: DepthProfile | None = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class BudgetTrend(FitPart):
    """quantity ∝ budget^exponent over the budgets at which it is reached."""

    quantity: str  # n_params, tokens, depth or width of the best shape
    exponent: float
    exponent_low: float | None
    exponent_high: float | None
    budgets: Count
    at_budget: float  # the geometric mean of the budgets …
    value: float  # … and the quantity there
    misfit: float  # factor by which the errors were widened, since no power law passes the points


@dataclass(frozen=True, kw_only=True)
class EqualBudgets(FitPart):
    """The budgets of a table, the smallest first."""

    axis: str
    known_from: str  # how the budgets were recognised
    only: bool  # every shape was trained to its budget, so that no curve runs over the axis
    budgets: tuple[Budget, ...]
    trends: tuple[BudgetTrend, ...]  # with three budgets or more

    @property
    def best(self) -> list[BestAtBudget]:
        """The rows of equal_budgets.csv."""
        return [budget.best for budget in self.budgets]

    @property
    def depths(self) -> list[DepthAtBudget]:
        """The rows of equal_budget_depths.csv."""
        return [row for budget in self.budgets for row in budget.depths]
