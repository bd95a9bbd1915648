"""Pairing of two arms: the covariance of their errors, which cancels in differences of losses.

The posterior does not answer this: it holds each arm's errors as its own, and a loss difference between two arms of one
study is known far better than either loss. Ratios of sizes and depths are questions to the posterior (arms.py). Every
difference of losses of two arms, over sizes (arms.py) and along a column (along_cells.py), takes its draws, its degrees
of freedom (``Pairing``) and its correction to one size (``at_size``) from here.

Arms of one study see the same batches under the same seed and the same held-out documents, so the errors of two cell
means at one shape go together. Over the matched shapes (one depth, nearly equal size) the difference of the two arms'
losses is taken run by run, and its noise is estimated as that of any table of losses (noise.py): replicates, documents,
scatter of a shape. With Σ_A, Σ_B and Σ_D the covariances of the means of one arm, of the other and of the difference,

    Σ_AB = (Σ_A + Σ_B − Σ_D) / 2

is the covariance of the arms' errors: no assumption is made, and without shared errors it is zero up to the noise of
the estimate. Arms of different text share nothing, and Σ_AB is zero.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from dwsweep.fit.arm import Arm, different_text
from dwsweep.fit.cells import Candidate
from dwsweep.fit.curves import Curves, distinct, gaussian
from dwsweep.fit.documents import FEW_DOCUMENTS, over_documents
from dwsweep.fit.interpolation import pchip
from dwsweep.fit.model import SIZE_SLOPE
from dwsweep.fit.noise import SCATTER, MeanCovariance, Noise, cell_means, estimate_noise, seed_level, summed
from dwsweep.fit.scatter import of_curves

TOLERANCE = math.log(1.25)  # distance in ln N within which two shapes pair: each is within 10 % of its budget

SAME_SIZE = 1e-3  # difference in ln N below which losses stay uncorrected
SEED = 17  # seed of the errors of a slope that no curve shows

# largest share of a shape's scatter that two arms are taken to share: a few contrasts may show all of it as shared
# (simulated arms that share four fifths: the limit lowered false claims at 95 % from 7 to 5 %)
MOST_SHARED = 0.75

# most degrees of freedom of a difference over those of the level of its seeds (three seeds, a level of 1.5 times the
# sd of a cell: Satterthwaite's formula alone covers 93.1 % at 95, with this bound 94.4 %, at the same median width)
MOST_OVER_SEEDS = 4.0


@dataclass(frozen=True)
class Pairing:
    """Covariance of the errors of two arms, whose curves are ``base`` and ``other``.

    cross: (K_A, K_B) nats², covariance of the errors of their cell means. cells: the matched shapes, as indices of the
    two curves. level: nats², variance of the error that a seed adds to the loss difference of all shapes alike;
    level_df: its degrees of freedom (inf where it is zero). noise: of the difference of two cell means; None where
    nothing is paired. by: names of the paired sources of noise; why_not: reason why one is not paired, or empty.
    single_seed: True with one seed, so that the error that a seed adds to all shapes is unknown.
    """

    base: Curves
    other: Curves
    cross: np.ndarray
    cells: list[tuple[int, int]]
    level: float
    level_df: float
    noise: Noise | None
    by: str
    why_not: str
    single_seed: bool

    def drawn(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """n draws of the errors of both arms' cell means, (n, K_A) and (n, K_B), and of the level between them (n, 1),
        nats."""
        a, b = self.base.total_covariance, self.other.total_covariance
        draws = gaussian(np.block([[a, self.cross], [self.cross.T, b]]), n, rng)
        return draws[:, : len(a)], draws[:, len(a) :], math.sqrt(self.level) * rng.standard_normal((n, 1))

    def df(self, i: np.ndarray, j: np.ndarray) -> float:
        """Degrees of freedom of a difference of cells ``i`` of the base and ``j`` of the other arm, the level
        included."""
        own = [_variance(curves, where) for curves, where in ((self.base, i), (self.other, j))]
        if self.noise is not None:
            shared = [self.cross[a, b] for a, b in self.cells if a in i and b in j]
            variance = sum(variance for variance, _ in own) - 2.0 * float(np.mean(shared or [0.0]))
            least = min(self.noise.df.get(int(depth), math.inf) for depth in self.base.depth[i])
            own = [(max(variance, 0.0), least)]
        found = max(summed([*own, (self.level, self.level_df)])[1], 1.0)
        # a level that the seeds show too small by chance counts too little in Satterthwaite's formula
        return found if self.single_seed else min(found, MOST_OVER_SEEDS * self.level_df)


def _variance(curves: Curves, cells: np.ndarray) -> tuple[float, float]:
    """Mean variance of ``cells``, nats², and its degrees of freedom."""
    df = min(curves.noise.df.get(int(depth), math.inf) for depth in curves.depth[cells])
    return float(np.mean(np.diagonal(curves.covariance)[cells])) + curves.noise.shape_variance, df


def at_size(curves: Curves, cells: np.ndarray, x: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean (J,), errors (D, J)) of ``cells`` (J,) at ln axis ``x`` (J,) in place of their own: each moves along its
    own curve over sizes, with the curve's errors. errors: (D, K) of all cells, nats.

    A curve of a single size has the slope of published laws, with an error as large as the slope that all such cells
    share.
    """
    found = np.vstack([curves.mean[cells], curves.mean[cells] + errors[:, cells]])
    gaps, depth = np.asarray(x) - curves.x[cells], curves.depth[cells]
    slope = np.append(1.0, 1.0 + np.random.default_rng(SEED).standard_normal(len(errors)))
    for label in np.unique(depth[np.abs(gaps) > SAME_SIZE]):
        of, where = depth == label, curves.at(int(label))
        places = np.flatnonzero(np.isin(where, cells[of]))
        # a curve between two sizes hangs on two sizes on either side
        where = where[max(places[0] - 2, 0) : places[-1] + 3]
        rows = np.vstack([curves.mean[where], curves.mean[where] + errors[:, where]])
        sizes, values = distinct(curves.x[where], rows)
        if len(sizes) > 1:
            ends = np.concatenate([curves.x[cells][of] + gaps[of], curves.x[cells][of]])
            there, here = np.split(pchip(sizes, values, ends), 2, axis=1)
            found[:, of] += there - here
        else:
            found[:, of] += slope[:, None] * SIZE_SLOPE * curves.mean[cells][of] * gaps[of]
    return found[0], found[1:] - found[0]


