"""Pairing of two arms: the covariance of their errors, which cancels when the arms are compared.

Arms of one study see the same batches under the same seed and the same held-out documents, so the errors of two cell
means at one shape go together. Over the matched shapes (one depth, nearly equal size) the difference of the two arms'
losses is taken run by run, and its noise is estimated as that of any table of losses (noise.py): replicates, documents,
scatter of a shape. With Σ_A, Σ_B and Σ_D the covariances of the means of one arm, of the other and of the difference,

    Σ_AB = (Σ_A + Σ_B − Σ_D) / 2

is the covariance of the arms' errors: no assumption is made, and without shared errors it is zero up to the noise of
the estimate. Arms of different text share nothing, and Σ_AB is zero. The derivatives of a crossing or a best
depth by the cell means carry Σ_AB to its error.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from dwsweep.fit.ask import LossSurface
from dwsweep.fit.cells import Candidate, Run
from dwsweep.fit.curves import Curves, distinct, pchip
from dwsweep.fit.noise import FEW_DOCUMENTS, SCATTER, Documents, MeanCovariance, Noise, cell_means, estimate_noise
from dwsweep.fit.scatter import of_curves
from dwsweep.fit.transitions import Pair
from dwsweep.text import NATS, join

TOLERANCE = math.log(1.25)  # distance in ln N within which two shapes pair: each is within 10 % of its budget

# largest share of a shape's scatter that two arms are taken to share: a few contrasts may show all of it as shared
# (simulated arms that share four fifths: the limit lowered false claims at 95 % from 7 to 5 %)
MOST_SHARED = 0.75


@dataclass(frozen=True)
class Arm:
    """One recipe: its runs, their curves, and its held-out documents if every run has them.

    label: name of the arm. source, sha256: of its table. pairs: the neighbouring depths. surface: the loss of
    all depths together, gains: of ``fit_with_gains``; None and empty where
    there are too few shapes. diverged: number of diverged runs and their treatment, in words; empty for none.
    eval_tokens: of the held-out set, as its spec has them; empty if that is not known. unit: of the losses.
    """

    label: str
    source: str
    sha256: str
    runs: Sequence[Run]
    curves: Curves
    pairs: Sequence[Pair] = ()
    surface: LossSurface | None = None
    held_out: Documents | None = None
    diverged: str = ""
    eval_tokens: str = ""
    unit: str = NATS
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Pairing:
    """Covariance of the errors of two arms.

    cross: (K_A, K_B) nats², covariance of the errors of their cell means. cells: the matched shapes, as indices of the
    two curves. level: nats², variance of the error that a seed adds to the loss difference of all shapes alike;
    level_df: its degrees of freedom (inf where it is zero). noise: of the difference of two cell means; None where
    nothing is paired. by: names of the paired sources of noise; why_not: reason why one is not paired, or empty.
    single_seed: True with one seed, so that the error that a seed adds to all shapes is unknown.
    """

    cross: np.ndarray
    cells: list[tuple[int, int]]
    level: float
    level_df: float
    noise: Noise | None
    by: str
    why_not: str
    single_seed: bool

    def df(self, own: Sequence[tuple[float, float]], shared: float, depths: Sequence[int]) -> float:
        """Degrees of freedom of a difference of two cell means at ``depths``, the level included. own:
        variance and degrees of freedom of either mean; shared: their covariance."""
        if self.noise is not None:
            least = min(self.noise.df.get(depth, math.inf) for depth in depths)
            own = [(max(sum(variance for variance, _ in own) - 2.0 * shared, 0.0), least)]
        return max(summed([*own, (self.level, self.level_df)])[1], 1.0)


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
    levels = [_level(*_chosen(arm)) for arm in (a, b)]
    single = any(level is None for level in levels)
    variance, df = summed(
        [level or _as_one_run(c.covariance, c.noise) for level, c in zip(levels, (a.curves, b.curves), strict=True)]
    )
    return Pairing(nothing, cells, variance, df, None, "nothing", why_not, single)


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


def different_text(a: Arm, b: Arm) -> str:
    """Reason why the arms saw different texts in training or evaluation; empty if nothing shows that."""
    for name, what in (
        ("vocab_size", "vocabularies"),
        ("data_hash", "data"),
        ("seq_len", "sequence lengths"),
    ):
        one, other = ({run.row[name] for run in arm.runs if run.row.get(name) is not None} for arm in (a, b))
        if one and other and one != other:
            shown = [join(sorted(str(value)[:12] for value in values)) for values in (one, other)]
            return f"different {what} ({shown[0]} and {shown[1]})"
    if a.eval_tokens and b.eval_tokens and a.eval_tokens != b.eval_tokens:
        return f"different held-out sets (train.eval_tokens {a.eval_tokens} and {b.eval_tokens})"
    return ""


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
    at_b = replace(means, mean=means.mean - _size_gaps(a.curves, i, x))
    documents, same_documents = _documents(a, b, cells)
    noise_a, noise_b = a.curves.noise, b.curves.noise
    independent = math.sqrt(noise_a.shape_variance + noise_b.shape_variance)
    everything = np.arange(len(cells))

    def estimate(shape_sd: float | None) -> tuple[Noise, MeanCovariance]:
        # replicates measure the noise of a difference; a declared noise is taken for two runs that share nothing
        own = None if declared is None or len(losses) > len(cells) else _of_two(declared)
        noise, found = estimate_noise(at_b, depth[cell], everything, depth, own, documents, shape_sd)
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
    level = _level(losses, cell, seeds)
    variance, df = level or _as_one_run(covariance, noise)
    number = len(set(seeds))
    by = f"{number} seed{'s' if number > 1 else ''} over {len(cells)} shapes"
    if same_documents and a.held_out:
        by += f", {a.held_out.number} held-out documents"
    return Pairing(cross, cells, variance, df, noise, by, "", level is None)


def _of_two(declared: float | Mapping[int, float]) -> float | dict[int, float]:
    """sd of the difference of two independent runs."""
    if isinstance(declared, Mapping):
        return {depth: math.sqrt(2.0) * sd for depth, sd in declared.items()}
    return math.sqrt(2.0) * declared


def _size_gaps(curves: Curves, i: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(M,) nats, correction of a loss difference for sizes that differ between the arms: loss at x on the curve of each
    cell's depth − loss there at the cell's own size."""
    gaps = np.zeros(len(i))
    for depth in np.unique(curves.depth[i]):
        where, of = curves.at(int(depth)), curves.depth[i] == depth
        sizes, means = distinct(curves.x[where], curves.mean[where][None])
        if len(sizes) > 1:
            gaps[of] = (pchip(sizes, means, x[of]) - pchip(sizes, means, curves.x[i][of]))[0]
    return gaps


