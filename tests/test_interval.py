"""Intervals with open ends: what they hold and how they read."""

from types import SimpleNamespace

import pytest

from dwsweep.interval import Interval


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(2.0, 1.0, 3.0), "2 (1 … 3)"),
        (Interval(2.0, None, 3.0), "2 (< 3)"),
        (Interval(None, 1.0, None), "> 1"),
        (Interval(2.0), "2 (unbounded)"),
        (Interval(), "not reached"),
    ],
)
def test_an_interval_reads_as_what_it_holds(interval: Interval, text: str) -> None:
    assert interval.format("{:g}".format) == text


def test_an_open_end_holds_everything_beyond_it() -> None:
    assert 1e9 in Interval(2.0, 1.0, None) and 0.5 not in Interval(2.0, 1.0, None)
    assert 0.5 in Interval() and not Interval().bounded


@pytest.mark.parametrize(
    ("interval", "sign"),
    [
        (Interval(2.0, 1.0, 3.0), 1),
        (Interval(None, 1.0, None), 1),
        (Interval(2.0, None, 3.0), 0),
        (Interval(2.0, 0.0, 3.0), 0),
        (Interval(), 0),
    ],
)
def test_which_side_of_zero_it_lies_on(interval: Interval, sign: int) -> None:
    assert interval.sign == sign and (-interval).sign == -sign
    assert (-interval).value == (None if interval.value is None else -interval.value)


def test_a_row_of_a_table_and_back() -> None:
    row = SimpleNamespace(width=2.0, width_low=None, width_high=3.0)
    assert Interval.of(row, "width").columns("width") == vars(row)
    assert Interval.around(2.0, float("inf")) == Interval(2.0)
    assert Interval(2.0, None, 3.0).map(lambda x: 10 * x) == Interval(20.0, None, 30.0)
