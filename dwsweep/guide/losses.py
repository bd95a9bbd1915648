"""What another depth costs at a size: by public evidence, by one's own losses, or by a law that is taken to be true.

Public evidence is for a recipe that nobody measured, or outside one's own losses. The loss at a size N is, for each
draw of a recipe like the public ones (evidence/random_effects.py),

    loss(L) − loss(L*) = c·(ln L − ln L*)²,    c of its own on either side of L*,

and, beside losses of one's own, a share of their own penalties at their nearest size, moved along with L*. The share is
1 at that size and fades as the departure of the recipe does, so that nothing jumps where the losses end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dwsweep.evidence import Evidence, Neighbour, Prediction, predict, read
from dwsweep.evidence.random_effects import CURVATURE, DEPTH, DRAWS, TOKENS_PER_PARAM
from dwsweep.evidence.summary import quantities
from dwsweep.fit.laws import Law, outside
from dwsweep.guide.answers import Cost, NearBest
from dwsweep.text import format_count

if TYPE_CHECKING:
    from dwsweep.fit.ask import LossSurface

TAIL = 0.025
GRID = 400  # points of depth
# Kaplan et al. 2020 (arXiv 2001.08361), eq. (1.1): L(N) = (N_c / N)^α_N, N non-embedding, nats per token
KAPLAN_N_C = 8.8e13
KAPLAN_ALPHA = 0.076


def kaplan(n_params: float) -> float:
    """Loss of Kaplan et al. 2020, nats per token."""
    return (KAPLAN_N_C / n_params) ** KAPLAN_ALPHA


@dataclass(frozen=True)
class LossAt(ABC):
    """Loss at the size N = ``n_params`` as a function of depth, relative to that of the best depth."""

    n_params: float

    @property
    @abstractmethod
    def tag(self) -> str:
        """Where it comes from, for the reader."""

    @cached_property
    @abstractmethod
    def depths(self) -> np.ndarray:
        """(M,) depths that it can speak of, rising."""

    @abstractmethod
    def penalties(self, depths: np.ndarray) -> np.ndarray:
        """(M,) nats above the best depth."""

    @abstractmethod
    def drawn(self, depths: np.ndarray) -> np.ndarray:
        """(D, M) the same for parameters inside the confidence region."""

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """(low, high) of a quantity that was computed for each of the D rows of ``drawn``."""
        low, high = np.nanquantile(values, [TAIL, 1.0 - TAIL])
        return float(low), float(high)

    def level_of(self, n_params: float) -> float:
        """Loss of the best depth of any size, nats per token."""
        return kaplan(n_params)

    @cached_property
    def level(self) -> float:
        return self.level_of(self.n_params)

    @cached_property
    def slope(self) -> float:
        """−d loss / d ln N of the best depth, nats."""
        return KAPLAN_ALPHA * kaplan(self.n_params)

    def cost(self, nats: float, *interval: float) -> Cost:
        """``nats`` above the best, also as by how many percent a best-shaped model would be smaller that is as much
        worse: 100·(1 − exp(−nats / slope))."""
        return Cost(nats, 100.0 * (1.0 - math.exp(-nats / self.slope)), *interval)

    def cost_of(self, depth: float, rough: bool = False) -> Cost | None:
        """What a depth costs against the best one, without its interval if ``rough``; None beyond ``depths``."""
        if not self.depths[0] - 1e-9 <= depth <= self.depths[-1] + 1e-9:
            return None
        one = np.array([float(depth)])
        nats = float(self.penalties(one)[0])
        return self.cost(nats, *([] if rough else (max(0.0, end) for end in self.interval(self.drawn(one)[:, 0]))))

    @cached_property
    def _above(self) -> np.ndarray:
        """(1, M) penalties of all ``depths``."""
        return self.penalties(self.depths)[None]

    @property
    def best(self) -> float:
        """The one of ``depths`` that costs least."""
        return float(self.depths[self._above[0].argmin()])

    def stretch(self, tolerance: float) -> tuple[float, float]:
        """(shallow, deep) ends of the depths within ``tolerance`` of the best loss, or of what it can speak of."""
        low, high = _ends(self.depths, self._above, tolerance * self.level)
        return float(low[0]), float(high[0])

    def near_best(self, tolerance: float) -> NearBest:
        """Depths whose loss is within ``tolerance`` (0.001: 0.1 %) of the best loss, each end with its interval."""
        nats = tolerance * self.level
        low, high = self.stretch(tolerance)
        drawn_low, drawn_high = _ends(self.depths, self.drawn(self.depths), nats)

        def bounded(value: float) -> float | None:
            return None if value <= self.depths[0] * 1.000001 or value >= self.depths[-1] * 0.999999 else value

        def ends(values: np.ndarray) -> tuple[float | None, float | None]:
            first, last = self.interval(values)
            return bounded(first), bounded(last)

        less = self.cost(nats).less_compute
        return NearBest(100 * tolerance, nats, less, bounded(low), ends(drawn_low), bounded(high), ends(drawn_high))


def _ends(depths: np.ndarray, penalties: np.ndarray, nats: float) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) ends of the stretch around each row's least penalty where it is at most ``nats`` above it."""
    above = penalties - penalties.min(axis=1, keepdims=True) > nats
    best = penalties.argmin(axis=1)
    index = np.arange(len(depths))[None]
    low = np.where(above & (index < best[:, None]), index + 1, 0).max(axis=1)
    high = np.where(above & (index > best[:, None]), index - 1, len(depths) - 1).min(axis=1)
    return depths[low], depths[high]


