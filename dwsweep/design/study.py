"""The whole study of a sweep before it is paid for: the errors that its runs leave, by the estimators of ``fit``, on
each transition and on the best depth; and what plain changes of the grid would buy (more seeds, more sizes, a wider
range, a deeper net).

Everything is linear in the noise, so a design is judged in milliseconds and thousands are compared.

No single runs are proposed: shapes chosen greedily for their gain per FLOP promised a fifth less error than evenly
spaced sizes of equal FLOPs, and in simulated sweeps did not leave less.

A sweep that fills a given time on a given device: the depths and sizes that would tell most.

Every candidate set of depths gets sizes from a third of its first transition up to what the time allows, each run
TOKENS_PER_PARAM tokens per parameter of its blocks; the set with most transitions that are likely to be found wins, and
of equals the one that leaves the least error on the best depth at its largest size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep.cost.arithmetic import training_flops
from dwsweep.cost.devices import find, suggestion
from dwsweep.cost.duration import Calibration
from dwsweep.design.expected_fit import (
    Curves,
    Design,
    PairError,
    Planned,
    Prior,
    covariance,
    expected_depth,
    make_prior,
)
from dwsweep.errors import InputError
from dwsweep.fit.ask import FEWEST_CELLS, FEWEST_DEPTHS, FEWEST_SIZES
from dwsweep.fit.guideline import DEPTHS_FOR_A_LAW
from dwsweep.fit.laws import EXTRAPOLATION_LIMIT
from dwsweep.plan import DROP, build
from dwsweep.records.run import FixedRate
from dwsweep.shapes import Block, Shape, match_width
from dwsweep.spec import Spec, parse_spec, yaml_numbers
from dwsweep.text import format_count

LARGEST_TARGET = 1e15  # parameters: beyond any net
NO_DEPTH = 10.0  # stands for the error of a best depth that there is not


@dataclass(frozen=True)
class Errors:
    """Expected errors of everything that a design estimates.

    depth: L*(target) by the prior. se_depth, stated: half of the central 68 % that `fit` will state, layers.
    bias_depth: what `fit` will say less the truth, layers. rms: of ln L*(target), both together. se_a, se_b: of the
    prior's form. reason: why `fit` will give no best depth at the target, or no law.
    """

    pairs: tuple[PairError, ...]
    target: float
    depth: float | None
    se_a: float | None = None
    se_b: float | None = None
    se_depth: float | None = None
    bias_depth: float | None = None
    stated: float | None = None
    rms: float = NO_DEPTH
    reason: str = ""

    @property
    def known(self) -> bool:
        """True if `fit` will give a best depth at the target."""
        return self.se_depth is not None

    def to_dict(self) -> dict[str, Any]:
        names = ("se_a", "se_b", "target", "depth", "se_depth", "bias_depth", "stated", "reason")
        return {name: getattr(self, name) for name in names} | {
            "rms_ln_depth": self.rms if self.known else None,
            "pairs": [vars(pair) for pair in self.pairs],
        }


class Judge:
    """Judges designs against one prior and one target; keeps what does not depend on the design."""

    def __init__(self, prior: Prior, depths: Iterable[int], target: float) -> None:
        self.prior, self.target = prior, target
        self.depths = sorted(set(depths))
        self.curves = Curves(prior, tuple(self.depths))
        self.best_depth = prior.law.depth(target)[0]

    @property
    def crossings(self) -> list[float]:
        """ln N at which neighbouring depths cross."""
        return self.curves.crossings

    def covariance(self, cells: Planned) -> np.ndarray:
        """Covariance C (K, K) of the cell means, in the order of ``cells``, scatter between shapes included."""
        shared = covariance(cells, self.prior.noise, self.prior.seed_sd)
        return shared + self.prior.shape_sd**2 * np.eye(len(cells))

    def judge(self, cells: Planned) -> Errors:
        """All errors of a design."""
        ordered = _ordered(cells)
        C = self.covariance(ordered) if ordered else np.zeros((0, 0))
        pairs = Design(self.curves, list(ordered), C).pairs()
        reason = self._silence(ordered)
        if reason:
            return Errors(pairs, self.target, self.best_depth, reason=reason)
        found = expected_depth(self.prior, ordered, self.target)
        if self.best_depth is None or not math.isfinite(found.stated):
            return Errors(pairs, self.target, self.best_depth, reason="these runs leave it without a bound")
        bias = found.ln_depth - math.log(self.best_depth)
        few = len({depth for depth, _ in ordered}) < DEPTHS_FOR_A_LAW
        return Errors(
            pairs,
            self.target,
            self.best_depth,
            None if few else found.a,
            None if few else found.b,
            found.stated * self.best_depth,
            bias * self.best_depth,
            found.stated * self.best_depth,
            math.hypot(found.stated, bias),
            f"{_depths(ordered)} depths give no law" if few else "",
        )

    def _silence(self, cells: Planned) -> str:
        """Reason why `fit` will give no best depth at the target; empty where it will."""
        sizes: dict[int, list[float]] = {}
        for depth, width in cells:
            sizes.setdefault(depth, []).append(12.0 * depth * width**2)
        enough = sum(len(at) >= FEWEST_SIZES for at in sizes.values()) >= 2 and len(cells) >= FEWEST_CELLS
        if len(sizes) < FEWEST_DEPTHS or not enough:
            return f"{_depths(cells)} depths and {len(cells)} shapes give no best depth: it takes three depths"
        everything = [n for at in sizes.values() for n in at]
        first, last = np.exp(self.prior.transition(np.array([min(sizes), max(sizes)], dtype=float)))
        low, high = max(min(everything), first), min(max(everything), last)
        if low >= high:
            return "no size of these runs has its best depth between their depths"
        outside = max(1.0, self.target / high, low / self.target)
        if len(sizes) < DEPTHS_FOR_A_LAW and outside > 1.0:
            return (
                f"{len(sizes)} depths give no law, and so no best depth outside {format_count(low)} … "
                f"{format_count(high)} parameters"
            )
        if outside > EXTRAPOLATION_LIMIT:
            return f"the target is {outside:,.0f} times outside the sizes whose best depth these runs show"
        return ""


def _ordered(cells: Planned) -> Planned:
    return {shape: cells[shape] for shape in sorted(cells) if cells[shape]}


def _depths(cells: Planned) -> int:
    return len({depth for depth, _ in cells})


@dataclass(frozen=True)
class Alternative:
    """A change to the sweep, with what it costs and leaves."""

    name: str
    runs: int
    flops: int
    errors: Errors


def alternatives(
    spec: Spec, judge: Judge, planned: Planned, shapes: list[Shape], costs: Callable[[Shape], int]
) -> list[Alternative]:
    """More seeds, more widths, wider ranges, more depths; FLOPs of what each adds to the plan. costs: FLOPs of a shape,
    all learning rates together."""
    block, multiple = spec.block(), spec.grid.width_multiple
    seeds = len(spec.grid.seed_values())
    by_key = {(shape.depth, shape.width): shape for shape in shapes}
    sizes = np.log(sorted({shape.n_params for shape in shapes}))
    low, high = float(sizes[0]), float(sizes[-1])
    n_widths = max(sum(shape.depth == depth for shape in shapes) for depth in judge.depths)
    found: list[Alternative] = []

    def consider(name: str, cells: dict[tuple[int, int], frozenset[int]], depths: list[int] | None = None) -> None:
        def shape_of(key: tuple[int, int]) -> Shape:
            return by_key.get(key) or block.shape(*key)

        added = {key: cells[key] - planned.get(key, frozenset()) for key in cells}
        judged = (judge if depths is None else Judge(judge.prior, depths, judge.target)).judge(cells)
        found.append(
            Alternative(
                name,
                sum(len(value) for value in added.values()) * len(spec.grid.learning_rates),
                sum(costs(shape_of(key)) * len(value) for key, value in added.items() if value),
                judged,
            )
        )

    def grid(depths: list[int], start: float, stop: float, count: int) -> dict[tuple[int, int], frozenset[int]]:
        cells = dict(planned)
        for depth in depths:
            for size in np.exp(np.linspace(start, stop, count)):
                shape = match_width(depth, float(size), block, multiple)
                key = (shape.depth, shape.width)
                cells[key] = cells.get(key, frozenset()) | frozenset(range(seeds))
        return cells

    for factor in (2, 4):
        more = {key: value | frozenset(range(factor * seeds)) for key, value in planned.items() if key in by_key}
        consider(f"{factor * seeds} seeds instead of {seeds}", dict(planned) | more)
    consider(
        f"{2 * n_widths - 1} widths per depth instead of {n_widths}", _between(judge.depths, planned, block, multiple)
    )
    step = (high - low) / max(n_widths - 1, 1)
    if max(judge.crossings) > high - step:
        stop = max(max(judge.crossings) + step, high + step)
        extra = math.ceil((stop - high) / step)
        consider(
            f"sizes up to {format_count(math.exp(stop))}", grid(judge.depths, high + step, high + extra * step, extra)
        )
    if min(judge.crossings) < low + step:
        consider(
            f"sizes down to {format_count(math.exp(low - 2 * step))}", grid(judge.depths, low - 2 * step, low - step, 2)
        )
    deeper = judge.depths[-1] + (judge.depths[-1] - judge.depths[-2])
    consider(f"depth {deeper} too", grid([deeper], low, high, n_widths), [*judge.depths, deeper])
    return found


def _between(depths: list[int], planned: Planned, block: Block, multiple: int) -> dict[tuple[int, int], frozenset[int]]:
    """A new width between every two neighbours of a depth, with the seeds of the wider one."""
    cells = dict(planned)
    step = block.width_step(multiple)
    for depth in depths:
        widths = sorted(width for d, width in planned if d == depth)
        for left, right in pairwise(widths):
            width = step * round(math.sqrt(left * right) / step)
            if left < width < right:
                cells[depth, width] = planned[depth, right]
    return cells


@dataclass(frozen=True)
class Study:
    """Result of ``dwsweep design``. FLOPs are of the runs that are planned and not finished."""

    spec: Spec
    prior: Prior
    errors: Errors  # of the sweep as planned, with what is finished
    now: Errors | None  # of what is finished alone
    runs: int
    flops: int
    alternatives: tuple[Alternative, ...]

    @property
    def halving(self) -> Alternative | None:
        """The cheapest alternative that halves the target's error."""
        good = [a for a in self.alternatives if a.errors.known and a.errors.rms <= self.errors.rms / 2]
        return min(good, key=lambda a: a.flops, default=None)

    def to_dict(self) -> dict[str, Any]:
        """The study as plain values, for ``--json``."""
        halving = self.halving
        return {
            "name": self.spec.name,
            "basis": list(self.prior.basis),
            "noise": self.prior.noise,
            "runs": self.runs,
            "flops": self.flops,
            "errors": self.errors.to_dict(),
            "finished": self.now.to_dict() if self.now else None,
            "alternatives": [
                {"name": a.name, "runs": a.runs, "flops": a.flops, "errors": a.errors.to_dict()}
                for a in self.alternatives
            ],
            "cheapest_that_halves": halving.name if halving else None,
        }


