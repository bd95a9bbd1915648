"""Sources of a guideline: each makes draws of the best depth and of the price of a wrong one at any size, and is
trusted by one rule (``judge``). README.md tells who answers at which sizes, and the rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dwsweep import published_law
from dwsweep.errors import argument
from dwsweep.evidence import Evidence, Populations, Recipe, levels, read, read_populations, recipe
from dwsweep.evidence.joined import JointPosterior, contradicted, joined
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
from dwsweep.fit.statistics import laws
from dwsweep.fit.statistics.laws import RECIPE_FACTOR, outside
from dwsweep.guide.answers import Trust
from dwsweep.guide.losses import TAIL, LossAt, TrainingTokens, parabola
from dwsweep.guide.own import OWN_REACH, OwnBudgets, OwnLosses, Window
from dwsweep.interval import NORMAL_95, both_ends
from dwsweep.text import NATS, format_count, format_factor

if TYPE_CHECKING:
    from dwsweep.records.fit import FitResult, TrainedNets

PUBLIC = "public evidence"
QUANTITIES = ("depth", "shallow", "deep")
COMPARED = ("losses", "optima")  # kinds of sources that compare shapes at equal size
FAR = 10.0  # factor outside the range beyond which a projection is far and public evidence names no best depth
SIZES_KEPT = 128  # two budgets
STEP = 0.05  # distance in ln N of sizes between which the cost of a depth is straight
NEAR_SIZE = 3.0  # factor in N between sizes that are near each other
BY_LOSSES, DRIFT = 6, 7  # axes of the draws: which are of the joint posterior, and how their prices drift
FEWEST_PAIRS = 50.0  # effective pairs of draws of own losses and public evidence below which the two hardly agree
OTHER_PRICE = 2.5  # ratio of the own price of a wrong depth to the public one that public recipes hardly have
TWICE = 2.0  # factor beyond known tokens that a remark names, and beyond known depths that costs trust


def compared_sizes() -> tuple[float, float]:
    """Smallest and largest size at which public sources trained and compared shapes at equal size."""
    sizes = [n for source in read() if source.kind in COMPARED for n in source.depth.n_params]
    return min(sizes), max(sizes)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Source of answers by public evidence on a similar recipe; with ``own`` losses, on the user's recipe.

    notes: on the source. nets: of the user's fit; budgets: its best sizes at FLOPs. instead: why public evidence
    replaces the fit. unit: of the losses. misfit: True if the own losses contradict every form somewhere.
    span: smallest and largest size of the evidence; spanned: its name.
    """

    name: str = PUBLIC
    notes: tuple[str, ...] = ()
    nets: TrainedNets | None = None
    budgets: OwnBudgets | None = None
    instead: str = ""
    unit: str = NATS
    sources: tuple[Evidence, ...] = field(default_factory=read)
    everyone: Populations = field(default_factory=read_populations)
    tokens: TrainingTokens = field(default_factory=TrainingTokens)
    own: OwnLosses | None = None
    misfit: bool = False
    span: tuple[float, float] = field(default_factory=compared_sizes)
    spanned: str = "the sizes at which shapes were compared"

    @cached_property
    def loss(self) -> Callable[[float], LossAt]:
        """Loss at a size, kept, since tables of shapes, risks and constraints ask for the same sizes."""
        return lru_cache(SIZES_KEPT)(self._made)

    def depth(self, n_params: float) -> tuple[float, float | None, float | None]:
        """Best depth of a similar recipe and its 95 % interval."""
        return self.loss(n_params).best_depth

    def penalties(self, depths: np.ndarray, n_params: np.ndarray) -> np.ndarray:
        """(K,) nats of depths at sizes (K,) above the best depth there, straight in ln N between sizes ``STEP`` apart,
        which the shapes of a budget share."""
        place, found = np.log(n_params) / STEP, np.zeros(len(depths))
        for k in np.unique(np.concatenate([np.floor(place), np.floor(place) + 1.0])).tolist():
            share = np.maximum(0.0, 1.0 - np.abs(place - k))
            at = share > 0.0
            if at.any():
                found[at] += share[at] * self.loss(math.exp(STEP * k)).penalties(depths[at])
        return found

    def own_at(self, n_params: float) -> OwnLosses | None:
        """Losses of the user behind the answer at a size."""
        return self.own if self.own is not None and self.own.share(n_params) > 0.0 else None

    def name_at(self, n_params: float) -> str:
        """Name of the source of the answer at a size."""
        return self.name if self.own_at(n_params) is None else f"your losses and {PUBLIC}"

    def error(self, n_params: float) -> float | None:
        """Monte-Carlo error of a best depth at sizes of the user's losses, layers; None elsewhere."""
        own = self.own_at(n_params)
        return own.surface.at(n_params).error if own is not None and own.away(n_params) <= 1.0 else None

    def extrapolation(self, n_params: float) -> float:
        """Factor by which the size lies outside the sizes of the source; 1 inside."""
        factor, own = outside(n_params, *self.span), self.own_at(n_params)
        return factor if own is None else min(factor, own.away(n_params))

    def basis(self, n_params: float) -> str:
        """Basis of the answer at this size: ``compared``, a ``projection``, a ``range`` without a best, or ``law``."""
        factor = self.extrapolation(n_params)
        return "compared" if factor <= 1.0 or n_params < self.span[1] else "projection" if factor <= FAR else "range"

    @cached_property
    def _by_form(self) -> dict[str, Source]:
        every = read_populations()
        each = {"power": every.power, "theory": every.theory}
        return {form: replace(self, everyone=replace(self.everyone, depth=of)) for form, of in each.items()}

    def forms(self, n_params: float) -> dict[str, float]:
        """Best depth by every other form that fits as well."""
        drawn = {form: one._best_depths(n_params) for form, one in self._by_form.items()}
        return {form: float(np.exp(quantiles(best, [0.5])[0])) for form, best in drawn.items()}

    def reach(self, n_params: float) -> str:
        """Reach of the answer: distance of the size from the data."""
        own, span = self.own_at(n_params), " to ".join(map(format_count, self.span))
        said = [] if own is None else [_away(own.away(n_params), "the sizes of your losses")]
        said.append(_away(outside(n_params, *self.span), f"{self.spanned}, {span}"))
        return "; ".join(said)

    def _made(self, n_params: float) -> LossAt:
        """Loss at a size, by draws."""
        own = self.own_at(n_params)
        best, (shallow, deep) = self._best_depths(n_params), self._prices(n_params)
        slope = levels.slope(n_params) if self.own is None else self.own.slope(n_params)
        by_slope, priced_by = _by_slope(n_params), f"{len(self.sources)} public sources"
        window, by_losses = None, np.zeros(DRAWS, dtype=bool)
        if own is not None:
            inside, priced_by = own.away(n_params) <= 1.0, f"{priced_by} and your own losses"
            by_slope = f"{by_slope}, as steep as your own losses at their end"
            by_slope = "by the slope of your own losses" if inside else by_slope
            window, by_losses = self._window(own, n_params), places(DRAWS, BY_LOSSES) < own.share(n_params)
            part = own.price_share(n_params)
            shallow, deep = (
                public ** (1.0 - part) * mine**part
                for public, mine in zip((shallow, deep), window.own_prices, strict=True)
            )

        def priced(depths: np.ndarray) -> np.ndarray:
            y = np.log(depths)[None]
            rows = parabola(shallow, deep, y - best[:, None])
            if window is not None:
                rows[by_losses] = window.prices(y)[by_losses]
            return rows

        low, middle, high = np.exp(quantiles(best, [TAIL, 0.5, 1.0 - TAIL])).tolist()
        tag = f"{by_slope}; price of a depth (in size) from {priced_by}"
        return LossAt((middle, low, high), best, priced, slope, tag)

    def _best_depths(self, n_params: float) -> np.ndarray:
        """Draws (D,) of ln of the best depth."""
        best, own = self._drawn("depth", n_params), self.own_at(n_params)
        if own is not None:
            mine = self._own_depth(own, n_params, self.more_tokens(n_params))
            best = np.where(places(DRAWS, BY_LOSSES) < own.share(n_params), mine, best)
        return np.maximum(best, 0.0)

    def _drawn(self, name: str, n_params: float) -> np.ndarray:
        """Draws (D,) for one recipe: ln of the best ``depth``, or of the price on its ``shallow`` or ``deep`` side."""
        ratio = self.tokens.at(n_params) / (TOKENS_PER_PARAM * n_params)
        return self._recipes[name].at(math.log(n_params) - CENTRE, math.log(ratio))

    def _prices(self, n_params: float) -> tuple[np.ndarray, np.ndarray]:
        """Prices (D,) on the shallow and on the deep side, by public evidence."""
        return np.exp(self._drawn("shallow", n_params)), np.exp(self._drawn("deep", n_params))

    @cached_property
    def _recipes(self) -> dict[str, Recipe]:
        return {name: recipe(getattr(self.everyone, name), SCORES + k) for k, name in enumerate(QUANTITIES)}

    @cached_property
    def joined(self) -> JointPosterior:
        """Joint posterior of the own losses and public evidence."""
        assert self.own is not None
        return joined(self.everyone, self.own.kept)

    def _window(self, own: OwnLosses, n_params: float) -> Window:
        """Prices by the joint posterior at the nearest own size."""
        near, drawn = own.nearest(n_params), self.joined
        away, x, best = math.log(n_params / near), math.log(near), self._own_depth(own, near, 0.0)
        rows = np.where(own.depths.known[:, None], own.surface.profile(x) / own.slope(near), np.nan)[drawn.which]
        shallow, deep = (side[drawn.prices] for side in self._prices(near))
        local = PRICE_LOCAL * math.sqrt(-math.expm1(-2.0 * abs(away) / LENGTH))
        drift = PRICE_SLOPE[0] * away + math.hypot(PRICE_OWN_SLOPE * away, local) * normal_scores(DRAWS, DRIFT)
        moved = self._own_depth(own, n_params, self.more_tokens(n_params)) - best
        return Window(best, moved, own.surface.reach(x), own.surface.grid, rows, shallow, deep, np.exp(drift))

    def _own_depth(self, own: OwnLosses, n_params: float, more_tokens: float) -> np.ndarray:
        """(D,) ln of the best depth by the joint posterior: at own sizes each draw of the fit, where it lies between
        the depths tried. more_tokens: see ``more_tokens``."""
        x, drawn = math.log(n_params), self.joined
        found = drawn.depth.at(x - CENTRE)
        if own.away(n_params) <= 1.0:
            (low, high), best = own.surface.reach(x), own.surface.drawn_depths(x)[drawn.which]
            beyond = drawn.depth.beyond(x - CENTRE, np.where(best <= low, low, high), np.where(best <= low, -1.0, 1.0))
            of_fit = np.where((best > low) & (best < high), best, beyond)
            found = np.where(own.depths.known[drawn.which], of_fit, found)
        population = drawn.depth.everyone
        assert isinstance(population, Population)
        return found + population.tokens * more_tokens

    def more_tokens(self, n_params: float) -> float:
        """ln of the tokens asked for over the tokens of the own losses; 0 if none are asked for."""
        if self.own is None or self.tokens == TrainingTokens():
            return 0.0
        return math.log(self.tokens.at(n_params) / (self.own.tokens or TOKENS_PER_PARAM * n_params))

    def compared_tokens(self, n_params: float) -> tuple[float, float]:
        """Fewest and most tokens per parameter after which shapes of about this size were compared."""
        near, own = min(max(n_params, self.span[0]), self.span[1]), self.own_at(n_params)
        every = (source.depth for source in self.sources if source.kind in COMPARED)
        rows = [pair for one in every for pair in zip(one.n_params, one.tokens_per_param, strict=True)]
        ratios = [TOKENS_PER_PARAM, *(ratio for n, ratio in rows if max(n / near, near / n) <= NEAR_SIZE)]
        if own is not None and own.tokens:
            ratios.append(own.tokens / own.nearest(n_params))
        return min(ratios), max(ratios)

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

    def doubts(self, n_params: float, depth: float | None) -> tuple[list[str], list[str]]:
        """Reasons for low trust, and reasons against high trust, at a size where ``depth`` is to be built."""
        doubts, remarks, own = list[str](), list[str](), self.own_at(n_params)
        ratio = self.tokens.at(n_params) / n_params
        least, most = self.compared_tokens(n_params)
        if (away := outside(ratio, least, most)) > TWICE:
            said = f"{format_count(ratio)} tokens per parameter are {format_factor(away)} times outside the tokens "
            said += f"compared at such sizes, {least:.3g} to {most:.3g}"
            (doubts if away > FAR else remarks).append(said)
        if own is None:
            return doubts, remarks
        if self.misfit:
            remarks.insert(0, "at some sizes no form fits your losses")
        here, both = own.away(n_params) <= 1.0, own.bounds_both(n_params)
        if not both:
            remarks.append(
                f"at {format_count(own.nearest(n_params))} your losses bound the best depth on one side at most"
            )
        if not (here and both):
            if found := contradicted(self.everyone, own.depths):
                span = both_ends([math.exp(x + CENTRE) for x in found], format_count, " to ")
                doubts.append(f"your losses contradict public evidence on the best depth at {span}")
            elif self.joined.ess < FEWEST_PAIRS:
                doubts.append("hardly any recipe of public evidence agrees with your losses")
        if own.away(n_params) > FAR:
            sides = zip(self._window(own, n_params).own_prices, self._prices(n_params), strict=True)
            price = math.sqrt(math.prod(float(np.median(mine) / np.median(public)) for mine, public in sides))
            if abs(math.log(price)) > math.log(OTHER_PRICE):
                doubts.append(
                    f"your losses price a wrong depth {format_factor(price)} times as high as public evidence does, "
                    "and it answers for the most part so far from them"
                )
        shallow, deep = self.depths_near(n_params)
        if depth is not None and not shallow / TWICE <= depth <= TWICE * deep:
            doubts.append(
                f"{depth:.0f} layers lie more than twice beyond the depths of your nets and of public sources near "
                f"this size, {shallow:.0f} to {deep:.0f}"
            )
        if own.tokens and abs(more := self.more_tokens(n_params)) > math.log(TWICE):
            remarks.append(
                f"your losses are after {format_count(own.tokens)} tokens; the best depth is moved to "
                f"{format_count(own.tokens * math.exp(more))} by the trend of public sources"
            )
        return doubts, remarks


