"""Where a guideline comes from: public evidence, one's own fit, or the published law; with its range and loss.

An own fit brings its interval along: forms that the data leave open, parameters and noise are averaged in it, and the
recipe is one's own. It answers at the sizes of its data. Elsewhere, and without one, public evidence answers, with what
differs from recipe to recipe in its interval (predicted.py). The published law's own interval is that of its two
constants alone. So for it the interval is drawn around all forms that fit its points as well, over sizes up to
RECIPE_FACTOR smaller and larger (other data, tokens, rates and blocks move a transition in N), and up to the next depth
of its grid, with which a depth ties.

Trust, by the first line that holds:

    low     the published law alone, at every size; public evidence, where the depth of least expected loss may lose
            more than SUBSTANTIAL_PUBLIC of the loss (95 %), or more than NEAR times outside its sizes; one's own
            fit with forms apart by more than FORMS_APART, or no bound on a side
    high    one's own fit, forms within FORMS_AGREE, interval (CONFIDENCE or more) within ENDS_AGREE,
            and the shape to build within SUBSTANTIAL of the loss of the best depth
    medium  else
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from dwsweep import published_law
from dwsweep.errors import argument
from dwsweep.fit import laws
from dwsweep.fit.guideline import OwnGuide, guides
from dwsweep.fit.laws import EXTRAPOLATION_LIMIT, Law, outside
from dwsweep.fit.surface import LossSurface
from dwsweep.guide.answers import Trust
from dwsweep.guide.predicted import KAPLAN_ALPHA, OwnLosses, Predicted, Tokens, kaplan, own_level, own_slope, public
from dwsweep.records import fit as fit_record
from dwsweep.records.fit import NO_FORM_FITS, FitResult, TrainedNets
from dwsweep.text import format_count, format_factor

CONFIDENCE = 0.95  # of intervals, below which a fit is not trusted more for narrow ones, and says so
FAR = 10.0  # times outside the range, beyond which a projection is called far


@dataclass(frozen=True)
class Source:
    """What guides: a law, or the loss surface of one's own sweep.

    alternatives: forms that are not rejected. inside: one's own losses, which guide at the sizes of their data. nets:
    those of one's own fit. misfit: the losses contradict every form somewhere. instead: why public evidence stands in
    for one's own fit at every size; empty where it does not.
    """

    name: str
    law: Law | OwnGuide | Predicted
    alternatives: tuple[Law | OwnGuide, ...]
    surface: SurfaceLoss | None
    spacing: float  # layers between neighbouring depths of its grid: a depth ties with the next at its transition
    notes: tuple[str, ...]
    inside: Source | None = None
    nets: TrainedNets = field(default_factory=TrainedNets)
    misfit: bool = False
    instead: str = ""

    def at(self, n_params: float) -> Source:
        """What guides at this size."""
        if self.inside is None or self.inside.law.extrapolation(n_params) > 1.0:
            return self
        depth = self.inside.law.depth(n_params)[0]
        return self if depth is None or depth < 1.0 else self.inside

    def loss(self, n_params: float) -> LossModel:
        """The sweep's own surface, else the law with an assumed curvature."""
        if self.surface is not None:
            return self.surface
        if isinstance(self.law, Predicted):
            return self.law
        assert isinstance(self.law, Law)
        return LawLoss(self.law)

    def alternative_depths(self, n_params: float) -> dict[str, float]:
        """Best depth by form, of every alternative that has one."""
        found = ((form.form, form.depth(n_params)[0]) for form in self.alternatives)
        return {form: depth for form, depth in found if depth is not None and form != self.law.form}

    def reach(self, n_params: float) -> str:
        """How far this size is from what the answer rests on, and what to make of it."""
        if isinstance(self.law, Predicted):
            return self._reach_of_evidence(self.law, n_params)
        factor = self.law.extrapolation(n_params)
        limit = f"do not use beyond {format_count(self.law.valid_to * EXTRAPOLATION_LIMIT)}"
        span = f"{format_count(self.law.valid_from)} to {format_count(self.law.valid_to)}"
        depth = self.law.depth(n_params)[0]
        if depth is not None and depth < 1.0:
            return f"refused: the law puts the best depth below one layer; its range is {span}"
        if factor <= 1:
            return f"inside the range of the law, {span}"
        if factor <= FAR:
            return f"projection, {format_factor(factor)} times outside the range of the law, {span}; {limit}"
        if factor <= EXTRAPOLATION_LIMIT:
            return (
                f"far projection, {format_factor(factor)} times outside the range of the law, {span}: trust no more "
                f"than the rivals agree on; {limit}"
            )
        return f"refused: {format_factor(factor)} times outside the range of the law, {span}; {limit}"

    @staticmethod
    def _reach_of_evidence(law: Predicted, n_params: float) -> str:
        factor = law.extrapolation(n_params)
        span = f"{format_count(law.valid_from)} to {format_count(law.valid_to)}"
        said = f"inside the sizes of the public sources, {span}"
        if factor > EXTRAPOLATION_LIMIT:
            said = f"refused: {format_factor(factor)} times outside the sizes of the public sources, {span}"
        elif factor > 1:
            limit = f"no number beyond {format_count(law.valid_to * EXTRAPOLATION_LIMIT)}"
            said = f"{format_factor(factor)} times outside the sizes of the public sources, {span}; {limit}"
        if law.own is not None:
            own = outside(n_params, law.own.low, law.own.high)
            said = f"{format_factor(own)} times outside your own losses; {said}"
        return said

    def refuses(self, n_params: float) -> bool:
        return self.law.extrapolation(n_params) > EXTRAPOLATION_LIMIT


