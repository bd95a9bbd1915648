"""Sources of a guideline: public evidence, with or without a user's own losses, or the published law; each with
range, losses and trust.

Own losses and public evidence answer together, by one function inside and outside the own sizes (losses.py). From
OWN_REACH times the own sizes on public evidence answers alone. The published law states errors of its two constants
only. Its interval here therefore covers all forms that fit its points equally well (fit/guideline.py).

Shapes were compared up to 1.5 billion parameters. Up to ten times that an answer is a projection; beyond, it is a range
without a best depth; beyond 1T it is refused.

One rule gives the trust, from the regret of the depth to build and from the distance to the nearest compared sizes,
public or own:

    high    own losses bound the best depth at this size on both sides, and a regret of at most SURE percent of
            compute (95 %)
    medium  sizes and tokens at most FAR times outside, a regret of at most FAIR percent in expectation, GRAVE (95 %)
    low     else; where the losses contradict public evidence; with a depth more than TWICE beyond the depths of own
            nets and of public sources near the size; and the published law alone at every size, since nothing prices
            its risk

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
    OWN_REACH,
    LawLoss,
    LossAt,
    OwnLosses,
    Predicted,
    Tokens,
    one_form,
    public,
)
from dwsweep.text import NATS, format_count, format_factor

if TYPE_CHECKING:
    from dwsweep.records.fit import FitResult, TrainedNets

FAR = 10.0  # factor outside the range beyond which a projection is far and public evidence names no best depth
LARGEST = 1e12  # largest size of an answer by public evidence


@dataclass(frozen=True)
class Source:
    """Source of answers: a law, or public evidence with or without the losses of a user's sweep.

    alternatives: forms that are not rejected. spacing: layers between neighbouring depths of a law's grid, since a
    depth ties with the next at its transition. near: source within OWN_REACH of the user's losses. nets: the nets of
    the user's fit. misfit: True if the losses contradict every form somewhere. instead: why public evidence replaces
    the fit at every size; empty if it does not. unit: of the losses: the fit's, also where published slopes are as
    steep as its losses.
    """

    name: str
    law: Law | Predicted
    notes: tuple[str, ...]
    alternatives: tuple[Law | Predicted, ...] = ()
    spacing: float = 0.0
    near: Source | None = None
    nets: TrainedNets | None = None
    misfit: bool = False
    instead: str = ""
    unit: str = NATS

    @property
    def own(self) -> OwnLosses | None:
        """Losses of the user behind the answers."""
        return self.law.own if isinstance(self.law, Predicted) else None

    def at(self, n_params: float) -> Source:
        """Source of the answer at this size."""
        near = self.near
        return near if near is not None and near.own is not None and near.own.share(n_params) > 0.0 else self

    def after(self, tokens: Tokens) -> Source:
        """Source after other ``tokens`` of training, where own losses answer."""
        near = self.near
        if near is None or not isinstance(near.law, Predicted):
            return self
        return replace(self, near=near_source(replace(near.law, tokens=tokens), near))

    def decimals(self, n_params: float) -> int | None:
        """Known decimals of a best depth at sizes of the user's losses; None elsewhere."""
        own = self.own
        return own.surface.decimals(n_params) if own is not None and own.away(n_params) <= 1.0 else None

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
        """Loss at a size: the expectation of the evidence, or the law with an assumed curvature."""
        return self.law.loss(n_params) if isinstance(self.law, Predicted) else LawLoss(n_params, self.law)

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
            said = ""
            if law.own is not None:
                distance = law.own.away(n_params)
                said = "inside" if distance <= 1.0 else f"{format_factor(distance)} times outside"
                said += " the sizes of your losses; "
            public = outside(n_params, law.valid_from, law.valid_to)
            return f"{said}{'inside' if public <= 1 else f'{format_factor(public)} times outside'} {where}"
        where = f"the range of the law, {span}"
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


