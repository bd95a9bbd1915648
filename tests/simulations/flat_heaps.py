"""Heaps of 700 noisy nets, of the design of a public table of protein encoders, whose best depth is known.

``python -m tests.simulations.flat_heaps --out DIR [--n 60] [--processes 2] [SCENARIO …]``

Depths 6 to 28, few of the deepest; heads grow with depth; widths are 8 to 64 times the heads; four ratios of d_ff;
noise of a run 0.006 nats, more than depths near the best one differ by. None of the truths is of the model's family:

    cubic      a parabola in ln L with a cubic part, whose least loss is at 13.5 layers of 1.1M and 19 of 16M
    flat       a bottom that is flat within a factor of 1.3 of 14 layers of 1.1M and 23 of 16M: over 18 to 30 layers
               the loss changes by 0.0003 nats
    departing  the parabola, with departures and interactions drawn as in ``heaps``
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dwsweep.fit.analysis import fit_options
from dwsweep.fit.ask import LossSurface
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.table import read_table
from dwsweep.fit.heap import heap_of
from dwsweep.text import join
from tests.simulations.harness import CONFIDENCE, Simulated, Study, at_sizes, rms
from tests.simulations.heaps import Drawn

SIZES = (1.1e6, 5.4e6, 1.6e7)
LARGEST = 4.0e7
HEADS = {
    **{6: (4,), 8: (4, 6), 10: (4, 6, 8), 12: (4, 6, 8), 14: (4, 6, 8, 12), 16: (4, 6, 8, 12)},
    **{18: (8, 12, 16), 20: (8, 12, 16), 22: (12, 16), 24: (12, 16), 26: (16,), 28: (16,)},
}
WIDTHS = {4: 8, 6: 8, 8: 8, 12: 7, 16: 5}  # widths of a count of heads, in steps of 8·heads
FEWER = {26: (1, 2, 4), 28: (1, 2, 4)}  # the widths of these depths
RATIOS = (0.5, 1.0, 1.5, 2.0)
EFFECT = 0.023  # root mean square of depth effects within a factor of two in depth and of e in size, nats
HALF = math.log(30.0 / 18.0) / 2.0


@dataclass(frozen=True)
class Truth:
    """power: of the best depth in N, which is ``at`` at 1.1M. bowl: of ln L less its best value, nats: quadratic and
    cubic coefficients. flat: half width of the flat bottom, in ln L; wall: slope of the loss at its ends, nats. drawn:
    departures."""

    at: float
    power: float
    quadratic: float
    cubic: float = 0.0
    flat: float = 0.0
    wall: float = 0.0
    public: bool = False
    drawn: Drawn | None = None
    sigma: float = 0.006

    def shape(self, n: float, y: np.ndarray, away: float) -> np.ndarray:
        """(G,) effect of ln depth y at a size and at a ratio of d_ff ``away``, in ln, from 2, nats."""
        from_best = y - math.log(self.at * (n / SIZES[0]) ** self.power)
        if self.flat:
            outside = np.maximum(np.abs(from_best) - self.flat, 0.0)
            bowl = self.quadratic * outside**2 + self.wall * outside + 0.0003 * (from_best / self.flat) ** 2
        else:
            bowl = self.quadratic * from_best**2 + self.cubic * np.clip(from_best, -1.0, 1.0) ** 3
        found: np.ndarray = bowl + 0.011 * away * from_best
        if self.drawn:
            found = found + self.drawn.departure(n, y, np.hypot(EFFECT, np.maximum(bowl, 0.0)))
        return found

    def loss(self, n: float, depth: float, ratio: float) -> float:
        away, ln = math.log(ratio / 2.0), math.log(n / 3e6)
        level = 0.83 + 0.7 * math.exp(-0.2 * ln) + away * (-0.008 + 0.006 * away - 0.005 * ln)
        return level + float(self.shape(n, np.array([math.log(depth)]), away)[0])

    def best(self, n: float, ratio: float) -> float:
        """Depth of least loss, in layers."""
        y = np.linspace(math.log(4.0), math.log(80.0), 4001)
        return float(np.exp(y[self.shape(n, y, math.log(ratio / 2.0)).argmin()]))

    def rows(self, rng: np.random.Generator) -> list[Row]:
        found = []
        for depth, counts in HEADS.items():
            for heads in counts:
                for step in FEWER.get(depth, range(1, WIDTHS[heads] + 1)):
                    for ratio in RATIOS:
                        width = 8 * heads * step
                        n = depth * width**2 * (4.0 + 2.0 * ratio)
                        if n <= LARGEST:
                            loss = self.loss(n, depth, ratio) + rng.normal(0.0, self.sigma)
                            row = {"depth": depth, "width": width, "heads": heads, "d_ff": round(ratio * width)}
                            found.append({**row, "loss": loss})
        return found


SCENARIOS = {
    "cubic": Truth(13.5, 0.128, 0.046, -0.006),
    "flat": Truth(13.8, 0.194, 0.052, flat=HALF, wall=0.0195),
    "departing": Truth(13.75, 0.122, 0.046, public=True),
}


@dataclass(frozen=True, kw_only=True)
class Line(Simulated):
    """best: (value, low, high) at each of ``SIZES``, in layers. truth: best depths."""

    best: list[tuple[float | None, float | None, float | None]] = field(default_factory=list)
    truth: list[float] = field(default_factory=list)


def simulate(truth: Any, rng: np.random.Generator, index: int) -> Line:
    """One heap, in which heads follow depth."""
    while truth.public:
        drawn = replace(truth, drawn=Drawn.of(rng))
        if all(abs(math.log(drawn.best(n, 2.0) / truth.best(n, 2.0))) < math.log(2.0) for n in SIZES):
            truth = drawn
            break
    heap = heap_of(read_table(truth.rows(rng)), fit_options(no_adjust=["heads"]))
    assert heap and heap.surface
    surface, ratio = LossSurface(heap.surface), float(heap.record.columns[0].held.split()[-1])
    best = [(found.value, found.low, found.high) for found in map(surface.at, SIZES)]
    return Line(index=index, best=best, truth=[truth.best(n, ratio) for n in SIZES])


def cells(name: str, lines: Sequence[Line]) -> Iterable[Sequence[str]]:
    """Coverage at each size, median widths in ln L, errors of ln L*, and upper ends at the largest size."""
    errors = [[math.log(v / t) if v else None for (v, _, _), t in zip(e.best, e.truth, strict=True)] for e in lines]
    root = [rms(row[k] for row in errors if row[k] is not None) or math.nan for k in range(len(SIZES))]
    ends = np.quantile([line.best[-1][2] or math.inf for line in lines], [0.1, 0.5, 0.9], method="nearest")
    yield (
        name,
        str(len(lines)),
        *at_sizes([line.best for line in lines], [line.truth for line in lines]),
        join([f"{error:.3f}" for error in root]),
        join([f"{end:.0f}" for end in ends]),
    )


STUDY = Study(
    doc=__doc__,
    scenarios=SCENARIOS,
    simulate=simulate,
    kind=Line,
    n=60,
    head=f"scenario | heaps | {100 * CONFIDENCE:g} % hold at 1.1M, 5.4M, 16M | ln(high/low) | rms error of ln L* | "
    "upper ends at 16M (10, 50, 90 %), layers",
    cells=cells,
)

if __name__ == "__main__":
    STUDY.main()
