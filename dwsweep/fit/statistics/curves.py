"""Loss curves per depth, with about two thousand Gaussian draws of all cell means at once behind every band."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from dwsweep.fit.data.runs import Run, TableShape
from dwsweep.fit.statistics.documents import FEW_DOCUMENTS, Documents
from dwsweep.fit.statistics.model import PRIORS, UNREPLICATED
from dwsweep.fit.statistics.noise import FLOOR_NATS, MeanCovariance, Noise, averages, cell_means, estimate_noise, root
from dwsweep.records.cells import Cells
from dwsweep.text import NATS

MOST_DRAWN = 40_000_000  # limit of numbers in the draws of all cell means: 320 MB, several times over
DRAWS, FEWEST_DRAWS = 2000, 100


@dataclass(frozen=True)
class Means:
    """Mean losses of K groups of equal runs.

    of: (n,) group of each run, −1 for a run in none. depth, width, x (ln of the axis), n_params, mean (nats), n (runs):
    (K,). noise: of a run and of a mean. covariance: of the means, nats², without the error that seeds of a shape share.
    paired: seeds cancel between means.
    """

    of: np.ndarray
    depth: np.ndarray
    width: np.ndarray
    x: np.ndarray
    n_params: np.ndarray
    mean: np.ndarray
    n: np.ndarray
    noise: Noise
    covariance: MeanCovariance
    paired: bool

    @property
    def y(self) -> np.ndarray:
        """(K,) ln depth."""
        return np.log(self.depth.astype(float))

    @property
    def cells(self) -> Cells:
        """Data of the posterior, with their noise as it was estimated or declared."""
        return cells_of(self.x, self.y, self.mean, self.covariance, self.noise.replicate_df)


def cells_of(x: np.ndarray, y: np.ndarray, mean: np.ndarray, known: MeanCovariance, df: float) -> Cells:
    """Data of a posterior. known: covariance of the means by replicates and documents; df: degrees of freedom of the
    replicates, 0 without."""
    scatter = PRIORS["scatter"] if df > 0.0 else UNREPLICATED
    return Cells(x, y, mean, known.diagonal, known.factors, df, scatter).with_few_factors()


def means_of(
    runs: Sequence[Run],
    keys: Sequence[Any],
    declared: float | None = None,
    documents: Documents | None = None,
    unit: str = NATS,
    points: float = 1.0,
) -> Means:
    """Means of the runs of each of ``keys`` (n,), in their order. declared, unit: as in ``estimate_noise``. points: as
    in ``CellMeans``. documents: of the means. The order of the runs and the names of their seeds change nothing."""
    place = {key: k for k, key in enumerate(sorted(set(keys)))}
    order = sorted(range(len(runs)), key=lambda k: (keys[k], runs[k].loss))
    cell = np.array([place[keys[k]] for k in order])
    losses, seeds = np.array([runs[k].loss for k in order]), [runs[k].seed for k in order]
    found = replace(cell_means(losses, cell, seeds), points=points)
    noise, covariance = estimate_noise(found, declared, documents.covariance if documents else None, unit)
    if documents and documents.number is not None and documents.number < FEW_DOCUMENTS:
        noise = noise.of_few_documents(documents.number)
    of = np.empty(len(runs), dtype=int)
    of[order] = cell
    first = np.unique(of, return_index=True)[1]
    return Means(
        of=of,
        depth=np.array([runs[k].depth for k in first]),
        width=np.array([float(runs[k].width) for k in first]),
        x=averages([run.x for run in runs], of),
        n_params=averages([run.n_params for run in runs], of),
        mean=found.mean,
        n=np.bincount(of),
        noise=noise,
        covariance=covariance,
        paired=found.paired,
    )


@dataclass(frozen=True)
class Curves(Means):
    """Means of each shape at its best learning rate, sorted by depth and then by x.

    se: (K,) nats. draws: (D, K) nats, centred on mean. learning_rate, block: (K,). rate_edge: shapes whose best rate is
    at the edge of those tried. scatter_seed: seed of the draws of the scatter between shapes. layer_weights: weights of
    a layer over d², of the nets that the losses are adjusted to; None: as trained.
    """

    se: np.ndarray
    draws: np.ndarray
    learning_rate: list[float | None]
    block: list[str]
    rate_edge: list[tuple[int, float, float]]
    scatter_seed: int = 0
    layer_weights: float | None = None

    def with_noise(self, noise: Noise) -> Curves:
        """Curves with the scatter between shapes in noise, draws and errors."""
        luck = np.random.default_rng(self.scatter_seed).standard_normal(self.draws.shape)
        draws = self.draws + math.sqrt(noise.shape_variance) * luck
        return replace(self, noise=noise, draws=draws, se=draws.std(axis=0))

    def shape(self, k: int) -> TableShape:
        """The shape of a cell."""
        return TableShape(int(self.depth[k]), float(self.width[k]), self.block[k])

    @property
    def depths(self) -> list[int]:
        return [int(d) for d in np.unique(self.depth)]

    def at(self, depth: int) -> np.ndarray:
        """Indices of a depth's shapes, in order of x."""
        return np.flatnonzero(self.depth == depth)

    def sizes(self, depth: int) -> np.ndarray:
        """Distinct x of a depth's shapes, the knots of its curve."""
        x = self.x[self.at(depth)]
        return distinct(x, x[None])[0]

    def losses(self, depth: int) -> tuple[np.ndarray, np.ndarray]:
        """(x (K,), nats (1 + D, K)) of a depth's distinct sizes: the means first, then their draws."""
        where = self.at(depth)
        return distinct(self.x[where], np.vstack([self.mean[where], self.draws[:, where]]))

    def ln_width_of(self, depth: int, x: np.ndarray | float) -> np.ndarray:
        """ln d_x of ``depth`` at ln-axis ``x``: ln d = (x − o)/2, with o = x − 2 ln d interpolated between its shapes
        (o = ln 12L exactly on the default axis)."""
        where = self.at(depth)
        return (np.asarray(x) - np.interp(x, self.x[where], self._offset(where))) / 2.0

    def ln_width_at(self, x: float, y: np.ndarray) -> np.ndarray:
        """(n,) ln d_x of nets of any depths e^y at ln-axis ``x``, as wide as those of the depths next to them."""
        trained = np.log(self.depths)
        offset = [x - 2.0 * float(self.ln_width_of(depth, x)) for depth in self.depths]
        near = np.clip(y, trained[0], trained[-1])
        return (x - np.interp(near, trained, offset) - (y - near)) / 2.0

    def _offset(self, where: np.ndarray) -> np.ndarray:
        """ln of the axis less 2 ln d of the shapes ``where``, of which all have one depth."""
        if self.layer_weights is not None:
            return np.log(self.layer_weights * self.depth[where])
        return self.x[where] - 2.0 * np.log(self.width[where])


