"""Records of the answers of ``dwsweep guide``: ``--json`` prints them, tables and figures show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dwsweep.evidence.words import SourceRow
from dwsweep.guide.practice import BuiltModel
from dwsweep.interval import IntervalOf

# constraints under which shapes are compared → words in a sentence, heading of a column
PRICES = {
    "size": ("equal size", "size"),
    "flops": ("equal training FLOPs", "FLOPs"),
    "time": ("equal training time", "time"),
    "decode": ("equal decode latency", "latency"),
}
CONSTRAINTS = tuple(PRICES)
TRADED = ("size", "flops", "time")  # constraints whose worst cost a balanced shape makes least
BALANCED = "balanced"
AT = (BALANCED, *CONSTRAINTS)  # criteria by which a shape is recommended


@dataclass(frozen=True)
class Trust:
    """Trust in an answer. level: low, medium or high, by the rule in sources.py. reasons: the gravest first."""

    level: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BestDepth:
    """Best depth and width at one size. n_params: weights of the blocks. width: its low end belongs to the deep end.
    rivals: best depth by every other form. extrapolation_factor: by which the size lies outside the data, 1 inside.
    basis: of ``Source.basis``. depth_error: Monte-Carlo error of the depth, at sizes of a fit's losses.
    """

    name: str
    source: str
    n_params: float
    trained_depth: int | None
    trained_width: int | None
    reach: str
    extrapolation_factor: float
    trust: Trust
    depth: float
    depth_low: float | None = None
    depth_high: float | None = None
    depth_interval = IntervalOf()
    width: float | None
    width_low: float | None = None
    width_high: float | None = None
    width_interval = IntervalOf()
    basis: str
    rivals: Mapping[str, float]
    rival_depth_min: float | None = None
    rival_depth_max: float | None = None
    depth_error: float | None = None


@dataclass(frozen=True)
class Cost:
    """Cost of a shape. less_compute: wasted compute in percent, 100·(1 − exp(−w)), w in ln N, at equal tokens. nats:
    the loss above the best at a constraint, w times the slope −dloss/d ln N of best-shaped nets."""

    nats: float
    less_compute: float
    nats_low: float | None = None
    nats_high: float | None = None
    nats_interval = IntervalOf()


@dataclass(frozen=True)
class NearBest:
    """Whole numbers of layers that waste at most ``less_compute`` percent of compute. An end outside the source's
    depths is None."""

    less_compute: float
    depth_low: int | None
    depth_high: int | None


@dataclass(frozen=True)
class Candidate:
    """Candidate: a shape one can build. mismatch: its count over the budget, minus 1. missing_nats: price of its
    distance from the budget, a part of every cost. costs: by constraint, as ``Budget.candidates``; at equal
    size of every shape, else None of a shape above the budget."""

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
    costs: Mapping[str, Cost | None]
    flops_per_token: float
    training_seconds_per_token: float
    decode_seconds_per_token: float

    @property
    def label(self) -> str:
        return f"{self.depth} × {self.width}"

    @property
    def size(self) -> Cost:
        """Cost at equal size."""
        size = self.costs["size"]
        assert size is not None
        return size

    def cost(self, criterion: str) -> Cost | None:
        """Cost under a constraint, or the worst of the traded ones for ``balanced``; None above the budget."""
        if criterion != BALANCED:
            return self.costs[criterion]
        return max(self.traded, key=lambda cost: cost.less_compute) if self.within_budget else None

    @property
    def traded(self) -> list[Cost]:
        """Costs under the constraints that a balanced shape trades."""
        return [cost for one in TRADED if (cost := self.costs[one]) is not None]


@dataclass(frozen=True)
class Risk:
    """Risk (regret) of a recommendation: compute wasted against the unknown best shape under its constraint, in
    expectation and at most (95 %). At equal size, the regret of the depth."""

    expected: Cost
    worst: Cost


@dataclass(frozen=True, kw_only=True)
class BudgetAnswer:
    """Answer for a budget: shapes to build. near_best: depths that waste little. best: candidate of least
    cost by each criterion, within the budget. risk: regret of the one by ``at``, the requested criterion. built: models
    of families near this size. unit: of the losses."""

    optimum: BestDepth
    budget: float
    at: str
    near_best: NearBest
    candidates: tuple[Candidate, ...]
    best: Mapping[str, Candidate | None]
    built: tuple[BuiltModel, ...]
    risk: Risk | None
    by_source: tuple[SourceRow, ...] = ()
    loss_tag: str
    unit: str

    @property
    def recommended(self) -> Candidate | None:
        return self.best.get(self.at)


@dataclass(frozen=True, kw_only=True)
class ShapeAnswer:
    """Answer for a shape, the verdict ``too deep``, ``too shallow``, ``balanced`` or ``undecided``, and the best shape
    of its size under each constraint. optimum: best depth at the shape's own size."""

    optimum: BestDepth
    depth: int
    width: int
    verdict: str
    depth_ratio: float
    judged: Candidate
    best: Mapping[str, Candidate | None]
    loss_tag: str
    unit: str