def study(
    spec: Spec,
    *,
    fit: str | Path | None = None,
    noise: float | None = None,
    target: float | None = None,
    calibrations: Sequence[Calibration] = (),
    rates: Sequence[FixedRate] = (),
) -> Study:
    """Judge a planned sweep and look for better ones.

    Args:
        spec: the sweep. fit: a finished round (its noise, slopes, law and runs). noise: nats per run.
        target: size at which the best depth is wanted; None: the largest of the sweep.
        calibrations, rates: as ``plan.build`` takes them, for ``train.seconds``.

    Raises:
        InputError: wrong numbers, an unreadable fit, a sweep without a pair of depths, or one without a rate that
            needs one.
    """
    if spec.grid.arms is not None:
        raise InputError("grid.arms: one recipe is judged; allowed: --set grid.arms=null, for the grid that all share")
    rules = spec.grid.head_rules()
    if len(rules) > 1:
        raise InputError(f"grid.heads: {len(rules)} rules; one is judged, allowed: --set 'grid.heads={rules[0]}'")
    prior, done = make_prior(fit, noise)
    if target is not None and not 1e3 < target <= LARGEST_TARGET:
        raise InputError(
            f"--target: {target:g}; must be a number of non-embedding parameters above 1e3 and at most "
            f"{LARGEST_TARGET:g}"
        )
    plan = build(spec, calibrations=calibrations, rates=rates)
    runs = [run for run in plan.runs if run.action != DROP]
    shapes = list(dict.fromkeys(run.shape for run in runs))
    depths = sorted({shape.depth for shape in shapes} | {depth for depth, _ in done})
    if len(depths) < 2:
        raise InputError(f"grid.depths: {depths}; a design needs at least two depths to compare")
    aim = target or float(max(shape.n_params for shape in shapes))
    judge, lengths = Judge(prior, depths, aim), plan.lengths

    @cache
    def costs(shape: Shape) -> int:
        tokens = lengths.total_steps(shape) * lengths.tokens_per_step
        return training_flops(shape, tokens) * len(spec.grid.learning_rates)

    finished = {shape: frozenset(range(n)) for shape, n in done.items()}
    planned: dict[tuple[int, int], frozenset[int]] = dict(finished)
    for run in runs:
        key = (run.shape.depth, run.shape.width)
        planned[key] = planned.get(key, frozenset()) | {run.seed}
    todo = {
        shape: planned[shape.depth, shape.width] - finished.get((shape.depth, shape.width), frozenset())
        for shape in shapes
    }
    errors = judge.judge(planned)
    return Study(
        spec=spec,
        prior=prior,
        errors=errors,
        now=judge.judge(finished) if done else None,
        runs=sum(len(seeds) for seeds in todo.values()) * len(spec.grid.learning_rates),
        flops=sum(costs(shape) * len(seeds) for shape, seeds in todo.items()),
        alternatives=tuple(alternatives(spec, judge, planned, shapes, costs)),
    )


