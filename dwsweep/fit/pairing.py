"""Pairing of two arms: the covariance of their errors, which cancels in differences of losses.

Arms of one study see the same batches under the same seed and the same held-out documents, so the errors of two cell
means at one shape go together. Over the matched shapes (one depth, nearly equal size) the difference of the two arms'
losses is taken run by run. With σ_A², σ_B² and σ_D² the variances of one run of either arm and of that difference, by
replicates, (σ_A² + σ_B² − σ_D²)/2 is what two runs share; documents that both arms were evaluated on add theirs.
What the seeds of a shape share beyond that is estimated with the losses (arms.py). Runs of different text share
nothing but documents.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from dwsweep.fit.arm import Arm
from dwsweep.fit.data.runs import Setup
from dwsweep.fit.data.shape import SAME_SIZE
from dwsweep.fit.statistics.curves import Curves
from dwsweep.fit.statistics.documents import over_documents
from dwsweep.fit.statistics.noise import cell_means, seed_level, summed, t_two_sided
from dwsweep.text import join

MOST_SHARED = 0.98  # largest share of a run's variance that another run has too: two that are one have no difference
USUAL = 0.95  # confidence at which a normal distribution stands for a t
TEXT = {  # column → its name in words
    **{"vocab_size": "vocabularies", "tokenizer": "tokenizers"},
    **dict.fromkeys(("data_hash", "dataset", "data", "corpus"), "data"),
    "seq_len": "sequence lengths",
}


def differing(a: Arm, b: Arm, names: Iterable[str], apart: bool) -> Iterator[tuple[str, list[str], list[str]]]:
    """(column, values of a, values of b) of the columns in which the runs of two arms differ. apart: True for columns
    of which the two share no value."""
    for name in names:
        one, two = ({value for run in arm.runs if (value := run.row.get(name)) is not None} for arm in (a, b))
        if one and two and not (one & two if apart else one == two):
            shown = [sorted(str(value)[:12] for value in values) for values in (one, two)]
            yield name, shown[0], shown[1]


@dataclass(frozen=True)
class Pairing:
    """Covariance of the errors of two arms.

    cells: the paired shapes, as indices of the two curves. runs: (M,) nats², covariance of the errors of the two cell
    means of each by the noise of runs. level: nats², variance of the error that a seed
    adds to the loss difference of all shapes alike; level_df: its degrees of freedom (inf where it is zero). how: the
    paired sources of noise, or the reason why none is paired, in words. single_seed: True with one seed, so
    that the error that a seed adds to all shapes is unknown.
    """

    cells: list[tuple[int, int]]
    runs: np.ndarray
    level: float
    level_df: float
    how: str
    single_seed: bool


def pair_arms(a: Arm, b: Arm) -> Pairing:
    """Covariance of the errors of arms ``a`` and ``b``."""
    cells = matched(a.curves, b.curves)
    differences = _run_differences(a, b, cells)
    evaluated = f"{a.held_out.number} held-out documents" if a.held_out and same_documents(a, b).any() else ""
    of_text = differing(a, b, TEXT, apart=False)  # in training or evaluation
    why_not = next((f"different {TEXT[name]} ({join(one)} and {join(two)})" for name, one, two in of_text), "")
    if not why_not and not cells:
        why_not = "no two shapes of one depth have nearly the same size"
    if not why_not and not differences:
        why_not = "no seed has runs in both arms"
    if why_not:
        levels = [seed_level(*_chosen(arm)) for arm in (a, b)]
        both = zip(levels, (a.curves, b.curves), strict=True)
        variance, df = summed([level or _as_one_run(curves) for level, curves in both])
        single = any(level is None for level in levels)
        how = f"unpaired{f' but for {evaluated}' if evaluated else ''}: {why_not}"
        return Pairing([], np.zeros(0), variance, df, how, single)
    which, seeds, values = zip(*differences, strict=True)
    losses, (present, cell) = np.array(values), np.unique(which, return_inverse=True)
    cells = [cells[m] for m in present]
    i, j = (np.array(side) for side in zip(*cells, strict=True))
    shared = _shared(a.curves, b.curves, losses, cell, seeds)
    runs = shared * np.bincount(cell) / (a.curves.n[i] * b.curves.n[j])
    level = seed_level(losses, cell, seeds)
    variance, df = level or _as_one_run(a.curves)
    number = len(set(seeds))
    how = f"paired by {number} seed{'s' if number > 1 else ''} over {len(cells)} shape{'s' if len(cells) > 1 else ''}"
    how += f", {evaluated}" if evaluated else ""
    return Pairing(cells, runs, variance, df, how, level is None)


def _shared(a: Curves, b: Curves, losses: np.ndarray, cell: np.ndarray, seeds: Sequence[Hashable]) -> float:
    """Variance that a run of ``a`` and one of ``b`` share, nats², by their differences ``losses`` (n,) run by run; 0
    without replicates. Few differences leave the variance of one unsure: it counts as that of its t distribution."""
    apart, free = cell_means(losses, cell, seeds).of_run
    one, two = (curves.noise.sigma or 0.0 for curves in (a, b))
    if apart is None:
        return 0.0
    apart *= (t_two_sided(USUAL, free) / t_two_sided(USUAL, math.inf)) ** 2
    return min(max(0.0, (one**2 + two**2 - apart) / 2.0), MOST_SHARED * min(one, two) ** 2)


def same_documents(a: Arm, b: Arm) -> np.ndarray:
    """(K_A, K_B) covariance of the arms' cell means over samples of the documents that both were evaluated on, nats²;
    zero where they were not."""
    held = [arm.held_out for arm in (a, b) if arm.held_out and arm.held_out.tokens is not None]
    if len(held) < 2 or not np.array_equal(np.asarray(held[0].tokens), np.asarray(held[1].tokens)):
        return np.zeros((len(a.curves.x), len(b.curves.x)))
    influence = [
        np.stack([one.influence[Setup(curves.shape(k), rate)] for k, rate in enumerate(curves.learning_rate)])
        for one, curves in zip(held, (a.curves, b.curves), strict=True)
    ]
    return over_documents(np.vstack(influence))[: len(influence[0]), len(influence[0]) :]


def matched(a: Curves, b: Curves) -> list[tuple[int, int]]:
    """Matched shapes of one depth: mutually nearest in size, and close enough."""
    found = []
    for depth in sorted(set(a.depths) & set(b.depths)):
        i, j = a.at(depth), b.at(depth)
        gap = np.abs(a.x[i][:, None] - b.x[j])
        for row, column in enumerate(gap.argmin(axis=1)):
            if gap[row, column] <= SAME_SIZE and gap[:, column].argmin() == row:
                found.append((int(i[row]), int(j[column])))
    return found


def _chosen(arm: Arm) -> tuple[np.ndarray, np.ndarray, list[Hashable]]:
    """(losses, cells, seeds) of the runs behind the curves: runs at the best learning rate of each shape."""
    used = [(run, k) for run, k in zip(arm.runs, arm.curves.of.tolist(), strict=True) if k >= 0]
    return np.array([run.loss for run, _ in used]), np.array([k for _, k in used]), [run.seed for run, _ in used]


def _run_differences(a: Arm, b: Arm, cells: Sequence[tuple[int, int]]) -> list[tuple[int, Hashable, float]]:
    """(place among ``cells``, seed, loss of ``b`` − loss of ``a``) of each matched shape and seed that has run in
    both, shape by shape."""
    of_a, of_b = (
        {(k, seed): v for v, k, seed in zip(*_chosen(arm), strict=True) if seed is not None} for arm in (a, b)
    )
    matched = {i: (m, j) for m, (i, j) in enumerate(cells)}
    found = [(*matched[i], seed, loss) for (i, seed), loss in of_a.items() if i in matched]
    both = [(m, seed, float(of_b[j, seed] - loss)) for m, j, seed, loss in found if (j, seed) in of_b]
    return sorted(both, key=itemgetter(0))


def _as_one_run(curves: Curves) -> tuple[float, float]:
    """Variance and degrees of freedom of one run, in place of a seed effect that a single seed cannot show."""
    variance = curves.covariance.diagonal + (curves.covariance.factors**2).sum(axis=1)
    return float(np.mean(variance)) + curves.noise.shape_variance, max(curves.noise.df, 1.0)
