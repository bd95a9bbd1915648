"""All consecutive depths: their differences, crossings, thresholds and other estimators, as rows of transitions.csv.

Other estimators are shown for reference, with ``pchip``:

surface the crossing of the joint loss model of all depths (loss_model.py), the most precise where its smoothness holds.

power   crossing of E + A·N^(−α) fitted per depth. Biased where the curves are no power laws: −0.35 … +0.15 in ln N on
        noise-free simulations of this project.
levine  the two-width rule of Levine et al. 2020: the first trained width of the shallower net that is significantly
        worse, averaged with its left neighbour, where the two are indistinguishable. The noisier the losses, the later
        a width counts as worse: biased to larger widths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.errors import argument
from dwsweep.fit.curves import Curves, Difference, difference, distinct, from_values, pchip, shared_grid
from dwsweep.fit.noise import DOCUMENTS, t_two_sided
from dwsweep.fit.shape_noise import SEPARABLE_SIZES
from dwsweep.fit.surface.loss_surface import LossSurface
from dwsweep.fit.transitions import (
    NO_CURVE,
    NO_SHARED_RANGE,
    NOISE_UNKNOWN,
    Crossing,
    classify,
    no_crossing,
    of_few_sizes,
)
from dwsweep.records.fit_rows import REFERENCE, Transition
from dwsweep.text import format_count

THRESHOLDS = (0.001, 0.003)
EXPONENTS = np.geomspace(0.005, 3.0, 100)
POWER_DRAWS = 500
SURFACE_POINTS = 61
FAR_APART = 3.0  # standard errors between two estimates of a crossing that rest on the same losses


@dataclass(frozen=True, eq=False)
class Pair:
    """A pair of consecutive depths. difference: None where they share no range of sizes. crossing: the reference
    (pchip). others: (estimator, threshold in nats, crossing)."""

    shallow: int
    deep: int
    difference: Difference | None
    crossing: Crossing
    others: tuple[tuple[str, float, Crossing], ...]


def analyse_pairs(curves: Curves, confidence: float, estimators: bool = True) -> list[Pair]:
    """Every pair of consecutive depths, shallow to deep."""
    pairs = []
    for shallow, deep in zip(curves.depths[:-1], curves.depths[1:], strict=True):
        d = difference(curves, shallow, deep)
        if d is None:
            pairs.append(Pair(shallow, deep, None, _no_range(curves, shallow, deep), ()))
            continue
        if not curves.noise.known:
            reason = (
                curves.noise.why_unknown
                or f"no estimate of the noise: more seeds, four sizes per depth, or {argument('noise')}"
            )
            pairs.append(Pair(shallow, deep, d, no_crossing(reason, NOISE_UNKNOWN), ()))
            continue
        others: list[tuple[str, float, Crossing]] = []
        if estimators:
            others += [(f"pchip>{delta:g}", delta, classify(d, confidence, delta)) for delta in THRESHOLDS]
            power = power_difference(curves, shallow, deep)
            if power is not None:
                others.append(("power", 0.0, classify(power, confidence)))
            levine = levine_crossing(curves, shallow, deep, confidence)
            if levine is not None:
                others.append(("levine", 0.0, levine))
        crossing = classify(d, confidence)
        sizes = min(len(curves.sizes(shallow)), len(curves.sizes(deep)))
        if sizes < SEPARABLE_SIZES and curves.noise.shape_source != DOCUMENTS:
            crossing = of_few_sizes(crossing, sizes)
            others = [(name, delta, of_few_sizes(found, sizes)) for name, delta, found in others]
        pairs.append(Pair(shallow, deep, d, crossing, tuple(others)))
    return pairs


def with_surface(pairs: Sequence[Pair], curves: Curves, surface: LossSurface, confidence: float) -> list[Pair]:
    """The pairs with the crossing of the joint loss model as one more estimator, ``surface``."""
    usable = [p for p in pairs if p.difference is not None and p.crossing.critical is not None]
    if not usable:
        return list(pairs)
    x = np.linspace(surface.record.low, surface.record.high, SURFACE_POINTS)
    values = dict(zip(usable, surface.differences(x, [(p.shallow, p.deep) for p in usable]), strict=True))
    found = []
    for pair in pairs:
        if pair in values and pair.difference is not None:
            inside = (x >= pair.difference.x[0] - 1e-9) & (x <= pair.difference.x[-1] + 1e-9)
            if np.count_nonzero(inside) > 1:
                joint = from_values(curves, pair.shallow, pair.deep, x[inside], values[pair][:, inside])
                pair = replace(pair, others=(*pair.others, ("surface", 0.0, classify(joint, confidence))))
        found.append(pair)
    return found


def disagreements(pairs: Sequence[Pair]) -> list[str]:
    """A line for each pair whose crossing by the joint model is more than two standard errors from the reference's."""
    lines = []
    for pair in pairs:
        own = next((c for name, _, c in pair.others if name == "surface"), None)
        one, other = pair.crossing, own
        if other is None or one.root is None or other.root is None or not one.se or not other.se:
            continue
        apart = (other.root - one.root) / math.hypot(one.se, other.se)
        if abs(apart) > FAR_APART:
            lines.append(
                f"surface: {pair.shallow}→{pair.deep} at {format_count(math.exp(other.root))}, by the pair alone at "
                f"{format_count(math.exp(one.root))}, {abs(apart):.1f} standard errors apart"
            )
    return lines


