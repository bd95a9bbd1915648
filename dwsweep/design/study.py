"""Study of a planned sweep: the errors that its runs will leave, and the alternatives that would leave less."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep.cost.arithmetic import training_flops
from dwsweep.design.alternatives import Alternative, alternatives
from dwsweep.design.judge import Errors, Judge
from dwsweep.design.prior import Prior, make_prior
from dwsweep.errors import InputError
from dwsweep.plan import DROP, build
from dwsweep.shapes import Shape
from dwsweep.spec import Spec

LARGEST_TARGET = 1e15  # parameters, more than in any net


@dataclass(frozen=True)
class Study:
    """Result of ``dwsweep design``. FLOPs count planned, unfinished runs."""

    spec: Spec
    prior: Prior
    errors: Errors  # errors of the planned sweep, finished runs included
    runs: int
    flops: int
    alternatives: tuple[Alternative, ...]

    @property
    def halving(self) -> Alternative | None:
        """Cheapest alternative that halves the target's error."""
        good = [a for a in self.alternatives if a.errors.known and a.errors.rms <= self.errors.rms / 2]
        return min(good, key=lambda a: a.flops, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Study as plain values, for ``--json``."""
        return {
            **{"name": self.spec.name, "basis": list(self.prior.basis), "noise": self.prior.noise},
            **{"runs": self.runs, "flops": self.flops, "errors": self.errors.to_dict()},
            "alternatives": [{**vars(a), "errors": a.errors.to_dict()} for a in self.alternatives],
            "cheapest_that_halves": self.halving.name if self.halving else None,
        }


def study(
    spec: Spec, *, fit: str | Path | None = None, noise: float | None = None, target: float | None = None
) -> Study:
    """Judge a planned sweep and search for better ones. fit: a finished round, for its noise, slopes, law and runs.
    noise: nats per run. target: size at which the best depth is wanted; None: the largest of the sweep.

    Raises:
        InputError: a number is out of range, the fit is unreadable, or the sweep has no pair of depths.
    """
    if spec.grid.arms is not None:
        raise InputError("grid.arms: one recipe is judged; allowed: --set grid.arms=null, for the grid that all share")
    rules = spec.grid.head_rules()
    if len(rules) > 1:
        raise InputError(f"grid.heads: {len(rules)} rules; one is judged, allowed: --set 'grid.heads={rules[0]}'")
    prior, done = make_prior(fit, noise)
    if target is not None and not 1e3 < target <= LARGEST_TARGET:
        allowed = f"a number of non-embedding parameters above 1e3 and at most {LARGEST_TARGET:g}"
        raise InputError(f"--target: {target:g}; must be {allowed}")
    plan = build(spec)
    runs = [run for run in plan.runs if run.action != DROP]
    shapes = list(dict.fromkeys(run.shape for run in runs))
    depths = sorted({shape.depth for shape in shapes} | {depth for depth, _ in done})
    if len(depths) < 2:
        raise InputError(f"grid.depths: {depths}; a design needs at least two depths to compare")
    blocks = [shape.n_params / (shape.depth * shape.width**2) for shape in shapes]
    prior = replace(prior, layer_weights=float(np.median(blocks)))
    aim = target or float(max(shape.n_params for shape in shapes))
    judge = Judge(prior, depths, aim, precise=True)

    def costs(shape: Shape) -> int:
        tokens = plan.lengths.total_steps(shape) * plan.lengths.tokens_per_step
        return training_flops(shape, tokens) * len(spec.grid.learning_rates)

    finished = {shape: frozenset(range(n)) for shape, n in done.items()}
    planned, todo = dict(finished), dict[Shape, int]()
    for run in runs:
        key = (run.shape.depth, run.shape.width)
        planned[key] = planned.get(key, frozenset()) | {run.seed}
        todo[run.shape] = len(planned[key] - finished.get(key, frozenset()))
    errors = judge.judge(planned)
    count, flops = sum(todo.values()) * len(spec.grid.learning_rates), sum(costs(one) * n for one, n in todo.items())
    return Study(spec, prior, errors, count, flops, tuple(alternatives(spec, judge, planned, shapes, costs)))
