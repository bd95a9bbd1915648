"""The budgets of a table as one fit: each budget's runs are selected, judged and averaged by themselves, since a shape
that was trained at several budgets is as many cells; here they come together again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dwsweep.errors import InputError
from dwsweep.fit.bad_runs import BadRun
from dwsweep.fit.budgets.equal_budgets import Measured, equal_budgets
from dwsweep.fit.budgets.trained_budgets import FLOPS, TrainedBudgets
from dwsweep.fit.cells import Run, Selection, Shape
from dwsweep.fit.curves import Curves
from dwsweep.fit.row_selection import Row
from dwsweep.records.budget_rows import EqualBudgets
from dwsweep.records.fit_result import FitOptions, NoiseSummary
from dwsweep.records.fit_rows import Cell, RateRun
from dwsweep.text import format_count

FAR_OFF = 0.02  # FLOPs of a run beside those of its budget, from which on it is said
LATE = 0.05  # measured seconds beside those asked


class Group(Protocol):
    """The runs of one budget, selected and averaged, with x = ln N (a ``TokenGroup``)."""

    @property
    def selection(self) -> Selection: ...
    @property
    def curves(self) -> Curves | None: ...
    @property
    def warnings(self) -> Sequence[str]: ...
    @property
    def bad(self) -> Sequence[BadRun]: ...
    def cells(self) -> list[Cell]: ...
    def noise(self) -> NoiseSummary: ...
    def rates(self) -> list[RateRun]: ...


@dataclass(frozen=True)
class AtBudgets:
    """What a fit takes from the budgets instead of from one group of runs. record: None where no run has a loss."""

    trained: TrainedBudgets
    parts: Mapping[float, Group]
    record: EqualBudgets | None

    @classmethod
    def of(cls, trained: TrainedBudgets, parts: Mapping[float, Group], confidence: float) -> AtBudgets:
        measured = {value: Measured(part.selection.runs, part.curves) for value, part in parts.items()}
        return cls(trained, parts, equal_budgets(trained, measured, confidence))

    @property
    def only(self) -> bool:
        """Whether nothing else is left to fit: the whole table was trained so."""
        return self.trained.only

    @property
    def why_no_law(self) -> str:
        axis = self.trained.axis
        return (
            f"every shape of a budget was trained with the same {axis}, so that no loss curve runs over {axis} and no "
            f"two depths cross; the best depth at each budget takes their place"
        )

    @property
    def selection(self) -> Selection:
        """Of all budgets. A shape is excluded where it is at every budget that has it."""
        chosen = [part.selection for part in self.parts.values()]
        runs: list[Run] = [run for one in chosen for run in one.runs]
        used = {run.shape for run in runs}
        excluded: dict[Shape, str] = {}
        for one in chosen:
            excluded |= {shape: why for shape, why in one.excluded.items() if shape not in used}
        rules = dict.fromkeys(one.diverged_rule for one in chosen if one.diverged_rule)
        return Selection(runs, excluded, {}, [], "; ".join(rules) or None)

    @property
    def bad(self) -> list[BadRun]:
        return [found for part in self.parts.values() for found in part.bad]

    @property
    def warnings(self) -> list[str]:
        return [*self._own_warnings(), *_merged([part.warnings for part in self._main_first()])]

    def _main_first(self) -> list[Group]:
        main = self.trained.main
        return [self.parts[main], *(part for value, part in self.parts.items() if value != main)]

    def _own_warnings(self) -> list[str]:
        axis, lines = self.trained.axis, []
        if self.only and self.trained.left_out:
            lines.append(
                f"{self.trained.left_out} finished run(s) belong to no budget ({self.trained.known_from}) and are left "
                f"out"
            )
        off = [
            float(run.row[axis]) / value - 1.0
            for value, part in self.parts.items()
            for run in part.selection.runs
            if run.row.get(axis)
        ]
        worst = max((abs(share) for share in off), default=0.0)
        span = f"{100 * min(off, default=0.0):+.1f} … {100 * max(off, default=0.0):+.1f} %"
        if axis == FLOPS and worst > FAR_OFF:
            lines.append(
                f"flops: those of a run are {span} off its budget (whole steps); the losses are corrected by 0.06 of "
                f"the loss per unit of ln tokens, an assumption, whose error is in the intervals"
            )
        if axis != FLOPS and worst > LATE:
            lines.append(
                f"device_seconds: the measured ones are {span} off the budget; shapes are compared as they were asked "
                f"to train, and one per cent more time is worth about 0.0006 of the loss"
            )
        for budget in self.record.budgets if self.record else ():
            bent = [f"L {row.depth} ×{row.misfit:.1f}" for row in budget.depths if row.misfit and row.misfit > 1.0]
            if budget.best.misfit and budget.best.misfit > 1.0:
                bent.append(f"over depths ×{budget.best.misfit:.1f}")
            if bent:
                lines.append(
                    f"no smooth curve passes the losses at {format_count(budget.best.budget)} {axis}; errors were "
                    f"widened: {', '.join(bent)}"
                )
        return lines

    def cells(self) -> list[Cell]:
        """Of all budgets; ``axis_value`` says of which. A shape may stand there once per budget."""
        rows = []
        for value, part in self.parts.items():
            for cell in part.cells():
                rows.append(
                    cell if cell.excluded else replace(cell, axis_value=_axis_value(self.trained, value, part, cell))
                )
        return sorted(rows, key=lambda row: (row.depth, row.width, row.axis_value or 0.0))

    def noise(self) -> NoiseSummary:
        """Of the main budget."""
        return self.parts[self.trained.main].noise()

    def rates(self) -> list[RateRun]:
        """Of the main budget: a best rate moves with the length of training."""
        return self.parts[self.trained.main].rates()


def budgets_on_axis(
    trained: TrainedBudgets | None, options: FitOptions, group: Callable[[list[Row]], Group]
) -> AtBudgets | None:
    """The runs of each budget as one ``group`` against N; None where the axis is not what was equal."""
    if trained is None or trained.axis != options.axis:
        return None
    try:
        parts = {value: group(rows) for value, rows in trained.rows.items()}
    except InputError:
        if trained.only:
            raise
        return None  # runs that meet by the way, of several recipes: the fit does not need them
    return AtBudgets.of(trained, parts, options.confidence)


def _axis_value(trained: TrainedBudgets, value: float, part: Group, cell: Cell) -> float:
    """The mean over the runs of a cell; the budget itself where they have none."""
    own: list[Any] = [run.row.get(trained.axis) for run in part.selection.runs if run.shape == (cell.depth, cell.width)]
    known = [float(v) for v in own if v]
    return math.fsum(known) / len(known) if known else value


def _merged(lists: Iterable[Sequence[str]]) -> list[str]:
    """Each warning once: those of several budgets that begin alike differ in their numbers only."""
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
