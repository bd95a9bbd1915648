"""Cells: data of a fit's posterior, in ``fit.json`` as in memory: mean losses, their errors, and further columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, PlainValidator

from dwsweep.records.record import plain

FEW_FACTORS, MOST_FACTORS, HELD = 8, 40, 0.999  # number of directions that means share, or their share of the variance
SAME = 1e-9  # distance in ln L of one depth


def _numbers(value: Any) -> np.ndarray:
    try:
        found = np.asarray(value)
    except ValueError:  # rows of unequal length
        found = np.array(None)
    if (found.size and found.dtype.kind not in "if") or not np.isfinite(found.astype(float)).all():
        raise ValueError("must be numbers, in rows of one length")
    return found if found.size else found.astype(float)


Array = Annotated[np.ndarray, PlainValidator(_numbers)]
"""Array of numbers, a list of lists in the file."""
Endless = Annotated[float, BeforeValidator(lambda value: math.inf if value is None else value)]
"""Number that may be infinite, which is null in the file."""


class ByContent:
    """Equality of dataclasses that hold arrays, by the content of their files."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and bool(plain(self) == plain(other))

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Prior:
    """A normal prior. unit: of the quantity, where ``sd`` is in logarithms of its logarithm. why: its source."""

    mean: float
    sd: float
    unit: str
    why: str


@dataclass(frozen=True, eq=False)
class ModelColumn(ByContent):
    """A further column: an arm, a budget, a count of tokens, a covariate (its standardised logarithm).

    value: (K,), 0 or 1 for a member of a group. sds: prior sd in nats of its coefficient, with u, with P₂(u), of
    value² − 1, and with v, u and v the scaled ln axis and ln depth. moves_depth: it moves the best depth.
    own_departures, own_level: departures and smooth waves of the level of its own belong to it. shrunk: its
    coefficients are shrunk towards zero, and not towards least squares. tuned: lowest and highest value between which
    each net is taken at its best one (a learning rate); None: at the value of the ``Setting``.
    """

    name: str
    value: Array
    sds: tuple[float, float, float, float, float]
    moves_depth: bool = False
    own_departures: bool = False
    own_level: bool = False
    shrunk: bool = False
    tuned: tuple[float, float] | None = None

    @property
    def kept(self) -> list[int]:
        """Indices of the columns present."""
        return [k for k, sd in enumerate(self.sds) if sd > 0.0]

    def columns(self, value: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(n, ·) at ``value``, u and v (n,)."""
        every = (value, value * u, value * (1.5 * u * u - 0.5), value * value - 1.0, value * v)
        return np.stack([every[k] for k in self.kept], axis=1)

    def centred(self, value: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Columns that least squares may centre: zeros if coefficients are shrunk towards zero."""
        return self.columns(value, u, v) * (0.0 if self.shrunk else 1.0)


@dataclass(frozen=True, eq=False)
class Cells(ByContent):
    """K mean losses and their errors.

    x, y: (K,) ln of the axis and of the depth. mean: (K,) nats. variance: (K,) nats², of a mean by the noise of its
    runs as estimated or declared. factors: (K, R) nats, errors that means share. df: degrees of freedom of the
    variance; inf: declared; 0: the noise of a run is not known, and variance is zero. scatter: prior of the error that
    all seeds of a shape share. columns: covariates. shared: (K, R), effects that several means share and whose size is
    estimated, such as the effect of one run at several counts of tokens. learnt: priors of hyperparameters in place of
    the model's own, by name. odd: (ln depth, nats) of each depth whose shapes all lie off the others by about so much:
    an error of theirs, and no effect of depth.

    Raises:
        ValueError: they differ in length.
    """

    x: Array
    y: Array
    mean: Array
    variance: Array
    factors: Array
    df: Endless
    scatter: Prior
    columns: tuple[ModelColumn, ...] = ()
    shared: Array | None = None
    learnt: dict[str, Prior] = field(default_factory=dict)
    odd: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        lengths = {len(part) for part in (self.x, self.y, self.mean, self.variance, self.factors)}
        if len(lengths) > 1 or not len(self.x):
            raise ValueError(f"cells must be of one length above zero, found {sorted(lengths)}")

    def with_few_factors(self) -> Cells:
        """Cells with fewer shared factors: the directions with ``HELD`` of the shared variance, at most
        ``MOST_FACTORS``. The rest of the variance is added to each mean's own."""
        if self.factors.shape[1] <= FEW_FACTORS:
            return self
        U, s, _ = np.linalg.svd(self.factors, full_matrices=False)
        held = np.cumsum(s**2) / max(float((s**2).sum()), 1e-300)
        n = min(int(np.searchsorted(held, HELD)) + 1, MOST_FACTORS)
        kept = U[:, :n] * s[:n]
        own = np.maximum((self.factors**2).sum(axis=1) - (kept**2).sum(axis=1), 0.0)
        return replace(self, variance=self.variance + own, factors=kept)

    def at(self, where: np.ndarray) -> Cells:
        """The cells ``where``."""
        columns = tuple(replace(one, value=one.value[where]) for one in self.columns)
        rows = {name: vars(self)[name][where] for name in ("x", "y", "mean", "variance", "factors")}
        shared = None if self.shared is None else self.shared[where]
        return replace(self, **rows, columns=columns, shared=shared)

    @cached_property
    def known(self) -> np.ndarray:
        """(K, ·) factors of known size that means share: ``factors``, then those of odd depths.

        ``factors`` times any rotation have the same covariance, and the processor's linear algebra decides which one
        they are. Turned towards fixed numbers, they give the same draws on all processors."""
        fixed = np.random.default_rng(0).standard_normal(self.factors.shape)
        left, _, right = np.linalg.svd(self.factors.T @ fixed)
        return np.hstack(
            [self.factors @ (left @ right), *(sd * (np.abs(self.y - y) < SAME)[:, None] for y, sd in self.odd)]
        )

    @property
    def effects(self) -> np.ndarray:
        """(K, ·) factors that means share: ``known``, then ``shared``."""
        return self.known if self.shared is None else np.hstack([self.known, self.shared])