def _by_slope(n_params: float) -> str:
    """Name of the law whose slope converts size into nats."""
    return f"by the slope of {levels.law_at(n_params).name}"


def _away(factor: float, where: str) -> str:
    return f"inside {where}" if factor <= 1.0 else f"{format_factor(factor)} times outside {where}"


# the best depths of Gemstones, CompleteP and mlfoundations' grid over the published law's
NEWER_DATA = "Newer public data put the best depth at 0.3 to 1.0 times this between 5e7 and 7e8 parameters"
# ASSUMED for a law alone: κ of w = κ·(ln L − ln L*)², with its 95 %. Four sources have 0.08 to 0.32 between 3e7 and
# 1.5e9 parameters, without a common trend.
LAW_PRICE, LAW_PRICE_ENDS = 0.19, (0.08, 0.32)


@dataclass(frozen=True, kw_only=True)
class ByLaw(Source):
    """The published law, with alternatives refitted to points of its law at the depths 6 to 36."""

    name: str = published_law.NAME
    span: tuple[float, float] = published_law.TRAINED_N_PARAMS
    spanned: str = "the range of the law"
    law: laws.Law = field(default_factory=laws.published)
    alternatives: tuple[laws.Law, ...] = field(default_factory=laws.published_alternatives)

    def _made(self, n_params: float) -> LossAt:
        best = self.law.depth(n_params)[0]
        assert best is not None, "the published law has a best depth at every size"
        theta_a, theta_b, price, recipe_of = (normal_scores(DRAWS, axis) for axis in range(4))
        theta = np.stack([theta_a, theta_b], axis=1) @ np.linalg.cholesky(np.array(published_law.COVARIANCE)).T
        theta = np.array(self.law.theta) + theta
        theta[:, 0] -= recipe_of * math.log(RECIPE_FACTOR) / NORMAL_95 / 2.0  # a size N·r is a width of 1/√r
        ln_depth = np.log(self.law.equation.optimal_depth(theta, n_params))
        low, high = (abs(math.log(end / LAW_PRICE)) / NORMAL_95 for end in LAW_PRICE_ENDS)
        kappa = LAW_PRICE * np.exp(np.where(price < 0.0, low, high) * price)
        ends = laws.law_interval([self.law, *self.alternatives], n_params, laws.GRID_STEP)
        tag = (
            f"ASSUMED: depths priced at {LAW_PRICE}·(ln L/L*)² of ln N, with {LAW_PRICE_ENDS[0]} to "
            f"{LAW_PRICE_ENDS[1]} for {LAW_PRICE}; {_by_slope(n_params)}"
        )

        def priced(depths: np.ndarray) -> np.ndarray:
            return parabola(kappa, kappa, np.log(depths)[None] - ln_depth[:, None])

        return LossAt((best, *ends), ln_depth, priced, levels.slope(n_params), tag)

    def basis(self, n_params: float) -> str:
        return "law"

    def forms(self, n_params: float) -> dict[str, float]:
        found = ((law.form, law.depth(n_params)[0]) for law in self.alternatives)
        return {form: depth for form, depth in found if depth is not None}

    def doubts(self, n_params: float, depth: float | None) -> tuple[list[str], list[str]]:
        every = [self.depth(n_params)[0], *self.forms(n_params).values()]
        return [
            f"a law alone: forms that fit as well put the best depth at {min(every):.3g} to {max(every):.3g}, another "
            f"recipe may shift it by {RECIPE_FACTOR:g} times in N (ASSUMED); costs from an ASSUMED price of depth"
        ], []