# ASSUMPTION: c of penalty = c·(ln L − ln L*)², nats, and the ends between which it is taken to lie. A quadratic in
# ln N, ln L and ln tokens through the public Gemstones runs has 0.023 to 0.025. CompleteP's shapes within 1 % of the
# best loss give 0.018 to 0.042 (see LawLoss).
LAW_CURVATURE = 0.024
LAW_CURVATURE_ENDS = (0.02, 0.055)
LAW_GRID = 600
REACH = 16.0  # factor in depth from the best
REGION_STEP = 4  # every fourth of 360 points of a law's region has its extremes to 0.1 %


@dataclass(frozen=True)
class LawLoss(LossAt):
    """Penalties of a law's best depth L*(N), with a curvature seen in public data.

        penalty(L, N) = c·(ln L − ln L*(N))²,   c = 0.024 nats, 0.02 to 0.055   (ASSUMED)

    c multiplies the square itself: it is half the second derivative of the loss by ln L. CompleteP (Dey et al. 2025,
    arXiv 2505.01618) decides between the two readings of "nats per (ln L)²". Its best widths per layer are 40, 50 and
    62 at 5e7, 3e8 and 1.5e9 parameters. Its losses are about 2.7, 2.4 and 2.2 there, and down to 12, 15 and 11.8 widths
    per layer they are within 1 % of the best. At equal N = 12·L·d² a ratio r of d/L is −⅔·ln r in ln L. So c is 0.042,
    0.037 and 0.018. This range holds the 0.023 to 0.025 of a quadratic through the Gemstones runs (McLeish et al. 2025,
    arXiv 2502.06857). As second derivatives the three would be 0.084, 0.075 and 0.036, which does not hold it. The
    level of loss is that of Kaplan et al. 2020, eq. (1.1).
    """

    law: Law

    @property
    def tag(self) -> str:
        low, high = LAW_CURVATURE_ENDS
        return (
            f"ASSUMED: {LAW_CURVATURE}·(ln L/L*)² from the best depth L* of the law ({self.law.name}), "
            f"with {low} to {high} for {LAW_CURVATURE} as public data have it; level of loss from Kaplan et al. 2020"
        )

    @cached_property
    def depths(self) -> np.ndarray:
        return _around(self.law.depth(self.n_params)[0], LAW_GRID)

    def penalties(self, depths: np.ndarray) -> np.ndarray:
        return LAW_CURVATURE * self._squares(np.asarray(self.law.theta)[None], depths)[0]

    def drawn(self, depths: np.ndarray) -> np.ndarray:
        """Every law of the region, and the likeliest, with each of the curvatures."""
        laws = np.concatenate([np.asarray(self.law.theta)[None], np.asarray(self.law.region)[::REGION_STEP]])
        squares = self._squares(laws, depths)
        return np.concatenate([c * squares for c in (LAW_CURVATURE, *LAW_CURVATURE_ENDS)])

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """The extremes: the rows of ``drawn`` lie on the edges of the law's region and of the curvature's range."""
        return float(np.nanmin(values)), float(np.nanmax(values))

    def _squares(self, theta: np.ndarray, depths: np.ndarray) -> np.ndarray:
        """(R, M) of (ln L − ln L*)² for theta (R, 2); a law without a best depth says nothing: NaN."""
        best = self.law.equation.optimal_depth(theta, self.n_params)
        return (np.log(depths)[None] - np.log(best)[:, None]) ** 2