def pair_arms(
    a: Arm, b: Arm, declared: float | Mapping[int, float] | None = None, shape_sd: float | None = None
) -> Pairing:
    """Covariance of the errors of arms ``a`` and ``b``. declared, shape_sd: sd of one run's loss and of a shape's
    scatter in nats, as the curves of both took them."""
    cells = matched(a.curves, b.curves)
    why_not = different_text(a, b)
    nothing = np.zeros((len(a.curves.x), len(b.curves.x)))
    runs = _run_differences(a, b, cells)
    if not why_not and not cells:
        why_not = "no two shapes of one depth have nearly the same size"
    if not why_not and not runs:
        why_not = "no seed has runs in both arms"
    if not why_not:
        found = _paired(a, b, cells, runs, declared, shape_sd)
        if found is not None:
            return found
        why_not = "the noise of their differences cannot be estimated"
    levels = [seed_level(*_chosen(arm)) for arm in (a, b)]
    single = any(level is None for level in levels)
    variance, df = summed(
        [level or _as_one_run(c.covariance, c.noise) for level, c in zip(levels, (a.curves, b.curves), strict=True)]
    )
    return Pairing(a.curves, b.curves, nothing, cells, variance, df, None, "nothing", why_not, single)


def matched(a: Curves, b: Curves) -> list[tuple[int, int]]:
    """Matched shapes of one depth: mutually nearest in size, and close enough."""
    found = []
    for depth in sorted(set(a.depths) & set(b.depths)):
        i, j = a.at(depth), b.at(depth)
        gap = np.abs(a.x[i][:, None] - b.x[j])
        for row, column in enumerate(gap.argmin(axis=1)):
            if gap[row, column] <= TOLERANCE and gap[:, column].argmin() == row:
                found.append((int(i[row]), int(j[column])))
    return found


def _chosen(arm: Arm) -> tuple[np.ndarray, np.ndarray, list[Hashable]]:
    """(losses, cells, seeds) of the runs behind the curves: runs at the best learning rate of each shape."""
    index = {_cell(arm.curves, k): k for k in range(len(arm.curves.x))}
    used = [(run, index[run.candidate]) for run in arm.runs if run.candidate in index]
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


