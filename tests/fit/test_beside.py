"""Two sweeps side by side: ``fit_table(..., beside=...)`` and ``fit --with``."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from sentences import says
from shown import summary

import dwsweep
from dwsweep import published_law
from dwsweep.errors import InputError
from dwsweep.fit.answers.transitions import size_ratio
from dwsweep.interval import Interval
from dwsweep.records import fit as fit_record
from dwsweep.records.transitions import Transition, verdicts
from dwsweep.report import page as sweep_page
from tests.simulations.sweeps import SmoothTruth, draw

pytestmark = pytest.mark.usefixtures("surfaces_again")

FACTOR = 3.0
HERE = SmoothTruth((6, 12, 18))
# every transition at three times the size: the widths of the law √3 times larger
THERE = replace(HERE, theta=(published_law.A - math.log(FACTOR) / 2, published_law.B))


def table(truth, seed):
    return draw(truth, np.random.default_rng(seed), budgets=np.geomspace(2.0e5, 6.0e8, 9))


@pytest.fixture(scope="module")
def both():
    return dwsweep.fit_table(table(HERE, 0), beside=[table(THERE, 1)])


def test_the_ratio_of_two_sizes_and_its_interval():
    """Symmetric intervals in ln N add as normal errors do; lopsided ones by the ends that face each other."""

    def of(one, other):
        blank = dict.fromkeys(Transition.keys())
        names = ("n_params", "n_params_low", "n_params_high")
        return size_ratio(*(Transition(**{**blank, **dict(zip(names, ends, strict=True))}) for ends in (one, other)))

    twice = of((1e8, 1e8 / 2, 2e8), (5e7, 5e7 / 2, 1e8))
    assert twice.value == pytest.approx(2)
    assert (
        math.log(twice.high / 2) == pytest.approx(math.sqrt(2) * math.log(2)) == pytest.approx(math.log(2 / twice.low))
    )
    same = of((1e8, 1e7, 1e8), (1e8, 1e8, 1e8))
    assert (same.value, same.low, same.high) == pytest.approx((1, 0.1, 1))
    assert of((1e8, None, 2e8), (1e8, 5e7, 2e8)).low is None
    assert of((None, 1e7, None), (1e8, 5e7, 2e8)) == Interval()


def test_the_factor_between_two_truths_is_found_and_nothing_of_another_table_enters_the_fit(both):
    alone = dwsweep.fit_table(table(HERE, 0)).to_dict()
    assert alone.pop("others") == []
    assert {k: v for k, v in both.to_dict().items() if k != "others"} == alone
    (other,), there = both.others, dwsweep.fit_table(table(THERE, 1))
    assert [(row.pair, row.status) for row in other.transitions] == [(row.pair, row.status) for row in there.verdicts]
    found = [size_ratio(pair, other.crossing(pair)) for pair in verdicts(both.transitions)]
    assert len(found) == 2 and all(FACTOR in one and one.high < 2 * one.low for one in found)


def test_the_summary_the_record_and_the_page_name_both_and_how_far_apart_they_are(both, tmp_path):
    text = summary(both)
    (line,) = [line for line in text.splitlines() if line.lstrip().startswith("6→12") and "(" in line]
    ratio = size_ratio(verdicts(both.transitions)[0], both.others[0].transitions[0])
    assert f"{ratio.value:.2f}" in line and f"{ratio.low:.2f} … {ratio.high:.2f}" in line
    fit_record.write(both, tmp_path)
    assert f"Beside {both.others[0].name}" in sweep_page.write(tmp_path).read_text("utf-8")
    apart = dwsweep.fit_table(table(HERE, 0), beside=[table(SmoothTruth((24, 30)), 1)])
    assert says(summary(apart), "fit: no two depths both have")


def test_a_table_that_cannot_be_read_is_refused_in_a_line(both, tmp_path):
    with pytest.raises(InputError, match=r"^beside: .*nowhere.csv; no such file"):
        dwsweep.fit_table(table(HERE, 0), beside=[tmp_path / "nowhere.csv"])
    with pytest.raises(InputError, match=r"beside: a list of rows holds 2 arms .a, b.; give a table of one"):
        dwsweep.fit_table(table(HERE, 0), beside=[[{**row, "arm": arm} for arm in "ab" for row in table(THERE, 1)]])
    earlier = both.to_dict()
    del earlier["others"]  # of a fit.json that an earlier version wrote
    (tmp_path / "fit.json").write_text(json.dumps(earlier))
    assert fit_record.read(tmp_path).others == []
