"""Guideline of a fit, completed: at each size the answer of ``guide --fit``.

Inside the data the rows come from the fit. Elsewhere public evidence answers, from where the losses end; without a
known best depth, a row holds the depths that waste at most 5 % of compute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dwsweep.evidence.random_effects import quantiles
from dwsweep.fit.guideline import nearest_shape
from dwsweep.guide.losses import Predicted
from dwsweep.guide.sources import Source, source_of
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import GuidelineRow
from dwsweep.shapes import width_at

LITTLE = 0.05  # share of compute that a range of depths may waste
NO_BEST = "no best depth can be named, these waste at most 5 % of compute"


def completed(fit: FitResult) -> FitResult:
    """Fit whose guideline is completed by public evidence outside its data; unchanged without a law of its own, since
    its rows then follow the published law, labelled so."""
    if not fit.own_law:
        return fit
    source = source_of(fit, "this fit")
    level = fit.curves.confidence
    return replace(fit, guideline=[_row(row, source.at(row.n_params), level) for row in fit.guideline])


def _row(row: GuidelineRow, source: Source, confidence: float) -> GuidelineRow:
    """A row by public evidence outside the data, with the confidence of the rows inside."""
    law, n = source.law, row.n_params
    if not isinstance(law, Predicted):
        return row
    empty: dict[str, Any] = {name: None for name in GuidelineRow.keys() if name not in KEPT}  # noqa: SIM118
    name = law.name
    if law.own is not None:
        inside = law.own.away(n) <= 1.0
        name = "own: loss of all depths, and public evidence" if inside else "public evidence, beyond your losses"
    factor = law.extrapolation(n)
    if source.silent(n):
        return replace(row, **empty, law=f"{name}: refused, {source.reach(n)}", extrapolation_factor=factor)
    if source.basis(n) == "range":
        low, high = law.loss(n).stretch(LITTLE)
        ends = {"depth_low": low, "depth_high": high, "width_low": width_at(n, high), "width_high": width_at(n, low)}
        return replace(row, **(empty | ends), law=f"{name}: {NO_BEST}", extrapolation_factor=factor)
    depth, tail = law.depth(n)[0], (1.0 - confidence) / 2.0
    low_end, high_end = np.exp(quantiles(law.loss(n).ln_depth, [tail, 1.0 - tail])).tolist()
    forms = [depth, *source.alternative_depths(n).values()]
    built = nearest_shape(n, depth)
    found = {
        "depth": depth,
        "depth_low": low_end,
        "depth_high": high_end,
        "width": width_at(n, depth),
        "width_low": width_at(n, high_end),
        "width_high": width_at(n, low_end),
        "depth_int": built[0],
        "width_int": built[1],
        "n_params_actual": 12 * built[0] * built[1] ** 2,
        "rival_depth_min": min(forms),
        "rival_depth_max": max(forms),
    }
    return replace(row, **(empty | found), law=name, extrapolation_factor=factor)


KEPT = (
    *("name", "n_params", "trained_depth", "trained_width", "law", "extrapolation_factor"),
    # cost of the trained shape, as measured
    *("loss_penalty", "penalty_low", "penalty_high", "equivalent_size_percent"),
)