def _around(best: float | None, points: int) -> np.ndarray:
    """(M,) depths within a factor of ``REACH`` from the best one."""
    assert best is not None
    return np.geomspace(max(1.0, best / REACH), max(2.0, best * REACH), points)


SLOPE_STEP = 0.3  # of ln N, to either side
STEEPNESS = (0.05, 4.0)  # of one's own losses over Kaplan's, beyond which noise is read


@dataclass(frozen=True)
class OwnLosses:
    """The surface of one's own fit, and the sizes at which it answers.

    trained: it speaks of the depths between those trained alone, where the data do not bound the best depth.
    """

    surface: LossSurface
    low: float
    high: float
    trained: bool = False

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

    def level_of(self, n_params: float) -> float:
        """Loss of the best depth; outside the sizes of the losses it falls as Kaplan's does, by the slope that they
        have at their end."""
        inside = self._inside(n_params)
        return self.surface.level(math.log(inside)) - self._steepness(inside) * (kaplan(inside) - kaplan(n_params))

    def slope(self, n_params: float) -> float:
        """−d ``level_of`` / d ln N, nats."""
        return self._steepness(self._inside(n_params)) * KAPLAN_ALPHA * kaplan(n_params)

    def _inside(self, n_params: float) -> float:
        return min(max(n_params, math.exp(self.surface.record.low)), math.exp(self.surface.record.high))

    def _steepness(self, n_params: float) -> float:
        """Slope of one's own losses over Kaplan's, at most where the loss would end at zero."""
        record = self.surface.record
        step = min(SLOPE_STEP, (record.high - record.low) / 2.0)
        x = min(max(math.log(n_params), record.low + step), record.high - step)
        ends = (self.surface.level(x - step), self.surface.level(x + step))
        least, most = STEEPNESS
        steep = (ends[0] - ends[1]) / (kaplan(math.exp(x - step)) - kaplan(math.exp(x + step)))
        return min(max(steep, least), most, self.surface.level(math.log(n_params)) / kaplan(n_params))