def published_source() -> Source:
    """Source of the published law."""
    note = (
        f"ln d_x = {published_law.A} + {published_law.B:.4f}·L, Levine et al. 2020 (arXiv 2006.12467); intervals hold "
        f"other forms through its points, recipes that shift it {RECIPE_FACTOR:g} times in N (ASSUMED), a step of its "
        f"grid of depths, and a covariance that is {published_law.COVARIANCE_TAG}"
    )
    return ByLaw(notes=(NEWER_DATA, note))


SPEAKS_FOR = (
    "the evidence covers decoders that predict the next token of text; your own losses (`dwsweep fit`) cover "
    "your recipe"
)


def public_source(tokens: TrainingTokens | None = None, notes: Sequence[str] = ()) -> Source:
    """Public evidence for a similar recipe. tokens: of training."""
    found = Source(tokens=tokens or TrainingTokens())
    names = ", ".join(source.name for source in found.sources)
    said = f"{len(found.sources)} public sources ({names}), after {found.tokens}; --sources lists the answer of each"
    return replace(found, notes=(*notes, SPEAKS_FOR, said))


def fitted_source(path: str | Path, tokens: TrainingTokens | None = None) -> Source:
    """Losses of the user's fit together with public evidence; public evidence alone far from them.

    Raises:
        InputError: ``path`` holds no fit.json.
    """
    from dwsweep.records import fit as fit_record

    return source_of(fit_record.read(path, argument("fit")), path, tokens)


