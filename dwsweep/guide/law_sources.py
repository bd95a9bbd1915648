"""Where a guideline comes from: the published law, or one's own fit; each with its rivals, its range and its loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dwsweep.fit import laws
from dwsweep.fit.guideline import EXTRAPOLATION_LIMIT, guiding_laws
from dwsweep.fit.laws import Law, ln_width
from dwsweep.guide.loss import LawLoss, LossModel, SurfaceLoss
from dwsweep.records import fit_result
from dwsweep.records.fit_result import FitResult
from dwsweep.text import format_factor
from dwsweep.theory import published_law

FAR = 10.0  # times outside the range, beyond which a projection is called far
REFIT_DEPTHS = (6, 12, 18, 24, 30, 36)


@dataclass(frozen=True)
class Source:
    """A law that guides."""

    name: str
    law: Law
    rivals: tuple[Law, ...]
    surface: SurfaceLoss | None
    spacing: float  # layers between neighbouring depths of its grid: a depth ties with the next at its transition
    notes: tuple[str, ...]

    def loss(self, n_params: float) -> LossModel:
        """The sweep's own surface where it covers this size, else the law with assumed slopes."""
        if self.surface is not None and self.surface.covers(n_params):
            return self.surface
        return LawLoss(self.law)

    def rival_depths(self, n_params: float) -> dict[str, float]:
        """Best depth by form, of every rival that has one."""
        found = ((rival.form, rival.depth(n_params)[0]) for rival in self.rivals)
        return {form: depth for form, depth in found if depth is not None and form != self.law.form}

    def reach(self, n_params: float) -> str:
        """How far this size is from what the law rests on, and what to make of it."""
        factor = self.law.extrapolation(n_params)
        limit = f"do not use beyond {self.law.valid_to * EXTRAPOLATION_LIMIT:.2g}"
        span = f"{self.law.valid_from:.2g} to {self.law.valid_to:.2g}"
        if factor <= 1:
            return f"inside the range of the law, {span}"
        if factor <= FAR:
            return f"projection, {format_factor(factor)} times outside the range of the law, {span}; {limit}"
        if factor <= EXTRAPOLATION_LIMIT:
            return (
                f"far projection, {format_factor(factor)} times outside the range of the law, {span}: trust no more "
                f"than the rivals agree on; {limit}"
            )
        return f"refused: {format_factor(factor)} times outside the range of the law, {span}; {limit}"

    def refuses(self, n_params: float) -> bool:
        return self.law.extrapolation(n_params) > EXTRAPOLATION_LIMIT


def published_source() -> Source:
    """Levine et al. 2020, with rivals refitted to points of its law at the depths 6 to 36."""
    return Source(
        published_law.NAME,
        laws.published(),
        published_rivals(),
        None,
        float(np.median(np.diff(published_law.DEPTHS))),
        (
            f"ln d_x = {published_law.A} + {published_law.B:.4f}·L, Levine et al. 2020 (arXiv 2006.12467); intervals "
            f"from a covariance that is {published_law.COVARIANCE_TAG}",
        ),
    )


def published_rivals() -> tuple[Law, ...]:
    """The linear and the power form through points of the published law, by least squares in ln d_x; without errors.

    They show how far apart forms drift that could not be told apart on the trained depths.
    """
    depths = np.asarray(REFIT_DEPTHS, dtype=float)
    target = published_law.A + published_law.B * depths
    power = np.polyfit(np.log(depths), target, 1)[::-1]
    linear = _linear_in_log(depths, target)
    return tuple(
        Law(
            f"{form} form through the published law's points",
            form,
            (float(theta[0]), float(theta[1])),
            *published_law.TRAINED_N_PARAMS,
            np.asarray(theta, dtype=float)[None],
        )
        for form, theta in (("linear", linear), ("power", power))
    )


def _linear_in_log(depths: np.ndarray, ln_width_target: np.ndarray) -> np.ndarray:
    """(a, b) of d = a + b·L by least squares in ln d: Gauss–Newton from the straight line's own fit."""
    theta = np.polyfit(depths, np.exp(ln_width_target), 1, w=np.exp(-ln_width_target))[::-1].copy()
    for _ in range(50):
        width = np.exp(ln_width("linear", theta, depths))
        jacobian = np.stack([1.0 / width, depths / width], axis=1)
        theta = theta + np.linalg.lstsq(jacobian, ln_width_target - np.log(width), rcond=None)[0]
    return theta


def fitted_source(path: str | Path) -> Source:
    """One's own fit; where it has no width law, the published one with that said in the notes.

    Raises:
        InputError: there is no fit.json at ``path``.
    """
    fit = fit_result.read(path)
    law, rivals = guiding_laws(fit)
    own = fit.own_law
    notes = [f"{path}: {fit.law_statement}"]
    if not own:
        notes.append("no width law in this fit: depth and width follow the published law")
    notes += [f"fit: {line}" for line in fit.warnings if line.startswith("rivals")]
    return Source(
        law.name if own else f"{published_law.NAME}, as the fit has no width law",
        law,
        tuple(rivals) if own else published_rivals(),
        SurfaceLoss.of(fit),
        _spacing(fit) if own else published_source().spacing,
        tuple(notes),
    )


def _spacing(fit: FitResult) -> float:
    """Median step between the depths of a fit's transitions."""
    steps = [row.deep - row.shallow for row in fit.transitions]
    return float(np.median(steps)) if steps else 0.0
