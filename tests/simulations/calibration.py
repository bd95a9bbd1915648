"""Calibration of the best depth: do intervals of 50, 80 and 95 % hold the truth as often as they say?

``python -m tests.simulations.calibration --out DIR [--n 100] [--processes 2] [SCENARIO …]``

Sweeps of this module and of ``scenarios.py`` are drawn, fitted and asked at three sizes inside their data and one
outside. Where depth does nothing the share of sweeps with any bound is counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dwsweep import fit_table
from dwsweep.fit.statistics import ask
from dwsweep.fit.statistics.laws import FORMS
from dwsweep.records.transitions import Transition
from tests.simulations.harness import Simulated, Study, covers, mean, median, percent, rms, shown
from tests.simulations.scenarios import Noise, Scenario, grid, scenarios
from tests.simulations.sweeps import SmoothTruth, through_published_widths

LEVELS = (0.5, 0.8, 0.95)
Ends = tuple[float | None, float | None]  # of ln L; None: no bound
LAPTOP_WIDTHS = (116.0, 274.0)  # at which one layer and four are the best ones, about as in sweeps/results/laptop


def sweeps() -> dict[str, Scenario]:
    """The scenarios, one change each: 5 depths, 9 sizes from 1e6 to 6e8, 3 seeds, σ 0.002 nats."""
    base = Scenario(SmoothTruth(), outside=1.0e9)

    def truth(**changes: Any) -> Scenario:
        return replace(base, truth=replace(base.truth, **changes))

    return {
        "exponential": base,
        "power": truth(form="power", theta=through_published_widths("power")),
        "linear": truth(form="linear", theta=through_published_widths("linear")),
        "no form holds": truth(bend=0.25),
        "gains fall as N^-0.4": truth(decay=0.4),
        "one seed": replace(base, seeds=1),
        "luck 0.004": replace(base, noise=Noise(shape_sd=0.004)),
        "4 sizes, luck 0.002": replace(base, shapes=grid(SmoothTruth().depths, 4), noise=Noise(shape_sd=0.002)),
        "laptop": _laptop(),
        "laptop, no form holds": _laptop(bend=0.25),
    }


def _laptop(bend: float = 0.0) -> Scenario:
    """As sweeps/results/laptop: few layers, small nets, errors of shapes as large as effects of depth."""
    first, last = FORMS["exponential"].through(np.log(LAPTOP_WIDTHS), np.array([1.0, 4.0]))
    theta = float(first), float(last)
    truth = SmoothTruth((1, 2, 3, 4), theta=theta, bend=bend, decay=0.25, effect=0.14, power=-1.2)
    shapes, noise = grid(truth.depths, 8, (4.0e4, 2.0e6)), Noise(sigma=0.012, shape_sd=0.013)
    return Scenario(truth, shapes, noise, inside=(1.0e5, 3.0e5, 8.0e5), outside=5.0e6)


@dataclass(frozen=True, kw_only=True)
class Calibrated(Simulated):
    """best: ln of the true best depth per size, None where there is none. medians: of the draws. ends: per size, those
    of each of ``LEVELS``. pairs: for each verdict with a bound, True if the true crossing is inside."""

    best: tuple[float | None, ...]
    medians: tuple[float | None, ...]
    ends: tuple[tuple[Ends, ...], ...]
    pairs: tuple[bool, ...] = ()


def simulation(scenario: Scenario, rng: np.random.Generator, index: int = 0) -> Calibrated:
    """One sweep drawn, fitted and asked."""
    sweep = scenario.numbered(index)
    result = fit_table(sweep.rows(rng))
    assert result.surface
    posterior = ask.read(result.surface)
    medians, ends = [], []
    for n in sweep.at:
        drawn = ask.best_depths(posterior, math.log(n))
        found = [ask.quantiles(drawn, level) for level in LEVELS]
        medians.append(_finite(found[0][1]))
        ends.append(tuple((_finite(low), _finite(high)) for low, _, high in found))
    best = [sweep.truth.best_depth(n) for n in sweep.at]
    return Calibrated(
        index=index,
        best=tuple(None if depth is None else math.log(depth) for depth in best),
        medians=tuple(medians),
        ends=tuple(ends),
        pairs=tuple(_held(sweep.truth, result.verdicts)),
    )


def _held(truth: Any, verdicts: Sequence[Transition]) -> Iterator[bool]:
    """Whether the bounds of each pair that has one crossing hold it."""
    x = np.linspace(math.log(1.0e4), math.log(1.0e11), 801)
    for row in verdicts:
        lead = np.array([truth.loss(row.shallow, at) - truth.loss(row.deep, at) for at in x.tolist()])
        if np.diff(lead > 0.0).sum() == 1 and lead[-1] > 0.0 and not row.n_params_interval.unbounded:
            k = int((lead > 0.0).argmax())
            yield math.exp(np.interp(0.0, lead[k - 1 : k + 1], x[k - 1 : k + 1])) in row.n_params_interval


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def part(rows: Sequence[Calibrated], places: Sequence[int]) -> list[str]:
    """Coverage at the three levels, median width of the 95 % interval, rmse of ln L in percent."""
    points = [(row.ends[k], row.medians[k], row.best[k]) for row in rows for k in places if row.best[k] is not None]
    covered = [mean(covers(*ends[k], best) for ends, _, best in points) for k in range(len(LEVELS))]
    widths = [math.inf if ends[-1][1] is None else ends[-1][1] - (ends[-1][0] or 0.0) for ends, _, _ in points]
    errors = [middle - best for _, middle, best in points if middle is not None and best is not None]
    return [percent(*covered, digits=".0f"), shown(median(widths), digits=".2f"), percent(rms(errors))]


HEAD = (
    "scenario | n | inside: 50 80 95 % hold | ln(high/low) | rmse, % | outside | ln(high/low) | rmse, % | "
    "pairs: 95 % hold"
)


def cells(name: str, rows: Sequence[Calibrated]) -> list[list[str]]:
    last = len(rows[0].best) - 1
    pairs = percent(mean(held for row in rows for held in row.pairs), digits=".0f")
    if rows[0].best[0] is None:
        bounded = mean(any((e[-1][0] or 0.0) > 0.0 or e[-1][1] is not None for e in row.ends) for row in rows)
        return [[name, str(len(rows)), f"bounded {percent(bounded)} %", *["–"] * 5, pairs]]
    return [[name, str(len(rows)), *part(rows, range(last)), *part(rows, [last]), pairs]]


OUTSIDE = (
    *("bent", "kinked", "stepped", "asymmetric", "gains fall", "asymmetric, gemstones", "asymmetric, 1 2 4 8 16"),
    *("half parabolas 4 : 1", "V", "plateau", "two minima", "saturating", "asymmetric, scatter along a depth"),
    *("flat", "flat, laptop", "flat, scatter along a depth"),
)


def studies() -> dict[str, Scenario]:
    others = scenarios()
    return {**sweeps(), **{name: others[name] for name in OUTSIDE}}


STUDY = Study(__doc__, studies(), simulation, Calibrated, 100, HEAD, cells)

if __name__ == "__main__":
    STUDY.main()
