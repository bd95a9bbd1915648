"""Shapes one can build at a size: true counts, hardware multiples, costs at equal size, FLOPs and time.

What the shapes of a guide must satisfy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from dwsweep.cost.arithmetic import decode_bytes_per_token, training_flops_per_token
from dwsweep.cost.devices import Device, find, suggestion
from dwsweep.cost.duration import BANDWIDTH_SHARE, Calibration, assumed_mfu
from dwsweep.errors import InputError, argument
from dwsweep.guide.answers import CONSTRAINTS, Candidate, Cost, NearBest
from dwsweep.guide.rules import gpt3_depth
from dwsweep.guide.sources import LossModel, Source, percent_of, smaller_percent
from dwsweep.records.fit import LARGEST_SIZE, TrainedNets
from dwsweep.shapes import MLP_RATIOS, Block, HeadRule, Shape

LAYER_SECONDS = 20e-6  # ASSUMPTION: a layer's launches and waits while decoding one token, whatever its width
TOKENS_PER_STEP = 500_000  # of the assumed training step
BUDGET_TOLERANCE = 0.05  # how far a shape may lie above the budget; below it the missing size is priced
TIE_NATS, TIE_PERCENT = 1e-4, 0.1  # the last digits that the table prints: costs that look the same tie
LEAST_SHARE = 0.02  # of a budget of all parameters that must be left for the blocks
FREE_GRID = 0.05  # of a layer: the ends of the depths that cost next to nothing lie on a grid
SMALL = 3e7  # 12·L·d_x², below which nets have two heads, as in the published sweep
MIDDLE, WIDE = 512, 2048  # widths, from which on they are multiples of 64 and of 128
HEAD_SIZES = (128, 96, 64)  # that are built, the first that fits; the last first below MIDDLE
WIDEST = 1 << 20  # of the widths that are compared
INNER_OFF = 1.5  # factor by which multiples may move the inner width
APART = 4.0  # factor from heads × head size to the width
SPARSE = 2.0  # factor between neighbouring widths, from which on counts of heads need not be round
BYTES_PER_VALUE = 2  # while decoding
NEWTON_STEPS = 8
ANOTHER_SIZE = 1.5
FARTHEST = 2.0  # factor from the budget, beyond which a shape is not even compared
MOST_DEVICES = 1_000_000
FEWEST_ROWS, MOST_ROWS = 4, 11
OF_WIDTHS = ("width_multiple", "heads", "head_size", "kv_heads", "mlp_ratio", "mlp_multiple", "tensor_parallel")


def matched(depth: int, n_params: float, options: Options) -> Shape:
    """The shape of this depth that one can build and that is nearest to the budget: by its block weights, or by all its
    parameters with ``total``."""
    widths, counts = options.widths.counts(depth)
    return options.shape(depth, int(widths[np.abs(counts - n_params).argmin()]))


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
    unit = options.pipeline_parallel
    depths = {*lattice(low, high, unit), *options.widths.depths(budget, low, high, unit)}
    found = []
    for depth in sorted(depths):
        widths, counts = options.widths.counts(depth)
        at = int(np.abs(counts - budget).argmin())
        if counts[at] > (1 + BUDGET_TOLERANCE) * budget and at > 0:
            at -= 1
        if 1 / FARTHEST <= counts[at] / budget <= FARTHEST:
            found.append(options.shape(depth, int(widths[at])))
    return found


def usual_shape(asked: float, size: float, options: Options) -> Shape | None:
    """The shape of GPT-3's table at this size, under the options; None where no width comes near the budget."""
    unit = options.pipeline_parallel
    shape = matched(max(unit, round(gpt3_depth(size) / unit) * unit), asked, options)
    return shape if abs(counted(shape, options) / asked - 1) <= BUDGET_TOLERANCE else None


def within(shape: Shape, budget: float, options: Options) -> bool:
    """Whether a shape is no larger than the budget allows."""
    return counted(shape, options) <= (1 + BUDGET_TOLERANCE) * budget


def missing(shape: Shape, budget: float, n_params: float, loss: LossModel, options: Options) -> float:
    """Nats that a shape below the budget loses for its missing size, S of the budget's B: level(N·min(1, S/B)) −
    level(N) of the loss of the best depth. A shape above the budget gets nothing for what it has more."""
    share = min(1.0, counted(shape, options) / budget)
    return max(0.0, loss.level(n_params * share) - loss.level(n_params))


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


