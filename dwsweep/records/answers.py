"""Record of an answer of a fit: the rows of ``answers.csv``, and the answers of a heap and of arms in ``fit.json``."""

from __future__ import annotations

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
TRANSITION = "transition"  # column of a ratio of two transitions
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
    the cost.
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
    paired: bool = False
    pairing: str  # kind of pairing, or the reason for none
    answer: tuple[str, ...]  # answer to "does it change the answer?": best depth, transitions, losses
    rows: tuple[AnswerRow, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, question: str, column: str | None = None) -> list[AnswerRow]:
        """Rows of a question, and of one column."""
        return [row for row in self.rows if row.question == question and column in (None, row.column)]
