"""Losses of other depths at a size: by public evidence, by a user's losses, or by a law taken as true.

A wrong depth is priced in size first: L layers do as well as the best depth at N·exp(−w). Nats are w times the slope
−dloss/d ln N, so the percent of compute that a shape wastes, 100·(1 − e^(−w)), needs no level of the loss. By public
evidence, for each draw of a recipe like the public ones (evidence/random_effects.py),

    w(L) = κ·(ln L − ln L*)²,    κ of its own on either side of L*,

and, beside losses of one's own, a share of their own prices at their nearest size, moved along with L*. The share is 1
at that size and fades with the distance in ln N, so that nothing jumps where the losses end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dwsweep.evidence import Bound, Estimates, Evidence, Populations, Recipe, levels, read, read_populations, recipe
from dwsweep.evidence.random_effects import CENTRE, DRAWS, LENGTH, SCORES, TOKENS_PER_PARAM, Population, quantiles
from dwsweep.evidence.summary import answers, own_slope
from dwsweep.fit.laws import Law, outside
from dwsweep.guide.answers import Cost, NearBest
from dwsweep.text import format_count

if TYPE_CHECKING:
    from dwsweep.fit.ask import LossSurface
    from dwsweep.records.transitions import Optimum

TAIL = 0.025
GRID = 400  # points of the grid of depths


def wasted(share: float) -> float:
    """Price w of a wasted share of compute: 0.05 → −ln 0.95."""
    return -math.log1p(-share)


@dataclass(frozen=True)
class LossAt(ABC):
    """Loss at the size N = ``n_params`` as a function of depth, relative to that of the best depth."""

    n_params: float

    @property
    @abstractmethod
    def tag(self) -> str:
        """Origin of the losses, for the reader."""

    @cached_property
    @abstractmethod
    def depths(self) -> np.ndarray:
        """Depths (M,) at which losses are known, rising."""

    @abstractmethod
    def penalties(self, depths: np.ndarray) -> np.ndarray:
        """Penalties (M,): nats above the best depth."""

    @abstractmethod
    def drawn(self, depths: np.ndarray) -> np.ndarray:
        """Draws (D, M) of the penalties, for parameters inside the confidence region."""

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """Interval of a quantity that was computed for each of the D rows of ``drawn``."""
        low, high = quantiles(values, [TAIL, 1.0 - TAIL])
        return float(low), float(high)

    def level_of(self, n_params: float) -> float:
        """Loss of the best depth of any size, nats per token."""
        return levels.level(n_params)

    @cached_property
    def level(self) -> float:
        return self.level_of(self.n_params)

    @cached_property
    def slope(self) -> float:
        """Slope −d loss / d ln N of the best depth, nats."""
        return levels.slope(self.n_params)

    @property
    def slope_tag(self) -> str:
        """Name of the law whose slope converts size into nats."""
        return f"by the slope of {levels.law_at(self.n_params).name}"

    def cost(self, nats: float, *interval: float) -> Cost:
        """Cost of ``nats`` above the best, also as wasted compute: a best-shaped model of equal loss would be smaller
        by 100·(1 − exp(−nats / slope)) percent."""
        return Cost(nats, 100.0 * (1.0 - math.exp(-nats / self.slope)), *interval)

    def penalty(self, depth: float) -> float | None:
        """Nats of a depth above the best one; None outside ``depths``."""
        if not self.depths[0] - 1e-9 <= depth <= self.depths[-1] + 1e-9:
            return None
        return float(self.penalties(np.array([float(depth)]))[0])

    def cost_of(self, depth: float, rough: bool = False) -> Cost | None:
        """Cost of a depth against the best one, without its interval if ``rough``; None outside ``depths``."""
        nats = self.penalty(depth)
        if nats is None:
            return None
        drawn = [] if rough else self.interval(self.drawn(np.array([float(depth)]))[:, 0])
        return self.cost(nats, *(max(0.0, end) for end in drawn))

    @cached_property
    def _above(self) -> np.ndarray:
        """Penalties of all ``depths`` as one row (1, M)."""
        return self.penalties(self.depths)[None]

    @property
    def best(self) -> float:
        """Depth of least penalty."""
        return float(self.depths[self._above[0].argmin()])

    def stretch(self, share: float) -> tuple[float, float]:
        """Ends (shallow, deep) of the depths that waste at most a ``share`` of compute (0.05: 5 %), or of the known
        depths."""
        low, high = _ends(self.depths, self._above, wasted(share) * self.slope)
        return float(low[0]), float(high[0])

    def near_best(self, shares: Sequence[float]) -> tuple[NearBest, ...]:
        """Depths that waste at most a share of compute (0.05: 5 %), for each of ``shares``, each end with its
        interval."""
        drawn = self.drawn(self.depths)
        return tuple(self._near_best(share, drawn) for share in shares)

    def _near_best(self, share: float, drawn: np.ndarray) -> NearBest:
        nats = wasted(share) * self.slope
        low, high = self.stretch(share)
        drawn_low, drawn_high = _ends(self.depths, drawn, nats)

        def bounded(value: float) -> float | None:
            return None if value <= self.depths[0] * 1.000001 or value >= self.depths[-1] * 0.999999 else value

        def ends(values: np.ndarray) -> tuple[float | None, float | None]:
            first, last = self.interval(values)
            return bounded(first), bounded(last)

        percent = 100.0 * nats / self.level
        return NearBest(percent, nats, 100.0 * share, bounded(low), ends(drawn_low), bounded(high), ends(drawn_high))


def _ends(depths: np.ndarray, penalties: np.ndarray, nats: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends (low, high) of the stretch around each row's least penalty within ``nats`` above it."""
    above = penalties - penalties.min(axis=1, keepdims=True) > nats
    best, index = penalties.argmin(axis=1)[:, None], np.arange(len(depths))[None]
    each = np.arange(len(above))
    # an argmax of nothing is the first place, where nothing is above
    before, after = (above & (index < best))[:, ::-1], above & (index > best)
    last, first = before.argmax(axis=1), after.argmax(axis=1)
    low = np.where(before[each, last], len(depths) - last, 0)
    high = np.where(after[each, first], first - 1, len(depths) - 1)
    return depths[low], depths[high]


