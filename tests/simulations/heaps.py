"""Heaps of runs whose best depth is known: settings that differ at random, that follow depth, and that do nothing.

``python -m tests.simulations.heaps --out DIR [--n 100] [--processes 2] [SCENARIO …]``

Nets are a Latin hypercube over ln N and ln L. The loss has a parabola in ln rate whose lowest point follows the width,
and effects of the head size and of d_ff over d. What can be told apart is a property of the design, not of the fit:

    separable      the head size is drawn without regard to depth
    partly         ln head size follows ln L with r = −0.85: both readings are owed, and either verdict is right
    inseparable    head size = 640 / L but for 5 %: at equal size ln L has less than a hundredth of its variance left

A fit that says "this table cannot tell depth from head size", or that the head size follows the shape, has said so.

A truth that is a parabola in ln L departs from no form. Public sweeps do, and so does the prior of the model:
"departing" adds a wave in ln L and ln N of that size, whose phase each heap draws. "Bent" adds a wave in ln N to the
level. Losses of the best net at 2 and at 10 times the largest size are foretold too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dwsweep.fit.ask import LossSurface
from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.table import read_table
from dwsweep.fit.heap import Heap, heap_of
from dwsweep.text import join
from tests.simulations.harness import CONFIDENCE, OPTIONS, Simulated, Study, covers, rms

SIZES = (1.0e7, 3.0e7, 1.0e8)
SPAN = (4.0e6, 2.0e8)
BEYOND = (4.0e8, 2.0e9)  # sizes whose loss is foretold: 2 and 10 times the largest one
DEPTHS = (4, 6, 8, 10, 12, 16, 20, 24, 32)


@dataclass(frozen=True)
class Pile:
    """runs: of the hypercube. follows: correlation of ln head size with ln depth. tied: head size is 640 over depth,
    but for 5 %. heads, inner: nats per unit of ln head size and of ln (d_ff / 4d); rate: curvature in ln rate, nats.
    rates: whether they differ at all. departs, bends: nats, root mean square of the waves of depth effects and of the
    level; phase: of both."""

    runs: int = 40
    follows: float = 0.0
    tied: bool = False
    heads: float = 0.01
    inner: float = 0.01
    rate: float = 0.03
    rates: bool = True
    sigma: float = 0.003
    departs: float = 0.0
    bends: float = 0.0
    phase: float = 0.0

    @property
    def design(self) -> str:
        return "inseparable" if self.tied else "partly" if self.follows else "separable"

    def best(self, n: float) -> float:
        return 17.8 * (n / 3e7) ** 0.25

    def shape(self, n: float, depth: np.ndarray) -> np.ndarray:
        """Loss of depths at a size beside its level, nats."""
        y, wave = np.log(depth), 1.25 * np.log(depth) + 0.4 * math.log(n) + self.phase
        found: np.ndarray = 0.06 * (y - math.log(self.best(n))) ** 2 + self.departs * math.sqrt(2.0) * np.sin(wave)
        return found

    def level(self, n: float) -> float:
        bend = self.bends * math.sqrt(2.0) * math.sin(0.8 * math.log(n / 3e7) + self.phase)
        return 1.8 + 1.9 * (n / 3e7) ** -0.14 + bend

    def truth(self, n: float) -> float:
        """Best depth that the fit owes: at the held head size, or of nets in which it follows depth where it is one
        variable with it, with a head size of 640 / L there."""
        depth = np.geomspace(1.0, 128.0, 4001)
        return float(depth[np.argmin(self.shape(n, depth) - (self.heads * np.log(depth) if self.tied else 0.0))])

    def rows(self, rng: np.random.Generator) -> list[Row]:
        place = np.stack([(rng.permutation(self.runs) + rng.random(self.runs)) / self.runs for _ in range(2)])
        found = []
        spread = math.log(DEPTHS[-1] / DEPTHS[0]) / math.sqrt(12.0)
        for a, b in place.T:
            depth = min(DEPTHS, key=lambda d: abs(math.log(d / (DEPTHS[0] * (DEPTHS[-1] / DEPTHS[0]) ** b))))
            z = math.log(depth / math.sqrt(DEPTHS[0] * DEPTHS[-1])) / spread
            z = self.follows * z + math.sqrt(1.0 - self.follows**2) * rng.standard_normal()
            size = int(min((16, 32, 64, 128), key=lambda s: abs(math.log(s / 48.0) - 0.6 * z)))
            if self.tied:
                size = 4 * max(1, round(160.0 / depth * math.exp(rng.normal(0.0, 0.05))))
            ratio = float(rng.choice([2.0, 3.0, 4.0]))
            n = SPAN[0] * (SPAN[1] / SPAN[0]) ** a
            width = size * max(1, round(math.sqrt(n / depth / (4.0 + 2.0 * ratio)) / size))
            n = depth * width**2 * (4.0 + 2.0 * ratio)
            best_rate = 1.2e-3 * (512.0 / width) ** 0.8
            rate = 1.2e-3 * math.exp(rng.uniform(-1.0, 1.0)) if self.rates else best_rate
            loss = (
                self.level(n)
                + float(self.shape(n, np.array(depth)))
                + self.heads * math.log(size / 64.0)
                + self.inner * math.log(ratio / 4.0)
            )
            loss += self.rate * math.log(rate / best_rate) ** 2 * self.rates + rng.normal(0.0, self.sigma)
            row = {"depth": depth, "width": width, "heads": width // size, "head_size": size}
            row |= {"d_ff": round(ratio * width), "loss": loss}
            found.append({**row, "learning_rate": float(f"{rate:.3g}")} if self.rates else row)
        return found


@dataclass(frozen=True, kw_only=True)
class Line(Simulated):
    """best: (value, low, high) at each of ``SIZES``. inseparable: columns that the fit says it cannot tell from
    depth, or that they follow the shape. scatter: of a run about the surface by the fit, nats. truth: best depths.
    beyond: (error, sd, whether the central 95 % hold) of the loss of the best net at each of ``BEYOND``, nats."""

    best: list[tuple[float | None, float | None, float | None]] = field(default_factory=list)
    inseparable: list[str] = field(default_factory=list)
    adjusted: list[str] = field(default_factory=list)
    scatter: float = 0.0
    truth: list[float] = field(default_factory=list)
    beyond: list[tuple[float, float, bool]] = field(default_factory=list)


SCENARIOS: dict[str, Pile] = {
    "random-20": Pile(runs=20, rates=False),
    "random-40": Pile(),
    "random-60": Pile(runs=60),
    "idle-40": Pile(heads=0.0, inner=0.0, rate=0.03, rates=False),
    "follows-40": Pile(follows=-0.85),
    "follows-60": Pile(runs=60, follows=-0.85),
    "tied-40": Pile(tied=True, rates=False),
    "tied-60": Pile(tied=True, runs=60),
    "departing-40": Pile(departs=0.0043),
    "bent-40": Pile(bends=0.02),
}


def simulate(pile: Any, rng: np.random.Generator, index: int) -> Line:
    """One heap."""
    if pile.departs or pile.bends:
        pile = replace(pile, phase=rng.uniform(0.0, 2.0 * math.pi))
    heap = heap_of(read_table(pile.rows(rng)), OPTIONS)
    if heap is None or heap.surface is None:
        return Line(index=index)
    surface = LossSurface(heap.surface)
    best = []
    for n in SIZES:
        found = surface.at(n)
        best.append((found.value, found.low, found.high))
    return Line(
        index=index,
        best=best,
        inseparable=[*heap.record.inseparable, *heap.record.follow],
        scatter=heap.record.scatter,
        adjusted=[one.name for one in heap.record.columns],
        truth=[pile.truth(n) for n in SIZES],
        beyond=[] if pile.tied else [beyond(pile, heap, n) for n in BEYOND],
    )


def beyond(pile: Pile, heap: Heap, n: float) -> tuple[float, float, bool]:
    """(error of the median, sd, whether the central 95 % hold) of the loss of the best net at ``n``, held values."""
    assert heap.surface
    posterior = LossSurface(heap.surface).posterior
    held = {one.name: float(one.held.split()[-1]) for one in heap.record.columns if one.kind == "number"}
    depth = np.array(pile.truth(n))
    truth = pile.level(n) + float(pile.shape(n, depth)) + pile.heads * math.log(held.get("head size", 64.0) / 64.0)
    truth += pile.inner * math.log(held.get("d_ff / d", 4.0) / 4.0)
    drawn = posterior.predict(np.array([math.log(n)]), np.array([math.log(float(depth))]))[0][:, 0]
    low, middle, high = np.quantile(drawn, [0.025, 0.5, 0.975])
    return float(middle - truth), float(drawn.std()), bool(low <= truth <= high)


def cells(name: str, lines: Sequence[Line]) -> Iterable[Sequence[str]]:
    """Coverage of the intervals at each size, their median width in ln L, the errors, how often something cannot be
    told apart, and the losses foretold at ``BEYOND``."""
    pile, fitted = SCENARIOS[name], [line for line in lines if line.best]
    said = sum(bool(line.inseparable) for line in fitted)
    inside = [[covers(low, high, line.truth[k]) for k, (_, low, high) in enumerate(line.best)] for line in fitted]
    widths = [[math.log((high or math.inf) / (low or 1.0)) for _, low, high in line.best] for line in fitted]
    errors = [[math.log(v / t) for (v, _, _), t in zip(line.best, line.truth, strict=True) if v] for line in fitted]
    root = [rms(row[k] for row in errors if len(row) == len(SIZES)) or math.nan for k in range(len(SIZES))]
    told = [line.beyond for line in fitted if line.beyond]
    yield (
        *(name, pile.design, str(len(fitted))),
        f"{join([f'{100 * share:.0f}' for share in np.mean(inside, axis=0)])} %",
        join([f"{width:.2f}" for width in np.median(widths, axis=0)]),
        join([f"{error:.3f}" for error in root]),
        f"{said} of {len(fitted)}",
        f"{join([f'{100 * np.mean([of[k][2] for of in told]):.0f}' for k in range(len(BEYOND))])} %" if told else "",
        join([f"{1000 * (rms(of[k][0] for of in told) or 0.0):.0f}" for k in range(len(BEYOND))]) if told else "",
    )


STUDY = Study(
    doc=__doc__,
    scenarios=SCENARIOS,
    simulate=simulate,
    kind=Line,
    n=100,
    head=f"scenario | design | heaps | {100 * CONFIDENCE:g} % hold | ln(high/low) | rms error of ln L* | cannot tell | "
    "losses beyond: hold | rms error, mnats",
    cells=cells,
)

if __name__ == "__main__":
    STUDY.main()
