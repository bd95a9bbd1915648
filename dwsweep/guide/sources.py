"""Where a guideline comes from: public evidence, one's own fit, or the published law; with its range and loss.

An own fit brings its interval along: forms that the data leave open, parameters and noise are averaged in it, and the
recipe is one's own. It answers at the sizes of its data. Elsewhere, and without one, public evidence answers, with what
differs from recipe to recipe in its interval (losses.py). The published law's own interval is that of its two
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dwsweep import published_law
from dwsweep.errors import argument
from dwsweep.fit import laws
from dwsweep.fit.laws import EXTRAPOLATION_LIMIT, Law, outside
from dwsweep.guide.answers import Cost, Trust
from dwsweep.guide.losses import LawLoss, LossAt, OwnLosses, Predicted, SurfaceLoss, Tokens, public
from dwsweep.text import format_count, format_factor

if TYPE_CHECKING:
    from dwsweep.fit.guideline import OwnGuide
    from dwsweep.records.fit import FitResult, TrainedNets

CONFIDENCE = 0.95  # of intervals, below which a fit is not trusted more for narrow ones, and says so
FAR = 10.0  # times outside the range, beyond which a projection is called far


@dataclass(frozen=True)
class Source:
    """What guides: a law, or the loss surface of one's own sweep.

    alternatives: forms that are not rejected. own: the losses behind an ``OwnGuide``. spacing: layers between
    neighbouring depths of a law's grid, since a depth ties with the next at its transition. inside: one's own losses,
    which guide at the sizes of their data. nets: those of one's own fit. misfit: the losses contradict every form
    somewhere. instead: why public evidence stands in for one's own fit at every size; empty where it does not.
    """

    name: str
    law: Law | OwnGuide | Predicted
    notes: tuple[str, ...]
    alternatives: tuple[Law | OwnGuide, ...] = ()
    own: OwnLosses | None = None
    spacing: float = 0.0
    inside: Source | None = None
    nets: TrainedNets | None = None
    misfit: bool = False
    instead: str = ""

    def at(self, n_params: float) -> Source:
        """What guides at this size."""
        inside = self.inside
        return self if inside is None or inside.law.extrapolation(n_params) > 1.0 or inside.silent(n_params) else inside

    def refuses(self, n_params: float) -> bool:
        return self.law.extrapolation(n_params) > EXTRAPOLATION_LIMIT

    def silent(self, n_params: float) -> bool:
        """Whether it says no depth of a size, or less than a layer."""
        depth = self.law.depth(n_params)[0]
        return depth is None or depth < 1.0 or self.refuses(n_params)

    def loss(self, n_params: float) -> LossAt:
        """The sweep's own surface, what the evidence expects, or the law with an assumed curvature."""
        if self.own is not None:
            return SurfaceLoss(n_params, self.own)
        if isinstance(self.law, Predicted):
            return self.law.loss(n_params)
        assert isinstance(self.law, Law)
        return LawLoss(n_params, self.law)

    def cost(self, depth: float, n_params: float, rough: bool = False) -> Cost | None:
        """What a depth costs at a size, against the best depth there, without its interval if ``rough``; None where the
        source says nothing of it."""
        if self.refuses(n_params) or self.law.depth(n_params)[0] is None:
            return None
        return self.loss(n_params).cost_of(depth, rough)

    def alternative_depths(self, n_params: float) -> dict[str, float]:
        """Best depth by form, of every alternative that has one."""
        found = ((form.form, form.depth(n_params)[0]) for form in self.alternatives)
        return {form: depth for form, depth in found if depth is not None and form != self.law.form}

    def reach(self, n_params: float) -> str:
        """How far this size is from what the answer rests on, and what to make of it."""
        law, factor = self.law, self.law.extrapolation(n_params)
        span = f"{format_count(law.valid_from)} to {format_count(law.valid_to)}"
        where = f"the {'sizes of the public sources' if isinstance(law, Predicted) else 'range of the law'}, {span}"
        away, last = f"{format_factor(factor)} times outside {where}", format_count(law.valid_to * EXTRAPOLATION_LIMIT)
        if isinstance(law, Predicted):
            said = f"inside {where}" if factor <= 1 else f"{away}; no number beyond {last}"
            said = f"refused: {away}" if self.refuses(n_params) else said
            if law.own is not None:
                own = outside(n_params, law.own.low, law.own.high)
                said = f"{format_factor(own)} times outside your own losses; {said}"
            return said
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
    spacing = float(np.median(np.diff(published_law.DEPTHS)))
    return Source(published_law.NAME, laws.published(), (note,), laws.published_alternatives(), spacing=spacing)


