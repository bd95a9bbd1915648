"""What guides: the best depth of one's own losses, with the interface of a law, and the forms behind it as laws."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.laws import EXTRAPOLATION_LIMIT, Law, ellipse, from_ends
from dwsweep.fit.noise import chi2_quantile
from dwsweep.fit.surface import LossSurface, forms_left, summary
from dwsweep.records.fit_result import FitResult
from dwsweep.records.loss_surface import Surface

AVERAGE = "average"
DEPTHS_FOR_A_LAW = 4  # three depths give two constants nothing that could contradict them


@dataclass(frozen=True)
class OwnGuide:
    """The best depth by the loss surface of a sweep: its profile inside the data, the average of the forms outside.

    valid_from, valid_to: the sizes at which the best depth lies between the depths trained.
    """

    surface: LossSurface
    name: str
    valid_from: float
    valid_to: float
    form: str = AVERAGE
    error_tag: str = ""

    @property
    def limit(self) -> float:
        """Factor outside the range from which on there is no number."""
        return EXTRAPOLATION_LIMIT

    def depth(self, n_params: float) -> tuple[float | None, float | None, float | None]:
        """(L*, low, high) at ``n_params``; None where there is none, or for an end without a bound."""
        found = self.surface.at(n_params)
        return found.depth, found.low, found.high

    def spread(self, n_params: float) -> float:
        """sd of ln L* at ``n_params``: half the width of the central 68 %; inf without a bound."""
        found = summary(self.surface.drawn_depths(math.log(n_params)), 0.6827)
        return math.log(found.high / found.low) / 2.0 if found.low and found.high else math.inf

    def extrapolation(self, n_params: float) -> float:
        """Factor by which ``n_params`` lies outside the range of validity; 1 inside."""
        return max(1.0, n_params / self.valid_to, self.valid_from / n_params)


def own_guide(record: Surface | None) -> OwnGuide | None:
    """None where there is no surface, where the data bound the best depth at none of their sizes, or where there are
    three depths: they show a best depth inside the data (``optima``), and have no law."""
    if record is None or len(record.spans) < DEPTHS_FOR_A_LAW:
        return None
    surface = LossSurface(record)
    if not surface.measured:
        return None
    inside = [row.n_params for row in record.optima if row.depth is not None]
    shares = ", ".join(f"{form.form} {form.weight:.2f}" for form in forms_left(record))
    return OwnGuide(surface, f"own: loss of all depths, forms by evidence ({shares})", min(inside), max(inside))


def form_guides(guide: OwnGuide, rejected: bool = False) -> list[OwnGuide]:
    """What each form that is not rejected says alone, the most probable first: with the data's departures from it
    inside, by itself outside; with ``rejected`` those that are rejected too."""
    record = guide.surface.record
    return [
        replace(guide, surface=LossSurface(record, only=form.form), name=f"own: {form.form} form", form=form.form)
        for form in (record.forms if rejected else forms_left(record))
    ]


def likely_law(guide: OwnGuide) -> Law:
    """The most probable form as a law with its confidence region: ln d at the shallowest and the deepest depth, from
    x_T there, is what the surface estimates of it."""
    record = guide.surface.record
    form = forms_left(record)[0]
    first, last = (float(end(span.depth for span in record.spans)) for end in (min, max))
    at = len(record.terms)
    centre = (np.array(form.mean[at : at + 2]) - np.log([12.0 * first, 12.0 * last])) / 2.0
    covariance = np.array([[form.cov[at][at], form.cov[at + 1][at]], [form.cov[at + 1][at], form.cov[at + 1][at + 1]]])
    level = float(chi2_quantile(record.confidence, 1.0))
    around = ellipse((float(centre[0]), float(centre[1])), covariance / 4.0 + 1e-12 * np.eye(2), level, 120)
    theta = from_ends(form.form, centre, first, last)
    return Law(
        f"own: {form.form} form of the loss surface",
        form.form,
        (float(theta[0]), float(theta[1])),
        guide.valid_from,
        guide.valid_to,
        from_ends(form.form, around, first, last),
    )


def guides(fit: FitResult) -> tuple[OwnGuide, list[OwnGuide]] | None:
    """(what guides, the forms that are not rejected) of a fit; None where it has nothing of its own to say."""
    found = own_guide(fit.surface) if fit.curves.axis == "n_params" else None
    return None if found is None else (found, form_guides(found))
