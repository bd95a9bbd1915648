"""Checks of the evidence: predictions of sources left out one by one or by size, and simulated collections.

``python -m tests.simulations.evidence_check FILE.yaml`` prints how the sources foretell a further source and what it
would change. A score is the mean logarithm of the density
that the rest gives to an answer ln L*, its own error included; an answer is covered if it lies inside the rest's 95 %.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist

import numpy as np

from dwsweep.evidence.random_effects import CENTRE, Population, Quantity, Recipe, depth_population, recipe
from dwsweep.evidence.summary import Evidence, read, summarised

TRAINED_TO = 6e8  # largest size in the law's data, non-embedding
SIMULATED = {"power": 0.0, "between": 0.5, "logarithm": 1.0}  # name → bend of the truth
TRIED_AT = (1e6, 5e7, 3e8, 1.5e9, 7e9, 7e10)  # N at which a further source changes the answer
COLLECTIONS, SIZES = 50, (7e9, 7e10)
TRUTH = {"slope": 0.40, "level": 2.9, "offset": 0.28, "own_slope": 0.15, "local": 0.1}
PHI = NormalDist()


@dataclass(frozen=True)
class Foretold:
    """Prediction of one answer of a source by other sources. low, high: 95 % of L*, with the answer's error."""

    name: str
    n_params: float
    depth: float
    low: float
    high: float
    ln_density: float

    @property
    def covered(self) -> bool:
        return self.low <= self.depth <= self.high


def foretold(everyone: Population, source: Evidence, which: Sequence[int], known: Quantity | None) -> list[Foretold]:
    """Answers ``which`` of a source, predicted for a new recipe, or for its own if some answers are ``known``."""
    rows, own, found = Recipe(everyone, np.zeros(len(everyone)), known), source.depth, []
    for k in which:
        mean, sd = rows.moments(own.x[k], own.t[k])
        sd = np.hypot(sd, math.sqrt(own.covariance[k][k]))
        density = np.exp(-0.5 * ((own.value[k] - mean) / sd) ** 2) / (sd * math.sqrt(2.0 * math.pi))
        low, high = (_quantile(mean, sd, share) for share in (0.025, 0.975))
        depth, low, high = (math.exp(value) for value in (own.value[k], low, high))
        found.append(Foretold(source.name, own.n_params[k], depth, low, high, math.log(density.mean())))
    return found


def _quantile(mean: np.ndarray, sd: np.ndarray, share: float) -> float:
    """Quantile of a mixture of normals, by bisection."""
    low, high = float((mean - 6.0 * sd).min()), float((mean + 6.0 * sd).max())
    for _ in range(50):
        middle = (low + high) / 2.0
        below = np.mean([PHI.cdf(z) for z in ((middle - mean) / sd).tolist()])
        low, high = (middle, high) if below < share else (low, middle)
    return (low + high) / 2.0


def measured(source: Evidence) -> list[int]:
    """Answers from nets trained for comparison, without built models and without the law beyond its sizes."""
    if source.kind == "built":
        return []
    return [k for k, n in enumerate(source.depth.n_params) if source.kind != "law" or n <= TRAINED_TO]


def leave_one_out(sources: Sequence[Evidence]) -> list[Foretold]:
    """Predictions of every measured answer of each source by all other sources."""
    found = []
    for source in sources:
        rest = depth_population([other.depth for other in sources if other is not source])
        found += foretold(rest, source, measured(source), None)
    return found


def leave_largest_out(sources: Sequence[Evidence], below: float) -> list[Foretold]:
    """Predictions of every answer above a size by all answers up to it, the same source included."""
    parts = {s.name: [k for k, n in enumerate(s.depth.n_params) if n <= below] for s in sources}
    kept = {s.name: among(s.depth, parts[s.name]) for s in sources if parts[s.name]}
    everyone, found = depth_population(kept.values()), []
    for source in sources:
        larger = [k for k in range(len(source.depth)) if k not in parts[source.name]]
        found += foretold(everyone, source, larger, kept.get(source.name))
    return found


