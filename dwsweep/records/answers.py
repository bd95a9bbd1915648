"""Record of an answer of a fit: the rows of ``answers.csv``, and the answers of a heap and of arms in ``fit.json``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from dwsweep.interval import IntervalOf
from dwsweep.records.record import Record, columns_of, one_of
from dwsweep.text import SHORT

BEST_DEPTH, BEST_VALUE, RATIO, DIFFERENCE, EFFECT = "best_depth", "best_value", "ratio", "difference", "effect"
GROWTH = "growth"
QUESTIONS = (BEST_DEPTH, BEST_VALUE, RATIO, DIFFERENCE, EFFECT, GROWTH)
N_PARAMS, TOTAL, PER_PARAM, FLOPS, WALL_TIME = "n_params", "n_params_total", "tokens_per_param", "flops", "wall_time"
SIZE_AND_FLOPS, SIZE_AND_TIME = f"{N_PARAMS} and {FLOPS}", f"{N_PARAMS} and {WALL_TIME}"
EQUAL = {  # equal quantity → its name
    N_PARAMS: "N",
    TOTAL: "total N",
    PER_PARAM: "tokens per parameter",
    SIZE_AND_FLOPS: "N and FLOPs",
    SIZE_AND_TIME: "N and wall time",
    FLOPS: "FLOPs",
    WALL_TIME: "wall time",
}
TRANSITION = "transition"  # column of a ratio of two transitions
BELOW, ABOVE = "below", "above"  # edges of the depths tried
UNCHANGED, NOT_COMPARABLE = "no change shown", "not comparable"  # verdicts on a change


@dataclass(frozen=True, kw_only=True)
class AnswerRow(Record):
    """Answer to one question. A blank end of an interval is open.

    question: best_depth; best_value of ``column``; ratio of two best depths or transitions; difference of two losses;
    effect of ``column`` on the losses; growth: power of the equal quantity with which ``column`` of the best net grows.
    equal: the quantity that the compared nets share: n_params, n_params_total,
    tokens_per_param, flops, wall_time, or n_params and one of the last two. cost: value of an equal quantity other than
    n_params: FLOPs, seconds, tokens per parameter.
    arm: the arm that the answer is of. value: of ``column``. monte_carlo_error: standard error of ``depth`` by the
    finite number of draws, layers. estimate: what a question about no best depth asks for, in the unit of the fit's
    losses, as a ratio, or in the column's own unit. reason: why a value is missing, or the verdict. No columns of
    answers.csv are: the ends of n_params, where each depth has its best size; known_from: columns or formulas behind
    the cost; at_edge: edge of the depths tried at which a best depth lies, below or above; depth_min, depth_max: the
    depths tried at that size.
    """

    question: Annotated[str, one_of(*QUESTIONS)]
    equal: str = ""
    n_params: float | None = None
    tokens: float | None = None
    cost: float | None = None
    arm: str = ""
    column: str = ""
    value: str | float | None = None
    depth: float | None = None
    depth_low: float | None = None
    depth_high: float | None = None
    depth_interval = IntervalOf(error="monte_carlo_error")
    width: float | None = None
    width_low: float | None = None
    width_high: float | None = None
    width_interval = IntervalOf()
    worst_depth: float | None = None  # depth with the highest loss among the depths tried
    worst_percent: float | None = None  # its excess over the best depth's loss, percent
    monte_carlo_error: float | None = None
    reason: str = ""
    estimate: float | None = None
    estimate_low: float | None = None
    estimate_high: float | None = None
    estimate_interval = IntervalOf()
    n_params_low: float | None = None
    n_params_high: float | None = None
    n_params_interval = IntervalOf()
    known_from: str = ""
    at_edge: Annotated[str, one_of("", BELOW, ABOVE)] = ""
    depth_min: float | None = None
    depth_max: float | None = None
    worst_percent_low: float | None = None
    worst_percent_high: float | None = None
    worst_percent_interval = IntervalOf()

    @property
    def place(self) -> float:
        """The equal quantity: N, or the cost; 0 if it is not known."""
        return (self.n_params if self.equal in ("", N_PARAMS) else self.cost) or 0.0

    @property
    def ln_x(self) -> float:
        """ln of the size."""
        return math.log(self.place)

    @property
    def is_one_layer(self) -> bool:
        """True if the best net is a trained one of one layer: no net is shallower."""
        return self.at_edge == BELOW and self.depth_min == 1

    @property
    def beyond(self) -> str:
        """Words for a best depth without a value: beyond an edge of the depths tried, or unbounded."""
        if not self.at_edge:
            return "not known"
        return "1, the fewest" if self.is_one_layer else f"{self.at_edge} the depths tried"


COLUMNS = columns_of(AnswerRow)[: columns_of(AnswerRow).index("n_params_low")]
"""The columns of answers.csv."""


@dataclass(frozen=True, kw_only=True)
class Comparison(Record):
    """Comparison of one arm with the base, the table that was fitted.

    rows: best depths of both arms, ratios other / base of best depths and of transitions, and differences other − base
    of losses, whose ``reason`` is the verdict. Each interval holds by itself.
    """

    base: str
    arm: str
    unit: Annotated[str, one_of(*SHORT)]  # unit of the compared losses
    confidence: float
    pairing: str  # paired by which errors, or the reason for none; or the values at which both are compared
    answer: tuple[str, ...]  # answer to "does it change the answer?": best depth, transitions, losses
    rows: tuple[AnswerRow, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, question: str, column: str | None = None) -> list[AnswerRow]:
        """Rows of a question, and of one column."""
        return [row for row in self.rows if row.question == question and column in (None, row.column)]