def _documents(a: Arm, b: Arm, cells: Sequence[tuple[int, int]]) -> tuple[np.ndarray | None, bool]:
    """(M, M) covariance of the matched differences over samples of documents, None if neither arm has any; and
    whether both were evaluated on the same ones. Else each arm's documents are its own, and their variances add."""
    influences, tokens = [], []
    for side, arm in enumerate((a, b)):
        if arm.held_out is not None and arm.held_out.tokens is not None:
            tokens.append(arm.held_out.tokens)
            influences.append(np.stack([arm.held_out.influence[_cell(arm.curves, pair[side])] for pair in cells]))
    if len(tokens) == 2 and np.array_equal(tokens[0], tokens[1]):
        return _over_documents(influences[1] - influences[0]), True
    return (np.sum([_over_documents(U) for U in influences], axis=0) if influences else None), False


def _cell(curves: Curves, k: int) -> Candidate:
    return Candidate(curves.shape(k), curves.learning_rate[k])


def _over_documents(U: np.ndarray) -> np.ndarray:
    n = U.shape[1]
    return U @ U.T * n / (n - 1)


def _level(losses: np.ndarray, cell: np.ndarray, seeds: Sequence[Hashable]) -> tuple[float, float] | None:
    """(variance of the error that seeds add to all cells alike, its degrees of freedom); None with a single seed.

    The mean over cells of each seed's deviation has variance s² + σ²/K; the second part is in the cells' own noise
    already. Runs without seeds, or whose seeds do not link the cells, have all of it there.
    """
    names = list(dict.fromkeys(seeds))
    if len(names) == 1 and names[0] is not None:
        return None
    n_cells = int(cell.max()) + 1
    means = cell_means(losses, cell, seeds, n_cells)
    if not means.paired:
        return 0.0, math.inf
    centre = np.bincount(cell, losses, n_cells) / np.maximum(np.bincount(cell, minlength=n_cells), 1)
    away = losses - centre[cell]
    of_seeds = np.array([np.mean([v for v, s in zip(away, seeds, strict=True) if s == name]) for name in names])
    free = float((1.0 - means.leverage).sum())
    own = float((means.residual**2).sum()) / free / n_cells if free > 0.5 else 0.0
    spread = float(of_seeds @ of_seeds) / (len(names) - 1)
    return max(0.0, spread - own) / len(names), len(names) - 1.0


def _as_one_run(covariance: np.ndarray, noise: Noise) -> tuple[float, float]:
    """Variance and degrees of freedom of one run, in place of a seed effect that a single seed cannot show."""
    return float(np.mean(np.diagonal(covariance))) + noise.shape_variance, max(min(noise.df.values(), default=1.0), 1.0)


def summed(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Variance and degrees of freedom (Satterthwaite) of a sum of independent variance estimates."""
    total = sum(variance for variance, _ in parts)
    inverse = sum(variance**2 / df for variance, df in parts if math.isfinite(df))
    return total, total**2 / inverse if inverse > 0 else math.inf
