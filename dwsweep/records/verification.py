"""Verification of a device: ``verification.json``, which ``dwsweep bench --verify`` writes and its owner may mail.

It holds versions, device and driver, every check with its value and tolerance, and the losses themselves. It holds no
name of a host, user or folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

from dwsweep import paths
from dwsweep.records.record import Number, Positive, write

FILE_NAME = "verification.json"


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check: it passes where ``value`` is at most ``tolerance``, or in the sense of ``said``."""

    name: str
    passed: bool | None  # None: not judged, or impossible here, for the reason in ``said``
    value: Number = None
    tolerance: Number = None
    unit: str = ""
    said: str = ""  # quantity compared, or the reason for no comparison


@dataclass(frozen=True, kw_only=True)
class ShapeRate:
    """Rate of one shape here, beside a published figure for another device."""

    depth: Positive
    width: Positive
    batch_size: Positive  # sequences
    seq_len: Positive
    precision: str
    step_seconds: float
    tokens_per_second: float
    mfu: float  # against ``peak_flops``
    peak_flops: float  # FLOP/s of one device
    peak_basis: str  # a data sheet, or a product measured here
    attention_kernel: str | None
    published_mfu: Number = None
    published: str | None = None  # source and device of that figure


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Training loss (nats per token) of one program: a row per seed, a value per step."""

    program: str
    losses: tuple[tuple[Number, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Verification:
    """Result of one call of ``dwsweep bench --verify``."""

    created: str  # UTC, ISO 8601
    dwsweep: str
    versions: dict[str, str]  # versions of Python and of the packages that results depend on
    system: str
    processor: str | None
    cores: Positive
    device_kind: str
    devices: Positive
    backend: str  # JAX's platform and its version
    driver: str | None  # driver of the device; None: not found, or the device has none
    settings: dict[str, str]  # environment variables that change programs
    seconds: float
    checks: tuple[Check, ...]
    rates: tuple[ShapeRate, ...]
    curves: tuple[Curve, ...]

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if check.passed is False)


def write_to(found: Verification, directory: str | PathLike[str]) -> Any:
    """Write ``directory/verification.json``, sealed as all records are; returns its path."""
    path = paths.make_directory(paths.as_path(directory)) / FILE_NAME
    write(path, found)
    return path
