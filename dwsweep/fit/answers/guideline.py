"""Sizes of a guideline, whose rows are answers of ``guide --fit`` (guide/guideline.py); the first sentence of a fit,
for a hurried reader; and warnings about its surface."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np

from dwsweep import published_law
from dwsweep.errors import InputError, argument
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.interval import layers
from dwsweep.records.answers import BELOW, AnswerRow
from dwsweep.records.fit import Surface
from dwsweep.records.transitions import GuidelineRow
from dwsweep.text import SHORT, format_count

SMALLEST, LARGEST = 1e3, 1e12  # parameters of a guideline's row
FEWEST_NODES = 300  # effective draws of a posterior whose numbers are sure to three digits


def surface_warnings(surface: LossSurface, axis: str, unit: str) -> Iterator[str]:
    """Warnings about draws that rest on few nodes; a best depth that falls with size, which no form of the law allows;
    a surface that fails to predict held-out shapes, or the losses of a held-out size; and depths that lie off the
    others."""
    record, posterior, nats = surface.record, surface.posterior, SHORT[unit]
    if record.ess < FEWEST_NODES:
        yield (
            f"surface: its draws rest on {record.ess:.0f} effective nodes, fewer than {FEWEST_NODES}; ends of "
            "intervals may move with the seed by more than their Monte-Carlo errors"
        )
    if _trend(record, record.bounded) < 0:
        yield (
            "surface: the best depth falls with size, contrary to every form of the law; no form carries it beyond the "
            "sizes of the losses"
        )
    found = record.held_out
    if found and found.too_few:
        far = "far" if found.worst is None else f"{found.worst:+.1f} standard deviations"  # None: no noise is known
        yield (
            f"surface: no form fits, {found.shapes - found.inside} of {found.shapes} shapes lie outside the 95 % "
            f"intervals predicted from the other shapes; the farthest is {found.worst_depth}×{found.worst_width:.4g}, "
            f"off by {far}"
        )
    if found and found.jumps and found.steepest and found.steepest_at:
        deeper = "deeper" if found.steepest < 0.0 else "shallower"
        yield (
            f"surface: the best depth jumps near {axis} {format_count(found.steepest_at)}, where losses favour "
            f"{deeper} nets by {abs(found.steepest):.1f} standard deviations more than the other sizes predict; near "
            "it the intervals of the best depth are too narrow"
        )
    for y, off, sd in posterior.odd():
        yield (
            f"surface: depth {math.exp(y):.0f} lies {abs(off):.2g} {nats} {'above' if off > 0 else 'below'} the others "
            f"at all sizes (± {2 * sd:.1g}), which no smooth effect of depth does; the best depth rests on the other "
            "depths: check how its nets were trained"
        )


def guideline_sizes(params: Iterable[float] = ()) -> list[GuidelineRow]:
    """Sizes of a guideline: the GPT-3 models at their own 12·L·d², 1T, and each of ``params`` (non-embedding
    parameters). Their answers are those of ``guide --fit`` (guide/guideline.py).

    Raises:
        InputError: a size that ``guide --fit`` refuses.
    """
    targets = list(published_law.targets())
    for value in params:
        try:
            n = float(value)
        except (TypeError, ValueError, OverflowError):
            n = math.nan
        if not SMALLEST <= n <= LARGEST:
            allowed = f"from {format_count(SMALLEST)} to {format_count(LARGEST)} non-embedding parameters"
            raise InputError(f"{argument('params')}: {str(value)[:40]}; must be {allowed}")
        targets.append((format_count(n), n, None))
    return [
        GuidelineRow(name=name, n_params=n, trained_depth=shape and shape[0], trained_width=shape and shape[1])
        for name, n, shape in targets
    ]


def headline(record: Surface, size: str) -> str:
    """Sentence on the growth of the best depth with ``size`` (the axis in words) and its values at up to three sizes;
    empty if the data bound it nowhere."""
    if record.flat:
        return (
            f"No effect of depth is shown: losses that depend on {size} alone fit as well (p = {record.effect_p:.2g})."
        )
    known = record.bounded
    if not known:
        return ""
    run = _below_from_the_smallest(record)
    first = run[-1] if run else known[0]
    if run:  # one bound for all of its sizes
        ends = [row.depth_high for row in run]
        first = replace(first, depth_high=None if None in ends else max(end for end in ends if end is not None))
    later = [row for row in known if row.place > first.place]
    both = [row for row in later[:-1] if row.depth_interval.bounded]
    shown = [first, *both[len(both) // 2 : len(both) // 2 + 1], *later[-1:]]
    listed = [
        f"{_depth(record, row)} {'up to' if row is first and len(run) > 1 else 'at'} {format_count(row.place)}"
        for row in shown
    ]
    trend = {1: f"grows with {size}", 0: f"is not shown to change with {size}", -1: f"falls with {size}"}
    said = "Best depth" if len(record.optima) == 1 else f"The best depth {trend[_trend(record, known)]}"
    return f"{said}: {', '.join(listed)}."


def _below_from_the_smallest(record: Surface) -> list[AnswerRow]:
    """The sizes from the smallest on at which the best depth lies below the shallowest depth of the table."""
    shallowest = min(span.depth for span in record.spans)
    return list(
        takewhile(
            lambda row: (
                row.at_edge == BELOW and (row.depth_min or 0.0) <= shallowest and row.depth_interval.high is not None
            ),
            record.optima,
        )
    )


def _trend(record: Surface, known: Sequence[AnswerRow]) -> int:
    """Direction of the best depth over sizes, by paired posterior draws, since intervals may overlap: 1 for growth from
    the size of the least upper end to a larger one, of the greatest lower end, −1 for a fall the other way, else 0."""
    return next((sign for sign in (1, -1) if _rises(record, known, sign)), 0)


def _rises(record: Surface, known: Sequence[AnswerRow], sign: int) -> bool:
    """True if sign·ln L* surely rises. A draw outside the depths tried at its size rests on the form of its law alone:
    it counts as anywhere beyond them."""
    ends = ("depth_high", "depth_low") if sign > 0 else ("depth_low", "depth_high")
    small, large = ([row for row in known if getattr(row, end) is not None] for end in ends)
    pairs = [(a, b) for a in small for b in large if a.place < b.place]
    if not pairs:
        return False
    farthest = max(pairs, key=lambda pair: sign * math.log(getattr(pair[1], ends[1]) / getattr(pair[0], ends[0])))
    surface = LossSurface(record)
    (before, first), (after, last) = (
        (sign * surface.drawn_depths(row.ln_x), sorted(sign * np.log([row.depth_min or 1.0, row.depth_max or 1.0])))
        for row in farthest
    )
    at_most = np.where(before >= first[1], math.inf, np.maximum(before, first[0]))
    at_least = np.where(after <= last[0], -math.inf, np.minimum(after, last[1]))
    return bool(np.mean(at_least > at_most) >= (1.0 + record.confidence) / 2.0)


def _depth(record: Surface, row: AnswerRow) -> str:
    value, low, high = row.depth_interval.texts(layers)
    best = value or ("1" if row.is_one_layer else record.beyond(row))
    if row.is_one_layer and high in (None, "1", "1.0"):
        return best  # an upper end of one layer only means that one layer is best
    if low and high:
        return f"{best} ({low} to {high})"
    return f"{best} (below {high})" if high else f"{best} (above {low})"
