"""Shapes one can build at a size: true counts, hardware multiples, costs at equal size, FLOPs and time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dwsweep.cost.devices import Device, find, suggestion
from dwsweep.cost.duration import BANDWIDTH_SHARE, Calibration, assumed_mfu
from dwsweep.cost.flops import decode_bytes_per_token, training_flops_per_token
from dwsweep.errors import InputError
from dwsweep.guide.loss import LossModel, smaller_percent
from dwsweep.shapes import MLP_RATIOS, Block, HeadRule, Shape, match_width

LAYER_SECONDS = 20e-6  # ASSUMPTION: a layer's launches and waits while decoding one token, whatever its width
TOKENS_PER_STEP = 500_000  # of the assumed training step


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


def pick_depths(best: float, low: float, high: float, options: Options, count: int = 9) -> list[int]:
    """Integer depths to show: spread by ratio over (low, high), with those on both sides of the best one."""
    unit = options.pipeline_parallel
    spread = np.geomspace(max(low, 1.0), max(high, low * 1.01, 1.0), count)
    around = [math.floor(best / unit) * unit, math.ceil(best / unit) * unit]
    depths = {max(unit, round(float(depth) / unit) * unit) for depth in spread} | {max(unit, d) for d in around}
    return sorted(depths)


def costed(shapes: list[Shape], n_params: float, loss: LossModel, options: Options) -> list[dict[str, Any]]:
    """One row a shape: nats above the best of them at equal size, at equal training FLOPs and at equal training time.

    With r = FLOPs (or seconds) a token relative to the others', a shape that spends the same gets ln N smaller by ln r:
    loss + slope·ln r. Tokens are the same for all. r is that of the exact size, without the rounding of the width.
    """
    slope, device = loss.slope(n_params), options.found_device
    depths = np.array([shape.depth for shape in shapes], dtype=float)
    spoken = loss.depths(n_params)
    inside = (depths >= spoken[0] - 1e-9) & (depths <= spoken[-1] + 1e-9)
    penalty = np.where(inside, loss.penalties(n_params, depths), np.nan)
    exact = [_exact(shape, n_params, options) for shape in shapes]
    at_flops = penalty + slope * np.log([training_flops_per_token(shape) for shape in exact])
    at_time = penalty + slope * np.log([_seconds(shape, device, options) for shape in exact])
    rows = []
    for i, shape in enumerate(shapes):
        decode = decode_bytes_per_token(shape, options.context) / (BANDWIDTH_SHARE * device.bandwidth)
        known = bool(inside[i])
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
                "mismatch": shape.n_params / n_params - 1,
                "nats_equal_size": float(penalty[i]) if known else None,
                "percent_smaller": smaller_percent(loss, n_params, float(penalty[i])) if known else None,
                "nats_equal_flops": float(at_flops[i] - np.nanmin(at_flops)) if known else None,
                "nats_equal_time": float(at_time[i] - np.nanmin(at_time)) if known else None,
                "flops_per_token": training_flops_per_token(shape),
                "training_seconds_per_token": _seconds(shape, device, options),
                "decode_seconds_per_token": decode + shape.depth * LAYER_SECONDS,
            }
        )
    return rows


def _exact(shape: Shape, n_params: float, options: Options) -> Shape:
    """The same depth at a width that is rounded as little as can be: with one key/value head and its query heads."""
    heads = shape.heads // shape.kv_heads
    rule = HeadRule(count=heads)
    block = replace(options.block(n_params), head_rule=rule, kv_heads=1, positions="sinusoidal")
    return match_width(shape.depth, n_params, block, heads)


def _seconds(shape: Shape, device: Device, options: Options) -> float:
    """Seconds a training token on one device: measured, or assumed."""
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
