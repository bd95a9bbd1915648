"""Better sweeps: the runs that narrow the target's error most per FLOP, and what plain changes of the grid buy."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dwsweep.cost.flops import training_flops
from dwsweep.design.information import Cells, Errors, Judge, Prior
from dwsweep.plan.lengths import total_steps
from dwsweep.shapes import Block, Shape, match_width
from dwsweep.spec import Spec, parse_spec

MAX_SEEDS = 8
SIZES = 17  # candidate sizes per depth, spaced evenly in ln N
BEYOND = 4.0  # candidates may be larger than the largest budget by this factor, to reach a transition beyond it


@dataclass(frozen=True)
class Proposal:
    """One run to add."""

    shape: Shape
    seed: int
    flops: int
    rms_before: float  # of ln L*(target)
    rms_after: float


class Costs:
    """FLOPs of one run of a shape under the spec's length, all learning rates together."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._known: dict[Shape, int] = {}

    def __call__(self, shape: Shape) -> int:
        if shape not in self._known:
            train = self.spec.train
            tokens = total_steps(self.spec, shape.n_params) * train.batch_size * train.seq_len
            self._known[shape] = training_flops(shape, tokens) * len(self.spec.grid.learning_rates)
        return self._known[shape]


def candidates(spec: Spec, judge: Judge, shapes: Sequence[Shape]) -> list[Shape]:
    """Shapes that may be proposed: the sweep's own, and a fine grid of sizes at each of its depths.

    Sizes run from the smallest of the sweep to its largest, or to beyond the transitions if that is within BEYOND.
    """
    low = min(shape.n_params for shape in shapes)
    high = max(shape.n_params for shape in shapes)
    beyond = max((math.exp(x) * 2 for x in judge.crossings if math.exp(x) * 2 <= high * BEYOND), default=high)
    block, found = spec.block(), set(shapes)
    for depth in judge.depths:
        for size in np.geomspace(low, max(high, beyond), SIZES):
            found.add(match_width(depth, float(size), block, spec.grid.width_multiple))
    return sorted(found, key=lambda shape: (shape.depth, shape.width))


def propose(
    judge: Judge,
    cells: Cells,
    shapes: Sequence[Shape],
    costs: Callable[[Shape], int],
    *,
    count: int | None = None,
    flops: float | None = None,
) -> list[Proposal]:
    """Add up to ``count`` runs, or as many as ``flops`` allow: each time the one with the largest gain per FLOP.

    Gain: the fall of ln rms, where rms is the error of ln L*(target) with its bias (without two informed pairs, that of
    the transitions). A step adds one run with the lowest seed that its shape lacks, or, because the first run of a new
    seed teaches little alone, the same seed at the nearest sizes of two neighbouring depths. At most MAX_SEEDS per
    shape.

    Gains mostly shrink as runs are added, so those of earlier steps order the candidates and only the leaders are
    computed anew (lazy greedy, Minoux 1978).
    """
    current = {shape: frozenset(seeds) for shape, seeds in cells.items()}
    chosen: list[Proposal] = []
    spent = 0.0
    bundles = _bundles(judge, shapes)
    stale = [math.inf] * len(bundles)
    while count is None or len(chosen) < count:
        before = judge.rms(current)
        room = math.inf if count is None else count - len(chosen)
        fresh: dict[int, tuple[list[tuple[Shape, int]], float]] = {}
        queue = [(-gain, i) for i, gain in enumerate(stale)]
        heapq.heapify(queue)
        best: int | None = None
        while queue:
            _, i = heapq.heappop(queue)
            if i in fresh:
                best = i
                break
            runs = _runs(bundles[i], current)
            price = sum(costs(shape) for shape, _ in runs)
            if not runs or len(runs) > room or (flops is not None and spent + price > flops):
                continue
            after = judge.rms(_with(current, runs))
            stale[i] = (math.log(before) - math.log(after)) / price
            if stale[i] > 0:
                fresh[i] = (runs, after)
                heapq.heappush(queue, (-stale[i], i))
        if best is None:
            break
        runs, after = fresh[best]
        for shape, seed in runs:
            chosen.append(Proposal(shape, seed, costs(shape), before, after))
            spent += costs(shape)
        current = _with(current, runs)
    return chosen


