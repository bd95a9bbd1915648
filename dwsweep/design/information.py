"""The errors that a set of runs leaves, by the estimators of ``fit``: on each transition and on the best depth.

Everything is linear in the noise, so a design is judged in milliseconds and thousands are compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwsweep.design.cell_noise import Cells, covariance
from dwsweep.design.crossings import Design, PairError
from dwsweep.design.expected_fit import expected_depth, law_errors
from dwsweep.design.prior import Curves, Prior
from dwsweep.fit.best_depth import DEPTHS_FOR_A_LAW
from dwsweep.fit.laws import EXTRAPOLATION_LIMIT, FORMS, optimal_depth
from dwsweep.fit.loss_model import FEWEST_CELLS, FEWEST_DEPTHS, FEWEST_SIZES, Expected, expected_fits
from dwsweep.fit.loss_terms import Frame
from dwsweep.text import format_count

STEPS = 8  # at most, of Gauss–Newton
NO_DEPTH = 10.0  # stands for the error of a best depth that there is not


@dataclass(frozen=True)
class Errors:
    """What a design leaves on everything.

    depth: L*(target) by the prior. se_depth: what noise does to the estimate by one form, layers. bias_depth: mean
    error by forms of the law that the design may take for the true one, layers. rms: of ln L*(target), all together.
    stated: half of the central 68 % that `fit` will state, layers. se_a, se_b: of the prior's form. reason: why `fit`
    will give no best depth at the target, or no law.
    """

    pairs: tuple[PairError, ...]
    target: float
    depth: float | None
    se_a: float | None = None
    se_b: float | None = None
    se_depth: float | None = None
    bias_depth: float | None = None
    stated: float | None = None
    rms: float = NO_DEPTH
    reason: str = ""

    @property
    def known(self) -> bool:
        """Whether `fit` will give a best depth at the target."""
        return self.se_depth is not None

    def to_dict(self) -> dict[str, Any]:
        names = ("se_a", "se_b", "target", "depth", "se_depth", "bias_depth", "stated", "reason")
        return {name: getattr(self, name) for name in names} | {
            "rms_ln_depth": self.rms if self.known else None,
            "pairs": [vars(pair) for pair in self.pairs],
        }


class Judge:
    """Judges designs against one prior and one target; keeps what does not depend on the design."""

    def __init__(self, prior: Prior, depths: Iterable[int], target: float) -> None:
        self.prior, self.target = prior, target
        self.depths = sorted(set(depths))
        self.curves = Curves(prior, tuple(self.depths))
        best = float(optimal_depth(prior.law.form, np.asarray(prior.law.theta), target))
        self.best_depth = best if math.isfinite(best) else None

    @property
    def crossings(self) -> list[float]:
        """ln N at which neighbouring depths cross."""
        return self.curves.crossings

    def covariance(self, cells: Cells) -> np.ndarray:
        """C (K, K) of the cell means, in the order of ``cells``, the luck of a shape included."""
        shared = covariance(cells, self.prior.noise, self.prior.seed_sd)
        return shared + self.prior.shape_sd**2 * np.eye(len(cells))

    def judge(self, cells: Cells) -> Errors:
        """All errors of a design."""
        ordered = _ordered(cells)
        C = self.covariance(ordered) if ordered else np.zeros((0, 0))
        pairs = Design(self.curves, list(ordered), C).pairs()
        reason = self._silence(ordered)
        if reason:
            return Errors(pairs, self.target, self.best_depth, reason=reason)
        frame, fits = self.fits(ordered)
        found = expected_depth(fits, frame, self.target)
        if self.best_depth is None or not math.isfinite(found.stated):
            return Errors(pairs, self.target, self.best_depth, reason="these runs leave it without a bound")
        rms, bias = found.error(self.best_depth)
        law, few = self.prior.law.form, len({depth for depth, _ in ordered}) < DEPTHS_FOR_A_LAW
        a, b = (None, None) if few else law_errors(law, fits[law], frame)
        return Errors(
            pairs,
            self.target,
            self.best_depth,
            a,
            b,
            found.sampling * self.best_depth,
            bias * self.best_depth,
            found.stated * self.best_depth,
            rms,
            f"{_depths(ordered)} depths give no law" if few else "",
        )

    def fits(self, cells: Cells) -> tuple[Frame, dict[str, Expected]]:
        """What a fit of each form to these cells, sorted, is expected to find."""
        depth = np.array([depth for depth, _ in cells], dtype=float)
        x = np.log(12.0 * depth * np.array([width for _, width in cells], dtype=float) ** 2)
        frame = Frame(float(x.min()), float(x.max()), float(depth.min()), float(depth.max()))
        start = dict.fromkeys(FORMS, self.prior.theta(frame))
        means = self.prior.losses(depth, x, frame)
        C = covariance(cells, self.prior.noise, self.prior.seed_sd)
        return frame, expected_fits(frame, x, depth, means, C, self.prior.shape_sd, start, STEPS)

    def _silence(self, cells: Cells) -> str:
        """Why `fit` will give no best depth at the target; empty where it will."""
        sizes: dict[int, list[float]] = {}
        for depth, width in cells:
            sizes.setdefault(depth, []).append(12.0 * depth * width**2)
        enough = sum(len(at) >= FEWEST_SIZES for at in sizes.values()) >= 2 and len(cells) >= FEWEST_CELLS
        if len(sizes) < FEWEST_DEPTHS or not enough:
            return f"{_depths(cells)} depths and {len(cells)} shapes give no best depth: it takes three depths"
        everything = [n for at in sizes.values() for n in at]
        first, last = np.exp(self.prior.theta(Frame(0.0, 1.0, float(min(sizes)), float(max(sizes))))[:2])
        low, high = max(min(everything), first), min(max(everything), last)
        if low >= high:
            return "no size of these runs has its best depth between their depths"
        outside = max(1.0, self.target / high, low / self.target)
        if len(sizes) < DEPTHS_FOR_A_LAW and outside > 1.0:
            return (
                f"{len(sizes)} depths give no law, and so no best depth outside {format_count(low)} … "
                f"{format_count(high)} parameters"
            )
        if outside > EXTRAPOLATION_LIMIT:
            return f"the target is {outside:,.0f} times outside the sizes whose best depth these runs show"
        return ""


def _ordered(cells: Cells) -> Cells:
    return {shape: cells[shape] for shape in sorted(cells) if cells[shape]}


def _depths(cells: Cells) -> int:
    return len({depth for depth, _ in cells})