def source_of(fit: FitResult, path: str | Path, tokens: TrainingTokens | None = None) -> Source:
    """Source of a fit that was already read from ``path``, as in ``fitted_source``."""
    from dwsweep.fit.statistics.ask import LossSurface

    notes, record, axis = [f"{path}: {fit.law_statement}"], fit.surface, fit.axis
    known: dict[str, Any] = {"nets": fit.nets, "budgets": OwnBudgets.of(fit)}
    if record is None or record.flat or not record.bounded or axis != "n_params":
        why = "shows no best depth" if axis == "n_params" else f"compares at equal {axis}, not at equal parameters"
        return replace(
            public_source(tokens, notes), **known, instead=f"{path}: this fit {why}: public evidence answers"
        )
    at_one_budget = fit.adjusted is not None and len(fit.adjusted.at_budgets) == 1
    own = OwnLosses(LossSurface(record), fit.held_tokens, fit.unit == NATS, at_one_budget)
    two_sided = any(row.depth is not None for row in record.optima)
    span = both_ends((own.low, own.high), format_count, " to ")
    notes.append(
        f"your own losses, from {span}{'' if two_sided else ', which bound the best depth on one side'}, answer "
        f"together with public evidence; from {OWN_REACH:g} times outside them on, public evidence alone"
    )
    notes += [f"fit: {line}" for line in fit.warnings if line.startswith("surface")]
    if fit.adjusted:  # the first note has the values that are held
        notes += [f"fit: {line}" for line in fit.provenance.account.notes[:1]]
    misfit = record.held_out is not None and record.held_out.too_few
    return replace(public_source(tokens, notes), **known, own=own, misfit=misfit, unit=fit.unit)


