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
from dwsweep.guide.loss import LossModel, percent_of, smaller_percent
from dwsweep.guide.options import Options
from dwsweep.guide.rules import gpt3_depth
from dwsweep.shapes import Shape, match_width

LAYER_SECONDS = 20e-6  # ASSUMPTION: a layer's launches and waits while decoding one token, whatever its width
TOKENS_PER_STEP = 500_000  # of the assumed training step
BUDGET_TOLERANCE = 0.05  # how far a shape may lie above the budget; below it the missing size is priced
TIE_NATS, TIE_PERCENT = 1e-4, 0.1  # the last digits that the table prints: costs that look the same tie
LEAST_SHARE = 0.02  # of a budget of all parameters that must be left for the blocks
FREE_GRID = 0.05  # of a layer: the ends of the depths that cost next to nothing lie on a grid
FARTHEST = 2.0  # factor from the budget, beyond which a shape is not even compared
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
    the possible widths ask for, beside those of the ``lattice``. Each has the width that comes nearest to the budget
    without being more than BUDGET_TOLERANCE above it, or the narrowest that there is.

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
            step = options.block(n_params).width_step(options.step(n_params))
            if not within(shape, budget, options) and shape.width > step:
                shape = options.shape(depth, shape.width - step, n_params)
        except ValueError:  # at its own size the shape has another head size, which does not divide this width
            continue
        if not options.refusal(shape) and 1 / FARTHEST <= counted(shape, options) / budget <= FARTHEST:
            found[depth] = shape
    return [found[depth] for depth in sorted(found)]


def usual_shape(asked: float, size: float, options: Options) -> Shape | None:
    """The shape of GPT-3's table at this size, under the options; None where no width comes near the budget."""
    unit = options.pipeline_parallel
    depth = max(unit, round(gpt3_depth(size) / unit) * unit)
    try:
        shape = options.shape(depth, matched(depth, asked, options).width, size)
    except ValueError:
        return None
    near = abs(counted(shape, options) / asked - 1) <= BUDGET_TOLERANCE
    return shape if near and not options.refusal(shape) else None


def within(shape: Shape, budget: float, options: Options) -> bool:
    """Whether a shape is no larger than the budget allows."""
    return counted(shape, options) <= (1 + BUDGET_TOLERANCE) * budget


def missing(shape: Shape, budget: float, n_params: float, loss: LossModel, options: Options) -> float:
    """Nats that a shape below the budget loses for its missing size, S of the budget's B: level(N·min(1, S/B)) −
    level(N) of the loss of the best depth. A shape above the budget gets nothing for what it has more."""
    share = min(1.0, counted(shape, options) / budget)
    return max(0.0, loss.level(n_params * share) - loss.level(n_params))


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
    nats = _penalty(shape_depth, n_params, source)
    if nats is None:
        return None
    loss = source.loss(n_params)
    if rough:
        return Cost(nats, smaller_percent(loss, n_params, nats))
    drawn = loss.drawn(n_params, np.array([float(shape_depth)]))[:, 0]
    low, high = (max(0.0, end) for end in loss.interval(drawn))
    return Cost(nats, smaller_percent(loss, n_params, nats), low, high)


def _penalty(depth: float, n_params: float, source: Source) -> float | None:
    """Nats of a depth above the best one at a size; None where the source says nothing of it."""
    if source.refuses(n_params) or source.law.depth(n_params)[0] is None:
        return None
    loss = source.loss(n_params)
    spoken = loss.depths(n_params)
    if not spoken[0] - 1e-9 <= depth <= spoken[-1] + 1e-9:
        return None
    return float(loss.penalties(n_params, np.array([float(depth)]))[0])