TOKENS_PER_PARAM = 20  # what Hoffmann et al. 2022 found best for compute; a default, not a law
SIZES, SEEDS = 7, 3
BELOW = 3.0  # times below the first transition the sizes begin
FEWEST_DECADES = 1.0
LIKELY = 0.8  # probability from which on a transition counts as one that will be found
CANDIDATES: tuple[tuple[int, ...], ...] = (
    *((2, 4, 6, 9), (3, 6, 9, 12), (4, 8, 12, 16), (6, 9, 12, 18), (6, 12, 18, 24), (6, 12, 18, 24, 30)),
    *((6, 12, 18, 24, 30, 36), (6, 12, 18, 24, 30, 36, 48)),
)
SMALLEST, LARGEST = 1e5, 1e11  # sizes that are looked at
SHARE = 0.9  # of the time that is planned: compiling and evaluating come on top


@dataclass(frozen=True)
class Filled:
    """spec: the sweep. text: its YAML with a heading. seconds: of its training on the device."""

    spec: Spec
    text: str
    seconds: float


_EQUAL_COST = "gives every size the same cost, by which sizes are chosen; allowed: steps, tokens, tokens_per_param"
CHOSEN = {
    "grid.depths": "follows from --hours; allowed: --depths",
    "grid.budgets": "follows from --hours; allowed: other keys",
    "grid.widths": "follows from --hours; allowed: other keys",
    "execution.device": "the time is spent on --device; allowed: that option",
    "train.flops": _EQUAL_COST,
    "train.seconds": _EQUAL_COST,
}
"""Keys that no override of a filled sweep may set, and why."""


