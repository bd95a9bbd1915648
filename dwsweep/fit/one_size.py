"""Best depth of nets of about one size, where no curve runs over the size.

The commonest sweep of a student: five depths, one size, a few seeds. The posterior of any table (posterior.py) is
conditioned on them at that one size: its level is then an offset, and forms and departures give the effect of depth.
Sizes that differ by rounding are corrected by the slope of published laws, with an error as large as itself that all
shapes share. A best depth beyond the tried ones has no end there, since only forms reach so far.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dwsweep.fit import ask
from dwsweep.fit.cells import Run
from dwsweep.fit.curves import Curves
from dwsweep.fit.model import Cells
from dwsweep.fit.posterior import Posterior
from dwsweep.records.fit import ONE_VARIABLE
from dwsweep.records.one_size import AtOneSize
from dwsweep.text import join

ONE_SIZE = 1.3  # largest over smallest N of nets that have one size
SAME_SIZE = 1.05  # largest over smallest N of nets of one depth that are one size
FEWEST_DEPTHS = 3
FORMS = ("power", "free", "none")  # other laws are the same law at one size
SIZE_SLOPE = -0.076  # slope of ln loss in ln N (Kaplan et al. 2020); its error is as large


def is_one_size(curves: Curves) -> bool:
    """True if the nets of a table have one size and at least three depths."""
    return len(curves.depths) >= FEWEST_DEPTHS and float(np.ptp(np.log(curves.n_params))) <= math.log(ONE_SIZE)


def cells_of(curves: Curves) -> Cells:
    """The cells of ``curves``, all at their mean size; (K,) losses corrected to it, nats."""
    ln_n = np.log(curves.n_params)
    off = SIZE_SLOPE * curves.mean * (ln_n - ln_n.mean())
    cells = Cells.of(curves)
    factors = np.hstack([cells.factors, off[:, None]]) if off.any() else cells.factors
    return replace(cells, x=np.full(len(ln_n), float(ln_n.mean())), mean=cells.mean - off, factors=factors)


def at_size(curves: Curves, seed: int = 0) -> Posterior | None:
    """The posterior of a table of one size; None if it has several, or two depths, or no estimate of the noise."""
    return Posterior.of(cells_of(curves), seed, FORMS) if is_one_size(curves) and curves.noise.known else None


def posterior_of(curves: Curves, runs: Sequence[Run], seed: int) -> Posterior | None:
    """Posterior of a fit of ``runs``, of one size or of several; None if it has none."""
    if is_one_size(curves):
        return at_size(curves, seed)
    if width_follows(runs) or not ask.enough(curves):
        return None
    return Posterior.of(Cells.of(curves), seed)


def at_one_size(curves: Curves, posterior: Posterior | None, confidence: float) -> AtOneSize | None:
    """Best depth of a table of one size, by its ``posterior``; None if it has several sizes, or two
    depths."""
    if not is_one_size(curves):
        return None
    cells, depths = cells_of(curves), np.array(curves.depths, dtype=float)
    x = float(cells.x[0])
    lowest = int(depths[np.argmin([cells.mean[curves.depth == d].mean() for d in depths])])
    if posterior is None:
        return AtOneSize(n_params=math.exp(x), confidence=confidence, known=False, lowest=lowest)
    effect_p = posterior.weighed.weights["none"]
    frame = posterior.frame
    found = ask.quantiles(ask.best_depths(posterior, x), confidence)
    best = ask.claimed(found, frame.first, frame.last)
    edge = "" if best.value is not None else "below" if found[1] < frame.y0 else "above"
    best = best.map(math.exp)
    losses = ask.losses(posterior, x, depths)
    above = ask.regret(posterior, x, depths, trained=True)
    percent = 100.0 * above / (losses - above)
    worst = int(percent.mean(axis=0).argmax())
    lost = ask.effect(percent[:, worst], confidence)
    return AtOneSize(
        n_params=math.exp(x),
        confidence=confidence,
        known=True,
        lowest=lowest,
        at_edge=edge,
        effect_p=effect_p,
        **best.columns("depth"),
        worst_depth=int(depths[worst]),
        worst_percent=float(percent[:, worst].mean()),
        worst_percent_low=lost.low,
        worst_percent_high=lost.high,
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
        how = f"one width at each depth, {join(pairs, 4)}"
    return f"{ONE_VARIABLE} ({how}): shape has no measured effect, which needs a size with two depths or more"
