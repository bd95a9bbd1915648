"""Next runs of a heap against six nets by rule: how narrow the best depth at a size becomes, promised and reached.

``python -m tests.simulations.next_runs --out DIR [--n 40] [--processes 1] [SCENARIO …]``

A heap of 30 runs (``heaps``) is fitted and asked for six nets at a size. They are trained by the truth, and the heap is
fitted anew with them. The rule beside it has sizes from N/16 to 1.5·N at even steps of ln N, at depths 1.6 times
shallower and deeper in turn than the heap's own best depth there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from dwsweep.fit import ask
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.table import read_table
from dwsweep.fit.heap import Heap, heap_of
from dwsweep.fit.next_runs import LEAST, MOST, next_runs
from tests.simulations.harness import OPTIONS, Simulated, Study, mean, median, rms
from tests.simulations.heaps import Pile

RUNS, FACTOR = 6, 1.6


@dataclass(frozen=True)
class Question:
    """A heap, and the size that is asked for."""

    pile: Pile
    n_params: float


SCENARIOS = {
    "inside, 5e7": Question(Pile(runs=30, rates=False), 5e7),
    "outside, 3e8": Question(Pile(runs=30, rates=False), 3e8),
    "heads follow, 3e8": Question(Pile(runs=30, rates=False, follows=-0.85), 3e8),
}


@dataclass(frozen=True, kw_only=True)
class Line(Simulated):
    """sds of ln of the best depth: before, promised, reached by the proposal, reached by the rule. errors: of ln of the
    best depth after either. spent: 6·N·20·N FLOPs of the proposal over those of the rule."""

    sds: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    spent: float = 0.0


def answer(found: Heap, n: float) -> tuple[float, float]:
    """(median, sd) of ln of the best depth."""
    posterior = ask.LossSurface(found.surface).posterior  # type: ignore[arg-type]
    drawn = np.clip(ask.best_depths(posterior, math.log(n)), posterior.grid[0], posterior.grid[-1])
    return float(np.median(drawn)), float(drawn.std())


def held_of(found: Heap) -> tuple[int, float]:
    """(head size, d_ff / d) that the heap's answer is for."""
    held = {one.name: float(one.held.split()[-1]) for one in found.record.columns}
    return round(held.get("head size", 64.0)), held.get("d_ff / d", 4.0)


def ruled(found: Heap, n: float) -> list[tuple[int, int]]:
    posterior = ask.LossSurface(found.surface).posterior  # type: ignore[arg-type]
    head, ratio = held_of(found)
    nets, block = [], 4.0 + 2.0 * ratio
    for k, size in enumerate(np.geomspace(LEAST * n, MOST * n, RUNS)):
        drawn = ask.best_depths(posterior, math.log(size))
        depth = max(1, round(math.exp(float(np.median(drawn[np.isfinite(drawn)]))) * FACTOR ** (1 if k % 2 else -1)))
        nets.append((depth, head * max(1, round(math.sqrt(size / block / depth) / head))))
    return nets


def trained(pile: Pile, found: Heap, nets: Iterable[tuple[int, int]], rng: np.random.Generator) -> list[Row]:
    """The nets at the held head size and inner width."""
    (size, ratio), rows = held_of(found), []
    for depth, width in nets:
        heads = max(1, round(width / size))
        n = depth * width * (4.0 * heads * size + 2.0 * ratio * width)
        loss = pile.level(n) + float(pile.shape(n, np.array(depth))[0]) + rng.normal(0.0, pile.sigma)
        loss += pile.heads * math.log(size / 64.0) + pile.inner * math.log(ratio / 4.0)
        row = {"depth": depth, "width": width, "heads": heads, "head_size": size}
        rows.append({**row, "d_ff": round(ratio * width), "loss": loss})
    return rows


def simulate(question: Any, rng: np.random.Generator, index: int) -> Line:
    """One heap, its proposal and the rule."""
    pile, n = question.pile, question.n_params
    rows = pile.rows(rng)
    found = heap_of(read_table([dict(row) for row in rows]), OPTIONS)
    if found is None or found.surface is None:
        return Line(index=index)
    proposed = next_runs(SimpleNamespace(surface=found.surface, adjusted=found.record, cells=()), n, RUNS)  # type: ignore[arg-type]
    nets = [(row.depth, row.width) for row in proposed.runs]
    rule = ruled(found, n)
    sds, errors = [answer(found, n)[1], proposed.runs[-1].ln_depth_sd], []
    for chosen in (nets, rule):
        more = heap_of(read_table([*map(dict, rows), *trained(pile, found, chosen, rng)]), OPTIONS)
        assert more
        middle, sd = answer(more, n)
        sds.append(sd)
        errors.append(middle - math.log(pile.best(n)))
    spent = [sum((12.0 * d * w * w) ** 2 for d, w in chosen) for chosen in (nets, rule)]
    return Line(index=index, sds=sds, errors=errors, spent=spent[0] / spent[1])


def cells(name: str, lines: Sequence[Line]) -> Iterable[Sequence[str]]:
    """Medians of the four standard deviations, and root mean squares of the errors."""
    kept = [line for line in lines if line.sds]
    before, promised, reached, rule = (f"{median(line.sds[k] for line in kept) or 0.0:.3f}" for k in range(4))
    a, b = (f"{rms(line.errors[k] for line in kept) or 0.0:.3f}" for k in range(2))
    ahead = mean(line.sds[2] < line.sds[3] for line in kept) or 0.0
    cost = median(line.spent for line in kept) or 0.0
    yield (name, str(len(kept)), before, promised, reached, rule, f"{100 * ahead:.0f} %", a, b, f"{cost:.2f}")


HEAD = "scenario | heaps | sd before | promised | reached | by the rule | narrower than the rule | error | by the rule"

STUDY = Study(
    doc=__doc__,
    scenarios=SCENARIOS,
    simulate=simulate,
    kind=Line,
    n=40,
    head=f"{HEAD} | FLOPs over the rule's",
    cells=cells,
)

if __name__ == "__main__":
    STUDY.main()