def published_source() -> Source:
    """Levine et al. 2020, with alternatives refitted to points of its law at the depths 6 to 36."""
    return Source(
        published_law.NAME,
        laws.published(),
        laws.published_alternatives(),
        None,
        float(np.median(np.diff(published_law.DEPTHS))),
        (
            f"ln d_x = {published_law.A} + {published_law.B:.4f}·L, Levine et al. 2020 (arXiv 2006.12467); intervals "
            f"from a covariance that is {published_law.COVARIANCE_TAG}",
        ),
    )


def public_source(tokens: Tokens | None = None) -> Source:
    """What the public sources say of a recipe like theirs. tokens: of training."""
    return _predicted(public(tokens), ())


def _predicted(law: Predicted, notes: Sequence[str]) -> Source:
    names = ", ".join(source.name for source in law.sources)
    said = f"{len(law.sources)} public sources ({names}), after {law.tokens}; --sources lists what each says"
    return Source(law.name, law, (), None, 0.0, (*notes, said))


def fitted_source(path: str | Path, tokens: Tokens | None = None) -> Source:
    """One's own fit at the sizes of its data; elsewhere the public evidence, from where the fit's losses end.

    Raises:
        InputError: there is no fit.json at ``path``.
    """
    return source_of(fit_record.read(path, argument("fit")), path, tokens)


def source_of(fit: FitResult, path: str | Path, tokens: Tokens | None = None) -> Source:
    """``fitted_source`` of a fit that was read from ``path`` already."""
    notes = [f"{path}: {fit.law_statement}"]
    found, trained = guides(fit), False
    if found is None:
        found, trained = guides(fit, inside=True), True
    if found is None:
        why = "this fit shows no best depth: public evidence answers"
        if fit.curves.axis != "n_params":
            why = f"this fit compares at equal {fit.curves.axis}, not at equal parameters: public evidence answers"
        return replace(_predicted(public(tokens), notes), nets=fit.nets, instead=f"{path}: {why}")
    own = _own(*found, fit, trained)
    notes += own.notes
    losses = OwnLosses(found[0].surface, found[0].valid_from, found[0].valid_to)
    span = " to ".join(format_count(n) for n in (losses.low, losses.high))
    notes.append(f"from {span} your own losses answer; elsewhere public evidence, from where they end")
    return replace(_predicted(public(tokens, losses), notes), inside=replace(own, notes=tuple(notes)), nets=fit.nets)


