"""What fit.json says, in the shape that the figures draw.

One reader for all figures: they differ in what they show of a sweep, not in how it is stored. What the file does not
hold is None, NaN or empty here, never filled in. The layout of the file is documented in ``dwsweep.fit.fit_files``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

PUBLISHED = "published"
REFERENCE = "pchip"  # the estimator that statuses are read from


@dataclass(frozen=True)
class DepthCurve:
    """Loss of one depth against the axis, nats per token: ``n``, ``loss`` at the cells, ``grid_n``, ``grid_loss`` on a
    fine grid; ``half`` is the half width of the grid's pointwise band, None where the noise is not known."""

    depth: int
    n: Floats
    loss: Floats
    grid_n: Floats
    grid_loss: Floats
    half: Floats | None


@dataclass(frozen=True)
class Transition:
    """One pair as the reference estimator sees it; ``n`` in units of the axis, widths of the shallower net; None where
    there is no such number or no bound."""

    shallow: int
    deep: int
    status: str
    reason: str
    n: float | None
    n_low: float | None
    n_high: float | None
    width: float | None
    width_low: float | None
    width_high: float | None

    @property
    def name(self) -> str:
        return f"{self.shallow} → {self.deep}"


@dataclass(frozen=True)
class Difference:
    """g = loss of the shallower − loss of the deeper net, nats per token (positive: the deeper is ahead), on a grid of
    the axis. ``half``: half width of the pointwise band; ``sup_low``, ``sup_high``: the simultaneous band that the
    status is read from. The three are None together, where the noise is not known."""

    transition: Transition
    n: Floats
    g: Floats
    half: Floats | None
    sup_low: Floats | None
    sup_high: Floats | None


@dataclass(frozen=True)
class Line:
    """A law drawn over depths or over sizes, with the ends of its interval (NaN: no such value or no bound)."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Law:
    """A law in pictures. ``form``: exponential, linear, power or published. ``width_at_depth``: transition width
    against depth; ``depth_at_size``, ``width_at_size``: its advice against N."""

    form: str
    label: str
    rejected: bool
    width_at_depth: Line
    depth_at_size: Line
    width_at_size: Line
    valid_from: float
    valid_to: float


@dataclass(frozen=True)
class FixedSize:
    """Losses of the depths at one size, and the fitted surface there: its line over depths, its lowest point
    (depth, low, high; None without a bound)."""

    n: float
    depth: Sequence[int]
    loss: Floats
    half: Floats | None
    surface: Line | None
    optimum: tuple[float | None, float | None, float | None] | None


@dataclass(frozen=True)
class Model:
    """A model that was trained: non-embedding parameters, depth, width."""

    name: str
    n: float
    depth: float
    width: float


@dataclass(frozen=True)
class Content:
    """All that is drawn of one fit. ``laws``: this sweep's own forms, the guiding one first; empty where there is none.
    ``by_tokens``: (training tokens, transition) where the table holds several token counts, else empty.
    ``rates``: the runs of the shapes trained at several learning rates, as fit.json holds them."""

    axis: str
    axis_label: str
    confidence: float
    curves: Sequence[DepthCurve]
    transitions: Sequence[Transition]
    differences: Sequence[Difference]
    laws: Sequence[Law]
    published: Law
    fixed: Sequence[FixedSize]
    models: Sequence[Model]
    by_tokens: Sequence[tuple[float, Transition]]
    rates: Sequence[Mapping[str, Any]]

    @property
    def main(self) -> Law:
        """The law that the guideline follows: this sweep's own, else the published one."""
        return self.laws[0] if self.laws else self.published


def read(fit: Mapping[str, Any]) -> Content:
    """The pictures' content of a fit.json, as ``dwsweep.fit.fit_files.read`` returns it."""
    curves = fit["curves"]
    confidence = float(curves["confidence"])
    rows = _references(fit["transitions"])
    transitions = [_transition(row) for row in rows]
    df = {(row["shallow"], row["deep"]): row.get("df") for row in rows}
    by_pair = {(t.shallow, t.deep): t for t in transitions}
    pairs = [(p, (p["shallow"], p["deep"])) for p in curves["pairs"]]
    laws = _laws(fit)
    return Content(
        axis=curves["axis"],
        axis_label=AXIS_LABELS.get(curves["axis"], curves["axis_label"]),
        confidence=confidence,
        curves=[_curve(row, confidence) for row in curves["depths"]],
        transitions=transitions,
        differences=[_difference(p, by_pair[key], df.get(key), confidence) for p, key in pairs if key in by_pair],
        laws=laws,
        published=_law(fit, PUBLISHED),
        fixed=[_fixed(row, confidence) for row in curves["fixed_n"] if len(row["depth"]) > 1],
        models=[Model(m["name"], m["n_params"], m["depth"], m["width"]) for m in curves["gpt3"]],
        by_tokens=[(row["tokens"], _transition(row)) for row in _references(fit.get("by_tokens") or [])],
        rates=fit.get("rates") or [],
    )


