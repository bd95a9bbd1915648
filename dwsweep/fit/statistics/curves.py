"""Loss curves per depth, with about two thousand Gaussian draws of all cell means at once behind every band."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dwsweep.fit.data.runs import Run, Setup, TableShape
from dwsweep.fit.statistics.documents import FEW_DOCUMENTS, Documents
from dwsweep.fit.statistics.model import PRIORS, UNREPLICATED
from dwsweep.fit.statistics.noise import (
    FLOOR_NATS,
    MeanCovariance,
    Noise,
    cell_means,
    chi2_quantile,
    estimate_noise,
    root,
)
from dwsweep.records.cells import Cells
from dwsweep.text import NATS

MOST_DRAWN = 40_000_000  # limit of numbers in the draws of all cell means: 320 MB, several times over
DRAWS, FEWEST_DRAWS = 2000, 100


@dataclass(frozen=True)
class Curves:
    """Fitted cell means, one per shape, sorted by depth and then by x.

    depth, width, x (ln of the axis), n_params, mean (nats), se (nats), n (runs), learning_rate, block: (K,).
    draws: (D, K) nats, centred on mean. noise: the noise model. rate_edge: shapes whose best learning rate is at the
    edge of those tried. paired: seeds cancel between shapes. means: their covariance, without the error that seeds of a
    shape share. scatter_seed: seed of the draws of the scatter between shapes. layer_weights: weights of a layer over
    d², of the nets that the losses are adjusted to; None: as trained.
    """

    depth: np.ndarray
    width: np.ndarray
    x: np.ndarray
    n_params: np.ndarray
    mean: np.ndarray
    se: np.ndarray
    n: np.ndarray
    learning_rate: list[float | None]
    draws: np.ndarray
    noise: Noise
    rate_edge: list[tuple[int, float, float]]
    paired: bool
    means: MeanCovariance
    block: list[str] = field(default_factory=list)
    scatter_seed: int = 0
    layer_weights: float | None = None

    def with_noise(self, noise: Noise) -> Curves:
        """Curves with the scatter between shapes in noise, draws and errors."""
        luck = np.random.default_rng(self.scatter_seed).standard_normal(self.draws.shape)
        draws = self.draws + math.sqrt(noise.shape_variance) * luck
        return replace(self, noise=noise, draws=draws, se=draws.std(axis=0))

    def shape(self, k: int) -> TableShape:
        """The shape of a cell."""
        return TableShape(int(self.depth[k]), float(self.width[k]), self.block[k] if self.block else "")

    @cached_property
    def covariance(self) -> np.ndarray:
        """(K, K) covariance of the means without the error that seeds of a shape share, nats². Limit: see ``dense``."""
        return self.means.dense()

    @property
    def depths(self) -> list[int]:
        return [int(d) for d in np.unique(self.depth)]

    @property
    def total_covariance(self) -> np.ndarray:
        """(K, K) covariance of the means with the error that seeds of a shape share, nats²."""
        return self.covariance + self.noise.shape_variance * np.eye(len(self.x))

    @property
    def cells(self) -> Cells:
        """Data of the posterior, with their noise as it was estimated or declared."""
        scatter = PRIORS["scatter"] if self.noise.replicate_df > 0.0 else UNREPLICATED
        y, means = np.log(self.depth.astype(float)), self.means
        found = Cells(self.x, y, self.mean, means.diagonal, means.factors, self.noise.replicate_df, scatter)
        return found.with_few_factors()

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
        found: np.ndarray = (x - np.interp(near, trained, offset) - (y - near)) / 2.0
        return found

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
        if not math.isfinite(self.df):
            return self.deviations
        n = len(self.deviations)
        factors = np.sqrt(chi2_quantile((np.arange(n) + 0.5) / n, self.df) / self.df)
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
    """Cell means, noise and draws of ``runs``. declared, unit: as in ``estimate_noise``.
    Without the scatter between shapes, which ``scatter.judged`` adds.

    The best learning rate of a shape is chosen on its mean over seeds, and again in every draw; the draws' mean choice
    below the estimate is the winner's curse and is subtracted (a bootstrap bias correction). The order of
    the runs and the names of their seeds change nothing.
    """
    runs = sorted(runs, key=lambda run: (run.depth, run.width, run.learning_rate or -1.0, run.loss))
    own = [run.candidate for run in runs]
    candidates = sorted(set(own), key=lambda candidate: candidate.order)
    index = {candidate: k for k, candidate in enumerate(candidates)}
    cell = np.array([index[candidate] for candidate in own])
    means = cell_means(np.array([run.loss for run in runs]), cell, [run.seed for run in runs], len(candidates))
    shapes = sorted({candidate.shape for candidate in candidates})
    x_of = _shape_average(runs, shapes, "x")
    shapes.sort(key=lambda shape: (shape.depth, x_of[shape]))
    of_shape: dict[TableShape, list[int]] = defaultdict(list)
    for k, candidate in enumerate(candidates):
        of_shape[candidate.shape].append(k)
    groups = [of_shape[shape] for shape in shapes]
    chosen = np.array([min(group, key=lambda k: means.mean[k]) for group in groups])
    depth = np.array([shape.depth for shape in shapes])
    x = np.array([x_of[shape] for shape in shapes])
    extra = documents.covariance if documents else None
    noise, covariance = estimate_noise(means, declared, extra, unit)
    if documents and documents.number is not None and documents.number < FEW_DOCUMENTS:
        noise = noise.of_few_documents(documents.number)
    all_draws = covariance.draws(max(FEWEST_DRAWS, min(DRAWS, MOST_DRAWN // len(candidates))), rng)
    all_draws += means.mean
    draws = np.stack([all_draws[:, group].min(axis=1) for group in groups], axis=1)
    many = np.array([len(group) > 1 for group in groups])
    mean = means.mean[chosen] - np.where(many, draws.mean(axis=0) - means.mean[chosen], 0.0)
    draws += mean - draws.mean(axis=0)
    draws += FLOOR_NATS * rng.standard_normal(draws.shape)
    runs_of = np.bincount(cell, minlength=len(candidates))
    n_params = _shape_average(runs, shapes, "n_params")
    return Curves(
        depth=depth,
        width=np.array([shape.width for shape in shapes], dtype=float),
        block=[shape.block for shape in shapes],
        x=x,
        n_params=np.array([n_params[shape] for shape in shapes]),
        mean=mean,
        se=draws.std(axis=0),
        n=runs_of[chosen],
        learning_rate=[candidates[k].learning_rate for k in chosen],
        draws=draws,
        noise=noise,
        rate_edge=_edges(candidates, groups, chosen),
        paired=means.paired,
        means=covariance.at(chosen),
        scatter_seed=int(rng.integers(2**62)),
    )


def _shape_average(runs: Sequence[Run], shapes: list[TableShape], name: str) -> dict[TableShape, float]:
    values: dict[TableShape, list[float]] = {shape: [] for shape in shapes}
    for run in runs:
        values[run.shape].append(getattr(run, name))
    return {shape: float(np.mean(v)) for shape, v in values.items()}


def _edges(candidates: list[Setup], groups: list[list[int]], chosen: np.ndarray) -> list[tuple[int, float, float]]:
    edges = []
    for group, best in zip(groups, chosen, strict=True):
        rates = [candidates[k].learning_rate for k in group]
        known = [rate for rate in rates if rate is not None]
        rate = candidates[best].learning_rate
        if len(rates) > 1 and len(known) == len(rates) and rate is not None and rate in (min(known), max(known)):
            edges.append((candidates[best].shape.depth, candidates[best].shape.width, rate))
    return edges


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