def _own(guide: OwnGuide, alternatives: list[OwnGuide], fit: FitResult, trained: bool) -> Source:
    notes = [f"fit: {line}" for line in fit.warnings if line.startswith(("rivals", "surface"))]
    if fit.surface and fit.surface.confidence < CONFIDENCE:
        notes.append(f"intervals of {100.0 * fit.surface.confidence:g} %, as this fit was asked for")
    loss = SurfaceLoss(guide.surface, trained)
    misfit = any(NO_FORM_FITS in line for line in fit.warnings)
    return Source(
        guide.name.partition("; ")[0], guide, tuple(alternatives), loss, 0.0, tuple(notes), None, fit.nets, misfit
    )


# ASSUMPTION: c of penalty = c·(ln L − ln L*)², nats, and the ends between which it is taken to lie. A quadratic in
# ln N, ln L and ln tokens through the public Gemstones runs has 0.023 to 0.025. CompleteP's shapes within 1 % of the
# best loss give 0.018 to 0.042 (see LawLoss).
CURVATURE = 0.024
CURVATURE_ENDS = (0.02, 0.055)
GRID = 400
LAW_REACH, LAW_GRID = 16, 600  # factor in depth from the best, and points
DRAWS = 400
REGION_STEP = 4  # every fourth of 360 points of a law's region has its extremes to 0.1 %


