"""Scatter between shapes: an error that all seeds of a shape share and replicates do not show (tuning, initialisation).

The posterior of the losses has it as a hyperparameter (``scatter`` in model.py). Where few depths or sizes, or curves
along another column, leave no model of depth, the same model answers without: each curve has a level, a slope, a
curvature and smooth waves of its own (``of_curves``). A default in its place covered 7 % where shapes scatter by 0.02
nats. The degrees of freedom belong to the whole variance of a mean, so that neither part is counted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dwsweep.fit.statistics.curves import Curves, cells_of
from dwsweep.fit.statistics.model import WIDE
from dwsweep.fit.statistics.nodes import weigh
from dwsweep.fit.statistics.noise import MeanCovariance, Scatter
from dwsweep.fit.statistics.posterior import Posterior
from dwsweep.records.cells import ModelColumn

FEWEST_SIZES = 4  # fewest sizes of a curve that leave residuals about a parabola
SEPARABLE_SIZES = 6  # fewest sizes that separate scatter from the bend of a curve
MOST_CURVES, MOST_CELLS = 12, 240  # limits of curves and cells above which only a sample is judged
NODES = 100.0  # effective nodes: the median of τ is then known to 3 %


def judged(curves: Curves, posterior: Posterior | None = None) -> Curves:
    """The curves with the scatter between shapes in their noise and draws: by the ``posterior`` of their table where it
    has one, else about smooth curves."""
    if posterior is not None:
        found: Scatter | None = _of(posterior, from_bend=True)
    else:
        found = of_curves(curves.mean, curves.depth, curves.x, curves.covariance, curves.noise.replicate_df)
    return curves.with_noise(curves.noise.with_scatter(found, curves.covariance))


def of_curves(mean: np.ndarray, curve: np.ndarray, x: np.ndarray, known: MeanCovariance, df: float) -> Scatter | None:
    """The scatter of cell means (K,) about smooth curves of ln axis x (K,), by the label ``curve`` (K,) of each. known:
    their covariance by replicates and documents; df: degrees of freedom of the replicates, 0 without. None if no
    curve has four sizes."""
    sizes = {label: len(np.unique(np.round(x[curve == label], 9))) for label in np.unique(curve)}
    long = [label for label, count in sizes.items() if count >= FEWEST_SIZES]
    if not long:
        return None
    labels = _spread(long, MOST_CURVES)
    each = max(MOST_CELLS // len(labels), SEPARABLE_SIZES)
    pick = np.concatenate([_spread(np.flatnonzero(curve == label), each) for label in labels])
    place = np.searchsorted(labels, curve[pick])
    columns = tuple(  # the first curve has the level that all share, and a curvature
        ModelColumn(
            str(k), (place == k).astype(float), (WIDE * (k > 0), WIDE * (k > 0), 3.0, 0.0, 0.0), own_level=k > 0
        )
        for k in range(len(labels))
    )
    # cells of one depth: columns of effects that depths share
    cells = replace(cells_of(x[pick], np.zeros(len(pick)), mean[pick], known.at(pick), df), columns=columns)
    posterior = Posterior(cells, weigh(cells, forms=("none",), enough=NODES)[0])
    return _of(posterior, max(sizes.values()) >= SEPARABLE_SIZES)


def _of(posterior: Posterior, from_bend: bool) -> Scatter:
    own, scale = (np.exp(2.0 * posterior.stacked(name)) for name in ("scatter", "scale"))
    if posterior.cells.shared is not None:  # errors of a shape in all arms, or of a run in all of its points
        own = own + np.exp(2.0 * posterior.stacked("shared"))
    return Scatter(float(np.exp(np.median(np.log(own)) / 2.0)), own, scale, from_bend)


def _spread(values: Sequence[Any] | np.ndarray, most: int) -> np.ndarray:
    """At most ``most`` of ``values``, evenly chosen."""
    return np.asarray(values)[np.unique(np.linspace(0, len(values) - 1, min(len(values), most)).astype(int))]
