"""Impossible losses: runs that are named, left out and reported.

Robust scales find them, so that a bad run cannot hide behind its own spread. A loss above twice the median and 20
robust sds is dropped. A run is compared with the other seeds of its cell, after the part that a seed shares over all
cells, at a t quantile of the scale's degrees of freedom: with normal noise one of 1,000 sweeps loses a run by its
seeds, whatever the number of shapes and seeds; with t₃ tails every sixth sweep of 135 runs does. A whole cell is
compared with a polynomial in ln N and ln L through all others; several that are off together are found together.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from dwsweep.fit.data.rows import Row, grouped
from dwsweep.fit.data.runs import Run, Selection, Setup, sort_rows
from dwsweep.text import join

IMPOSSIBLE = 8.0  # fewest robust standard deviations
FALSE_ALARM = 1e-3  # share of sweeps with normal noise in which a good run may be called impossible
MAD_EFFICIENCY = 0.37  # degrees of freedom of a median absolute deviation, over those of a standard deviation
LEAST_NATS = 1e-3  # misfit below which no run is called impossible, however small the noise
LARGEST_SHARE, DIVERGED_SHARE = 0.05, 0.15  # of all runs; the second if all lie above the others
FEWEST = 6  # fewest losses, or gaps between seeds, that have a robust scale
DEGREES = (4, 3, 2)  # of the polynomial through shapes
# multiples of the farthest other residual at which one shape, or several, are off the polynomial: none of 1,500 clean
# tables has such shapes, corners where depth costs most among them
FARTHER, TOGETHER = 4.0, 6.0
STEPS = 20  # most steps in which the farthest losses are taken out
MOST_GAPS = 10  # most gaps from a run to later runs of its cell that enter the spread
BEYOND, TIMES = 20.0, 2.0  # threshold in robust standard deviations, and in median losses if no law reaches the cell
NORMAL = 1.4826  # standard deviation per median absolute deviation


@dataclass(frozen=True)
class BadRun:
    """``expected``: loss by the other seeds or the other shapes, nats. ``deviations``: distance in robust sds."""

    run: Run
    expected: float
    deviations: float


def finished(rows: Sequence[Row]) -> tuple[list[Row], list[BadRun]]:
    """Rows with a loss that a scaling law may have, and runs with one that none has."""
    runs = sort_rows(rows).runs
    wild = _against_all(runs)
    out = {id(one.run) for one in wild}
    return [run.row for run in runs if id(run) not in out], wild


def without_bad_runs(selection: Selection) -> tuple[Selection, list[BadRun]]:
    """(selection without impossible runs, impossible runs). If there are too many, nothing is left out and a warning is
    given."""
    bad, warning = impossible(selection.runs)
    return without(replace(selection, warnings=[*warning, *selection.warnings]), bad), bad


def without(selection: Selection, bad: Sequence[BadRun]) -> Selection:
    """The selection without impossible runs."""
    out = {id(found.run) for found in bad}
    reasons = defaultdict(list, {shape: [*why] for shape, why in selection.reasons.items()})
    for found in bad:
        reasons[found.run.shape].append(f"impossible loss {found.run.loss:.4g} left out")
    sizes = {found.run.shape: found.run.n_params for found in bad} | selection.sizes
    return replace(selection, runs=[run for run in selection.runs if id(run) not in out], reasons=reasons, sizes=sizes)


def impossible(runs: Sequence[Run], terms: np.ndarray | None = None) -> tuple[list[BadRun], list[str]]:
    """(the impossible runs, the worst first; a warning where they are so many that the noise model is wrong, not the
    runs: none is left out then). terms: (n, ·) of each run, beside a polynomial in size and depth."""
    bad: list[BadRun] = []
    every = np.zeros((len(runs), 0)) if terms is None else terms
    for test in (_against_all, _against_seeds, _against_surface):
        out = {id(one.run) for one in bad}
        left = [k for k, run in enumerate(runs) if id(run) not in out]
        bad += test([runs[k] for k in left], every[left])
    bad.sort(key=lambda one: -one.deviations)
    # runs that diverged, or were not finished, lie above the others; noise lies on both sides
    above = all(one.run.loss > one.expected for one in bad)
    if len(bad) <= max(1.0, (DIVERGED_SHARE if above else LARGEST_SHARE) * len(runs)):
        return bad, []
    return [], [
        f"impossible losses: {len(bad)} of {len(runs)} runs lie at least {IMPOSSIBLE:g} robust standard deviations off "
        f"the other seeds of their shape or the other shapes ({join(map(named, bad), 3)}); too many to leave out, so "
        "all count: check the table"
    ]


def named(found: BadRun) -> str:
    run = found.run
    which = "" if run.seed is None else f" seed {run.seed}"
    return f"{run.row['depth']:g}×{run.width:g}{which}: loss {run.loss:.4g}, expected {found.expected:.4g}"


def _against_all(runs: Sequence[Run], _: np.ndarray | None = None) -> list[BadRun]:
    """Runs that no scaling law reaches, whatever the table: far above the median."""
    if len(runs) < FEWEST:
        return []
    values = np.array([run.loss for run in runs])
    middle = float(np.median(values))
    away = values - middle
    scale = NORMAL * float(np.median(np.abs(away)))
    far = np.flatnonzero((away > max(BEYOND * scale, LEAST_NATS)) & (values > TIMES * middle) & (middle > 0.0))
    return [BadRun(runs[k], middle, float(away[k]) / max(scale, 1e-12)) for k in far.tolist()]


def _threshold(df: float, count: int) -> float:
    """Robust standard deviations beyond which the farthest of ``count`` values is impossible, by a scale of ``df``
    degrees of freedom: 386 of three shapes with three seeds, 33 with five, 8 of many."""
    from scipy.special import stdtrit

    return max(IMPOSSIBLE, float(stdtrit(MAD_EFFICIENCY * max(df, 1.0), 1.0 - FALSE_ALARM / (2.0 * count))))


def _against_seeds(runs: Sequence[Run], terms: np.ndarray) -> list[BadRun]:
    cells = grouped((run.setup, run) for run in runs)
    several = {key: members for key, members in cells.items() if len(members) > 1}
    if not several:
        return []
    middles = {key: median([run.loss for run in members]) for key, members in several.items()}
    seeds = grouped((run.seed, run.loss - middle) for key, middle in middles.items() for run in several[key])
    # a seed of a cell or two would take the loss that is off for its own part
    shared = {name: median(values) if name is not None and len(values) > 2 else 0.0 for name, values in seeds.items()}
    losses = {key: np.array([run.loss - shared[run.seed] for run in members]) for key, members in several.items()}
    gaps = np.concatenate([np.abs(v[k:] - v[:-k]) for v in losses.values() for k in range(1, min(len(v), MOST_GAPS))])
    if len(gaps) < FEWEST:
        return []
    scale = NORMAL * float(np.median(gaps)) / math.sqrt(2.0)
    count = sum(map(len, several.values()))
    linked = sum(value != 0.0 for value in shared.values())
    far = _threshold(count - len(several) - max(linked - 1, 0), count)
    keys, points = _points(runs, terms)
    surface = _Surface.of(*points, kept=np.ones(len(keys), dtype=bool))
    by_others = dict(zip(keys, surface.expected.tolist(), strict=True)) if surface else {}
    found: list[BadRun] = []
    for key, members in several.items():
        values, left = losses[key], np.arange(len(members))
        while len(left) > 1:
            others = _medians_of_others(values[left])
            off = np.abs(values[left] - others)
            sd = scale * math.sqrt(1.0 + 1.0 / (len(left) - 1))
            if off.max() <= max(far * sd, LEAST_NATS):
                break
            worst = int(off.argmax())  # it moves the middle of the others
            if len(left) == 2:  # two seeds cannot say which of the two is wrong, but other shapes may
                if (expected := by_others.get(_key(members[0]))) is None:
                    break
                worst = int(np.argmax([abs(members[k].loss - expected) for k in left]))
            run = members[left[worst]]
            found.append(BadRun(run, float(others[worst]) + shared[run.seed], float(off[worst]) / max(sd, 1e-12)))
            left = np.delete(left, worst)
    return found


def _medians_of_others(values: np.ndarray) -> np.ndarray:
    """(n,) median of all other values, for each value."""
    order = np.argsort(values, kind="stable")
    ranked, place = values[order], np.empty(len(values), int)
    place[order] = np.arange(len(values))
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2
    return (ranked[low + (place <= low)] + ranked[high + (place <= high)]) / 2.0


def _key(run: Run) -> Hashable:
    return run.setup if run.settings else run.shape


def _points(
    runs: Sequence[Run], terms: np.ndarray
) -> tuple[list[Hashable], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Points that are compared, and their arguments of ``off_surface``: the median loss of each shape at its best
    learning rate; if losses are adjusted, of each setup."""
    of = grouped((run.setup, k) for k, run in enumerate(runs))
    loss = {setup: median([runs[k].loss for k in members]) for setup, members in of.items()}
    best: dict[Hashable, Setup] = {}
    for setup in sorted(of, key=lambda one: one.order):
        key = _key(runs[of[setup][0]])
        if key not in best or loss[setup] < loss[best[key]]:
            best[key] = setup
    members = [of[setup] for setup in best.values()]
    x = np.array([math.fsum(runs[k].x for k in own) / len(own) for own in members])
    y = np.log([float(setup.shape.depth) for setup in best.values()])
    others = np.array([terms[own].mean(axis=0) for own in members]).reshape(len(members), terms.shape[1])
    return list(best), (x, y, np.array([loss[setup] for setup in best.values()]), others)


