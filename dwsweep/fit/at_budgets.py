"""Runs at equal budgets of compute: the best depth and size of each budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dwsweep.fit.budget_surface import Measured, answered
from dwsweep.fit.guideline import held_out_line
from dwsweep.fit.lengths import TrainedBudgets
from dwsweep.fit.one_variable import width_follows
from dwsweep.fit.token_group import TokenGroup
from dwsweep.records.equal_budgets import FLOPS, EqualBudgets
from dwsweep.records.fit import HeldOut
from dwsweep.records.transitions import Cell

FAR_OFF = 0.02  # ratio of a run's FLOPs to its budget's beyond which a warning is given
LATE = 0.05  # ratio of measured to requested seconds, likewise


@dataclass(frozen=True)
class AtBudgets:
    """Part of a fit at equal budgets. record: None if no run has a loss.

    The runs of each budget are selected, judged and averaged by themselves, since a shape that was trained at several
    budgets is as many cells. One model then takes the losses of all budgets together.
    """

    trained: TrainedBudgets
    parts: Mapping[float, TokenGroup]
    record: EqualBudgets | None
    held_out: HeldOut | None = None

    @classmethod
    def of(cls, trained: TrainedBudgets, parts: Mapping[float, TokenGroup], confidence: float) -> AtBudgets:
        measured = {value: Measured(part.selection.runs, part.curves) for value, part in parts.items()}
        found = answered(trained.axis, measured, confidence)
        if found is None:
            return cls(trained, parts, None)
        record = EqualBudgets(
            axis=trained.axis,
            known_from=trained.known_from,
            only=trained.only,
            budgets=found.budgets,
            trends=found.trends,
        )
        return cls(trained, parts, record, found.held_out)

    @property
    def one_variable(self) -> str:
        """Reason why no shape is better than another; empty if depth and width vary by themselves."""
        return width_follows([run for part in self.parts.values() for run in part.selection.runs])

    @property
    def why_no_law(self) -> str:
        axis = self.trained.axis
        return (
            f"every shape of a budget was trained with the same {axis}, so that no loss curve runs over {axis} and no "
            f"two depths cross; the answer is the best depth at each budget"
        )

    @property
    def warnings(self) -> list[str]:
        main = self.parts[self.trained.main]
        others = [part for part in self.parts.values() if part is not main]
        return [*self._own_warnings(), *_merged([part.warnings for part in (main, *others)])]

    def _own_warnings(self) -> Iterator[str]:
        trained, axis = self.trained, self.trained.axis
        if trained.only and trained.left_out:
            yield f"{trained.left_out} finished run(s) belong to no budget ({trained.known_from}) and are left out"
        off = [
            float(run.row[axis]) / value - 1.0
            for value, part in self.parts.items()
            for run in part.selection.runs
            if run.row.get(axis)
        ]
        worst = max((abs(share) for share in off), default=0.0)
        span = f"{100 * min(off, default=0.0):+.1f} … {100 * max(off, default=0.0):+.1f} %"
        if axis == FLOPS and worst > FAR_OFF:
            yield (
                f"flops: runs miss their budget by {span}; losses are corrected by 0.06 of the loss per unit of ln "
                f"tokens, an assumption whose error is in the intervals"
            )
        if axis != FLOPS and worst > LATE:
            yield (
                f"device_seconds: runs miss their budget by {span}; shapes are compared at the requested time, and one "
                f"per cent more time lowers the loss by about 0.06 %"
            )
        if self.held_out and self.held_out.too_few:
            yield held_out_line(self.held_out)

    def cells(self) -> list[Cell]:
        """Cells of all budgets; ``axis_value`` says of which. A shape may stand there once per budget."""
        rows = [
            cell if cell.excluded else replace(cell, axis_value=_axis_value(self.trained, value, part, cell))
            for value, part in self.parts.items()
            for cell in part.cells()
        ]
        return sorted(rows, key=lambda row: (row.depth, row.width, row.axis_value or 0.0))


def _axis_value(trained: TrainedBudgets, value: float, part: TokenGroup, cell: Cell) -> float:
    """The mean over the runs of a cell; the budget itself where they have none."""
    own: list[Any] = [
        run.row.get(trained.axis) for run in part.selection.runs if run.shape == (cell.depth, cell.width, cell.block)
    ]
    known = [float(v) for v in own if v]
    return math.fsum(known) / len(known) if known else value


def _merged(lists: Iterable[Sequence[str]]) -> list[str]:
    """Warnings of several budgets, each once: warnings that begin alike differ in their numbers only."""
    first: dict[str, str] = {}
    again: dict[str, int] = {}
    for lines in lists:
        for line in lines:
            key = line.partition(":")[0]
            if key not in first:
                first[key] = line
            elif line != first[key]:
                again[key] = again.get(key, 0) + 1
    more = {key: f" (alike at {n} other budget{'s' if n > 1 else ''})" for key, n in again.items()}
    return [line + more.get(key, "") for key, line in first.items()]
