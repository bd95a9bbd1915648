"""Sweeps whose truths the fit's models do not hold: a truth, the shapes that were trained, and their noise."""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from dwsweep.fit.data.rows import Row
from tests.simulations.sweeps import SmoothTruth, draw, widths
from tests.simulations.truths import TRUTHS, Truth, halves

Shape = tuple[int, int]  # depth and width

LAPTOP = Path(__file__).parents[2] / "sweeps" / "results" / "laptop" / "results.csv"
BEYOND = 1.7  # times the largest size trained: the last size asked for

# McLeish et al. 2025 (github.com/mcleish7/gemstone-scaling-laws, MIT)
GEMSTONES: tuple[Shape, ...] = (
    *((3, 768), (7, 1792), (8, 2560), (11, 512), (12, 512), (12, 3072), (13, 384), (13, 512), (14, 512), (15, 1280)),
    *((16, 512), (18, 1792), (23, 256), (27, 256), (27, 2048), (28, 1024), (36, 384), (36, 1280), (45, 768)),
    *((50, 1536), (71, 256), (80, 256)),
)


def grid(depths: Sequence[int], sizes: int, span: tuple[float, float] = (1.0e6, 6.0e8)) -> tuple[Shape, ...]:
    """Every depth at about the same sizes."""
    budgets = np.geomspace(*span, sizes).tolist()
    return tuple((depth, width) for depth in depths for width in widths(depth, budgets, 4))


@functools.cache
def laptop_shapes() -> tuple[Shape, ...]:
    """Those of the project's own study."""
    with LAPTOP.open(encoding="utf-8") as file:
        return tuple(sorted({(int(row["depth"]), int(row["width"])) for row in csv.DictReader(file)}))


@dataclass(frozen=True)
class Noise:
    """Sources of noise, in nats, as in ``draw``."""

    sigma: float = 0.002
    seed_sd: float = 0.003
    shape_sd: float = 0.0
    along: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """A sweep to draw, and the sizes at which its best depth is asked for: three ``inside`` the data, and one
    ``outside``; None: BEYOND times the largest size trained."""

    truth: Truth | SmoothTruth
    shapes: tuple[Shape, ...] = grid((6, 12, 18, 24, 30), 9)
    noise: Noise = field(default_factory=Noise)
    seeds: int = 3
    inside: tuple[float, ...] = (1.0e7, 3.0e7, 1.0e8)
    outside: float | None = None

    @property
    def at(self) -> tuple[float, ...]:
        largest = max(12.0 * depth * width**2 for depth, width in self.shapes)
        return (*self.inside, self.outside or BEYOND * largest)

    def numbered(self, index: int) -> Scenario:
        """That of simulation ``index``."""
        return replace(self, truth=self.truth.numbered(index))

    def rows(self, rng: np.random.Generator) -> list[Row]:
        """One simulated table of runs, under the columns that ``dwsweep.fit_table`` reads."""
        return draw(self.truth, rng, shapes=self.shapes, seeds=self.seeds, **vars(self.noise))


def _place(truth: Truth) -> dict[str, Scenario]:
    """A truth on tables of every kind, with its optimum amid the depths that each of them has."""
    base = Scenario(truth)
    laptop = replace(
        base,
        truth=replace(truth, size=3.0e5, depth=2.0),
        shapes=laptop_shapes(),
        noise=Noise(sigma=0.012, shape_sd=0.003),
        inside=(1.0e5, 3.0e5, 8.0e5),
    )
    gemstones = replace(
        base,
        truth=replace(truth, size=3.0e8, depth=20.0, effect=0.13, exponent=0.43),
        shapes=GEMSTONES,
        noise=Noise(sigma=0.0015, seed_sd=0.0, shape_sd=0.0015),
        seeds=1,
        inside=(6.0e7, 3.0e8, 7.0e8),
    )
    return {
        "": base,
        "1 2 4 8 16": replace(base, truth=replace(truth, depth=5.0), shapes=grid((1, 2, 4, 8, 16), 9)),
        "scatter along a depth": replace(base, noise=replace(base.noise, shape_sd=0.004, along=0.8)),
        "laptop": laptop,
        "gemstones": gemstones,
    }


EVERYWHERE = ("bent", "asymmetric", "flat")  # the truths that every kind of table is drawn from


def scenarios() -> dict[str, Scenario]:
    """By name: the truth, and the kind of table unless it has 5 depths, 9 sizes from 1e6 to 6e8 and 3 seeds."""
    found = {
        f"{name}, {table}" if table else name: scenario
        for name, truth in TRUTHS.items()
        for table, scenario in _place(truth).items()
        if not table or name in EVERYWHERE
    }
    hard = Scenario(TRUTHS["asymmetric"])
    return {
        **found,
        "half parabolas 4 : 1": Scenario(Truth(halves, decay=0.1), noise=Noise(shape_sd=0.001), seeds=1),
        "gains fall": replace(hard, truth=replace(hard.truth, decay=0.4)),
    }
