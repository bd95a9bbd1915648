"""The width law and its alternatives: of the best depth, and as a check of neighbouring depths that tie.

In every draw ln d of the best depth at each size gives the two constants of a form by least squares, over the sizes
whose best depth lies between the depths tried; forms are weighed by their evidence. The check, in the convention of
Levine et al. 2020, takes ln d where a pair ties at its shallower depth: it lies half a step of the grid shallower.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.answers.crossing import Crossing
from dwsweep.fit.answers.transitions import Pair, n_params_at
from dwsweep.fit.statistics.ask import LossSurface, answer, inside_depths
from dwsweep.fit.statistics.curves import Curves, SimultaneousBand
from dwsweep.fit.statistics.laws import EXPONENTIAL, FORMS, LawForm
from dwsweep.records.fit import BEST_DEPTH, PAIRS, WidthLaw
from dwsweep.records.transitions import Rival

SAME_WIDTH = 0.01  # distance in ln d due to rounded widths
FEWEST_POINTS = 3  # sizes, or pairs, that can contradict a law of two constants
FORMS_OF_CONSTANTS = ".3f", ".4f"  # of a and b in words
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
class Line:
    """A form through points. drawn: (T, 2) of its constants. grows: the data bound both constants, and the size surely
    grows with the depth. fits: no point surely lies off it, all of them taken together."""

    record: WidthLaw
    drawn: np.ndarray
    grows: bool
    fits: bool


@dataclass(frozen=True)
class Points:
    """M points that a law goes through, in D draws. x: (M,) ln axis. depth: (D, M) or (M,). ln_width: (D, M). weight:
    (M,)."""

    x: np.ndarray
    depth: np.ndarray
    ln_width: np.ndarray
    weight: np.ndarray

    @classmethod
    def of_best_depth(cls, curves: Curves, surface: LossSurface) -> Points:
        sizes = [row.ln_x for row in surface.record.optima if row.depth is not None]
        x, y, sd = inside_depths(surface.posterior, {x: surface.nets(x) for x in sizes})
        widths = [curves.ln_width_at(*each) for each in zip(x.tolist(), y.T, strict=True)]
        return cls(x, np.exp(y), np.array(widths).reshape(y.T.shape).T, sd**-2.0)

    @classmethod
    def of_pairs(cls, curves: Curves, surface: LossSurface, pairs: Mapping[Pair, Crossing]) -> Points:
        """Pairs that tie at sizes of both depths."""
        tied = {pair: one for pair, one in pairs.items() if one.root is not None}
        frame, depths = surface.posterior.frame, [shallow for shallow, _ in tied]
        at = [np.clip(one.drawn, frame.low, frame.high) for one in tied.values()]
        widths = [curves.ln_width_of(depth, x) for depth, x in zip(depths, at, strict=True)]
        ln_width = np.array(widths).reshape(len(tied), surface.posterior.n_draws).T
        weight = 1.0 / (ln_width.var(axis=0) + SAME_WIDTH**2)
        return cls(np.array([one.root for one in tied.values()]), np.array(depths, dtype=float), ln_width, weight)

    def line(self, curves: Curves, surface: LossSurface, equation: LawForm, of: str, confidence: float) -> Line | None:
        """The line of a form; None if fewer than ``FEWEST_POINTS`` points could contradict it."""
        if len(self.x) < FEWEST_POINTS:
            return None
        theta = equation.through(self.ln_width, self.depth, self.weight)
        finite = np.isfinite(theta).all(axis=1)
        theta, scramble = theta[finite], surface.posterior.scramble[finite]
        a, b = (answer(each, scramble, confidence) for each in theta.T)
        depth = np.broadcast_to(self.depth, self.ln_width.shape)
        rest = self.ln_width[finite] - equation.ln_width(theta[:, None, :], depth[finite])
        band = SimultaneousBand(rest.mean(axis=0), rest - rest.mean(axis=0), math.inf, confidence)
        sizes = [
            n_params_at(curves, min(curves.depths, key=lambda one: abs(one - layers)), x)
            for layers, x in zip(np.median(depth, axis=0).tolist(), self.x.tolist(), strict=True)
        ]
        middle, slope = np.median(theta, axis=0).tolist()
        record = WidthLaw(
            form=equation.name,
            of=of,
            a=middle,
            b=slope,
            interval_a=(a.low, a.high),
            interval_b=(b.low, b.high),
            valid_from=min(sizes),
            valid_to=max(sizes),
            a_error=a.error,
            b_error=b.error,
        )
        grows = None not in (a.low, a.high, b.high) and b.low is not None and b.low > equation.least_b
        return Line(record, theta, grows, bool(np.isfinite(rest).all() and not band.sign.any()))


def fit_laws(
    curves: Curves, surface: LossSurface | None, pairs: Mapping[Pair, Crossing], confidence: float
) -> LawReport:
    """The exponential law of the best depth and its alternatives by the draws of ``surface``, and the law of the pairs.

    There is a law only if ``FEWEST_POINTS`` pairs bound their crossing (one of them crossed), so that one is
    left to contradict its two constants, the data bound both, the losses leave its form weight, and its line goes
    through the best depths; otherwise the statement names the missing part.
    """
    if len(curves.depths) <= FEWEST_POINTS:
        n = len(curves.depths)
        given = "one depth gives no pair" if n == 1 else f"{n} depths give {n - 1} pair{'s' if n > 2 else ''}"
        return LawReport.none(f"{given}; {FEWEST_POINTS} pairs are needed")
    statuses = [one.status for one in pairs.values()]
    crossed = statuses.count("crossed")
    bounds = sum(status in ("not_reached", "already_crossed") for status in statuses)
    if not crossed or crossed + bounds < FEWEST_POINTS:
        return LawReport.none(
            f"{crossed} of {len(pairs)} pairs crossed and {bounds} more bound their crossing on one side; a law needs "
            f"{FEWEST_POINTS} such pairs, one of them crossed"
        )
    if surface is None:
        return LawReport.none("no model of all depths")
    points = Points.of_best_depth(curves, surface)
    forms = sorted((one for one in surface.record.forms if one.form in FORMS), key=lambda one: -one.weight)
    lines = {one.form: points.line(curves, surface, FORMS[one.form], BEST_DEPTH, confidence) for one in forms}
    rivals = [
        Rival(
            form=one.form,
            a=line.record.a if line else None,
            b=line.record.b if line else None,
            weight=one.weight,
            rejected=one.rejected,
            bounded=line is not None and line.grows and line.fits,
        )
        for one, line in zip(forms, lines.values(), strict=True)
    ]
    ties = Points.of_pairs(curves, surface, pairs)
    tied = ties.line(curves, surface, EXPONENTIAL, PAIRS, confidence)
    pairs_law = tied.record if tied and tied.grows else None
    check = f"{len(ties.x)} of {len(pairs)} pairs tie at sizes of both depths"
    check = f"{_sentence(pairs_law)}; {check}" if pairs_law else f"no law: {check}"
    law, why = lines.get(EXPONENTIAL.name), ""
    if law is None:
        why = f"the best depth lies between the depths tried at {len(points.x)} sizes; {FEWEST_POINTS} are needed"
    elif any(one.rejected for one in forms if one.form == EXPONENTIAL.name):
        why = "the losses leave the exponential form no weight"
    elif not law.grows:
        why = "the width of the best depth is not shown to grow with depth"
    elif not law.fits:
        why = "no line of ln d_x in L goes through the best depths"
    if why or law is None:
        return replace(LawReport.none(why, rivals), pairs_law=pairs_law, law_check=check)
    statement = f"{_sentence(law.record)}, the width of the best depth L, by the losses of all depths"
    band = _band(law.drawn, curves.depths, confidence)
    return LawReport(replace(law.record, band=band), rivals, statement, pairs_law, check)


def _band(theta: np.ndarray, depths: Sequence[int], confidence: float) -> tuple[tuple[float | None, ...], ...]:
    """Rows of a depth and the ends of the law's width there, over the ``depths`` and a little beyond; None: no end."""
    depth = np.linspace(max(1.0, 0.7 * min(depths)), 1.15 * max(depths), BAND_POINTS)
    levels = (1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0
    with np.errstate(over="ignore"):  # at a thousand layers the width is beyond floats
        ends = np.exp(np.quantile(EXPONENTIAL.ln_width(theta[:, None, :], depth), levels, axis=0))
    rows = np.vstack([depth, ends]).T
    return tuple(tuple(value if math.isfinite(value) else None for value in row) for row in rows.tolist())


def _sentence(found: WidthLaw) -> str:
    a, b = (one.texts(form)[0] or "" for form, one in zip(FORMS_OF_CONSTANTS, found.constants, strict=True))
    return FORMS[found.form].sentence(a, b)
