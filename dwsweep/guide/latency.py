"""Measured decode latency: seconds of a token by depth and weights, from a table of shapes.

    seconds = a + b·L + c·N        N: weights of the blocks that a token passes

by least squares of relative errors, no constant below zero. a: time of a token in any net; b: launches and waits of a
layer; c: the time to read a weight. Of 24 transformers at batch 1 they are 1.3 ms, 0.67 ms and 0.30 ms per 1e9 weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwsweep.errors import InputError, argument
from dwsweep.fit.data import source
from dwsweep.fit.data.rows import plain
from dwsweep.fit.data.shape import n_params_of
from dwsweep.fit.data.table import read_table
from dwsweep.text import join

UNITS = {"ms": 1e-3, "milliseconds": 1e-3, "us": 1e-6, "microseconds": 1e-6, "s": 1.0, "seconds": 1.0}
FEWEST = 4  # shapes
ROUNDING = 1e-6  # share of a time that is none


@dataclass(frozen=True)
class Latency:
    """Seconds per decoded token: of any net, per layer, per weight. shapes: measured; off: their root mean square
    distance from the line, relative."""

    any_net: float
    per_layer: float
    per_weight: float
    shapes: int
    off: float

    @classmethod
    def of(cls, table: Any) -> Latency:
        """Latency of a table with depth, width and one column of times, whose name holds its unit: ``ms``.

        Raises:
            InputError: the table lacks a column, or has too few shapes to tell layers from weights.
        """
        try:
            return cls._of(table)
        except InputError as error:
            name = argument("latency")
            raise InputError(*(f"{name}: {line.removeprefix('table: ')}" for line in error.templates)) from None

    @classmethod
    def _of(cls, table: Any) -> Latency:
        loaded = source.load(table)
        times = [(name, UNITS[word]) for name in loaded.columns for word in plain(name).split("_") if word in UNITS]
        if len(times) != 1:
            found = join(loaded.columns, 12)
            raise InputError(f"{loaded.source}; it has {found}; must have one column of seconds per token, such as ms")
        ((column, unit),) = times
        rows = [row for row in read_table(loaded, {"loss": column}).rows if row["loss"] and row["loss"] > 0.0]
        depth, weights = (np.array([f(row) for row in rows], dtype=float) for f in (lambda r: r["depth"], n_params_of))
        seconds = unit * np.array([row["loss"] for row in rows], dtype=float)
        A = np.stack([np.ones_like(depth), depth, weights], axis=1) / seconds[:, None] if rows else np.zeros((0, 3))
        scale = np.abs(A).max(axis=0, initial=0.0)
        shapes = len({(row["depth"], row["width"]) for row in rows})
        if shapes < FEWEST or np.linalg.matrix_rank(A / scale, tol=1e-3) < A.shape[1]:
            raise InputError(
                f"{loaded.source}; {shapes} shape{'s' * (shapes != 1)} with a time; at least {FEWEST} are needed, of "
                "several depths and of several sizes at one depth, to tell layers from weights"
            )
        from scipy.optimize import nnls

        found = nnls(A / scale, np.ones(len(A)))[0] / scale
        if (A[:, 1:] @ found[1:]).max() <= ROUNDING:
            raise InputError(f"{loaded.source}; its times grow with neither layers nor weights")
        off = math.sqrt(float(((A @ found - 1.0) ** 2).mean()))
        any_net, per_layer, per_weight = found.tolist()
        return cls(any_net, per_layer, per_weight, shapes, off)

    @property
    def said(self) -> str:
        """The line in words: ``1.3 ms + 0.67 ms per layer + 0.3 ms per 1e9 weights``."""
        parts = f"{1e3 * self.any_net:.2g} ms + {1e3 * self.per_layer:.2g} ms per layer"
        parts += f" + {1e12 * self.per_weight:.2g} ms per 1e9 weights"
        return f"{parts} (measured, {self.shapes} shapes, ± {self.off:.0%})"
