"""Tables of a fit, one record per row: ``cells.csv``, ``transitions.csv``, ``guideline.csv``, rivals and rates.

A number that does not exist (or is not finite) is None, an empty field of the CSV and null in fit.json.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from dwsweep.interval import Interval, IntervalOf
from dwsweep.records.record import Count, Positive, Record, one_of

STATUSES = ("crossed", "not_reached", "already_crossed", "undecided", "ambiguous")
SURFACE, PCHIP, LEVINE = "surface", "pchip", "levine"  # all losses together; the pair's own two curves; two widths
CHECKS = (PCHIP, LEVINE)  # estimators that look at the pair alone, as the paper does

Numeric = int | float  # whole numbers stay whole


@dataclass(frozen=True, kw_only=True)
class Cell(Record):
    """One shape: the mean loss of its runs at its best learning rate."""

    depth: Positive
    width: Numeric
    n_params: Numeric  # non-embedding
    mean: float | None = None  # nats per token
    se: float | None = None  # nats; None if the noise is unknown
    n: Count = 0  # runs
    learning_rate: Numeric | None = None
    excluded: bool
    reason: str  # reason for exclusion, or the excluded part
    axis_value: float | None = None  # value on the axis of the fit
    block: str = ""  # difference from other nets of its depth and width, such as "d_ff 528"


@dataclass(frozen=True, kw_only=True)
class Transition(Record):
    """Transition of a pair of consecutive depths by one estimator: size at which the deeper net overtakes.

    The first row of a pair is the verdict on it (``verdicts``).

    Sizes are non-embedding parameters; widths are the shallower net's. An end of an interval that is None is
    unbounded.
    """

    shallow: Positive
    deep: Positive
    estimator: str  # surface, pchip or levine
    status: Annotated[str, one_of(*STATUSES)]
    n_params: float | None  # crossing, if the curves crossed
    n_params_low: float | None
    n_params_high: float | None
    n_params_interval = IntervalOf(ln=True)
    width: float | None
    width_low: float | None
    width_high: float | None
    se_ln_n: float | None
    slope_difference: float | None  # slope of the loss difference at the crossing, nats per ln of the axis
    sup_t_left: float | None  # largest t of the shallower's lead left of the crossing
    sup_t_right: float | None  # largest t of the deeper's lead right of it
    sign_changes: Count
    n_seeds: Count  # fewest runs of a cell of the two depths
    sigma: float | None  # noise of one run, nats
    df: float | None  # degrees of freedom; None: many
    confidence: float
    interval_method: str
    axis_value: float | None
    axis_low: float | None
    axis_high: float | None
    reason: str
    cause: str  # cause of an undecided pair: noise, noise unknown, few shapes, no shared range
    n_params_error: float | None = None  # largest Monte-Carlo error of ln of the size and its ends, by all losses

    @property
    def width_interval(self) -> Interval:
        """The width and its ends, whose logarithms have half the errors of sizes."""
        return Interval(self.width, self.width_low, self.width_high).with_share(self.n_params_interval.share)

    @property
    def pair(self) -> tuple[int, int]:
        """The two depths."""
        return self.shallow, self.deep


def verdicts(rows: Iterable[Transition]) -> list[Transition]:
    """The verdict on each pair of depths, its first row, in the order of the pairs. Every output reads this."""
    found: dict[tuple[int, int], Transition] = {}
    for row in rows:
        found.setdefault(row.pair, row)
    return list(found.values())


@dataclass(frozen=True, kw_only=True)
class GuidelineRow(Record):
    """Best depth and width at one size. Intervals are at the fixed size: ``width_low`` goes with ``depth_high``."""

    name: str
    n_params: Numeric  # non-embedding
    trained_depth: int | None = None  # depth of the model of this name
    trained_width: int | None = None
    depth: float | None = None  # None if the law gives none: see ``law``
    depth_low: float | None = None
    depth_high: float | None = None
    depth_interval = IntervalOf()
    width: float | None = None
    width_low: float | None = None
    width_high: float | None = None
    width_interval = IntervalOf()
    depth_int: int | None = None  # a shape one can build
    width_int: int | None = None
    n_params_actual: int | None = None  # size of that shape
    law: str = ""
    rival_depth_min: float | None = None  # least depth over the intervals of all forms that are not rejected
    rival_depth_max: float | None = None
    extrapolation_factor: float = 1.0  # factor outside the range of the law; 1 inside
    loss_penalty: float | None = None  # loss of the trained depth above the best depth's, nats
    penalty_low: float | None = None
    penalty_high: float | None = None
    equivalent_size_percent: float | None = None  # size at which the best depth would have the same loss
    depth_error: float | None = None  # Monte-Carlo standard error of the depth and its ends, of the own losses


@dataclass(frozen=True, kw_only=True)
class Rival(Record):
    """One form of the law of the best depth, of ``FORMS`` in fit.statistics.laws."""

    form: str
    a: float | None
    b: float | None
    weight: float  # its probability among all forms of the effect of depth
    rejected: bool  # weight below 1 %
    bounded: bool  # True if the data bound both constants

    @property
    def verdict(self) -> str:
        """``weight 41 %``, or ``rejected``."""
        return "rejected" if self.rejected else f"weight {100 * self.weight:.0f} %"


@dataclass(frozen=True, kw_only=True)
class RateRun(Record):
    """One run of a shape that was trained at several learning rates."""

    parametrization: str | None
    depth: Positive
    width: Numeric
    learning_rate: Numeric | None
    seed: Any
    loss: float | None  # held-out nats per token