# ASSUMED for a law alone: κ of w = κ·(ln L − ln L*)², with its range. Four sources have 0.08 to 0.32 between 3e7 and
# 1.5e9 parameters, without a common trend.
LAW_PRICE = 0.19
LAW_PRICE_ENDS = (0.08, 0.32)
LAW_GRID = 600
REACH = 16.0  # factor in depth from the best
REGION_STEP = 4  # a fourth of the region's 360 points gives its extremes to 0.1 %


@dataclass(frozen=True)
class LawLoss(LossAt):
    """Prices of a law's best depth L*(N), with a price seen in public data.

        w(L, N) = κ·(ln L − ln L*(N))²,   κ = 0.19, 0.08 to 0.32   (ASSUMED)

    κ is the curvature of the loss, half its second derivative by ln L, over its slope −dloss/d ln N, both of one
    source.
    """

    law: Law

    @property
    def tag(self) -> str:
        low, high = LAW_PRICE_ENDS
        return (
            f"ASSUMED: depths priced at {LAW_PRICE}·(ln L/L*)² of ln N, with {low} to {high} for {LAW_PRICE}, from the "
            f"best depth L* of the law ({self.law.name}); nats {self.slope_tag}"
        )

    @cached_property
    def depths(self) -> np.ndarray:
        return _around(self.law.depth(self.n_params)[0], LAW_GRID)

    def penalties(self, depths: np.ndarray) -> np.ndarray:
        return self.slope * LAW_PRICE * self._squares(np.asarray(self.law.theta)[None], depths)[0]

    def drawn(self, depths: np.ndarray) -> np.ndarray:
        """Penalties for every law of the region, and the likeliest, with each of the prices."""
        laws = np.concatenate([np.asarray(self.law.theta)[None], np.asarray(self.law.region)[::REGION_STEP]])
        squares = self._squares(laws, depths)
        return np.concatenate([self.slope * price * squares for price in (LAW_PRICE, *LAW_PRICE_ENDS)])

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """Extremes of the rows, since ``drawn`` lies on the edges of the law's region and of the price's range."""
        return float(np.nanmin(values)), float(np.nanmax(values))

    def _squares(self, theta: np.ndarray, depths: np.ndarray) -> np.ndarray:
        """Squares (R, M) of ln L − ln L* for theta (R, 2); NaN for a law without a best depth."""
        best = self.law.equation.optimal_depth(theta, self.n_params)
        return (np.log(depths)[None] - np.log(best)[:, None]) ** 2


def _around(best: float | None, points: int) -> np.ndarray:
    """Depths (M,) within a factor of ``REACH`` from the best one."""
    assert best is not None
    return np.geomspace(max(1.0, best / REACH), max(2.0, best * REACH), points)


STEEPNESS = (0.05, 4.0)  # limits of the ratio of the user's slope to published slopes; larger ratios are noise


