"""Costs of the shapes for a budget at equal size, training FLOPs, training time and decode latency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import lt

import numpy as np

from dwsweep.cost.arithmetic import decode_bytes_per_token, training_flops_per_token
from dwsweep.cost.duration import BANDWIDTH_SHARE
from dwsweep.guide.answers import BALANCED, CONSTRAINTS, Candidate, Cost, Risk
from dwsweep.guide.losses import LossAt
from dwsweep.guide.shapes import BUDGET_TOLERANCE, HEAD_SIZES, Options, matched, shapes_near
from dwsweep.guide.sources import Source
from dwsweep.guide.training import Training, training_seconds
from dwsweep.shapes import Shape

TIE_NATS, TIE_PERCENT = 1e-4, 0.1  # last digits of the table: costs that print alike tie
BYTES_PER_VALUE = 2  # while decoding
OF_SHAPE = ("depth", "width", "heads", "head_size", "kv_heads", "mlp_hidden", "n_params")
NEWTON_STEPS = 8
NEAR_BUDGET = 0.25  # ASSUMED: weight of the distance from the budget within its tolerance
FEWEST_ROWS, MOST_ROWS = 4, 9
SHOWN, PRICED = 0.1, 0.4  # shares of compute that depths may waste to be in the table, and to be compared
MARGIN = 1.1  # factor in depth beyond the likely best depths, up to which depths are compared


@dataclass(frozen=True)
class Budget:
    """Budget and the costs of its shapes. training: budget of training that ``n_params`` follows from, for
    ``options.tokens``."""

    n_params: float
    source: Source
    options: Options
    training: Training | None = None

    @cached_property
    def loss(self) -> LossAt:
        return self.source.loss(self.n_params)

    def holds(self, shape: Shape) -> bool:
        """Test that a shape is no larger, and takes no more training, than the budget allows."""
        if shape.n_params > (1 + BUDGET_TOLERANCE) * self.n_params:
            return False
        tokens = self.options.tokens
        return self.training is None or tokens is None or self.training.share(shape, tokens, self.options) <= 1.0

    @cached_property
    def shapes(self) -> list[Shape]:
        """Shapes at the depths that waste at most PRICED, and beyond if the best shape under a constraint
        lies at an end."""
        (low, high), spoken = self.loss.stretch(PRICED), self.loss.depths
        while True:
            every = shapes_near(self.n_params, low, high, self.options)
            shallowest, deepest = self._likely_best(every)
            down, up = low > spoken[0] and shallowest <= MARGIN * low, high < spoken[-1] and MARGIN * deepest >= high
            if not (down or up):
                return every
            low = max(float(spoken[0]), low / 2.0) if down else low
            high = min(float(spoken[-1]), 2.0 * high) if up else high

    def table(self, rows: Sequence[Candidate], kept: Iterable[Candidate | None]) -> tuple[Candidate, ...]:
        """Rows to show: candidates at depths that waste little, near the budget unless these are few, at most MOST_ROWS
        evenly spread, and those ``kept``."""
        low, high = self.loss.stretch(SHOWN)
        within = [row for row in rows if math.floor(low) <= row.depth <= math.ceil(high)]
        near = [row for row in within if is_near(row)]
        shown = near if len(near) >= FEWEST_ROWS else within
        even = np.linspace(0, len(shown) - 1, min(len(shown), MOST_ROWS)).round().astype(int).tolist()
        named = {(row.depth, row.width) for row in (*(shown[k] for k in even), *kept) if row}
        return tuple(row for row in rows if (row.depth, row.width) in named)

    def spent(self, shapes: Sequence[Shape]) -> tuple[np.ndarray, np.ndarray]:
        """Spending of shapes per token (3, K): FLOPs and seconds of training, seconds of decoding one sequence; and the
        nats (4, K) that each loses in addition to the cost of its depth, by constraint.

        A shape off the budget, S against B, pays slope·|ln(S/B)|, a quarter of that up to BUDGET_TOLERANCE. A shape of
        r times the FLOPs (or seconds) per token and parameter loses slope·ln r. At equal decode latency it grows by g
        in ln N until it is as slow as the net of the best depth: loss − slope·(ln S/N + g).
        """
        size, slope = np.array([shape.n_params for shape in shapes], dtype=float), self.loss.slope
        off = np.abs(np.log(size / self.n_params))
        lost = slope * (off - (1.0 - NEAR_BUDGET) * np.minimum(off, math.log1p(BUDGET_TOLERANCE)))
        flops = np.array([training_flops_per_token(shape) for shape in shapes])
        seconds = np.array([training_seconds(shape, self.options) for shape in shapes])
        parts = np.array([_decoding(shape, self.options) for shape in shapes])
        best = matched(max(1, round(self.loss.best)), self.n_params, self.options)
        measured = self.options.latency is not None
        grown = np.log(size / self.n_params) + _grown(parts, float(sum(_decoding(best, self.options))), measured)
        grows = [np.log(flops / size), np.log(seconds / size), -grown]
        beside = np.stack([lost, *(lost + slope * more for more in grows)])
        return np.stack([flops, seconds, parts.sum(axis=1)]), beside

    def _likely_best(self, shapes: Sequence[Shape]) -> tuple[float, float]:
        """Range of optimal depths over the constraints; (inf, 0) without shapes."""
        possible = [shape for shape in shapes if self.holds(shape)]
        if not possible:
            return math.inf, 0.0
        depths, sizes = _depths_sizes(possible)
        best = depths[(self.source.penalties(depths, sizes) + self.spent(possible)[1]).argmin(axis=1)]
        return float(best.min()), float(best.max())

    def candidates(self, more: Iterable[Shape] = ()) -> list[Candidate]:
        """Candidates: ``shapes`` and ``more`` with their costs, the loss of the depth at the shape's own size plus the
        price of its distance from the budget. Size: above the best depth of the budget. FLOPs, time, decode: above the
        best of the shapes at equal spending; none of a shape above the budget."""
        each_once = {(shape.depth, shape.width): shape for shape in (*self.shapes, *more)}
        shapes = [each_once[key] for key in sorted(each_once)]
        if not shapes:
            return []
        fits = np.array([self.holds(shape) for shape in shapes])
        spends, beside = self.spent(shapes)
        above = self.source.penalties(*_depths_sizes(shapes)) + beside
        if fits.any():
            above[1:] -= above[1:, fits].min(axis=1)[:, None]

        def costs(i: int) -> dict[str, Cost | None]:
            rows = zip(CONSTRAINTS, above[:, i].tolist(), strict=True)
            return {one: self.loss.cost(value) if one == "size" or fits[i] else None for one, value in rows}

        return [
            Candidate(
                **{name: getattr(shape, name) for name in OF_SHAPE},
                n_params_total=shape.n_params_total + round(self.options.idle * shape.depth * shape.width**2),
                mismatch=shape.n_params / self.n_params - 1,
                within_budget=bool(fits[i]),
                missing_nats=float(beside[0, i]),
                costs=costs(i),
                flops_per_token=float(spends[0, i]),
                training_seconds_per_token=float(spends[1, i]),
                decode_seconds_per_token=float(spends[2, i]),
            )
            for i, shape in enumerate(shapes)
        ]

    def risk(self, best: Candidate, criterion: str) -> Risk:
        """Regret of the best shape by a criterion, against the best shape of each draw: at equal size, and of the
        balanced shape, of its depth against all depths, else against all ``shapes`` within the budget."""
        if criterion in ("size", BALANCED):
            return self.loss.risk(best.depth)
        others = [shape for shape in self.shapes if self.holds(shape)]
        drawn = self.loss.drawn(_depths_sizes(others)[0]) + self.spent(others)[1][CONSTRAINTS.index(criterion)]
        at = [(shape.depth, shape.width) for shape in others].index((best.depth, best.width))
        return self.loss.regret(drawn[:, at] - drawn.min(axis=1))


def _depths_sizes(shapes: Sequence[Shape]) -> np.ndarray:
    return np.array([(shape.depth, shape.n_params) for shape in shapes], dtype=float).T


def _decoding(shape: Shape, options: Options) -> tuple[float, float, float]:
    """Seconds per decoded token of one sequence: block weights, other reads, launches per layer; as measured, or by the
    bytes that a token reads."""
    if (measured := options.latency) is not None:
        return measured.per_weight * shape.n_params, measured.any_net, measured.per_layer * shape.depth
    read, weights = decode_bytes_per_token(shape, options.positions), BYTES_PER_VALUE * shape.n_params
    rate = BANDWIDTH_SHARE * options.found_device.bandwidth
    return weights / rate, (read - weights) / rate, shape.depth * options.layer_seconds


def _grown(parts: np.ndarray, seconds: float, measured: bool) -> np.ndarray:
    """Growth (K,): ln of the factor in size at which each shape, scaled at its own ratio of width to depth, decodes in
    ``seconds``. Weights grow as N, depth as N^(1/3), the rest (cache, unembedding) as about N^(1/2), measured not."""
    powers = np.array([1.0, 0.0 if measured else 0.5, 1.0 / 3.0])
    grown = np.zeros(len(parts))
    for _ in range(NEWTON_STEPS):  # the logarithm of the sum is convex, its slope from 1/3 to 1
        terms = parts * np.exp(np.outer(grown, powers))
        whole = terms.sum(axis=1)
        grown = grown - np.log(whole / seconds) * whole / (terms @ powers)
    return grown


def best_of(candidates: Iterable[Candidate], criterion: str) -> Candidate | None:
    """Best candidate by a criterion: least cost within the budget; among ties that no other beats in all traded costs
    regular heads first, then the least sum of these, then the nearest to the budget."""

    def printed(cost: Cost) -> tuple[int, int]:
        return round(cost.less_compute / TIE_PERCENT), round(cost.nats / TIE_NATS)

    def rank(row: tuple[list[float], Candidate]) -> tuple[int, float, float]:
        traded, c = row
        return (c.head_size != HEAD_SIZES[0]) + c.heads % 2 + c.depth % 2, sum(traded), abs(c.mismatch)

    known = [(printed(cost), c) for c in candidates if c.within_budget and (cost := c.cost(criterion)) is not None]
    least = min((cost for cost, _ in known), default=None)
    tied = [([cost.less_compute for cost in c.traded], c) for cost, c in known if cost == least]
    unbeaten = [row for row in tied if not any(all(map(lt, other, row[0])) for other, _ in tied)]
    return min(unbeaten, key=rank)[1] if unbeaten else None


def is_near(candidate: Candidate) -> bool:
    """Test that a candidate's size equals the budget within BUDGET_TOLERANCE."""
    return abs(candidate.mismatch) <= BUDGET_TOLERANCE
