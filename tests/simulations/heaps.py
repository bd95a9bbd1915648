"""Heaps of runs whose best depth is known: settings that differ at random, that follow depth, and that do nothing.

``python -m tests.simulations.heaps --out DIR [--n 100] [--processes 2] [SCENARIO …]``

Nets are a Latin hypercube over ln N and ln L. The loss has a parabola in ln rate whose lowest point follows the width,
and effects of the head size and of d_ff over d. What can be told apart is a property of the design, not of the fit:

    separable      the head size is drawn without regard to depth
    partly         ln head size follows ln L with r = −0.85: both readings are owed, and either verdict is right
    inseparable    head size = 640 / L but for 5 %: at equal size ln L has less than a hundredth of its variance left

A fit that says "this table cannot separate depth from head size", or that the head size follows the shape, has said so.

A truth that is a parabola in ln L departs from no form. Public sweeps do, and so does the prior of the model:
"departing" adds a wave in ln L and ln N of that size, whose phase each heap draws. "Drawn" draws departures and the
interactions of head size and d_ff with depth from priors as large as public sweeps show (``PUBLIC``). "Bent" adds a
wave in ln N to the level.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dwsweep.fit.data.rows import Row
from dwsweep.fit.data.table import read_table
from dwsweep.fit.heap import Heap, heap_of
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.text import join
from tests.simulations.harness import CONFIDENCE, OPTIONS, Simulated, Study, covers, rms

SIZES = (1.0e7, 3.0e7, 1.0e8)
SPAN = (4.0e6, 2.0e8)
DEPTHS = (4, 6, 8, 10, 12, 16, 20, 24, 32)
MIDDLE = math.sqrt(SPAN[0] * SPAN[1])
CURVATURE, POWER = 0.06, 0.25  # of the loss in ln L, nats; of the best depth in N
# root mean square of depth effects within a factor of two in depth and of e in size, nats
EFFECT = CURVATURE * math.hypot(math.log(2.0) ** 2, 2.0 * POWER * math.log(2.0))
PUBLIC = {"departures": (0.15, 0.6), "interactions": (0.25, 0.6)}  # median over the effect of depth, and sd of its ln
LENGTH_N, LENGTH_L = 2.5, 0.8  # of departures, in ln N (Gaussian kernel) and ln L (Matérn 3/2)
FARTHEST = 2.0  # factor by which departures may move the best depth
COSINES = 200  # of a draw of departures: frequencies follow the kernel's spectrum
FASTEST = 7.0  # frequency in ln L of the fastest wave by which public sweeps were measured: a factor of 2.5 in depth
LAW_SD = (1.0, 1.0, 0.3)  # of an interaction's leads at the shallowest and the deepest net, and of its gain
LN_SD = {"head size": 0.65, "d_ff / d": 0.3}  # about the sd of a column's logarithm in these heaps


@dataclass(frozen=True)
class Drawn:
    """One draw of departures and interactions. waves: (frequency in ln N, in ln L, phase) (3, M); departs: their root
    mean square over the effect of depth. moves: column → (3,) nats, see ``LAW_SD``."""

    waves: np.ndarray
    departs: float
    moves: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, rng: np.random.Generator) -> Drawn:
        along = rng.standard_t(3, 2 * COSINES) / LENGTH_L  # spectrum of a Matérn-3/2 kernel
        along = along[np.abs(along) < FASTEST][:COSINES]
        waves = np.stack([rng.standard_normal(COSINES) / LENGTH_N, along, rng.uniform(0.0, 2.0 * math.pi, COSINES)])
        size = {name: middle * math.exp(sd * rng.standard_normal()) for name, (middle, sd) in PUBLIC.items()}
        gain = EFFECT * size["interactions"] * np.array(LAW_SD)
        return cls(waves, size["departures"], {name: gain * rng.standard_normal(3) for name in LN_SD})

    def departure(self, n: float, y: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """(G,) nats at y = ln L. scale: (G,) size of depth effects there, nats."""
        angle = self.waves[0][:, None] * math.log(n) + self.waves[1][:, None] * y + self.waves[2][:, None]
        found: np.ndarray = self.departs * scale * math.sqrt(2.0 / COSINES) * np.cos(angle).sum(axis=0)
        return found

    def moved(self, n: float, y: np.ndarray, away: Mapping[str, float]) -> np.ndarray:
        """(G,) nats at y = ln L of columns that lie ``away``, in ln, from the value without an interaction: the leads
        change from the shallowest net to the deepest one linearly in ln L."""
        span = math.log(DEPTHS[-1] / DEPTHS[0])
        t = (y - math.log(DEPTHS[0])) / span
        found = np.zeros(len(y))
        for name, (shallow, deep, gain) in self.moves.items():
            lead = shallow * (t - t * t / 2.0) + deep * t * t / 2.0 - gain * math.log(n / MIDDLE) * t
            found += away.get(name, 0.0) / LN_SD[name] * span * lead
        return found


@dataclass(frozen=True)
class Pile:
    """runs: of the hypercube. follows: correlation of ln head size with ln depth. tied: head size is 640 over depth,
    but for 5 %. heads, inner: nats per unit of ln head size and of ln (d_ff / 4d); rate: curvature in ln rate, nats.
    rates: whether they differ at all. departs, bends: nats, root mean square of the waves of depth effects and of the
    level; phase: of both. public: whether departures and interactions are drawn at the size of public sweeps; drawn:
    the draw. counts: of tokens after each of which every run has a loss; eight nets then have two runs."""

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
    public: bool = False
    drawn: Drawn | None = None
    counts: tuple[float, ...] = ()

    @property
    def design(self) -> str:
        return "inseparable" if self.tied else "partly" if self.follows else "separable"

    def best(self, n: float) -> float:
        return 17.8 * (n / 3e7) ** POWER

    def shape(self, n: float, depth: np.ndarray, away: Mapping[str, float] = {}) -> np.ndarray:
        """Loss of depths at a size beside its level, nats. away: ln of columns over 64 and over 4."""
        depth = np.atleast_1d(depth)
        y, wave = np.log(depth), 1.25 * np.log(depth) + 0.4 * math.log(n) + self.phase
        bowl = CURVATURE * (y - math.log(self.best(n))) ** 2
        found: np.ndarray = bowl + self.departs * math.sqrt(2.0) * np.sin(wave)
        if self.drawn:
            found = found + self.drawn.departure(n, y, np.hypot(EFFECT, bowl)) + self.drawn.moved(n, y, away)
        return found

    def level(self, n: float) -> float:
        bend = self.bends * math.sqrt(2.0) * math.sin(0.8 * math.log(n / 3e7) + self.phase)
        return 1.8 + 1.9 * (n / 3e7) ** -0.14 + bend

    def truth(self, n: float, away: Mapping[str, float] = {}) -> float:
        """Best depth that the fit owes: at the held values, or of nets in which the head size follows depth where it is
        one variable with it, with a head size of 640 / L there."""
        depth = np.geomspace(1.0, 128.0, 4001)
        loss = self.shape(n, depth, away) - (self.heads * np.log(depth) if self.tied else 0.0)
        return float(depth[np.argmin(loss)])

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
            away = {"head size": math.log(size / 64.0), "d_ff / d": math.log(ratio / 4.0)}
            loss = self.level(n) + float(self.shape(n, np.array(depth), away)[0])
            loss += self.heads * away["head size"] + self.inner * away["d_ff / d"]
            loss += self.rate * math.log(rate / best_rate) ** 2 * self.rates
            row = {"depth": depth, "width": width, "heads": width // size, "head_size": size}
            row |= {"d_ff": round(ratio * width)} | ({"learning_rate": float(f"{rate:.3g}")} if self.rates else {})
            of_run = loss + rng.normal(0.0, self.sigma)
            if not self.counts:
                found.append({**row, "loss": of_run})
            for seed in range(1 + (len(found) < 16 * len(self.counts))):
                for tokens in self.counts:
                    point = of_run - 0.05 * math.log(tokens / 1e9) + rng.normal(0.0, 0.0007)
                    found.append({**row, "tokens": tokens, "seed": seed, "loss": point})
                of_run = loss + rng.normal(0.0, self.sigma)
        return found


@dataclass(frozen=True, kw_only=True)
class Line(Simulated):
    """best: (value, low, high) at each of ``SIZES``. inseparable: columns that the fit says it cannot tell from
    depth, or that they follow the shape. truth: best depths."""

    best: list[tuple[float | None, float | None, float | None]] = field(default_factory=list)
    inseparable: list[str] = field(default_factory=list)
    truth: list[float] = field(default_factory=list)


SCENARIOS: dict[str, Pile] = {
    "random-20": Pile(runs=20, rates=False),
    "random-40": Pile(),
    "random-60": Pile(runs=60),
    "idle-40": Pile(heads=0.0, inner=0.0, rate=0.03, rates=False),
    "follows-40": Pile(follows=-0.85),
    "follows-60": Pile(runs=60, follows=-0.85),
    "tied-40": Pile(tied=True, rates=False),
    "tied-60": Pile(tied=True, runs=60),
    "points-40": Pile(counts=(2.5e8, 5e8, 1e9, 2e9, 4e9), sigma=0.006),
    "departing-40": Pile(departs=0.0043),
    "bent-40": Pile(bends=0.02),
    "drawn-20": Pile(runs=20, rates=False, public=True),
    "drawn-40": Pile(public=True),
    "drawn-60": Pile(runs=60, public=True),
    "drawn-follows-60": Pile(runs=60, follows=-0.85, public=True),
}


def drawn_pile(pile: Pile, rng: np.random.Generator) -> Pile:
    """The pile with a draw of departures and interactions that leaves best depths within a factor of two."""
    while True:
        found = replace(pile, drawn=Drawn.of(rng))
        if all(abs(math.log(found.truth(n) / found.best(n))) < math.log(FARTHEST) for n in SIZES):
            return found


def simulate(pile: Any, rng: np.random.Generator, index: int) -> Line:
    """One heap."""
    if pile.departs or pile.bends:
        pile = replace(pile, phase=rng.uniform(0.0, 2.0 * math.pi))
    if pile.public:
        pile = drawn_pile(pile, rng)
    heap = heap_of(read_table(pile.rows(rng)), OPTIONS)
    if heap is None or heap.surface is None:
        return Line(index=index)
    surface, away = LossSurface(heap.surface), held(heap)
    best = []
    for n in SIZES:
        found = surface.at(n)
        best.append((found.value, found.low, found.high))
    return Line(
        index=index,
        best=best,
        inseparable=[*heap.record.inseparable, *heap.record.follow],
        truth=[pile.truth(n, away) for n in SIZES],
    )


def held(heap: Heap) -> dict[str, float]:
    """Held values: ln of the head size over 64 and of d_ff / d over 4."""
    values = {one.name: one.value for one in heap.record.columns if one.value}
    return {name: math.log(values.get(name, usual) / usual) for name, usual in (("head size", 64.0), ("d_ff / d", 4.0))}


def cells(name: str, lines: Sequence[Line]) -> Iterable[Sequence[str]]:
    """Coverage of the intervals at each size, their median width in ln L, the errors, and how often something cannot be
    told apart."""
    pile, fitted = SCENARIOS[name], [line for line in lines if line.best]
    said = sum(bool(line.inseparable) for line in fitted)
    errors = [[math.log(v / t) for (v, _, _), t in zip(line.best, line.truth, strict=True) if v] for line in fitted]
    root = [rms(row[k] for row in errors if len(row) == len(SIZES)) or math.nan for k in range(len(SIZES))]
    held = [[covers(*end, true) for (_, *end), true in zip(line.best, line.truth, strict=True)] for line in fitted]
    widths = [[math.log((high or math.inf) / (low or 1.0)) for _, low, high in line.best] for line in fitted]
    yield (
        *(name, pile.design, str(len(fitted))),
        f"{join([f'{100 * np.mean(inside):.0f}' for inside in zip(*held, strict=True)])} %",
        join([f"{np.median(wide):.2f}" for wide in zip(*widths, strict=True)]),
        join([f"{error:.3f}" for error in root]),
        f"{said} of {len(fitted)}",
    )


STUDY = Study(
    doc=__doc__,
    scenarios=SCENARIOS,
    simulate=simulate,
    kind=Line,
    n=100,
    head=f"scenario | design | heaps | {100 * CONFIDENCE:g} % hold | ln(high/low) | rms error of ln L* | inseparable",
    cells=cells,
)

if __name__ == "__main__":
    STUDY.main()
