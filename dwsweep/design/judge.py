"""Judge of a design: expected errors on each transition and on the best depth, by the posterior of ``fit``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dwsweep.design.expected_fit import PairError, Planned, expected_posterior, law_errors, pair_error
from dwsweep.design.prior import Prior
from dwsweep.fit.ask import FEWEST_CELLS, FEWEST_DEPTHS, FEWEST_SIZES, ONE_SD, best_depths, quantiles
from dwsweep.fit.guideline import DEPTHS_FOR_A_LAW
from dwsweep.fit.laws import EXTRAPOLATION_LIMIT
from dwsweep.text import format_count

NO_DEPTH = 10.0  # error of a best depth that a design does not give


@dataclass(frozen=True)
class Errors:
    """Expected errors of all quantities that a design estimates.

    depth: L*(target) by the prior. se_depth: half of the central 68 % that `fit` will state, layers; None: it will give
    no best depth. bias_depth: expected answer of `fit` minus the truth, layers. rms: error of ln L*(target), noise and
    bias together. se_a, se_b: errors of the constants of the prior's form. reason: why `fit` will give no best depth at
    the target, or no law.
    """

    pairs: tuple[PairError, ...]
    target: float
    depth: float | None
    reason: str = ""
    se_a: float | None = None
    se_b: float | None = None
    se_depth: float | None = None
    bias_depth: float | None = None
    rms: float = NO_DEPTH

    @property
    def known(self) -> bool:
        """True if `fit` will give a best depth at the target."""
        return self.se_depth is not None

    def to_dict(self) -> dict[str, Any]:
        names = ("se_a", "se_b", "target", "depth", "se_depth", "bias_depth", "reason")
        return {name: getattr(self, name) for name in names} | {
            "rms_ln_depth": self.rms if self.known else None,
            "pairs": [vars(pair) for pair in self.pairs],
        }


class Judge:
    """Judge of designs for one prior and one target. precise: True for numbers that are printed, at three times the
    time; False for a search."""

    def __init__(self, prior: Prior, depths: Iterable[int], target: float, precise: bool = False) -> None:
        self.prior, self.target, self.precise = prior, target, precise
        self.depths = sorted(set(depths))
        self.best_depth = prior.law.depth(target)[0]

    @cached_property
    def crossings(self) -> list[float]:
        """Crossings of neighbouring depths, ln N."""
        return [self.prior.crossing(shallow, deep) for shallow, deep in pairwise(self.depths)]

    def judge(self, cells: Planned) -> Errors:
        """Errors of a design."""
        ordered = {shape: cells[shape] for shape in sorted(cells) if cells[shape]}
        depths = len({depth for depth, _ in ordered})
        posterior = expected_posterior(self.prior, ordered, self.precise) if _enough(ordered) else None
        pairs = tuple(
            pair_error(self.prior, ordered, posterior, shallow, deep, x)
            for (shallow, deep), x in zip(pairwise(self.depths), self.crossings, strict=True)
        )
        if posterior is None:
            reason = f"{depths} depths and {len(ordered)} shapes give no best depth: it takes three depths"
            return Errors(pairs, self.target, self.best_depth, reason)
        low, middle, high = quantiles(best_depths(posterior, math.log(self.target)), ONE_SD)
        half, reason, depth = (high - low) / 2.0, self._silence(ordered), self.best_depth
        if not reason and not math.isfinite(half):
            reason = "these runs leave the best depth without a bound"
        if reason or depth is None:
            return Errors(pairs, self.target, depth, reason)
        bias, few = middle - math.log(depth), depths < DEPTHS_FOR_A_LAW
        law = (None, None) if few else law_errors(self.prior.law.form, posterior)
        reason = f"{depths} depths give no law" if few else ""
        rms = math.hypot(half, bias)
        return Errors(pairs, self.target, depth, reason, *law, half * depth, bias * depth, rms)

    def _silence(self, cells: Planned) -> str:
        """Reason why `fit` will give no best depth at the target; empty if it will."""
        depth, width = np.array(list(cells), dtype=float).T
        sizes, depths = np.exp(self.prior.ln_size(depth, width)), len(set(depth))
        first, last = np.exp(self.prior.transition(np.array([depth.min(), depth.max()])))
        low, high = max(sizes.min(), first), min(sizes.max(), last)
        if low >= high:
            return "no size of these runs has its best depth between their depths"
        outside = max(1.0, self.target / high, low / self.target)
        if depths < DEPTHS_FOR_A_LAW and outside > 1.0:
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
