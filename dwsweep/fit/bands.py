"""Simultaneous bands: losses within one group against each other, and one arm against another over all sizes.

*Within a group.* With m_j the mean loss at value j, corrected to the size of the group, every difference m_j − m_i has
a band that holds for all pairs at once (sup-t over the draws of all cells). From L_ji ≤ μ_j − μ_i ≤ U_ji for all pairs
follows, whichever value is the best one and however it was chosen (Hsu 1996, Multiple Comparisons),

    max_i L_ji ≤ μ_j − min_i μ_i ≤ max_i U_ji            above the best
    max_ji L_ji ≤ max_j μ_j − min_i μ_i ≤ max_ji U_ji    the spread

The spread of noisy means is larger than that of the true ones; what the draws add to it once more is taken off its
estimate. Shapes are not quite of one size: with s the slope of the loss in ln N, m = mean − s·(x − x_group), and the
error of s is drawn, too.

*Between arms.* The loss of one arm − the loss of another at each depth, against size, has a band and crossovers. Both
curves are interpolated as a pair of depths is (curves.py), so shapes need not have the same size. The draws behind the
band hold what the arms share. A level that the seeds add to all sizes alike is part of every error: it cancels between
the depths of one arm, and not between arms.

Arms of different vocabularies are compared in bits per byte. A loss in nats per token is that times a constant of the
arm, ln 2 times its bytes per token, so each arm's losses and all that its noise is made of are scaled by it at first.
Its crossings and best depths, which are places and not losses, are the same in either unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from dwsweep.fit.curves import (
    INTERPOLATION_DRAWS,
    Curves,
    Difference,
    SimultaneousBand,
    distinct,
    gaussian,
    interpolation_sd,
    pchip,
    spline,
)
from dwsweep.fit.noise import FLOOR_NATS, t_two_sided
from dwsweep.fit.pairing import Arm, Pairing, pair_arms, summed
from dwsweep.interval import Interval
from dwsweep.records.fit import FitOptions
from dwsweep.records.studies import LOSS, UNCHANGED, VERDICTS, ArmsApart, ArmsAtDepth, ComparedRow, Parting
from dwsweep.records.transitions import numbers
from dwsweep.text import BITS, NATS, format_count

SLOPE_ERROR = 0.5  # of the slope, where fewer than three show its spread
# d ln loss / d ln N where one size says nothing of it: alpha_N of Kaplan et al. 2020, with an error as large as itself
DEFAULT_SLOPE = -0.076
SAME_SIZE = 1e-3  # in ln N, below which nothing is corrected


@dataclass(frozen=True)
class Slope:
    """dloss/dx at a group's size, nats per unit of ln N. common: its error, of all cells alike; own: of each cell's own
    slope. measured: by the neighbouring sizes of the curves."""

    value: float
    common: float
    own: float
    measured: bool


@dataclass(frozen=True)
class Losses:
    """The cells of a group, J values. mean (J,); deviations (D, J): draws of their errors; se (J,); df: degrees of
    freedom; correction (J,): what was added to the means; gap: the largest |x − x_group|; known: errors are."""

    mean: np.ndarray
    deviations: np.ndarray
    df: float
    correction: np.ndarray
    gap: float
    slope: Slope | None
    known: bool

    @property
    def se(self) -> np.ndarray:
        return np.maximum(self.deviations.std(axis=0), FLOOR_NATS)


@dataclass(frozen=True)
class Bands:
    """value, low, high (J,) each; without low and high where the noise is not known."""

    value: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None

    @classmethod
    def of(cls, band: SimultaneousBand) -> Bands:
        return cls(band.value, band.low, band.high)

    def at(self, k: int) -> Interval:
        if self.low is None or self.high is None:
            return Interval(float(self.value[k]))
        return Interval(float(self.value[k]), float(self.low[k]), float(self.high[k]))


@dataclass(frozen=True)
class Ranking:
    """above_best, above_first: (J,). spread: of the worst over the best, nats."""

    above_best: Bands
    above_first: Bands
    spread: Interval


def losses_of(curves: Curves, cells: Sequence[int], x: float | None, rng: np.random.Generator) -> Losses:
    """The cells of one group at ln axis ``x``; None: as they are, for the sizes are what is compared."""
    where = np.array(cells)
    mean, deviations = curves.mean[where], curves.draws[:, where] - curves.mean[where]
    df = min(curves.noise.df.get(int(d), math.inf) for d in curves.depth[where]) if curves.noise.known else 0.0
    gaps = np.zeros(len(where)) if x is None else curves.x[where] - x
    correction = np.zeros(len(where))
    slope = None
    if np.abs(gaps).max() > SAME_SIZE:
        slope = slope_at(curves, where)
        correction = -slope.value * gaps
        n = len(deviations)
        errors = slope.common * rng.standard_normal((n, 1)) + slope.own * rng.standard_normal((n, len(where)))
        deviations = deviations - errors * gaps
    return Losses(mean + correction, deviations, df, correction, float(np.abs(gaps).max()), slope, curves.noise.known)


def slope_at(curves: Curves, cells: np.ndarray) -> Slope:
    """The middle of the slopes to the neighbouring sizes of each cell's curve."""
    found = []
    for k in cells:
        near = curves.at(int(curves.depth[k]))
        place = int(np.flatnonzero(near == k)[0])
        beside = [near[j] for j in (place - 1, place + 1) if 0 <= j < len(near)]
        steps = [curves.x[k] - curves.x[j] for j in beside]
        own = [
            (curves.mean[k] - curves.mean[j]) / step for j, step in zip(beside, steps, strict=True) if abs(step) > 0.1
        ]
        if own:
            found.append(float(np.mean(own)))
    if not found:
        value = DEFAULT_SLOPE * float(curves.mean[cells].mean())
        return Slope(value, abs(value), 0.0, False)
    middle = float(np.median(found))
    own_error = float(np.std(found, ddof=1)) if len(found) > 2 else SLOPE_ERROR * abs(middle)
    return Slope(middle, own_error / math.sqrt(len(found)), own_error, True)


