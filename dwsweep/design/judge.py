"""Judge of a design: expected errors on each transition and on the best depth, by the posterior of ``fit``."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dwsweep.design.expected_fit import PairError, Planned, expected_posterior, law_errors, pair_error
from dwsweep.design.prior import AssumedTruth
from dwsweep.fit.answers.width_law import FEWEST_POINTS
from dwsweep.fit.statistics.ask import FEWEST_CELLS, FEWEST_DEPTHS, FEWEST_SIZES, ONE_SD, best_depths, quantiles
from dwsweep.fit.statistics.laws import EXTRAPOLATION_LIMIT
from dwsweep.text import format_count


@dataclass(frozen=True)
class Errors:
    """Expected errors of all quantities that a design estimates.

    depth: L*(target) by the prior. se_depth: half of the central 68 % that `fit` will state, layers; None: it will give
    no best depth. bias_depth: expected answer of `fit` minus the truth, layers. rms_ln_depth: error of ln L*(target),
    noise and bias together, infinite without a best depth. se_a, se_b: errors of the constants of the prior's form.
    reason: why `fit` will give no best depth at the target, or no law.
    """

    pairs: tuple[PairError, ...]
    target: float
    depth: float | None
    reason: str = ""
    se_a: float | None = None
    se_b: float | None = None
    se_depth: float | None = None
    bias_depth: float | None = None
    rms_ln_depth: float = math.inf

    @property
    def known(self) -> bool:
        """True if `fit` will give a best depth at the target."""
        return self.se_depth is not None


def judge(prior: AssumedTruth, cells: Planned, target: float, precise: bool = False) -> Errors:
    """Errors of a design for a best depth at ``target``. precise: True for numbers that are printed, at three times the
    time; False for a search."""
    cells = {shape: cells[shape] for shape in sorted(cells)}
    depths = sorted({depth for depth, _ in cells})
    posterior = expected_posterior(prior, cells, precise) if _enough(cells) else None
    pairs = tuple(pair_error(prior, cells, posterior, *pair) for pair in pairwise(depths))
    best = prior.law.depth(target)[0]
    if posterior is None:
        reason = f"{len(depths)} depths and {len(cells)} shapes give no best depth: it takes three depths"
        return Errors(pairs, target, best, reason)
    low, middle, high = quantiles(best_depths(posterior, math.log(target)), ONE_SD)
    half, reason = (high - low) / 2.0, _silence(prior, cells, target)
    if not reason and not math.isfinite(half):
        reason = "these runs leave the best depth without a bound"
    if reason or best is None:
        return Errors(pairs, target, best, reason)
    if best < 1.0:
        return Errors(pairs, target, None, "by the prior fewer than one layer is best at the target")
    bias, few = middle - math.log(best), len(depths) <= FEWEST_POINTS
    law = (None, None) if few else law_errors(prior, posterior)
    reason = f"{len(depths)} depths give no law" if few else ""
    return Errors(pairs, target, best, reason, *law, half * best, bias * best, math.hypot(half, bias))


def _silence(prior: AssumedTruth, cells: Planned, target: float) -> str:
    """Reason why `fit` will give no best depth at the target; empty if it will."""
    depth, width = np.array(list(cells), dtype=float).T
    sizes, depths = np.exp(prior.ln_size(depth, width)), len(set(depth))
    first, last = np.exp(prior.transition(np.array([depth.min(), depth.max()])))
    low, high = max(sizes.min(), first), min(sizes.max(), last)
    if low >= high:
        return "no size of these runs has its best depth between their depths"
    outside = max(1.0, target / high, low / target)
    if depths <= FEWEST_POINTS and outside > 1.0:
        inside = f"{format_count(low)} … {format_count(high)} parameters"
        return f"{depths} depths give no law, and so no best depth outside {inside}"
    if outside > EXTRAPOLATION_LIMIT:
        return f"the target is {outside:,.0f} times outside the sizes whose best depth these runs show"
    return ""


def _enough(cells: Planned) -> bool:
    """Test that `fit` has a posterior of these shapes."""
    counts = Counter(depth for depth, _ in cells)
    several = sum(count >= FEWEST_SIZES for count in counts.values())
    return len(counts) >= FEWEST_DEPTHS and several >= 2 and len(cells) >= FEWEST_CELLS