def public_source(tokens: Tokens | None = None, notes: Sequence[str] = ()) -> Source:
    """Public evidence for a similar recipe. tokens: of training."""
    law = public(tokens)
    names = ", ".join(source.name for source in law.sources)
    said = f"{len(law.sources)} public sources ({names}), after {law.tokens}; --sources lists the answer of each"
    return Source(law.name, law, (*notes, SPEAKS_FOR, said), _by_form(law))


def _by_form(law: Predicted) -> tuple[Predicted, ...]:
    return tuple(one_form(law, form) for form in FORMS[1:])


def near_source(law: Predicted, like: Source) -> Source:
    """Source of own losses and public evidence together, with the fit's notes, nets, unit and misfit of ``like``."""
    return replace(like, name=law.name, law=law, alternatives=_by_form(law), near=None)


def fitted_source(path: str | Path, tokens: Tokens | None = None) -> Source:
    """Losses of the user's fit together with public evidence; public evidence alone far from them.

    Raises:
        InputError: ``path`` holds no fit.json.
    """
    from dwsweep.records import fit as fit_record

    return source_of(fit_record.read(path, argument("fit")), path, tokens)


def source_of(fit: FitResult, path: str | Path, tokens: Tokens | None = None) -> Source:
    """Source of a fit that was already read from ``path``, as in ``fitted_source``."""
    from dwsweep.fit.ask import LossSurface
    from dwsweep.records.fit import NO_FORM_FITS

    notes, record = [f"{path}: {fit.law_statement}"], fit.surface
    if record is None or record.flat or not record.bounded or fit.curves.axis != "n_params":
        why = "this fit shows no best depth: public evidence answers"
        if fit.curves.axis != "n_params":
            why = f"this fit compares at equal {fit.curves.axis}, not at equal parameters: public evidence answers"
        return replace(public_source(tokens, notes), nets=fit.nets, instead=f"{path}: {why}")
    own = OwnLosses(LossSurface(record), fit.nets.tokens if fit.nets else None, fit.unit == NATS)
    one_sided = (
        "" if any(row.depth is not None for row in record.optima) else ", which bound the best depth on one side"
    )
    span = " to ".join(format_count(n) for n in (own.low, own.high))
    notes.append(
        f"your own losses, from {span}{one_sided}, answer together with public evidence; from {OWN_REACH:g} times "
        "outside them on, public evidence alone"
    )
    notes += [f"fit: {line}" for line in fit.warnings if line.startswith(("rivals", "surface"))]
    if fit.adjusted:
        notes += [f"fit: {line}" for line in fit.adjusted.sentences[:1]]
    found = public_source(tokens, notes)
    misfit = any(NO_FORM_FITS in line for line in fit.warnings)
    near = near_source(public(tokens, own), replace(found, nets=fit.nets, unit=fit.unit, misfit=misfit))
    return replace(found, near=near, nets=fit.nets)


# the best depths of Gemstones, CompleteP and mlfoundations' grid over the published law's
NEWER_DATA = "Newer public data put the best depth at 0.3 to 1.0 times this between 5e7 and 7e8 parameters"
FORMS_AGREE = 1.1  # ratio of the forms' best depths beyond which both are named
SURE, FAIR, GRAVE = 5.0, 6.0, 25.0  # % of compute: regret at 95 %, in expectation, and again at 95 %
TWICE = (
    2.0  # factor beyond known tokens above which a remark names them, and beyond known depths above which trust is low
)
FEWEST_PAIRS = 50.0  # effective pairs of draws of own losses and public evidence below which the two hardly agree
OTHER_PRICE = 2.5  # ratio of the own price of a wrong depth to the public one that public recipes hardly have
# distance of the cheapest shape from the likeliest best depth beyond which a sentence explains it
BUILD_APART = 1.15


def interval(source: Source, n_params: float) -> tuple[float | None, float | None]:
    """Interval (low, high) of the best depth at ``n_params``; None: no bound."""
    if not isinstance(source.law, Law):
        return source.law.depth(n_params)[1:]
    forms = [law for law in source.alternatives if isinstance(law, Law)]
    return law_interval([source.law, *forms], n_params, source.spacing)


def regret(drawn: np.ndarray) -> tuple[float, float]:
    """Regret in expectation and at 95 %, from the nats that one choice loses in each draw (D,)."""
    return float(drawn.mean()), float(quantiles(drawn, [0.95])[0])


