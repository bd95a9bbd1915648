"""The width law and its alternatives: of the best depth, and as a check of neighbouring depths that tie.

*Best depth.* In every draw of a form x_T, the ln of the size at which a depth is the best one, gives ln d at the
shallowest and the deepest net, and so the two constants of the form. Forms are weighed by their evidence.

*Pairs*, a check in the convention of Levine et al. 2020: a pair of neighbouring depths belongs to its shallower one, so
that the law of the pairs lies half a step of the grid shallower. In every draw the size at which a pair ties, with the
departures from the form, gives ln d at the shallower depth, and least squares over the pairs the constants.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from dwsweep.fit.ask import LossSurface, answer, crossings, effect, law, transitions
from dwsweep.fit.crossing import Crossing
from dwsweep.fit.curves import Curves
from dwsweep.fit.laws import EXPONENTIAL, FORMS, LawForm
from dwsweep.fit.transitions import SURFACE_POINTS
from dwsweep.records.fit import BEST_DEPTH, PAIRS, WidthLaw
from dwsweep.records.transitions import Rival
from dwsweep.shapes import STANDARD

MOST_LN_WIDTH = 100.0  # of a draw whose lead has hardly an end: the square of its width is a number, and bounds nothing
UNKNOWN = 2.0  # width in ln d of an interval above which the width bounds no constant
SAME_WIDTH = 0.01  # distance in ln d due to rounded widths
FEWEST_PAIRS = 3
DECIMALS = 3, 4  # of a and b in words
BAND_POINTS = 41  # depths of the drawn band


@dataclass(frozen=True)
class LawReport:
    """Fields of fit.json on laws: of the best depth, of the pairs as a check, a sentence on each, and the rivals."""

    width_law: WidthLaw | None
    rivals: list[Rival]
    law_statement: str
    pairs_law: WidthLaw | None = None
    law_check: str = ""

    @classmethod
    def none(cls, reason: str, rivals: Sequence[Rival] = ()) -> LawReport:
        return cls(None, list(rivals), f"no width law fitted: {reason}")


@dataclass(frozen=True)
class Constants:
    """Constants of a form. record: for fit.json. drawn: (T, 2). bounded: the data bound both."""

    record: WidthLaw
    drawn: np.ndarray
    bounded: bool


def fit_laws(curves: Curves, surface: LossSurface | None, pairs: Collection[Crossing], confidence: float) -> LawReport:
    """The exponential law of the best depth and its alternatives by the draws of ``surface``, and the law of the pairs.

    There is a law only if ``FEWEST_PAIRS`` pairs bound their crossing (one of them crossed), so that one is
    left to contradict its two constants, and the data bound both; otherwise the statement names the missing part.
    """
    if len(curves.depths) <= FEWEST_PAIRS:
        n = len(curves.depths)
        given = "one depth gives no pair" if n == 1 else f"{n} depths give {n - 1} pair{'s' if n > 2 else ''}"
        return LawReport.none(f"{given}; {FEWEST_PAIRS} pairs are needed")
    statuses = [one.status for one in pairs]
    crossed = statuses.count("crossed")
    bounds = sum(status in ("not_reached", "already_crossed") for status in statuses)
    if not crossed or crossed + bounds < FEWEST_PAIRS:
        return LawReport.none(
            f"{crossed} of {len(pairs)} pairs crossed and {bounds} more bound their crossing on one side; a law needs "
            f"{FEWEST_PAIRS} such pairs, one of them crossed"
        )
    if surface is None:
        return LawReport.none("no model of all depths")
    forms = sorted(
        (one for one in surface.record.forms if one.form in FORMS and one.has_draws), key=lambda one: -one.weight
    )
    surfaces = {one.form: LossSurface(surface.record, only=one.form) for one in forms}
    found = {form: of_best_depth(curves, of_form, form, confidence) for form, of_form in surfaces.items()}
    rivals = [
        Rival(
            form=one.form,
            a=found[one.form].record.a,
            b=found[one.form].record.b,
            weight=one.weight,
            rejected=one.rejected,
            bounded=found[one.form].bounded,
        )
        for one in forms
    ]
    own = found.get(EXPONENTIAL.name)
    if own is None:
        return LawReport.none("the losses leave the exponential form no weight", rivals)
    tied, used = of_pairs(curves, surfaces[EXPONENTIAL.name], confidence)
    check = f"{used} of {len(pairs)} pairs tie at sizes of both depths"
    check = f"{_sentence(tied.record)}; {check}" if tied.bounded else f"no law: {check}"
    pairs_law = tied.record if tied.bounded else None
    if not own.bounded:
        none = LawReport.none("the data leave a or b without a bound (best depths on one side only)", rivals)
        return replace(none, pairs_law=pairs_law, law_check=check)
    statement = f"{_sentence(own.record)}, the width of the best depth L, by the losses of all depths"
    return LawReport(
        replace(own.record, band=_band(own.drawn, curves.depths, confidence)), rivals, statement, pairs_law, check
    )


def _band(theta: np.ndarray, depths: Sequence[int], confidence: float) -> tuple[tuple[float | None, ...], ...]:
    """Rows of a depth and the ends of the law's width there, over the ``depths`` and a little beyond; None: no end."""
    depth = np.linspace(max(1.0, 0.7 * min(depths)), 1.15 * max(depths), BAND_POINTS)
    levels = (1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0
    with np.errstate(over="ignore"):  # at a thousand layers the width is beyond floats
        ends = np.exp(np.quantile(EXPONENTIAL.ln_width(theta[:, None, :], depth), levels, axis=0))
    rows = np.vstack([depth, ends]).T
    return tuple(tuple(value if math.isfinite(value) else None for value in row) for row in rows.tolist())


def _sentence(found: WidthLaw) -> str:
    printed = [
        most if one.decimals is None else max(0, min(most, one.decimals))
        for most, one in zip(DECIMALS, found.constants, strict=True)
    ]
    return FORMS[found.form].sentence(found.a, found.b, *printed)


def of_best_depth(curves: Curves, surface: LossSurface, form: str, confidence: float) -> Constants:
    """Law of the best depth by one form; it spans the sizes whose best depth lies between the depths tried."""
    equation, frame = FORMS[form], surface.posterior.frame
    first, last = (round(math.exp(end)) for end in (frame.first, frame.last))  # of all arms, where several are compared
    x = transitions(surface.posterior, form)
    ln_d = np.stack([_ln_width(curves, depth, x[:, k]) for k, depth in enumerate((first, last))], axis=1)
    ln_d = np.clip(ln_d, -MOST_LN_WIDTH, MOST_LN_WIDTH)
    depths = [row.depth for row in surface.record.optima if row.depth is not None]
    theta = equation.from_ends(ln_d, first, last)
    if len(depths) > 1:  # a deepest net that is best at no size of the data bounds no width
        ln_d = equation.ln_width(theta[:, None, :], np.array([min(depths), max(depths)]))
    return _constants(curves, surface, equation, theta, ln_d, depths, BEST_DEPTH, confidence)


def _ln_width(curves: Curves, depth: int, x: np.ndarray) -> np.ndarray:
    """``ln_width_of``, of the blocks of the nearest depth where the curves have no such one."""
    nearest = min(curves.depths, key=lambda one: abs(one - depth))
    return curves.ln_width_of(nearest, x) - math.log(depth / nearest) / 2.0


def of_pairs(curves: Curves, surface: LossSurface, confidence: float) -> tuple[Constants, int]:
    """Exponential law of the pairs, and the number of pairs that tie at sizes of both depths, which it spans."""
    depths = np.array(curves.depths[:-1], dtype=float)
    drawn = _ties(curves, surface, EXPONENTIAL.name)
    ln_d = np.stack([curves.ln_width_of(d, drawn[:, k]) for k, d in enumerate(curves.depths[:-1])], axis=1)
    weight = 1.0 / (ln_d.var(axis=0) + SAME_WIDTH**2)  # least squares of ln d = a + b·L in each draw
    share = weight / weight.sum()
    middle, centre = ln_d @ share, float(depths @ share)
    slope = ((ln_d - middle[:, None]) * (depths - centre)) @ share / float(share @ (depths - centre) ** 2)
    theta = np.stack([middle - slope * centre, slope], axis=1)
    shared = [
        (max(curves.sizes(d)[0] for d in both), min(curves.sizes(d)[-1] for d in both))
        for both in pairwise(curves.depths)
    ]
    x = np.median(drawn, axis=0)
    inside = np.array([low <= value <= high for (low, high), value in zip(shared, x, strict=True)])
    found = _constants(curves, surface, EXPONENTIAL, theta, ln_d[:, inside], depths[inside], PAIRS, confidence)
    return found, int(inside.sum())


def _constants(
    curves: Curves,
    surface: LossSurface,
    equation: LawForm,
    theta: np.ndarray,
    ln_d: np.ndarray,
    depths: Sequence[float] | np.ndarray,
    of: str,
    confidence: float,
) -> Constants:
    """``theta``: (T, 2) draws; ``ln_d``: (T, M) widths behind them, bounded if the constants are; ``depths``: whose
    sizes the law spans."""
    finite = np.isfinite(theta).all(axis=1)
    theta, scramble = theta[finite], surface.posterior.scramble[finite]
    a, b = (answer(each, scramble, confidence) for each in theta.T)
    constants = (float(np.median(theta[:, 0])), float(np.median(theta[:, 1])))
    of_depth = np.asarray(depths if len(depths) else curves.depths[:-1], dtype=float)
    trained = np.array(curves.depths)
    nearest = trained[np.abs(trained - of_depth[:, None]).argmin(axis=1)]
    blocks = np.array([curves.weights_of_layer(int(depth)) for depth in nearest]) / STANDARD
    n = blocks * equation.n_params_needed(np.asarray(constants), of_depth)
    ends = [effect(column, confidence) for column in ln_d.T]
    bounded = len(depths) > 1 and all(one.high - one.low < UNKNOWN for one in ends if one.high and one.low)
    bounded = bounded and b.low is not None and b.low > equation.least_b
    record = WidthLaw(
        form=equation.name,
        of=of,
        a=constants[0],
        b=constants[1],
        interval_a=(a.low, a.high),
        interval_b=(b.low, b.high),
        valid_from=float(n.min()),
        valid_to=float(n.max()),
        a_error=a.error,
        b_error=b.error,
    )
    return Constants(record, theta, bounded)


def _ties(curves: Curves, surface: LossSurface, form: str) -> np.ndarray:
    """(T, pairs) ln of the size at which neighbours tie in each draw of a form, with its departures; where a draw has
    no crossing in the sizes of the data, without them."""
    posterior = surface.posterior
    ties = law(posterior, form, np.log(curves.depths))
    x = np.linspace(posterior.frame.low, posterior.frame.high, SURFACE_POINTS)
    for k, lead in enumerate(surface.differences(x, list(pairwise(curves.depths)))):
        found = crossings(x, lead[1:])
        ties[:, k] = np.where(np.isfinite(found), found, ties[:, k])
    return ties
