"""Next runs of a heap: nets that narrow the best depth at a size, at the held values.

The draws of the posterior give the covariance of b = ln L* at the size that is asked for and of the losses f of nets
that may be trained. By the normal approximation a run of net j, whose loss scatters by σ, leaves

    Var(b | j) = Var b − Cov(b, f_j)² / (Var f_j + σ²)

and moves all draws as an ensemble filter does (Evensen 1994); the net that leaves least is taken, then the next one.
Sizes are given, even steps of ln N from N/16 to 1.5·N (``LEAST``, ``MOST``) with one net each, and so are depths, in
turn ``FACTOR`` times shallower and deeper than the best one of their size: nets that the draws chose among all did no
better (tests/simulations/README.md). The effect of a setting that the table cannot separate from depth remains in these
draws: nets at the held values separate it.
"""

from __future__ import annotations

import math

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit.data.covariates import HEAD_SIZE
from dwsweep.fit.statistics import ask
from dwsweep.records.adjusted import NextRun, NextRuns
from dwsweep.records.answers import BEST_DEPTH, N_PARAMS, AnswerRow
from dwsweep.records.fit import FitResult

LEAST, MOST = 1.0 / 16.0, 1.5  # range of sizes over the requested size: larger nets cost more than they are worth
MULTIPLE = 16  # widths are multiples of it if no head size is held
FACTOR = 1.6  # ratio to the best depth, in turn below and above it
TOKENS_PER_PARAM = 20.0  # tokens of a new net if no count is held (Hoffmann et al. 2022)


def next_runs(result: FitResult, params: float, runs: int) -> NextRuns:
    """The ``runs`` nets, one of each of as many sizes, that narrow the best depth at ``params``, the best first.

    Raises:
        InputError: the fit has no surface, or the size is far outside the table.
    """
    if result.surface is None or not result.surface.has_three_depths:
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
    best = ask.best_depths(posterior, x)
    found = best[np.isfinite(best)]
    # a draw without a best depth counts at an end of the likely ones: an end of the grid would outweigh all others
    best = np.clip(best, *(np.quantile(found, [0.025, 0.975]) if len(found) else posterior.grid[[0, -1]]))
    sizes = np.geomspace(LEAST * params, MOST * params, runs) if runs > 1 else np.array([params])
    nets = [_net(surface, n, place, *_block(result)) for place, n in enumerate(sizes.tolist())]
    losses = posterior.losses(*np.log([(n_params, depth) for depth, _, n_params in nets]).T)
    noise = float(np.median(np.exp(posterior.stacked("scatter"))))
    tokens = result.held_tokens
    left = np.ones(runs, dtype=bool)
    rows = []
    before = float(best.std())
    for _ in range(runs):
        away = losses - losses.mean(axis=0)
        variance = away.var(axis=0) + noise**2
        shared = (best - best.mean()) @ away / len(best)
        k = int(np.where(left, shared**2 / variance, -1.0).argmax())
        (depth, width, n_params), own, total = nets[k], away[:, k], float(variance[k])
        left[k] = False
        # a deterministic square-root update (Whitaker and Hamill 2002): a run is one number
        step = own / total / (1.0 + math.sqrt(noise**2 / total))
        best = best - step * shared[k]
        losses = losses - np.outer(step, away.T @ own / len(best))
        flops, sd = 6.0 * n_params * (tokens or TOKENS_PER_PARAM * n_params), float(best.std())
        rows.append(NextRun(depth=depth, width=width, n_params=n_params, ln_depth_sd=sd, flops=flops))
    held = tuple(one.held for one in result.adjusted.columns) if result.adjusted else ()
    return NextRuns(
        best=AnswerRow(question=BEST_DEPTH, equal=N_PARAMS, n_params=params, **surface.at(params).columns("depth")),
        ln_depth_sd=before,
        runs=tuple(rows),
        held=tuple(dict.fromkeys(held)),
        tokens=tokens,
        beyond=bool(x > high),
    )


def _block(result: FitResult) -> tuple[float, int]:
    """(N / L·d², divisor of the width) of nets at the held values."""
    columns = result.adjusted.columns if result.adjusted else ()
    held = next((one.value for one in columns if one.name == HEAD_SIZE and one.value), MULTIPLE)
    shapes = [cell.n_params / cell.depth / cell.width**2 for cell in result.cells if cell.n_params]
    per_block = result.nets.layer_weights or (float(np.median(shapes)) if shapes else 12.0)
    return per_block, max(1, round(held))


def _net(surface: ask.LossSurface, n: float, place: int, per_block: float, multiple: int) -> tuple[int, int, float]:
    """Depth, width and N of the net of the size ``n``, which is the ``place``-th one."""
    best = float(np.median(surface.drawn_depths(math.log(n))))
    best = math.exp(min(max(best, 0.0), math.log(surface.deepest * FACTOR)))
    depth = max(1, round(best * FACTOR ** (1 if place % 2 else -1)))
    width = multiple * max(1, round(math.sqrt(n / per_block / depth) / multiple))
    return depth, width, per_block * depth * width**2