@dataclass(frozen=True)
class Spent:
    """What shapes spend per token. flops, seconds: of training, (K,); decode: seconds of one sequence, (K,). beside:
    (4, K) nats that they lose beside those of their depth, by constraint."""

    flops: np.ndarray
    seconds: np.ndarray
    decode: np.ndarray
    beside: np.ndarray


def spent(shapes: Sequence[Shape], lost: np.ndarray, loss: LossModel, n_params: float, options: Options) -> Spent:
    """What shapes spend, and what that is worth beside what is ``lost`` by their sizes.

    With r = FLOPs (or seconds) per token and parameter relative to the others', a shape that spends the same gets ln N
    smaller by ln r: loss + slope·ln r. Tokens are the same for all. At equal decode latency ln N grows by what makes
    the shape, at its own ratio of width to depth, as slow as the net of the best depth.
    """
    size = np.array([shape.n_params for shape in shapes], dtype=float)
    flops = np.array([training_flops_per_token(shape) for shape in shapes])
    seconds = np.array([training_seconds(shape, options.found_device, options) for shape in shapes])
    slope = loss.slope(n_params)
    parts = np.array([_decoding(shape, options) for shape in shapes])
    depths = loss.depths(n_params)
    best = matched(max(1, round(float(depths[loss.penalties(n_params, depths).argmin()]))), n_params, options)
    grown = _grown(parts, float(sum(_decoding(best, options))))
    beside = [lost, lost + slope * np.log(flops / size), lost + slope * np.log(seconds / size), lost - slope * grown]
    return Spent(flops, seconds, parts.sum(axis=1), np.stack(beside))


def _decoding(shape: Shape, options: Options) -> tuple[float, float, float]:
    """Seconds per token of one sequence: for the weights of the blocks, for what else is read, and for the layers."""
    read = decode_bytes_per_token(shape, options.positions)
    rate = BANDWIDTH_SHARE * options.found_device.bandwidth
    weights = read * shape.n_params / (read / BYTES_PER_VALUE)  # bytes of the blocks' weights
    return weights / rate, (read - weights) / rate, shape.depth * LAYER_SECONDS


def _grown(parts: np.ndarray, seconds: float) -> np.ndarray:
    """(K,) ln of the factor in size at which each shape, scaled at its own ratio of width to depth, decodes in
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


def likely_best(
    shapes: Sequence[Shape], budget: float, n_params: float, loss: LossModel, options: Options
) -> tuple[float, float]:
    """The shallowest and the deepest of the best shapes under each constraint, were each depth to cost at its own size
    what it costs at ``n_params``, but for sizes that are ANOTHER_SIZE times apart; (inf, 0) without shapes."""
    possible = [shape for shape in shapes if within(shape, budget, options)]
    if not possible:
        return math.inf, 0.0
    lost = np.array([missing(shape, budget, n_params, loss, options) for shape in possible])
    depths = np.array([float(shape.depth) for shape in possible])
    penalties = loss.penalties(n_params, depths)
    for k, shape in enumerate(possible):  # embeddings that a budget includes may leave blocks of quite another size
        if abs(math.log(shape.n_params / n_params)) > math.log(ANOTHER_SIZE):
            penalties[k] = loss.penalties(float(shape.n_params), depths[k : k + 1])[0]
    nats = penalties + spent(possible, lost, loss, n_params, options).beside
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
    training FLOPs, training time and decode latency. Shapes above the budget are compared in the first only, unless all
    of them are. A shape off the budget is left out if it cannot be the best. Without intervals: see ``bounded``.

    any_size: shapes are compared as if each had its width to the last unit; no size is missing.
    """
    if not shapes:
        return []
    loss = source.loss(n_params)
    slope = loss.slope(n_params)
    off = np.array([counted(shape, options) / budget - 1 for shape in shapes])
    lost = np.array([0.0 if any_size else missing(shape, budget, n_params, loss, options) for shape in shapes])
    fits = off <= BUDGET_TOLERANCE
    spends = spent(shapes, lost, loss, n_params, options)
    beside = spends.beside
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
            decode=cost(3, i),
            flops_per_token=float(spends.flops[i]),
            training_seconds_per_token=float(spends.seconds[i]),
            decode_seconds_per_token=float(spends.decode[i]),
        )
        for i, shape in enumerate(shapes)
        if near[i] or hopeful[i]
    ]