def _paired(
    a: Arm,
    b: Arm,
    cells: list[tuple[int, int]],
    runs: Sequence[tuple[int, Hashable, float]],
    declared: float | Mapping[int, float] | None,
    shape_sd: float | None,
) -> Pairing | None:
    which, seeds, differences = zip(*runs, strict=True)
    losses, (present, cell) = np.array(differences), np.unique(which, return_inverse=True)
    cells = [cells[m] for m in present]
    i, j = (np.array(side) for side in zip(*cells, strict=True))
    depth, x = a.curves.depth[i], b.curves.x[j]
    means = cell_means(losses, cell, seeds, len(cells))
    there, _ = at_size(a.curves, i, x, np.zeros((0, len(a.curves.x))))
    at_b = replace(means, mean=means.mean - (there - a.curves.mean[i]))
    documents, same_documents = _documents(a, b, cells)
    noise_a, noise_b = a.curves.noise, b.curves.noise
    independent = math.sqrt(noise_a.shape_variance + noise_b.shape_variance)
    everything = np.arange(len(cells))

    def estimate(shape_sd: float | None) -> tuple[Noise, MeanCovariance]:
        # replicates measure the noise of a difference; a declared noise is taken for two runs that share nothing
        own = None if declared is None or len(losses) > len(cells) else _of_two(declared)
        noise, found = estimate_noise(at_b, depth[cell], everything, depth, own, documents, shape_sd, a.unit)
        judged = of_curves(at_b.mean, depth, x, found, noise.replicate_df) if shape_sd is None else None
        return noise.with_scatter(judged, found, depth), found

    noise, found = estimate(None if shape_sd is None else independent)
    if shape_sd is None and noise.shape_source != SCATTER:  # unmeasured: each arm has a scatter of its own
        noise, found = estimate(independent)
    covariance = found.dense()
    if not noise.known:
        return None
    fewest = min((arm.held_out.number for arm in (a, b) if arm.held_out and arm.held_out.number), default=FEW_DOCUMENTS)
    if documents is not None and fewest < FEW_DOCUMENTS:
        noise = noise.of_few_documents(fewest)
    least = (1.0 - MOST_SHARED) * (noise_a.shape_variance + noise_b.shape_variance)
    apart = covariance + max(noise.shape_variance, least) * np.eye(len(cells))
    own_a, own_b = (curves.total_covariance[np.ix_(k, k)] for curves, k in ((a.curves, i), (b.curves, j)))
    cross = np.zeros((len(a.curves.x), len(b.curves.x)))
    cross[np.ix_(i, j)] = (own_a + own_b - apart) / 2.0
    level = seed_level(losses, cell, seeds)
    variance, df = level or _as_one_run(covariance, noise)
    number = len(set(seeds))
    by = f"{number} seed{'s' if number > 1 else ''} over {len(cells)} shapes"
    if same_documents and a.held_out:
        by += f", {a.held_out.number} held-out documents"
    return Pairing(a.curves, b.curves, cross, cells, variance, df, noise, by, "", level is None)


def _of_two(declared: float | Mapping[int, float]) -> float | dict[int, float]:
    """sd of the difference of two independent runs."""
    if isinstance(declared, Mapping):
        return {depth: math.sqrt(2.0) * sd for depth, sd in declared.items()}
    return math.sqrt(2.0) * declared


def _documents(a: Arm, b: Arm, cells: Sequence[tuple[int, int]]) -> tuple[np.ndarray | None, bool]:
    """(M, M) covariance of the matched differences over samples of documents, None if neither arm has any; and
    whether both were evaluated on the same ones. Else each arm's documents are its own, and their variances add."""
    influences, tokens = [], []
    for side, arm in enumerate((a, b)):
        if arm.held_out is not None and arm.held_out.tokens is not None:
            tokens.append(arm.held_out.tokens)
            influences.append(np.stack([arm.held_out.influence[_cell(arm.curves, pair[side])] for pair in cells]))
    if len(tokens) == 2 and np.array_equal(tokens[0], tokens[1]):
        return over_documents(influences[1] - influences[0]), True
    return (np.sum([over_documents(U) for U in influences], axis=0) if influences else None), False


def _cell(curves: Curves, k: int) -> Candidate:
    return Candidate(curves.shape(k), curves.learning_rate[k])


def _as_one_run(covariance: np.ndarray, noise: Noise) -> tuple[float, float]:
    """Variance and degrees of freedom of one run, in place of a seed effect that a single seed cannot show."""
    return float(np.mean(np.diagonal(covariance))) + noise.shape_variance, max(min(noise.df.values(), default=1.0), 1.0)
