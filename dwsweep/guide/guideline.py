"""Guideline of a fit: at each of its sizes the answer of ``guide --fit``.

The losses of the fit and public evidence answer together, far from the losses public evidence alone. Without a known
best depth, a row holds the depths that waste at most 5 % of compute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from dwsweep.errors import InputError
from dwsweep.fit.statistics import ask
from dwsweep.guide.advice import columns
from dwsweep.guide.costs import Budget, best_of
from dwsweep.guide.shapes import Options
from dwsweep.guide.sources import PUBLIC, Source, source_of
from dwsweep.records.fit import FitResult
from dwsweep.records.transitions import GuidelineRow
from dwsweep.shapes import STANDARD

NO_BEST = "no best depth can be named, these waste at most 5 % of compute"
GRID = 40  # sizes at which the loss of a trained shape is looked for


def answered(fit: FitResult, sizes: Iterable[GuidelineRow]) -> list[GuidelineRow]:
    """The answers of ``guide --fit`` at the sizes of rows."""
    source = source_of(fit, "this fit")
    try:
        options = Options().for_nets(fit.nets)
    except InputError:  # blocks that nobody can build from their weights alone
        options = None
    return [_row(row, source, options, fit.confidence) for row in sizes]


def _row(row: GuidelineRow, source: Source, options: Options | None, confidence: float) -> GuidelineRow:
    """The answer of ``guide --fit`` at a row's size, in the confidence of the fit."""
    n, name, own = row.n_params, PUBLIC, source.own_at(row.n_params)
    if own is not None:
        inside = own.away(n) <= 1.0
        name = "own: loss of all depths, and public evidence" if inside else f"{PUBLIC}, beyond your losses"
    if source.own is not None and row.trained_depth is not None:
        row = _with_cost(row, source.own.surface, row.trained_depth)
    weights = (source.nets.layer_weights if source.nets else None) or STANDARD
    weights = options.layer_weights(n, source.depth(n)[0]) if options else weights
    built = best_of(Budget(n, source, options).candidates(), options.at) if options else None
    return replace(
        row,
        **columns(n, source, weights, listed=True, confidence=confidence),
        depth_int=built.depth if built else None,
        width_int=built.width if built else None,
        n_params_actual=built.n_params if built else None,
        law=f"{name}: {NO_BEST}" if source.basis(n) == "range" else name,
    )


def _with_cost(row: GuidelineRow, surface: ask.LossSurface, depth: int) -> GuidelineRow:
    """Add the trained depth's excess loss at its size, and the size in percent at which the best depth has the same
    loss; nothing outside the sizes and depths of the data."""
    n_params, record = row.n_params, surface.record
    inside = record.low <= math.log(n_params) <= record.high
    if not inside or not surface.shallowest - 1e-9 <= depth <= surface.deepest + 1e-9:
        return row
    drawn = surface.penalties(n_params, np.array([depth]))[:, 0]
    low, _, high = map(float, ask.quantiles(drawn, record.confidence))
    lost, x = float(np.median(drawn)), math.log(n_params)
    equal = [at for at in np.linspace(x, record.low, GRID) if surface.level(float(at)) >= surface.level(x) + lost]
    percent = 100.0 * math.exp(equal[0] - x) if equal else None
    return replace(row, loss_penalty=lost, penalty_low=low, penalty_high=high, equivalent_size_percent=percent)