def _against_surface(runs: Sequence[Run], terms: np.ndarray) -> list[BadRun]:
    """Runs of points that lie off a polynomial in ln N and ln L through all other points; not a run near it, which
    shares its point with a bad one."""
    keys, points = _points(runs, terms)
    found = []
    for k, expected, away in off_surface(*points):
        own = [run for run in runs if _key(run) == keys[k]]
        far = abs(points[2][k] - expected) / 2.0
        found += [BadRun(run, expected, away) for run in own if abs(run.loss - expected) > far]
    return found


def off_surface(
    x: np.ndarray, y: np.ndarray, loss: np.ndarray, others: np.ndarray | None = None
) -> list[tuple[int, float, float]]:
    """(place, loss by all others, distance in robust sds) of losses (K,) off a polynomial in x and y, the worst first.

    The farthest losses are taken out step by step, since together they hide each other; of all steps the last one
    counts that leaves a group far from all other losses. others: (K, ·) further terms of the polynomial.
    """
    terms, kept = np.zeros((len(x), 0)) if others is None else others, np.ones(len(x), dtype=bool)
    surface, found = _Surface.of(x, y, loss, terms, kept), list[tuple[int, float, float]]()
    most = max(1, int(DIVERGED_SHARE * len(x)))
    while surface and (left := most - int((~kept).sum())) > 0:
        away = np.where(kept, np.abs(surface.residual), 0.0)
        kept[np.argsort(-away)[: min(left, math.ceil(most / STEPS))]] = False
        if surface := _Surface.of(x, y, loss, terms, kept):
            off, least = np.abs(surface.residual), max(_threshold(surface.df, len(x)) * surface.scale, LEAST_NATS)
            order = np.argsort(-off)
            for n in range(int((~kept).sum()), 0, -1):
                if off[order[n - 1]] > max(least, (FARTHER if n == 1 else TOGETHER) * off[order[n]]):
                    sds = off / max(surface.scale, 1e-12)
                    found = [(int(k), float(surface.expected[k]), float(sds[k])) for k in order[:n]]
                    break
    return found


