"""Record of the answers of a fit: the rows of ``answers.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dwsweep.interval import IntervalOf
from dwsweep.records.record import Record, one_of

BEST_DEPTH, BEST_VALUE, RATIO, DIFFERENCE, EFFECT = "best_depth", "best_value", "ratio", "difference", "effect"
QUESTIONS = (BEST_DEPTH, BEST_VALUE, RATIO, DIFFERENCE, EFFECT)


@dataclass(frozen=True, kw_only=True)
class AnswerRow(Record):
    """Answer to one question. A blank end of an interval is open.

    question: best_depth; best_value of ``column``; ratio of two best depths or transitions; difference of two losses;
    effect of ``column`` on the losses. equal: the quantity that the compared nets share: n_params, n_params_total,
    tokens_per_param, flops, wall_time. cost: value of any other equal quantity, such as FLOPs, seconds or tokens per
    parameter.
    arm: the arm that the answer is of. value: of ``column``. monte_carlo_error: standard error of ``depth`` by the
    finite number of draws, layers. estimate: what a question about no best depth asks for, in the unit of the fit's
    losses, as a ratio, or in the column's own unit. reason: why a value is missing, or the verdict.
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
    depth_interval = IntervalOf()
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