def fill(hours: float, device: str, prior: Prior, depths: Sequence[int] = (), overrides: Sequence[str] = ()) -> Filled:
    """The sweep of most use in ``hours`` on one ``device``; ``depths`` fixes its depths, ``overrides`` other keys.

    Raises:
        InputError: an unknown device, depths that are none, overrides that are wrong or set what is chosen here, or a
            time in which nothing could be found.
    """
    found = find(device)
    if found is None:
        raise InputError(f"--device: {device!r} is not in the table; allowed: {suggestion(device)}")
    if not (math.isfinite(hours) and 0 < hours <= 1e6):
        raise InputError(f"--hours: {hours:g}; must be above 0 and at most 1e6")
    wrong = sorted({depth for depth in depths if not 1 <= depth <= 1000})
    if wrong or (depths and len(set(depths)) < 2):
        raise InputError(f"--depths: {', '.join(map(str, depths))}; must be two or more depths from 1 to 1000")
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key in CHOSEN:
            raise InputError(f"--set: {override[:80]!r}; {CHOSEN[key]}")
    candidates = [tuple(sorted(set(depths)))] if depths else CANDIDATES
    # what is wrong with the overrides themselves is wrong at any size
    _seconds(_spec(found.name, hours, candidates[0], SMALLEST, 10 * SMALLEST, overrides))
    tried = [_largest(found.name, hours, each, prior, overrides) for each in candidates]
    known = [candidate for candidate in tried if candidate is not None]
    if not known:
        raise InputError(
            f"--hours: {hours:g} on one {found.name} reach no decade of sizes around a transition; allowed: more hours"
            + (", other --depths, or none" if depths else "")
        )
    filled, _ = max(known, key=lambda pair: pair[1])
    return filled


