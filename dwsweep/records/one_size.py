"""Record of the best depth of a table whose nets have one size: ``at_one_size`` of fit.json."""

from __future__ import annotations

from dataclasses import dataclass

from dwsweep.interval import IntervalOf
from dwsweep.records.record import Positive, Record


@dataclass(frozen=True, kw_only=True)
class AtOneSize(Record):
    """The best depth of a table whose nets have about one size."""

    n_params: float  # geometric mean of the sizes
    confidence: float
    known: bool  # source of the noise: without noise there is no interval
    lowest: Positive  # tried depth with the least loss
    at_edge: str = ""  # below or above: the best depth lies beyond the depths tried on that side
    depth: float | None = None
    depth_low: float | None = None
    depth_high: float | None = None
    depth_interval = IntervalOf()
    worst_depth: Positive | None = None  # worst depth tried
    worst_percent: float | None = None  # excess of the worst depth over the least loss, percent
    worst_percent_low: float | None = None
    worst_percent_high: float | None = None
    effect_p: float | None = None  # probability of no effect of depth

    @property
    def flat(self) -> bool:
        """True if no effect of depth is shown, so that nothing bounds a best depth."""
        return self.effect_p is not None and self.effect_p >= 1.0 - self.confidence
