"""Shapes one can build at a size: true counts, hardware multiples, costs at equal size, FLOPs and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from dwsweep.cost.devices import Device
from dwsweep.cost.duration import BANDWIDTH_SHARE, assumed_mfu
from dwsweep.cost.flops import decode_bytes_per_token, training_flops_per_token
from dwsweep.errors import InputError, argument
from dwsweep.guide.answers import Candidate, Cost, NearBest
from dwsweep.guide.law_sources import Source
from dwsweep.guide.loss import LossModel, smaller_percent
from dwsweep.guide.options import Options
from dwsweep.shapes import Shape, match_width

LAYER_SECONDS = 20e-6  # ASSUMPTION: a layer's launches and waits while decoding one token, whatever its width
TOKENS_PER_STEP = 500_000  # of the assumed training step
BUDGET_TOLERANCE = 0.05  # a shape further than this from the budget answers another question
TIE_NATS = 1e-4  # far below what two seeds differ by
LEAST_SHARE = 0.02  # of a budget of all parameters that must be left for the blocks
FREE_GRID = 0.05  # of a layer: the ends of the depths that cost next to nothing lie on a grid
FARTHEST = 2.0  # factor from the budget, beyond which a shape is not even shown
WIDEST_STEP = 1_000_000  # of widths
FEWEST_ROWS, MOST_ROWS = 4, 11
MOST_WIDTHS = 24  # tried, where their steps are small


def matched(depth: int, n_params: float, options: Options) -> Shape:
    """The shape of this depth nearest to the budget: by its block weights, or by all its parameters with ``total``."""
    return match_width(
        depth, n_params, options.block(n_params), options.step(n_params), lambda shape: counted(shape, options)
    )


def block_params(n_params: float, options: Options, optimal_depth: Callable[[float], float | None]) -> float:
    """Non-embedding parameters of a budget: itself, or with ``total`` what embeddings leave of it at the best depth.

    Fixed point of N = budget − embeddings(d(N)), d = √(N/12L*(N)).

    Raises:
        InputError: the embeddings alone are larger than the budget.
    """
    if not options.total:
        return n_params
    tables = 1 if options.tied_embeddings else 2

    def excess(size: float) -> float:
        depth = optimal_depth(size)
        return size + tables * options.vocabulary * math.sqrt(size / (12 * max(depth or 1.0, 1.0))) - n_params

    # both parts grow with the size, so there is one root
    low, high = 1e-6 * n_params, n_params
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    if high < LEAST_SHARE * n_params:
        raise InputError(
            f"{argument('params')}: {n_params:g}; embeddings of a vocabulary of {options.vocabulary:,} leave nothing "
            f"for the blocks; allowed: more parameters, a smaller {argument('vocab_size')}, or the non-embedding count"
        )
    return high


def counted(shape: Shape, options: Options) -> int:
    """The count that the budget is of: the weights of the blocks, or all parameters with ``total``."""
    return shape.n_params_total if options.total else shape.n_params


def shapes_near(budget: float, n_params: float, low: float, high: float, options: Options) -> list[Shape]:
    """Shapes one can build for ``budget`` at depths from ``low`` to ``high``.

    Where widths come in large steps hardly any depth has a width that meets the budget, so the depths are those that
    the possible widths ask for, beside those of the ``lattice``; each with its nearest width. What lies within
    BUDGET_TOLERANCE is kept; where that is little, the nearest others too.

    budget: what is asked for; n_params: its part in the blocks.

    Raises:
        InputError: constraints that no net has.
    """
    if options.step(n_params) > WIDEST_STEP:
        asked = ", ".join(map(argument, ("width_multiple", "head_size", "kv_heads", "tensor_parallel")))
        raise InputError(
            f"{asked}: together they ask for widths that are multiples of {options.step(n_params):,}; "
            f"allowed: at most {WIDEST_STEP:,}"
        )
    depths = [*lattice(low, high, options.pipeline_parallel), *_depths_of_widths(budget, n_params, low, high, options)]
    found = {}
    for depth in sorted(set(depths)):
        try:
            shape = options.shape(depth, matched(depth, budget, options).width, n_params)
        except ValueError:  # at its own size the shape has another head size, which does not divide this width
            continue
        if not options.refusal(shape) and 1 / FARTHEST <= counted(shape, options) / budget <= FARTHEST:
            found[depth] = shape
    off = {depth: abs(counted(shape, options) / budget - 1) for depth, shape in found.items()}
    nearest = sorted(found, key=lambda depth: off[depth])
    meeting = sum(value <= BUDGET_TOLERANCE for value in off.values())
    return [found[depth] for depth in sorted(nearest[: max(meeting, FEWEST_ROWS)])]


def meets(shape: Shape, budget: float, options: Options) -> bool:
    return abs(counted(shape, options) / budget - 1) <= BUDGET_TOLERANCE


def _depths_of_widths(budget: float, n_params: float, low: float, high: float, options: Options) -> set[int]:
    """The depth at which each possible width comes nearest to the budget."""
    unit, step, block = options.pipeline_parallel, options.step(n_params), options.block(n_params)
    # a layer has c·d_x² weights, c nearly constant
    layer = block.shape(1, step).n_params / step**2
    ends = [math.sqrt(n_params / (layer * depth)) / step for depth in (high, low)]
    multiples = np.unique(np.linspace(max(1, math.floor(ends[0])), math.ceil(ends[1]), MOST_WIDTHS).round().astype(int))
    depths = set()
    for multiple in multiples:
        one, two = (counted(block.shape(depth, int(multiple) * step), options) for depth in (1, 2))
        depth = unit * round((1 + (budget - one) / (two - one)) / unit)
        if low <= depth <= high:
            depths.add(depth)
    return depths


def lattice(low: float, high: float, unit: int = 1) -> list[int]:
    """Multiples of ``unit`` from ``low`` to ``high``: all below 128 of it, every second below 256, every fourth below
    512, and so on, so that neighbours hardly differ in what they cost.

    A grid that hangs on neither end: whoever knows the ends less well compares the same shapes, but for the worst.
    """
    multiples = range(max(1, math.floor(low / unit)), max(1, math.ceil(high / unit)) + 1)
    return [multiple * unit for multiple in multiples if multiple % max(1, 1 << multiple.bit_length() >> 7) == 0]


def size_cost(shape_depth: float, n_params: float, source: Source, rough: bool = False) -> Cost | None:
    """What a depth costs at a size, against the best depth there, without its interval if ``rough``. None where the
    source says nothing of it."""
    if source.refuses(n_params) or source.law.depth(n_params)[0] is None:
        return None
    loss = source.loss(n_params)
    spoken = loss.depths(n_params)
    if not spoken[0] - 1e-9 <= shape_depth <= spoken[-1] + 1e-9:
        return None
    at = np.array([float(shape_depth)])
    nats = float(loss.penalties(n_params, at)[0])
    if rough:
        return Cost(nats, smaller_percent(loss, n_params, nats))
    low, high = (max(0.0, end) for end in loss.interval(loss.drawn(n_params, at)[:, 0]))
    return Cost(nats, smaller_percent(loss, n_params, nats), low, high)


def costed(
    shapes: Sequence[Shape],
    budget: float,
    n_params: float,
    source: Source,
    options: Options,
    all_meet: bool = False,
) -> list[Candidate]:
    """Every shape with its costs, each at its own true size: above the best depth of that size, and above the best of
    ``shapes`` at equal training FLOPs and at equal training time. Shapes that miss the budget are compared in the first
    only, unless all of them do, or with ``all_meet``. Without intervals: see ``bounded``.

    With r = FLOPs (or seconds) per token and parameter relative to the others', a shape that spends the same gets ln N
    smaller by ln r: loss + slope·ln r. Tokens are the same for all.
    """
    if not shapes:
        return []
    loss, device = source.loss(n_params), options.found_device
    slope = loss.slope(n_params)
    costs = [size_cost(shape.depth, shape.n_params, source, rough=True) for shape in shapes]
    nats = np.array([cost.nats if cost else np.nan for cost in costs])
    size = np.array([shape.n_params for shape in shapes], dtype=float)
    fits = np.array([meets(shape, budget, options) for shape in shapes])
    compared = np.isfinite(nats) & (fits | ~fits.any() | all_meet)

    def spending(each: Sequence[float]) -> list[Cost | None]:
        above = nats + slope * np.log(np.array(each) / size)
        if compared.any():
            above = above - above[compared].min()
        return [
            Cost(float(value), smaller_percent(loss, n_params, float(value))) if known else None
            for value, known in zip(above, compared, strict=True)
        ]

    flops = [training_flops_per_token(shape) for shape in shapes]
    seconds = [training_seconds(shape, device, options) for shape in shapes]
    at_flops, at_time = spending(flops), spending(seconds)
    return [
        Candidate(
            depth=shape.depth,
            width=shape.width,
            heads=shape.heads,
            head_size=shape.head_size,
            kv_heads=shape.kv_heads,
            mlp_hidden=shape.mlp_hidden,
            n_params=shape.n_params,
            n_params_total=shape.n_params_total,
            mismatch=counted(shape, options) / budget - 1,
            within_budget=bool(fits[i]),
            size=costs[i],
            flops=at_flops[i],
            time=at_time[i],
            flops_per_token=flops[i],
            training_seconds_per_token=seconds[i],
            decode_seconds_per_token=decode_bytes_per_token(shape, options.positions)
            / (BANDWIDTH_SHARE * device.bandwidth)
            + shape.depth * LAYER_SECONDS,
        )
        for i, shape in enumerate(shapes)
    ]


def bounded(candidate: Candidate, source: Source) -> Candidate:
    """With the interval of what it costs at its size, which takes longer to know than the cost."""
    return replace(candidate, size=size_cost(candidate.depth, candidate.n_params, source))


def best_of(candidates: Iterable[Candidate], constraint: str) -> Candidate | None:
    """The candidate of least cost under a constraint, of those within the budget; of those that tie with it, the one
    nearest to the budget."""
    known = [(cost.nats, c) for c in candidates if c.within_budget and (cost := c.cost(constraint)) is not None]
    least = min((nats for nats, _ in known), default=0.0)
    tied = [c for nats, c in known if nats <= least + TIE_NATS]
    return min(tied, key=lambda c: abs(c.mismatch), default=None)


def thinned(rows: Sequence[Candidate], kept: Iterable[Candidate | None]) -> tuple[Candidate, ...]:
    """At most MOST_ROWS rows, evenly spread, with those ``kept``."""
    if len(rows) <= MOST_ROWS:
        return tuple(rows)
    even = set(np.linspace(0, len(rows) - 1, MOST_ROWS).round().astype(int).tolist())
    named = {(row.depth, row.width) for row in kept if row}
    return tuple(row for k, row in enumerate(rows) if k in even or (row.depth, row.width) in named)


def training_seconds(shape: Shape, device: Device, options: Options) -> float:
    """Seconds per training token on one device: measured, or assumed."""
    flops = training_flops_per_token(shape)
    if options.calibration is not None:
        return flops / options.calibration.flops_per_second(shape)
    mfu = assumed_mfu(shape, device, tokens_per_step=TOKENS_PER_STEP, precision="bfloat16")
    return flops / (device.peak_flops * mfu)


def stretch(loss: LossModel, n_params: float, tolerance: float) -> tuple[float, float]:
    """(shallow, deep) ends of the depths within ``tolerance`` of the best loss, or of what the model can speak of."""
    depths = loss.depths(n_params)
    low, high = _ends(depths, loss.penalties(n_params, depths)[None], tolerance * loss.level(n_params))
    return float(low[0]), float(high[0])


def near_best(loss: LossModel, n_params: float, tolerance: float) -> NearBest:
    """Depths whose loss is within ``tolerance`` (0.001: 0.1 %) of the best loss, each end with its interval."""
    depths = loss.depths(n_params)
    nats = tolerance * loss.level(n_params)
    low, high = _ends(depths, loss.penalties(n_params, depths)[None], nats)
    drawn_low, drawn_high = _ends(depths, loss.drawn(n_params, depths), nats)

    def bounded(value: float) -> float | None:
        return None if value <= depths[0] * 1.000001 or value >= depths[-1] * 0.999999 else value

    def ends(values: np.ndarray) -> tuple[float | None, float | None]:
        first, last = loss.interval(values)
        return bounded(first), bounded(last)

    return NearBest(
        percent=100 * tolerance,
        nats=nats,
        less_compute=smaller_percent(loss, n_params, nats),
        depth_low=bounded(float(low[0])),
        depth_low_interval=ends(drawn_low),
        depth_high=bounded(float(high[0])),
        depth_high_interval=ends(drawn_high),
    )


def _ends(depths: np.ndarray, penalties: np.ndarray, nats: float) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) ends of the stretch around each row's least penalty where it is at most ``nats`` above it."""
    above = penalties - penalties.min(axis=1, keepdims=True) > nats
    best = penalties.argmin(axis=1)
    index = np.arange(len(depths))[None]
    low = np.where(above & (index < best[:, None]), index + 1, 0).max(axis=1)
    high = np.where(above & (index > best[:, None]), index - 1, len(depths) - 1).min(axis=1)
    return depths[low], depths[high]
