"""Intervals with open ends: what they hold and how they read."""

import math
from dataclasses import dataclass, fields
from itertools import product

import pytest

from dwsweep.interval import Interval, IntervalOf


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(2.0, None, 3.0), "2.0 (< 3.0)"),
        (Interval(None, 1.0, None), "> 1.0"),
        (Interval(2.0), "2.0 (unbounded)"),
        (Interval(), "not reached"),
        (Interval(23.44, 20.11, 26.5, error=0.5), "23.4 (20.1 … 26.5)"),  # less than a tenth of the width
        (Interval(23.44, 20.11, 26.5, error=2.0), "23 (20 … 26)"),
        (Interval(5.04, 4.58, 5.41, error=2.0), "5.0 (4.6 … 5.4)"),  # by the whole error 5 (5 … 5)
        (Interval(8.04, None, 12.5, error=1.0), "8 (< 12)"),
        (Interval(23.0, 1.3, 90.0, error=30.0), "20 (1 … 90)"),  # the first digit stays
        (Interval(0.45, 0.31, 3.0, error=0.5), "0.5 (0.3 … 3)"),  # a law's slope was printed as 0
    ],
)
def test_an_interval_reads_as_what_it_holds_to_the_digits_that_its_error_leaves(interval: Interval, text: str) -> None:
    assert interval.format(".1f") == text


def test_an_open_end_holds_everything_beyond_it() -> None:
    assert 1e9 in Interval(2.0, 1.0, None) and 0.5 not in Interval(2.0, 1.0, None)
    assert 0.5 in Interval() and not Interval().bounded and not Interval(2.0, None, 3.0).bounded


def test_which_side_of_zero_it_lies_on() -> None:
    for interval, sign in ((Interval(2.0, 1.0), 1), (Interval(2.0, None, 3.0), 0), (Interval(2.0, 0.0, 3.0), 0)):
        assert interval.sign == sign and interval.map(lambda x: -x, falling=True).sign == -sign


@dataclass
class Row:
    width: float | None
    width_low: float | None
    width_high: float | None
    width_interval = IntervalOf()


def test_a_row_of_a_table_and_back() -> None:
    row = Row(width=2.0, width_low=None, width_high=3.0)
    assert row.width_interval == Interval(2.0, None, 3.0)
    assert row.width_interval.columns("width") == vars(row)
    assert [field.name for field in fields(row)] == ["width", "width_low", "width_high"]
    assert Interval(2.0, None, 3.0).map(lambda x: 10 * x) == Interval(20.0, None, 30.0)


def test_rounding_moves_no_end_by_more_than_a_quarter_of_its_interval() -> None:
    for width, error in product((0.73, 1.4, 9.9), (0.11, 0.5, 3.0)):
        found = Interval(None, 20.0, 20.0 + width, error=error * width)
        assert abs(found.known.high - found.high) <= width / 4.0 + 1e-9


def test_an_error_keeps_its_share_of_the_interval_under_any_scale() -> None:
    ln = Interval(2.0, 1.0, 3.0, error=0.3)
    assert ln.map(math.exp).share == pytest.approx(0.15) and ln.map(lambda x: -x, falling=True).share == pytest.approx(
        0.15
    )
    assert ln.map(math.exp).map(math.log).error == pytest.approx(0.3)
