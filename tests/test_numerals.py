"""Numbers as people write them: one reading in tables, specs, ``--set`` and options."""

from __future__ import annotations

import math

import pytest

from dwsweep.errors import InputError
from dwsweep.numerals import number, shows
from dwsweep.spec.reading import parse_spec
from dwsweep.text import parse_count

READ = {
    **{"1.63M": 1_630_000, "2B": 2 * 10**9, "2.1 b": 2_100_000_000, "1T": 10**12, "0.3M": 300_000, "1_000": 1000},
    **{"1,234,567": 1234567, "1,234.5": 1234.5, "1 234 567": 1234567, "1'234'567": 1234567, "1\u202f234": 1234},
    **{"1e6": 1e6, "1.2×10^21": 12 * 10**20, "3*10**6": 3 * 10**6, "−3.5": -3.5, "+2": 2, " 12 ": 12, "12.": 12.0},
}
COMMAS = {"3,21": 3.21, "1.234.567": 1234567, "1.234,5": 1234.5, "1,63M": 1630000, "3,21e-3": 0.00321}
NONE = (
    *("", "x", "3Q", "3BB", "1,23", "1,23,456", "1,2345", "1__0", "_1", "1_", "1..5", "0x10", "٣", "5 %", "nan"),
    *("inf", "L6", "6L", "1-2", "1 2", "9" * 5000, "1.5.2", "--1", "1e", "e5", "1,234,56"),
)
MARKS = {
    "comma": ("3,21", "0,125", "1234,567", "1.234,5", "1.234.567", "1,63M"),
    "point": ("3.21", "0.125", "1234.567", "1,234.5", "1,234,567", "1.63M"),
    "either": ("3,210", "3.210", "-1,234"),
    None: ("12", "x", "1e6", "1.2.3", ""),
}


def test_numerals_are_read_and_nothing_else():
    for text, value in READ.items():
        assert number(text) == value and isinstance(number(text), int) == isinstance(value, int), text
    assert [text for text in NONE if number(text) is not None] == []
    assert [text for text, value in COMMAS.items() if number(text, "comma") != value] == []


def test_the_form_of_a_numeral_shows_its_decimal_mark():
    for mark, texts in MARKS.items():
        assert {shows(text) for text in texts} == {mark}


def test_a_spec_and_its_overrides_read_the_same_numerals():
    content = {
        "name": "x",
        "grid": {"depths": ["1", 2], "budgets": ["30k", "1.63M", "1,234,567", 2e6]},
        "train": {"tokens": "2.1B"},
    }
    spec = parse_spec(content, ["train.seq_len=1k", "grid.learning_rates=[1e-3, '2e-3']", "data.vocab_size=2,000"])
    assert spec.grid.budgets == [30_000, 1_630_000, 1_234_567, 2_000_000] and spec.train.tokens == 2.1e9
    assert spec.train.seq_len == 1000 and spec.grid.learning_rates == [1e-3, 2e-3] and spec.data.vocab_size == 2000
    assert parse_spec(content, ["grid.budgets={from: 30k, to: 3M, count: 2}"]).grid.budget_values()[0] == 30_000
    assert parse_spec({**content, "name": "125M"}).name == "125M"  # a text stays one
    with pytest.raises(InputError, match=r"train\.tokens: '2\.1Q'; must be a valid number"):
        parse_spec(content, ["train.tokens=2.1Q"])


def test_an_option_reads_the_same_numerals():
    assert parse_count("1,234,567") == 1_234_567 and math.isclose(parse_count("1.63M"), 1.63e6)
    for text in ("", "3Q", "-3", "0", "nan", "1e400", "²"):
        with pytest.raises(InputError, match=r"must be a positive number, such as 1\.3e9, 60k, 125M, 3B or 1T"):
            parse_count(text)