def _references(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [row for row in rows if row.get("estimator", REFERENCE) == REFERENCE]


AXIS_LABELS = {"n_params": "non-embedding parameters N = 12·L·d²"}


def floats(values: Sequence[float | None]) -> Floats:
    """An array, NaN for None."""
    import numpy as np

    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _quantile(confidence: float, df: float | None = None) -> float:
    """Two-sided quantile of Student's t, or of the normal where the degrees of freedom are many or not known."""
    from scipy.stats import norm, t

    level = 0.5 + confidence / 2.0
    return float(norm.ppf(level) if df is None else t.ppf(level, df))


def _curve(row: Mapping[str, Any], confidence: float) -> DepthCurve:
    n, loss = floats(row["x"]), floats(row["mean"])
    smooth = row.get("smooth") or {"x": row["x"], "mean": row["mean"], "se": row["se"]}
    half = None if smooth["se"] is None else _quantile(confidence) * floats(smooth["se"])
    return DepthCurve(row["depth"], n, loss, floats(smooth["x"]), floats(smooth["mean"]), half)


def _transition(row: Mapping[str, Any]) -> Transition:
    value, low, high = (row.get(f"axis_{end}") for end in ("value", "low", "high"))
    return Transition(
        row["shallow"], row["deep"], row["status"], str(row.get("reason") or ""), value, low, high,
        row.get("width"), row.get("width_low"), row.get("width_high"),
    )  # fmt: skip


def _difference(row: Mapping[str, Any], transition: Transition, df: float | None, confidence: float) -> Difference:
    known = row["se"] is not None and row["low"] is not None
    return Difference(
        transition,
        floats(row["x"]),
        floats(row["g"]),
        _quantile(confidence, df) * floats(row["se"]) if known else None,
        floats(row["low"]) if known else None,
        floats(row["high"]) if known else None,
    )


def _laws(fit: Mapping[str, Any]) -> list[Law]:
    """This sweep's own forms, the guiding one first; none where the fit claims no law."""
    if not fit.get("width_law"):
        return []
    guiding = fit.get("guideline_law") or "exponential"
    forms = [form for form in fit["curves"]["laws"] if form != PUBLISHED]
    return [_law(fit, form) for form in sorted(forms, key=lambda form: form != guiding)]


def _law(fit: Mapping[str, Any], form: str) -> Law:
    over_depth, over_size = fit["curves"]["laws"][form], fit["curves"]["guideline"][form]
    rival: Mapping[str, Any] = next((row for row in fit.get("rivals") or [] if row["form"] == form), {})
    label = "published law" if form == PUBLISHED else f"own {form}"
    if rival.get("delta_chi2"):
        label += f", Δχ² {rival['delta_chi2']:.1f}"
    return Law(
        form,
        label,
        bool(rival.get("rejected")),
        _line(over_depth, "depth", "width"),
        _line(over_size, "n_params", "depth"),
        _line(over_size, "n_params", "width"),
        over_size["valid_from"],
        over_size["valid_to"],
    )


def _line(row: Mapping[str, Any], x: str, y: str) -> Line:
    return Line(floats(row[x]), floats(row[y]), floats(row[f"{y}_low"]), floats(row[f"{y}_high"]))


def _fixed(row: Mapping[str, Any], confidence: float) -> FixedSize:
    half = None if row["se"] is None else _quantile(confidence) * floats(row["se"])
    surface, optimum = row.get("surface"), None
    line = None
    if surface:
        line = Line(*(floats(surface[name]) for name in ("depth", "mean", "low", "high")))
        best = surface.get("optimum")
        optimum = (best["depth"], best["depth_low"], best["depth_high"]) if best else None
    return FixedSize(row["x"], row["depth"], floats(row["mean"]), half, line, optimum)
