"""Drawn curves: records for the figures of a fit."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dwsweep import published_law
from dwsweep.fit import laws
from dwsweep.fit.ask import LossSurface
from dwsweep.fit.curves import Curves
from dwsweep.fit.interpolation import pchip
from dwsweep.fit.laws import Law
from dwsweep.fit.width_law import LawReport
from dwsweep.records.transitions import (
    FitCurves,
    FixedSize,
    LawBand,
    numbers,
)

SMOOTH_POINTS = 81
FIXED_SIZES = 6


def fit_curves(
    curves: Curves | None,
    report: LawReport,
    surface: LossSurface | None,
    axis: str,
    confidence: float,
) -> FitCurves:
    """All curves in the figures of a fit; ``curves``: None if there is no usable run."""
    forms = {**report.laws, "published": laws.published()}
    return FitCurves(
        axis=axis,
        confidence=confidence,
        depths=tuple(curves.depths) if curves else (),
        laws={name: _band(law, curves) for name, law in forms.items()},
        fixed_n=tuple(_fixed(curves, surface)) if curves else (),
    )


def _band(law: Law, curves: Curves | None) -> LawBand:
    depths = curves.depths if curves else list(published_law.DEPTHS)
    top = max(depths) * 1.15
    grid = np.linspace(max(1.0, min(depths) * 0.7), top, SMOOTH_POINTS)
    with np.errstate(over="ignore"):  # an exponential law at a thousand layers has a width beyond floats
        best, low, high = (np.exp(values) for values in law.ln_width_band(grid))
    return LawBand(
        depth=numbers(grid),
        width=numbers(best),
        width_low=numbers(low),
        width_high=numbers(high),
    )


def _fixed(curves: Curves, surface: LossSurface | None) -> list[FixedSize]:
    """Loss against depth at sizes where at least three depths (or two, if there are no more) have data."""
    if surface is not None and surface.posterior.frame.one_size:  # each loss as it is
        x, means = float(curves.x.mean()), [curves.mean[curves.at(d)].mean() for d in curves.depths]
        se = numbers(curves.se[curves.at(d)].mean() for d in curves.depths) if curves.noise.known else None
        best = surface.optimum(x)
        return [FixedSize(x=math.exp(x), depth=tuple(curves.depths), mean=numbers(means), se=se, optimum=best)]
    spans = {d: (curves.x[curves.at(d)][0], curves.x[curves.at(d)][-1]) for d in curves.depths}
    low, high = min(s[0] for s in spans.values()), max(s[1] for s in spans.values())
    need = min(3, len(spans))
    out = []
    for x in np.linspace(low, high, FIXED_SIZES + 2)[1:-1]:
        present = [d for d, s in spans.items() if s[0] <= x <= s[1] and len(curves.sizes(d)) >= 2]
        if len(present) < need:
            continue
        best, se = surface.optimum(float(x)) if surface else None, None
        if surface:
            mean = _moved(curves, surface, float(x), present)
        else:  # by the depths' own curves
            rows = np.stack([pchip(*curves.losses(d), np.array([x]))[:, 0] for d in present], axis=1)
            mean, drawn = rows[0], rows[1:]
            se = numbers((drawn - drawn[:, [mean.argmin()]]).std(axis=0)) if curves.noise.known else None
        out.append(FixedSize(x=math.exp(x), depth=tuple(present), mean=numbers(mean), se=se, optimum=best))
    return out


def _moved(curves: Curves, surface: LossSurface, x: float, depths: Sequence[int]) -> np.ndarray:
    """(n,) losses at ln axis x of the shapes of ``depths`` nearest in size, each moved there along the surface."""
    near = [min(curves.at(depth), key=lambda k: abs(curves.x[k] - x)) for depth in depths]
    ends = np.concatenate([curves.x[near], np.full(len(near), x)])
    rows = surface.posterior.losses(ends, np.tile(np.log(np.array(depths, dtype=float)), 2), surface.setting)
    here, there = rows.mean(axis=0).reshape(2, -1)
    found: np.ndarray = curves.mean[near] + there - here
    return found