def among(found: Quantity, kept: Sequence[int]) -> Quantity:
    """Estimates at the indices ``kept``."""
    n, tokens, value = (
        tuple(column[k] for k in kept) for column in (found.n_params, found.tokens_per_param, found.value)
    )
    return Quantity(n, tokens, value, tuple(tuple(found.covariance[k][j] for j in kept) for k in kept))


def simulated(sources: Sequence[Evidence], bend: float, collections: int = COLLECTIONS) -> dict[float, float]:
    """Coverage by size: share of simulated collections whose 95 % interval of a new best depth holds the truth.

    A collection has the sizes, tokens and errors of the real sources; its truth has the given bend, and recipes that
    differ by ``TRUTH``.
    """
    rng = np.random.default_rng(11)
    inside = dict.fromkeys(SIZES, 0)
    one = {name: np.array([value]) for name, value in TRUTH.items()}
    truth = Population(np.array([bend]), one["slope"], one["level"], np.array([0.05]), *list(one.values())[2:])
    for _ in range(collections):
        made = [replace(source, depth=_drawn(truth, source.depth, rng)) for source in sources]
        answer = recipe(depth_population([source.depth for source in made]))
        for n in SIZES:
            x = math.log(n) - CENTRE
            new = truth.mean(x, 0.0)[0, 0] + _departure(truth, np.array([x]), rng)[0]
            low, high = np.quantile(answer.at(x), [0.025, 0.975])
            inside[n] += bool(low <= new <= high)
    return {n: count / collections for n, count in inside.items()}


def _departure(truth: Population, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.multivariate_normal(np.zeros(len(x)), truth.covariance(x, x)[0], method="eigh", check_valid="ignore")


def _drawn(truth: Population, like: Quantity, rng: np.random.Generator) -> Quantity:
    """Simulated estimates of a new recipe at the sizes, tokens and errors of another."""
    errors = rng.multivariate_normal(
        np.zeros(len(like)), np.array(like.covariance), method="eigh", check_valid="ignore"
    )
    value = truth.mean(like.x, like.t)[0] + _departure(truth, like.x, rng) + errors
    return replace(like, value=tuple(value.tolist()))


def tried(sources: Sequence[Evidence], source: Evidence) -> Iterator[str]:
    """Lines of a trial: each answer of ``source`` beside the other sources' forecast of it, then the change of the
    summary if ``source`` is added."""
    rest = [other for other in sources if other.name != source.name]
    everyone = depth_population([other.depth for other in rest])
    yield f"| answers of {source.name} | its own | the rest's 95 % | covered | log score |"
    yield "| --- | --- | --- | --- | --- |"
    rows = foretold(everyone, source, range(len(source.depth)), None)
    for k, row in enumerate(rows):
        sd = math.sqrt(source.depth.covariance[k][k])
        own = f"{row.depth:.1f} ÷× {math.exp(2.0 * sd):.2f}"
        size = f"N = {row.n_params:.1e}, {source.depth.tokens_per_param[k]:.3g} tokens each".replace("e+0", "e")
        yield f"| {size} | {own} | {row.low:.1f} to {row.high:.1f} | {row.covered} | {row.ln_density:+.2f} |"
    if not rows:
        yield "| none: its losses bound a best depth at no size | | | | |"
    yield ""
    before, after = recipe(everyone), recipe(depth_population([other.depth for other in (*rest, source)]))
    yield "| N | best depth without it | with it |"
    yield "| --- | --- | --- |"
    for n in TRIED_AT:
        ends = (np.quantile(one.at(math.log(n) - CENTRE), [0.5, 0.025, 0.975]) for one in (before, after))
        cells = (f"{middle:.1f} ({low:.1f} to {high:.1f})" for middle, low, high in map(np.exp, ends))
        yield f"| {n:.0e} | ".replace("e+0", "e").replace("e+", "e") + " | ".join(cells) + " |"


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        print("\n".join(tried(read(), summarised(file))), flush=True)
