"""What ``dwsweep guide`` answers, as records: ``--json`` prints them, tables and figures are drawn from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dwsweep.records.record import to_dict

# constraints under which shapes are compared, and how they are called in a sentence
SPOKEN = {
    "size": "equal size",
    "flops": "equal training FLOPs",
    "time": "equal training time",
    "decode": "equal decode latency",
}
CONSTRAINTS = tuple(SPOKEN)


@dataclass(frozen=True)
class SourceNote:
    """Where the answers come from: the published law or a fit."""

    name: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Trust:
    """level: low, medium or high, by the rule in sources.py; reasons: what it rests on, the gravest first."""

    level: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BestDepth:
    """The best depth and width at one size.

    n_params: in the blocks. depth_low, depth_high: the one interval, of form, parameters and recipe (sources.py); None:
    no bound, or no depth at all. law_low, law_high: of the source's own form alone. next_depth: what the depth ties
    with where the source is a law of transitions, else the depth itself. The width is √(N/12L); its low end goes with
    the deep one. rivals: best depth by every other form that is not rejected; of public evidence, by each form where
    the two are more than a tenth apart. extrapolation_factor: how many times outside the data, 1 inside. basis:
    ``compared`` (at such sizes shapes were compared), ``projection``, ``range`` (no best depth can be named), ``law``
    or ``refused``.
    """

    name: str
    source: str
    n_params: float
    trained_depth: int | None
    trained_width: int | None
    reach: str
    extrapolation_factor: float
    refused: bool
    trust: Trust
    depth: float | None = None
    depth_low: float | None = None
    depth_high: float | None = None
    law_low: float | None = None
    law_high: float | None = None
    next_depth: float | None = None
    width: float | None = None
    width_low: float | None = None
    width_high: float | None = None
    basis: str = "compared"
    rivals: Mapping[str, float]
    rival_depth_min: float | None = None
    rival_depth_max: float | None = None


@dataclass(frozen=True)
class Cost:
    """Wasted compute of a shape. less_compute: in percent, "as if you had this much less": 100·(1 − exp(−w)), w in ln
    N. nats: the loss above the best at a constraint, w times the slope −dloss/d ln N of best-shaped nets, with its
    interval where it has one.

    At equal tokens compute grows in proportion to N, so this is exact; where tokens grow with N as they should, a
    factor of compute moves N and tokens by its root each and the loss by as much again.
    """

    nats: float
    less_compute: float
    nats_low: float | None = None
    nats_high: float | None = None


@dataclass(frozen=True)
class NearBest:
    """Depths that waste at most ``less_compute`` percent of compute: ``nats``, ``percent`` of the loss. An end that
    lies beyond what the source can speak of is None."""

    percent: float
    nats: float
    less_compute: float
    depth_low: float | None
    depth_low_interval: tuple[float | None, float | None]
    depth_high: float | None
    depth_high_interval: tuple[float | None, float | None]


@dataclass(frozen=True)
class Candidate:
    """A shape one can build. mismatch: its count over the budget, less 1. missing_nats: price of its distance from the
    budget, on either side, which is part of every cost. size: wasted against the best depth of the budget; flops, time,
    decode: against the best of the candidates that spend as much, on the same tokens; None where the source says
    nothing, or the shape is above the budget while others are not."""

    depth: int
    width: int
    heads: int
    head_size: int
    kv_heads: int
    mlp_hidden: int
    n_params: int
    n_params_total: int
    mismatch: float
    within_budget: bool
    missing_nats: float
    size: Cost | None
    flops: Cost | None
    time: Cost | None
    decode: Cost | None
    flops_per_token: float
    training_seconds_per_token: float
    decode_seconds_per_token: float

    @property
    def label(self) -> str:
        return f"{self.depth} × {self.width}"

    def cost(self, constraint: str) -> Cost | None:
        found: Cost | None = getattr(self, constraint)
        return found


@dataclass(frozen=True)
class Risk:
    """Regret of a recommendation: what it may waste against the best shape under its constraint, which nobody knows, in
    expectation and at most (95 %). At equal size it is that of the depth."""

    expected: Cost
    worst: Cost


@dataclass(frozen=True)
class SourceRow:
    """What one public source says of a budget's size. outside: factor by which the size lies outside the source's
    own; 1 inside. words: whose they are, the source's own or all sources' with its offset."""

    name: str
    reference: str
    kind: str
    sure: str
    matched: str
    depth: float
    depth_low: float
    depth_high: float
    outside: float
    words: str = ""


@dataclass(frozen=True)
class NoBest:
    """Depths at a size at which no shapes were compared: by the published law, of models that were built (shallowest,
    deepest), and of recipes extrapolated from the sizes at which their shapes were compared (shallowest, deepest)."""

    law: float | None
    built: tuple[int, int] | None
    recipes: tuple[float, float]


@dataclass(frozen=True)
class BuiltModel:
    """A model of about the budget's size that somebody built. cost: of its depth, at its own size in the blocks,
    n_params; None where the source says nothing of it. source: the file that says its shape."""

    model: str
    depth: int
    width: int
    n_params: int
    cost: Cost | None
    source: str

    @property
    def label(self) -> str:
        return f"{self.depth} × {self.width}"


@dataclass(frozen=True, kw_only=True)
class BudgetAnswer:
    """What to build for a budget.

    optimum: at the budget's size in the blocks. budget: as asked for, of all parameters if ``total``. best: the
    candidate of least cost under each constraint, among those not above the budget. recommended: that under the
    constraint asked for, ``at``; at equal size ``default`` where no best can be named (``no_best``), the
    best at equal time of the shapes that waste at most 5 % in expectation. usual: the shape that GPT-3's table has at
    this size. built: models of other families near it. risks: of the best shape under each constraint; risk: of the
    recommended one. loss_level: nats per token of the best depth. blocks_if_total: parameters in the blocks, were a
    budget that is a usual count of all parameters meant so. limits: the options that rule out shapes, as given, by
    their names; widths: the narrowest and the widest shape that meets them.
    """

    optimum: BestDepth
    budget: float
    total: bool
    at: str
    near_best: tuple[NearBest, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    best: Mapping[str, Candidate | None]
    default: Candidate | None = None
    no_best: NoBest | None = None
    blocks_if_total: float | None = None
    usual: Candidate | None = None
    built: tuple[BuiltModel, ...] = ()
    risk: Risk | None = None
    risks: Mapping[str, Risk] = field(default_factory=dict)
    by_source: tuple[SourceRow, ...] = ()
    loss_level: float | None = None
    loss_tag: str | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    widths: tuple[int, int] | None = None

    @property
    def recommended(self) -> Candidate | None:
        return self.default if self.default is not None and self.at == "size" else self.best.get(self.at)


@dataclass(frozen=True, kw_only=True)
class ShapeAnswer:
    """The verdict on a shape: ``too deep``, ``too shallow``, ``balanced``, ``undecided`` or ``refused``; its cost under
    each constraint, and the shape that it is measured against there.

    optimum: at the shape's own size.
    """

    optimum: BestDepth
    depth: int
    width: int
    verdict: str
    depth_ratio: float | None = None
    costs: Mapping[str, Cost | None]
    best: Mapping[str, Candidate | None]
    loss_tag: str | None = None


@dataclass(frozen=True)
class RuleRow:
    """A rule of thumb at one size: its shape, the best one, and what the rule costs at equal size and equal time."""

    n_params: float
    depth: float | None
    width: float | None
    best_depth: float | None
    best_low: float | None
    best_high: float | None
    size: Cost | None
    time: Cost | None
    loss_percent: float | None
    trust: str


@dataclass(frozen=True)
class RuleAnswer:
    """A rule over sizes. good: (from, to) of the sizes at which it wastes at most ``tolerance`` percent of compute."""

    rule: str
    source: str
    tolerance: float
    rows: tuple[RuleRow, ...]
    good: tuple[tuple[float, float], ...]
    loss_tag: str


@dataclass(frozen=True)
class Assumptions:
    """decode_seconds_per_layer: of launches and waits. device: for decoding. devices: that train together.

    vocabulary: of the nets. context: their positions. training_rate: ``measured``, ``compiled`` or ``assumed``, on
    training_device. training_distance: how many times deeper or wider the best shapes are than the nearest benched.
    tokens: of training, where they were named.
    """

    decode_seconds_per_layer: float
    device: str
    devices: int
    vocabulary: int
    context: int
    training_rate: str
    training_device: str
    training_distance: float | None
    tokens: float | None


@dataclass(frozen=True)
class Answer:
    """All that one call of ``dwsweep guide`` says. notes: on the whole of it. afforded: what a budget in FLOPs or hours
    pays for. instead: why public evidence answers though a fit was given, where that is so at every size."""

    sources: tuple[SourceNote, ...]
    budgets: tuple[BudgetAnswer, ...]
    verdicts: tuple[ShapeAnswer, ...]
    overview: tuple[BestDepth, ...]
    rules: tuple[RuleAnswer, ...]
    assumptions: Assumptions
    notes: tuple[str, ...] = ()
    afforded: str | None = None
    instead: str | None = None

    def to_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return to_dict(self)
