"""The width law and its alternatives: where each form of the transition lets neighbouring depths tie, by the posterior.

A pair of neighbouring depths belongs to its shallower one, as in Levine et al. 2020: in every draw of a form the size
at which the two tie gives ln d at the shallower depth, and the ties of all pairs, by least squares, the two constants
of the form. Forms are weighed by their evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from dwsweep.fit.ask import LossSurface, answer, crossings, effect, hull, law
from dwsweep.fit.curves import Curves
from dwsweep.fit.laws import EXPONENTIAL, FORMS, Law
from dwsweep.fit.noise import chi2_quantile
from dwsweep.fit.transitions import Pair
from dwsweep.interval import Interval
from dwsweep.records.fit import FittedForm, Surface, WidthLaw
from dwsweep.records.transitions import Rival, RivalTransition, decimals, numbers
from dwsweep.shapes import STANDARD

UNKNOWN = 2.0  # width in ln d of a tie's interval above which the tie bounds no constant
SAME_WIDTH = 0.01  # distance in ln d due to rounded widths
POINTS = 61  # number of sizes at which a law is drawn
WINNING_DELTA = 4.0  # −2·ln weight above which a form is rejected, as for χ²
FEWEST_PAIRS = 3
DECIMALS = 3, 4  # of a and b in words


@dataclass(frozen=True)
class FormTies:
    """Draws of a form. law: with its region. delta: −2·ln of its weight over the best form's. interval_a,
    interval_b: of its constants; errors: the Monte-Carlo errors of these. cov: of both. x: (pairs,) ln of the size of
    each tie; inside: (pairs,) True if the tie lies in the sizes of both depths. bounded: the data bound both
    constants."""

    law: Law
    delta: float
    interval_a: Interval
    interval_b: Interval
    errors: tuple[Interval, Interval]
    cov: np.ndarray
    x: np.ndarray
    inside: np.ndarray
    bounded: bool


@dataclass(frozen=True)
class LawReport:
    """width_law, rivals: as in fit.json. statement: one sentence. laws: form → Law, of the bounded ones.

    This is the law of the transitions, in the convention of Levine et al. 2020: a pair of neighbouring depths belongs
    to its shallower one, so it lies half a step of the grid low. The best depth comes from the loss surface.
    """

    width_law: WidthLaw | None
    rivals: list[Rival]
    statement: str
    warnings: list[str] = field(default_factory=list)
    laws: dict[str, Law] = field(default_factory=dict)

    @classmethod
    def none(cls, reason: str) -> LawReport:
        return cls(None, [], f"no width law fitted: {reason}")

    def beside(self, surface: Surface) -> LawReport:
        """Report with a note if the losses of all depths together reject the form."""
        rejected = {form.form for form in surface.forms if form.rejected}
        if self.width_law is None or self.width_law.form not in rejected:
            return self
        said = f"{self.statement}; the losses of all depths together reject the {self.width_law.form} form"
        return replace(self, statement=said)

    def forms(self) -> list[FittedForm]:
        """Records of the bounded forms with their regions, for fit.json."""
        rejected = {row.form for row in self.rivals if row.rejected}
        return [
            FittedForm(
                **law.columns(),
                rejected=law.form in rejected,
                region=tuple(numbers(point) for point in law.region),
            )
            for law in self.laws.values()
        ]


def fit_laws(curves: Curves, surface: LossSurface | None, pairs: Sequence[Pair], confidence: float) -> LawReport:
    """The exponential law and its alternatives by the draws of ``surface``.

    There is a law only if ``FEWEST_PAIRS`` pairs bound their crossing (one of them crossed), so that one is
    left to contradict its two constants, and the data bound both; otherwise the statement names the missing part.
    """
    if len(curves.depths) <= FEWEST_PAIRS:
        n = len(curves.depths)
        given = "one depth gives no pair" if n == 1 else f"{n} depths give {n - 1} pair{'s' if n > 2 else ''}"
        return LawReport.none(f"{given}; {FEWEST_PAIRS} pairs are needed")
    statuses = [one.verdict.status for one in pairs]
    crossed = statuses.count("crossed")
    bounds = sum(status in ("not_reached", "already_crossed") for status in statuses)
    if not crossed or crossed + bounds < FEWEST_PAIRS:
        return LawReport.none(
            f"{crossed} of {len(pairs)} pairs crossed and {bounds} more bound their crossing on one side; a law needs "
            f"{FEWEST_PAIRS} such pairs, one of them crossed"
        )
    if surface is None:
        return LawReport.none("no model of all depths")
    best = max(form.weight for form in surface.record.forms if form.form in FORMS)
    fits = {}
    for form in surface.record.forms:
        if form.form in FORMS and form.counts:
            delta = 2.0 * math.log(best / max(form.weight, 1e-300))
            fits[form.form] = _ties(curves, LossSurface(surface.record, only=form.form), form.form, delta, confidence)
    ranking = sorted(fits.values(), key=lambda fit: fit.delta)
    clear = len(ranking) < 2 or ranking[1].delta >= WINNING_DELTA
    winner = ranking[0].law.form if ranking and clear else None
    rivals = [_alternative_row(fit, winner, curves) for fit in ranking]
    own = fits.get(EXPONENTIAL.name)
    if own is None:
        return LawReport(None, rivals, "no width law fitted: the losses leave the exponential form no weight")
    if not own.bounded:
        return LawReport(
            None, rivals, "no width law fitted: the data leave a or b without a bound (crossings on one side only)"
        )
    laws = {form: fit.law for form, fit in fits.items() if fit.bounded}
    used = int(own.inside.sum())
    width_law = WidthLaw(
        form=EXPONENTIAL.name,
        a=own.law.theta[0],
        b=own.law.theta[1],
        cov=tuple(numbers(row) for row in own.cov),
        interval_a=(own.interval_a.low, own.interval_a.high),
        interval_b=(own.interval_b.low, own.interval_b.high),
        chi2=None,
        df=used - 2,
        pairs_used=used,
        pairs_censored=len(pairs) - used,
        valid_from=own.law.valid_from,
        valid_to=own.law.valid_to,
        p_value=None,
        confidence=confidence,
        delta_chi2=float(chi2_quantile(confidence, 1.0)),
        region=tuple(numbers(point) for point in own.law.region),
        winner=winner,
        a_error=own.errors[0].value,
        b_error=own.errors[1].value,
        interval_a_error=(own.errors[0].low, own.errors[0].high),
        interval_b_error=(own.errors[1].low, own.errors[1].high),
    )
    printed = [
        max(0, min(most, decimals(error))) if error else most
        for most, error in zip(DECIMALS, width_law.coarse, strict=True)
    ]
    statement = (
        f"{EXPONENTIAL.sentence(*own.law.theta, *printed)} by the losses of all depths; {used} of {len(pairs)} pairs "
        "tie at sizes of both depths"
    )
    warnings = []
    if winner is not None and winner != EXPONENTIAL.name and winner in laws:
        warnings.append(
            f"rivals: the losses weigh {winner} ({FORMS[winner].label}) {math.exp(own.delta / 2.0):.3g} times as much "
            "as the exponential law"
        )
    return LawReport(width_law, rivals, statement, warnings, laws)


def _ties(curves: Curves, surface: LossSurface, form: str, delta: float, confidence: float) -> FormTies:
    depths = np.array(curves.depths[:-1], dtype=float)
    drawn = _crossings(curves, surface, form)
    ln_d = np.stack([curves.ln_width_of(d, drawn[:, k]) for k, d in enumerate(curves.depths[:-1])], axis=1)
    equation = FORMS[form]
    theta = equation.through(ln_d, depths, 1.0 / (ln_d.var(axis=0) + SAME_WIDTH**2))
    finite = np.isfinite(theta).all(axis=1)
    theta, scramble = theta[finite], surface.posterior.scramble[finite]
    a, b = (answer(each, scramble, confidence) for each in theta.T)
    constants = (float(np.median(theta[:, 0])), float(np.median(theta[:, 1])))
    x = np.median(drawn, axis=0)
    shared = [
        (max(curves.sizes(d)[0] for d in both), min(curves.sizes(d)[-1] for d in both))
        for both in pairwise(curves.depths)
    ]
    inside = np.array([low <= value <= high for (low, high), value in zip(shared, x, strict=True)])
    of = depths[inside] if inside.any() else depths
    blocks = np.array([curves.weights_of_layer(int(depth)) for depth in of]) / STANDARD
    n = blocks * equation.n_params_needed(np.asarray(constants), of)
    widths = [effect(ln_d[:, k], confidence) for k in np.flatnonzero(inside)]
    bounded = len(widths) > 1 and all(one.high - one.low < UNKNOWN for one in widths if one.high and one.low)
    bounded = (
        bounded and b.interval.low is not None and b.interval.low > equation.least_b
    )  # otherwise there may be no law
    return FormTies(
        law=Law(
            f"own: {equation.label}", form, constants, float(n.min()), float(n.max()),
            _hull(_central(theta, confidence), constants),
        ),
        delta=delta,
        interval_a=a.interval,
        interval_b=b.interval,
        errors=(a.errors, b.errors),
        cov=np.cov(theta, rowvar=False),
        x=x,
        inside=inside,
        bounded=bounded,
    )  # fmt: skip


def _crossings(curves: Curves, surface: LossSurface, form: str) -> np.ndarray:
    """(T, pairs) ln of the size at which neighbours tie in each draw of a form, with its departures; where a draw has
    no crossing in the sizes of the data, without them."""
    posterior = surface.posterior
    ties = law(posterior, form)
    x = np.linspace(posterior.frame.low, posterior.frame.high, POINTS)
    for k, lead in enumerate(surface.differences(x, list(pairwise(curves.depths)))):
        found = crossings(x, lead[1:])
        ties[:, k] = np.where(np.isfinite(found), found, ties[:, k])
    return ties


def _central(theta: np.ndarray, confidence: float) -> np.ndarray:
    """The draws (T, 2) whose extremes give intervals of ``confidence`` of functions of both constants: the nearest to
    the median, in the metric of their covariance, up to the χ² of one degree of freedom."""
    away = theta - np.median(theta, axis=0)
    C = np.cov(theta, rowvar=False) + 1e-18 * np.eye(2)
    distance = np.einsum("ti,ij,tj->t", away, np.linalg.pinv(C), away)
    kept = distance <= float(chi2_quantile(confidence, 1.0))
    return theta[kept] if kept.any() else theta


def _hull(region: np.ndarray, theta: tuple[float, float]) -> np.ndarray:
    """Corners of the region's convex hull: functions that rise or fall in a and in b have their extremes there."""
    points = np.vstack([region, theta])
    if len(points) < 4 or not np.all(np.ptp(points, axis=0) > 0):
        return points
    (below, least), (above, most) = hull((float(a), float(b)) for a, b in points)
    return np.stack([np.concatenate([below, above[::-1]]), np.concatenate([least, most[::-1]])], axis=1)


def _alternative_row(fit: FormTies, winner: str | None, curves: Curves) -> Rival:
    return Rival(
        form=fit.law.form,
        a=fit.law.theta[0],
        b=fit.law.theta[1],
        chi2=None,
        df=int(fit.inside.sum()) - 2,
        delta_chi2=fit.delta,
        rejected=fit.delta >= WINNING_DELTA,
        winner=fit.law.form == winner,
        bounded=fit.bounded,
        transitions=tuple(
            RivalTransition(shallow=int(depth), ln_x=float(x))
            for depth, x in zip(curves.depths[:-1], fit.x, strict=True)
        ),
    )
