"""Losses of other depths at a size: by public evidence, by a user's losses, or by a law taken as true.

A wrong depth is priced in size first: L layers do as well as the best depth at N·exp(−w). Nats are w times the slope
−dloss/d ln N, so the percent of compute that a shape wastes, 100·(1 − e^(−w)), needs no level of the loss. By public
evidence, for each draw of a recipe like the public ones (evidence/random_effects.py),

    w(L) = κ·(ln L − ln L*)²,    κ of its own on either side of L*,

and, beside losses of one's own, for each draw of the joint posterior of own losses and public evidence
(evidence/joined.py), the price of the own surface at their nearest size, moved along with L*, and a parabola beyond the
depths tried. At their sizes all draws are of this kind. Beyond, a share of them that falls to none at OWN_REACH times:
the others are draws of public evidence alone, so nothing jumps where the losses or their reach end.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.evidence import (
    Evidence,
    Joined,
    OwnDepths,
    Populations,
    Recipe,
    joined,
    levels,
    read,
    read_populations,
    recipe,
)
from dwsweep.evidence.joined import LITTLE, contradicted
from dwsweep.evidence.random_effects import (
    CENTRE,
    DRAWS,
    LENGTH,
    PRICE_LOCAL,
    PRICE_OWN_SLOPE,
    PRICE_SLOPE,
    SCORES,
    TOKENS_PER_PARAM,
    Population,
    normal_scores,
    places,
    quantiles,
)
from dwsweep.evidence.summary import own_slope
from dwsweep.fit.laws import Law, outside
from dwsweep.guide.answers import Cost, NearBest
from dwsweep.text import format_count

if TYPE_CHECKING:
    from dwsweep.fit.ask import LossSurface

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
OWN_REACH = 30.0  # factor beyond own sizes from which own losses change nothing
KNOWN_SIZES = 3  # own sizes at which the joint posterior is drawn
BY_LOSSES, DRIFT = 6, 7  # axes of the draws: which are of the joint posterior, and how their prices drift
MOST_LAYERS = 16.0  # layers up to which only whole numbers of them are a best depth


@dataclass(frozen=True)
class OwnLosses:
    """Own losses: the surface of a user's fit. tokens: of training of its nets, if they have one count. in_nats: False
    for losses in bits."""

    surface: LossSurface
    tokens: float | None = None
    in_nats: bool = True

    @cached_property
    def sizes(self) -> list[float]:
        """Sizes that enough depths have, rising, ln N."""
        return [row.ln_x for row in self.surface.record.optima]

    @property
    def low(self) -> float:
        """The smallest and the largest of ``sizes``, as N."""
        return math.exp(self.sizes[0])

    @property
    def high(self) -> float:
        return math.exp(self.sizes[-1])

    def away(self, n_params: float) -> float:
        """Factor by which a size lies outside the own sizes; 1 inside."""
        return outside(n_params, self.low, self.high)

    def share(self, n_params: float) -> float:
        """Share of draws that rest on the losses: 1 at their sizes, falling smoothly to 0 at OWN_REACH times."""
        far = self._far(n_params)
        return 1.0 - far * far * (3.0 - 2.0 * far)

    def price_share(self, n_params: float) -> float:
        """Part of the logarithm of the other draws' prices that is the losses' own: it falls late, since a recipe that
        punishes a wrong depth at one size does so at others."""
        return 1.0 - self._far(n_params) ** 4

    def _far(self, n_params: float) -> float:
        return min(1.0, math.log(self.away(n_params)) / math.log(OWN_REACH))

    @cached_property
    def depths(self) -> OwnDepths:
        """Draws of the best depth at all ``sizes``."""
        surface = self.surface
        low, high = np.array([surface.reach(x) for x in self.sizes]).T
        best = np.stack([surface.drawn_depths(x) for x in self.sizes], axis=1)
        rises = [np.ptp(self.prices(x, np.array(surface.reach(x))), axis=1) for x in self.sizes]
        known = ~surface.posterior.without_effect
        return OwnDepths(np.array(self.sizes) - CENTRE, low, high, best, np.stack(rises, axis=1), known)

    def prices(self, x: float, y: np.ndarray) -> np.ndarray:
        """(D, M) price in ln N of y = ln L (M,) at ln N = x, up to a constant of each draw."""
        from dwsweep.fit.posterior import between

        return between(self.surface.grid, self.surface.profile(x), y) / self.slope(math.exp(x))

    def joined(self, everyone: Populations) -> Joined:
        """Joint posterior of these losses and public evidence."""
        kept = np.unique(np.linspace(0, len(self.sizes) - 1, KNOWN_SIZES).round().astype(int))
        return joined(everyone, self.depths.among(kept))

    def nearest(self, n_params: float) -> float:
        """The nearest of the own sizes."""
        return min(max(n_params, self.low), self.high)

    def bounds_both(self, n_params: float) -> bool:
        """Test that the losses bound the best depth on both sides at the nearest own size; at one layer, the least
        depth, there is no lower bound."""
        x = math.log(self.nearest(n_params))
        (low, high), best = self.surface.reach(x), self.surface.drawn_depths(x)
        return bool((best >= high).mean() <= TAIL and (low <= 0.0 or (best <= low).mean() <= TAIL))

    def level_of(self, n_params: float) -> float:
        """Loss of the best depth. Outside the sizes of the losses it falls in proportion to the published laws, with
        the losses' slope at their end."""
        inside = self._inside(n_params)
        fallen = levels.level(inside) - levels.level(n_params)
        return self.surface.level(math.log(inside)) - self._steepness(inside) * fallen

    def slope(self, n_params: float) -> float:
        """Slope −d ``level_of`` / d ln N, nats; at OWN_REACH as steep as published laws, if both are in nats."""
        share = self.price_share(n_params) if self.in_nats else 1.0
        return self._steepness(self._inside(n_params)) ** share * levels.slope(n_params)

    def _inside(self, n_params: float) -> float:
        return min(max(n_params, math.exp(self.surface.record.low)), math.exp(self.surface.record.high))

    def _steepness(self, n_params: float) -> float:
        """Slope of the own losses over the published laws' slope, bounded so that the loss does not fall below zero."""
        x = math.log(n_params)
        least, most = STEEPNESS
        steep = own_slope(self.surface, x) / levels.slope(n_params)
        return min(max(steep, least), most, self.surface.level(x) / levels.level(n_params))


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


