"""What the figures of a fit draw. All x are values of the fit's axis (parameters by default), losses nats per token.

Sequences that belong together have one length; None in them is a value that does not exist or an end without a bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from dwsweep.records.fit_rows import FitPart, Numeric
from dwsweep.records.reader import Count, Positive

Values = tuple[float | None, ...]


@dataclass(frozen=True, kw_only=True)
class Sampled(FitPart):
    """A part whose sequences are columns of one table.

    Raises:
        ValueError: they differ in length.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = {name: len(value) for name, value in vars(self).items() if isinstance(value, tuple)}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                "sequences must have one length, found " + ", ".join(f"{k} {n}" for k, n in lengths.items())
            )


@dataclass(frozen=True, kw_only=True)
class SmoothCurve(Sampled):
    """The interpolated loss of a depth on a fine grid."""

    x: Values
    mean: Values
    se: Values | None  # None where the noise is not known


@dataclass(frozen=True, kw_only=True)
class DepthCurve(Sampled):
    """Loss of one depth against the axis, at its cells."""

    depth: Positive
    x: Values
    width: Values
    n_params: Values
    mean: Values
    se: Values | None
    n: tuple[Count, ...]  # runs of each cell
    smooth: SmoothCurve | None  # None with a single size


@dataclass(frozen=True, kw_only=True)
class PairCurve(Sampled):
    """g = loss of the shallower − loss of the deeper net; positive where the deeper is ahead.

    ``low``, ``high``: the simultaneous (sup-t) band that the status is read from. It, ``se`` and ``critical`` are None
    where the noise is not known.
    """

    shallow: Positive
    deep: Positive
    status: str
    x: Values
    g: Values
    se: Values | None
    low: Values | None
    high: Values | None
    critical: float | None  # sup-t quantile
    root: float | None
    root_low: float | None
    root_high: float | None
    reason: str

    @property
    def pair(self) -> tuple[int, int]:
        """The two depths."""
        return self.shallow, self.deep


@dataclass(frozen=True, kw_only=True)
class LawBand(Sampled):
    """Width of the transition against depth under a law, with its band at fixed depth."""

    name: str
    form: str
    depth: Values
    width: Values
    width_low: Values
    width_high: Values
    error_tag: str  # where the errors come from, when not from this fit


@dataclass(frozen=True, kw_only=True)
class GuidelineBand(Sampled):
    """Best depth and width against size under a law, with the band at fixed size."""

    name: str
    n_params: Values
    depth: Values
    depth_low: Values
    depth_high: Values
    width: Values
    width_low: Values
    width_high: Values
    valid_from: float  # non-embedding parameters
    valid_to: float


@dataclass(frozen=True, kw_only=True)
class Optimum(FitPart):
    """The best depth at one size by the loss surface; None: at or beyond the edge of the depths that were tried."""

    ln_x: float
    depth: float | None
    depth_low: float | None
    depth_high: float | None
    loss: float
    at_edge: str | None  # below or above
    depth_min: float  # depths that the data span there
    depth_max: float

    @property
    def is_one_layer(self) -> bool:
        """Whether it is a single layer, which was trained: there is no net of less."""
        return self.at_edge == "below" and self.depth_min <= 1

    @property
    def beyond(self) -> str:
        """Where it lies, in words, if it is at an edge."""
        return "1, the fewest" if self.is_one_layer else f"{self.at_edge} the depths tried"


@dataclass(frozen=True, kw_only=True)
class SizedOptimum(Optimum):
    """An optimum of the list in fit.json, with its size."""

    n_params: float  # the value of the axis
    worst_depth: float | None = None  # of the depths tried at this size: the one with the highest loss …
    worst_percent: float | None = None  # … and by how many percent of the best depth's loss it is above that
    worst_percent_low: float | None = None
    worst_percent_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class SurfaceCut(Sampled):
    """The loss surface against depth at one size, with its band."""

    depth: Values
    mean: Values
    low: Values
    high: Values
    optimum: Optimum | None


@dataclass(frozen=True, kw_only=True)
class FixedSize(Sampled):
    """Losses of the depths at one size."""

    x: float
    depth: tuple[Positive, ...]
    mean: Values
    se: Values | None
    surface: SurfaceCut | None


@dataclass(frozen=True, kw_only=True)
class TrainedModel(FitPart):
    """A model of GPT-3's paper as it was trained."""

    name: str
    n_params: Numeric  # 12·L·d²
    depth: Positive
    width: Positive


@dataclass(frozen=True, kw_only=True)
class FitCurves(FitPart):
    """All curves of a fit. Laws by form: ``exponential``, ``linear``, ``power`` where there are any, ``published``."""

    axis: str
    axis_label: str
    confidence: float
    depths: tuple[DepthCurve, ...]
    pairs: tuple[PairCurve, ...]
    laws: dict[str, LawBand]
    fixed_n: tuple[FixedSize, ...]
    guideline: dict[str, GuidelineBand]
    gpt3: tuple[TrainedModel, ...]

    @property
    def size_name(self) -> str:
        """How a value of the axis is called in a sentence."""
        return "N" if self.axis == "n_params" else self.axis