def ranked(losses: Losses, confidence: float) -> Ranking:
    """Every value against every other."""
    m = losses.mean
    above, first = m - m.min(), m - m[0]
    spread = float(np.ptp(m))
    if not losses.known or len(m) < 2:
        return Ranking(Bands(above, None, None), Bands(first, None, None), Interval(spread))
    i, j = np.triu_indices(len(m), 1)
    low, high = np.zeros((len(m), len(m))), np.zeros((len(m), len(m)))
    d = losses.deviations
    pairs = SimultaneousBand(m[j] - m[i], d[:, j] - d[:, i], losses.df, confidence)
    low[j, i], high[j, i] = pairs.low, pairs.high
    low[i, j], high[i, j] = -high[j, i], -low[j, i]
    ends = SimultaneousBand(first[1:], d[:, np.arange(1, len(m))] - d[:, :1], losses.df, confidence)
    drawn = float(np.ptp(m + d, axis=1).mean())
    bounds = float(low.max()), float(high.max())
    return Ranking(
        Bands(above, low.max(axis=1), high.max(axis=1)),
        Bands(first, np.append(0.0, ends.low), np.append(0.0, ends.high)),
        Interval(float(np.clip(2.0 * spread - drawn, *bounds)), *bounds),
    )


def apart(
    base: tuple[Arm, Losses, Sequence[int]],
    other: tuple[Arm, Losses, Sequence[int]],
    pairing: Pairing,
    confidence: float,
    rng: np.random.Generator,
) -> Bands:
    """Loss of the other arm − loss of the base at the values that both have, given in the same order: (arm, losses,
    cells). The band holds at all of them together; the errors are those of the cells, less what ``pairing`` says that
    they share, with the level that a seed adds to all."""
    (a, of_a, i), (b, of_b, j) = base, other
    value = of_b.mean - of_a.mean
    if not (of_a.known and of_b.known):
        return Bands(value, None, None)
    own = [c.total_covariance[np.ix_(k, k)] for c, k in ((a.curves, i), (b.curves, j))]
    cross = pairing.cross[np.ix_(i, j)]
    covariance = own[0] + own[1] - cross - cross.T
    n = len(of_a.deviations)
    deviations = gaussian(covariance, n, rng) + math.sqrt(pairing.level) * rng.standard_normal((n, 1))
    for losses in (of_a, of_b):  # a slope of each arm
        if losses.slope is not None:
            gaps = -losses.correction / losses.slope.value if losses.slope.value else np.zeros(len(value))
            errors = losses.slope.common * rng.standard_normal((n, 1))
            deviations = deviations + (errors + losses.slope.own * rng.standard_normal((n, len(value)))) * gaps
    labels = [int(a.curves.depth[k]) for k in i]
    if pairing.noise is not None:
        parts = [(float(np.mean(np.diagonal(covariance))), min(pairing.noise.df.get(d, math.inf) for d in labels))]
    else:
        parts = [(float(np.mean(np.diagonal(v))), losses.df) for v, losses in zip(own, (of_a, of_b), strict=True)]
    df = max(summed([*parts, (pairing.level, pairing.level_df)])[1], 1.0)
    return Bands.of(SimultaneousBand(value, deviations, df, confidence))


