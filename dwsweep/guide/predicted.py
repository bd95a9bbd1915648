"""The best depth and the cost of another for a recipe that nobody measured, or outside one's own losses.

The loss at a size N is, for each draw of a recipe like the public ones (evidence/random_effects.py),

    loss(L) − loss(L*) = c·(ln L − ln L*)²,    c of its own on either side of L*,

and, beside losses of one's own, a share of their own penalties at their nearest size, moved along with L*. The share is
1 at that size and fades as the departure of the recipe does, so that nothing jumps where the losses end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dwsweep.evidence import Evidence, Neighbour, Prediction, predict, read
from dwsweep.evidence.random_effects import CURVATURE, DEPTH, DRAWS, TOKENS_PER_PARAM
from dwsweep.evidence.summary import quantities
from dwsweep.fit.laws import outside
from dwsweep.fit.surface import LossSurface
from dwsweep.text import format_count

NAME = "public evidence"
LIMIT = 1000.0  # factor outside the sizes of the sources from which on there is no number
TAIL = 0.025
REACH, GRID = 16.0, 400  # factor in depth from the best, and points
WHOLE, WITHIN = 48, 4.0  # numbers of layers, of which a best depth is one, and their factor from it
NEWTON_STEPS = 12
DEEPEST = 12.0  # of ln L
KEPT = 4  # sizes
# Kaplan et al. 2020 (arXiv 2001.08361), eq. (1.1): L(N) = (N_c / N)^α_N, N non-embedding, nats per token
KAPLAN_N_C = 8.8e13
KAPLAN_ALPHA = 0.076
SLOPE_STEP = 0.3  # of ln N, to either side
STEEPNESS = (0.05, 4.0)  # of one's own losses over Kaplan's, beyond which noise is read


def kaplan(n_params: float) -> float:
    """Loss of Kaplan et al. 2020, nats per token."""
    return (KAPLAN_N_C / n_params) ** KAPLAN_ALPHA


def own_level(surface: LossSurface, n_params: float) -> float:
    """Loss of the best depth by one's own losses; outside their sizes it falls as Kaplan's does, by the slope that the
    losses have at their end."""
    inside = _inside(surface, n_params)
    return surface.level(math.log(inside)) - _steepness(surface, inside) * (kaplan(inside) - kaplan(n_params))


def own_slope(surface: LossSurface, n_params: float) -> float:
    """−d ``own_level`` / d ln N, nats."""
    return _steepness(surface, _inside(surface, n_params)) * KAPLAN_ALPHA * kaplan(n_params)


def _inside(surface: LossSurface, n_params: float) -> float:
    return min(max(n_params, math.exp(surface.record.low)), math.exp(surface.record.high))


def _steepness(surface: LossSurface, n_params: float) -> float:
    """Slope of one's own losses over Kaplan's, at most where the loss would end at zero."""
    record = surface.record
    step = min(SLOPE_STEP, (record.high - record.low) / 2.0)
    x = min(max(math.log(n_params), record.low + step), record.high - step)
    ends = (surface.level(x - step), surface.level(x + step))
    least, most = STEEPNESS
    steep = (ends[0] - ends[1]) / (kaplan(math.exp(x - step)) - kaplan(math.exp(x + step)))
    return min(max(steep, least), most, surface.level(math.log(n_params)) / kaplan(n_params))


@dataclass(frozen=True)
class OwnLosses:
    """The surface of one's own fit, and the sizes at which it answers."""

    surface: LossSurface
    low: float
    high: float

    def neighbour(self, name: str) -> Neighbour:
        low, high = math.log(self.low), math.log(self.high)
        ends = (np.resize(quantities(self.surface, x)[name], DRAWS) for x in (low, high))
        return Neighbour(low, high, *ends)

    @cached_property
    def profiles(self) -> dict[float, np.ndarray]:
        """(D, G) loss above the best whole number of layers on the surface's grid, at either end."""
        grid = np.exp(self.surface.grid)
        rows = {n: self.surface.penalties(n, grid) for n in (self.low, self.high)}
        return {n: np.resize(found, (DRAWS, len(grid))) for n, found in rows.items()}