@dataclass(frozen=True)
class SurfaceLoss(LossAt):
    """Penalties of one's own sweep: its loss surface, by its forms outside the depths trained."""

    own: OwnLosses

    @property
    def tag(self) -> str:
        return "from the loss surface fitted to this sweep"

    @cached_property
    def depths(self) -> np.ndarray:
        surface = self.own.surface
        first, last = surface.shallowest, surface.deepest
        if self.own.trained:
            return np.geomspace(first, last, GRID)
        best = surface.at(self.n_params).value or last
        deepest = min(max(last, best * 8), math.exp(float(surface.grid[-1])))
        return np.geomspace(max(1.0, min(first, best / 8)), deepest, GRID)

    def level_of(self, n_params: float) -> float:
        return self.own.level_of(n_params)

    @cached_property
    def slope(self) -> float:
        return self.own.slope(self.n_params)

    def penalties(self, depths: np.ndarray) -> np.ndarray:
        """Penalties by the mean loss of all draws: zero at its own best whole number of layers."""
        mean = self.own.surface.profile(math.log(self.n_params)).mean(axis=0, keepdims=True)
        return self.own.surface.above_best(mean, depths, self.own.trained)[0]

    def drawn(self, depths: np.ndarray) -> np.ndarray:
        return self.own.surface.penalties(self.n_params, depths, self.own.trained)

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """Quantiles: the rows of ``drawn`` are draws from the surface's distribution."""
        tail = (1 - self.own.surface.record.confidence) / 2
        low, high = np.nanquantile(values, [tail, 1 - tail])
        return float(low), float(high)


@dataclass(frozen=True)
class Tokens:
    """Tokens of training: so many in all, or so many for each parameter of the blocks."""

    count: float | None = None
    per_param: float = TOKENS_PER_PARAM

    def at(self, n_params: float) -> float:
        return self.per_param * n_params if self.count is None else self.count

    def __str__(self) -> str:
        if self.count is not None:
            return f"{format_count(self.count)} tokens"
        return f"{self.per_param:g} tokens per parameter"


SIZES_KEPT = 128  # about those of two budgets


@dataclass(frozen=True)
class Predicted:
    """What the sources say of a recipe like theirs, as a law; with ``own``, of one's own recipe outside its losses."""

    sources: tuple[Evidence, ...]
    tokens: Tokens = Tokens()
    own: OwnLosses | None = None

    name: ClassVar[str] = "public evidence"
    form: ClassVar[str] = "evidence"

    @cached_property
    def valid_from(self) -> float:
        """The smallest size of a source."""
        return min(n for source in self.sources for n in source.depth.n_params)

    @cached_property
    def valid_to(self) -> float:
        """The largest size of a source."""
        return max(n for source in self.sources for n in source.depth.n_params)

    @cached_property
    def predictions(self) -> dict[str, Prediction]:
        """Predictions of ln of the best depth, and of the curvature on either side of it."""
        return {
            name: predict(
                [getattr(source, name) for source in self.sources],
                DEPTH if name == "depth" else CURVATURE,
                self.own.neighbour(name) if self.own else None,
            )
            for name in ("depth", "shallow", "deep")
        }

    @cached_property
    def _losses(self) -> dict[float, PredictedLoss]:
        return {}

    def loss(self, n_params: float) -> PredictedLoss:
        """The loss at a size; tables of shapes, risks and constraints ask for the same ones again and again."""
        found = self._losses.get(n_params)
        if found is None:
            found = self._losses[n_params] = PredictedLoss(n_params, self)
            if len(self._losses) > SIZES_KEPT:
                del self._losses[next(iter(self._losses))]  # the oldest
        return found

    def extrapolation(self, n_params: float) -> float:
        """Factor by which the size lies outside those of the sources and of one's own losses; 1 inside."""
        factor = outside(n_params, self.valid_from, self.valid_to)
        return factor if self.own is None else min(factor, outside(n_params, self.own.low, self.own.high))

    def depth(self, n_params: float) -> tuple[float, float, float]:
        """(L*, low, high): median and 95 % of what a recipe like these may have."""
        return self.loss(n_params).best_depth


WHOLE, WITHIN = 48, 4.0  # numbers of layers, of which a best depth is one, and their factor from it
NEWTON_STEPS = 12


