"""Interpolation against SciPy's, and the lowest point of a parabola on any grid."""

import numpy as np
import pytest
from scipy.interpolate import PchipInterpolator, make_interp_spline

from dwsweep.fit.interpolation import pchip, spline
from dwsweep.fit.parabola import lowest


@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_interpolation_is_scipys(count):
    """Of curves that rise, fall, stand still and turn, and on a grid that reaches beyond both ends."""
    rng = np.random.default_rng(count)
    x = 12.0 + np.cumsum(rng.uniform(0.05, 2.0, count))
    values = rng.normal(size=(60, count))
    values[:20] = np.sort(values[:20], axis=1)
    values[20:30] = np.round(values[20:30])  # chords of slope 0
    grid = np.concatenate([np.linspace(x[0] - 0.5, x[-1] + 0.5, 301), x])
    monotone = PchipInterpolator(x, values, axis=1)(grid)
    np.testing.assert_allclose(pchip(x, values, grid), monotone, rtol=1e-13, atol=1e-13)
    expected = make_interp_spline(x, values, k=min(3, count - 1), axis=1)(grid)
    np.testing.assert_allclose(spline(x, values, grid), expected, rtol=1e-8, atol=1e-8)


def test_the_lowest_point_is_a_vertex_an_end_or_a_point_beside_one_that_is_not_allowed():
    grid, best = np.array([0.0, 1.0, 1.5, 3.0, 4.0]), np.array([[0.8], [1.4], [2.6]])
    found = lowest(grid, 3.0 * (grid - best) ** 2 - 1.0)
    assert found.place == pytest.approx(best[:, 0]) and found.value == pytest.approx([-1.0] * 3)
    assert found.edge.tolist() == [0] * 3
    found = lowest(grid, np.stack([grid, -grid, np.full(5, 2.0), [np.inf, 1.0, 2.0, 3.0, 4.0]]))
    assert found.edge.tolist() == [-1, 1, -1, 0] and found.place.tolist() == [0.0, 4.0, 0.0, 1.0]
    assert found.value.tolist() == [0.0, -4.0, 2.0, 1.0]
