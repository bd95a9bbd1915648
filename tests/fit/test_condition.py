"""Conditions on rows: both names of a column, names that are no words, counts, quoted numerals; dropped columns."""

from __future__ import annotations

import shlex

import pytest

from dwsweep.errors import InputError
from dwsweep.fit.along import fit_along
from dwsweep.fit.data.condition import compile_expression, equals, option
from dwsweep.fit.data.table import read_table

ROWS = [
    {"n_layer": 6, "d_model": 64, "val loss": 3.5, "trainer/global_step": 100, "lr": 1e-3, "size": "125M", "class": 1},
    {"n_layer": 12, "d_model": 48, "val loss": 3.0, "trainer/global_step": 200, "lr": 2e-3, "size": "1.3B", "class": 2},
]


@pytest.mark.parametrize(
    "expression",
    [
        *("depth == 6", "n_layer == 6", "learning_rate < 2e-3", "lr < 2e-3", "loss > 3.2", "width == 64"),
        *("`val loss` > 3.2", "val loss > 3.2", "trainer/global_step == 100", "`trainer/global_step` + 1 == 101"),
        *("`class` == 1", "size == '125M'", "size in ['125M', '350M']", "size != '1.3B'", "size not in ['1.3B']"),
        *("size == 125M", "size < 1.3B", "size < 2_000M and n_layer < 7", "'125M' == size"),
    ],
)
def test_a_condition_takes_both_names_of_a_column(expression):
    assert [row["depth"] for row in read_table(ROWS, where=expression).rows] == [6]


def test_a_quotient_of_two_columns_stays_one():
    rows = [{"depth": 6, "width": 64, "loss": 3.0, "a": 4, "b": 2}]
    assert len(read_table(rows, where="a/b == 2").rows) == 1
    assert len(read_table(rows, where="'a/b' != a").rows) == 1  # a text


@pytest.mark.parametrize("expression", ["`no such` == 1", "trainer/step == 1", "`val loss == 1", "_column_0_ == 1"])
def test_an_unknown_name_is_refused(expression):
    with pytest.raises(InputError, match=r"^where: "):
        read_table(ROWS, where=expression)


@pytest.mark.parametrize("expression", ["depth=6", "depth >= 4 and loss = 3", "name == 'a=b' and depth=6"])
def test_one_equals_sign_is_told_how_equality_is_written(expression):
    with pytest.raises(InputError, match="equality is written =="):
        read_table(ROWS, where=expression)


@pytest.mark.parametrize("expression", ["depth >= ", "name == 'a=b' and", "depth != "])
def test_another_fault_of_syntax_is_told_what_is_allowed(expression):
    with pytest.raises(InputError, match="not an expression"):
        read_table(ROWS, where=expression)


@pytest.mark.parametrize("name", ["heads", "val loss", "trainer/global_step", "class", "3", "it's"])
def test_a_hint_holds_in_a_shell_and_is_read_again(name):
    for value in (1, "softmax", 'a "b" $HOME'):
        given = option(equals(name, value))
        words = shlex.split(given)
        assert len(words) == 2 and words[0] == "--where"
        assert compile_expression(words[1], (name,))({name: value})
        if set(given) & set("`$"):
            assert given.startswith("--where '")  # nothing for the shell to run


def test_along_takes_the_tables_own_name_of_a_column():
    rows = [
        {"depth": d, "width": w, "n_head": h, "loss": 3 - w / 1000 + h / 100}
        for d in (2, 4)
        for w in (64, 96, 128)
        for h in (1, 2, 4)
    ]
    assert fit_along(rows, "n_head", draws=100).along.column == "heads"


def test_a_dropped_column_is_as_if_it_were_not_there():
    rows = [{"depth": 6, "width": 64, "val_loss": 4.0, "test_loss": 3.0, "n_head": 2}]
    assert read_table(rows).rows == [{"depth": 6, "width": 64, "loss": 4.0, "test_loss": 3.0, "heads": 2}]
    for drop in (["val_loss", "heads"], ["val_loss", "n_head"]):
        assert read_table(rows, drop=drop).rows == [{"depth": 6, "width": 64, "loss": 3.0}]
    assert "heads" not in read_table(rows, drop="heads").columns
    with pytest.raises(InputError, match=r"drop: 'nhead'; not in the table, did you mean 'n_head'\?") as refused:
        read_table(rows, drop=["nhead"])
    assert refused.value.option_lines[0].startswith("--drop: ")


@pytest.mark.parametrize(
    ("expression", "kept"), [("note != 'x'", 1), ("note == None", 1), ("lr > 0", 1), ("not lr > 0", 1)]
)
def test_a_blank_is_no_number_and_differs_from_every_text(expression, kept):
    rows = [{**ROWS[0], "note": "x"}, {**ROWS[1], "note": None, "lr": None}]
    assert len(read_table(rows, where=expression).rows) == kept


def test_a_comparison_with_a_blank_or_a_text_is_false():
    row = {"a": None, "b": "x", "c": 2}
    for expression, expected in (
        ('-("b") == b', False),
        ("-b == b", False),
        ("-[c] == c", False),
        ("a > 1", False),
        ("b > 1", False),
        ("a == None", True),
        ("not c == 3", True),
    ):
        assert compile_expression(expression, tuple(row))(row) is expected
