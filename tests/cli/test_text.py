"""Counts as people write them, read."""

from __future__ import annotations

import pytest

from dwsweep.errors import InputError
from dwsweep.text import parse_count


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1.3e9", 1.3e9), ("60k", 6e4), ("125M", 1.25e8), ("3B", 3e9), ("3 b", 3e9), ("2G", 2e9), ("1T", 1e12)),
        *(("1_000", 1e3), (".5M", 5e5), ("1e3k", 1e6)),
    ],
)
def test_counts_are_read(text: str, value: float) -> None:
    assert parse_count(text) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["", " ", "3Q", "3BB", "B", "-3", "0", "nan", "inf", "1e400", "1..5", "1__0", "0x10", "²", "٣", "\u212a"]
)
def test_what_is_no_count_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"must be a positive number, such as 1\.3e9, 60k, 125M, 3B or 1T") as refused:
        parse_count(text)
    assert len(refused.value.lines) == 1
