"""The lowest point of a parabola on any grid."""

import numpy as np
import pytest

from dwsweep.fit.statistics.parabola import lowest


def test_the_lowest_point_is_a_vertex_an_end_or_a_point_beside_one_that_is_not_allowed():
    grid, best = np.array([0.0, 1.0, 1.5, 3.0, 4.0]), np.array([[0.8], [1.4], [2.6]])
    found = lowest(grid, 3.0 * (grid - best) ** 2 - 1.0)
    assert found.place == pytest.approx(best[:, 0]) and found.value == pytest.approx([-1.0] * 3)
    assert found.edge.tolist() == [0] * 3
    found = lowest(grid, np.stack([grid, -grid, np.full(5, 2.0), [np.inf, 1.0, 2.0, 3.0, 4.0]]))
    assert found.edge.tolist() == [-1, 1, -1, 0] and found.place.tolist() == [0.0, 4.0, 0.0, 1.0]
    assert found.value.tolist() == [0.0, -4.0, 2.0, 1.0]
