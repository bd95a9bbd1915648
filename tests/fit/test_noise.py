"""Cell means and their noise: pairing under missing runs, degrees of freedom, scatter about smooth curves."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from dwsweep.fit.analysis import fit_table
from dwsweep.fit.statistics.ask import LossSurface
from dwsweep.fit.statistics.noise import MeanCovariance, cell_means, estimate_noise
from dwsweep.fit.statistics.scatter import of_curves
from tests.simulations.sweeps import SmoothTruth, draw


@pytest.fixture(autouse=True)
def one_blas_thread():
    """As in ``fit_table``: a second thread for these small matrices only waits for a busy core."""
    with threadpool_limits(1, user_api="blas"):
        yield


def grid(n_cells, n_seeds):
    cells, seeds = np.divmod(np.arange(n_cells * n_seeds), n_seeds)
    return cells, list(seeds)


def weights(means):
    """(K, n) with mean = weights · losses."""
    own = (np.arange(len(means.mean))[:, None] == means.cells) / np.bincount(means.cells)[:, None]
    return own - means.shares @ (means.gain[:, means.codes] - means.gain @ means.shares[means.cells].T)


def test_missing_seeds_do_not_break_the_pairing_and_the_covariance_of_the_means_is_that_of_their_weights():
    """Seeds differ by far more than cells: only a fit of both recovers the cells from an incomplete table. Against
    weights · variances · weightsᵀ in full, with a variance per cell."""
    rng = np.random.default_rng(4)
    cells, seeds = grid(7, 4)
    cell, seed = rng.normal(3.0, 0.1, 7), np.array([-1.0, 0.2, 0.8, 2.0])
    keep = np.setdiff1d(np.arange(28), [0, 5, 6, 19])
    cells, seeds, variance = cells[keep], [seeds[i] for i in keep], rng.uniform(0.5, 3.0, 7)
    losses = cell[cells] + seed[seeds]
    means = cell_means(losses, cells, seeds)
    assert means.paired
    np.testing.assert_allclose(means.mean - means.mean.mean(), cell - cell.mean(), atol=1e-12)
    np.testing.assert_allclose(weights(means) @ losses, means.mean, atol=1e-12)
    full = (weights(means) * variance[cells]) @ weights(means).T
    found = means.covariance(variance)
    for where in (np.arange(7), np.array([1, 4])):
        part = found.at(where)
        dense = np.diag(part.diagonal) + part.factors @ part.factors.T
        np.testing.assert_allclose(dense, full[np.ix_(where, where)], atol=1e-12)
    np.testing.assert_allclose(np.cov(found.draws(40_000, rng).T), full, atol=0.06)


def test_fifty_thousand_shapes_need_no_matrix_of_their_square():
    cells, seeds = grid(50_000, 2)
    depth, x = np.repeat([4, 8, 16, 32], 12_500), np.tile(np.linspace(14, 20, 12_500), 4)
    losses = np.random.default_rng(7).normal(3.0 - 0.1 * x[cells], 0.002)
    noise, covariance = noise_of(losses, cells, seeds, depth, x)
    assert noise.sigma == pytest.approx(0.002, rel=0.02) and noise.shape_variance < 0.001**2
    assert covariance.factors.shape == (50_000, 2)


@pytest.mark.parametrize(
    ("seeds", "df"),
    [([0, 1, 2] * 4, (4 - 1) * (3 - 1)), (list(range(12)), 4 * 2), ([None] * 12, 4 * 2)],
    ids=["paired", "own", "unknown"],
)
def test_degrees_of_freedom_are_those_of_the_design_and_seeds_that_link_nothing_pair_nothing(seeds, df):
    means = cell_means(np.random.default_rng(1).normal(size=12), grid(4, 3)[0], seeds)
    assert means.of_run[1] == df and means.paired == (df == 6)


def known(variance):
    """Covariance of means that share nothing."""
    return MeanCovariance(np.array(variance, dtype=float), np.zeros((len(variance), 0)))


FIVE_DEPTHS = np.repeat(np.arange(5), 9), np.tile(np.linspace(13.8, 20.2, 9), 5)


@pytest.mark.parametrize("bend", [2.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_scatter_finds_the_noise_of_bending_curves(bend):
    """Curves that bend within exp(bend) in N: third differences would be off by up to a factor of 2 here."""
    depth, x = FIVE_DEPTHS
    curve = 8 * np.exp(-0.1 * x) - 0.1 * depth * np.tanh((x - 15 - depth) / bend)
    found = []
    for k in range(20):
        noisy = curve + np.random.default_rng(k).normal(0, 0.002, len(x))
        one = of_curves(noisy, depth, x, known(np.zeros(45)), 0.0)
        assert one.from_bend
        found.append(one)
    assert np.mean([one.sd for one in found]) == pytest.approx(0.002, rel=0.15)
    assert 5.0 < np.mean([one.df(0.0) for one in found]) < 45 - 5 * 3
    inside = [np.quantile(one.own, 0.05) < 0.002**2 < np.quantile(one.own, 0.95) for one in found]
    assert np.mean(inside) > 0.75
    three = x < np.unique(x)[3]
    assert of_curves(noisy[three], depth[three], x[three], known(np.zeros(15)), 0.0) is None


def noise_of(losses, cells, seeds, depth_of_cell, x, **options):
    means = cell_means(losses, cells, seeds)
    noise, covariance = estimate_noise(means, **options)
    found = of_curves(means.mean, depth_of_cell, x, covariance, noise.replicate_df)
    return noise.with_scatter(found, covariance), covariance


@pytest.mark.usefixtures("whole_grids")
def test_shape_noise_that_seeds_share_is_added():
    cells, seeds = grid(45, 3)
    rng = np.random.default_rng(6)
    losses = rng.normal(0, 0.004, 45)[cells] + rng.normal(0, 0.001, 135)
    noise, _ = noise_of(losses, cells, seeds, *FIVE_DEPTHS)
    assert noise.source == "replicates and scatter"
    assert np.sqrt(noise.shape_variance) == pytest.approx(0.004, rel=0.35)
    # of the shapes, less level, slope and curvature of each depth, and not of the runs; 100 nodes know it to 14 %
    assert noise.df < 1.14 * (45 - 5 * 3)


def test_one_number_is_the_scatter_of_a_fit_with_a_posterior():
    """The printed scatter, the errors of means and the surface rest on one estimate."""
    rows = draw(SmoothTruth((6, 12, 18, 24)), np.random.default_rng(0), budgets=np.geomspace(1e6, 1e8, 7))
    result = fit_table(rows)
    surface = LossSurface(result.surface)
    tau = float(np.exp(np.median(surface.posterior.stacked("scatter"))))
    assert result.noise["tau"] == result.noise["shape_sd"] == pytest.approx(tau, rel=1e-12)
    assert result.noise["shape_source"] == "scatter"
    for cell in result.cells:
        own = np.sqrt(result.noise["sigma"] ** 2 / cell.n + tau**2)
        assert own * 0.9 < cell.se < 1.6 * own  # the seeds' own means come on top