@dataclass(frozen=True)
class PredictedLoss(LossAt):
    """Penalties of a recipe like those of the public sources, in expectation over its draws."""

    law: Predicted

    @property
    def tag(self) -> str:
        beside = ", with the penalties of your own losses near their sizes" if self.law.own else ""
        return (
            f"from the best depths and curvatures of {len(self.law.sources)} public sources{beside}; level of loss "
            "from Kaplan et al. 2020"
        )

    def level_of(self, n_params: float) -> float:
        return kaplan(n_params) if self.law.own is None else self.law.own.level_of(n_params)

    @cached_property
    def slope(self) -> float:
        return KAPLAN_ALPHA * kaplan(self.n_params) if self.law.own is None else self.law.own.slope(self.n_params)

    @cached_property
    def ln_depth(self) -> np.ndarray:
        """(D,) ln of the best depth."""
        return np.maximum(self._drawn("depth"), 0.0)

    @cached_property
    def _curvatures(self) -> tuple[np.ndarray, np.ndarray]:
        """(D,) each, on the shallow and on the deep side."""
        return np.exp(self._drawn("shallow")), np.exp(self._drawn("deep"))

    def _drawn(self, name: str) -> np.ndarray:
        ratio = self.law.tokens.at(self.n_params) / (TOKENS_PER_PARAM * self.n_params)
        return self.law.predictions[name].at(math.log(self.n_params), math.log(ratio))

    @cached_property
    def best_depth(self) -> tuple[float, float, float]:
        low, middle, high = np.exp(np.quantile(self.ln_depth, [TAIL, 0.5, 1.0 - TAIL]))
        return float(middle), float(low), float(high)

    @cached_property
    def depths(self) -> np.ndarray:
        return _around(self.best_depth[0], GRID)

    def penalties(self, depths: np.ndarray) -> np.ndarray:
        """(M,) expected nats above those of the whole number of layers that is best in expectation."""
        rows = self.drawn(np.append(np.asarray(depths, dtype=float), self._best_layers)).mean(axis=0)
        return np.maximum(rows[:-1] - rows[-1], 0.0)

    @cached_property
    def _known(self) -> dict[float, np.ndarray]:
        """(D,) nats above the best depth of each draw, by depth."""
        return {}

    def drawn(self, depths: np.ndarray) -> np.ndarray:
        """(D, M) nats of ``depths`` above the best depth of each draw."""
        asked = np.asarray(depths, dtype=float).tolist()
        if new := [depth for depth in dict.fromkeys(asked) if depth not in self._known]:
            self._known.update(zip(new, self._lost(np.array(new)).T.copy(), strict=True))
        return np.stack([self._known[depth] for depth in asked], axis=1)

    @cached_property
    def _best_layers(self) -> float:
        """The whole number of layers that is best in expectation."""
        if self.law.own is not None:
            middle = float(np.exp(np.median(self.ln_depth)))
            whole = np.unique(np.maximum(1.0, np.geomspace(middle / WITHIN, middle * WITHIN, WHOLE).round()))
        else:
            # the expected loss is convex in ln L: its slope, Σ c·(ln L − ln L*), is zero once
            at = float(self.ln_depth.mean())
            for _ in range(NEWTON_STEPS):
                curvature = np.where(self.ln_depth > at, *self._curvatures)
                at = float((curvature @ self.ln_depth) / curvature.sum())
            whole = np.maximum(1.0, np.array([math.floor(math.exp(at)), math.ceil(math.exp(at))], dtype=float))
        return float(whole[self.drawn(whole).mean(axis=0).argmin()])

    def _lost(self, depths: np.ndarray) -> np.ndarray:
        best, own = self.ln_depth, self.law.own
        shallow, deep = (side[:, None] for side in self._curvatures)
        apart = np.log(depths)[None] - best[:, None]
        general = np.where(apart < 0, shallow, deep) * apart**2
        if own is None:
            return general
        near = own.low if self.n_params < own.low else own.high
        share = self.law.predictions["depth"].memory(math.log(self.n_params))[:, None]
        moved = np.log(depths)[None] - (best - self.law.loss(near).ln_depth)[:, None]
        rows = _interpolated(moved, own.surface.grid, own.profiles[near])
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