class LossModel(Protocol):
    """Loss at a size N as a function of depth, relative to the best depth."""

    @property
    def tag(self) -> str:
        """Where it comes from, for the reader."""

    def covers(self, n_params: float) -> bool: ...

    def level(self, n_params: float) -> float:
        """Loss of the best depth, nats per token."""

    def slope(self, n_params: float) -> float:
        """−d loss / d ln N of the best depth, nats."""

    def depths(self, n_params: float) -> np.ndarray:
        """(M,) depths that it can speak of, rising."""

    def penalties(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """(M,) nats above the best depth."""

    def drawn(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """(D, M) the same for parameters inside the confidence region."""

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """(low, high) of a quantity that was computed for each of the D rows of ``drawn``."""


@dataclass(frozen=True)
class LawLoss:
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
        low, high = CURVATURE_ENDS
        return (
            f"ASSUMED: {CURVATURE}·(ln L/L*)² from the best depth L* of the law ({self.law.name}), "
            f"with {low} to {high} for {CURVATURE} as public data have it; level of loss from Kaplan et al. 2020"
        )

    def covers(self, n_params: float) -> bool:
        return self.law.depth(n_params)[0] is not None

    def level(self, n_params: float) -> float:
        return kaplan(n_params)

    def slope(self, n_params: float) -> float:
        return KAPLAN_ALPHA * self.level(n_params)

    def depths(self, n_params: float) -> np.ndarray:
        best = self.law.depth(n_params)[0]
        assert best is not None
        return np.geomspace(max(1.0, best / LAW_REACH), max(2.0, best * LAW_REACH), LAW_GRID)

    def penalties(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        return CURVATURE * self._squares(np.asarray(self.law.theta)[None], n_params, depths)[0]

    def drawn(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """Every law of the region, and the likeliest, with each of the curvatures."""
        laws = np.concatenate([np.asarray(self.law.theta)[None], np.asarray(self.law.region)[::REGION_STEP]])
        squares = self._squares(laws, n_params, depths)
        return np.concatenate([c * squares for c in (CURVATURE, *CURVATURE_ENDS)])

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """The extremes: the rows of ``drawn`` lie on the edges of the law's region and of the curvature's range."""
        return float(np.nanmin(values)), float(np.nanmax(values))

    def _squares(self, theta: np.ndarray, n_params: float, depths: np.ndarray) -> np.ndarray:
        """(R, M) of (ln L − ln L*)² for theta (R, 2); a law without a best depth says nothing: NaN."""
        best = self.law.equation.optimal_depth(theta, n_params)
        return (np.log(depths)[None] - np.log(best)[:, None]) ** 2


@dataclass(frozen=True)
class SurfaceLoss:
    """Penalties of one's own sweep: its loss surface, by its forms outside the depths trained.

    trained: it speaks of the depths between those trained alone, where the data do not bound the best depth.
    """

    surface: LossSurface
    trained: bool = False

    @property
    def tag(self) -> str:
        return "from the loss surface fitted to this sweep"

    def covers(self, n_params: float) -> bool:
        return self.surface.at(n_params).value is not None

    def depths(self, n_params: float) -> np.ndarray:
        frame = self.surface.frame
        if self.trained:
            return np.geomspace(frame.shallowest, frame.deepest, GRID)
        best = self.surface.at(n_params).value or frame.deepest
        return np.geomspace(
            max(1.0, min(frame.shallowest, best / 8)), min(max(frame.deepest, best * 8), self._deepest), GRID
        )

    @property
    def _deepest(self) -> float:
        return math.exp(float(self.surface.grid[-1]))

    def level(self, n_params: float) -> float:
        return own_level(self.surface, n_params)

    def slope(self, n_params: float) -> float:
        return own_slope(self.surface, n_params)

    def penalties(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        """Penalties by the mean loss of all draws: zero at its own best whole number of layers."""
        mean = self.surface.profile(math.log(n_params)).mean(axis=0, keepdims=True)
        return self.surface.above_best(mean, depths, self.trained)[0]

    def drawn(self, n_params: float, depths: np.ndarray) -> np.ndarray:
        return self.surface.penalties(n_params, depths, self.trained)

    def interval(self, values: np.ndarray) -> tuple[float, float]:
        """Quantiles: the rows of ``drawn`` are draws from the surface's distribution."""
        tail = (1 - self.surface.record.confidence) / 2
        low, high = np.nanquantile(values, [tail, 1 - tail])
        return float(low), float(high)


def smaller_percent(model: LossModel, n_params: float, nats: float) -> float:
    """By how many percent a best-shaped model would be smaller that is ``nats`` worse: 100·(1 − exp(−nats / slope))."""
    return percent_of(nats, model.slope(n_params))


def percent_of(nats: float, slope: float) -> float:
    """``smaller_percent`` where the slope is known already."""
    return 100.0 * (1.0 - math.exp(-nats / slope))


# ASSUMPTION: where another recipe has the transition of a depth, in N, at 95 %
RECIPE_FACTOR = 4.0
# the best depths of Gemstones, CompleteP and mlfoundations' grid over the published law's
NEWER_DATA = "Newer public data put the best depth at 0.3 to 1.0 times this between 5e7 and 7e8 parameters"
NEAR = 3.0
FORMS_AGREE, FORMS_APART = 1.15, 1.4  # deepest over shallowest best depth of the forms
ENDS_AGREE = 1.5  # upper end over lower end of the interval
SUBSTANTIAL = 0.005  # of the loss: a shape to build that costs more than this is not what the losses say is best
SUBSTANTIAL_PUBLIC = 0.01  # of the loss, at 95 %: about a tenth of the compute
# where the shape that costs least on average is further than this from the likeliest best depth, it is said why
BUILD_APART = 1.15


def interval(source: Source, n_params: float) -> tuple[float | None, float | None]:
    """(low, high) of the best depth at ``n_params``; None: no bound."""
    if not isinstance(source.law, Law):
        return source.law.depth(n_params)[1:]
    lows, highs = [], []
    for law in (source.law, *source.alternatives):
        depth, low, _ = law.depth(n_params / RECIPE_FACTOR)
        lows.append(depth if low is None else low)
        depth, _, high = law.depth(n_params * RECIPE_FACTOR)
        highs.append(None if depth is None or high is None else high + source.spacing)
    low = min((value for value in lows if value is not None), default=None)
    return low, None if None in highs else max(value for value in highs if value is not None)


def ends_agree(source: Source) -> float:
    """Largest ratio of the ends of an interval that is trusted most; 1 where intervals hold the truth less often."""
    record = source.surface.surface.record if source.surface else None
    return ENDS_AGREE if record is None or record.confidence >= CONFIDENCE else 1.0


def judge(source: Source, n_params: float) -> Trust:
    """Level and reasons at ``n_params``, by the rule above."""
    depth = source.law.depth(n_params)[0]
    if depth is None or depth < 1.0 or source.refuses(n_params):
        return Trust("low", (source.reach(n_params),))
    if isinstance(source.law, Predicted):
        return _judge_evidence(source.law, n_params)
    factor = source.law.extrapolation(n_params)
    every = [depth, *source.alternative_depths(n_params).values()]
    apart = max(every) / min(every)
    low, high = interval(source, n_params)
    ends = math.inf if low is None or high is None else high / low
    own = source.surface is not None
    if not own or apart > FORMS_APART or math.isinf(ends):
        level = "low"
    elif apart <= FORMS_AGREE and ends <= ends_agree(source) and not source.misfit:
        level = "high"
    else:
        level = "medium"
    where = "the sizes at which your losses say how deep" if own else "the data of the published law"
    reasons = [] if own else ["no losses of your own recipe"]
    if source.misfit:
        reasons.append("at some sizes no form fits your losses")
    reasons.append(f"inside {where}" if factor <= 1 else f"{format_factor(factor)} times outside {where}")
    if len(every) > 1:
        said = "agree" if apart <= FORMS_AGREE else "fit as well"
        named = dict.fromkeys(f"{end:.{end < 10:d}f}" for end in (min(every), max(every)))
        reasons.append(f"forms that {said} put the best depth at {' to '.join(named)}")
    else:
        reasons.append("one form is left" if own else "one form only")
    reasons.append(
        "your recipe's own losses"
        if own
        else f"another recipe may shift it by {RECIPE_FACTOR:g} times in N (ASSUMED); costs from an ASSUMED curvature"
    )
    return Trust(level, tuple(reasons))


def _judge_evidence(law: Predicted, n_params: float) -> Trust:
    """By what the depth of least expected loss risks."""
    depths = law.depths(n_params)
    drawn = law.drawn(n_params, depths)
    at = drawn.mean(axis=0).argmin()
    worst = float(np.quantile(drawn[:, at], 0.95)) / law.level(n_params)
    factor = law.extrapolation(n_params)
    _, low, high = law.depth(n_params)
    reasons = [
        f"the best depth of a recipe like these lies from {low:.3g} to {high:.3g}, so the depth of least expected loss "
        f"loses at most {100 * worst:.1f} % of the loss (95 %)"
    ]
    where = "the sizes of the public sources"
    reasons.append(f"inside {where}" if factor <= 1 else f"{format_factor(factor)} times outside {where}")
    if law.own is None:
        reasons.append("no losses of your own recipe")
    else:
        own = outside(n_params, law.own.low, law.own.high)
        reasons.append(f"{format_factor(own)} times outside your own losses")
    return Trust("low" if worst > SUBSTANTIAL_PUBLIC or factor > NEAR else "medium", tuple(reasons))


def of_shape(found: Trust, behind: float) -> Trust:
    """Lower high trust where the shape to build is more than SUBSTANTIAL ``behind`` the best depth, a share of the
    loss."""
    if behind <= SUBSTANTIAL:
        return found
    reason = f"the best shape that one can build is {100 * behind:.1f} % of the loss behind the best depth"
    return Trust("medium" if found.level == "high" else found.level, (reason, *found.reasons))
