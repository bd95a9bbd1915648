"""Interpolation against SciPy's."""

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator, make_interp_spline

from dwsweep.fit.interpolation import pchip, spline


def curves(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, curves that rise, fall, stand still and turn, and a grid that reaches beyond both ends."""
    rng = np.random.default_rng(count)
    x = 12.0 + np.cumsum(rng.uniform(0.05, 2.0, count))
    values = rng.normal(size=(60, count))
    values[:20] = np.sort(values[:20], axis=1)
    values[20:30] = np.round(values[20:30])  # chords of slope 0
    return x, values, np.concatenate([np.linspace(x[0] - 0.5, x[-1] + 0.5, 301), x])


@pytest.mark.parametrize("count", [2, 3, 4, 5, 9, 17])
def test_monotone_interpolation_is_scipys(count):
    x, values, grid = curves(count)
    np.testing.assert_allclose(
        pchip(x, values, grid), PchipInterpolator(x, values, axis=1)(grid), rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize("count", [2, 3, 4, 5, 9, 17])
def test_splines_are_scipys(count):
    x, values, grid = curves(count)
    inside = grid[(grid >= x[0]) & (grid <= x[-1])]
    expected = make_interp_spline(x, values, k=min(3, count - 1), axis=1)
    np.testing.assert_allclose(spline(x, values, inside), expected(inside), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(spline(x, values, grid), expected(grid), rtol=1e-8, atol=1e-8)
