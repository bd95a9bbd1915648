"""Rates at which the lengths of runs were fixed (``train.seconds``): a list in manifest.json, and in the config.json of
each run the one that it was promised by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dwsweep.records.reader import Positive, PositiveNumber, one_of


@dataclass(frozen=True)
class FixedRate:
    """The rate of one shape on one kind of device, written down when the first plan of a sweep needed it and used by
    every later one, whatever has been benchmarked since: steps that followed from it would change otherwise."""

    shape: str  # its label, such as L12-d128-h2
    n_params_total: Positive
    flops_per_token: Positive  # of training
    tokens_per_step: Positive
    precision: str
    device: str
    time_basis: Annotated[str, one_of("measured", "compiled", "assumed")]
    tokens_per_second: PositiveNumber  # of one device, all replicas of a pack together
    distance: PositiveNumber | None = None  # in depth and width to the shape that was benched, 1: itself
    fixed: str | None = None  # when; None: not written down yet
    recipe: str | None = None  # block and optimizer in words; None: not recorded

    @property
    def of(self) -> tuple[str, int, int, int, str, str | None]:
        """What a rate is the rate of, but for the device."""
        kind = self.shape, self.n_params_total, self.flops_per_token, self.tokens_per_step, self.precision
        return *kind, self.recipe


@dataclass(frozen=True)
class Promise:
    """What ``train.seconds`` promised a run, in its config.json."""

    seconds: PositiveNumber  # device-seconds, the run's share of its pack; whole steps, so not quite ``train.seconds``
    rate: FixedRate