def bounded(candidate: Candidate, n_params: float, source: Source) -> Candidate:
    """Add the confidence interval of the size cost (slower to compute than the cost itself)."""
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
    # nets of these sizes are trained with fused attention; else heads of 64 would look a third slower than heads of 128
    mfu = assumed_mfu(shape, device, tokens_per_step=TOKENS_PER_STEP, precision="bfloat16", fused=True)
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


VOCABULARY, CONTEXT = 50_257, 2048  # of GPT-2


@dataclass(frozen=True)
class Options:
    """What the shapes must satisfy, and how they are costed.

    width_multiple: of d_x; None: 128 from WIDE on, 64 from MIDDLE on, else 8. head_size: None: one of HEAD_SIZES of
    which the width has a round number; two heads below SMALL. heads: as many at every width, apart from d_x over the
    head size. mlp_multiple: of the inner width; None: 256 from WIDE on, 64 from MIDDLE on. tensor_parallel divides
    heads (and key/value heads) and the inner width, pipeline_parallel divides depth. total: the budget counts all,
    embeddings included. context: positions in training and in the cache of a decoding step. at: the constraint under
    which a shape is recommended: equal size, flops, time or decode. tokens: of training; None:
    tokens_per_param for each parameter of the blocks. device: a name, or with a count of them, ``H100:8``. vocab_size,
    context: None: those of the nets of the fit that guides (``for_nets``), else ``VOCABULARY`` and ``CONTEXT``.
    """

    width_multiple: int | None = None
    heads: int | None = None
    head_size: int | None = None
    kv_heads: int | None = None
    mlp: str = "plain"
    mlp_ratio: float | None = None  # None: 4, or 8/3 if gated, which keeps 8·d_x² weights
    mlp_multiple: int | None = None
    vocab_size: int | None = None
    tied_embeddings: bool = False
    context: int | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    total: bool = False
    at: str = "size"
    tokens: float | None = None
    tokens_per_param: float = 20.0  # compute-optimal (Hoffmann et al. 2022)
    device: str = "H100"
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        sizes = (
            "width_multiple",
            "heads",
            "head_size",
            "kv_heads",
            "mlp_multiple",
            "vocab_size",
            "context",
            "tensor_parallel",
            "pipeline_parallel",
        )
        wrong = [
            f"{argument(name)}: {getattr(self, name)}; must be at least 1 and at most {LARGEST_SIZE:g}"
            for name in sizes
            if getattr(self, name) is not None and not 1 <= getattr(self, name) <= LARGEST_SIZE
        ]
        if self.mlp not in ("plain", "gated"):
            wrong.append(f"{argument('mlp')}: {self.mlp!r}; allowed: plain, gated")
        if self.mlp_ratio is not None and not MLP_RATIOS[0] <= self.mlp_ratio <= MLP_RATIOS[1]:
            wrong.append(
                f"{argument('mlp_ratio')}: {self.mlp_ratio}; must be from {MLP_RATIOS[0]:g} to {MLP_RATIOS[1]:g}"
            )
        if find(self.device_name) is None:
            wrong.append(
                f"{argument('device')}: {self.device!r} is not in the table; allowed: {suggestion(self.device)}"
            )
        if self.at not in CONSTRAINTS:
            wrong.append(f"{argument('at')}: {self.at!r}; allowed: {', '.join(CONSTRAINTS)}")
        if self.tokens is not None and not 1e3 <= self.tokens <= 1e18:
            wrong.append(f"{argument('tokens')}: {self.tokens:g}; must be from 1e3 to 1e18")
        if not 0.01 <= self.tokens_per_param <= 1e6:
            wrong.append(f"{argument('tokens_per_param')}: {self.tokens_per_param:g}; must be from 0.01 to 1e6")
        if not 1 <= self.devices <= MOST_DEVICES:
            wrong.append(f"{argument('device')}: {self.device!r}; must be from 1 to {MOST_DEVICES:,} devices")
        kv, tensor = self.kv_heads, self.tensor_parallel
        if not wrong and kv is not None and kv % tensor and tensor % kv:
            wrong.append(
                f"{argument('kv_heads')}: {kv}; must divide {argument('tensor_parallel')} {tensor}, "
                "or be a multiple of it"
            )
        if not wrong and self.heads is not None and self.heads % self.together:
            wrong.append(
                f"{argument('heads')}: {self.heads}; must be a multiple of {argument('kv_heads')} and of "
                f"{argument('tensor_parallel')}, {self.together} together"
            )
        if wrong:
            raise InputError(*wrong)

    def for_nets(self, nets: TrainedNets) -> Options:
        """Take the vocabulary and the context of ``nets`` where none was asked for."""
        return replace(self, vocab_size=self.vocab_size or nets.vocab_size, context=self.context or nets.seq_len)

    @property
    def vocabulary(self) -> int:
        return self.vocab_size or VOCABULARY

    @property
    def positions(self) -> int:
        return self.context or CONTEXT

    @property
    def found_device(self) -> Device:
        device = find(self.device_name)
        assert device is not None
        return device

    @property
    def device_name(self) -> str:
        name, colon, count = self.device.rpartition(":")
        return name if colon and count.isdigit() else self.device

    @property
    def devices(self) -> int:
        """How many of them."""
        count = self.device[len(self.device_name) + 1 :]
        return int(count) if count else 1

    @property
    def given(self) -> list[str]:
        """Names of the options that are not at their defaults, but for those that a size needs no shape for."""
        apart = (one for one in fields(self) if one.name not in ("tokens", "tokens_per_param", "device"))
        return [one.name for one in apart if getattr(self, one.name) != one.default]

    @property
    def limits(self) -> dict[str, float]:
        """The options that rule out shapes, as given."""
        return {
            name: value for name in (*OF_WIDTHS, "pipeline_parallel") if (value := getattr(self, name)) not in (None, 1)
        }

    @property
    def together(self) -> int:
        """What the number of heads must be a multiple of."""
        return math.lcm(self.tensor_parallel, self.kv_heads or 1)

    @cached_property
    def widths(self) -> Widths:
        """The widths that one can build.

        Raises:
            InputError: there is none.
        """
        if self.heads is not None:
            step = self.width_multiple or 8
            every = [width for k in rising(WIDEST // step) if (width := step * k) % self.step(width) == 0]
            small = every
        elif self.head_size is not None:
            every = small = self._widths_of([self.head_size])
        else:
            every = self._widths_of(HEAD_SIZES)
            step = math.lcm(self.width_multiple or 8, 2 * math.lcm(2, self.together))
            small = list(range(step, 1 + math.floor(math.sqrt(SMALL / 12)), step))
        every = [width for width in every if self._in_proportion(width, self.block(width))]
        small = [width for width in small if self._in_proportion(width, self.block(width, small=True))]
        if not every:
            asked = ", ".join(
                f"{argument(name)}: {value:,}" for name, value in self.limits.items() if name in OF_WIDTHS
            )
            raise InputError(
                f"{asked}; no width up to {WIDEST:,} has an inner width near what is asked, and heads × head size "
                f"within {APART:g} times itself; allowed: what leaves at least one width"
            )
        return Widths.of(small, every, self)

    def _in_proportion(self, width: int, block: Block) -> bool:
        """Whether multiples do not make the inner width, nor the heads, quite another than is asked."""
        asked = block.mlp_ratio * width
        inner = block.mlp_multiple * max(1, round(asked / block.mlp_multiple)) / asked
        rule = block.head_rule
        heads = (rule.count or 1) * (rule.size or 1) / width if self.heads is not None else 1.0
        return 1 / INNER_OFF <= inner <= INNER_OFF and 1 / APART <= heads <= APART

    def _widths_of(self, head_sizes: Iterable[int]) -> list[int]:
        """Multiples of head sizes with a round number of heads, or with any, where these lie far apart."""
        every, rounded = set[int](), set[int]()
        for size in head_sizes:
            for count in rising(WIDEST // size):
                width = size * count
                if count % self.together == 0 and width % self.step(width) == 0:
                    every.add(width)
                    if is_round(count):
                        rounded.add(width)
        wide = [MIDDLE, *sorted(width for width in rounded if MIDDLE <= width <= 16 * WIDE)]
        return sorted(every if len(wide) < 2 or max(b / a for a, b in pairwise(wide)) > SPARSE else rounded)

    def step(self, width: int) -> int:
        """What this width must be a multiple of."""
        return self.width_multiple or (128 if width >= WIDE else 64 if width >= MIDDLE else 8)

    def head_rule(self, width: int, small: bool) -> HeadRule:
        """Heads of a net this wide: a round number of them where that is possible."""
        if self.heads is not None:
            near = min(HEAD_SIZES, key=lambda size: abs(size * (self.heads or 1) - width))
            return HeadRule(count=self.heads, size=self.head_size or near)
        if self.head_size is not None:
            return HeadRule(size=self.head_size)
        sizes = HEAD_SIZES if width >= MIDDLE else HEAD_SIZES[::-1]
        whole = [size for size in sizes if not small and width % size == 0]
        if fitting := [size for size in whole if width % (size * self.together) == 0] or whole:
            return HeadRule(size=next((size for size in fitting if is_round(width // size)), fitting[0]))
        return HeadRule(count=math.lcm(2, self.together))

    def refusal(self, shape: Shape) -> str:
        """Which of the options a shape does not meet, empty if none."""
        tensor, kv = self.tensor_parallel, shape.kv_heads
        if shape.heads % tensor:
            return f"{shape.heads} heads are no multiple of {argument('tensor_parallel')} {tensor}"
        if self.kv_heads is not None and kv % tensor and tensor % kv:
            return f"{kv} key/value heads do not go with {argument('tensor_parallel')} {tensor}"
        if shape.depth % self.pipeline_parallel:
            return f"{shape.depth} layers are no multiple of {argument('pipeline_parallel')} {self.pipeline_parallel}"
        if self.width_multiple is not None and shape.width % self.width_multiple:
            return f"the width {shape.width} is no multiple of {argument('width_multiple')} {self.width_multiple}"
        return ""

    def shape(self, depth: int, width: int) -> Shape:
        """The shape with these options.

        Raises:
            ValueError: heads that do not fit the width.
        """
        return self.block(width, 12.0 * depth * width**2 < SMALL).shape(depth, width)

    def block(self, width: int, small: bool = False) -> Block:
        """The block of a net this wide. small: of fewer than SMALL parameters."""
        rule = self.head_rule(width, small)
        gated = self.mlp == "gated"
        multiple = self.mlp_multiple or (256 if width >= WIDE else 64 if width >= MIDDLE else 8 if gated else 1)
        return Block(
            rule,
            self.vocabulary,
            self.positions,
            mlp_ratio=self.mlp_ratio or (8 / 3 if gated else 4.0),
            kv_heads=self.kv_heads,
            mlp=self.mlp,
            positions="rotary" if rule.size and rule.size % 2 == 0 else "sinusoidal",
            tied_embeddings=self.tied_embeddings,
            biases=False,
            # each rank's part is a round number too
            mlp_multiple=math.lcm(multiple, (8 if width >= MIDDLE or gated else 1) * self.tensor_parallel),
        )


def is_round(heads: int) -> bool:
    """Whether nets are built with so many heads: any number up to 16, else one of at most four binary digits, which are
    even numbers up to 32, multiples of 4 up to 64 and so on."""
    return heads <= 16 or heads % (1 << (heads - 1).bit_length() - 4) == 0


def rising(most: int, fine: int = 512) -> Iterator[int]:
    """Whole numbers from 1 to ``most``: all up to ``fine``, every second up to twice that, and so on."""
    number, step = 1, 1
    while number <= most:
        yield number
        if number >= fine * step:
            step *= 2
        number = (number // step + 1) * step


@dataclass(frozen=True)
class Widths:
    """Widths that one can build (K,), with their counts: those of one layer (K,), and of every other (K,). small: for
    nets of fewer than SMALL parameters, or for all others."""

    width: np.ndarray
    small: np.ndarray
    first: np.ndarray
    layer: np.ndarray

    @classmethod
    def of(cls, small: Sequence[int], others: Sequence[int], options: Options) -> Widths:
        which = [(width, True) for width in small] + [(width, False) for width in others]
        rows = [[counted(options.block(*one).shape(depth, one[0]), options) for depth in (1, 2)] for one in which]
        one, two = np.array(rows, dtype=float).T
        width, few = (np.array(column) for column in zip(*which, strict=True))
        return cls(width, few, one, two - one)

    def counts(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """(widths, what a net of this depth counts at each of them), rising."""
        kept = self.small == (12.0 * depth * self.width**2 < SMALL)
        return self.width[kept], (self.first + (depth - 1) * self.layer)[kept]

    def depths(self, budget: float, low: float, high: float, unit: int) -> set[int]:
        """The depths, multiples of ``unit`` from ``low`` to ``high``, at which a width comes nearest to the budget."""
        depths = unit * np.maximum(1, np.round((1.0 + (budget - self.first) / self.layer) / unit))
        return {int(depth) for depth in depths[(depths >= low) & (depths <= high)]}
