"""Shapes one can build at a size: true counts, hardware multiples, costs at equal size, FLOPs and time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dwsweep.cost.devices import Device, find, suggestion
from dwsweep.cost.duration import BANDWIDTH_SHARE, Calibration, assumed_mfu
from dwsweep.cost.flops import decode_bytes_per_token, training_flops_per_token
from dwsweep.errors import InputError
from dwsweep.guide.law_sources import Source
from dwsweep.guide.loss import LossModel, smaller_percent
from dwsweep.shapes import MLP_RATIOS, Block, HeadRule, Shape, match_width

LAYER_SECONDS = 20e-6  # ASSUMPTION: a layer's launches and waits while decoding one token, whatever its width
TOKENS_PER_STEP = 500_000  # of the assumed training step
BUDGET_TOLERANCE = 0.05  # a shape further than this from the budget answers another question
FEWEST_ROWS, MOST_ROWS = 4, 11
MOST_WIDTHS = 24  # tried, where their steps are small


@dataclass(frozen=True)
class Options:
    """What the shapes must satisfy, and how they are costed.

    width_multiple: of d_x; None: 128 from 1e9 parameters on, 64 from 1e8, else 8. head_size: None: 128 from 3e9 on,
    64 from 3e7, else two heads.
    tensor_parallel divides heads (and key/value heads), pipeline_parallel divides depth. total: the budget counts
    everything, embeddings included. context: positions in training and in the cache of a decoding step.
    """

    width_multiple: int | None = None
    head_size: int | None = None
    kv_heads: int | None = None
    mlp: str = "plain"
    mlp_ratio: float | None = None  # None: 4, or 8/3 if gated, which keeps 8·d_x² weights
    vocab_size: int = 50_257
    tied_embeddings: bool = False
    context: int = 2048
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    total: bool = False
    device: str = "H100"
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        sizes = (
            "width_multiple",
            "head_size",
            "kv_heads",
            "vocab_size",
            "context",
            "tensor_parallel",
            "pipeline_parallel",
        )
        wrong = [
            f"--{name.replace('_', '-')}: {getattr(self, name)}; must be at least 1 and at most 1e12"
            for name in sizes
            if getattr(self, name) is not None and not 1 <= getattr(self, name) <= 1e12
        ]
        if self.mlp not in ("plain", "gated"):
            wrong.append(f"--mlp: {self.mlp!r}; allowed: plain, gated")
        if self.mlp_ratio is not None and not MLP_RATIOS[0] <= self.mlp_ratio <= MLP_RATIOS[1]:
            wrong.append(f"--mlp-ratio: {self.mlp_ratio}; must be from {MLP_RATIOS[0]:g} to {MLP_RATIOS[1]:g}")
        if find(self.device) is None:
            wrong.append(f"--device: {self.device!r} is not in the table; allowed: {suggestion(self.device)}")
        kv, tensor = self.kv_heads, self.tensor_parallel
        if not wrong and kv is not None and kv % tensor and tensor % kv:
            wrong.append(f"--kv-heads: {kv}; must divide --tensor-parallel {tensor}, or be a multiple of it")
        if wrong:
            raise InputError(*wrong)

    @property
    def found_device(self) -> Device:
        device = find(self.device)
        assert device is not None
        return device

    def head(self, n_params: float) -> int | None:
        """Head size at this size; None: two heads, as in the published sweep."""
        if self.head_size is not None:
            return self.head_size
        return 128 if n_params >= 3e9 else 64 if n_params >= 3e7 else None

    def step(self, n_params: float) -> int:
        """The multiple of widths that satisfies everything asked for."""
        head = self.head(n_params)
        default = 128 if n_params >= 1e9 else 64 if n_params >= 1e8 else 8
        heads = math.lcm(self.tensor_parallel, self.kv_heads or 1)
        return math.lcm(self.width_multiple or default, (head or 2) * heads if head else math.lcm(2, heads))

    def shape(self, depth: int, width: int, n_params: float | None = None) -> Shape:
        """The shape with these options, for a net of about ``n_params`` (default: 12·L·d_x² of the shape itself).

        With key/value heads the count depends on the head size, which is then always that of the shape's own size, so
        that one shape has one count whatever it was found for.

        Raises:
            ValueError: heads that do not fit the width.
        """
        own = 12.0 * depth * width**2
        return self.block(own if n_params is None or self.kv_heads is not None else n_params).shape(depth, width)

    def block(self, n_params: float) -> Block:
        head = self.head(n_params)
        ratio = self.mlp_ratio or (8 / 3 if self.mlp == "gated" else 4.0)
        rule = HeadRule(size=head) if head else HeadRule(count=math.lcm(2, self.tensor_parallel, self.kv_heads or 1))
        return Block(
            rule,
            self.vocab_size,
            self.context,
            mlp_ratio=ratio,
            kv_heads=self.kv_heads,
            mlp=self.mlp,
            positions="rotary" if head and head % 2 == 0 else "sinusoidal",
            tied_embeddings=self.tied_embeddings,
            biases=False,
        )


def matched(depth: int, n_params: float, options: Options) -> Shape:
    """The shape of this depth nearest to the budget: by its block weights, or by all its parameters with ``total``."""
    block, step = options.block(n_params), options.step(n_params)
    if not options.total:
        return match_width(depth, n_params, block, step)
    low, high = 1, 2
    while block.shape(depth, high * step).n_params_total < n_params:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if block.shape(depth, middle * step).n_params_total < n_params:
            low = middle
        else:
            high = middle
    return min((block.shape(depth, k * step) for k in (low, high)), key=lambda s: abs(s.n_params_total - n_params))


def block_params(n_params: float, options: Options, optimal_depth: Any) -> float:
    """Non-embedding parameters of a budget: itself, or with ``total`` what embeddings leave of it at the best depth.

    Fixed point of N = budget − embeddings(d(N)), d = √(N/12L*(N)).

    Raises:
        InputError: the embeddings alone are larger than the budget.
    """
    if not options.total:
        return n_params
    tables = 1 if options.tied_embeddings else 2
    found = n_params
    for _ in range(200):
        depth = optimal_depth(found)
        if depth is None:
            return found
        left = n_params - tables * options.vocab_size * math.sqrt(found / (12 * depth))
        if left <= 0.02 * n_params:
            raise InputError(
                f"--params: {n_params:g}; embeddings of a vocabulary of {options.vocab_size:,} leave nothing for the "
                "blocks; allowed: more parameters, a smaller --vocab-size, or the non-embedding count"
            )
        if abs(left - found) < 1e-9 * found:
            break
        found = (left + found) / 2
    return found


def counted(shape: Shape, options: Options) -> int:
    """The count that the budget is of: the weights of the blocks, or all parameters with ``total``."""
    return shape.n_params_total if options.total else shape.n_params


def shapes_near(budget: float, n_params: float, best: float, low: float, high: float, options: Options) -> list[Shape]:
    """Shapes one can build for ``budget`` at depths from ``low`` to ``high``.

    Where widths come in large steps hardly any depth has a width that meets the budget, so the depths are those that
    the possible widths ask for, beside an even spread and those on both sides of the ``best``; each with its nearest
    width. What lies within BUDGET_TOLERANCE is kept; where that is little, the nearest others too.

    budget: what is asked for; n_params: its part in the blocks.
    """
    depths = [*pick_depths(best, low, high, options), *_depths_of_widths(budget, n_params, low, high, options)]
    found = {}
    for depth in sorted(set(depths)):
        try:
            shape = options.shape(depth, matched(depth, budget, options).width, n_params)
        except ValueError:  # at its own size the shape has another head size, which does not divide this width
            continue
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


def pick_depths(best: float, low: float, high: float, options: Options, count: int = 9) -> list[int]:
    """Integer depths: spread by ratio over (low, high), with those on both sides of the best one."""
    unit = options.pipeline_parallel
    spread = np.geomspace(max(low, 1.0), max(high, low * 1.01, 1.0), count)
    around = [math.floor(best / unit) * unit, math.ceil(best / unit) * unit]
    depths = {max(unit, round(float(depth) / unit) * unit) for depth in spread} | {max(unit, d) for d in around}
    return sorted(depths)


def shape_cost(shape_depth: float, n_params: float, source: Source) -> dict[str, Any] | None:
    """What a depth costs at a size: nats above the best depth there, with their interval, and how much smaller a
    best-shaped model would be as good. None where the source says nothing of it."""
    if source.refuses(n_params) or source.law.depth(n_params)[0] is None:
        return None
    loss = source.loss(n_params)
    spoken = loss.depths(n_params)
    if not spoken[0] - 1e-9 <= shape_depth <= spoken[-1] + 1e-9:
        return None
    at = np.array([float(shape_depth)])
    nats = float(loss.penalties(n_params, at)[0])
    return {
        "nats": nats,
        "nats_interval": [max(0.0, end) for end in loss.interval(loss.drawn(n_params, at)[:, 0])],
        "percent_smaller": smaller_percent(loss, n_params, nats),
        "loss_tag": loss.tag,
    }


def costed(
    shapes: list[Shape], budget: float, n_params: float, source: Source, options: Options
) -> list[dict[str, Any]]:
    """One row per shape, every cost at the shape's own true size: nats above the best depth of that size, and above the
    best of ``shapes`` at equal training FLOPs and at equal training time. Shapes that miss the budget are compared in
    the first only, unless all of them do.

    With r = FLOPs (or seconds) per token and parameter relative to the others', a shape that spends the same gets ln N
    smaller by ln r: loss + slope·ln r. Tokens are the same for all.
    """
    slope, device = source.loss(n_params).slope(n_params), options.found_device
    costs = [shape_cost(shape.depth, shape.n_params, source) for shape in shapes]
    nats = np.array([cost["nats"] if cost else np.nan for cost in costs])
    size = np.array([shape.n_params for shape in shapes], dtype=float)
    at_flops = nats + slope * np.log(np.array([training_flops_per_token(shape) for shape in shapes]) / size)
    at_time = nats + slope * np.log(np.array([_seconds(shape, device, options) for shape in shapes]) / size)
    fits = np.array([meets(shape, budget, options) for shape in shapes])
    compared = np.isfinite(nats) & (fits | ~fits.any())
    if compared.any():
        at_flops, at_time = at_flops - at_flops[compared].min(), at_time - at_time[compared].min()
    rows = []
    for i, (shape, cost) in enumerate(zip(shapes, costs, strict=True)):
        decode = decode_bytes_per_token(shape, options.context) / (BANDWIDTH_SHARE * device.bandwidth)
        rows.append(
            {
                "depth": shape.depth,
                "width": shape.width,
                "heads": shape.heads,
                "head_size": shape.head_size,
                "kv_heads": shape.kv_heads,
                "mlp_hidden": shape.mlp_hidden,
                "n_params": shape.n_params,
                "n_params_total": shape.n_params_total,
                "mismatch": counted(shape, options) / budget - 1,
                "within_budget": bool(fits[i]),
                "nats_equal_size": cost["nats"] if cost else None,
                "percent_smaller": cost["percent_smaller"] if cost else None,
                "nats_equal_flops": float(at_flops[i]) if compared[i] else None,
                "nats_equal_time": float(at_time[i]) if compared[i] else None,
                "flops_per_token": training_flops_per_token(shape),
                "training_seconds_per_token": _seconds(shape, device, options),
                "decode_seconds_per_token": decode + shape.depth * LAYER_SECONDS,
            }
        )
    return rows


def thinned(rows: list[dict[str, Any]], kept: Iterable[tuple[int, int]]) -> list[dict[str, Any]]:
    """At most MOST_ROWS rows, evenly spread, with those of the shapes ``kept``."""
    if len(rows) <= MOST_ROWS:
        return rows
    even = set(np.linspace(0, len(rows) - 1, MOST_ROWS).round().astype(int).tolist())
    named = set(kept)
    return [row for k, row in enumerate(rows) if k in even or (row["depth"], row["width"]) in named]


def _seconds(shape: Shape, device: Device, options: Options) -> float:
    """Seconds per training token on one device: measured, or assumed."""
    flops = training_flops_per_token(shape)
    if options.calibration is not None:
        return flops / options.calibration.flops_per_second(shape)
    mfu = assumed_mfu(shape, device, tokens_per_step=TOKENS_PER_STEP, precision="bfloat16")
    return flops / (device.peak_flops * mfu)


def near_optimal(loss: LossModel, n_params: float, tolerance: float) -> dict[str, Any]:
    """Depths whose loss is within ``tolerance`` (0.001: 0.1 %) of the best loss, each end with its interval.

    An end that lies beyond the depths that the loss model can speak of is None.
    """
    depths = loss.depths(n_params)
    nats = tolerance * loss.level(n_params)
    low, high = _ends(depths, loss.penalties(n_params, depths)[None], nats)
    drawn_low, drawn_high = _ends(depths, loss.drawn(n_params, depths), nats)

    def bounded(value: float) -> float | None:
        return None if value <= depths[0] * 1.000001 or value >= depths[-1] * 0.999999 else value

    return {
        "percent": 100 * tolerance,
        "nats": nats,
        "depth_low": bounded(float(low[0])),
        "depth_low_interval": [bounded(value) for value in loss.interval(drawn_low)],
        "depth_high": bounded(float(high[0])),
        "depth_high_interval": [bounded(value) for value in loss.interval(drawn_high)],
    }


def _ends(depths: np.ndarray, penalties: np.ndarray, nats: float) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) ends of the stretch around each row's least penalty where it is at most ``nats`` above it."""
    above = penalties - penalties.min(axis=1, keepdims=True) > nats
    best = penalties.argmin(axis=1)
    index = np.arange(len(depths))[None]
    low = np.where(above & (index < best[:, None]), index + 1, 0).max(axis=1)
    high = np.where(above & (index > best[:, None]), index - 1, len(depths) - 1).min(axis=1)
    return depths[low], depths[high]