@dataclass(frozen=True)
class SimultaneousBand:
    """A band that holds for all of several numbers together: value ± critical·se, a sup-t band.

    value: (J,). deviations: (D, J), draws of the errors; df: degrees of freedom of their variance.
    """

    value: np.ndarray
    deviations: np.ndarray
    df: float
    confidence: float

    @cached_property
    def se(self) -> np.ndarray:
        return np.maximum(self.deviations.std(axis=0), FLOOR_NATS)

    @cached_property
    def errors(self) -> np.ndarray:
        """(D, J) deviations, each draw divided by √(χ²_df/df).

        The χ² factors are quantiles in a fixed order, unrelated to that of the draws, so that they repeat.
        """
        from scipy.special import gammaincinv

        if not math.isfinite(self.df):
            return self.deviations
        n = len(self.deviations)
        factors = np.sqrt(2.0 * gammaincinv(self.df / 2.0, (np.arange(n) + 0.5) / n) / self.df)
        return self.deviations / factors[np.random.default_rng(0).permutation(n), None]

    @property
    def drawn(self) -> np.ndarray:
        """(D, J) draws of the numbers."""
        return self.value + self.errors

    @cached_property
    def critical(self) -> float:
        """Quantile of max_j |draw − value|/se."""
        return float(np.quantile(np.max(np.abs(self.errors) / self.se, axis=1), self.confidence))

    @property
    def low(self) -> np.ndarray:
        return self.value - self.critical * self.se

    @property
    def high(self) -> np.ndarray:
        return self.value + self.critical * self.se

    @property
    def sign(self) -> np.ndarray:
        """(J,) sign of the band: 1 above zero, −1 below, 0 if it holds zero."""
        t = self.value / self.se
        return (t > self.critical).astype(int) - (t < -self.critical)


