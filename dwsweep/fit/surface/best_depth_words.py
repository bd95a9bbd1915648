"""The best depth over all sizes, and what all losses say of each pair: a sentence each, for who reads nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dwsweep.fit.surface.loss_surface import LossSurface
from dwsweep.records.fit_curves import SizedOptimum
from dwsweep.records.fit_result import Surface
from dwsweep.records.fit_rows import REFERENCE, Transition
from dwsweep.text import format_count

SURFACE = "surface"  # the estimator


def headline(record: Surface, size: str) -> str:
    """Whether the best depth grows with ``size`` (the axis in words), and what it is at up to three sizes; empty where
    the data bound it nowhere."""
    known = record.bounded
    if not known:
        return ""
    below = [row for row in known if row.at_edge == "below"]
    first = below[-1] if below and known[0] is below[0] and len(below) < len(known) else known[0]
    later = [row for row in known if row.n_params > first.n_params]
    both = [row for row in later[:-1] if None not in (row.depth_low, row.depth_high)]
    shown = [first, *both[len(both) // 2 : len(both) // 2 + 1], *later[-1:]]
    listed = [f"{_depth(row)} {'up to' if row in below else 'at'} {format_count(row.n_params)}" for row in shown]
    return f"{_trend(record, known[0], known[-1], size)}: {', '.join(listed)}."


def joint_crossings(transitions: Sequence[Transition]) -> str:
    """The pairs that cross by the losses of all depths together and not by their own two curves; empty if none."""
    crossed = {(row.shallow, row.deep) for row in transitions if row.estimator == REFERENCE and row.status == "crossed"}
    found = [
        f"{row.name} at N = {format_count(row.n_params)} "
        f"({100.0 * row.confidence:.0f} %: {format_count(row.n_params_low)} to {format_count(row.n_params_high)})"
        for row in transitions
        if row.estimator == SURFACE and row.status == "crossed" and (row.shallow, row.deep) not in crossed
        if row.n_params is not None and row.n_params_low is not None and row.n_params_high is not None
    ]
    return f"by the losses of all depths together (surface): {', '.join(found)}" if found else ""


def _trend(record: Surface, small: SizedOptimum, large: SizedOptimum, size: str) -> str:
    """By the draws at the smallest and at the largest size, which go together: intervals may overlap and it grows."""
    surface = LossSurface(record)
    before, after = (surface.drawn_depths(row.ln_x) for row in (small, large))
    sure = (1.0 + record.confidence) / 2.0
    if np.mean(after > before) >= sure:
        return f"The best depth grows with {size}"
    if np.mean(after < before) >= sure:
        return f"The best depth falls with {size}"
    return f"The best depth does not surely change with {size}"


def _depth(row: SizedOptimum) -> str:
    low, high = (None if end is None else f"{end:.1f}" for end in (row.depth_low, row.depth_high))
    best = f"{row.depth:.1f}" if row.depth else "1" if row.is_one_layer else row.beyond
    if low and high:
        return f"{best} ({low} to {high})"
    return f"{best} (below {high})" if high else f"{best} (above {low})"
