"""The joint model of the loss in fit.json (``surface``): what it takes to evaluate it anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

from dwsweep.records.fit_curves import SizedOptimum
from dwsweep.records.fit_rows import FitPart


@dataclass(frozen=True, kw_only=True)
class DepthSpan(FitPart):
    """ln of the axis from the smallest to the largest shape of a depth."""

    depth: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class LossForm(FitPart):
    """The model with one form of the transition law.

    mean: coefficients (nats) of ``Surface.terms``, then θ: x_T at the shallowest and at the deepest depth (ln of the
    axis), gain (nats per unit of ln axis and ln depth at the middle depth), power with which it falls with depth,
    saturation. cov: rows of the lower triangle of its covariance.
    """

    form: str  # exponential, power or linear
    weight: float  # of the form in the average, by its evidence
    log_evidence: float
    rejected: bool  # its evidence is 100 times less than the best form's, or worse
    tau: float  # luck of a shape, nats
    mean: tuple[float, ...] = field(repr=False)
    cov: tuple[tuple[float, ...], ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Surface(FitPart):
    """loss(ln axis, ln depth) for all depths together, one model per form of the law."""

    form: str
    terms: tuple[tuple[int, int], ...] = field(repr=False)  # powers of the Legendre polynomials in ln axis and ln depth
    low: float  # ln axis of the smallest and of the largest shape
    high: float
    spans: tuple[DepthSpan, ...]
    noise_df: float | None  # degrees of freedom of the noise; None: many
    confidence: float
    forms: tuple[LossForm, ...]
    optima: tuple[SizedOptimum, ...]  # the best depth at a few sizes
