"""Answers of a fit: a row per answered question, for fit.json, ``answers.csv``, tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dwsweep.fit.guideline import layer_weights
from dwsweep.interval import Interval
from dwsweep.records.adjusted import Adjustment
from dwsweep.records.along import Along
from dwsweep.records.answers import (
    BEST_DEPTH,
    BEST_VALUE,
    DIFFERENCE,
    EFFECT,
    N_PARAMS,
    RATIO,
    WALL_TIME,
    AnswerRow,
)
from dwsweep.records.fit import FitResult
from dwsweep.shapes import width_at

EQUAL = {"device_seconds": WALL_TIME}  # axis of a fit → quantity held equal, where the names differ


def with_answers(fit: FitResult) -> FitResult:
    """The fit with its ``answers``: best depths first, then ratios, differences and effects."""
    best = list(_by_size(fit))
    if fit.adjusted:
        sizes = {row.n_params for row in best}
        best += [row for row in fit.adjusted.equal if row.equal != N_PARAMS or row.n_params not in sizes]
        best += [*fit.adjusted.at_budgets, *fit.adjusted.growth]
        best += _best_sizes([*fit.adjusted.equal, *fit.adjusted.at_budgets])
        best += _adjusted(fit.adjusted)
    compared = [
        row for one in fit.comparisons for row in one.rows if row.arm == one.arm
    ]  # the fit's own are the base's
    every = [*best, *compared, *(_along(fit.along) if fit.along else ())]
    return replace(fit, answers=sorted(every, key=lambda row: row.question != BEST_DEPTH))


def _by_size(fit: FitResult) -> Iterator[AnswerRow]:
    """Best depth at each size of the surface. A cost stands where the axis is one."""
    if fit.surface is None:
        return
    axis = fit.axis
    equal = EQUAL.get(axis, axis)
    for row in fit.surface.optima:
        known = row in fit.surface.bounded
        depth = row.depth_interval if known else Interval()
        yield replace(
            row,
            equal=equal,
            n_params=row.place if equal == N_PARAMS else None,  # the axis may be a cost or a total
            cost=None if equal == N_PARAMS else row.place,
            tokens=fit.nets.tokens,
            arm=fit.comparisons[0].base if fit.comparisons else "",
            **depth.columns("depth"),
            **(_widths(fit, row.place, depth) if equal == N_PARAMS else Interval()).columns("width"),
            worst_depth=None if fit.surface.flat else row.worst_depth,
            worst_percent=None if fit.surface.flat else row.worst_percent,
            monte_carlo_error=depth.error or None,
            reason="" if depth.value else fit.surface.beyond(row) if known else _unbounded(fit),
        )


def _best_sizes(rows: Sequence[AnswerRow]) -> Iterator[AnswerRow]:
    """Best N at each cost, with its ends."""
    nothing: dict[str, Any] = dict.fromkeys(("depth", "depth_low", "depth_high", "monte_carlo_error"))
    for row in rows:
        if {row.n_params_low, row.n_params_high} != {None}:
            size: dict[str, Any] = {"column": N_PARAMS, **row.n_params_interval.columns("estimate")}
            yield replace(row, question=BEST_VALUE, reason="" if row.n_params else row.reason, **nothing, **size)


def _unbounded(fit: FitResult) -> str:
    flat = fit.surface is not None and fit.surface.flat
    return "no effect of depth is shown" if flat else "these losses bound it on neither side"


def _widths(fit: FitResult, n_params: float, depth: Interval) -> Interval:
    """Width of the best depth at a size, as wide as nets of the table; the deep end is the narrow one."""

    def width(layers: float | None) -> float | None:
        weights = layer_weights(fit, layers) if layers else None
        return width_at(n_params, layers, weights) if layers and weights else None

    return Interval(width(depth.value), width(depth.high), width(depth.low))


def _adjusted(record: Adjustment) -> Iterator[AnswerRow]:
    """Best depths after other tokens, best rates, effects of the columns."""
    no_depth, no_ratio = Interval().columns("depth"), Interval().columns("estimate")
    for later in record.along_tokens:
        yield replace(later, **no_ratio)
        if later.estimate is not None:
            yield replace(later, question=RATIO, column="tokens", **no_depth)
    yield from record.rates
    for column in record.columns:
        effect = column.matters_interval.columns("estimate")
        yield AnswerRow(question=EFFECT, equal=N_PARAMS, column=column.column, value=column.held, **effect)


def _along(found: Along) -> Iterator[AnswerRow]:
    """Loss of each value of the column above the best one of its group."""
    for row in found.rows:
        yield AnswerRow(
            question=DIFFERENCE,
            equal=N_PARAMS,
            n_params=row.budget,
            arm=row.arm,
            column=row.column,
            value=row.value,
            depth=row.depth,
            width=row.width,
            **row.above_best_interval.columns("estimate"),
            reason=row.verdict,
        )