def _no_range(curves: Curves, shallow: int, deep: int) -> Crossing:
    for depth in (shallow, deep):
        if len(curves.sizes(depth)) < 2:
            return no_crossing(f"depth {depth} has a single size: no curve", NO_CURVE)
    return no_crossing("the two depths share no range of sizes", NO_SHARED_RANGE)


def transition_rows(curves: Curves, pairs: Sequence[Pair], confidence: float) -> list[Transition]:
    """Rows of transitions.csv: per pair ``pchip`` first, then the thresholds (``pchip>0.001``: where the deeper is
    ahead by 0.001 nats), ``power`` and ``levine``. Widths are the shallower net's; a None end is unbounded."""
    return [
        _row(curves, pair, estimator, threshold, crossing, confidence)
        for pair in pairs
        for estimator, threshold, crossing in ((REFERENCE, 0.0, pair.crossing), *pair.others)
    ]


def _row(curves: Curves, pair: Pair, estimator: str, threshold: float, c: Crossing, confidence: float) -> Transition:
    both = np.concatenate([curves.at(pair.shallow), curves.at(pair.deep)])
    sigmas = [curves.noise.sigma.get(d) for d in (pair.shallow, pair.deep)]
    known = [s for s in sigmas if s is not None]
    x = (c.root, c.low, c.high, c.tie_low, c.tie_high)
    n = [None if v is None else n_params_at(curves, pair.shallow, v) for v in x]
    width = [None if v is None else float(np.exp(curves.ln_width_of(pair.shallow, v))) for v in x]
    axis = [None if v is None else math.exp(v) for v in x]
    return Transition(
        shallow=pair.shallow,
        deep=pair.deep,
        estimator=estimator,
        status=c.status,
        n_params=n[0],
        n_params_low=n[1],
        n_params_high=n[2],
        width=width[0],
        width_low=width[1],
        width_high=width[2],
        se_ln_n=c.se,
        slope_difference=c.slope,
        sup_t_left=c.t_left,
        sup_t_right=c.t_right,
        sign_changes=c.sign_changes,
        n_seeds=int(curves.n[both].min()),
        sigma=math.sqrt(sum(s * s for s in known) / len(known)) if known else curves.noise.tau,
        df=None if pair.difference is None else pair.difference.df,
        confidence=confidence,
        interval_method=""
        if c.critical is None
        else "two trained widths"
        if estimator == "levine"
        else "band inversion",
        threshold=threshold,
        sup_t_critical=c.critical,
        axis_value=axis[0],
        axis_low=axis[1],
        axis_high=axis[2],
        reason=c.reason,
        cause=c.cause,
        tie_low=n[3],
        tie_high=n[4],
    )


def n_params_at(curves: Curves, depth: int, x: float) -> float:
    """N of the net of ``depth`` at ln-axis ``x``: e^x itself on the default axis, interpolated on the others."""
    where = curves.at(depth)
    offset = np.log(curves.n_params[where]) - curves.x[where]
    return float(math.exp(x + np.interp(x, curves.x[where], offset)))