def public_source(tokens: Tokens | None = None, own: OwnLosses | None = None, notes: Sequence[str] = ()) -> Source:
    """What the public sources say of a recipe like theirs; with ``own``, of one's own outside its losses. tokens: of
    training."""
    law = public(tokens, own)
    names = ", ".join(source.name for source in law.sources)
    said = f"{len(law.sources)} public sources ({names}), after {law.tokens}; --sources lists what each says"
    return Source(law.name, law, (*notes, said))


def fitted_source(path: str | Path, tokens: Tokens | None = None) -> Source:
    """One's own fit at the sizes of its data; elsewhere the public evidence, from where the fit's losses end.

    Raises:
        InputError: there is no fit.json at ``path``.
    """
    from dwsweep.records import fit as fit_record

    return source_of(fit_record.read(path, argument("fit")), path, tokens)


def source_of(fit: FitResult, path: str | Path, tokens: Tokens | None = None) -> Source:
    """``fitted_source`` of a fit that was read from ``path`` already."""
    from dwsweep.fit.guideline import guides
    from dwsweep.records.fit import NO_FORM_FITS

    notes = [f"{path}: {fit.law_statement}"]
    anywhere = guides(fit)
    found = anywhere or guides(fit, inside=True)
    if found is None:
        why = "this fit shows no best depth: public evidence answers"
        if fit.curves.axis != "n_params":
            why = f"this fit compares at equal {fit.curves.axis}, not at equal parameters: public evidence answers"
        return replace(public_source(tokens, notes=notes), nets=fit.nets, instead=f"{path}: {why}")
    guide, alternatives = found
    own = OwnLosses(guide.surface, guide.valid_from, guide.valid_to, trained=anywhere is None)
    notes += [f"fit: {line}" for line in fit.warnings if line.startswith(("rivals", "surface"))]
    if guide.surface.record.confidence < CONFIDENCE:
        notes.append(f"intervals of {100.0 * guide.surface.record.confidence:g} %, as this fit was asked for")
    span = " to ".join(format_count(n) for n in (own.low, own.high))
    notes.append(f"from {span} your own losses answer; elsewhere public evidence, from where they end")
    inside = Source(
        guide.name.partition("; ")[0],
        guide,
        tuple(notes),
        tuple(alternatives),
        own,
        nets=fit.nets,
        misfit=any(NO_FORM_FITS in line for line in fit.warnings),
    )
    return replace(public_source(tokens, own, notes), inside=inside, nets=fit.nets)


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


def judge(source: Source, n_params: float) -> Trust:
    """Level and reasons at ``n_params``, by the rule above."""
    depth = source.law.depth(n_params)[0]
    if depth is None or source.silent(n_params):
        return Trust("low", (source.reach(n_params),))
    if isinstance(source.law, Predicted):
        return _judge_evidence(source.law, n_params)
    factor = source.law.extrapolation(n_params)
    every = [depth, *source.alternative_depths(n_params).values()]
    apart = max(every) / min(every)
    low, high = interval(source, n_params)
    ends = math.inf if low is None or high is None else high / low
    own = source.own is not None
    # intervals that hold the truth less often are not trusted more for being narrow
    agree = 1.0 if source.own and source.own.surface.record.confidence < CONFIDENCE else ENDS_AGREE
    if not own or apart > FORMS_APART or math.isinf(ends):
        level = "low"
    elif apart <= FORMS_AGREE and ends <= agree and not source.misfit:
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
    loss = law.loss(n_params)
    drawn = loss.drawn(loss.depths)
    at = drawn.mean(axis=0).argmin()
    worst = float(np.quantile(drawn[:, at], 0.95)) / loss.level
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