@dataclass(frozen=True)
class _Surface:
    """Polynomial through the losses that are kept, of K. expected: (K,) loss by all others, nats. residual: (K,)
    studentised distance from it, nats. scale: robust sd of the kept ones, nats. df: its degrees of freedom."""

    expected: np.ndarray
    residual: np.ndarray
    scale: float
    df: int

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, loss: np.ndarray, terms: np.ndarray, kept: np.ndarray) -> _Surface | None:
        """The polynomial in x and y of the highest degree that leaves as many degrees of freedom as it has, with the
        ``terms`` (K, ·); None if a parabola does not."""
        count = int(kept.sum())
        if count < FEWEST:
            return None
        u, v = ((one - one.mean()) / max(float(one.std()), 1e-12) for one in (x, y))
        for degree in DEGREES:
            powers = [u**a * v**b for a in range(degree + 1) for b in range(degree + 1 - a)]
            columns = np.column_stack([*powers, terms])
            _, size, axes = np.linalg.svd(columns[kept], full_matrices=False)
            known = size > 1e-9 * size.max()
            basis = columns @ (axes[known].T / size[known])
            if basis.shape[1] > 1 and count >= 2 * basis.shape[1]:
                share = (basis**2).sum(axis=1)
                free = np.where(kept, np.maximum(1.0 - share, 1e-6), 1.0 + share)
                rest = loss - basis @ (basis[kept].T @ loss[kept])
                residual = rest / np.sqrt(free)
                scale = NORMAL * float(np.median(np.abs(residual[kept])))
                return cls(loss - np.where(kept, rest / free, rest), residual, scale, count - basis.shape[1])
        return None