def power_difference(curves: Curves, shallow: int, deep: int) -> Difference | None:
    """Difference of E + A·N^(−α) fits per depth on the pair's grid; None with fewer than four sizes at a depth."""
    grid = shared_grid(curves, shallow, deep)
    if grid is None or min(len(curves.sizes(shallow)), len(curves.sizes(deep))) < 4:
        return None
    both = []
    for depth in (shallow, deep):
        where = curves.at(depth)
        values = np.vstack([curves.mean[where], curves.draws[:POWER_DRAWS, where]])
        x, values = distinct(curves.x[where], values)
        both.append(power_curve(x, values, grid))
    return from_values(curves, shallow, deep, grid, both[0] - both[1])


def power_curve(x: np.ndarray, values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """(D, G) least-squares fits of E + A·exp(−α(x − x̄)) to values (D, K) at x (K,).

    α is profiled: for each exponent on a grid E and A are linear, and a parabola through the best three refines α.
    """
    centre = x.mean()
    rss = np.empty((len(values), len(EXPONENTS)))
    for j, alpha in enumerate(EXPONENTS):
        X = np.stack([np.ones_like(x), np.exp(-alpha * (x - centre))], axis=1)
        q, _ = np.linalg.qr(X)
        rss[:, j] = ((values - values @ q @ q.T) ** 2).sum(axis=1)
    best = np.clip(rss.argmin(axis=1), 1, len(EXPONENTS) - 2)
    rows = np.arange(len(values))
    left, middle, right = (rss[rows, best + k] for k in (-1, 0, 1))
    curvature = left - 2 * middle + right
    shift = np.where(curvature > 0, 0.5 * (left - right) / np.where(curvature > 0, curvature, 1.0), 0.0)
    step = math.log(EXPONENTS[1] / EXPONENTS[0])
    alpha = np.exp(np.log(EXPONENTS[best]) + step * np.clip(shift, -1.0, 1.0))
    basis = np.exp(-alpha[:, None] * (x - centre))
    spread = basis - basis.mean(axis=1, keepdims=True)
    A = (spread * values).sum(axis=1) / (spread**2).sum(axis=1)
    E = values.mean(axis=1) - A * basis.mean(axis=1)
    return E[:, None] + A[:, None] * np.exp(-alpha[:, None] * (grid - centre))


def levine_crossing(curves: Curves, shallow: int, deep: int, confidence: float) -> Crossing | None:
    """The two-width rule at the trained widths of the shallower net inside the shared range.

    Both nets are compared at equal x; the deeper one's loss there is interpolated, since its widths need not match. The
    interval runs between the two widths; a pair that is not reached lies beyond the last width at which the shallower
    net is significantly ahead. None without a noise estimate or a shared range.
    """
    grid = shared_grid(curves, shallow, deep)
    if grid is None or not curves.noise.known:
        return None
    a, b = curves.at(shallow), curves.at(deep)
    keep = a[(curves.x[a] >= grid[0] - 1e-9) & (curves.x[a] <= grid[-1] + 1e-9)]
    values = np.vstack([curves.mean, curves.draws])
    x, shallower = distinct(curves.x[keep], values[:, keep])
    if len(x) < 2:
        return None
    d = from_values(curves, shallow, deep, x, shallower - pchip(*distinct(curves.x[b], values[:, b]), x))
    pointwise = t_two_sided(confidence, d.df)
    t = d.g / d.se
    worse = np.flatnonzero(t > pointwise)
    changes = int(np.count_nonzero(np.diff(np.sign(d.g[d.g != 0.0]))))
    t_left, t_right = float(np.max(-t)), float(np.max(t))
    if not len(worse):
        better = np.flatnonzero(t < -pointwise)
        status = "not_reached" if len(better) else "undecided"
        low = float(x[better[-1]]) if len(better) else None
        return Crossing(status, None, low, None, None, None, t_left, t_right, pointwise, None, None, changes)
    first = int(worse[0])
    if first == 0:
        return Crossing(
            "already_crossed",
            None,
            None,
            float(x[0]),
            None,
            None,
            t_left,
            t_right,
            pointwise,
            None,
            float(x[0]),
            changes,
        )
    low, high = float(x[first - 1]), float(x[first])
    ln_d = curves.ln_width_of(shallow, np.array([low, high]))
    middle = float(curves.x_of_ln_width(shallow, math.log(np.exp(ln_d).mean())))
    slope = float((d.g[first] - d.g[first - 1]) / (high - low))
    return Crossing("crossed", middle, low, high, None, slope, t_left, t_right, pointwise, low, high, changes)