def judge(source: Source, n_params: float, risk: Risk | None = None, depth: float | None = None) -> Trust:
    """Trust at ``n_params``: level and reasons, by the rule above.

    risk, depth: regret of the depth to build at equal size, and that depth, so that an answer names one number; None:
    of the depth of least expected loss.
    """
    law = source.law
    if source.silent(n_params):
        return Trust("low", (source.reach(n_params),))
    if isinstance(law, Law):
        return _judge_law(source, n_params)
    if risk is None:
        loss = source.loss(n_params)
        drawn = loss.drawn(loss.depths)
        best = int(drawn.mean(axis=0).argmin())
        risk, depth = Risk(*map(loss.cost, regret(drawn[:, best]))), depth or float(loss.depths[best])
    expected, worst = risk.expected.less_compute, risk.worst.less_compute
    doubts, remarks = _doubts(source, law, n_params, depth)
    far = law.extrapolation(n_params) > FAR
    if not far and expected > FAIR:
        doubts.append(f"the depth to build wastes {expected:.1f} % of compute at equal size in expectation")
    elif not far and worst > GRAVE:
        doubts.append(f"the depth to build may waste {worst:.1f} % of compute at equal size (95 %)")
    own = source.own
    measured = own is not None and own.away(n_params) <= 1.0 and own.bounds_both(n_params)
    level = "low" if doubts or far else "medium"
    if level == "medium" and measured and worst <= SURE and not remarks:
        level = "high"
    reasons = [*doubts, *remarks, source.reach(n_params)]
    return Trust(level, (*reasons, "no losses of your own recipe" if own is None else "your recipe's own losses"))


def _doubts(source: Source, law: Predicted, n_params: float, depth: float | None) -> tuple[list[str], list[str]]:
    """Reasons for low trust, and reasons against high trust, at a size where ``depth`` is to be built."""
    doubts: list[str] = []
    remarks: list[str] = []
    own = source.own
    if source.misfit:
        remarks.append("at some sizes no form fits your losses")
    ratio = law.tokens.at(n_params) / n_params
    least, most = law.compared_tokens(n_params)
    if (away := outside(ratio, least, most)) > TWICE:
        said = f"{format_count(ratio)} tokens per parameter are {format_factor(away)} times outside the tokens "
        said += f"compared at such sizes, {least:.3g} to {most:.3g}"
        (doubts if away > FAR else remarks).append(said)
    if own is None:
        return doubts, remarks
    here = own.away(n_params) <= 1.0
    if not own.bounds_both(n_params):
        remarks.append(f"at {format_count(own.nearest(n_params))} your losses bound the best depth on one side at most")
    if not (here and own.bounds_both(n_params)):
        if law.contradicted:
            small, large = map(format_count, law.contradicted)
            between = f"at {small}" if small == large else f"between {small} and {large}"
            doubts.append(f"your losses contradict public evidence on the best depth {between}")
        elif law.joined.ess < FEWEST_PAIRS:
            doubts.append("hardly any recipe of public evidence agrees with your losses")
    if own.away(n_params) > FAR and abs(math.log(ratio := law.price_ratio(n_params))) > math.log(OTHER_PRICE):
        doubts.append(
            f"your losses price a wrong depth {format_factor(ratio)} times as high as public evidence does, and it "
            "answers for the most part so far from them"
        )
    if depth is not None:
        shallow, deep = law.depths_near(n_params)
        if not shallow / TWICE <= depth <= TWICE * deep:
            doubts.append(
                f"{depth:.0f} layers lie more than twice beyond the depths of your nets and of public sources near "
                f"this size, {shallow:.0f} to {deep:.0f}"
            )
    if own.tokens and abs(more := law.more_tokens(n_params)) > math.log(TWICE):
        remarks.append(
            f"your losses are after {format_count(own.tokens)} tokens; the best depth is moved to "
            f"{format_count(own.tokens * math.exp(more))} by the trend of public sources"
        )
    return doubts, remarks


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
