"""Numbers as people write them: one reading in tables, specs, ``--set`` and options."""

from __future__ import annotations

import math

import pytest

from dwsweep.errors import InputError
from dwsweep.numerals import number, shows
from dwsweep.spec.reading import parse_spec
from dwsweep.text import parse_count


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1.63M", 1_630_000), ("2B", 2 * 10**9), ("125k", 125_000), ("2.1 b", 2_100_000_000), ("1T", 10**12)),
        *(
            ("1,234,567", 1234567),
            ("1,234.5", 1234.5),
            ("1 234 567", 1234567),
            ("1'234'567", 1234567),
            ("12,345", 12345),
        ),
        *(("1\u202f234", 1234), ("1_000", 1000), ("1e6", 1e6), ("1.2×10^21", 12 * 10**20), ("3*10**6", 3 * 10**6)),
        *(("−3.5", -3.5), ("+2", 2), (" 12 ", 12), (".5", 0.5), ("12.", 12.0), ("1.2e-3", 0.0012), ("0.3M", 300_000)),
    ],
)
def test_numerals_are_read(text, value):
    found = number(text)
    assert found == value and isinstance(found, int) == isinstance(value, int)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "3Q", "3BB", "1,23", "1,23,456", "1,2345", "1__0", "_1", "1_", "1..5", "0x10", "٣", "5 %", "nan"),
        *("inf", "L6", "6L", "1-2", "1 2", "9" * 5000, "1.5.2", "--1", "1e", "e5", "1,234,56"),
    ],
)
def test_what_is_no_numeral_is_none(text):
    assert number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("3,21", 3.21), ("1.234.567", 1234567), ("1.234,5", 1234.5), ("1,63M", 1630000), ("3,21e-3", 0.00321), ("7", 7)],
)
def test_a_comma_before_the_decimals_is_read_where_it_is_said(text, value):
    assert number(text, "comma") == value


@pytest.mark.parametrize(
    ("mark", "texts"),
    [
        ("comma", ("3,21", "0,125", "1234,567", "1.234,5", "1.234.567", "1,63M")),
        ("point", ("3.21", "0.125", "1234.567", "1,234.5", "1,234,567", "1.63M")),
        ("either", ("3,210", "3.210", "-1,234")),
        (None, ("12", "x", "1e6", "1.2.3", "")),
    ],
)
def test_the_form_of_a_numeral_shows_its_decimal_mark(mark, texts):
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
        with pytest.raises(
            InputError, match=r"must be a positive number, such as 1\.3e9, 60k, 125M, 3B or 1T"
        ) as error:
            parse_count(text)
        assert len(error.value.lines) == 1