POINTS = 81
SEED = 11  # of the draws
SAME_BYTES = 0.01  # relative difference of held-out texts that are one


@dataclass(frozen=True)
class LossesApart:
    """rows: at the smallest, middle and largest size of each depth. sentences: where the arms part, in words."""

    unit: str
    rows: tuple[ComparedRow, ...]
    depths: tuple[ArmsAtDepth, ...]
    sentences: tuple[str, ...]
    notes: tuple[str, ...]


def losses_apart(base: Arm, other: Arm, pairing: Pairing, options: FitOptions) -> LossesApart:
    """Compare at all depths that both arms have; without an estimate of the noise there is no band."""
    unit, scales, why = _unit(base, other)
    notes: list[str] = []
    if why and scales:
        notes = [f"losses are compared in {unit}: {why}", *_unequal_text((base, other), scales)]
        base, other = (_scaled(arm, scale) for arm, scale in zip((base, other), scales, strict=True))
        pairing = pair_arms(base, other)
    if not (base.curves.noise.known and other.curves.noise.known):
        return LossesApart(unit, (), (), ("losses: the noise is not known, so nothing is said",), tuple(notes))
    if scales is None:
        return LossesApart(unit, (), (), (f"losses: not comparable, {why}",), ())
    if pairing.single_seed:
        notes.append(
            "one seed: what it adds to the losses of all shapes alike is taken to be as large as the noise of one run"
        )
    rows: list[ComparedRow] = []
    depths = []
    for d, values in _differences(base, other, pairing, options):
        band = d.band(options.confidence)
        half = t_two_sided(options.confidence, d.df) * d.se
        curve = ArmsApart(
            depth=d.shallow,
            x=numbers(np.exp(d.x)),
            g=numbers(d.g),
            low=numbers(d.g - half),
            high=numbers(d.g + half),
            band_low=numbers(band.low),
            band_high=numbers(band.high),
        )
        depths.append(ArmsAtDepth(curve=curve, partings=tuple(_crossovers(curve))))
        rows += [
            _row(other.label, curve, values[:, k], k, options.confidence) for k in (0, len(d.x) // 2, len(d.x) - 1)
        ]
    return LossesApart(unit, tuple(rows), tuple(depths), (_sentence(depths, base.label, other.label),), tuple(notes))


def _unit(base: Arm, other: Arm) -> tuple[str, tuple[float, float] | None, str]:
    """(unit, factors from nats per token of each arm, why it is not nats); no factors where nothing can be compared."""
    if base.unit != other.unit:
        return base.unit, None, f"the losses of one are in {base.unit}, of the other in {other.unit}"
    if base.unit != NATS:
        return base.unit, (1.0, 1.0), ""
    sizes = [{run.row.get("vocab_size") for run in arm.runs} - {None} for arm in (base, other)]
    if not all(sizes) or sizes[0] == sizes[1]:
        return NATS, (1.0, 1.0), ""
    factors = []
    for arm in (base, other):
        known = [bits / run.loss for run in arm.runs if (bits := run.row.get("bits_per_byte")) and run.loss > 0]
        if not known:
            return NATS, None, "the vocabularies differ, and not every run has its bits per byte"
        factors.append(float(np.median(known)))
    return BITS, (factors[0], factors[1]), "the vocabularies differ"


def _scaled(arm: Arm, factor: float) -> Arm:
    """The arm with its losses, and the noise of them, in another unit."""
    curves, noise = arm.curves, arm.curves.noise
    in_unit = replace(
        noise,
        sigma={depth: None if sigma is None else factor * sigma for depth, sigma in noise.sigma.items()},
        tau=None if noise.tau is None else factor * noise.tau,
        shape_variance=factor**2 * noise.shape_variance,
    )
    return replace(
        arm,
        runs=[replace(run, loss=factor * run.loss) for run in arm.runs],
        curves=replace(
            curves,
            mean=factor * curves.mean,
            se=factor * curves.se,
            draws=factor * curves.draws,
            means=curves.means.scaled(factor),
            noise=in_unit,
        ),
    )


def _unequal_text(arms: tuple[Arm, Arm], scales: tuple[float, float]) -> list[str]:
    """What arms of different vocabularies saw at equal counts of tokens, in bytes."""
    per_token = [1.0 / (math.log(2.0) * scale) for scale in scales]
    of_each = " and ".join(f"{size:.2f} ({arm.label})" for arm, size in zip(arms, per_token, strict=True))
    line = f"bytes per token are {of_each}: equal tokens are unequal text"
    parts = []
    for name, what in (("tokens", "trained on"), ("seq_len", "in a window")):
        counts = [_shared(arm, name) for arm in arms]
        known = [count * size for count, size in zip(counts, per_token, strict=True) if count is not None]
        if len(known) == len(arms):
            parts.append(f"{' and '.join(map(format_count, known))} bytes {what}")
    lines = [f"{line} ({', '.join(parts)})" if parts else line]
    held = [
        float(arm.held_out.tokens.sum()) * size
        for arm, size in zip(arms, per_token, strict=True)
        if arm.held_out is not None and arm.held_out.tokens is not None
    ]
    if len(held) == len(arms) and abs(math.log(held[0] / held[1])) > SAME_BYTES:
        lines.append(
            f"the held-out texts differ ({' and '.join(map(format_count, held))} bytes): without train.eval_tokens "
            "every vocabulary is evaluated on the same"
        )
    return lines


def _shared(arm: Arm, name: str) -> float | None:
    """A count that all runs of an arm share; None where they do not, or where it is not known."""
    values = {run.row.get(name) for run in arm.runs}
    value = values.pop() if len(values) == 1 else None
    return None if value is None else float(value)


def _differences(
    base: Arm, other: Arm, pairing: Pairing, options: FitOptions
) -> Iterator[tuple[Difference, np.ndarray]]:
    """(other − base, the losses of both (2, G)) of each depth that both have at two sizes and more."""
    a, b = base.curves, other.curves
    rng = np.random.default_rng([SEED, options.seed])
    draws = gaussian(_joint(a, b, pairing.cross), options.draws, rng)
    level = math.sqrt(pairing.level) * rng.standard_normal((options.draws, 1))
    for depth in sorted(set(a.depths) & set(b.depths)):
        one, two = a.sizes(depth), b.sizes(depth)
        low, high = max(one[0], two[0]), min(one[-1], two[-1])
        if len(one) < 2 or len(two) < 2 or high - low < 1e-6:
            continue
        grid = np.linspace(low, high, POINTS)
        curves, smooth = [], []
        for arm, deviations in ((a, draws[:, : len(a.x)]), (b, draws[:, len(a.x) :])):
            where = arm.at(depth)
            x, values = distinct(arm.x[where], np.vstack([arm.mean[where], arm.mean[where] + deviations[:, where]]))
            curves.append(pchip(x, values, grid))
            smooth.append(spline(x, values[:INTERPOLATION_DRAWS], grid))
        values = curves[1] - curves[0]
        fewest = min((one, two), key=len)
        error = interpolation_sd(grid, values, smooth[1] - smooth[0], fewest)
        deviations = values[1:] - values[1:].mean(axis=0) + level
        deviations = deviations + np.random.default_rng([SEED, depth]).standard_normal((options.draws, 1)) * error
        df = _df(a, b, pairing, depth)
        yield Difference(depth, depth, grid, values[0], deviations, df), np.stack([curves[0][0], curves[1][0]])


def _joint(a: Curves, b: Curves, cross: np.ndarray) -> np.ndarray:
    return np.block([[a.total_covariance, cross], [cross.T, b.total_covariance]])


def _df(a: Curves, b: Curves, pairing: Pairing, depth: int) -> float:
    """Degrees of freedom of the variance of a difference at ``depth``: of its cells, and of the level."""
    own = [float(np.mean(np.diagonal(c.covariance)[c.at(depth)])) + c.noise.shape_variance for c in (a, b)]
    if pairing.noise is None:
        parts = [(variance, c.noise.df.get(depth, math.inf)) for variance, c in zip(own, (a, b), strict=True)]
    else:
        shared = [pairing.cross[i, j] for i, j in pairing.cells if int(a.depth[i]) == depth]
        apart = max(sum(own) - 2.0 * float(np.mean(shared or [0.0])), 0.0)
        parts = [(apart, pairing.noise.df.get(depth, math.inf))]
    return max(summed([*parts, (pairing.level, pairing.level_df)])[1], 1.0)


def _crossovers(curve: ArmsApart) -> Iterator[Parting]:
    """The stretches on which the simultaneous band lies on one side of zero."""
    sides = [
        "other" if high is not None and high < 0.0 else "base" if low is not None and low > 0.0 else ""
        for low, high in zip(curve.band_low, curve.band_high, strict=True)
    ]
    for side, group in groupby(range(len(sides)), key=lambda k: sides[k]):
        places = list(group)
        start, end = curve.x[places[0]], curve.x[places[-1]]
        if side and start is not None and end is not None:
            yield Parting(start=start, end=end, ahead=side)


def _row(arm: str, curve: ArmsApart, losses: np.ndarray, k: int, confidence: float) -> ComparedRow:
    low, high = curve.low[k], curve.high[k]
    better, worse = VERDICTS[LOSS]
    verdict = better if high is not None and high < 0.0 else worse if low is not None and low > 0.0 else UNCHANGED
    return ComparedRow(
        arm=arm,
        quantity=LOSS,
        depth=curve.depth,
        deep=None,
        n_params=curve.x[k],
        base_status="",
        base=float(losses[0]),
        base_low=None,
        base_high=None,
        other_status="",
        other=float(losses[1]),
        other_low=None,
        other_high=None,
        change=curve.g[k],
        change_low=low,
        change_high=high,
        correlation=None,
        confidence=confidence,
        verdict=verdict,
    )


def _sentence(depths: Sequence[ArmsAtDepth], base: str, arm: str) -> str:
    """Which arm is ahead where, depth by depth."""
    if not depths:
        return "losses: no depth has a curve under both"
    by_claim: dict[str, list[str]] = {}
    for found in depths:
        ahead = [
            f"{arm if one.ahead == 'other' else base} is ahead {_stretch(found.curve, one)}" for one in found.partings
        ]
        by_claim.setdefault(", ".join(ahead) or "nowhere apart by more than the noise", []).append(
            str(found.curve.depth)
        )
    return "losses: " + "; ".join(f"at depth {', '.join(at)} {claim}" for claim, at in by_claim.items())


def _stretch(curve: ArmsApart, one: Parting) -> str:
    first, last = one.start == curve.x[0], one.end == curve.x[-1]
    if first and last:
        return "at every size"
    if last:
        return f"from {format_count(one.start)} on"
    if first:
        return f"up to {format_count(one.end)}"
    return f"from {format_count(one.start)} to {format_count(one.end)}"
