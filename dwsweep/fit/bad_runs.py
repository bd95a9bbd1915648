"""Runs whose loss is impossible: named, left out and reported.

Two tests, both against robust scales, so that a bad run cannot hide behind the spread that it makes. A run against the
other seeds of its cell, after the part that a seed shares over all cells. A whole cell against the smooth curve of its
depth: its neighbours in ln N predict it, and what they miss must vanish when it is left out, which it would not if the
curve itself bends there. Thirty robust standard deviations: among 135 runs with t₃ tails one in a hundred sweeps has
such a run, with normal noise none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dwsweep.fit.cells import Run, Selection, Shape
from dwsweep.records.fit_rows import LeftOutRun

IMPOSSIBLE = 30.0  # robust standard deviations
CLEANER = 8.0  # by this factor a depth's other residuals must be smaller once the bad cell is out
LEAST_NATS = 1e-3  # below which nothing is called impossible, however small the noise
LARGEST_SHARE = 0.05  # of all runs; beyond that the noise model is wrong, not the runs
FEWEST_SIZES = 6  # of a depth, to judge a cell by its curve
NORMAL = 1.4826  # standard deviation per median absolute deviation


@dataclass(frozen=True)
class BadRun:
    """expected: nats, from the other seeds or the curve. deviations: how many robust standard deviations it is off."""

    run: Run
    expected: float
    deviations: float

    def record(self) -> LeftOutRun:
        run = self.run
        return LeftOutRun(
            run_id=run.row.get("run_id"),
            depth=run.depth,
            width=run.width,
            learning_rate=run.learning_rate,
            seed=run.seed,
            loss=run.loss,
            expected=self.expected,
            deviations=self.deviations,
        )


def without_bad_runs(selection: Selection) -> tuple[Selection, list[BadRun], list[Run]]:
    """The selection without its impossible runs, those, and all its runs. Where there are too many, nothing is left out
    and a warning says so."""
    runs = selection.runs
    bad = find_bad_runs(runs)
    if not bad:
        return selection, [], runs
    if too_many(bad, runs):
        line = (
            f"impossible losses: {len(bad)} of {len(runs)} runs are {IMPOSSIBLE:g} robust standard deviations or more "
            f"off the other seeds of their shape or the curve of their depth (such as {named(bad[0])}); too many to "
            f"leave out, so all count: check the table"
        )
        return replace(selection, warnings=[line, *selection.warnings]), [], runs
    out = {id(found.run) for found in bad}
    kept = [run for run in runs if id(run) not in out]
    left = {run.shape for run in kept}
    notes, excluded = dict(selection.notes), dict(selection.excluded)
    for found in bad:
        where = notes if found.run.shape in left else excluded
        text = f"impossible loss {found.run.loss:.4g} left out"
        where[found.run.shape] = "; ".join(filter(None, (where.get(found.run.shape), text)))
    return replace(selection, runs=kept, notes=notes, excluded=excluded), bad, runs


def too_many(bad: Sequence[BadRun], runs: Sequence[Run]) -> bool:
    """Whether so many are a statement about the noise, and none is left out."""
    return len(bad) > max(1.0, LARGEST_SHARE * len(runs))


def named(found: BadRun) -> str:
    run = found.run
    which = "" if run.seed is None else f" seed {run.seed}"
    return f"{run.depth}×{run.width:g}{which}: loss {run.loss:.4g}, expected {found.expected:.4g}"


def find_bad_runs(runs: Sequence[Run]) -> list[BadRun]:
    """Impossible runs, the worst first; more than LARGEST_SHARE of ``runs`` are a statement about the noise."""
    among = _against_seeds(runs)
    bad = {id(found.run) for found in among}
    return sorted(
        [*among, *_against_curve([run for run in runs if id(run) not in bad])], key=lambda found: -found.deviations
    )


def _against_seeds(runs: Sequence[Run]) -> list[BadRun]:
    cells: dict[Hashable, list[Run]] = defaultdict(list)
    for run in runs:
        cells[run.candidate].append(run)
    several = {key: members for key, members in cells.items() if len(members) > 1}
    if not several:
        return []
    seed: dict[Hashable, list[float]] = defaultdict(list)
    for members in several.values():
        middle = float(np.median([run.loss for run in members]))
        for run in members:
            seed[run.seed].append(run.loss - middle)
    shared = {name: float(np.median(values)) if name is not None else 0.0 for name, values in seed.items()}
    losses = {key: np.array([run.loss - shared[run.seed] for run in members]) for key, members in several.items()}
    gaps = np.concatenate([np.abs(v[:, None] - v)[np.triu_indices(len(v), 1)] for v in losses.values()])
    if len(gaps) < FEWEST_SIZES:
        return []
    scale = NORMAL * float(np.median(gaps)) / math.sqrt(2.0)
    curve = _cell_medians(runs)
    found = []
    for key, members in several.items():
        values, left = losses[key], list(range(len(members)))
        while len(left) > 1:
            others = [float(np.median(values[[j for j in left if j != k]])) for k in left]
            off = np.array([abs(values[k] - other) for k, other in zip(left, others, strict=True)])
            sd = scale * math.sqrt(1.0 + 1.0 / (len(left) - 1))
            if off.max() <= max(IMPOSSIBLE * sd, LEAST_NATS):
                break
            worst = int(off.argmax())
            if len(left) == 2:  # the seeds cannot say which of two it is; the curve may
                expected = _predicted(curve, members[0].depth, members[0].x)
                if expected is None:
                    break
                worst = int(np.argmax([abs(members[k].loss - expected) for k in left]))
            k = left.pop(worst)
            found.append(
                BadRun(members[k], others[worst] + shared[members[k].seed], float(off[worst]) / max(sd, 1e-12))
            )
    return found


def _cell_medians(runs: Sequence[Run]) -> dict[int, tuple[np.ndarray, np.ndarray, list[Shape]]]:
    """depth → (x, loss, shapes) of its shapes by x, each at its best learning rate."""
    by_candidate: dict[tuple, list[Run]] = defaultdict(list)
    for run in runs:
        by_candidate[run.candidate].append(run)
    best: dict[Shape, tuple[float, float]] = {}
    for candidate, members in by_candidate.items():
        shape = candidate[:2]
        loss, x = float(np.median([r.loss for r in members])), float(np.mean([r.x for r in members]))
        if shape not in best or loss < best[shape][1]:
            best[shape] = (x, loss)
    curves = {}
    for depth in sorted({shape[0] for shape in best}):
        shapes = sorted((s for s in best if s[0] == depth), key=lambda s: best[s][0])
        curves[depth] = (np.array([best[s][0] for s in shapes]), np.array([best[s][1] for s in shapes]), shapes)
    return curves


def _predicted(curves: dict[int, tuple[np.ndarray, np.ndarray, list[Shape]]], depth: int, x: float) -> float | None:
    """The loss at ``x`` on the line through its neighbours at ``depth``."""
    at, loss, _ = curves[depth]
    others = np.abs(at - x) > 1e-9
    if others.sum() < 3:
        return None
    return float(np.interp(x, at[others], loss[others]))


def _against_curve(runs: Sequence[Run]) -> list[BadRun]:
    curves = {depth: curve for depth, curve in _cell_medians(runs).items() if len(np.unique(curve[0])) >= FEWEST_SIZES}
    if not curves:
        return []
    scale = NORMAL * float(np.median(np.concatenate([_misses(x, y)[1] for x, y, _ in curves.values()])))
    least = max(IMPOSSIBLE * scale, LEAST_NATS)
    found = []
    for depth, (x, y, shapes) in curves.items():
        kept = list(range(len(x)))
        out: list[int] = []
        while (
            len(kept) >= FEWEST_SIZES and len(out) < max(1, len(x) // 4) and _misses(x[kept], y[kept])[1].max() > least
        ):
            # the cell without which the others agree best: a bad one spoils the prediction of its neighbours
            rest = [_misses(x[[i for i in kept if i != k]], y[[i for i in kept if i != k]])[1].max() for k in kept]
            out.append(kept.pop(int(np.argmin(rest))))
        if not out:
            continue
        left = float(_misses(x[kept], y[kept])[1].max())
        for k in out:
            at = sorted([*kept, k])
            expected, miss = (values[at.index(k)] for values in _misses(x[at], y[at]))
            if miss > max(least, CLEANER * left):
                found += [
                    BadRun(run, float(expected), float(miss) / max(scale, 1e-12))
                    for run in runs
                    if run.shape == shapes[k] and run.depth == depth
                ]
    return found


def _misses(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the four nearest sizes predict for each by a parabola (nats), and how far off it is in units of one mean's
    error."""
    expected, miss = np.empty(len(x)), np.empty(len(x))
    for k in range(len(x)):
        near = np.delete(np.argsort(np.abs(x - x[k]), kind="stable"), 0)[:4]
        basis = np.vander(x[near] - x[k], 3)
        weights = np.linalg.pinv(basis)[2]
        expected[k] = weights @ y[near]
        miss[k] = abs(y[k] - expected[k]) / math.sqrt(1.0 + weights @ weights)
    return expected, miss
