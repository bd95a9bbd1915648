"""Tables of a fit, one record per row: ``cells.csv``, ``transitions.csv``, ``guideline.csv``, rivals and rates.

A number that does not exist (or is not finite) is None, an empty field of the CSV and null in fit.json.

Below them the curves in the figures of a fit. All x are values of the fit's axis (parameters by default), losses nats
per token.

Sequences that belong together have one length; None in them is a value that does not exist or an end without a bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from dwsweep.interval import Interval, IntervalOf
from dwsweep.records.record import Count, Positive, Record, one_of

STATUSES = ("crossed", "not_reached", "already_crossed", "undecided", "ambiguous")
SURFACE, PCHIP, LEVINE = "surface", "pchip", "levine"  # all losses together; the pair's own two curves; two widths
CHECKS = (PCHIP, LEVINE)  # estimators that look at the pair alone, as the paper does

Numeric = int | float  # whole numbers stay whole


def numbers(values: Any) -> tuple[float | None, ...]:
    """A sequence or an array as floats; None for a number that is not finite."""
    return tuple(float(v) if v is not None and math.isfinite(v) else None for v in values)


@dataclass(frozen=True, kw_only=True)
class Cell(Record):
    """One shape: the mean loss of its runs at its best learning rate."""

    depth: Positive
    width: Numeric
    n_params: Numeric  # non-embedding
    mean: float | None  # nats per token
    se: float | None  # nats; None if the noise is unknown
    n: Count  # runs
    learning_rate: Numeric | None
    excluded: bool
    reason: str  # reason for exclusion, or the excluded part
    axis_value: float | None  # value on the axis of the fit
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
    sup_t_critical: float | None
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
    def name(self) -> str:
        return f"{self.shallow} → {self.deep}"

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
    """One form of the law of the best depth: exponential, linear or power."""

    form: str
    a: float | None
    b: float | None
    delta_chi2: float | None  # −2·ln of its weight over the best form's
    rejected: bool
    winner: bool
    bounded: bool  # True if the data bound both constants


@dataclass(frozen=True, kw_only=True)
class RateRun(Record):
    """One run of a shape that was trained at several learning rates."""

    parametrization: str | None
    depth: Positive
    width: Numeric
    learning_rate: Numeric | None
    seed: Any
    loss: float | None  # held-out nats per token


@dataclass(frozen=True, kw_only=True)
class LeftOutRun(Record):
    """Run with an impossible loss, by the other seeds of its shape and its depth's curve."""

    run_id: Any
    depth: Positive
    width: Numeric
    learning_rate: Numeric | None
    seed: Any
    loss: float | None  # held-out nats per token
    expected: float | None
    deviations: float | None  # robust standard deviations that the two are apart


Values = tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Sampled(Record):
    """A part whose sequences are columns of one table.

    Raises:
        ValueError: they differ in length.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = {name: len(value) for name, value in vars(self).items() if isinstance(value, tuple)}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                "sequences must have one length, found " + ", ".join(f"{k} {n}" for k, n in lengths.items())
            )


@dataclass(frozen=True, kw_only=True)
class LawBand(Sampled):
    """Width of the transition against depth under a law, with its band at fixed depth."""

    depth: Values
    width: Values
    width_low: Values
    width_high: Values


@dataclass(frozen=True, kw_only=True)
class Optimum(Record):
    """The best depth at one size by the loss surface; None: at or beyond the edge of the depths that were tried."""

    ln_x: float
    n_params: float  # the value of the axis
    depth: float | None
    depth_low: float | None
    depth_high: float | None
    depth_interval = IntervalOf(ln=True)
    loss: float
    at_edge: str | None  # edge of the depths tried: below or above
    depth_min: float  # depths that the data span there
    depth_max: float
    depth_error: float | None = None  # largest Monte-Carlo standard error of ln of the depth and its ends
    worst_depth: float | None = None  # depth with the highest loss among the depths tried at this size
    worst_percent: float | None = None  # its excess over the best depth's loss, percent
    worst_percent_low: float | None = None
    worst_percent_high: float | None = None

    @property
    def is_one_layer(self) -> bool:
        """True for a trained net of one layer: no net is shallower."""
        return self.at_edge == "below" and self.depth_min <= 1

    @property
    def beyond(self) -> str:
        """Words for an optimum without a depth: beyond an edge of the tried depths, or unbounded."""
        if self.at_edge is None:
            return "not known"
        return "1, the fewest" if self.is_one_layer else f"{self.at_edge} the depths tried"


@dataclass(frozen=True, kw_only=True)
class FixedSize(Sampled):
    """Losses of the depths at one size."""

    x: float
    depth: tuple[Positive, ...]
    mean: Values
    se: Values | None  # of the difference from the lowest; None with a surface, or if the noise is unknown
    optimum: Optimum | None  # by the surface


@dataclass(frozen=True, kw_only=True)
class FitCurves(Record):
    """All curves of a fit. Laws by form: ``exponential``, ``linear``, ``power`` where there are any, ``published``."""

    axis: str
    confidence: float
    depths: tuple[Positive, ...]  # of the cells
    laws: dict[str, LawBand]
    fixed_n: tuple[FixedSize, ...]

    @property
    def size_name(self) -> str:
        """Name of a value of the axis in a sentence."""
        return "N" if self.axis == "n_params" else self.axis
