"""Two arms over a common axis: ``comparisons`` of fit.json, and the rows of ``comparison.csv``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from dwsweep.records.fit_curves import Sampled, Values
from dwsweep.records.fit_rows import FitPart
from dwsweep.records.reader import Count, Positive, one_of

TRANSITION, BEST_DEPTH, LOSS = "transition", "best_depth", "loss"
UNCHANGED, UNKNOWN = "no change shown", "not comparable"
VERDICTS = {  # by quantity: where the interval lies below no change, and above it
    TRANSITION: ("smaller", "larger"),
    BEST_DEPTH: ("shallower", "deeper"),
    LOSS: ("better", "worse"),
}


@dataclass(frozen=True, kw_only=True)
class ComparedRow(FitPart):
    """One number under both arms, and how it changes from the one to the other. Each interval holds by itself.

    ``change``: the ratio other / base of two sizes or depths, the difference other − base of two losses. An end that is
    None is unbounded; without either end nothing can be compared.
    """

    arm: str  # the other arm
    quantity: Annotated[str, one_of(TRANSITION, BEST_DEPTH, LOSS)]
    depth: Positive | None  # of a loss; the shallower one of a transition
    deep: Positive | None  # of a transition
    n_params: float | None  # the value of the axis at which depths or losses are compared
    base_status: str  # of a transition
    base: float | None  # parameters (value of the axis), layers, or nats per token
    base_low: float | None
    base_high: float | None
    other_status: str
    other: float | None
    other_low: float | None
    other_high: float | None
    change: float | None
    change_low: float | None
    change_high: float | None
    correlation: float | None  # of the errors of the two; 0: nothing is paired
    confidence: float
    verdict: str

    @property
    def shown(self) -> bool:
        """Whether the interval of the change lies on one side."""
        return self.verdict not in (UNCHANGED, UNKNOWN)

    @property
    def pair(self) -> str:
        return f"{self.depth} → {self.deep}"


@dataclass(frozen=True, kw_only=True)
class Parting(FitPart):
    """Sizes (values of the axis) at which one arm is ahead by the simultaneous band of its depth."""

    start: float
    end: float
    ahead: Annotated[str, one_of("base", "other")]


@dataclass(frozen=True, kw_only=True)
class ArmsApart(Sampled):
    """Loss of the other arm − loss of the base at one depth against the axis; below zero the other arm is ahead."""

    depth: Positive
    x: Values
    g: Values
    low: Values  # pointwise
    high: Values
    band_low: Values  # simultaneous over the sizes of the depth
    band_high: Values


@dataclass(frozen=True, kw_only=True)
class ArmsAtDepth(FitPart):
    """``ArmsApart`` of one depth, with where the arms part."""

    curve: ArmsApart = field(repr=False)
    partings: tuple[Parting, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison(FitPart):
    """One arm against the base: the table that the fit is of."""

    base: str
    base_input: str
    arm: str
    input: str
    input_sha256: str
    unit: Annotated[str, one_of("nats per token", "bits per byte")]  # of the losses that are compared
    paired: bool
    pairing: str  # by what, or why not
    matched_shapes: Count
    answer: tuple[str, ...]  # does it change the answer? Best depth, transitions, losses
    rows: tuple[ComparedRow, ...]
    depths: tuple[ArmsAtDepth, ...]
    notes: tuple[str, ...] = ()

    def of(self, quantity: str) -> list[ComparedRow]:
        return [row for row in self.rows if row.quantity == quantity]
