"""Record of two arms over a common axis: ``comparisons`` of fit.json, and the rows of ``comparison.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dwsweep.interval import Form, IntervalOf, layers
from dwsweep.records.record import Count, Positive, Record, one_of
from dwsweep.text import SHORT, format_count

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
    base_interval = IntervalOf(ln=True)
    other_status: str = ""
    other: float | None
    other_low: float | None
    other_high: float | None
    other_interval = IntervalOf(ln=True)
    change: float | None
    change_low: float | None
    change_high: float | None
    change_interval = IntervalOf()
    confidence: float
    verdict: str
    # largest Monte-Carlo errors of ln of the numbers under either arm and their ends
    base_error: float = 0.0
    other_error: float = 0.0

    @property
    def form(self) -> Form:
        """Form of the number under either arm."""
        return layers if self.quantity == BEST_DEPTH else format_count

    @property
    def shown(self) -> bool:
        """True if the interval of the change lies on one side."""
        return self.verdict not in (UNCHANGED, NOT_COMPARABLE)

    @property
    def ratio_form(self) -> str:
        """Format of a ratio and its ends: two decimals, or three where an end would read as no change."""
        ends = (self.change_low, self.change_high)
        return ".3f" if self.shown and any(end is not None and f"{end:.2f}" == "1.00" for end in ends) else ".2f"

    @property
    def pair(self) -> str:
        return f"{self.depth} → {self.deep}"


@dataclass(frozen=True, kw_only=True)
class Lead(Record):
    """Sizes (values of the axis) at which one arm is ahead at a depth, by a band that holds for all sizes together."""

    depth: Positive
    start: float
    end: float
    ahead: Annotated[str, one_of("base", "other")]


@dataclass(frozen=True, kw_only=True)
class Comparison(Record):
    """Comparison of one arm with the base, the table that was fitted."""

    base: str
    arm: str
    input: str
    input_sha256: str
    unit: Annotated[str, one_of(*SHORT)]  # unit of the compared losses
    paired: bool = False
    pairing: str  # kind of pairing, or the reason for none
    matched_shapes: Count = 0
    answer: tuple[str, ...]  # answer to "does it change the answer?": best depth, transitions, losses
    rows: tuple[ComparedRow, ...] = ()
    leads: tuple[Lead, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, quantity: str) -> list[ComparedRow]:
        return [row for row in self.rows if row.quantity == quantity]

    @property
    def losses(self) -> dict[int, list[ComparedRow]]:
        """Differences of losses by depth, the smallest size first."""
        found: dict[int, list[ComparedRow]] = {}
        for row in self.of(LOSS):
            found.setdefault(row.depth or 0, []).append(row)
        return found

    def ahead(self, depth: int, base: str, other: str) -> list[str]:
        """Sentence parts on the sizes at which the arm ``base`` or ``other``, as they are called, is ahead."""
        of_depth = self.losses[depth]
        first, last = of_depth[0].n_params, of_depth[-1].n_params
        found = []
        for lead in self.leads:
            if lead.depth != depth:
                continue
            start, end = lead.start == first, lead.end == last
            at = [format_count(lead.start), format_count(lead.end)]
            where = f"from {at[0]} on" if end else f"up to {at[1]}" if start else f"from {at[0]} to {at[1]}"
            name = other if lead.ahead == "other" else base
            found.append(f"{name} is ahead {'at every size' if start and end else where}")
        return found
