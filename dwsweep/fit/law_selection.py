"""Whether the transitions give a law of this sweep, which form it has, and how far it reaches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dwsweep.fit.curves import Curves
from dwsweep.fit.laws import FORMS, Law, ln_width
from dwsweep.fit.noise import f_tail
from dwsweep.fit.pairs import Pair
from dwsweep.fit.width_law import LawFit, LawProblem
from dwsweep.records.fit_result import FittedForm, WidthLaw
from dwsweep.records.fit_rows import HeldOut, Rival, RivalTransition, numbers

WINNING_DELTA_CHI2 = 4.0
POOR_FIT_P_VALUE = 0.01
OWN_NAMES = {
    "exponential": "own: ln d = a + b·L",
    "linear": "own: d = a + b·L",
    "power": "own: ln d = a + b·ln L",
}


FEWEST_PAIRS = 3


@dataclass(frozen=True)
class LawReport:
    """width_law, rivals: as in fit.json. statement: one sentence. rival_laws: every form not rejected. laws: form →
    Law, for figures.

    This is the law of the transitions, in the convention of Levine et al. 2020: a pair of neighbouring depths belongs
    to its shallower one, so it lies half a step of the grid low. The best depth comes from the loss surface.
    """

    width_law: WidthLaw | None
    rivals: list[Rival]
    statement: str
    warnings: list[str] = field(default_factory=list)
    rival_laws: list[Law] = field(default_factory=list)
    laws: dict[str, Law] = field(default_factory=dict)

    @classmethod
    def none(cls, reason: str) -> LawReport:
        return cls(None, [], f"no width law fitted: {reason}")

    def forms(self) -> list[FittedForm]:
        """Each bounded form with its region, for fit.json."""
        open_forms = {law.form for law in self.rival_laws}
        return [
            FittedForm(
                name=law.name,
                form=law.form,
                a=law.theta[0],
                b=law.theta[1],
                valid_from=law.valid_from,
                valid_to=law.valid_to,
                rejected=law.form not in open_forms,
                region=tuple(numbers(point) for point in law.region),
            )
            for law in self.laws.values()
        ]


def fit_laws(
    curves: Curves, pairs: Sequence[Pair], confidence: float, forms: Sequence[str] = FORMS, held_out: bool = True
) -> LawReport:
    """Fit the exponential law and its rivals to the difference curves of ``pairs``.

    There is a law only if ``FEWEST_PAIRS`` pairs say where their crossing lies (one of them crossed), so that one is
    left to contradict its two constants, and the data bound both; otherwise the statement says what is missing.
    """
    usable = [p for p in pairs if p.difference is not None and p.crossing.critical is not None]
    crossed = [p for p in usable if p.crossing.status == "crossed"]
    informative = [p for p in usable if p.crossing.status in ("crossed", "not_reached", "already_crossed")]
    if len(curves.depths) <= FEWEST_PAIRS:
        n = len(curves.depths)
        given = "one depth gives no pair" if n == 1 else f"{n} depths give {n - 1} pair{'s' if n > 2 else ''}"
        return LawReport.none(f"{given}; {FEWEST_PAIRS} pairs are needed")
    if not crossed or len(informative) < FEWEST_PAIRS:
        return LawReport.none(
            f"{len(crossed)} of {len(pairs)} pairs crossed and {len(informative) - len(crossed)} more bound their "
            f"crossing on one side; a law needs {FEWEST_PAIRS} such pairs, one of them crossed"
        )
    df = min(p.difference.df for p in usable if p.difference is not None)
    problem = _problem(curves, usable, df, confidence)
    fits = {form: problem.fit(form) for form in forms}
    best = min(fit.chi2 for fit in fits.values())
    own = fits["exponential"]
    predictions = _held_out(curves, usable, df, confidence) if held_out else {}
    ranking = sorted(fits.values(), key=lambda fit: fit.chi2)
    clear = len(ranking) > 1 and ranking[1].chi2 - ranking[0].chi2 >= WINNING_DELTA_CHI2
    winner = ranking[0].form if clear else None
    rivals = [_rival_row(fit, best, winner, predictions.get(fit.form), problem) for fit in ranking]
    if not own.bounded:
        return LawReport(
            None, rivals, "no width law fitted: the data leave a or b without a bound (crossings on one side only)"
        )
    laws = {form: _law(fit, problem) for form, fit in fits.items() if fit.bounded}
    pairs_used = int(own.inside.sum())
    fit_df = pairs_used - 2
    p_value = _chi2_sf(own.chi2, fit_df, df)
    warnings = []
    if p_value is not None and p_value < POOR_FIT_P_VALUE:
        warnings.append(
            f"width law: χ² = {own.chi2:.1f} for {fit_df} degrees of freedom (p = {p_value:.1g}); the pairs do not lie "
            f"on ln d = a + b·L within their errors: its intervals are {math.sqrt(own.chi2 / fit_df):.1f} times wider"
        )
        own = problem.fit("exponential", own.chi2 / fit_df)
        if not own.bounded:
            return LawReport(None, rivals, "no width law fitted: the pairs do not lie on ln d = a + b·L", warnings)
        fits["exponential"] = own
    exponential = laws["exponential"]
    width_law = WidthLaw(
        form="exponential",
        a=own.theta[0],
        b=own.theta[1],
        cov=tuple(numbers(row) for row in own.cov),
        interval_a=own.interval_a,
        interval_b=own.interval_b,
        chi2=own.chi2,
        df=fit_df,
        pairs_used=pairs_used,
        pairs_censored=len(usable) - pairs_used,
        valid_from=exponential.valid_from,
        valid_to=exponential.valid_to,
        p_value=p_value,
        confidence=confidence,
        delta_chi2=own.level,
        region=tuple(numbers(point) for point in exponential.region),
        winner=winner,
    )
    statement = (
        f"ln d_x = {own.theta[0]:.3f} {'+' if own.theta[1] >= 0 else '−'} {abs(own.theta[1]):.4f}·L from {pairs_used} "
        f"pairs ({len(usable) - pairs_used} more bound it from one side)"
    )
    if winner is not None and winner != "exponential" and winner in laws:
        warnings.append(
            f"rivals: {winner} ({OWN_NAMES[winner][5:]}) fits the transitions better than the exponential law by Δχ² = "
            f"{own.chi2 - best:.1f}"
        )
    # rejection is by Δχ²; a form whose region has no bound cannot give a range and stays out
    open_rivals = [laws[fit.form] for fit in ranking if fit.form in laws and fit.chi2 - best < WINNING_DELTA_CHI2]
    return LawReport(width_law, rivals, statement, warnings, open_rivals, laws)


def _problem(curves: Curves, pairs: Sequence[Pair], df: float, confidence: float) -> LawProblem:
    return LawProblem(curves, [(p.difference, p.crossing) for p in pairs if p.difference is not None], df, confidence)


def _law(fit: LawFit, problem: LawProblem) -> Law:
    """The fitted form with the corners of its region, and the range of N that its transitions inside the data span."""
    depths = problem.depths[fit.inside] if fit.inside.any() else problem.depths
    n = 12.0 * depths * np.exp(2.0 * ln_width(fit.form, np.asarray(fit.theta), depths))
    return Law(OWN_NAMES[fit.form], fit.form, fit.theta, float(n.min()), float(n.max()), _hull(fit.region, fit.theta))


def _hull(region: np.ndarray, theta: tuple[float, float]) -> np.ndarray:
    """Corners of the region's convex hull: functions that rise or fall in a and in b have their extremes there."""
    from scipy.spatial import ConvexHull, QhullError

    points = np.vstack([region, theta])
    span = np.ptp(points, axis=0)
    if len(points) < 4 or not np.all(span > 0):
        return points
    try:
        return points[ConvexHull((points - points.mean(axis=0)) / span).vertices]
    except QhullError:
        return points


