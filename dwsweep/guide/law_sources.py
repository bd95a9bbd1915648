"""Where a guideline comes from: the published law, or one's own fit; each with its rivals, its range and its loss."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dwsweep.errors import argument
from dwsweep.fit import laws
from dwsweep.fit.guideline import OwnGuide, form_guides, guides
from dwsweep.fit.laws import Law
from dwsweep.guide.loss import LawLoss, LossModel, SurfaceLoss
from dwsweep.records import fit_result
from dwsweep.records.fit_result import FitResult, TrainedNets
from dwsweep.text import format_count, format_factor
from dwsweep.theory import published_law

CONFIDENCE = 0.95  # of intervals, below which a fit is not trusted more for narrow ones, and says so
FAR = 10.0  # times outside the range, beyond which a projection is called far


@dataclass(frozen=True)
class Source:
    """What guides: a law, or the loss surface of one's own sweep.

    rivals: forms that are not rejected. rejected: those that are, which guide nothing, but say how much hangs on the
    form outside the data. inside: what guides at the sizes of the data, where a fit can say nothing beyond them.
    nets: those of one's own fit.
    """

    name: str
    law: Law | OwnGuide
    rivals: tuple[Law | OwnGuide, ...]
    surface: SurfaceLoss | None
    spacing: float  # layers between neighbouring depths of its grid: a depth ties with the next at its transition
    notes: tuple[str, ...]
    rejected: tuple[OwnGuide, ...] = ()
    inside: Source | None = None
    nets: TrainedNets = field(default_factory=TrainedNets)

    def at(self, n_params: float) -> Source:
        """What guides at this size."""
        if self.inside is None or self.inside.law.extrapolation(n_params) > 1.0:
            return self
        depth = self.inside.law.depth(n_params)[0]
        return self if depth is None or depth < 1.0 else self.inside

    def loss(self, n_params: float) -> LossModel:
        """The sweep's own surface, else the law with an assumed curvature."""
        if self.surface is not None:
            return self.surface
        assert isinstance(self.law, Law)
        return LawLoss(self.law)

    def rival_depths(self, n_params: float) -> dict[str, float]:
        """Best depth by form, of every rival that has one."""
        found = ((rival.form, rival.depth(n_params)[0]) for rival in self.rivals)
        return {form: depth for form, depth in found if depth is not None and form != self.law.form}

    def reach(self, n_params: float) -> str:
        """How far this size is from what the law rests on, and what to make of it."""
        factor = self.law.extrapolation(n_params)
        limit = f"do not use beyond {format_count(self.law.valid_to * self.law.limit)}"
        span = f"{format_count(self.law.valid_from)} to {format_count(self.law.valid_to)}"
        depth = self.law.depth(n_params)[0]
        if depth is not None and depth < 1.0:
            return f"refused: the law puts the best depth below one layer; its range is {span}"
        if factor <= 1:
            return f"inside the range of the law, {span}"
        if factor <= FAR:
            return f"projection, {format_factor(factor)} times outside the range of the law, {span}; {limit}"
        if factor <= self.law.limit:
            return (
                f"far projection, {format_factor(factor)} times outside the range of the law, {span}: trust no more "
                f"than the rivals agree on; {limit}"
            )
        return f"refused: {format_factor(factor)} times outside the range of the law, {span}; {limit}"

    def refuses(self, n_params: float) -> bool:
        return self.law.extrapolation(n_params) > self.law.limit


def published_source() -> Source:
    """Levine et al. 2020, with rivals refitted to points of its law at the depths 6 to 36."""
    return Source(
        published_law.NAME,
        laws.published(),
        laws.published_rivals(),
        None,
        float(np.median(np.diff(published_law.DEPTHS))),
        (
            f"ln d_x = {published_law.A} + {published_law.B:.4f}·L, Levine et al. 2020 (arXiv 2006.12467); intervals "
            f"from a covariance that is {published_law.COVARIANCE_TAG}",
        ),
    )


def fitted_source(path: str | Path) -> Source:
    """One's own fit; where it has no width law, the published one with that said in the notes.

    Raises:
        InputError: there is no fit.json at ``path``.
    """
    return source_of(fit_result.read(path, argument("fit")), path)


def source_of(fit: FitResult, path: str | Path) -> Source:
    """``fitted_source`` of a fit that was read from ``path`` already."""
    notes = [f"{path}: {fit.law_statement}"]
    if own := guides(fit):
        return _own(*own, fit, notes)
    why = (
        "this fit bounds the best depth from both sides at fewer than two sizes"
        if fit.surface
        else "no best depth in this fit"
    )
    if fit.surface and fit.surface.falls:
        why = "the best depth falls with size in this fit, as no form of the law does"
    if fit.curves.axis != "n_params":
        why = f"this fit compares at equal {fit.curves.axis}, and a budget here is in parameters"
    inside = guides(fit, inside=True)
    if inside:
        span = " to ".join(format_count(n) for n in (inside[0].valid_from, inside[0].valid_to))
        why += f"; from {span} its own losses answer, and elsewhere"
    else:
        why += ":"
    notes.append(f"{why} depth and width follow the published law")
    return replace(
        published_source(),
        name=f"{published_law.NAME}, as the fit shows no best depth{' there' if inside else ''}",
        notes=tuple(notes),
        inside=_own(*inside, fit, notes, trained=True) if inside else None,
        nets=fit.nets,
    )


def _own(guide: OwnGuide, rivals: list[OwnGuide], fit: FitResult, notes: list[str], trained: bool = False) -> Source:
    left = {rival.form for rival in rivals}
    rejected = tuple(form for form in form_guides(guide, rejected=True) if form.form not in left)
    notes = [*notes, *(f"fit: {line}" for line in fit.warnings if line.startswith(("rivals", "surface")))]
    if fit.surface and fit.surface.confidence < CONFIDENCE:
        notes.append(f"intervals of {100.0 * fit.surface.confidence:g} %, as this fit was asked for")
    loss = SurfaceLoss(guide.surface, trained)
    return Source(guide.name, guide, tuple(rivals), loss, 0.0, tuple(notes), rejected, nets=fit.nets)
