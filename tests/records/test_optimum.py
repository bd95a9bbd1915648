"""Words for a best depth that is not between the depths tried."""

from __future__ import annotations

import pytest

from dwsweep.records.transitions import Optimum


@pytest.mark.parametrize(
    ("at_edge", "fewest", "words"),
    [
        ("below", 1.0, "1, the fewest"),
        ("below", 2.0, "below the depths tried"),
        ("above", 1.0, "above the depths tried"),
        (None, 1.0, "not known"),
    ],
)
def test_where_it_lies_is_said(at_edge: str | None, fewest: float, words: str) -> None:
    found = Optimum(
        ln_x=11.0,
        depth=None,
        depth_low=None,
        depth_high=None,
        loss=5.0,
        at_edge=at_edge,
        depth_min=fewest,
        depth_max=6.0,
    )
    assert found.beyond == words