def build_curves(
    runs: Sequence[Run],
    declared: float | None,
    rng: np.random.Generator,
    documents: Documents | None = None,
    unit: str = NATS,
) -> Curves:
    """The curves of ``runs``. declared, documents, unit: as in ``means_of``. Without the scatter between shapes, which
    ``scatter.judged`` adds.

    The best learning rate of a shape is chosen on its mean over seeds, and again in every draw; the draws' mean choice
    below the estimate is the winner's curse and is subtracted (a bootstrap bias correction).
    """
    keys = [run.setup.order for run in runs]
    means, tried = means_of(runs, keys, declared, documents, unit), sorted(set(keys))
    groups: dict[TableShape, list[int]] = defaultdict(list)
    for k, (shape, _) in enumerate(tried):
        groups[shape].append(k)
    best = {shape: min(group, key=lambda k: means.mean[k]) for shape, group in groups.items()}
    shapes = sorted(groups, key=lambda shape: (shape.depth, means.x[best[shape]]))
    chosen, rates_of = np.array([best[shape] for shape in shapes]), [groups[shape] for shape in shapes]
    drawn = means.covariance.draws(max(FEWEST_DRAWS, min(DRAWS, MOST_DRAWN // len(tried))), rng) + means.mean
    draws = np.stack([drawn[:, group].min(axis=1) for group in rates_of], axis=1)
    many = np.array([len(group) > 1 for group in rates_of])
    mean = means.mean[chosen] - np.where(many, draws.mean(axis=0) - means.mean[chosen], 0.0)
    draws += mean - draws.mean(axis=0)
    draws += FLOOR_NATS * rng.standard_normal(draws.shape)
    used = np.full(len(tried), -1)
    used[chosen] = np.arange(len(chosen))
    rate = [None if value < 0.0 else value for _, value in tried]
    of_shapes = {name: vars(means)[name][chosen] for name in ("depth", "width", "x", "n_params", "n")}
    return Curves(
        **vars(means) | of_shapes | {"of": used[means.of], "mean": mean, "covariance": means.covariance.at(chosen)},
        se=draws.std(axis=0),
        draws=draws,
        learning_rate=[rate[k] for k in chosen],
        block=[shape.block for shape in shapes],
        rate_edge=[
            (shape.depth, shape.width, rate[best])
            for shape, group, best in zip(shapes, rates_of, chosen, strict=True)
            if len(group) > 1 and rate[group[0]] is not None and best in (group[0], group[-1])
        ],
        scatter_seed=int(rng.integers(2**62)),
    )


def gaussian(covariance: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, K) draws of a centred Gaussian; singular covariances are allowed."""
    return rng.standard_normal((n, len(covariance))) @ root(covariance)


def distinct(x: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Average the columns of values (D, K) whose x (sorted) coincide: two widths can cost the same on a timed axis."""
    new = np.concatenate([[True], np.diff(x) > 1e-9])
    if new.all():
        return x, values
    label = np.cumsum(new) - 1
    count = np.bincount(label)
    merged = np.stack([values[:, label == k].mean(axis=1) for k in range(len(count))], axis=1)
    return np.array([x[label == k].mean() for k in range(len(count))]), merged
