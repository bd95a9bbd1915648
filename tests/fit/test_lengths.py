"""Losses after equally many tokens: read between a run's own, left out, or refused."""

from __future__ import annotations

import math
from itertools import product

import pytest

from dwsweep import fit_table
from dwsweep.errors import InputError
from dwsweep.fit.along import fit_along
from dwsweep.fit.analysis import fit_options
from dwsweep.fit.arms import compare_arms
from dwsweep.fit.data.lengths import at_equal_length
from dwsweep.fit.data.table import read_table

DEPTHS, WIDTHS_AT_SIX = (6, 9, 12, 18, 24), (160, 240, 340, 480, 680, 960)
OF_TWO = 2 * len(WIDTHS_AT_SIX)  # shapes of two depths, which have no surface


def out(result):
    return {one.why: one.rows for one in result.provenance.account.left_out}


def loss(depth, n, tokens):
    """A valley over depth at 12 layers; a slope of 8 % of the loss per unit of ln tokens."""
    level = 1.5 + 3.0 * (n / 1e7) ** -0.08 + 0.2 * math.log(depth / 12.0) ** 2
    return level * (tokens / (20.0 * n)) ** -0.08


def rows(tokens, shapes=len(DEPTHS) * len(WIDTHS_AT_SIX)):
    """One run for each shape, after tokens(depth, N)."""
    found = []
    for depth, wide in list(product(DEPTHS, WIDTHS_AT_SIX))[:shapes]:
        width = round(wide * math.sqrt(6 / depth) / 4) * 4
        n = 12.0 * depth * width**2
        after = tokens(depth, n)
        row = {"depth": depth, "width": width, "loss": loss(depth, n, after), "tokens": after}
        found.append(row | {"flops": 6.0 * n * after, "device_seconds": n * after / 1e15})
    return found


def curves(*counts):
    return [row for count in counts for row in rows(lambda depth, n, count=count: count, OF_TWO)]


@pytest.mark.parametrize("tokens", [3e9, 4e9])  # between two counts, and at one
def test_a_loss_between_two_of_the_same_run_is_read_between_them_with_its_flops_and_time(tokens):
    for row in at_equal_length(read_table(curves(2e9, 4e9, 8e9)), fit_options(at_tokens=tokens)).rows:
        n = 12.0 * row["depth"] * row["width"] ** 2
        assert row["loss"] == pytest.approx(loss(row["depth"], n, tokens), abs=2e-3)
        assert (row["tokens"], row["flops"]) == pytest.approx((tokens, 6.0 * n * tokens))
        assert row["device_seconds"] == pytest.approx(n * tokens / 1e15)


def test_two_recipes_of_one_shape_are_no_points_of_one_run():
    few, many = ([{**row, "batch_size": batch} for row in curves(count)] for batch, count in ((64, 2e9), (512, 8e9)))
    with pytest.raises(InputError, match=r"at_tokens: 4e.*no run has a loss near it, or on either side"):
        at_equal_length(read_table(few + many), fit_options(at_tokens=4e9))


@pytest.mark.parametrize("blank", [None, 0, -5, math.inf, math.nan])
def test_a_loss_after_nobody_knows_how_many_tokens_is_left_out_and_counted(blank):
    table = curves(2e9)
    for row in table[::3]:
        row["tokens"] = blank
    found = fit_table(table, noise=0.001, at_tokens=2e9)
    assert len(found.cells) == 8 and "4 have no count of tokens" in found.provenance.account.sentence


def test_two_runs_of_one_shape_and_count_stay_two_and_identical_rows_are_one():
    table = curves(2e9)
    again = [{**row, "loss": row["loss"] + 1e-6} for row in table]
    for second, n in ((again, 2), (table, 1)):
        assert {cell.n for cell in fit_table([*table, *second], at_tokens=2e9).cells} == {n}


NOT_REACHED = "no run has a loss near it, or on either side of it; allowed, as a list of rows has tokens: from 2B to 2B"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"at_tokens": 1e15}, f"at_tokens: 1e+15; {NOT_REACHED}"),
        ({"at_tokens": 1e-320}, f"at_tokens: 9.99989e-321; {NOT_REACHED}"),
        ({"tokens_per_param": -1.0}, "tokens_per_param: -1; allowed: a number above zero"),
        ({"tokens_per_param": 20.0, "at_tokens": 1e9}, "at_tokens, tokens_per_param: both given; allowed: one of them"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(options, line):
    with pytest.raises(InputError) as refused:
        fit_table(rows(lambda depth, n: 2e9), **options)
    assert str(refused.value) == line


def test_comparisons_and_columns_take_the_same_tokens():
    table = curves(2e9, 4e9)
    other = [{**row, "loss": row["loss"] + 0.01} for row in table]
    for found in (
        compare_arms(table, [other], noise=0.001, at_tokens=3e9),
        fit_along(table, "depth", noise=0.001, at_tokens=3e9),
    ):
        assert found.provenance.options.at_tokens == 3e9
        assert "12 are other points of a run's curve" in found.provenance.account.sentence


def test_runs_that_do_not_reach_the_tokens_are_left_out_and_counted():
    """Losses are not moved by published laws: their slope is not the table's."""
    table = rows(lambda depth, n: 20.0 * n * (1.5 if depth == 24 else 1.0))
    found = fit_table(table, noise=0.001, tokens_per_param=20.0)
    assert {cell.depth for cell in found.cells} == set(DEPTHS) - {24}
    assert "6 have no loss after as many tokens" in found.provenance.account.sentence
