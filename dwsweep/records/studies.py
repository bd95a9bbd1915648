"""Records of the studies: equal budgets, losses along a column, arms compared; as ``fit.json`` and
``equal_budgets.csv``, ``equal_budget_depths.csv`` have them.

A minimum is given only if it is reached: the loss is shown to fall before it and to rise after it, within the tried
range. Otherwise the existing bound is given, and the other end and the minimum are None. Intervals hold one
at a time.

Loss along a column of the table (heads, depth, …): ``along`` of fit.json, and the rows of ``along.csv``.

A group is one comparison: one arm at one depth and size, or at one size if the column is the depth. Within a group
all intervals hold together, at the confidence of the fit.

Two arms over a common axis: ``comparisons`` of fit.json, and the rows of ``comparison.csv``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from dwsweep.interval import Interval, IntervalOf
from dwsweep.records.record import Count, Positive, Record, one_of
from dwsweep.records.transitions import Numeric, Sampled, Values
from dwsweep.text import SHORT

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
    above_first: float | None  # loss above the first value of the group
    above_first_low: float | None
    above_first_high: float | None
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
        """Give nats as percent of the lowest loss; None if that is not positive."""
        lowest = min((row.loss for row in self.rows if row.loss is not None), default=0.0)
        return None if nats is None or lowest <= 0.0 else 100.0 * nats / lowest


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
class EqualShape(Record):
    """A shape whose loss is shown to be no worse than the baseline's by more than the margin: ``along_equal.csv``."""

    arm: str
    depth: Positive
    width: Numeric
    heads: Numeric | None
    head_size: Numeric | None
    n_params: Numeric
    saved_percent: float  # saving in percent of the baseline's n_params
    loss: float | None
    worse: float | None  # than the baseline
    worse_high: float | None  # upper bound at the confidence, simultaneous over all shapes of the table
    equal: bool  # True if worse_high is below the margin


@dataclass(frozen=True, kw_only=True)
class EqualToBaseline(Record):
    """Every shape against a baseline. margin: nats by which a shape may be worse."""

    arm: str
    baseline: str
    n_params: Numeric
    loss: float
    margin: float
    confidence: float
    rows: tuple[EqualShape, ...]  # largest saving first
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Along(Record):
    """The losses along one column, of all arms."""

    column: str
    unit: Annotated[str, one_of(*SHORT)]
    arms: tuple[str, ...]
    inputs: tuple[str, ...]
    confidence: float
    answer: tuple[str, ...]
    curves: tuple[AlongCurve, ...]
    partings: tuple[ArmDivergence, ...]
    equal: tuple[EqualToBaseline, ...] = ()  # one table per arm, if a baseline was given
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> list[AlongRow]:
        return [row for curve in self.curves for row in curve.rows]

    @property
    def groups(self) -> list[tuple[int | None, float | None]]:
        """(depth, budget) of the groups of all arms, each once."""
        return list(dict.fromkeys((curve.depth, curve.budget) for curve in self.curves))


@dataclass(frozen=True, kw_only=True)
class AtOneSize(Record):
    """The best depth of a table whose nets have about one size."""

    n_params: float  # geometric mean of the sizes
    confidence: float
    known: bool  # source of the noise: without noise there is no interval
    lowest: Positive  # tried depth with the least loss
    at_edge: str = ""  # below or above: the best depth lies beyond the depths tried on that side
    depth: float | None = None
    depth_low: float | None = None
    depth_high: float | None = None
    depth_interval = IntervalOf()
    worst_depth: Positive | None = None  # worst depth tried
    worst_percent: float | None = None  # excess of the worst depth over the least loss, percent
    worst_percent_low: float | None = None
    worst_percent_high: float | None = None
    effect_p: float | None = None  # probability of no effect of depth

    @property
    def flat(self) -> bool:
        """True if no effect of depth is shown, so that nothing bounds a best depth."""
        return self.effect_p is not None and self.effect_p >= 1.0 - self.confidence


TRANSITION, BEST_DEPTH, LOSS = "transition", "best_depth", "loss"
UNCHANGED, NOT_COMPARABLE = "no change shown", "not comparable"
VERDICTS = {  # quantity → verdict if the interval lies below no change, and if it lies above
    TRANSITION: ("smaller", "larger"),
    BEST_DEPTH: ("shallower", "deeper"),
    LOSS: ("better", "worse"),
}


@dataclass(frozen=True, kw_only=True)
class ComparedRow(Record):
    """Number under both arms, and its change. Each interval holds by itself.

    ``change``: the ratio other / base of two sizes or depths, the difference other − base of two losses. An end that is
    None is unbounded; without either end nothing can be compared.
    """

    arm: str  # name of the other arm
    quantity: Annotated[str, one_of(TRANSITION, BEST_DEPTH, LOSS)]
    depth: Positive | None = None  # depth of a loss, or the shallower depth of a transition
    deep: Positive | None = None  # deeper depth of a transition
    n_params: float | None = None  # value of the axis at which depths or losses are compared
    base_status: str = ""  # status of a transition in the base arm
    base: float | None  # parameters (value of the axis), layers, or nats per token
    base_low: float | None
    base_high: float | None
    base_interval = IntervalOf()
    other_status: str = ""
    other: float | None
    other_low: float | None
    other_high: float | None
    other_interval = IntervalOf()
    change: float | None
    change_low: float | None
    change_high: float | None
    change_interval = IntervalOf()
    correlation: float | None = None  # correlation of the two errors; 0: nothing is paired
    confidence: float
    verdict: str

    @property
    def shown(self) -> bool:
        """True if the interval of the change lies on one side."""
        return self.verdict not in (UNCHANGED, NOT_COMPARABLE)

    @property
    def pair(self) -> str:
        return f"{self.depth} → {self.deep}"


@dataclass(frozen=True, kw_only=True)
class Divergence(Record):
    """Sizes (values of the axis) at which one arm is ahead by the simultaneous band of its depth."""

    start: float
    end: float
    ahead: Annotated[str, one_of("base", "other")]


@dataclass(frozen=True, kw_only=True)
class ArmContrast(Sampled):
    """Loss of the other arm − loss of the base at one depth against the axis; below zero the other arm is ahead."""

    depth: Positive
    x: Values
    g: Values
    low: Values  # pointwise
    high: Values
    band_low: Values  # simultaneous over the sizes of the depth
    band_high: Values


@dataclass(frozen=True, kw_only=True)
class ArmsAtDepth(Record):
    """``ArmContrast`` of one depth, with its ranges of sizes at which one arm is ahead."""

    curve: ArmContrast = field(repr=False)
    partings: tuple[Divergence, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison(Record):
    """Comparison of one arm with the base, the table that was fitted."""

    base: str
    base_input: str
    arm: str
    input: str
    input_sha256: str
    unit: Annotated[str, one_of(*SHORT)]  # unit of the compared losses
    paired: bool = False
    pairing: str  # kind of pairing, or the reason for none
    matched_shapes: Count = 0
    answer: tuple[str, ...]  # answer to "does it change the answer?": best depth, transitions, losses
    rows: tuple[ComparedRow, ...] = ()
    depths: tuple[ArmsAtDepth, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, quantity: str) -> list[ComparedRow]:
        return [row for row in self.rows if row.quantity == quantity]
