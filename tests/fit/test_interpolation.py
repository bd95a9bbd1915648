"""Interpolation of loss curves, against scipy.interpolate."""

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator, make_interp_spline

from dwsweep.fit.interpolation import pchip, spline


@pytest.fixture(params=[2, 3, 4, 5, 9], ids="{} sizes".format)
def curves(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(x, values, grid): draws with ties, plateaus and turns among them, on a grid that reaches beyond both ends."""
    rng = np.random.default_rng(request.param)
    x = np.sort(rng.normal(size=request.param))
    values = rng.normal(size=(60, request.param))
    values[:20] = values[:20].round()
    return x, values, np.concatenate([np.linspace(x[0] - 0.5, x[-1] + 0.5, 50), x])


def test_monotone_cubics_are_those_of_scipy_to_the_bit(curves: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    x, values, grid = curves
    np.testing.assert_array_equal(pchip(x, values, grid), PchipInterpolator(x, values, axis=1)(grid))


def test_splines_are_those_of_scipy(curves: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    x, values, grid = curves
    expected = make_interp_spline(x, values, k=min(3, len(x) - 1), axis=1)(grid)
    np.testing.assert_allclose(spline(x, values, grid), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_points_of_the_grid_may_come_in_any_order(curves: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    x, values, grid = curves
    mixed = np.random.default_rng(0).permutation(len(grid))
    for interpolated in (pchip, spline):
        np.testing.assert_array_equal(interpolated(x, values, grid)[:, mixed], interpolated(x, values, grid[mixed]))
