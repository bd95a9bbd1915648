"""The lowest point of a parabola through three points, on any grid, at an end and beside what is not allowed."""

from __future__ import annotations

import numpy as np
import pytest

from dwsweep.fit.parabola import lowest

GRID = np.array([0.0, 1.0, 1.5, 3.0, 4.0])


@pytest.mark.parametrize("best", [0.8, 1.4, 2.6])
def test_the_lowest_point_of_a_parabola_is_found_on_an_uneven_grid(best: float) -> None:
    found = lowest(GRID, np.stack([(GRID - best) ** 2 + 7.0, 3.0 * (GRID - best) ** 2 - 1.0]))
    assert found.place == pytest.approx([best, best]) and found.value == pytest.approx([7.0, -1.0])
    assert found.edge.tolist() == [0, 0]


def test_an_end_is_an_end_and_a_flat_row_has_no_vertex_of_its_own() -> None:
    found = lowest(GRID, np.stack([GRID, -GRID, np.full(5, 2.0)]))
    assert found.edge.tolist() == [-1, 1, -1]
    assert found.place.tolist() == [0.0, 4.0, 0.0] and found.value.tolist() == [0.0, -4.0, 2.0]


def test_a_point_beside_one_that_is_not_allowed_stays_where_it_is() -> None:
    found = lowest(GRID, np.array([np.inf, 1.0, 2.0, 3.0, 4.0]))
    assert (float(found.place), float(found.value), int(found.edge)) == (1.0, 1.0, 0)