def _with(cells: Cells, runs: Sequence[tuple[Shape, int]]) -> dict[tuple[int, int], frozenset[int]]:
    added = dict(cells)
    for shape, seed in runs:
        key = (shape.depth, shape.width)
        added[key] = added.get(key, frozenset()) | {seed}
    return added


def _bundles(judge: Judge, shapes: Sequence[Shape]) -> list[tuple[Shape, ...]]:
    """Each shape alone, and each with the shape of the next depth that is nearest in size."""
    by_depth: dict[int, list[Shape]] = defaultdict(list)
    for shape in shapes:
        by_depth[shape.depth].append(shape)
    bundles: list[tuple[Shape, ...]] = [(shape,) for shape in shapes]
    for shallow, deep in pairwise(judge.depths):
        for shape in by_depth[shallow]:
            if by_depth[deep]:
                near = min(by_depth[deep], key=lambda other: abs(math.log(other.n_params / shape.n_params)))
                bundles.append((shape, near))
    return bundles


def _runs(bundle: tuple[Shape, ...], cells: Cells) -> list[tuple[Shape, int]]:
    """The lowest seed that every shape of the bundle lacks; none where that is beyond MAX_SEEDS."""
    none: frozenset[int] = frozenset()
    taken = none.union(*(cells.get((shape.depth, shape.width), none) for shape in bundle))
    seed = next(seed for seed in range(len(taken) + 1) if seed not in taken)
    return [(shape, seed) for shape in bundle] if seed < MAX_SEEDS else []


def fragments(spec: Spec, proposals: Sequence[Proposal]) -> list[Spec]:
    """Specs that train the proposals, one for each set of seeds; the same directory takes them all.

    A spec is a product of widths and seeds, so shapes that lack different seeds need specs of their own.
    """
    seeds: dict[Shape, set[int]] = defaultdict(set)
    for proposal in proposals:
        seeds[proposal.shape].add(proposal.seed)
    groups: dict[tuple[int, ...], list[Shape]] = defaultdict(list)
    for shape, lacking in seeds.items():
        groups[tuple(sorted(lacking))].append(shape)
    specs = []
    for number, (wanted, shapes) in enumerate(sorted(groups.items()), 1):
        widths: dict[int, list[int]] = defaultdict(list)
        for shape in sorted(shapes, key=lambda s: (s.depth, s.width)):
            widths[shape.depth].append(shape.width)
        content = spec.model_dump(mode="json", by_alias=True)
        content["name"] = f"{spec.name}-next" + (f"-{number}" if len(groups) > 1 else "")
        content["grid"] |= {"depths": [], "budgets": None, "widths": dict(widths), "seeds": list(wanted)}
        specs.append(parse_spec(content))
    return specs


@dataclass(frozen=True)
class Alternative:
    """A change to the sweep, with what it costs and leaves."""

    name: str
    runs: int
    flops: int
    errors: Errors


def alternatives(
    spec: Spec, judge: Judge, planned: Cells, shapes: list[Shape], costs: Costs, prior: Prior, target: float
) -> list[Alternative]:
    """More seeds, more widths, wider ranges, more depths; FLOPs of what each adds to the plan."""
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
        judged = (judge if depths is None else Judge(prior, depths, target)).judge(cells)
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
        consider(f"sizes up to {math.exp(stop):.2g}", grid(judge.depths, high + step, high + extra * step, extra))
    if min(judge.crossings) < low + step:
        consider(f"sizes down to {math.exp(low - 2 * step):.2g}", grid(judge.depths, low - 2 * step, low - step, 2))
    deeper = judge.depths[-1] + (judge.depths[-1] - judge.depths[-2])
    consider(f"depth {deeper} too", grid([deeper], low, high, n_widths), [*judge.depths, deeper])
    return found


def _between(depths: list[int], planned: Cells, block: Block, multiple: int) -> dict[tuple[int, int], frozenset[int]]:
    """A new width between every two neighbours of a depth, with the seeds of the wider one."""
    cells = dict(planned)
    step = block.width_step(multiple)
    for depth in depths:
        widths = sorted(width for d, width in planned if d == depth)
        for left, right in pairwise(widths):
            width = step * round(math.sqrt(left * right) / step)
            if left < width < right:
                cells[depth, width] = planned[depth, right]
    return cells
