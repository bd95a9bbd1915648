"""Loss along depth at one size: the best depth of nets of about equal N, where no curve runs over the size.

The commonest sweep of a student: five depths, one size, a few seeds. With y = ln L,

    loss(y) = a + b·y + c·y² + s·g(y),   g a Gaussian process of sd 1 and length ℓ

a, b, c are free, s and ℓ averaged over their posterior. What the sizes differ by is corrected by the slope of published
laws, with an error as large as itself. A draw whose least loss lies at a depth on the edge of those tried has its best
depth beyond it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from dwsweep.fit.cells import Run
from dwsweep.fit.curves import Curves
from dwsweep.interval import Interval
from dwsweep.records.fit import ONE_VARIABLE
from dwsweep.records.studies import AtOneSize
from dwsweep.text import listed

ONE_SIZE = 1.3  # largest over smallest N of one size
SAME_SIZE = 1.05  # … of nets of one depth that are one size
FEWEST_DEPTHS = 3
SIZE_SLOPE = -0.076  # of the loss, per unit of ln N (Kaplan et al. 2020); its error is as large
LENGTHS = (0.6, 1.2, 2.4)  # ℓ, units of ln L
STEPS = np.concatenate([[0.0], np.geomspace(0.005, 1.0, 16)])  # s over the range of the means
LIKELY = 0.2  # … at which its prior, a half Cauchy, has fallen to a half
DRAWS, POINTS = 4000, 241
FLOOR = 1e-6  # nats


def one_size(curves: Curves) -> np.ndarray | None:
    """Cells of a table of one size, all of them; None where N spans more, or there are fewer than three depths."""
    ln_n = np.log(curves.n_params)
    if len(curves.depths) < FEWEST_DEPTHS or np.ptp(ln_n) > math.log(ONE_SIZE):
        return None
    return np.arange(len(curves.x))


def at_one_size(curves: Curves, confidence: float) -> AtOneSize | None:
    """The best depth of a table of one size; None where it has several sizes, or two depths."""
    cells = one_size(curves)
    if cells is None:
        return None
    ln_n = np.log(curves.n_params)
    size = float(np.exp(ln_n.mean()))
    y, mean = np.log(curves.depth.astype(float)), curves.mean.copy()
    off = SIZE_SLOPE * mean * (ln_n - math.log(size))
    mean = mean - off
    covariance = curves.total_covariance + np.outer(off, off) + FLOOR**2 * np.eye(len(y))
    depths = np.array(curves.depths, dtype=float)
    if not curves.noise.known:
        best = float(depths[np.argmin([mean[curves.depth == d].mean() for d in depths])])
        return AtOneSize(n_params=size, confidence=confidence, known=False, lowest=int(best))
    rng = np.random.default_rng(0)
    df = min(curves.noise.df.values(), default=math.inf)
    grid = np.linspace(y.min(), y.max(), POINTS)
    drawn = _draws(y, mean, covariance, np.concatenate([grid, np.log(depths)]), df, rng)
    along, tried = drawn[:, :POINTS], drawn[:, POINTS:]
    place = along.argmin(axis=1)
    beyond = np.where(place == 0, -np.inf, np.where(place == POINTS - 1, np.inf, grid[place]))
    low, middle, high = (float(q) for q in np.quantile(beyond, _levels(confidence), method="inverted_cdf"))
    least = along.min(axis=1)
    above = 100.0 * (tried - least[:, None]) / least[:, None]
    worst = int(above.mean(axis=0).argmax())
    ends = np.quantile(above[:, worst], _levels(confidence))
    end = {-math.inf: "below", math.inf: "above"}
    # the value is of the mean curve, which a symmetric error leaves where it is
    centre = int(along.mean(axis=0).argmin())
    inside = 0 < centre < POINTS - 1 and math.isfinite(middle)
    best_depth = Interval(
        math.exp(grid[centre]) if inside else None,
        math.exp(low) if math.isfinite(low) else None,
        math.exp(high) if math.isfinite(high) else None,
    )
    return AtOneSize(
        n_params=size,
        confidence=confidence,
        known=True,
        lowest=int(depths[np.argmin([mean[curves.depth == d].mean() for d in depths])]),
        at_edge="" if inside else end.get(middle, "below" if centre == 0 else "above"),
        **best_depth.columns("depth"),
        worst_depth=int(depths[worst]),
        worst_percent=float(above[:, worst].mean()),
        worst_percent_low=float(ends[0]),
        worst_percent_high=float(ends[2]),
    )


def width_follows(runs: Sequence[Run]) -> str:
    """Why nothing can be said of shape, in a sentence: each depth has one width, which rises or falls with it (or one
    width has all depths), while the sizes differ. Empty otherwise."""
    of_depth: dict[int, set[float]] = defaultdict(set)
    for run in runs:
        of_depth[run.depth].add(run.n_params)
    if len(of_depth) < 2 or any(max(sizes) > SAME_SIZE * min(sizes) for sizes in of_depth.values()):
        return ""
    depths = sorted(of_depth)
    sizes = [float(np.mean([*of_depth[depth]])) for depth in depths]
    width_of = {run.depth: run.width for run in runs}
    widths = np.array([width_of[depth] for depth in depths])
    steps = np.sign(np.diff(widths))
    if max(sizes) <= ONE_SIZE * min(sizes) or not (np.all(steps >= 0) or np.all(steps <= 0)):
        return ""
    ratio = widths / np.array(depths, dtype=float)
    if np.ptp(widths) == 0.0:
        how = f"width = {widths[0]:g} at every depth"
    elif np.ptp(ratio) <= 0.02 * ratio[0]:
        how = f"width = {ratio.mean():.4g} × depth"
    else:
        pairs = [f"{depth}×{width:g}" for depth, width in zip(depths, widths, strict=True)]
        how = f"one width at each depth, {listed(pairs, 4)}"
    return f"{ONE_VARIABLE} ({how}): nothing can be said of shape, for which a size needs two depths or more"


def _levels(confidence: float) -> list[float]:
    return [(1.0 - confidence) / 2.0, 0.5, (1.0 + confidence) / 2.0]


def _draws(
    y: np.ndarray, mean: np.ndarray, covariance: np.ndarray, at: np.ndarray, df: float, rng: np.random.Generator
) -> np.ndarray:
    """(DRAWS, M) of the loss at ``at`` (M,), given means (K,) at ``y`` with their covariance (K, K), nats. df: degrees
    of freedom of that."""
    centre, spread = float(y.mean()), float(np.ptp(y))
    basis, basis_at = (np.vander((v - centre) / spread, 3) for v in (y, at))
    span = max(float(np.ptp(mean)), FLOOR)
    fits = []
    for length in LENGTHS:
        kernel, cross, own = (
            np.exp(-((a[:, None] - b) ** 2) / (2.0 * length**2)) for a, b in ((y, y), (at, y), (at, at))
        )
        for s in STEPS * span:
            V = covariance + s**2 * kernel
            inverse = np.linalg.inv(V)
            A = basis.T @ inverse @ basis
            beta = np.linalg.solve(A, basis.T @ inverse @ mean)
            rest = mean - basis @ beta
            log = -0.5 * (np.linalg.slogdet(V)[1] + np.linalg.slogdet(A)[1] + float(rest @ inverse @ rest))
            log -= math.log1p((s / (LIKELY * span)) ** 2) - math.log(max(s, STEPS[1] * span))
            gain = s**2 * cross @ inverse
            load = basis_at - gain @ basis
            expected = basis_at @ beta + gain @ rest
            error = s**2 * own - gain @ (s**2 * cross.T) + load @ np.linalg.solve(A, load.T)
            fits.append((log, expected, error))
    logs = np.array([log for log, _, _ in fits])
    weights = np.exp(logs - logs.max())
    counts = rng.multinomial(DRAWS, weights / weights.sum())
    wide = np.sqrt(df / rng.chisquare(df, DRAWS)) if math.isfinite(df) else np.ones(DRAWS)
    parts = []
    for (_, expected, error), n in zip(fits, counts, strict=True):
        if n:
            values, vectors = np.linalg.eigh((error + error.T) / 2.0)
            root = vectors * np.sqrt(np.maximum(values, 0.0))
            parts.append((expected, rng.standard_normal((n, len(at))) @ root.T))
    expected = np.concatenate([np.broadcast_to(e, d.shape) for e, d in parts])
    return expected + np.concatenate([d for _, d in parts]) * wide[:, None]
