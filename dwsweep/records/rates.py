"""Rates by which run lengths were fixed (``train.seconds``): a list in manifest.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dwsweep.records.record import Positive, PositiveNumber, one_of


@dataclass(frozen=True)
class FixedRate:
    """Rate of one shape on one kind of device, saved with the first plan of a sweep that needed it (manifest.json)."""

    shape: str  # label of the shape, such as L12-d128-h2
    n_params_total: Positive
    flops_per_token: Positive  # training FLOPs
    tokens_per_step: Positive
    precision: str
    device: str
    time_basis: Annotated[str, one_of("measured", "compiled", "assumed")]
    tokens_per_second: PositiveNumber  # rate of one device, all replicas of a pack together
    distance: PositiveNumber | None = None  # factor in depth and width to the benched shape; 1: itself
    fixed: str | None = None  # time of saving; None: not saved yet
    recipe: str | None = None  # block and optimizer in words; None: not recorded

    @property
    def kind(self) -> tuple[str, int, int, int, str]:
        """Key of a rate: shape, size, cost of a token, tokens of a step, precision."""
        return self.shape, self.n_params_total, self.flops_per_token, self.tokens_per_step, self.precision

    @property
    def origin(self) -> str:
        """Source of the rate, in words."""
        when = f"fixed {self.fixed}" if self.fixed else "not fixed yet: the first `run` or `plan --out` does that"
        return f"{self.time_basis} {'on' if self.time_basis == 'measured' else 'for'} {self.device}; {when}"