NEAR_SIZE = 3.0  # factor in N between sizes that are near each other
SIZES_KEPT = 128  # holds two budgets
PUBLIC = "public evidence"
FORMS = ("all", "power", "theory")
QUANTITIES = ("depth", "shallow", "deep")
COMPARED = ("losses", "optima")  # kinds of sources that compare shapes at equal size


@dataclass(frozen=True)
class Predicted:
    """Prediction of all sources for a similar recipe, as a law; with ``own``, for the user's recipe.

    everyone: the common part of the sources. form: form of the curve of all recipes: ``all``, averaged by evidence, or
    one: ``power`` of N, or ``theory``'s logarithm.
    """

    sources: tuple[Evidence, ...]
    everyone: Populations
    tokens: Tokens = Tokens()
    own: OwnLosses | None = None
    form: str = FORMS[0]

    @property
    def name(self) -> str:
        return PUBLIC if self.own is None else f"your losses and {PUBLIC}"

    @cached_property
    def _compared(self) -> list[float]:
        """Ranges of sizes at which shapes were trained and compared at equal size."""
        return [n for source in self.sources if source.kind in COMPARED for n in source.depth.n_params]

    @cached_property
    def valid_from(self) -> float:
        return min(self._compared)

    @cached_property
    def valid_to(self) -> float:
        return max(self._compared)

    def compared_tokens(self, n_params: float) -> tuple[float, float]:
        """Fewest and most tokens per parameter after which shapes of about this size were compared."""
        near = min(max(n_params, self.valid_from), self.valid_to)
        rows = [
            ratio
            for source in self.sources
            if source.kind in COMPARED
            for n, ratio in zip(source.depth.n_params, source.depth.tokens_per_param, strict=True)
            if max(n / near, near / n) <= NEAR_SIZE
        ]
        if self.own is not None and self.own.tokens:
            rows.append(self.own.tokens / self.own.nearest(n_params))
        return min([*rows, TOKENS_PER_PARAM]), max([*rows, TOKENS_PER_PARAM])

    def depths_near(self, n_params: float) -> tuple[float, float]:
        """Shallowest and deepest of the own nets, and of the depths that public sources near this size name."""
        rows = [
            (abs(math.log(n / n_params)), value - source.shift)
            for source in self.sources
            for n, value in zip(source.depth.n_params, source.depth.value, strict=True)
        ]
        reach = max(math.log(NEAR_SIZE), min(rows)[0])
        known = [math.exp(value) for away, value in rows if away <= reach]
        own = [] if self.own is None else [self.own.surface.shallowest, self.own.surface.deepest]
        return min(*known, *own), max(*known, *own)

    def recipe(self, name: str) -> Recipe:
        """Draws for one recipe: ln of the best ``depth``, or ln of the price on its ``shallow`` or ``deep`` side."""
        return self._recipes.setdefault(name, recipe(getattr(self.everyone, name), SCORES + QUANTITIES.index(name)))

    @cached_property
    def _recipes(self) -> dict[str, Recipe]:
        return {}

    @cached_property
    def joined(self) -> Joined:
        """Joint posterior of the own losses and public evidence."""
        assert self.own is not None
        return self.own.joined(self.everyone)

    @cached_property
    def contradicted(self) -> tuple[float, float] | None:
        """Own sizes between which the losses contradict public evidence; None without such sizes."""
        found = None if self.own is None else contradicted(self.everyone, self.own.depths)
        return found and (math.exp(found[0] + CENTRE), math.exp(found[1] + CENTRE))

    def price_ratio(self, n_params: float) -> float:
        """Price of a wrong depth by the own losses over that by public evidence: the medians."""
        loss = self.loss(n_params)
        ratios = [
            np.median(own) / np.median(public) for own, public in zip(loss.own_prices, loss.public_prices, strict=True)
        ]
        return float(math.sqrt(ratios[0] * ratios[1]))

    def more_tokens(self, n_params: float) -> float:
        """ln of the tokens asked for over the tokens of the own losses; 0 if none are asked for."""
        if self.own is None or self.tokens == Tokens():
            return 0.0
        return math.log(self.tokens.at(n_params) / (self.own.tokens or TOKENS_PER_PARAM * n_params))

    def own_depth(self, n_params: float, more_tokens: float = 0.0) -> np.ndarray:
        """(D,) ln of the best depth by the joint posterior: at own sizes each draw of the fit, where it lies between
        the depths tried. more_tokens: see ``more_tokens``."""
        assert self.own is not None
        x, drawn = math.log(n_params), self.joined
        found = drawn.depth.at(x - CENTRE)
        if self.own.away(n_params) <= 1.0:
            (low, high), best = self.own.surface.reach(x), self.own.surface.drawn_depths(x)[drawn.which]
            beyond = drawn.depth.beyond(x - CENTRE, np.where(best <= low, low, high), np.where(best <= low, -1.0, 1.0))
            of_fit = np.where((best > low) & (best < high), best, beyond)
            found = np.where(self.own.depths.known[drawn.which], of_fit, found)
        population = drawn.depth.everyone
        assert isinstance(population, Population)
        return found + population.tokens * more_tokens

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
        return factor if self.own is None else min(factor, self.own.away(n_params))

    def depth(self, n_params: float) -> tuple[float, float, float]:
        """Best depth of a similar recipe: median and 95 % interval (L*, low, high)."""
        return self.loss(n_params).best_depth


