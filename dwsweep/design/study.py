"""The whole study of a sweep before it is paid for: its errors, what changes would buy, which runs to add."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep.design.information import Cells, Errors, Judge
from dwsweep.design.prior import Prior, make_prior
from dwsweep.design.propose import Costs, Proposal, candidates, fragments, propose
from dwsweep.errors import InputError
from dwsweep.plan import DROP, build
from dwsweep.shapes import Shape, match_width
from dwsweep.spec import Spec


@dataclass(frozen=True)
class Alternative:
    """A change to the sweep, with what it costs and leaves."""

    name: str
    runs: int
    flops: int
    errors: Errors


@dataclass(frozen=True)
class Study:
    """What ``dwsweep design`` says. FLOPs are of the runs that are planned and not finished."""

    spec: Spec
    prior: Prior
    errors: Errors  # of the sweep as planned, with what is finished
    now: Errors | None  # of what is finished alone
    runs: int
    flops: int
    alternatives: tuple[Alternative, ...]
    proposals: tuple[Proposal, ...]
    proposed: Errors | None  # after the proposals
    fragments: tuple[Spec, ...]
    uniform: tuple[tuple[int, float], ...]  # (FLOPs, rms) of further seeds on every shape that the proposals start from

    @property
    def halving(self) -> Alternative | None:
        """The cheapest alternative that halves the target's error."""
        good = [a for a in self.alternatives if a.errors.rms <= self.errors.rms / 2]
        return min(good, key=lambda a: a.flops, default=None)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
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
            "proposals": [
                {
                    "depth": p.shape.depth,
                    "width": p.shape.width,
                    "n_params": p.shape.n_params,
                    "seed": p.seed,
                    "flops": p.flops,
                    "rms_after": p.rms_after if self.errors.se_a is not None else None,
                }
                for p in self.proposals
            ],
            "proposed": self.proposed.to_dict() if self.proposed else None,
            "uniform": [{"flops": flops, "rms": rms} for flops, rms in self.uniform],
            "fragments": [fragment.to_yaml() for fragment in self.fragments],
        }


def study(
    spec: Spec,
    *,
    fit: str | Path | None = None,
    noise: float | None = None,
    target: float | None = None,
    proposals: int = 0,
    on_step: Callable[[int], None] | None = None,
) -> Study:
    """Judge a planned sweep and look for better ones.

    Args:
        spec: the sweep. fit: a finished round (its noise, slopes, law and runs). noise: nats a run.
        target: size at which the best depth is wanted; None: the largest of the sweep.
        proposals: how many runs to propose beyond the planned ones, or, with ``fit``, beyond the finished ones.
        on_step: called with the number of proposals found so far.

    Raises:
        InputError: wrong numbers, an unreadable fit, or a sweep without a pair of depths.
    """
    prior, done = make_prior(fit, noise)
    if proposals < 0:
        raise InputError(f"--propose: {proposals}; must be 0 or more")
    if target is not None and not (math.isfinite(target) and target > 1e3):
        raise InputError(f"--target: {target}; must be a number of non-embedding parameters above 1e3")
    runs = [run for run in build(spec).runs if run.action != DROP]
    shapes = list(dict.fromkeys(run.shape for run in runs))
    depths = sorted({shape.depth for shape in shapes} | {depth for depth, _ in done})
    if len(depths) < 2:
        raise InputError(f"grid.depths: {depths}; a design needs at least two depths to compare")
    aim = target or float(max(shape.n_params for shape in shapes))
    judge, costs = Judge(prior, depths, aim), Costs(spec)
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
    found: list[Proposal] = []
    start: Cells = planned if not done else finished
    if proposals:
        found = propose(judge, start, candidates(spec, judge, shapes), costs, count=proposals, on_step=on_step)
    return Study(
        spec=spec,
        prior=prior,
        errors=errors,
        now=judge.judge(finished) if done else None,
        runs=sum(len(seeds) for seeds in todo.values()) * len(spec.grid.learning_rates),
        flops=sum(costs(shape) * len(seeds) for shape, seeds in todo.items()),
        alternatives=tuple(_alternatives(spec, judge, planned, shapes, costs, prior, aim)),
        proposals=tuple(found),
        proposed=judge.judge(_added(start, found)) if found else None,
        fragments=tuple(fragments(spec, found)) if found else (),
        uniform=tuple(_uniform(judge, start, spec, costs)) if found else (),
    )


def _uniform(judge: Judge, start: Cells, spec: Spec, costs: Costs) -> list[tuple[int, float]]:
    """What one, two, … further seeds on every shape cost and leave: the plain way to spend what the proposals spend."""
    block = spec.block()
    price = sum(costs(block.shape(*key)) for key in start)
    found = [(0, judge.rms(start))]
    for extra in (1, 2, 3, 5, 8):
        cells = {key: seeds | frozenset(range(len(seeds) + extra)) for key, seeds in start.items()}
        found.append((extra * price, judge.rms(cells)))
    return found


def _added(cells: Cells, proposals: list[Proposal]) -> dict[tuple[int, int], frozenset[int]]:
    added = dict(cells)
    for proposal in proposals:
        key = (proposal.shape.depth, proposal.shape.width)
        added[key] = added.get(key, frozenset()) | {proposal.seed}
    return added


def _alternatives(
    spec: Spec, judge: Judge, planned: Cells, shapes: list[Shape], costs: Costs, prior: Prior, target: float
) -> list[Alternative]:
    """More seeds, more widths, wider ranges, more depths; FLOPs of what each adds to the plan."""
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
        judged = (judge if depths is None else Judge(prior, depths, target)).judge(cells)
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
        f"{2 * n_widths - 1} widths a depth instead of {n_widths}", _between(judge.depths, planned, block, multiple)
    )
    step = (high - low) / max(n_widths - 1, 1)
    if max(judge.crossings) > high - step:
        stop = max(max(judge.crossings) + step, high + step)
        extra = math.ceil((stop - high) / step)
        consider(f"sizes up to {math.exp(stop):.2g}", grid(judge.depths, high + step, high + extra * step, extra))
    if min(judge.crossings) < low + step:
        consider(f"sizes down to {math.exp(low - 2 * step):.2g}", grid(judge.depths, low - 2 * step, low - step, 2))
    deeper = judge.depths[-1] + (judge.depths[-1] - judge.depths[-2])
    consider(f"depth {deeper} too", grid([deeper], low, high, n_widths), [*judge.depths, deeper])
    return found


def _between(depths: list[int], planned: Cells, block: Any, multiple: int) -> dict[tuple[int, int], frozenset[int]]:
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
