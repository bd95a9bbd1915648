"""How the smaller half of the sizes foretold the best depth of a large one, as a sweep foretells a net to be built."""

from __future__ import annotations

import math

import numpy as np

from dwsweep.fit.ask import FEWEST_CELLS, FEWEST_DEPTHS, FEWEST_SIZES, LossSurface, best_depths, quantiles
from dwsweep.fit.model import SAME_BUDGET, distinct_sizes
from dwsweep.fit.posterior import Posterior, weigh
from dwsweep.records.fit import Foretold

LEAST_FACTOR = 2.0  # of the foretold size over those that foretell it
ENOUGH, MANY, DRAWS = 150.0, 32, 1024  # effective nodes, nodes per scramble, draws: ends are known to 5 %


def foretold(surface: LossSurface) -> Foretold | None:
    """The best depth at the largest size whose best depth is known, by the nets of the smaller half of the sizes alone.

    None if no size has a best depth, or the half has too few nets or sizes too near to that one.
    """
    record, cells = surface.record, surface.posterior.cells
    known = [row for row in record.optima if row.depth is not None]
    if record.flat or not known or surface.posterior.frame.one_size:
        return None
    asked = known[-1]
    steps = np.unique(np.round(cells.x / SAME_BUDGET))
    cut = float(steps[(len(steps) - 1) // 2] + 0.5) * SAME_BUDGET
    where = cells.x <= cut
    enough = where.sum() >= FEWEST_CELLS and len(np.unique(cells.y[where])) >= FEWEST_DEPTHS
    enough = enough and distinct_sizes(cells.x[where]) >= FEWEST_SIZES
    if not enough or asked.ln_x - float(cells.x[where].max()) < math.log(LEAST_FACTOR):
        return None
    half = cells.at(where)
    posterior = Posterior(half, weigh(half, record.seed, enough=ENOUGH, many=MANY, draws=DRAWS), record.seed)
    low, middle, high = quantiles(best_depths(posterior, asked.ln_x, surface.setting), record.confidence)
    if not math.isfinite(middle):
        return None
    depth = math.exp(middle)
    built, percent = max(1, round(depth)), None
    if surface.shallowest <= built <= surface.deepest and asked.loss > 0.0:
        percent = 100.0 * float(surface.penalties(asked.n_params, np.array([built]), trained=True).mean()) / asked.loss
    return Foretold(
        up_to=float(np.exp(half.x.max())),
        n_params=asked.n_params,
        depth=depth,
        depth_low=math.exp(low) if math.isfinite(low) else None,
        depth_high=math.exp(high) if math.isfinite(high) else None,
        found=float(asked.depth or 0.0),
        percent=percent,
    )
