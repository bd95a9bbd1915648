"""The whole study of a sweep before it is paid for: its errors, what changes would buy, which runs to add."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dwsweep.design.information import LAW_SCATTER, Cells, Errors, Judge, Prior
from dwsweep.design.propose import Alternative, Costs, Proposal, alternatives, candidates, fragments, propose
from dwsweep.errors import InputError
from dwsweep.fit import laws
from dwsweep.fit.guideline import guiding_laws
from dwsweep.plan import DROP, build
from dwsweep.records import fit_result
from dwsweep.records.fit_result import FitResult
from dwsweep.records.fit_rows import references
from dwsweep.spec import Spec

NOISE = 0.003  # ASSUMPTION: nats, sd of one run's loss without what its seed shares with other shapes
SHAPE_RATIO = 0.5  # ASSUMPTION: sd of what all seeds of a shape share off the curve (tuning), in units of the noise
SEED_RATIO = 1.5  # ASSUMPTION: sd of what a seed shares over all shapes, in units of the noise


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
) -> Study:
    """Judge a planned sweep and look for better ones.

    Args:
        spec: the sweep. fit: a finished round (its noise, slopes, law and runs). noise: nats per run.
        target: size at which the best depth is wanted; None: the largest of the sweep.
        proposals: how many runs to propose beyond the planned ones, or, with ``fit``, beyond the finished ones.

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
        found = propose(judge, start, candidates(spec, judge, shapes), costs, count=proposals)
    return Study(
        spec=spec,
        prior=prior,
        errors=errors,
        now=judge.judge(finished) if done else None,
        runs=sum(len(seeds) for seeds in todo.values()) * len(spec.grid.learning_rates),
        flops=sum(costs(shape) * len(seeds) for shape, seeds in todo.items()),
        alternatives=tuple(alternatives(spec, judge, planned, shapes, costs, prior, aim)),
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


def make_prior(fit: str | Path | None, noise: float | None) -> tuple[Prior, dict[tuple[int, int], int]]:
    """The prior, and the finished runs by shape (depth, width) → how many.

    Args:
        fit: a fit's directory or fit.json: its law (or the published one for want of an own), its slopes, its noise,
            and its finished runs. None: the published law, assumed slopes, nothing finished.
        noise: sd of one run in nats; None: measured in the fit, else assumed.

    Raises:
        InputError: a noise that is not positive, or no fit at ``fit``.
    """
    if noise is not None and not 1e-9 <= noise < 10:
        raise InputError(f"--noise: {noise}; must be nats above 0 (1e-9) and below 10, such as 0.003")
    found = fit_result.read(fit) if fit is not None else None
    law = guiding_laws(found)[0] if found else laws.published()
    basis = [f"law: {law.name}"]
    slopes = {
        (row.shallow, row.deep): row.slope_difference
        for row in references(found.transitions if found else ())
        if row.status == "crossed" and row.slope_difference is not None and row.slope_difference > 0
    }
    if slopes:
        basis.append("slopes: measured at " + ", ".join(f"{a}/{b}" for a, b in sorted(slopes)) + ", else ASSUMED")
    else:
        basis.append("slopes: ASSUMED, 0.025·(L/6)^−2.1 nats per ln N and layer, from public data at depths 4 to 24")
    measured = _measured_noise(found)
    if noise is not None:
        sigma = noise
        basis.append(f"noise: {sigma:g} nats per run, as given")
    elif measured is not None:
        sigma = measured
        basis.append(f"noise: {sigma:.2g} nats per run, measured in the fit")
    else:
        sigma = NOISE
        basis.append(f"noise: {sigma:g} nats per run, ASSUMED; give --noise, or --fit with runs of several seeds")
    if found is not None and found.noise.shape_sd is not None:
        shape_sd = found.noise.shape_sd
        basis.append(f"noise of a shape, which seeds do not average out: {shape_sd:.2g} nats, measured in the fit")
    else:
        shape_sd = SHAPE_RATIO * sigma
        basis.append(f"noise of a shape, which seeds do not average out: {shape_sd:.2g} nats, ASSUMED")
    basis.append(f"scatter of true transitions about any law: {LAW_SCATTER:g} in ln N, ASSUMED")
    cells = found.cells if found else []
    done = {(cell.depth, int(cell.width)): cell.n for cell in cells if cell.n and not cell.excluded}
    return Prior(law, slopes, sigma, SEED_RATIO * sigma, shape_sd, tuple(basis)), done


def _measured_noise(fit: FitResult | None) -> float | None:
    """Root mean square over depths of the fit's noise of one run."""
    values = [sigma for sigma in (fit.noise.sigma or {}).values() if sigma] if fit else []
    return float(np.sqrt(np.mean(np.square(values)))) if values else None
