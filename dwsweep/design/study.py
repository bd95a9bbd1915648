"""Study of a planned sweep: the errors that its runs will leave, and the alternatives that would leave less."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep.cost.arithmetic import training_flops
from dwsweep.design.alternatives import alternatives, first_seeds
from dwsweep.design.expected_fit import Planned
from dwsweep.design.judge import Errors, judge
from dwsweep.design.prior import AssumedTruth, make_prior
from dwsweep.errors import InputError
from dwsweep.plan import DROP, build
from dwsweep.records.record import to_dict
from dwsweep.spec import Spec

LARGEST_TARGET = 1e15  # parameters, more than in any net


@dataclass(frozen=True)
class StudiedDesign:
    """Design: the runs and the FLOPs that it adds to what is there, and the errors that all of them leave."""

    name: str
    runs: int
    flops: int
    errors: Errors


@dataclass(frozen=True)
class Study(StudiedDesign):
    """Result of ``dwsweep design``: the planned sweep, whose finished runs count, and changes of it."""

    prior: AssumedTruth
    alternatives: tuple[StudiedDesign, ...]

    def to_dict(self) -> dict[str, Any]:
        """Study as plain values, for ``--json``."""
        prior = {"basis": list(self.prior.basis), "noise": self.prior.noise}
        return prior | {name: value for name, value in to_dict(self).items() if name != "prior"}


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
    seeds = spec.grid.seed_values()  # those of finished runs are not recorded
    finished = {shape: first_seeds(seeds, n) for shape, n in done.items()}
    planned, block, rates = dict(finished), spec.block(), len(spec.grid.learning_rates)
    for run in runs:
        key = (run.shape.depth, run.shape.width)
        planned[key] = planned.get(key, frozenset()) | {run.seed}

    def design(name: str, cells: Planned, before: Planned) -> StudiedDesign:
        """Design of ``cells``, of which those of ``before`` cost nothing."""
        count = flops = 0
        for key, seeds in cells.items():
            if added := rates * len(seeds - before.get(key, frozenset())):
                shape = block.shape(*key)
                tokens = plan.lengths.total_steps(shape) * plan.lengths.tokens_per_step
                count, flops = count + added, flops + added * training_flops(shape, tokens)
        return StudiedDesign(name, count, flops, judge(prior, cells, aim, precise=True))

    found = design(spec.name, planned, finished)
    changed = alternatives(spec, planned, shapes, found.errors)
    return Study(**vars(found), prior=prior, alternatives=tuple(design(*one, planned) for one in changed))