def _largest(
    device: str, hours: float, depths: tuple[int, ...], prior: Prior, overrides: Sequence[str]
) -> tuple[Filled, tuple[int, float]] | None:
    """The sweep of these depths with the largest sizes that the time allows, and how good it is; None where those do
    not span a decade."""
    low = max(SMALLEST, math.exp(Judge(prior, depths, 1e9).crossings[0]) / BELOW)
    first, last = math.log(low) + FEWEST_DECADES * math.log(10.0), math.log(LARGEST)
    budget = SHARE * 3600 * hours
    try:
        if _seconds(_spec(device, hours, depths, low, math.exp(first), overrides)) > budget:
            return None
    except InputError:  # longer than any run may be
        return None
    for _ in range(18):
        middle = (first + last) / 2
        try:
            fits = _seconds(_spec(device, hours, depths, low, math.exp(middle), overrides)) <= budget
        except InputError:
            fits = False
        first, last = (middle, last) if fits else (first, middle)
    # two digits, downwards: a spec is read by people
    digits = 10 ** (math.floor(first / math.log(10.0)) - 1)
    high = math.floor(math.exp(first) / digits) * digits
    spec = _spec(device, hours, depths, float(f"{low:.2g}"), high, overrides)
    shapes = {(run.shape.depth, run.shape.width) for run in build(spec).runs if run.action != DROP}
    errors = Judge(prior, depths, high).judge(dict.fromkeys(shapes, frozenset(spec.grid.seed_values())))
    likely = sum((pair.power or 0.0) >= LIKELY for pair in errors.pairs)
    seconds = _seconds(spec)
    return Filled(spec, _text(spec, seconds, device, hours), seconds), (likely, -errors.rms)


def _spec(
    device: str, hours: float, depths: Sequence[int], low: float, high: float, overrides: Sequence[str] = ()
) -> Spec:
    return parse_spec(
        {
            "name": f"{device}-{hours:g}h",
            "grid": {
                "depths": list(depths),
                "budgets": {"from": low, "to": high, "count": SIZES},
                "width_multiple": 4,
                "heads": {"count": 2},
                "seeds": SEEDS,
                "learning_rates": [2.0e-3],
            },
            "model": {"parametrization": "completep", "base_depth": 6, "base_width": 128},
            "data": {"source": "tfds:wikipedia/20230601.en", "vocab_size": 1000, "validation_fraction": 0.005},
            "train": {
                "seq_len": 128,
                "batch_size": 256,
                "tokens_per_param": TOKENS_PER_PARAM,
                "warmup_steps": 100,
                "schedule": "cosine",
                "precision": "bfloat16",
            },
            "execution": {"device": device},
        },
        overrides,
    )


def _seconds(spec: Spec) -> float:
    seconds = build(spec).estimates.device_seconds
    if seconds is None:  # the device is in the table
        raise InputError(f"train.precision: {spec.train.precision}; allowed: bfloat16, as in the table of devices")
    return seconds


def _text(spec: Spec, seconds: float, device: str, hours: float) -> str:
    """YAML of what differs from the defaults, with what it is for."""
    content = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return (
        f"# {hours:g} hours of one {device}: {seconds / 3600:.2g} of training at an assumed share of its peak;\n"
        f"# compiling and evaluating come on top. What it would tell: `dwsweep design` on this file.\n"
        f"# Check learning_rates with a small sweep of rates (sweeps/lr-transfer.yaml) before it runs.\n"
        + yaml_numbers.dump(content)
    )
