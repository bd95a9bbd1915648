"""The whole study of a sweep before it is paid for: its errors, and what changes would buy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dwsweep.design.alternatives import Alternative, Costs, alternatives
from dwsweep.design.information import Errors, Judge
from dwsweep.design.prior import Prior, make_prior
from dwsweep.errors import InputError
from dwsweep.plan import DROP, build
from dwsweep.spec import Spec

NO_PROPOSAL = (
    "No single runs are proposed: in simulated sweeps, runs picked for their gain per FLOP left the best depth no "
    "better known than evenly spaced sizes of equal FLOPs. What changes of the whole grid would buy stands above."
)


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
    no_proposal: str  # why no single runs are proposed, where they were asked for

    @property
    def halving(self) -> Alternative | None:
        """The cheapest alternative that halves the target's error."""
        good = [a for a in self.alternatives if a.errors.known and a.errors.rms <= self.errors.rms / 2]
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
            "proposals": [],
            "proposed": None,
            "no_proposal": self.no_proposal,
            "uniform": [],
            "fragments": [],
        }


def study(
    spec: Spec,
    *,
    fit: str | Path | None = None,
    noise: float | None = None,
    target: float | None = None,
    proposals: int = 0,
) -> Study:
    """Judge a planned sweep and look for better ones.

    Args:
        spec: the sweep. fit: a finished round (its noise, slopes, law and runs). noise: nats per run.
        target: size at which the best depth is wanted; None: the largest of the sweep.
        proposals: how many runs are asked for; there are none, and the study says why.

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
    return Study(
        spec=spec,
        prior=prior,
        errors=errors,
        now=judge.judge(finished) if done else None,
        runs=sum(len(seeds) for seeds in todo.values()) * len(spec.grid.learning_rates),
        flops=sum(costs(shape) * len(seeds) for shape, seeds in todo.items()),
        alternatives=tuple(alternatives(spec, judge, planned, shapes, costs, prior, aim)),
        no_proposal=NO_PROPOSAL if proposals else "",
    )
