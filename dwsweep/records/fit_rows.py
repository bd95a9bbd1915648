"""The tables of a fit, one record per row: ``cells.csv``, ``transitions.csv``, ``guideline.csv``, rivals and rates.

A record's fields are the columns of its file, in their order. A number that does not exist (or is not finite) is None,
an empty field of the CSV and null in fit.json. A row is read by attribute; ``row["status"]`` and ``dict(row)`` work,
too.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

from dwsweep.records.reader import Count, Positive, one_of

STATUSES = ("crossed", "not_reached", "already_crossed", "undecided", "ambiguous")
REFERENCE = "pchip"  # the estimator that statuses are read from; the others stand with it for reference

Numeric = int | float  # whole numbers stay whole


@dataclass(frozen=True, kw_only=True)
class FitPart:
    """Part of a fit: plain values only, a number that is not finite is None."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                object.__setattr__(self, name, None)

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        """The columns."""
        return tuple(field.name for field in fields(cls))

    def to_dict(self) -> dict[str, Any]:
        """As fit.json has it."""
        return {name: plain(getattr(self, name)) for name in self.keys()}


def plain(value: Any) -> Any:
    """Records as dicts and tuples as lists, all the way down."""
    if isinstance(value, FitPart):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def numbers(values: Any) -> tuple[float | None, ...]:
    """A sequence or an array as floats; None for what is not finite."""
    return tuple(float(v) if v is not None and math.isfinite(v) else None for v in values)


@dataclass(frozen=True, kw_only=True)
class Cell(FitPart):
    """One shape: the mean loss of its runs at its best learning rate."""

    depth: Positive
    width: Numeric
    n_params: Numeric  # non-embedding
    mean: float | None  # nats per token
    se: float | None  # nats; None where the noise is not known
    n: Count  # runs
    learning_rate: Numeric | None
    excluded: bool
    reason: str  # why it is excluded, or what was left out of it
    axis_value: float | None  # on the axis of the fit


@dataclass(frozen=True, kw_only=True)
class Transition(FitPart):
    """One pair of consecutive depths by one estimator: where the deeper net overtakes.

    Sizes are non-embedding parameters; widths are the shallower net's. An end of an interval that is None is
    unbounded.
    """

    shallow: Positive
    deep: Positive
    estimator: str  # REFERENCE, with a threshold in nats (``pchip>0.001``), power or levine
    status: Annotated[str, one_of(*STATUSES)]
    n_params: float | None  # only where it crossed
    n_params_low: float | None
    n_params_high: float | None
    width: float | None
    width_low: float | None
    width_high: float | None
    se_ln_n: float | None
    slope_difference: float | None  # of the loss difference at the crossing, nats per ln of the axis
    sup_t_left: float | None  # largest t of the shallower's lead left of the crossing
    sup_t_right: float | None  # largest t of the deeper's lead right of it
    sign_changes: Count
    n_seeds: Count  # fewest runs of a cell of the two depths
    sigma: float | None  # noise of one run, nats
    df: float | None  # degrees of freedom; None: many
    confidence: float
    interval_method: str
    threshold: float  # nats by which the deeper net must be ahead
    sup_t_critical: float | None
    axis_value: float | None
    axis_low: float | None
    axis_high: float | None
    reason: str
    cause: str = ""  # of an undecided pair: noise, noise unknown, no curve, no shared range
    tie_low: float | None = None  # ends of the stretch beyond the bound where the two do not differ
    tie_high: float | None = None

    @property
    def is_reference(self) -> bool:
        return self.estimator == REFERENCE

    @property
    def name(self) -> str:
        return f"{self.shallow} → {self.deep}"


def references(rows: Iterable[Transition]) -> list[Transition]:
    """The rows of the reference estimator, one per pair (and per token count)."""
    return [row for row in rows if row.is_reference]


@dataclass(frozen=True, kw_only=True)
class _AtTokens(FitPart):
    tokens: Numeric


@dataclass(frozen=True, kw_only=True)
class TokenTransition(Transition, _AtTokens):
    """A transition of the runs of one token count: ``transitions_by_tokens.csv``, ``tokens`` first."""


@dataclass(frozen=True, kw_only=True)
class GuidelineRow(FitPart):
    """Best depth and width at one size. Intervals are at the fixed size: ``width_low`` goes with ``depth_high``."""

    name: str
    n_params: Numeric  # non-embedding
    trained_depth: int | None  # of the model of this name
    trained_width: int | None
    depth: float | None  # None where the law gives none, as ``law`` says
    depth_low: float | None
    depth_high: float | None
    width: float | None
    width_low: float | None
    width_high: float | None
    depth_int: int | None  # a shape one can build
    width_int: int | None
    n_params_actual: int | None  # of that shape
    law: str
    rival_depth_min: float | None  # over the intervals of every form that is not rejected
    rival_depth_max: float | None
    extrapolation_factor: float  # outside the range of the law; 1 inside
    loss_penalty: float | None  # nats that the trained depth loses against the best one
    penalty_low: float | None
    penalty_high: float | None
    equivalent_size_percent: float | None  # size at which the best depth would have the same loss


@dataclass(frozen=True, kw_only=True)
class HeldOut(FitPart):
    """A form refitted without the deepest crossed pair, and how it predicts that pair. All x are ln of the axis."""

    shallow: Positive
    deep: Positive
    observed_ln_x: float
    predicted_ln_x: float | None
    predicted_low: float | None
    predicted_high: float | None
    error_ln_x: float | None
    in_standard_errors: float | None


@dataclass(frozen=True, kw_only=True)
class RivalTransition(FitPart):
    """Where a form puts the transition of one pair."""

    shallow: Positive
    ln_x: float | None


@dataclass(frozen=True, kw_only=True)
class Rival(FitPart):
    """One form of a law (exponential, linear or power) held against the same transitions."""

    form: str
    a: float | None
    b: float | None
    chi2: float | None
    df: int
    delta_chi2: float | None  # above the best form's
    rejected: bool
    winner: bool
    bounded: bool  # the data bound both constants
    held_out: HeldOut | None
    transitions: tuple[RivalTransition, ...]


@dataclass(frozen=True, kw_only=True)
class RateRun(FitPart):
    """One run of a shape that was trained at several learning rates."""

    parametrization: str | None
    depth: Positive
    width: Numeric
    learning_rate: Numeric | None
    seed: Any
    loss: float | None  # held-out nats per token


def csv_text(rows: Iterable[FitPart], kind: type[FitPart]) -> str:
    """CSV with the columns of ``kind``; None is blank, floats have 10 significant digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    columns = kind.keys()
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_field(getattr(row, name)) for name in columns])
    return buffer.getvalue()


def _field(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.10g}" if isinstance(value, float) else value
