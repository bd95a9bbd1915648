"""Next runs of a heap: nets that most narrow the best depth at a size, at the held values.

The draws of the posterior give the covariance of b = ln L* at the size that is asked for and of the losses f of nets
that may be trained. By the normal approximation a run of net j, whose loss scatters by σ, leaves

    Var(b | j) = Var b − Cov(b, f_j)² / (Var f_j + σ²)

and moves all draws as an ensemble filter does (Evensen 1994); the net that leaves least is taken, then the next one.
Sizes are given: even steps of ln N from N/16 to 1.5·N (``LEAST``, ``MOST``), one net each, since draws of a posterior
that were free to choose sizes at equal FLOPs did no better (tests/simulations/README.md). Inside the sizes of the
table the draws choose the depth of each size, about its best one: distant nets inform about it through the form of the
law alone. Beyond these sizes draws move too far for a normal approximation to rank depths, and depths are in turn
``FACTOR`` times shallower and deeper than the best one of their size. The effect of a setting that the table cannot
separate from depth remains in these draws: nets at the held values separate it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit.data.covariates import HEAD_SIZE
from dwsweep.fit.statistics import ask
from dwsweep.records.adjusted import NextRun, NextRuns
from dwsweep.records.answers import BEST_DEPTH, N_PARAMS, AnswerRow
from dwsweep.records.fit import FitResult

LEAST, MOST = 1.0 / 16.0, 1.5  # range of sizes over the requested size: larger nets cost more than they are worth
DEPTHS = 20  # depths tried at each size
OFF_SIZE = 0.04  # distance in ln N of a net, whose width is whole heads, from its size
MULTIPLE = 16  # widths are multiples of it if no head size is held
ABOUT = 2.0  # factor outside the central 68 % of a size's best depth up to which depths are tried
FACTOR = 1.6  # ratio to the best depth, in turn below and above it, beyond the sizes of the table
TOKENS_PER_PARAM = 20.0  # tokens of a new net if no count is held (Hoffmann et al. 2022)


@dataclass(frozen=True)
class _Net:
    """place: index of its size among the proposed sizes."""

    place: int
    depth: int
    width: int
    n_params: float


def next_runs(result: FitResult, params: float, runs: int) -> NextRuns:
    """The ``runs`` nets, one of each of as many sizes, that most narrow the best depth at ``params``.

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
    nets = _candidates(surface, sizes, x > high, *_block(result))
    losses = posterior.losses(*np.log([(net.n_params, net.depth) for net in nets]).T)
    noise = float(np.median(np.exp(posterior.stacked("scatter"))))
    tokens = result.held_tokens
    left = set(range(runs))  # places of sizes without a net
    rows = []
    before = float(best.std())
    for _ in range(runs):
        away = losses - losses.mean(axis=0)
        variance = away.var(axis=0) + noise**2
        shared = (best - best.mean()) @ away / len(best)
        open_ = np.array([net.place in left for net in nets])
        k = int(np.where(open_, shared**2 / variance, -1.0).argmax())
        net, own, total = nets[k], away[:, k], float(variance[k])
        left.remove(net.place)
        # a deterministic square-root update (Whitaker and Hamill 2002): a run is one number
        step = own / total / (1.0 + math.sqrt(noise**2 / total))
        best = best - step * shared[k]
        losses = losses - np.outer(step, away.T @ own / len(best))
        flops = 6.0 * net.n_params * (tokens or TOKENS_PER_PARAM * net.n_params)
        left_sd = float(best.std())
        rows.append(NextRun(depth=net.depth, width=net.width, n_params=net.n_params, ln_depth_sd=left_sd, flops=flops))
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


def _candidates(
    surface: ask.LossSurface, sizes: np.ndarray, beyond: bool, per_block: float, multiple: int
) -> list[_Net]:
    """Candidates: nets of each size, with many depths about the best one, or one ``beyond`` the sizes of the table."""
    first, last = max(1.0, surface.shallowest / 2.0), 2.0 * surface.deepest

    def net(place: int, n: float, depth: int) -> _Net:
        width = multiple * max(1, round(math.sqrt(n / per_block / depth) / multiple))
        return _Net(place, depth, width, per_block * depth * width**2)

    found: set[_Net] = set()
    for place, n in enumerate(sizes):
        low, middle, high = ask.quantiles(ask.best_depths(surface.posterior, math.log(n)), ask.ONE_SD)
        if beyond:
            middle = math.exp(min(max(middle, 0.0), math.log(surface.deepest * FACTOR)))
            found.add(net(place, n, max(1, round(middle * FACTOR ** (1 if place % 2 else -1)))))
            continue
        shallow, deep = math.exp(min(low, math.log(last))) / ABOUT, math.exp(max(high, 0.0)) * ABOUT
        shallow, deep = np.clip([shallow, deep], first, last)
        own = [net(place, n, depth) for depth in {round(depth) for depth in np.geomspace(shallow, deep, DEPTHS)}]
        off = {one: abs(math.log(one.n_params / n)) for one in own}
        found |= {one for one in own if off[one] <= max(OFF_SIZE, min(off.values()))}
    return sorted(found, key=lambda net: (net.place, net.depth))