def _rival_row(fit: LawFit, best: float, winner: str | None, held_out: HeldOut | None, problem: LawProblem) -> Rival:
    delta = fit.chi2 - best
    return Rival(
        form=fit.form,
        a=fit.theta[0],
        b=fit.theta[1],
        chi2=fit.chi2,
        df=int(fit.inside.sum()) - 2,
        delta_chi2=delta,
        rejected=delta >= WINNING_DELTA_CHI2,
        winner=fit.form == winner,
        bounded=fit.bounded,
        held_out=held_out,
        transitions=tuple(
            RivalTransition(shallow=int(depth), ln_x=float(x)) for depth, x in zip(problem.depths, fit.x, strict=True)
        ),
    )


def _held_out(curves: Curves, pairs: Sequence[Pair], df: float, confidence: float) -> dict[str, HeldOut]:
    """Each form refitted without the deepest crossed pair, and how it predicts that pair's crossing."""
    crossed = [p for p in pairs if p.crossing.status == "crossed"]
    if len(crossed) < 3:
        return {}
    last = crossed[-1]
    kept = [p for p in pairs if p.deep <= last.shallow]
    if len(kept) < 2:
        return {}
    problem = _problem(curves, kept, df, confidence)
    rows = {}
    assert last.difference is not None and last.crossing.root is not None and last.crossing.se is not None
    for form in FORMS:
        fit = problem.fit(form)
        law = _law(fit, problem)
        predicted, low, high = law.ln_width_band(np.array([float(last.shallow)]))
        x = [
            float(curves.x_of_ln_width(last.shallow, v[0])) if np.isfinite(v[0]) else None
            for v in (predicted, low, high)
        ]
        error = None if x[0] is None else x[0] - last.crossing.root
        rows[form] = HeldOut(
            shallow=last.shallow,
            deep=last.deep,
            observed_ln_x=last.crossing.root,
            predicted_ln_x=x[0],
            predicted_low=x[1] if fit.bounded else None,
            predicted_high=x[2] if fit.bounded else None,
            error_ln_x=error,
            in_standard_errors=None if error is None else error / last.crossing.se,
        )
    return rows


def _chi2_sf(value: float, df: int, noise_df: float) -> float | None:
    """p-value of the fit, with the F distribution where the noise itself has few degrees of freedom."""
    return f_tail(value / df, df, noise_df) if df >= 1 else None
