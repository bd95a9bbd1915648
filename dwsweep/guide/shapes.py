"""Shapes one can build at a size: true counts, hardware multiples, costs at equal size, FLOPs and time.

What the shapes of a guide must satisfy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.cost.arithmetic import decode_bytes_per_token, training_flops_per_token
from dwsweep.cost.devices import Device, find, suggestion
from dwsweep.cost.duration import BANDWIDTH_SHARE, Calibration, assumed_mfu
from dwsweep.errors import InputError, argument
from dwsweep.guide.answers import CONSTRAINTS, Candidate, Cost, NearBest
from dwsweep.guide.rules import gpt3_depth
from dwsweep.guide.sources import LossModel, Source, percent_of, smaller_percent
from dwsweep.records.fit import LARGEST_SIZE, TrainedNets
from dwsweep.shapes import MLP_RATIOS, Block, HeadRule, Shape, match_width

LAYER_SECONDS = 20e-6  # ASSUMPTION: a layer's launches and waits while decoding one token, whatever its width
TOKENS_PER_STEP = 500_000  # of the assumed training step
BUDGET_TOLERANCE = 0.05  # how far a shape may lie above the budget; below it the missing size is priced
TIE_NATS, TIE_PERCENT = 1e-4, 0.1  # the last digits that the table prints: costs that look the same tie
LEAST_SHARE = 0.02  # of a budget of all parameters that must be left for the blocks
FREE_GRID = 0.05  # of a layer: the ends of the depths that cost next to nothing lie on a grid
FARTHEST = 2.0  # factor from the budget, beyond which a shape is not even compared
MOST_DEVICES = 1_000_000
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


VOCABULARY, CONTEXT = 50_257, 2048  # of GPT-2


@dataclass(frozen=True)
class Options:
    """What the shapes must satisfy, and how they are costed.

    width_multiple: of d_x; None: 128 from 1e9 parameters on, 64 from 1e8, else 8. head_size: None: 128 from 3e9 on,
    64 from 3e7, else two heads.
    tensor_parallel divides heads (and key/value heads), pipeline_parallel divides depth. total: the budget counts
    everything, embeddings included. context: positions in training and in the cache of a decoding step. at: the
    constraint under which a shape is recommended: equal size, flops or time. tokens: of training; None:
    tokens_per_param for each parameter of the blocks. device: a name, or with a count of them, ``H100:8``. vocab_size,
    context: None: those of the nets of the fit that guides (``for_nets``), else ``VOCABULARY`` and ``CONTEXT``.
    """

    width_multiple: int | None = None
    head_size: int | None = None
    kv_heads: int | None = None
    mlp: str = "plain"
    mlp_ratio: float | None = None  # None: 4, or 8/3 if gated, which keeps 8·d_x² weights
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
            "head_size",
            "kv_heads",
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
        # two heads, or as many as the parallelism asks for, each of an even size, which rotary positions need
        return math.lcm(self.width_multiple or default, head * heads if head else 2 * math.lcm(2, heads))

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
            self.vocabulary,
            self.positions,
            mlp_ratio=ratio,
            kv_heads=self.kv_heads,
            mlp=self.mlp,
            positions="rotary" if head and head % 2 == 0 else "sinusoidal",
            tied_embeddings=self.tied_embeddings,
            biases=False,
            mlp_multiple=math.lcm(8 if self.mlp == "gated" else 1, self.tensor_parallel),
        )
