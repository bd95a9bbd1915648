"""How deep and how wide at a budget: a law's optimum with its interval, the range of its rivals, and its limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit import laws
from dwsweep.fit.laws import Law
from dwsweep.fit.surface import FittedSurface
from dwsweep.records.fit_result import FitResult
from dwsweep.records.fit_rows import GuidelineRow
from dwsweep.text import format_count
from dwsweep.theory import published_law

# beyond this factor outside the range of its transitions a law gives no number; 1T is 1,667 times the published range
EXTRAPOLATION_LIMIT = 2000.0
DEFAULT_WIDTH_MULTIPLE = 64


def guideline_row(
    name: str,
    n_params: float,
    trained: tuple[int, int] | None,
    law: Law,
    rivals: Sequence[Law] = (),
    surface: FittedSurface | None = None,
    width_multiple: int | None = None,
) -> GuidelineRow:
    """One row of guideline.csv. Values that do not exist (or that the law refuses) are None, with the reason in `law`.

    rival_depth_min, rival_depth_max: over the intervals of every form that is not rejected.
    depth_low … width_high: at the fixed budget, so width_low = √(N/12·depth_high) goes with depth_high. depth_int,
    width_int: a shape one can build, the width rounded to ``width_multiple`` (64; smaller nets: 8).
    """
    factor = law.extrapolation(n_params)
    if factor > EXTRAPOLATION_LIMIT:
        why = f"{law.name}: refused, more than {EXTRAPOLATION_LIMIT:g} times outside its range"
        return _row_without_number(name, n_params, trained, factor, why)
    depth, low, high = law.depth(n_params)
    if depth is None:
        why = f"{law.name}: no optimum, its width does not grow with depth"
        return _row_without_number(name, n_params, trained, factor, why)
    depth_int = max(1, round(depth))
    wide = n_params / (12.0 * depth) >= (8 * DEFAULT_WIDTH_MULTIPLE) ** 2
    multiple = width_multiple or (DEFAULT_WIDTH_MULTIPLE if wide else 8)
    width_int = max(multiple, multiple * round(math.sqrt(n_params / (12.0 * depth_int)) / multiple))
    rival_ends = rival_range([law, *rivals], n_params) if rivals else (None, None)
    row = replace(
        _row_without_number(name, n_params, trained, factor, law.name),
        depth=depth,
        depth_low=low,
        depth_high=high,
        width=width_at(n_params, depth),
        width_low=width_at(n_params, high),
        width_high=width_at(n_params, low),
        depth_int=depth_int,
        width_int=width_int,
        n_params_actual=12 * depth_int * width_int**2,
        rival_depth_min=rival_ends[0],
        rival_depth_max=rival_ends[1],
    )
    cost = surface.penalty(n_params, trained[0]) if surface is not None and trained is not None else None
    return row if cost is None else replace(row, **vars(cost))


def _row_without_number(
    name: str, n_params: float, trained: tuple[int, int] | None, factor: float, law: str
) -> GuidelineRow:
    known = {"name": name, "n_params": n_params, "law": law, "extrapolation_factor": factor}
    shape = {"trained_depth": trained[0], "trained_width": trained[1]} if trained else {}
    return GuidelineRow(**{**dict.fromkeys(GuidelineRow.keys()), **known, **shape})  # type: ignore[arg-type]


def rival_range(laws: Sequence[Law], n_params: float) -> tuple[float | None, float | None]:
    """Shallowest and deepest end of the intervals of ``laws`` at a budget; None where one of them has no bound."""
    depths = [law.depth(n_params) for law in laws]
    low = [d[1] for d in depths if d[1] is not None]
    high = [d[2] for d in depths if d[2] is not None]
    return min(low) if len(low) == len(depths) else None, max(high) if len(high) == len(depths) else None


def width_at(n_params: float, depth: float | None) -> float | None:
    """d_x = √(N/12L), the width that spends N at ``depth``; None for None."""
    return None if depth is None else math.sqrt(n_params / (12.0 * depth))


def guideline_rows(
    law: Law,
    rivals: Sequence[Law] = (),
    params: Iterable[float] = (),
    surface: FittedSurface | None = None,
    trained: Sequence[tuple[str, float, tuple[int, int] | None]] | None = None,
) -> list[GuidelineRow]:
    """Rows for the GPT-3 models at their own 12·L·d², 1T, and each of ``params`` (non-embedding parameters)."""
    targets = list(published_law.targets() if trained is None else trained)
    for value in params:
        try:
            n = float(value)
        except (TypeError, ValueError):
            n = math.nan
        if not (math.isfinite(n) and n > 0):
            raise InputError(f"{argument('params')}: {value!r}; must be a positive number of non-embedding parameters")
        targets.append((format_count(n), n, None))
    return [guideline_row(name, n, shape, law, rivals, surface) for name, n, shape in targets]


def guiding_laws(fit: FitResult) -> tuple[Law, list[Law]]:
    """(law that guides, forms not rejected) of a fit; the published law alone where the sweep has none."""
    found = {
        row.form: Law(
            row.name, row.form, (row.a, row.b), row.valid_from, row.valid_to, np.array(row.region, dtype=float)
        )
        for row in fit.laws
    }
    if fit.guideline_law is None or fit.guideline_law not in found:
        return laws.published(), []
    return found[fit.guideline_law], [found[row.form] for row in fit.laws if not row.rejected]
