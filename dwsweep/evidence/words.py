"""Best depth of one source at a size: by its own figures, else by all sources and its offset."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dwsweep.evidence.random_effects import CENTRE, SCORES, TOKENS_PER_PARAM, Recipe, normal_scores, quantiles
from dwsweep.evidence.summary import Evidence, Populations, law_depth
from dwsweep.fit.statistics import laws
from dwsweep.fit.statistics.laws import outside
from dwsweep.interval import NORMAL_95, IntervalOf

NEAR = 3.0  # factor outside a source's sizes beyond which its row rests on all sources
TOKENS_APART = 2.0  # weight of an estimate falls by e for each half of ln tokens that it is away
MORE_TOKENS = 0.05  # ln depth per ln tokens: the prior's mean, by which an estimate is moved to other tokens


@dataclass(frozen=True)
class SourceRow:
    """Best depth of one source's own recipe at a size, with its 95 %. outside: factor by which the size lies outside
    its own. words: origin of the answer, ``own``; ``own, beyond its nets`` of a law; ``extrapolated``; ``all, its
    offset``: all sources', with the source's offset."""

    name: str
    reference: str
    kind: str
    sure: str
    depth: float
    depth_low: float
    depth_high: float
    depth_interval = IntervalOf()
    outside: float
    words: str


def words(source: Evidence, everyone: Populations, n_params: float, tokens_per_param: float) -> SourceRow:
    """Best depth of a source at a size and a number of tokens per parameter."""
    own, x = source.depth, math.log(n_params) - CENTRE
    factor, t = outside(n_params, min(own.n_params), max(own.n_params)), math.log(tokens_per_param / TOKENS_PER_PARAM)
    if source.kind == "law":  # a law has words for every size for which it was published
        factor = laws.published().extrapolation(n_params)
        y, sd = math.log(law_depth(n_params)), float(np.interp(x, own.x, np.sqrt(np.diag(np.array(own.covariance)))))
        origin = "own" if factor <= 1.0 else "own, beyond its nets"
    elif factor <= 1.0:
        (y, sd), origin = _between(source, x, t), "own"
    else:
        drawn = Recipe(everyone.depth, normal_scores(len(everyone.depth), SCORES), own).at(x, t) - source.shift
        origin = "extrapolated" if factor <= NEAR else "all, its offset"
    ends = [y, y - NORMAL_95 * sd, y + NORMAL_95 * sd] if origin[:3] == "own" else quantiles(drawn, [0.5, 0.025, 0.975])
    depth, low, high = np.exp(ends).tolist()
    return SourceRow(source.name, source.reference, source.kind, source.sure, depth, low, high, factor, origin)


def _between(source: Evidence, x: float, t: float) -> tuple[float, float]:
    """(ln L*, sd) between the source's own estimates, moved to these tokens, the nearest tokens first."""
    own = source.depth
    # a table read at several token counts names them; published optima do not move
    moved = MORE_TOKENS if source.kind == "losses" else 0.0
    weight = np.exp(-TOKENS_APART * np.abs(own.t - t))
    sizes = np.unique(own.x)

    def at(values: np.ndarray) -> float:
        rows = [np.average(values[own.x == size], weights=weight[own.x == size]) for size in sizes]
        return float(np.interp(x, sizes, rows))

    return at(np.array(own.value) - source.shift + moved * (t - own.t)), at(np.sqrt(np.diag(np.array(own.covariance))))