def _beside(
    shapes: Sequence[Shape], lost: np.ndarray, loss: LossModel, n_params: float, options: Options
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nats that shapes lose beside those of their depth, by constraint (3, K), with what is ``lost`` by their sizes;
    FLOPs and seconds of training per token.

    With r = FLOPs (or seconds) per token and parameter relative to the others', a shape that spends the same gets ln N
    smaller by ln r: loss + slope·ln r. Tokens are the same for all.
    """
    size = np.array([shape.n_params for shape in shapes], dtype=float)
    flops = np.array([training_flops_per_token(shape) for shape in shapes])
    seconds = np.array([training_seconds(shape, options.found_device, options) for shape in shapes])
    slope = loss.slope(n_params)
    return np.stack([lost, lost + slope * np.log(flops / size), lost + slope * np.log(seconds / size)]), flops, seconds


def likely_best(
    shapes: Sequence[Shape], budget: float, n_params: float, loss: LossModel, options: Options
) -> tuple[float, float]:
    """The shallowest and the deepest of the best shapes under each constraint, were each depth to cost at its own size
    what it costs at ``n_params``; (inf, 0) without shapes."""
    possible = [shape for shape in shapes if within(shape, budget, options)]
    if not possible:
        return math.inf, 0.0
    lost = np.array([missing(shape, budget, n_params, loss, options) for shape in possible])
    depths = np.array([float(shape.depth) for shape in possible])
    nats = loss.penalties(n_params, depths) + _beside(possible, lost, loss, n_params, options)[0]
    best = depths[nats.argmin(axis=1)]
    return float(best.min()), float(best.max())


def costed(
    shapes: Sequence[Shape],
    budget: float,
    n_params: float,
    source: Source,
    options: Options,
    any_size: bool = False,
) -> list[Candidate]:
    """Shapes with their costs: what the depth loses at the shape's own size, and what the shape loses by being smaller
    than the budget (``missing``); above the best depth of the budget, and above the best of ``shapes`` at equal
    training FLOPs and at equal training time. Shapes above the budget are compared in the first only, unless all of
    them are. A shape off the budget is left out if it cannot be the best. Without intervals: see ``bounded``.

    any_size: shapes are compared as if each had its width to the last unit; no size is missing.
    """
    if not shapes:
        return []
    loss, device = source.loss(n_params), options.found_device
    slope = loss.slope(n_params)
    off = np.array([counted(shape, options) / budget - 1 for shape in shapes])
    lost = np.array([0.0 if any_size else missing(shape, budget, n_params, loss, options) for shape in shapes])
    fits = off <= BUDGET_TOLERANCE
    beside, flops, seconds = _beside(shapes, lost, loss, n_params, options)
    nats = np.full(len(shapes), np.nan)

    def learn(which: np.ndarray) -> None:
        for i in np.flatnonzero(which).tolist():
            found = _penalty(shapes[i].depth, shapes[i].n_params, source)
            nats[i] = np.nan if found is None else found

    near = (np.abs(off) <= max(BUDGET_TOLERANCE, np.sort(np.abs(off))[:FEWEST_ROWS][-1])) | any_size
    learn(near)
    known = near & fits & np.isfinite(nats)
    hopeful = ~near & fits
    if known.any():
        hopeful &= (beside <= (nats + beside)[:, known].min(axis=1)[:, None]).any(axis=0)
    learn(hopeful)
    compared = np.isfinite(nats) & (fits | ~fits.any() | any_size)
    above = nats + beside
    if compared.any():
        above[1:] -= above[1:, compared].min(axis=1)[:, None]

    def cost(constraint: int, i: int) -> Cost | None:
        value = float(above[constraint, i])
        said = compared[i] if constraint else np.isfinite(value)
        return Cost(value, percent_of(value, slope)) if said else None

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
            mismatch=float(off[i]),
            within_budget=bool(fits[i]),
            missing_nats=float(lost[i]),
            size=cost(0, i),
            flops=cost(1, i),
            time=cost(2, i),
            flops_per_token=float(flops[i]),
            training_seconds_per_token=float(seconds[i]),
            decode_seconds_per_token=decode_bytes_per_token(shape, options.positions)
            / (BANDWIDTH_SHARE * device.bandwidth)
            + shape.depth * LAYER_SECONDS,
        )
        for i, shape in enumerate(shapes)
        if near[i] or hopeful[i]
    ]


def bounded(candidate: Candidate, n_params: float, source: Source) -> Candidate:
    """With the interval of what it costs at equal size, which takes longer to know than the cost."""
    at_size = size_cost(candidate.depth, candidate.n_params, source)
    if candidate.size is None or at_size is None or at_size.nats_low is None or at_size.nats_high is None:
        return candidate
    low, high = (candidate.missing_nats + end for end in (at_size.nats_low, at_size.nats_high))
    return replace(candidate, size=replace(candidate.size, nats_low=low, nats_high=high))


def best_of(candidates: Iterable[Candidate], constraint: str) -> Candidate | None:
    """The candidate of least cost under a constraint, of those that are not above the budget; of those that tie with
    it, the one nearest to the budget."""
    known = [(cost, c) for c in candidates if c.within_budget and (cost := c.cost(constraint)) is not None]

    def order(row: tuple[Cost, Candidate]) -> tuple[int, int, float]:
        return round(row[0].less_compute / TIE_PERCENT), round(row[0].nats / TIE_NATS), abs(row[1].mismatch)

    return min(known, key=order)[1] if known else None


def thinned(rows: Sequence[Candidate], kept: Iterable[Candidate | None]) -> tuple[Candidate, ...]:
    """The rows that are near the budget, or the FEWEST_ROWS nearest to it; of these at most MOST_ROWS, evenly spread;
    and those ``kept``."""
    named = {(row.depth, row.width) for row in kept if row}
    near = sum(is_near(row) for row in rows)
    nearest = sorted(rows, key=lambda row: (not row.within_budget, abs(row.mismatch)))
    shown = sorted(nearest[: max(near, FEWEST_ROWS)], key=lambda row: row.depth)
    even = np.linspace(0, len(shown) - 1, min(len(shown), MOST_ROWS)).round().astype(int).tolist()
    named |= {(shown[k].depth, shown[k].width) for k in even}
    return tuple(row for row in rows if (row.depth, row.width) in named)


def is_near(candidate: Candidate) -> bool:
    """Whether its size is the budget's, but for BUDGET_TOLERANCE."""
    return abs(candidate.mismatch) <= BUDGET_TOLERANCE


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