WHOLE, WITHIN = 48, 4.0  # whole numbers of layers near the best depth, and their ratio to it
COARSE = 6  # one in six of them is priced first, and then those beside the cheapest: the expected price is smooth
NEWTON_STEPS = 12


@dataclass(frozen=True)
class PredictedLoss(LossAt):
    """Losses of a recipe similar to the public sources, or of the user's, in expectation over its draws."""

    law: Predicted

    @property
    def tag(self) -> str:
        beside = "" if self.law.own is None else " and your own losses"
        return f"{self.slope_tag}; price of a depth (in size) from {len(self.law.sources)} public sources{beside}"

    @property
    def slope_tag(self) -> str:
        if self.law.own is None:
            return super().slope_tag
        if self.law.own.away(self.n_params) <= 1.0:
            return "by the slope of your own losses"
        return f"{super().slope_tag}, as steep as your own losses at their end"

    def level_of(self, n_params: float) -> float:
        return levels.level(n_params) if self.law.own is None else self.law.own.level_of(n_params)

    @cached_property
    def slope(self) -> float:
        return levels.slope(self.n_params) if self.law.own is None else self.law.own.slope(self.n_params)

    @cached_property
    def _share(self) -> float:
        """Share of draws of the joint posterior with the own losses."""
        return 0.0 if self.law.own is None else self.law.own.share(self.n_params)

    @cached_property
    def _by_losses(self) -> np.ndarray:
        """(D,) True for a draw of the joint posterior."""
        return places(DRAWS, BY_LOSSES) < self._share

    @cached_property
    def ln_depth(self) -> np.ndarray:
        """Draws (D,) of ln of the best depth."""
        public = np.maximum(self._drawn("depth"), 0.0)
        if not self._share:
            return public
        return np.where(self._by_losses, np.maximum(self._own_depth, 0.0), public)

    @cached_property
    def _own_depth(self) -> np.ndarray:
        return self.law.own_depth(self.n_params, self.law.more_tokens(self.n_params))

    @cached_property
    def public_prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Prices (D,) on the shallow and on the deep side, by public evidence."""
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
        if self._share:
            middle = float(np.exp(np.median(self.ln_depth)))
            whole = np.unique(np.maximum(1.0, np.geomspace(middle / WITHIN, middle * WITHIN, WHOLE).round()))
            near = COARSE * int(self._expected(whole[::COARSE]).argmin())
            whole = whole[max(0, near - COARSE + 1) : near + COARSE]
        else:
            # the expected price is convex in ln L: its slope, Σ κ·(ln L − ln L*), is zero once
            at = float(self.ln_depth.mean())
            for _ in range(NEWTON_STEPS):
                price = np.where(self.ln_depth > at, *self.public_prices)
                at = float((price @ self.ln_depth) / price.sum())
            whole = np.maximum(1.0, np.array([math.floor(math.exp(at)), math.ceil(math.exp(at))], dtype=float))
        return float(whole[self._expected(whole).argmin()])

    def _expected(self, depths: np.ndarray) -> np.ndarray:
        """Sums (M,) over the draws of the prices of ``depths``."""
        rows = self._priced(depths)
        return np.asarray(np.ones(len(rows)) @ rows)  # a sum as a product: a fifth of the time of `mean`

    def _priced(self, depths: np.ndarray) -> np.ndarray:
        """Prices (D, M) of ``depths`` in ln N, per draw."""
        apart = np.log(depths)[None] - self.ln_depth[:, None]
        if self.law.own is None or not self._share:
            return _parabola(*self.public_prices, apart)
        part, window = self.law.own.price_share(self.n_params), self._window
        shallow, deep = (
            public ** (1.0 - part) * own**part for public, own in zip(self.public_prices, self.own_prices, strict=True)
        )
        rows = _parabola(shallow, deep, apart)
        rows[self._by_losses] = window.prices(np.log(depths)[None])[self._by_losses]
        return rows

    @property
    def own_prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Prices (D,) on the shallow and on the deep side, by the own losses."""
        return self._window.own_prices

    @cached_property
    def _window(self) -> Window:
        own, drawn = self.law.own, self.law.joined
        assert own is not None
        near = own.nearest(self.n_params)
        away, best = math.log(self.n_params / near), self.law.own_depth(near)
        local = PRICE_LOCAL * math.sqrt(-math.expm1(-2.0 * abs(away) / LENGTH))
        drift = PRICE_SLOPE[0] * away + math.hypot(PRICE_OWN_SLOPE * away, local) * normal_scores(DRAWS, DRIFT)
        rows = own.prices(math.log(near), own.surface.grid)
        shallow, deep = (side[drawn.prices] for side in self.law.loss(near).public_prices)
        return Window(
            best=best,
            moved=self._own_depth - best,
            ends=own.surface.reach(math.log(near)),
            grid=own.surface.grid,
            rows=np.where(own.depths.known[:, None], rows, np.nan)[drawn.which],
            shallow=shallow,
            deep=deep,
            drift=np.exp(drift),
        )


