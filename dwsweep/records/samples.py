"""Samples of a sweep: ``samples.json``, texts that its models wrote, for the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from dwsweep.records.record import Amount, Name


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One text of ``samples.json``: a trained model's continuation of ``prompt``."""

    run_id: Name
    depth: Annotated[int, Field(ge=1)]
    width: Annotated[int, Field(ge=1)]
    loss: Amount  # held-out nats per token
    prompt: str
    seed: Annotated[int, Field(ge=0)]
    text: str
