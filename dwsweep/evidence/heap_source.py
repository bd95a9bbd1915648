"""Heap as a source: one fit of a table with mixed settings, read at each count of tokens.

The answers after several counts are questions to one posterior, so their correlation follows from its draws, without an
assumption.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep.errors import InputError
from dwsweep.fit import ask
from dwsweep.fit.analysis import fit_transitions
from dwsweep.fit.ask import LossSurface
from dwsweep.records.adjusted import Adjustment
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import SizedOptimum

OPTIONS = ("columns", "where", "drop", "unit", "adjust", "no_adjust", "at")
"""Keys of a source's YAML → options of the fit."""


class AfterTokens(LossSurface):
    """Surface of a heap at one count of tokens."""

    def __init__(self, of: LossSurface, setting: Mapping[str, float]) -> None:
        self.posterior, self.setting = of.posterior, setting
        super().__init__(of.record)
        self.posterior = of.posterior
        rows = (self.optimum(row.ln_x) for row in of.record.optima)
        optima = tuple(SizedOptimum(**vars(row), n_params=math.exp(row.ln_x)) for row in rows if row)
        self.record = replace(of.record, optima=optima)

    def profile(self, x: float) -> np.ndarray:
        return self.posterior.profile(x, self.setting)

    def drawn_depths(self, x: float) -> np.ndarray:
        return ask.best_depths(self.posterior, x, self.setting)

    def losses(self, x: float) -> tuple[np.ndarray, np.ndarray]:
        inside = self.posterior.inside
        rows = self.posterior.profile(x, self.setting)[:, inside] + self.posterior.level(x, self.setting)[:, None]
        return self.grid[inside], rows


def surfaces(given: Mapping[str, Any], folder: Path) -> list[tuple[LossSurface, float | None]]:
    """(surface, tokens) for each count of tokens in a source's YAML; a single pair with None if it names no count.

    Raises:
        InputError: the table cannot be fitted, or its runs do not differ in tokens.
    """
    options = {name: given[name] for name in OPTIONS if name in given}
    found = fit_transitions(folder / given["table"], **options)
    if found.surface is None:
        raise InputError(f"table: {given['table']}; too few runs for a surface: nine shapes of three depths and sizes")
    surface, counts = LossSurface(found.surface), given.get("tokens")
    if not counts:
        return [(surface, None)]
    names = {one.name for one in found.surface.cells.columns}
    if "tokens" not in names:
        if len(counts) == 1:
            return [(surface, float(counts[0]))]
        raise InputError(f"tokens: {counts}; the runs of {given['table']} do not differ in tokens; allowed: one count")
    return [(AfterTokens(surface, {"tokens": standard(found, float(count))}), float(count)) for count in counts]


def standard(found: FitResult, tokens: float) -> float:
    """A count of tokens on the scale of the posterior.

    Raises:
        InputError: it lies outside the counts of the runs.
    """
    assert found.surface and isinstance(found.adjusted, Adjustment)
    column = next(one for one in found.adjusted.columns if one.column == "tokens")
    value = np.array(next(one for one in found.surface.cells.columns if one.name == "tokens").value)
    low, high = column.at[0], column.at[-1]
    if not low / 1.01 <= tokens <= 1.01 * high:
        raise InputError(f"tokens: {tokens:g}; allowed: from {low:g} to {high:g}, as in the runs")
    share = math.log(tokens / low) / math.log(high / low)
    return float(value.min() + share * np.ptp(value))