def _parabola(shallow: np.ndarray, deep: np.ndarray, apart: np.ndarray) -> np.ndarray:
    """(D, M) κ·apart², with κ (D,) of its own on either side of the best depth."""
    return np.where(apart < 0, shallow[:, None], deep[:, None]) * apart**2


@dataclass(frozen=True)
class Window:
    """Prices of depths by own losses between the ``ends`` of the depths tried, ln L, and by a parabola beyond.

    best: (D,) ln of the best depth at the size of the losses, which is moved by ``moved``. rows: (D, G) prices over
    ``grid`` up to a constant, NaN in a draw without an effect of depth. shallow, deep: (D,) prices κ of public
    evidence; drift: (D,) a factor on all prices away from the size of the losses.
    """

    best: np.ndarray
    moved: np.ndarray
    ends: tuple[float, float]
    grid: np.ndarray
    rows: np.ndarray
    shallow: np.ndarray
    deep: np.ndarray
    drift: np.ndarray

    def prices(self, y: np.ndarray) -> np.ndarray:
        """(D, M) price of y = ln L (1, M) above the best whole number of layers of each draw."""
        return self.drift[:, None] * np.maximum(self._above(y) - self._least, 0.0)

    @cached_property
    def _least(self) -> np.ndarray:
        """(D, 1) least price: of whole numbers of layers, where they are few."""
        best = np.maximum(self.best + self.moved, 0.0)[:, None]
        layers = np.exp(np.minimum(best, math.log(MOST_LAYERS)))
        whole = np.log(np.concatenate([np.maximum(1.0, np.floor(layers)), np.ceil(layers)], axis=1))
        return np.where(best < math.log(MOST_LAYERS), self._above(whole).min(axis=1, keepdims=True), self._above(best))

    def _above(self, y: np.ndarray) -> np.ndarray:
        at = y - self.moved[:, None]
        found = self._own(at) + self.scale[:, None] * (self._public(at) - self._public(np.clip(at, *self.ends)))
        return np.where(np.isnan(found), self._public(at), found)

    def _own(self, at: np.ndarray) -> np.ndarray:
        return _interpolated(np.clip(at, *self.ends), self.grid, self.rows)

    def _public(self, at: np.ndarray) -> np.ndarray:
        return _parabola(self.shallow, self.deep, at - self.best[:, None])

    @property
    def own_prices(self) -> tuple[np.ndarray, np.ndarray]:
        """Prices κ (D,) on the shallow and on the deep side, by the losses."""
        return self.drift * self.scale * self.shallow, self.drift * self.scale * self.deep

    @cached_property
    def scale(self) -> np.ndarray:
        """(D,) rise of the losses to the ends of the depths tried over that of a public recipe; 1 without an effect of
        depth."""
        at = np.clip(np.stack([np.full(len(self.best), end) for end in self.ends] + [self.best], axis=1), *self.ends)
        own, public = ((rows[:, :2] - rows[:, 2:]).sum(axis=1) for rows in (self._own(at), self._public(at)))
        found = (np.maximum(own, 0.0) + LITTLE) / (np.maximum(public, 0.0) + LITTLE)
        return np.where(np.isnan(found), 1.0, found)


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
