"""Next runs of a heap: the nets that narrow the best depth at a size most, at the held values.

The draws of the posterior give the covariance of b = ln L* at the size that is asked for and of the losses f of nets
that may be trained. By the normal approximation a run of net j, whose loss scatters by σ, leaves

    Var(b | j) = Var b − Cov(b, f_j)² / (Var f_j + σ²)

and moves all draws as an ensemble filter does (Evensen 1994); the net that leaves least is taken, then the next one.
What nothing in the table separates stands in these draws: nets at the held values separate it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit import ask
from dwsweep.fit.posterior import Posterior
from dwsweep.records.adjusted import NextRun, NextRuns
from dwsweep.records.fit import FitResult

SIZES = 8  # tried per depth
LEAST, MOST = 1.0 / 16.0, 1.5  # of the size that is asked for: larger nets cost more than they tell
DEPTHS = 14  # tried, from half the shallowest to twice the deepest of the table
MULTIPLE = 16  # of a width


@dataclass(frozen=True)
class _Net:
    depth: int
    width: int

    @property
    def n_params(self) -> float:
        return 12.0 * self.depth * self.width**2


def next_runs(result: FitResult, params: float, runs: int) -> NextRuns:
    """The ``runs`` nets that narrow the best depth at ``params`` most.

    Raises:
        InputError: the fit has no surface, or the size is far outside the table.
    """
    if result.surface is None:
        raise InputError("table: too few runs for a surface; allowed: nine shapes of three depths and three sizes")
    if not 1 <= runs <= 64:
        raise InputError(f"{argument('runs', '--runs')}: {runs}; allowed: from 1 to 64")
    surface = ask.LossSurface(result.surface)
    posterior, low, high = surface.posterior, result.surface.low, result.surface.high
    x = math.log(params)
    if not low - math.log(100.0) <= x <= high + math.log(100.0):
        raise InputError(
            f"{argument('params', '--params')}: {params:g}; allowed: from {math.exp(low) / 100:.3g} to "
            f"{100 * math.exp(high):.3g}, a hundred times beyond the table"
        )
    nets = _candidates(surface, params)
    best = np.clip(ask.best_depths(posterior, x), posterior.grid[0], posterior.grid[-1])
    losses = _losses(posterior, nets)
    noise = float(np.median(np.exp(posterior.stacked("scatter"))))
    chosen, rows = [], []
    before = float(best.std())
    for _ in range(runs):
        away = losses - losses.mean(axis=0)
        variance = away.var(axis=0) + noise**2
        shared = (best - best.mean()) @ away / len(best)
        k = int((shared**2 / variance).argmax())
        gain = away[:, k] / math.sqrt(len(best))
        # a deterministic square-root update (Whitaker and Hamill 2002): a run is one number
        total = float(variance[k])
        keep = 1.0 / (1.0 + math.sqrt(noise**2 / total))
        own = away[:, k].copy()
        best = best - keep * shared[k] / total * own
        losses = losses - keep * np.outer(own, (away.T @ gain) / math.sqrt(len(best)) / total)
        chosen.append(k)
        net = nets[k]
        rows.append(NextRun(depth=net.depth, width=net.width, n_params=net.n_params, ln_depth_sd=float(best.std())))
    interval = surface.at(params)
    held = tuple(one.held for one in result.adjusted.columns) if result.adjusted else ()
    return NextRuns(
        n_params=params,
        **interval.columns("depth"),
        ln_depth_sd=before,
        runs=tuple(rows),
        held=tuple(dict.fromkeys(held)),
    )


def _candidates(surface: ask.LossSurface, params: float) -> list[_Net]:
    """Nets of many depths from a sixteenth of the size to one and a half times it."""
    first, last = max(1.0, surface.shallowest / 2.0), 2.0 * surface.deepest
    depths = sorted({round(depth) for depth in np.geomspace(first, last, DEPTHS)})
    found = set()
    for n in np.geomspace(LEAST * params, MOST * params, SIZES):
        for depth in depths:
            width = MULTIPLE * round(math.sqrt(n / 12.0 / depth) / MULTIPLE)
            if width >= MULTIPLE and width >= depth:
                found.add(_Net(depth, width))
    return sorted(found, key=lambda net: (net.depth, net.width))


def _losses(posterior: Posterior, nets: Sequence[_Net]) -> np.ndarray:
    """(D, n) losses of the nets."""
    x = np.log([net.n_params for net in nets])
    y = np.log([float(net.depth) for net in nets])
    return posterior.predict(x, y)[0]
