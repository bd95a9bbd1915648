"""Own losses as a source of best depths and of prices.

At the own sizes all draws are of the joint posterior of own losses and public evidence (evidence/joined.py); beyond, a
share of them that falls to none at OWN_REACH times. A draw prices a depth by the own surface at the nearest own size,
moved along with L*, and by a parabola beyond the depths tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dwsweep.evidence import OwnDepths, levels
from dwsweep.evidence.joined import LITTLE
from dwsweep.evidence.random_effects import CENTRE
from dwsweep.evidence.summary import interpolated, own_slope
from dwsweep.fit.statistics.laws import outside
from dwsweep.guide.losses import TAIL, parabola
from dwsweep.interval import Interval, both_ends
from dwsweep.records.answers import FLOPS
from dwsweep.text import format_count

if TYPE_CHECKING:
    from dwsweep.fit.statistics.ask import LossSurface
    from dwsweep.records.fit import FitResult

# ASSUMED interval of the power of FLOPs by which the best size grows: 0.5 (Hoffmann et al. 2022), 0.73 (Kaplan et al.
# 2020)
USUAL_POWERS = 0.5, 0.4, 0.7
STEEPNESS = (0.05, 4.0)  # limits of the ratio of the user's slope to published slopes; larger ratios are noise
OWN_REACH = 30.0  # factor beyond own sizes from which own losses change nothing
KNOWN_SIZES = 3  # own sizes at which the joint posterior is drawn
MOST_LAYERS = 16.0  # layers up to which only whole numbers of them are a best depth


@dataclass(frozen=True)
class OwnBudgets:
    """Best sizes (3, R) and their tokens (R,) at FLOPs (R,), rising, by a user's fit of runs of several lengths.
    powers: (3,) of the FLOPs by which the best size grows beyond them; assumed: True if the fit shows none."""

    flops: np.ndarray
    tokens: np.ndarray
    sizes: np.ndarray
    powers: np.ndarray
    assumed: bool

    @classmethod
    def of(cls, fit: FitResult) -> OwnBudgets | None:
        """The sizes that the fit bounds on both sides; None without any."""
        record = fit.adjusted
        if record is None:
            return None
        rows = [row for row in (*record.equal, *record.at_budgets) if row.equal == FLOPS and row.tokens]
        known = {row.cost: row for row in rows if row.cost and row.n_params and row.n_params_interval.bounded}
        if not known:
            return None
        table = [(c, row.tokens, row.n_params, row.n_params_low, row.n_params_high) for c, row in sorted(known.items())]
        flops, tokens, *sizes = np.array(table, dtype=float).T
        grown = [row for row in record.growth if row.equal == FLOPS and row.column == "n_params"]
        grown = [row for row in grown if row.estimate_interval.bounded]
        powers = [(row.estimate, row.estimate_low, row.estimate_high) for row in grown] or [USUAL_POWERS]
        return cls(flops, tokens, np.stack(sizes), np.array(powers[0], dtype=float), not grown)

    def at(self, flops: float) -> tuple[Interval, float] | None:
        """(best size with its interval, its tokens); None from OWN_REACH times outside of the sizes measured."""
        x, known = math.log(flops), np.log(self.flops)
        beyond = min(x - known[0], 0.0) + max(x - known[-1], 0.0)
        n, low, high = (float(np.interp(x, known, row)) for row in np.log(self.sizes))
        growth, *ends = self.powers * beyond
        size = Interval(n + growth, low + min(ends), high + max(ends)).map(math.exp)
        tokens = math.exp(np.interp(x, known, np.log(self.tokens)) + beyond - growth)
        inside = outside(size.value or 0.0, self.sizes[0, 0], self.sizes[0, -1]) < OWN_REACH
        return (size, tokens) if inside else None

    def said(self, size: Interval) -> str:
        """Origin of the size, and its interval, in words."""
        span = both_ends(self.flops, format_count, " to ")
        how = f"a growth of FLOPs^{self.powers[0]:.2f} beyond, {'assumed' if self.assumed else 'measured'}"
        return f"your own runs put the best size at {size.ends(format_count)}, by those of {span} FLOPs and {how}"


@dataclass(frozen=True)
class OwnLosses:
    """Own losses: the surface of a user's fit. tokens: of training of its nets, if they have one count. at_one_budget:
    True if all nets were trained at equal FLOPs or time: the losses along N do not show what a larger net gains."""

    surface: LossSurface
    tokens: float | None = None
    in_nats: bool = True
    at_one_budget: bool = False

    @cached_property
    def sizes(self) -> list[float]:
        """Sizes that enough depths have, rising, ln N."""
        return [row.ln_x for row in self.surface.record.optima]

    @property
    def low(self) -> float:
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
        from dwsweep.fit.statistics.posterior import between

        surface = self.surface
        low, high = np.array([surface.reach(x) for x in self.sizes]).T
        best = np.stack([surface.drawn_depths(x) for x in self.sizes], axis=1)
        ends = [between(surface.grid, surface.profile(x), np.array(surface.reach(x))) for x in self.sizes]
        rises = [np.ptp(rows, axis=1) / self.slope(math.exp(x)) for rows, x in zip(ends, self.sizes, strict=True)]
        known = ~surface.posterior.without_effect
        return OwnDepths(np.array(self.sizes) - CENTRE, low, high, best, np.stack(rises, axis=1), known)

    @property
    def kept(self) -> OwnDepths:
        """Draws at the few sizes at which the joint posterior is drawn."""
        return self.depths.among(np.unique(np.linspace(0, len(self.sizes) - 1, KNOWN_SIZES).round().astype(int)))

    def nearest(self, n_params: float) -> float:
        """The nearest of the own sizes."""
        return min(max(n_params, self.low), self.high)

    def bounds_both(self, n_params: float) -> bool:
        """Test that the losses bound the best depth on both sides at the nearest own size; at one layer, the least
        depth, there is no lower bound."""
        x = math.log(self.nearest(n_params))
        (low, high), best = self.surface.reach(x), self.surface.drawn_depths(x)
        return bool((best >= high).mean() <= TAIL and (low <= 0.0 or (best <= low).mean() <= TAIL))

    def slope(self, n_params: float) -> float:
        """Slope −dloss/d ln N of the best depth, nats: outside the own sizes the published laws' slope, as steep as the
        losses at their end; at OWN_REACH no steeper than those laws, if both are in nats. The ratio of both is bounded
        so that the loss does not fall below zero."""
        if self.at_one_budget:
            return levels.slope(n_params)
        record, (least, most) = self.surface.record, STEEPNESS
        x = min(max(math.log(n_params), record.low), record.high)
        steep = own_slope(self.surface, x) / levels.slope(math.exp(x))
        bounded = min(max(steep, least), most, self.surface.level(x) / levels.level(math.exp(x)))
        return bounded ** (self.price_share(n_params) if self.in_nats else 1.0) * levels.slope(n_params)


@dataclass(frozen=True)
class Window:
    """Prices of depths by own losses between the ``ends`` of the depths tried, ln L, and by a parabola beyond. best:
    (D,) ln of the best depth at the size of the losses, which is moved by ``moved``. rows: (D, G) prices over ``grid``,
    NaN in a draw without an effect of depth. shallow, deep: (D,) public prices κ; drift: (D,) a factor on all prices.
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
        return interpolated(np.clip(at, *self.ends), self.grid, self.rows)

    def _public(self, at: np.ndarray) -> np.ndarray:
        return parabola(self.shallow, self.deep, at - self.best[:, None])

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