SURE, FAIR, GRAVE = 5.0, 6.0, 25.0  # % of compute: regret at 95 %, in expectation, and again at 95 %


def judge(source: Source, n_params: float, depth: float | None = None, wasted: float = 0.0) -> Trust:
    """Trust at ``n_params``, by the rule in README.md. depth: to build; None: of least expected loss. wasted: percent
    of compute that the best shape that one can build wastes at equal size."""
    depth = depth or source.loss(n_params).best
    risk = source.loss(n_params).risk(depth)
    expected, worst = risk.expected.less_compute, risk.worst.less_compute
    doubts, remarks = source.doubts(n_params, depth)
    far = source.extrapolation(n_params) > FAR
    if not far and expected > FAIR:
        doubts.append(f"the regret at equal size is {expected:.1f} % of compute in expectation")
    elif not far and worst > GRAVE:
        doubts.append(f"the regret at equal size may be {worst:.1f} % of compute (95 %)")
    own = source.own_at(n_params)
    measured = own is not None and own.away(n_params) <= 1.0 and own.bounds_both(n_params)
    level = "low" if doubts or far else "medium"
    if level == "medium" and measured and worst <= SURE and wasted <= FAIR and not remarks:
        level = "high"
    reasons = [*doubts, *remarks, source.reach(n_params)]
    if wasted > FAIR:
        reasons.insert(0, f"the best shape that one can build wastes {wasted:.1f} % of compute against the best depth")
    return Trust(level, (*reasons, "no losses of your own recipe" if own is None else "your recipe's own losses"))