def bounds_of(rows: Iterable[Optimum]) -> tuple[Bound, ...]:
    """One-sided bounds on the best depth, from a fit's best depths at its sizes (``depth_low`` and ``depth_high`` of ln
    size ``ln_x``, None for an open end): "below 5.6 layers", "above 12.8"."""
    found = []
    for row in rows:
        low, high = row.depth_low, row.depth_high
        if (low is None) != (high is None):
            ends = (-math.inf if low is None else math.log(low), math.inf if high is None else math.log(max(high, 1.0)))
            found.append(Bound(row.ln_x - CENTRE, *ends))
    return tuple(found)


@dataclass(frozen=True)
class OwnLosses:
    """Own losses: the surface of a user's fit, and the sizes at which it answers.

    trained: restricts answers to depths between the trained ones, where the data do not bound the best depth. bounds:
    one-sided bounds, at sizes where the losses bound the best depth on one side. answers: True if the fit guides at its
    sizes; else the surface gives the level and the slope of the loss, and the bounds.
    """

    surface: LossSurface
    low: float
    high: float
    trained: bool = False
    bounds: tuple[Bound, ...] = ()
    answers: bool = True

    @cached_property
    def source(self) -> Mapping[str, Estimates]:
        """Own losses as one more source beyond their sizes: ``depth`` and the prices on its ``shallow`` and ``deep``
        side at the sizes at which the losses bound the best depth on both sides; empty without such a size."""
        # reference: tokens of the fit; the trend of all sources moves the answer to other tokens
        return answers([(self.surface, None)], TOKENS_PER_PARAM, "own")

    @property
    def bounded(self) -> bool:
        """Test that the losses bound the best depth on both sides at some size."""
        return self.answers and len(self.source["depth"]) > 0

    @cached_property
    def profiles(self) -> dict[float, np.ndarray]:
        """Profiles (D, G): price in ln N of each depth against the best whole number of layers on the surface's grid,
        at either end of the sizes."""
        grid = np.exp(self.surface.grid)
        rows = {n: self.surface.penalties(n, grid) / self.slope(n) for n in (self.low, self.high)}
        # draws stand in order of their forms: of more draws than needed, every so many
        return {n: found[np.arange(DRAWS) * max(1, len(found) // DRAWS) % len(found)] for n, found in rows.items()}

    def level_of(self, n_params: float) -> float:
        """Loss of the best depth. Outside the sizes of the losses it falls in proportion to the published laws, with
        the losses' slope at their end."""
        inside = self._inside(n_params)
        fallen = levels.level(inside) - levels.level(n_params)
        return self.surface.level(math.log(inside)) - self._steepness(inside) * fallen

    def slope(self, n_params: float) -> float:
        """Slope −d ``level_of`` / d ln N, nats."""
        return self._steepness(self._inside(n_params)) * levels.slope(n_params)

    def _inside(self, n_params: float) -> float:
        return min(max(n_params, math.exp(self.surface.record.low)), math.exp(self.surface.record.high))

    def _steepness(self, n_params: float) -> float:
        """Slope of the own losses over the published laws' slope, bounded so that the loss does not fall below zero."""
        x = math.log(n_params)
        least, most = STEEPNESS
        steep = own_slope(self.surface, x) / levels.slope(n_params)
        return min(max(steep, least), most, self.surface.level(x) / levels.level(n_params))


@dataclass(frozen=True)
class SurfaceLoss(LossAt):
    """Penalties by the loss surface of the user's sweep; its forms extend the surface outside the trained depths."""

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
        """Penalties by the mean loss of all draws: zero at the best whole number of layers."""
        mean = self.own.surface.profile(math.log(self.n_params)).mean(axis=0, keepdims=True)
        return self.own.surface.above_best(mean, depths, self.own.trained)[0]

    def drawn(self, depths: np.ndarray) -> np.ndarray:
        return self.own.surface.penalties(self.n_params, depths, self.own.trained)

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """Interval by quantiles, since the rows of ``drawn`` are draws of the surface."""
        tail = (1 - self.own.surface.record.confidence) / 2
        low, high = np.nanquantile(values, [tail, 1 - tail])
        return float(low), float(high)


@dataclass(frozen=True)
class Tokens:
    """Tokens of training: a total, or a number per parameter of the blocks."""

    count: float | None = None
    per_param: float = TOKENS_PER_PARAM

    def at(self, n_params: float) -> float:
        return self.per_param * n_params if self.count is None else self.count

    def __str__(self) -> str:
        if self.count is not None:
            return f"{format_count(self.count)} tokens"
        return f"{self.per_param:g} tokens per parameter"


SIZES_KEPT = 128  # holds two budgets
FORMS = ("all", "power", "theory")
QUANTITIES = ("depth", "shallow", "deep")


@dataclass(frozen=True)
class Predicted:
    """Prediction of all sources for a similar recipe, as a law; with ``own``, for the user's recipe outside its losses.

    everyone: the common part of the sources. form: form of the curve of all recipes: ``all``, averaged by evidence, or
    one: ``power`` of N, or ``theory``'s logarithm.
    """

    sources: tuple[Evidence, ...]
    everyone: Populations
    tokens: Tokens = Tokens()
    own: OwnLosses | None = None
    form: str = FORMS[0]

    name: ClassVar[str] = "public evidence"

    @cached_property
    def _compared(self) -> list[float]:
        """Ranges of sizes at which shapes were trained and compared at equal size."""
        return [n for source in self.sources if source.kind in ("losses", "optima") for n in source.depth.n_params]

    @cached_property
    def valid_from(self) -> float:
        return min(self._compared)

    @cached_property
    def valid_to(self) -> float:
        return max(self._compared)

    def recipe(self, name: str) -> Recipe:
        """Draws for one recipe: ln of the best ``depth``, or ln of the price on its ``shallow`` or ``deep`` side."""
        if name not in self._recipes:
            own = self.own.source[name] if self.own and self.own.bounded else None
            bounds = self.own.bounds if self.own and name == "depth" else ()
            axis = SCORES + QUANTITIES.index(name)
            self._recipes[name] = recipe(getattr(self.everyone, name), own, bounds, axis)
        return self._recipes[name]

    @cached_property
    def _recipes(self) -> dict[str, Recipe]:
        return {}

    @cached_property
    def _losses(self) -> dict[float, PredictedLoss]:
        return {}

    def loss(self, n_params: float) -> PredictedLoss:
        """Loss at a size, cached, since tables of shapes, risks and constraints need the same sizes repeatedly."""
        found = self._losses.get(n_params)
        if found is None:
            found = self._losses[n_params] = PredictedLoss(n_params, self)
            if len(self._losses) > SIZES_KEPT:
                del self._losses[next(iter(self._losses))]  # the oldest
        return found

    def extrapolation(self, n_params: float) -> float:
        """Factor by which the size lies outside the compared sizes, public or own; 1 inside."""
        factor = outside(n_params, self.valid_from, self.valid_to)
        if self.own is None or not self.own.bounded:
            return factor
        return min(factor, outside(n_params, self.own.low, self.own.high))

    def depth(self, n_params: float) -> tuple[float, float, float]:
        """Best depth of a similar recipe: median and 95 % interval (L*, low, high)."""
        return self.loss(n_params).best_depth


WHOLE, WITHIN = 48, 4.0  # whole numbers of layers near the best depth, and their ratio to it
COARSE = 6  # one in six of them is priced first, and then those beside the cheapest: the expected price is smooth
NEWTON_STEPS = 12


@dataclass(frozen=True)
class PredictedLoss(LossAt):
    """Losses of a recipe similar to the public sources, in expectation over its draws."""

    law: Predicted

    @property
    def tag(self) -> str:
        own = self.law.own
        beside = ", with the prices of your own losses near their sizes" if own and own.bounded else ""
        return f"{self.slope_tag}; price of a depth (in size) from {len(self.law.sources)} public sources{beside}"

    @property
    def slope_tag(self) -> str:
        said = super().slope_tag
        return said if self.law.own is None else f"{said}, as steep as your own losses at their end"

    def level_of(self, n_params: float) -> float:
        return levels.level(n_params) if self.law.own is None else self.law.own.level_of(n_params)

    @cached_property
    def slope(self) -> float:
        return levels.slope(self.n_params) if self.law.own is None else self.law.own.slope(self.n_params)

    @cached_property
    def ln_depth(self) -> np.ndarray:
        """Draws (D,) of ln of the best depth."""
        return np.maximum(self._drawn("depth"), 0.0)

    @cached_property
    def _prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Prices (D,) on the shallow and on the deep side."""
        return np.exp(self._drawn("shallow")), np.exp(self._drawn("deep"))

    def _drawn(self, name: str) -> np.ndarray:
        ratio = self.law.tokens.at(self.n_params) / (TOKENS_PER_PARAM * self.n_params)
        return self.law.recipe(name).at(math.log(self.n_params) - CENTRE, math.log(ratio))

    @cached_property
    def best_depth(self) -> tuple[float, float, float]:
        low, middle, high = np.exp(quantiles(self.ln_depth, [TAIL, 0.5, 1.0 - TAIL]))
        return float(middle), float(low), float(high)

    @cached_property
    def depths(self) -> np.ndarray:
        return _around(self.best_depth[0], GRID)

    def penalties(self, depths: np.ndarray) -> np.ndarray:
        """Expected penalties (M,): nats above the whole number of layers that is best in expectation."""
        rows = self.drawn(np.append(np.asarray(depths, dtype=float), self._best_layers)).mean(axis=0)
        return np.maximum(rows[:-1] - rows[-1], 0.0)

    @cached_property
    def _known(self) -> dict[float, np.ndarray]:
        """Draws (D,) of nats above the best depth of each draw, cached by depth."""
        return {}

    def drawn(self, depths: np.ndarray) -> np.ndarray:
        """Draws (D, M): nats of ``depths`` above the best depth of each draw."""
        asked = np.asarray(depths, dtype=float).tolist()
        if new := [depth for depth in dict.fromkeys(asked) if depth not in self._known]:
            self._known.update(zip(new, (self.slope * self._priced(np.array(new))).T.copy(), strict=True))
        return np.stack([self._known[depth] for depth in asked], axis=1)

    @cached_property
    def _best_layers(self) -> float:
        """Whole number of layers that is best in expectation."""
        if self.law.own is not None:
            middle = float(np.exp(np.median(self.ln_depth)))
            whole = np.unique(np.maximum(1.0, np.geomspace(middle / WITHIN, middle * WITHIN, WHOLE).round()))
            near = COARSE * int(self._expected(whole[::COARSE]).argmin())
            whole = whole[max(0, near - COARSE + 1) : near + COARSE]
        else:
            # the expected price is convex in ln L: its slope, Σ κ·(ln L − ln L*), is zero once
            at = float(self.ln_depth.mean())
            for _ in range(NEWTON_STEPS):
                price = np.where(self.ln_depth > at, *self._prices)
                at = float((price @ self.ln_depth) / price.sum())
            whole = np.maximum(1.0, np.array([math.floor(math.exp(at)), math.ceil(math.exp(at))], dtype=float))
        return float(whole[self._expected(whole).argmin()])

    def _expected(self, depths: np.ndarray) -> np.ndarray:
        """Sums (M,) over the draws of the prices of ``depths``."""
        rows = self._priced(depths)
        return np.asarray(np.ones(len(rows)) @ rows)  # a sum as a product: a fifth of the time of `mean`

    def _priced(self, depths: np.ndarray) -> np.ndarray:
        """Prices (D, M) of ``depths`` in ln N, per draw."""
        best, own = self.ln_depth, self.law.own
        shallow, deep = (side[:, None] for side in self._prices)
        apart = np.log(depths)[None] - best[:, None]
        general = np.where(apart < 0, shallow, deep) * apart**2
        if own is None or not own.bounded:
            return general
        near = own.low if self.n_params < own.low else own.high
        share = math.exp(-abs(math.log(self.n_params / near)) / LENGTH)
        moved = np.log(depths)[None] - (best - self.law.loss(near).ln_depth)[:, None]
        rows = _interpolated(moved, own.surface.grid, own.profiles[near])
        return share * rows + (1.0 - share) * general


def _interpolated(at: np.ndarray, grid: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Values (D, M) of ``rows`` (D, G) over ``grid`` (G,), interpolated at the places ``at`` (D, M) of each row."""
    place = np.interp(at, grid, np.arange(len(grid)))
    left = np.minimum(place.astype(np.intp), len(grid) - 2)
    share = place - left
    left += len(grid) * np.arange(len(rows))[:, None]  # places in the flat rows: two thirds of the time of two indices
    flat = rows.ravel()
    low = flat.take(left)
    return np.asarray(low + share * (flat.take(left + 1) - low))


def public(tokens: Tokens | None = None, own: OwnLosses | None = None) -> Predicted:
    """Prediction of the package's own sources."""
    return Predicted(read(), read_populations(), tokens or Tokens(), own)


def one_form(law: Predicted, form: str) -> Predicted:
    """Prediction ``law`` restricted to one form of the common curve: ``power`` or ``theory``."""
    forms: dict[str, Population] = {"power": read_populations().power, "theory": read_populations().theory}
    return replace(law, everyone=replace(law.everyone, depth=forms[form]), form=form)
