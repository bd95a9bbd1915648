"""Alternatives to a planned sweep: more seeds, more sizes, wider ranges, a deeper net, with their costs and errors.

No single runs are proposed. Shapes chosen greedily for their gain per FLOP promised a fifth less error than evenly
spaced sizes of equal FLOPs, and did not leave less in simulated sweeps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dwsweep.design.expected_fit import Planned
from dwsweep.design.judge import Errors, Judge
from dwsweep.shapes import Block, Shape, match_width
from dwsweep.spec import Spec
from dwsweep.text import format_count


@dataclass(frozen=True)
class Alternative:
    """Alternative to a sweep: a change, its cost and the errors that it leaves."""

    name: str
    runs: int
    flops: int
    errors: Errors


def alternatives(
    spec: Spec, judge: Judge, planned: Planned, shapes: list[Shape], costs: Callable[[Shape], int]
) -> list[Alternative]:
    """Alternatives: more seeds, more widths, wider ranges, more depths, each with the FLOPs that it adds. costs: FLOPs
    of a shape, all learning rates together."""
    block, multiple = spec.block(), spec.grid.width_multiple
    seeds = len(spec.grid.seed_values())
    by_key = {(shape.depth, shape.width): shape for shape in shapes}
    sizes = np.log(sorted({shape.n_params for shape in shapes}))
    low, high = float(sizes[0]), float(sizes[-1])
    n_widths = max(sum(shape.depth == depth for shape in shapes) for depth in judge.depths)
    found: list[Alternative] = []

    def consider(name: str, cells: dict[tuple[int, int], frozenset[int]], depths: list[int] | None = None) -> None:
        def shape_of(key: tuple[int, int]) -> Shape:
            return by_key.get(key) or block.shape(*key)

        added = {key: cells[key] - planned.get(key, frozenset()) for key in cells}
        judged = (judge if depths is None else Judge(judge.prior, depths, judge.target, judge.precise)).judge(cells)
        found.append(
            Alternative(
                name,
                sum(len(value) for value in added.values()) * len(spec.grid.learning_rates),
                sum(costs(shape_of(key)) * len(value) for key, value in added.items() if value),
                judged,
            )
        )

    def grid(depths: list[int], start: float, stop: float, count: int) -> dict[tuple[int, int], frozenset[int]]:
        cells = dict(planned)
        for depth in depths:
            for size in np.exp(np.linspace(start, stop, count)):
                shape = match_width(depth, float(size), block, multiple)
                key = (shape.depth, shape.width)
                cells[key] = cells.get(key, frozenset()) | frozenset(range(seeds))
        return cells

    for factor in (2, 4):
        more = {key: value | frozenset(range(factor * seeds)) for key, value in planned.items() if key in by_key}
        consider(f"{factor * seeds} seeds instead of {seeds}", dict(planned) | more)
    consider(
        f"{2 * n_widths - 1} widths per depth instead of {n_widths}", _between(judge.depths, planned, block, multiple)
    )
    step = (high - low) / max(n_widths - 1, 1)
    if max(judge.crossings) > high - step:
        stop = max(max(judge.crossings) + step, high + step)
        extra = math.ceil((stop - high) / step)
        consider(
            f"sizes up to {format_count(math.exp(stop))}", grid(judge.depths, high + step, high + extra * step, extra)
        )
    if min(judge.crossings) < low + step:
        consider(
            f"sizes down to {format_count(math.exp(low - 2 * step))}", grid(judge.depths, low - 2 * step, low - step, 2)
        )
    deeper = judge.depths[-1] + (judge.depths[-1] - judge.depths[-2])
    consider(f"depth {deeper} too", grid([deeper], low, high, n_widths), [*judge.depths, deeper])
    return found


def _between(depths: list[int], planned: Planned, block: Block, multiple: int) -> dict[tuple[int, int], frozenset[int]]:
    """Planned shapes with a new width between every two neighbours of a depth, with the wider one's seeds."""
    cells = dict(planned)
    step = block.width_step(multiple)
    for depth in depths:
        widths = sorted(width for d, width in planned if d == depth)
        for left, right in pairwise(widths):
            width = step * round(math.sqrt(left * right) / step)
            if left < width < right:
                cells[depth, width] = planned[depth, right]
    return cells