@dataclass(frozen=True)
class Tokens:
    """Of training: so many, or so many for each parameter of the blocks."""

    count: float | None = None
    per_param: float = TOKENS_PER_PARAM

    def at(self, n_params: float) -> float:
        return self.per_param * n_params if self.count is None else self.count

    def __str__(self) -> str:
        if self.count is not None:
            return f"{format_count(self.count)} tokens"
        return f"{self.per_param:g} tokens per parameter"


@dataclass(frozen=True)
class Predicted:
    """What the sources say of a recipe like theirs; with ``own``, of one's own recipe outside its losses."""

    sources: tuple[Evidence, ...]
    tokens: Tokens = Tokens()
    own: OwnLosses | None = None

    name = NAME
    form = "evidence"
    limit = LIMIT

    @cached_property
    def valid_from(self) -> float:
        """The smallest size of a source."""
        return min(n for source in self.sources for n in source.depth.n_params)

    @cached_property
    def valid_to(self) -> float:
        """The largest size of a source."""
        return max(n for source in self.sources for n in source.depth.n_params)

    @cached_property
    def _kept(self) -> dict[float, dict[float, np.ndarray]]:
        """What each draw loses at a depth (D,), by size and depth, of the last few sizes: tables of shapes, risks and
        constraints ask for the same depths again and again."""
        return {}

    @cached_property
    def _best(self) -> dict[float, float]:
        """The whole number of layers that is best in expectation, by size."""
        return {}

    @cached_property
    def _predictions(self) -> dict[str, Prediction]:
        return {
            name: predict(
                [getattr(source, name) for source in self.sources],
                DEPTH if name == "depth" else CURVATURE,
                self.own.neighbour(name) if self.own else None,
            )
            for name in ("depth", "shallow", "deep")
        }

    def extrapolation(self, n_params: float) -> float:
        """Factor by which the size lies outside those of the sources and of one's own losses; 1 inside."""
        factor = outside(n_params, self.valid_from, self.valid_to)
        return factor if self.own is None else min(factor, outside(n_params, self.own.low, self.own.high))

    def drawn_depths(self, n_params: float) -> np.ndarray:
        """(D,) ln of the best depth."""
        return np.maximum(self._drawn(n_params, "depth"), 0.0)

    def depth(self, n_params: float) -> tuple[float | None, float | None, float | None]:
        """(L*, low, high): median and 95 % of what a recipe like these may have."""
        low, middle, high = np.exp(np.quantile(self.drawn_depths(n_params), [TAIL, 0.5, 1.0 - TAIL]))
        return float(middle), float(low), float(high)

    def _drawn(self, n_params: float, name: str) -> np.ndarray:
        x = math.log(n_params)
        ratio = self.tokens.at(n_params) / (TOKENS_PER_PARAM * n_params)
        return self._predictions[name].at(x, math.log(ratio))

    # the guide's LossModel

    @property
    def tag(self) -> str:
        beside = ", with the penalties of your own losses near their sizes" if self.own else ""
        return (
            f"from the best depths and curvatures of {len(self.sources)} public sources{beside}; level of loss from "
            "Kaplan et al. 2020"
        )

    def covers(self, n_params: float) -> bool:
        return True

    def level(self, n_params: float) -> float:
        if self.own is None:
            return kaplan(n_params)
        return own_level(self.own.surface, n_params)

    def slope(self, n_params: float) -> float:
        return KAPLAN_ALPHA * kaplan(n_params) if self.own is None else own_slope(self.own.surface, n_params)

    def depths(self, n_params: float) -> np.ndarray:
        best = self.depth(n_params)[0]
        assert best is not None
        return np.geomspace(max(1.0, best / REACH), max(2.0, best * REACH), GRID)

    def penalties(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """(M,) expected nats above those of the whole number of layers that is best in expectation."""
        best = self._best.get(n_params)
        if best is None:  # tables of shapes ask for the same sizes again and again
            whole = self._whole(n_params)
            best = self._best[n_params] = float(whole[self._regret(n_params, whole).mean(axis=0).argmin()])
        rows = self._regret(n_params, np.append(np.asarray(depths, dtype=float), best)).mean(axis=0)
        return np.maximum(rows[:-1] - rows[-1], 0.0)

    def drawn(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """(D, M) nats above the best of each draw."""
        return self._regret(n_params, np.asarray(depths, dtype=float))

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        low, high = np.nanquantile(values, [TAIL, 1.0 - TAIL])
        return float(low), float(high)

    def _whole(self, n_params: float) -> np.ndarray:
        """Whole numbers of layers, of which one is best in expectation."""
        best = self.drawn_depths(n_params)
        if self.own is not None:
            middle = float(np.exp(np.median(best)))
            return np.unique(np.maximum(1.0, np.geomspace(middle / WITHIN, middle * WITHIN, WHOLE).round()))
        # the expected loss is convex in ln L: its slope, Σ c·(ln L − ln L*), is zero once
        shallow, deep = (np.exp(self._drawn(n_params, name)) for name in ("shallow", "deep"))
        at = float(best.mean())
        for _ in range(NEWTON_STEPS):
            curvature = np.where(best > at, shallow, deep)
            at = float((curvature @ best) / curvature.sum())
        return np.maximum(1.0, np.array([math.floor(math.exp(at)), math.ceil(math.exp(at))], dtype=float))

    def _regret(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """(D, M) nats of ``depths`` above the best depth of each draw."""
        if n_params not in self._kept and len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        known, asked = self._kept.setdefault(n_params, {}), depths.tolist()
        if new := [depth for depth in dict.fromkeys(asked) if depth not in known]:
            known.update(zip(new, self._lost(n_params, np.array(new)).T.copy(), strict=True))
        return np.stack([known[depth] for depth in asked], axis=1)

    def _lost(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        best = self.drawn_depths(n_params)
        shallow, deep = (np.exp(self._drawn(n_params, name))[:, None] for name in ("shallow", "deep"))
        apart = np.log(depths)[None] - best[:, None]
        general = np.where(apart < 0, shallow, deep) * apart**2
        if self.own is None:
            return general
        near = self.own.low if n_params < self.own.low else self.own.high
        share = self._predictions["depth"].memory(math.log(n_params))[:, None]
        grid = self.own.surface.grid
        moved = np.log(depths)[None] - (best - self.drawn_depths(near))[:, None]
        rows = _interpolated(moved, grid, self.own.profiles[near])
        return share * rows + (1.0 - share) * general


def _interpolated(at: np.ndarray, grid: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(D, M) each of ``rows`` (D, G) over ``grid`` (G,), read at its own places ``at`` (D, M)."""
    at = np.clip(at, grid[0], grid[-1])
    left = np.clip(np.searchsorted(grid, at) - 1, 0, len(grid) - 2)
    share = (at - grid[left]) / (grid[left + 1] - grid[left])
    each = np.arange(len(rows))[:, None]
    return rows[each, left] * (1.0 - share) + rows[each, left + 1] * share


def public(tokens: Tokens | None = None, own: OwnLosses | None = None) -> Predicted:
    """What the package's own sources say."""
    return Predicted(read(), tokens or Tokens(), own)


def of_source(source: Evidence, sources: Sequence[Evidence]) -> Prediction:
    """The best depth of one source's own recipe at any size: beyond its sizes it returns to what all say."""
    estimates = source.depth
    x = np.log(estimates.n_params)
    first, last = int(x.argmin()), int(x.argmax())
    rng = np.random.default_rng(1)
    rows = rng.multivariate_normal(np.array(estimates.value), np.array(estimates.covariance), DRAWS)
    near = Neighbour(float(x[first]), float(x[last]), rows[:, first], rows[:, last])
    return predict([one.depth for one in sources], DEPTH, near)
