"""The width law, fitted as the paper looks at pairs: to the difference curves of each pair's own two depths.

Pairs that never crossed take part.

For a law h(L; a, b) = ln d the transition of pair i lies at x_i = ln N at its shallower depth, and

    χ²(a, b) = min over μ of (g − μ)ᵀ Σ⁻¹ (g − μ),   g_i = g_i(x_i(a, b)),

with Σ the covariance of the g_i from the draws, μ_i = 0 where x_i lies inside the pair's range, and outside it μ_i only
bound in sign (the end value must not contradict the lead that the law predicts there). Intervals are profiles of χ²:
{Δχ² ≤ F(1, df)}, 3.84 at 95 % with many degrees of freedom.

The report on the laws says whether the transitions give a law at all, which form it has, and how far it reaches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dwsweep.fit.crossing import Crossing
from dwsweep.fit.curves import Curves, Difference
from dwsweep.fit.laws import EXPONENTIAL, FORMS, Law
from dwsweep.fit.noise import FLOOR_NATS, f_quantile, f_tail
from dwsweep.fit.transitions import Pair
from dwsweep.records.fit import FittedForm, Surface, WidthLaw
from dwsweep.records.transitions import HeldOut, Rival, RivalTransition, numbers

COARSE, FINE = 41, 81
BOX_MARGIN = 2.0
KEEP_DELTA = 14.0


@dataclass(frozen=True)
class LawFit:
    """A fitted form.

    law: the form at the minimum, with the corners of its region and the range of N that its transitions inside the data
    span. chi2: at the minimum. level: Δχ² that bounds the region. interval_a, interval_b: its projections (None:
    unbounded). cov: of (a, b). x: (P,) ln-axis of each pair's transition under the law. inside: (P,) whether it lies in
    the pair's range. bounded: the data bound both constants.
    """

    law: Law
    chi2: float
    level: float
    interval_a: tuple[float | None, float | None]
    interval_b: tuple[float | None, float | None]
    cov: np.ndarray
    x: np.ndarray
    inside: np.ndarray
    bounded: bool


class LawProblem:
    """χ² of any form over the pairs of one sweep, vectorised over many parameter pairs at once."""

    def __init__(self, curves: Curves, pairs: Sequence[Pair], df: float, confidence: float) -> None:
        found = [(p.own.difference, p.own.crossing) for p in pairs if p.own.difference is not None]
        self.curves, self.df = curves, df
        self.level = f_quantile(confidence, 1, df)
        self.depths = np.array([d.shallow for d, _ in found], dtype=float)
        self.low, self.high = np.array([(d.x[0], d.x[-1]) for d, _ in found]).T
        self.g = np.stack([d.g for d, _ in found])
        flat = np.concatenate([d.deviations for d, _ in found], axis=1)
        P, self.points = self.g.shape
        self.cov = (flat.T @ flat / len(flat)).reshape(P, self.points, P, self.points)
        self.target = np.stack([_envelope(d, c) for d, c in found])

    def x_of(self, ln_d: np.ndarray) -> np.ndarray:
        """(M, P) ln-axis of each pair's transition for ln widths (M, P)."""
        columns = [self.curves.x_of_ln_width(int(L), ln_d[:, i]) for i, L in enumerate(self.depths)]
        return np.stack(columns, axis=1)

    def chi2(self, form: str, theta: np.ndarray) -> np.ndarray:
        """(M,) χ² for theta (M, 2); infinite where the form gives no width."""
        ln_d = np.stack([FORMS[form].ln_width(theta, L) for L in self.depths], axis=1)
        bad = ~np.isfinite(ln_d).all(axis=1)
        x = self.x_of(np.where(np.isfinite(ln_d), ln_d, 0.0))
        sign = np.where(x > self.high, -1, np.where(x < self.low, 1, 0))
        g, S = self._at(x)
        value = np.empty(len(theta))
        for start in range(0, len(theta), 20_000):
            part = slice(start, start + 20_000)
            value[part] = constrained_chi2(g[part], S[part], sign[part])
        return np.where(bad, np.inf, value)

    def _at(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """g (M, P) and its covariance (M, P, P) at x (M, P), moved to the envelope and to the ends of the range."""
        P = len(self.depths)
        position = (np.clip(x, self.low, self.high) - self.low) / (self.high - self.low) * (self.points - 1)
        index = np.clip(np.round(position).astype(int), 0, self.points - 1)
        envelope = self.target[np.arange(P), index]
        position = np.where(envelope == index, position, envelope)
        i0 = np.clip(position.astype(int), 0, self.points - 2)
        w = position - i0
        pair = np.arange(P)
        g = self.g[pair, i0] * (1 - w) + self.g[pair, i0 + 1] * w
        S = np.empty((len(x), P, P))
        v = 1 - w
        for a in range(P):
            for b in range(a, P):
                block, ia, ib = self.cov[a, :, b], i0[:, a], i0[:, b]
                left = v[:, b] * block[ia, ib] + w[:, b] * block[ia, ib + 1]
                right = v[:, b] * block[ia + 1, ib] + w[:, b] * block[ia + 1, ib + 1]
                S[:, a, b] = S[:, b, a] = v[:, a] * left + w[:, a] * right
        S[:, pair, pair] += FLOOR_NATS**2
        return g, S

    def fit(self, form: str, inflation: float = 1.0) -> LawFit:
        """Minimum, confidence region and profile intervals of ``form`` on a grid that zooms in on the region.

        The grid runs over ln d at the shallowest and at the deepest pair, from which every form follows. inflation: of
        the variance, where the form does not hold within it: Δχ² is held against that much more.
        """
        level = self.level * inflation
        equation, first, last = FORMS[form], float(self.depths[0]), float(self.depths[-1])
        outer = np.array([self._range(0), self._range(-1)])

        def over(box: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """(ln d at the two ends, theta, χ²) on the grid over a box."""
            ends = _mesh(box, points)
            theta = equation.from_ends(ends, first, last)
            return ends, theta, self.chi2(form, theta)

        def around(near: np.ndarray, box: np.ndarray) -> np.ndarray:
            """The box that holds the points ``near``, with two steps of the coarse grid over ``box`` to spare."""
            step = 2.0 * (box[:, 1] - box[:, 0]) / (COARSE - 1)
            low, high = near.min(axis=0) - step, near.max(axis=0) + step
            return np.stack([np.maximum(low, outer[:, 0]), np.minimum(high, outer[:, 1])], axis=1)

        box = outer
        for _ in range(14):
            ends, _, value = over(box, COARSE)
            above, before = value - value.min(), box
            box = around(ends[above <= max(KEEP_DELTA * inflation, 2.0 * level)], before)
            if np.all(box[:, 1] - box[:, 0] > 0.6 * (before[:, 1] - before[:, 0])):
                break
        # the last box holds Δχ² ≤ 14, the region about half of it: cut to the region before the fine grid
        ends, theta, value = over(around(ends[above <= 1.6 * level], before), FINE)
        best = int(np.argmin(value))
        delta = value - value[best]
        held = ends[delta <= level]
        tolerance = (outer[:, 1] - outer[:, 0]) * 1e-3
        open_low = held.min(axis=0) <= outer[:, 0] + tolerance
        open_high = held.max(axis=0) >= outer[:, 1] - tolerance
        region = theta[delta <= level]
        intervals = _intervals(region, open_low, open_high)
        x = self.x_of(np.stack([equation.ln_width(theta[best : best + 1], L) for L in self.depths], axis=1))[0]
        inside = (x >= self.low) & (x <= self.high)
        constants = (float(theta[best, 0]), float(theta[best, 1]))
        n = equation.n_params_needed(np.asarray(constants), self.depths[inside] if inside.any() else self.depths)
        return LawFit(
            law=Law(
                f"own: {equation.label}", form, constants, float(n.min()), float(n.max()), _hull(region, constants)
            ),
            chi2=float(value[best]),
            level=level,
            interval_a=intervals[0],
            interval_b=intervals[1],
            cov=_covariance(theta, delta / inflation, self.df),
            x=x,
            inside=inside,
            bounded=not (open_low.any() or open_high.any()),
        )

    def _range(self, pair: int) -> tuple[float, float]:
        depth = int(self.depths[pair])
        low = float(self.curves.ln_width_of(depth, self.low[pair]))
        high = float(self.curves.ln_width_of(depth, self.high[pair]))
        return low - BOX_MARGIN, high + BOX_MARGIN


def _mesh(box: np.ndarray, points: int) -> np.ndarray:
    """(points², 2) grid over box (2, 2) of lows and highs."""
    return np.stack(np.meshgrid(*(np.linspace(lo, hi, points) for lo, hi in box), indexing="ij"), axis=-1).reshape(
        -1, 2
    )


def constrained_chi2(g: np.ndarray, S: np.ndarray, sign: np.ndarray) -> np.ndarray:
    """(M,) min over μ of (g − μ)ᵀ S⁻¹ (g − μ) with μ_i = 0 where sign is 0, μ_i ≥ 0 where 1, μ_i ≤ 0 where −1.

    g: (M, P), S: (M, P, P), sign: (M, P). Coordinate descent: each step solves for one μ_i exactly.
    """
    mu = np.zeros_like(g)
    free = np.flatnonzero((sign != 0).any(axis=1))
    if len(free):
        Qf = np.linalg.inv(S[free])
        gf, sf, m = g[free], sign[free], mu[free]
        low = np.where(sf < 0, -np.inf, 0.0)
        high = np.where(sf > 0, np.inf, 0.0)
        columns = np.flatnonzero((sf != 0).any(axis=0))
        for _ in range(40):
            before = m.copy()
            for i in columns:
                step = np.einsum("mj,mj->m", Qf[:, i], gf - m) / Qf[:, i, i]
                m[:, i] = np.clip(m[:, i] + step, low[:, i], high[:, i])
            if np.max(np.abs(m - before)) < 1e-9:
                break
        mu[free] = m
    r = g - mu
    return np.einsum("mi,mi->m", r, np.linalg.solve(S, r[..., None])[..., 0])


def _envelope(d: Difference, c: Crossing) -> np.ndarray:
    """(G,) for each grid point the point at which a crossing there is held against the data.

    A crossing at x says that the shallower is ahead nowhere to the right and the deeper nowhere to the left. Where one
    significantly is, that point contradicts it more than g(x) ≈ 0 supports it, so that curves that coincide at
    small sizes offer no false root.
    """
    G = len(d.x)
    index = np.arange(G)
    if c.critical is None:
        return index
    t = d.g / d.se
    target = index.copy()
    against = np.maximum(np.abs(t), c.critical)
    for i in range(G):
        right, left = i + int(np.argmin(t[i:])), int(np.argmax(t[: i + 1]))
        worst = max((-t[right], right), (t[left], left))
        if worst[0] > against[i] + 1e-9:
            target[i] = worst[1]
    return target


def _intervals(
    region: np.ndarray, open_low: np.ndarray, open_high: np.ndarray
) -> tuple[tuple[float | None, float | None], tuple[float | None, float | None]]:
    """Projections of the region on a and b. An open end of either ln d leaves one end of each open: b falls where the
    first ln d is open above or the last open below, and rises where the first is open below or the last open above."""
    low, high = region.min(axis=0), region.max(axis=0)
    b_low = None if open_high[0] or open_low[1] else float(low[1])
    b_high = None if open_low[0] or open_high[1] else float(high[1])
    a_low = None if open_low[0] or open_high[1] else float(low[0])
    a_high = None if open_high[0] or open_low[1] else float(high[0])
    return (a_low, a_high), (b_low, b_high)


def _covariance(theta: np.ndarray, delta: np.ndarray, df: float) -> np.ndarray:
    """Covariance of (a, b) under the likelihood exp(−Δχ²/2) over the grid (t-shaped for few df)."""
    with np.errstate(over="ignore"):
        if math.isfinite(df) and df > 2:
            weight = (1.0 + delta / df) ** (-(df + 2.0) / 2.0)
        else:
            weight = np.exp(-delta / 2.0)
    weight = np.where(np.isfinite(delta), weight, 0.0)
    weight /= weight.sum()
    used = np.where(np.isfinite(theta), theta, 0.0)
    mean = weight @ used
    centred = used - mean
    return (centred * weight[:, None]).T @ centred


WINNING_DELTA_CHI2 = 4.0
POOR_FIT_P_VALUE = 0.01
FEWEST_PAIRS = 3


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
        """The report, which says so where the losses of all depths together reject the form of the law."""
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


def fit_laws(curves: Curves, pairs: Sequence[Pair], confidence: float) -> LawReport:
    """Fit the exponential law and its alternatives to the difference curves of ``pairs``.

    There is a law only if ``FEWEST_PAIRS`` pairs say where their crossing lies (one of them crossed), so that one is
    left to contradict its two constants, and the data bound both; otherwise the statement says what is missing.
    """
    usable = [p for p in pairs if p.own.difference is not None and p.own.crossing.critical is not None]
    crossed = [p for p in usable if p.own.crossing.status == "crossed"]
    informative = [p for p in usable if p.own.crossing.status in ("crossed", "not_reached", "already_crossed")]
    if len(curves.depths) <= FEWEST_PAIRS:
        n = len(curves.depths)
        given = "one depth gives no pair" if n == 1 else f"{n} depths give {n - 1} pair{'s' if n > 2 else ''}"
        return LawReport.none(f"{given}; {FEWEST_PAIRS} pairs are needed")
    if not crossed or len(informative) < FEWEST_PAIRS:
        return LawReport.none(
            f"by their own curves alone {len(crossed)} of {len(pairs)} pairs crossed and "
            f"{len(informative) - len(crossed)} more bound their crossing on one side; a law needs {FEWEST_PAIRS} such "
            "pairs, one of them crossed"
        )
    df = min(p.own.difference.df for p in usable if p.own.difference is not None)
    problem = LawProblem(curves, usable, df, confidence)
    fits = {form: problem.fit(form) for form in FORMS}
    best = min(fit.chi2 for fit in fits.values())
    own = fits[EXPONENTIAL.name]
    predictions = _held_out(curves, usable, df, confidence)
    ranking = sorted(fits.values(), key=lambda fit: fit.chi2)
    clear = ranking[1].chi2 - ranking[0].chi2 >= WINNING_DELTA_CHI2
    winner = ranking[0].law.form if clear else None
    rivals = [_alternative_row(fit, best, winner, predictions.get(fit.law.form), problem) for fit in ranking]
    if not own.bounded:
        return LawReport(
            None, rivals, "no width law fitted: the data leave a or b without a bound (crossings on one side only)"
        )
    laws = {form: fit.law for form, fit in fits.items() if fit.bounded}
    pairs_used = int(own.inside.sum())
    fit_df = pairs_used - 2
    p_value = f_tail(own.chi2 / fit_df, fit_df, df) if fit_df >= 1 else None  # few degrees of freedom: no χ²
    warnings = []
    if p_value is not None and p_value < POOR_FIT_P_VALUE:
        warnings.append(
            f"width law: χ² = {own.chi2:.1f} for {fit_df} degrees of freedom (p = {p_value:.1g}); the pairs do not lie "
            f"on ln d = a + b·L within their errors: its intervals are {math.sqrt(own.chi2 / fit_df):.1f} times wider"
        )
        own = problem.fit(EXPONENTIAL.name, own.chi2 / fit_df)
        if not own.bounded:
            return LawReport(None, rivals, "no width law fitted: the pairs do not lie on ln d = a + b·L", warnings)
    exponential = laws[EXPONENTIAL.name]
    width_law = WidthLaw(
        form=EXPONENTIAL.name,
        a=own.law.theta[0],
        b=own.law.theta[1],
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
        f"{EXPONENTIAL.sentence(*own.law.theta)} from the own curves of {pairs_used} pairs ("
        f"{len(usable) - pairs_used} more bound it from one side)"
    )
    if winner is not None and winner != EXPONENTIAL.name and winner in laws:
        warnings.append(
            f"rivals: {winner} ({FORMS[winner].label}) fits the transitions better than the exponential law by Δχ² = "
            f"{own.chi2 - best:.1f}"
        )
    return LawReport(width_law, rivals, statement, warnings, laws)


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


def _alternative_row(
    fit: LawFit, best: float, winner: str | None, held_out: HeldOut | None, problem: LawProblem
) -> Rival:
    delta = fit.chi2 - best
    return Rival(
        form=fit.law.form,
        a=fit.law.theta[0],
        b=fit.law.theta[1],
        chi2=fit.chi2,
        df=int(fit.inside.sum()) - 2,
        delta_chi2=delta,
        rejected=delta >= WINNING_DELTA_CHI2,
        winner=fit.law.form == winner,
        bounded=fit.bounded,
        held_out=held_out,
        transitions=tuple(
            RivalTransition(shallow=int(depth), ln_x=float(x)) for depth, x in zip(problem.depths, fit.x, strict=True)
        ),
    )


def _held_out(curves: Curves, pairs: Sequence[Pair], df: float, confidence: float) -> dict[str, HeldOut]:
    """Forms refitted without the deepest crossed pair, and how each predicts that pair's crossing."""
    crossed = [p for p in pairs if p.own.crossing.status == "crossed"]
    if len(crossed) < 3:
        return {}
    last = crossed[-1]
    kept = [p for p in pairs if p.deep <= last.shallow]
    if len(kept) < 2:
        return {}
    problem = LawProblem(curves, kept, df, confidence)
    rows = {}
    observed = last.own.crossing
    assert observed.root is not None and observed.se is not None
    for form in FORMS:
        fit = problem.fit(form)
        band = fit.law.ln_width_band(np.array([float(last.shallow)]))
        x = [float(curves.x_of_ln_width(last.shallow, v[0])) if np.isfinite(v[0]) else None for v in band]
        error = None if x[0] is None else x[0] - observed.root
        rows[form] = HeldOut(
            shallow=last.shallow,
            deep=last.deep,
            observed_ln_x=observed.root,
            predicted_ln_x=x[0],
            predicted_low=x[1] if fit.bounded else None,
            predicted_high=x[2] if fit.bounded else None,
            error_ln_x=error,
            in_standard_errors=None if error is None else error / observed.se,
        )
    return rows
