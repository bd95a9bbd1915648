"""Sources of a guideline: public evidence, a user's fit, or the published law; each with range, losses and trust.

A user's fit has an interval of its own, averaged over open forms, parameters and noise, for the user's recipe. The fit
answers at the sizes of its data. Elsewhere, and without a fit, public evidence answers, with the variation between
recipes in its interval (losses.py). The published law states errors of its two constants only. Its interval here
therefore covers all forms that fit its points equally well (fit/guideline.py).

Shapes were compared up to 1.5 billion parameters. Up to ten times that an answer is a projection; beyond, it is a range
without a best depth; beyond 1T it is refused.

One rule gives the trust in public evidence and in fits, from the regret of the depth to build and from the distance to
the nearest compared sizes, public or own:

    high inside the user's sizes, and a regret of at most SURE percent of compute (95 %)
    medium  at most FAR times outside, and a regret of at most FAIR percent in expectation, GRAVE (95 %)
    low     else, and the published law alone at every size, since nothing prices what it risks

A fit whose losses contradict every form somewhere, or a shape to build that wastes more than FAIR percent of compute at
its own size, is trusted medium at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dwsweep import published_law
from dwsweep.errors import argument
from dwsweep.evidence.random_effects import quantiles
from dwsweep.fit import laws
from dwsweep.fit.laws import AS_PRINTED, EXTRAPOLATION_LIMIT, RECIPE_FACTOR, Law, law_interval, outside
from dwsweep.guide.answers import Cost, Risk, Trust
from dwsweep.guide.losses import (
    FORMS,
    LawLoss,
    LossAt,
    OwnLosses,
    Predicted,
    SurfaceLoss,
    Tokens,
    bounds_of,
    one_form,
    public,
)
from dwsweep.text import NATS, format_count, format_factor

if TYPE_CHECKING:
    from dwsweep.evidence import Bound
    from dwsweep.fit.guideline import OwnGuide
    from dwsweep.records.fit import FitResult, Surface, TrainedNets

CONFIDENCE = 0.95  # confidence of public answers; a fit of another one is noted, and a lower one bounds nothing
FAR = 10.0  # factor outside the range beyond which a projection is far and public evidence names no best depth
LARGEST = 1e12  # largest size of an answer by public evidence


@dataclass(frozen=True)
class Source:
    """Source of answers: a law, or the loss surface of a user's sweep.

    alternatives: forms that are not rejected. own: the losses behind an ``OwnGuide``. spacing: layers between
    neighbouring depths of a law's grid, since a depth ties with the next at its transition. inside: source for the
    sizes of the user's losses. nets: the nets of the user's fit. misfit: True if the losses contradict every form
    somewhere. instead: why public evidence replaces the fit at every size; empty if it does not. unit: of the losses:
    the fit's, also where published slopes are as steep as its losses. tokens: of training, if a count was requested.
    """

    name: str
    law: Law | OwnGuide | Predicted
    notes: tuple[str, ...]
    alternatives: tuple[Law | OwnGuide | Predicted, ...] = ()
    own: OwnLosses | None = None
    spacing: float = 0.0
    inside: Source | None = None
    nets: TrainedNets | None = None
    misfit: bool = False
    instead: str = ""
    unit: str = NATS
    tokens: float | None = None

    def at(self, n_params: float) -> Source:
        """Source of the answer at this size."""
        inside = self.inside
        return self if inside is None or inside.law.extrapolation(n_params) > 1.0 or inside.silent(n_params) else inside

    def refuses(self, n_params: float) -> bool:
        if isinstance(self.law, Predicted):
            return n_params > LARGEST * AS_PRINTED
        return self.law.extrapolation(n_params) > EXTRAPOLATION_LIMIT

    def basis(self, n_params: float) -> str:
        """Basis of the answer at this size: ``compared``, a ``projection``, a ``range`` without a best, ``law`` or
        ``refused``."""
        if self.silent(n_params):
            return "refused"
        if isinstance(self.law, Law):
            return "law"
        factor = self.law.extrapolation(n_params)
        return (
            "compared" if factor <= 1.0 or n_params < self.law.valid_to else "projection" if factor <= FAR else "range"
        )

    def silent(self, n_params: float) -> bool:
        """Test that the source gives no depth at a size, or less than one layer."""
        if isinstance(self.law, Predicted):
            return self.refuses(n_params)
        depth = self.law.depth(n_params)[0]
        return depth is None or depth < 1.0 or self.refuses(n_params)

    def loss(self, n_params: float) -> LossAt:
        """Loss at a size: the sweep's surface, the expectation of the evidence, or the law with an assumed
        curvature."""
        if self.own is not None:
            return SurfaceLoss(n_params, self.own)
        if isinstance(self.law, Predicted):
            return self.law.loss(n_params)
        assert isinstance(self.law, Law)
        return LawLoss(n_params, self.law)

    def answers(self, n_params: float) -> bool:
        """Test that the source has a best depth at a size, against which another depth is priced."""
        if self.refuses(n_params):
            return False
        return isinstance(self.law, Predicted) or self.law.depth(n_params)[0] is not None

    def penalty(self, depth: float, n_params: float) -> float | None:
        """Nats of a depth at a size above the best depth; None if the source has no answer."""
        return self.loss(n_params).penalty(depth) if self.answers(n_params) else None

    def cost(self, depth: float, n_params: float, rough: bool = False) -> Cost | None:
        """Cost of a depth at a size against the best depth, without its interval if ``rough``; None if the source has
        no answer."""
        return self.loss(n_params).cost_of(depth, rough) if self.answers(n_params) else None

    def alternative_depths(self, n_params: float) -> dict[str, float]:
        """Best depth by form, for every alternative that has one."""
        found = ((form.form, form.depth(n_params)[0]) for form in self.alternatives)
        return {form: depth for form, depth in found if depth is not None and form != self.law.form}

    def reach(self, n_params: float) -> str:
        """Reach of the answer: distance of the size from the data, and the advice that follows."""
        law, factor = self.law, self.law.extrapolation(n_params)
        span = f"{format_count(law.valid_from)} to {format_count(law.valid_to)}"
        if isinstance(law, Predicted):
            where = f"the sizes at which shapes were compared, {span}"
            if self.refuses(n_params):
                return f"refused: beyond {format_count(LARGEST)} parameters there is no evidence"
            own = law.own
            said = ""
            if own and own.answers:
                away = format_factor(outside(n_params, own.low, own.high))
                said = f"{away} times outside the sizes at which your losses give a best depth; "
            public = outside(n_params, law.valid_from, law.valid_to)
            return f"{said}{'inside' if public <= 1 else f'{format_factor(public)} times outside'} {where}"
        of = "the range of the law" if isinstance(law, Law) else "the sizes at which your losses give a best depth"
        where = f"{of}, {span}"
        away, last = f"{format_factor(factor)} times outside {where}", format_count(law.valid_to * EXTRAPOLATION_LIMIT)
        depth = law.depth(n_params)[0]
        if depth is not None and depth < 1.0:
            return f"refused: the law puts the best depth below one layer; its range is {span}"
        if factor <= 1:
            return f"inside {where}"
        if factor <= FAR:
            return f"projection, {away}; do not use beyond {last}"
        if factor <= EXTRAPOLATION_LIMIT:
            return f"far projection, {away}: trust no more than the rivals agree on; do not use beyond {last}"
        return f"refused: {away}; do not use beyond {last}"


def published_source() -> Source:
    """Levine et al. 2020, with alternatives refitted to points of its law at the depths 6 to 36."""
    note = (
        f"ln d_x = {published_law.A} + {published_law.B:.4f}·L, Levine et al. 2020 (arXiv 2006.12467); intervals "
        f"from a covariance that is {published_law.COVARIANCE_TAG}"
    )
    return Source(published_law.NAME, laws.published(), (note,), laws.published_alternatives(), spacing=laws.GRID_STEP)


SPEAKS_FOR = (
    "the evidence covers decoders that predict the next token of text; your own losses (`dwsweep fit`) cover "
    "your recipe"
)


def public_source(tokens: Tokens | None = None, own: OwnLosses | None = None, notes: Sequence[str] = ()) -> Source:
    """Public evidence for a similar recipe; with ``own``, for the user's recipe outside its losses. tokens: of
    training."""
    law = public(tokens, own)
    names = ", ".join(source.name for source in law.sources)
    said = f"{len(law.sources)} public sources ({names}), after {law.tokens}; --sources lists the answer of each"
    forms = tuple(one_form(law, form) for form in FORMS[1:])
    return Source(law.name, law, (*notes, SPEAKS_FOR, said), forms)


def fitted_source(path: str | Path, tokens: Tokens | None = None) -> Source:
    """Fit of the user at the sizes of its data; elsewhere public evidence, from where the fit's losses end.

    Raises:
        InputError: ``path`` holds no fit.json.
    """
    from dwsweep.records import fit as fit_record

    return source_of(fit_record.read(path, argument("fit")), path, tokens)


def source_of(fit: FitResult, path: str | Path, tokens: Tokens | None = None) -> Source:
    """Source of a fit that was already read from ``path``, as in ``fitted_source``."""
    from dwsweep.fit.guideline import guides
    from dwsweep.records.fit import NO_FORM_FITS

    notes = [f"{path}: {fit.law_statement}"]
    anywhere = guides(fit)
    found = anywhere or guides(fit, inside=True)
    if found is None:
        why = "this fit shows no best depth: public evidence answers"
        if fit.curves.axis != "n_params":
            why = f"this fit compares at equal {fit.curves.axis}, not at equal parameters: public evidence answers"
        bounded = _bounded(fit)
        if bounded is not None:
            why = "this fit bounds the best depth on one side: public evidence answers inside that bound"
        made = public_source(tokens, bounded, notes)
        return replace(made, nets=fit.nets, instead=f"{path}: {why}", unit=NATS if bounded is None else fit.unit)
    guide, alternatives = found
    bounds = _bounds(guide.surface.record)
    own = OwnLosses(guide.surface, guide.valid_from, guide.valid_to, trained=anywhere is None, bounds=bounds)
    notes += [f"fit: {line}" for line in fit.warnings if line.startswith(("rivals", "surface"))]
    if guide.surface.record.confidence != CONFIDENCE:
        notes.append(f"intervals of {100.0 * guide.surface.record.confidence:g} %, the confidence of this fit")
    if fit.adjusted:
        notes += [f"fit: {line}" for line in fit.adjusted.sentences[:1]]
    span = " to ".join(format_count(n) for n in (own.low, own.high))
    notes.append(f"your own losses answer from {span}, public evidence elsewhere")
    inside = Source(
        guide.name.partition("; ")[0],
        guide,
        tuple(notes),
        tuple(alternatives),
        own,
        nets=fit.nets,
        misfit=any(NO_FORM_FITS in line for line in fit.warnings),
        unit=fit.unit,
        tokens=tokens.count if tokens else None,
    )
    # losses without bounds have no effect beyond their sizes
    beyond = own if own.bounded or own.bounds else None
    unit = NATS if beyond is None else fit.unit
    return replace(public_source(tokens, beyond, notes), inside=inside, nets=fit.nets, unit=unit)


def _bounds(record: Surface) -> tuple[Bound, ...]:
    """One-sided bounds of a fit; none of a lower confidence, since they cut off what lies beyond them."""
    return bounds_of(record.optima) if record.confidence >= CONFIDENCE else ()


def _bounded(fit: FitResult) -> OwnLosses | None:
    """Losses of a fit that shows no best depth but bounds it on one side somewhere."""
    from dwsweep.fit.ask import LossSurface

    record = fit.surface
    if record is None or record.flat or fit.curves.axis != "n_params" or not (bounds := _bounds(record)):
        return None
    low, high = math.exp(record.low), math.exp(record.high)
    return OwnLosses(LossSurface(record), low, high, bounds=bounds, answers=False)


# the best depths of Gemstones, CompleteP and mlfoundations' grid over the published law's
NEWER_DATA = "Newer public data put the best depth at 0.3 to 1.0 times this between 5e7 and 7e8 parameters"
FORMS_AGREE = 1.1  # ratio of the forms' best depths beyond which both are named
SURE, FAIR, GRAVE = 5.0, 6.0, 25.0  # % of compute: regret at 95 %, in expectation, and again at 95 %
FAR_TOKENS = math.log(2.0)  # distance in ln tokens of a request from the losses of a fit above which trust is medium
ENDLESS = 0.975  # quantile at which a draw's loss is capped
# distance of the cheapest shape from the likeliest best depth beyond which a sentence explains it
BUILD_APART = 1.15


def interval(source: Source, n_params: float) -> tuple[float | None, float | None]:
    """Interval (low, high) of the best depth at ``n_params``; None: no bound."""
    if not isinstance(source.law, Law):
        return source.law.depth(n_params)[1:]
    forms = [law for law in source.alternatives if isinstance(law, Law)]
    return law_interval([source.law, *forms], n_params, source.spacing)


def regret(drawn: np.ndarray, own: bool) -> tuple[float, float]:
    """Regret in expectation and at 95 %, from the nats that one choice loses in each draw (D,) of the ``own`` fit or of
    public evidence."""
    # a few draws of a fit lose without bound at untrained depths
    endless, worst = quantiles(drawn, [ENDLESS, 0.95]).tolist()
    return float(np.minimum(drawn, endless if own else math.inf).mean()), worst


def judge(source: Source, n_params: float, risk: Risk | None = None) -> Trust:
    """Trust at ``n_params``: level and reasons, by the rule above.

    risk: regret of the depth to build at equal size, so that an answer names one number; None: regret of the depth of
    least expected loss.
    """
    law = source.law
    if source.silent(n_params):
        return Trust("low", (source.reach(n_params),))
    if isinstance(law, Law):
        return _judge_law(source, n_params)
    if risk is None:
        loss = source.loss(n_params)
        drawn = loss.drawn(loss.depths)
        chosen = drawn[:, drawn.mean(axis=0).argmin()]
        risk = Risk(*map(loss.cost, regret(chosen, source.own is not None)))
    expected, worst = risk.expected.less_compute, risk.worst.less_compute
    factor = law.extrapolation(n_params)
    level = "low"
    if source.own is not None and factor <= 1.0 and worst <= SURE and not source.misfit:
        level = "high"
    elif factor <= FAR and expected <= FAIR and worst <= GRAVE:
        level = "medium"
    reasons = ["at some sizes no form fits your losses"] if source.misfit else []
    if factor <= FAR and level == "low":
        reasons.append(
            f"the depth to build may waste {worst:.1f} % of compute at equal size (95 %)"
            if expected <= FAIR
            else f"the depth to build wastes {expected:.1f} % of compute at equal size in expectation"
        )
    if source.own is not None:
        inside = "inside" if factor <= 1.0 else f"{format_factor(factor)} times outside"
        reasons.append(f"{inside} the sizes at which your losses give a best depth; your recipe's own losses")
        asked, measured = source.tokens, source.nets.tokens if source.nets else None
        if asked and measured and abs(math.log(asked / measured)) > FAR_TOKENS:
            level = "medium" if level == "high" else level
            reasons.insert(
                0,
                f"your losses are after {format_count(measured)} tokens, and the best depth is theirs, not moved to "
                f"{format_count(asked)}",
            )
        return Trust(level, tuple(reasons))
    reasons.append(source.reach(n_params))
    if not (isinstance(law, Predicted) and law.own):
        reasons.append("no losses of your own recipe")
    return Trust(level, tuple(reasons))


def _judge_law(source: Source, n_params: float) -> Trust:
    depth, factor = source.law.depth(n_params)[0], source.law.extrapolation(n_params)
    assert depth is not None
    every = [depth, *source.alternative_depths(n_params).values()]
    apart = max(every) / min(every)
    where = "the data of the published law"
    reasons = ["no losses of your own recipe"]
    reasons.append(f"inside {where}" if factor <= 1 else f"{format_factor(factor)} times outside {where}")
    if len(every) > 1:
        said = "agree" if apart <= FORMS_AGREE else "fit as well"
        named = dict.fromkeys(f"{end:.{end < 10:d}f}" for end in (min(every), max(every)))
        reasons.append(f"forms that {said} put the best depth at {' to '.join(named)}")
    reasons.append(
        f"another recipe may shift it by {RECIPE_FACTOR:g} times in N (ASSUMED); costs from an ASSUMED price of depth"
    )
    return Trust("low", tuple(reasons))


def of_shape(found: Trust, wasted: float) -> Trust:
    """Trust in a shape: high trust falls to medium if the shape to build wastes more than FAIR percent of compute."""
    if wasted <= FAIR:
        return found
    reason = f"the best shape that one can build wastes {wasted:.1f} % of compute against the best depth"
    return Trust("medium" if found.level == "high" else found.level, (reason, *found.reasons))
