"""Intervals with open ends: what they hold and how they read."""

from dataclasses import dataclass, fields

import pytest

from dwsweep.interval import Interval, IntervalOf


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
    assert Interval.around(2.0, float("inf")) == Interval(2.0)
    assert Interval(2.0, None, 3.0).map(lambda x: 10 * x) == Interval(20.0, None, 30.0)


def test_an_interval_of_columns_that_a_record_lacks_is_refused_where_it_is_declared() -> None:
    with pytest.raises((TypeError, RuntimeError)) as refused:  # Python 3.11 wraps what __set_name__ raises

        class _Row(Row):
            depth_interval = IntervalOf()

    cause = refused.value.__cause__ or refused.value
    assert str(cause) == "_Row.depth_interval: no column depth, depth_low, depth_high"
