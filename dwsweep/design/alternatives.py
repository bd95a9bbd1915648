"""Alternatives to a planned sweep: more seeds, more sizes, wider ranges, a deeper net.

No single runs are proposed. Shapes chosen greedily for their gain per FLOP promised a fifth less error than evenly
spaced sizes of equal FLOPs, and did not leave less in simulated sweeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice, pairwise

import numpy as np

from dwsweep.design.expected_fit import Planned
from dwsweep.design.judge import Errors
from dwsweep.shapes import Shape, match_width
from dwsweep.spec import Spec
from dwsweep.text import format_count


def first_seeds(own: Sequence[int], n: int) -> frozenset[int]:
    """``n`` seeds: a spec's own ones, then the least numbers that it leaves."""
    return frozenset(islice(chain(own, (k for k in count() if k not in own)), n))


def alternatives(spec: Spec, planned: Planned, shapes: list[Shape], errors: Errors) -> Iterator[tuple[str, Planned]]:
    """(name, cells) of each change of a grid of ``shapes``; planned: its cells, with those of finished runs."""
    block, multiple = spec.block(), spec.grid.width_multiple
    seeds, own = spec.grid.seed_values(), {(shape.depth, shape.width) for shape in shapes}
    depths, crossings = sorted({depth for depth, _ in planned}), [math.log(pair.n_params) for pair in errors.pairs]
    sizes = np.log(sorted({shape.n_params for shape in shapes}))
    low, high = float(sizes[0]), float(sizes[-1])
    n_widths = max(sum(shape.depth == depth for shape in shapes) for depth in depths)

    def grid(at: list[int], start: float, stop: float, count: int) -> Planned:
        cells = dict(planned)
        for depth in at:
            for size in np.exp(np.linspace(start, stop, count)):
                shape = match_width(depth, float(size), block, multiple)
                key = (shape.depth, shape.width)
                cells[key] = cells.get(key, frozenset()) | frozenset(seeds)
        return cells

    for factor in (2, 4):
        more = {key: value | first_seeds(seeds, factor * len(seeds)) for key, value in planned.items() if key in own}
        yield f"{factor * len(seeds)} seeds instead of {len(seeds)}", {**planned, **more}
    between, width_step = dict(planned), block.width_step(multiple)
    for depth in depths:  # a new width between every two neighbours, with the wider one's seeds
        for left, right in pairwise(sorted(width for d, width in planned if d == depth)):
            width = width_step * round(math.sqrt(left * right) / width_step)
            if left < width < right:
                between[depth, width] = planned[depth, right]
    yield f"{2 * n_widths - 1} widths per depth instead of {n_widths}", between
    step = (high - low) / max(n_widths - 1, 1)
    if max(crossings) > high - step:
        stop = max(max(crossings) + step, high + step)
        extra = math.ceil((stop - high) / step)
        yield f"sizes up to {format_count(math.exp(stop))}", grid(depths, high + step, high + extra * step, extra)
    if min(crossings) < low + step:
        start = low - 2 * step
        yield f"sizes down to {format_count(math.exp(start))}", grid(depths, start, low - step, 2)
    deeper = 2 * depths[-1] - depths[-2]
    yield f"depth {deeper} too", grid([deeper], low, high, n_widths)
