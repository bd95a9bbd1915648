"""Costs of the shapes for a budget at equal size, training FLOPs, training time and decode latency."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dwsweep.cost.arithmetic import decode_bytes_per_token, training_flops_per_token
from dwsweep.cost.duration import BANDWIDTH_SHARE, assumed_mfu
from dwsweep.guide.answers import CONSTRAINTS, Candidate, Cost, Risk
from dwsweep.guide.losses import LawLoss, LossAt
from dwsweep.guide.shapes import BUDGET_TOLERANCE, Options, counted, matched, shapes_near
from dwsweep.guide.sources import Source, regret
from dwsweep.shapes import Shape

LAYER_SECONDS = 20e-6  # ASSUMPTION: launches and waits per layer and decoded token, at any width
TOKENS_PER_STEP = 500_000  # tokens of the assumed training step
TIE_NATS, TIE_PERCENT = 1e-4, 0.1  # last digits of the table: costs that print alike tie
BYTES_PER_VALUE = 2  # while decoding
NEWTON_STEPS = 8
NEAR_BUDGET = 0.25  # ASSUMED: weight of the distance from the budget within its tolerance
ANOTHER_SIZE = 1.5
FEWEST_ROWS, MOST_ROWS = 4, 11
SPANS = (0.05, 0.1, 0.2, 0.4)  # shares of compute: candidates span the depths that waste at most one of them
MARGIN = 1.1  # factor in depth beyond the likely best depths, up to which depths are compared


@dataclass(frozen=True)
class Spent:
    """Spending of shapes per token. flops, seconds: of training, (K,); decode: seconds of one sequence, (K,). beside:
    (4, K) nats lost in addition to the cost of the depth, by constraint."""

    flops: np.ndarray
    seconds: np.ndarray
    decode: np.ndarray
    beside: np.ndarray


@dataclass(frozen=True)
class Budget:
    """Budget and the costs of its shapes. asked: the budget in the count of ``options``.

    n_params: the budget's part in the blocks. source: source of the answer at that size.
    """

    asked: float
    n_params: float
    source: Source
    options: Options

    @cached_property
    def loss(self) -> LossAt:
        return self.source.loss(self.n_params)

    def holds(self, shape: Shape) -> bool:
        """Test that a shape is no larger than the budget allows."""
        return counted(shape, self.options) <= (1 + BUDGET_TOLERANCE) * self.asked

    def missing(self, shape: Shape) -> float:
        """Price in nats of a shape's distance from the budget, S against B, on either side: slope·|ln(S/B)|, a quarter
        of that up to BUDGET_TOLERANCE. A smaller shape has a higher loss, a larger one spends more; no budget is
        exact."""
        off = abs(math.log(counted(shape, self.options) / self.asked))
        return self.loss.slope * (off - (1.0 - NEAR_BUDGET) * min(off, math.log1p(BUDGET_TOLERANCE)))

    def share(self, shape: Shape) -> float:
        """Price in nats of the share of a shape's parameters that lies in its blocks, if the budget counts all: at an
        equal count a deeper net is narrower, its embeddings are smaller, and its blocks larger. Below zero with a
        larger share than a net of the best depth."""
        if not self.options.total:
            return 0.0
        return self.loss.slope * math.log(self.n_params / self.asked * shape.n_params_total / shape.n_params)

    @cached_property
    def shapes(self) -> list[Shape]:
        """Shapes at the depths that waste at most the last of SPANS, and beyond if the best shape under a constraint
        lies at an end."""
        (low, high), spoken = self.loss.stretch(SPANS[-1]), self.loss.depths
        while True:
            every = shapes_near(self.asked, low, high, self.options)
            shallowest, deepest = self._likely_best(every)
            down, up = low > spoken[0] and shallowest <= MARGIN * low, high < spoken[-1] and MARGIN * deepest >= high
            if not (down or up):
                return every
            low = max(float(spoken[0]), low / 2.0) if down else low
            high = min(float(spoken[-1]), 2.0 * high) if up else high

    def candidates(self, more: Shape | None) -> list[Candidate]:
        """Candidates of ``shapes``, and one ``more``, with their costs: shapes at nearly the best depth; more depths if
        the constraints leave hardly a shape, or if the best shape under another constraint lies beyond."""
        found = list[Candidate]()
        shallowest, deepest = self._likely_best(self.shapes)
        for tolerance in SPANS:
            low, high = self.loss.stretch(tolerance)
            low, high = math.floor(min(low, shallowest / MARGIN)), math.ceil(max(high, MARGIN * deepest))
            found = self.costed(with_one((shape for shape in self.shapes if low <= shape.depth <= high), more))
            if sum(map(is_near, found)) >= FEWEST_ROWS:
                break
        return found

    def spent(self, shapes: Sequence[Shape], any_size: bool = False) -> Spent:
        """Spending of shapes, and its worth in nats; distances from the budget are zero with ``any_size``.

        Let r be FLOPs (or seconds) per token and parameter relative to the others. A shape of equal spending gets
        ln N smaller by ln r: loss + slope·ln r. Tokens are the same for all. At equal decode latency ln N grows by what
        makes the shape, at its own ratio of width to depth, as slow as the net of the best depth. Where the budget
        counts all parameters, equal size and latency hold the ``share`` of the blocks too; at equal spending each shape
        has a size of its own.
        """
        lost = np.array([0.0 if any_size else self.missing(shape) for shape in shapes])
        size = np.array([shape.n_params for shape in shapes], dtype=float)
        flops = np.array([training_flops_per_token(shape) for shape in shapes])
        seconds = np.array([training_seconds(shape, self.options) for shape in shapes])
        parts = np.array([_decoding(shape, self.options) for shape in shapes])
        best = matched(max(1, round(self.loss.best)), self.n_params, self.options)
        grown = _grown(parts, float(sum(_decoding(best, self.options))))
        grows = [np.log(flops / size), np.log(seconds / size), -grown]
        beside = np.stack([lost, *(lost + self.loss.slope * more for more in grows)])
        if not any_size:
            beside[[0, 3]] += np.array([self.share(shape) for shape in shapes])
        return Spent(flops, seconds, parts.sum(axis=1), beside)

    def _likely_best(self, shapes: Sequence[Shape]) -> tuple[float, float]:
        """Range of optimal depths over the constraints, with the cost of a depth at the budget's size, except for sizes
        ANOTHER_SIZE times apart; (inf, 0) without shapes."""
        possible = [shape for shape in shapes if self.holds(shape)]
        if not possible:
            return math.inf, 0.0
        depths = np.array([float(shape.depth) for shape in possible])
        penalties = self.loss.penalties(depths)
        for k, shape in enumerate(possible):  # embeddings within a total budget may change the size of the blocks
            if abs(math.log(shape.n_params / self.n_params)) > math.log(ANOTHER_SIZE):
                penalties[k] = self.source.loss(float(shape.n_params)).penalties(depths[k : k + 1])[0]
        best = depths[(penalties + self.spent(possible).beside).argmin(axis=1)]
        return float(best.min()), float(best.max())

    def costed(self, shapes: Sequence[Shape], any_size: bool = False) -> list[Candidate]:
        """Candidates: shapes with their costs, the loss of the depth at the shape's own size plus the price of its
        distance from the budget (``missing``). Size: above the best depth of the budget, or, where the budget counts
        all parameters, above the best of ``shapes``. FLOPs, time, decode: above the
        best of ``shapes`` at equal spending. Shapes above the budget have a size cost only, unless all are above. A
        shape off the budget is left out if it cannot be the best. Costs have no intervals yet: see ``bounded``.

        any_size: compares shapes as if widths were continuous; none is off the budget.
        """
        if not shapes:
            return []
        off = np.array([counted(shape, self.options) / self.asked - 1 for shape in shapes])
        fits = off <= BUDGET_TOLERANCE
        spends = self.spent(shapes, any_size)
        beside = spends.beside
        nats = np.full(len(shapes), np.nan)

        def learn(which: np.ndarray) -> None:
            for i in np.flatnonzero(which).tolist():
                found = self.source.penalty(shapes[i].depth, shapes[i].n_params)
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
        first = 0 if self.options.total and not any_size else 1
        if compared.any():
            least = above[first:, compared].min(axis=1)[:, None]
            above[first:] -= least
            beside[:1] -= least[:1] if first == 0 else 0.0

        def costs(i: int) -> dict[str, Cost | None]:
            said = (np.isfinite(above[0, i]), *[compared[i]] * 3)
            rows = zip(CONSTRAINTS, above[:, i].tolist(), said, strict=True)
            return {constraint: self.loss.cost(value) if known else None for constraint, value, known in rows}

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
                missing_nats=float(beside[0, i]),
                **costs(i),
                flops_per_token=float(spends.flops[i]),
                training_seconds_per_token=float(spends.seconds[i]),
                decode_seconds_per_token=float(spends.decode[i]),
            )
            for i, shape in enumerate(shapes)
            if near[i] or hopeful[i]
        ]

    def bounded(self, candidate: Candidate) -> Candidate:
        """Add the confidence interval of the size cost (slower to compute than the cost itself)."""
        at_size = self.source.cost(candidate.depth, candidate.n_params)
        if candidate.size is None or at_size is None or at_size.nats_low is None or at_size.nats_high is None:
            return candidate
        low, high = (max(0.0, candidate.missing_nats + end) for end in (at_size.nats_low, at_size.nats_high))
        return replace(candidate, size=replace(candidate.size, nats_low=low, nats_high=high))

    def risks(self, bests: Mapping[str, Candidate | None]) -> dict[str, Risk]:
        """Risks: regret of the best shape under each constraint, against the best shape of each draw; at equal size, of
        its depth against all depths, else (and where the budget counts all parameters) against all ``shapes`` within
        the budget."""
        named = [best for best in bests.values() if best and best.size]
        if isinstance(self.loss, LawLoss) or not named:  # a law taken as true has no regret
            return {}
        mine = [self.options.shape(best.depth, best.width) for best in named]
        others = [shape for shape in with_one([*self.shapes, *mine], None) if self.holds(shape)]
        rows = self.loss.drawn(np.array([float(shape.depth) for shape in others]))
        places = {(shape.depth, shape.width): k for k, shape in enumerate(others)}
        found = dict[str, Risk]()
        for constraint, more in zip(CONSTRAINTS, self.spent(others).beside, strict=True):
            best = bests[constraint]
            if best is None or (at := places.get((best.depth, best.width))) is None:
                continue
            drawn = rows + more
            of_depth = constraint == "size" and not self.options.total
            lost = rows[:, at] if of_depth else drawn[:, at] - drawn.min(axis=1)
            expected, worst = regret(lost)
            found[constraint] = Risk(self.loss.cost(expected), self.loss.cost(worst))
        return found


def with_one(shapes: Iterable[Shape], more: Shape | None) -> list[Shape]:
    """Shapes and one more, each once, by depth."""
    found = {(shape.depth, shape.width): shape for shape in [*shapes, *([more] if more else [])]}
    return [found[key] for key in sorted(found)]


def _decoding(shape: Shape, options: Options) -> tuple[float, float, float]:
    """Decode seconds per token of one sequence: for the weights of the blocks, the other reads, and the layers."""
    read = decode_bytes_per_token(shape, options.positions)
    rate = BANDWIDTH_SHARE * options.found_device.bandwidth
    weights = read * shape.n_params / (read / BYTES_PER_VALUE)  # bytes of the weights of the blocks
    return weights / rate, (read - weights) / rate, shape.depth * LAYER_SECONDS


def _grown(parts: np.ndarray, seconds: float) -> np.ndarray:
    """Growth (K,): ln of the factor in size at which each shape, scaled at its own ratio of width to depth, decodes in
    ``seconds``.

    Weights grow as N, depth as N^(1/3), the rest (cache and unembedding) as N^(2/3) and N^(1/3), taken as N^(1/2).
    """
    grown = np.zeros(len(parts))
    powers = np.array([1.0, 0.5, 1.0 / 3.0])
    for _ in range(NEWTON_STEPS):  # the logarithm of the sum is convex, its slope from 1/3 to 1
        terms = parts * np.exp(np.outer(grown, powers))
        whole = terms.sum(axis=1)
        grown = grown - np.log(whole / seconds) * whole / (terms @ powers)
    return grown


def best_of(candidates: Iterable[Candidate], constraint: str) -> Candidate | None:
    """Best candidate under a constraint: least cost within the budget; among ties, nearest to the budget."""
    known = [(cost, c) for c in candidates if c.within_budget and (cost := c.cost(constraint)) is not None]

    def order(row: tuple[Cost, Candidate]) -> tuple[int, int, float]:
        return round(row[0].less_compute / TIE_PERCENT), round(row[0].nats / TIE_NATS), abs(row[1].mismatch)

    return min(known, key=order)[1] if known else None


def thinned(rows: Sequence[Candidate], kept: Iterable[Candidate | None]) -> tuple[Candidate, ...]:
    """Rows of a table: candidates near the budget, at least FEWEST_ROWS, at most MOST_ROWS evenly spread, and those
    ``kept``."""
    named = {(row.depth, row.width) for row in kept if row}
    near = sum(is_near(row) for row in rows)
    nearest = sorted(rows, key=lambda row: (not row.within_budget, abs(row.mismatch)))
    shown = sorted(nearest[: max(near, FEWEST_ROWS)], key=lambda row: row.depth)
    even = np.linspace(0, len(shown) - 1, min(len(shown), MOST_ROWS)).round().astype(int).tolist()
    named |= {(shown[k].depth, shown[k].width) for k in even}
    return tuple(row for row in rows if (row.depth, row.width) in named)


def is_near(candidate: Candidate) -> bool:
    """Test that a candidate's size equals the budget within BUDGET_TOLERANCE."""
    return abs(candidate.mismatch) <= BUDGET_TOLERANCE


def training_seconds(shape: Shape, options: Options) -> float:
    """Training seconds per token on one device: measured, or assumed."""
    flops = training_flops_per_token(shape)
    if options.calibration is not None:
        return flops / options.calibration.flops_per_second(shape)
    # fused attention, usual at these sizes; otherwise heads of 64 would seem a third slower than heads of 128
    device = options.found_device
    mfu = assumed_mfu(shape, device, tokens_per_step=TOKENS_PER_STEP, precision="bfloat16", fused=True)
    return flops / (device.peak_flops * mfu)
