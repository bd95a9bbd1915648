"""Two sweeps side by side: ``fit_table(..., beside=...)`` and ``fit --with``."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import report_sweeps
from sentences import says
from shown import summary

import dwsweep
from dwsweep import published_law
from dwsweep.errors import InputError
from dwsweep.fit.transitions import size_ratio
from dwsweep.records import fit as fit_record
from dwsweep.records.transitions import Transition, verdicts
from dwsweep.report import page as sweep_page
from tests.simulations.sweeps import SmoothTruth, draw

pytestmark = pytest.mark.usefixtures("surfaces_again")

DRAWS = 300
HERE = SmoothTruth((6, 12, 18))
# every transition at three times the size: the widths of the law √3 times larger
FACTOR = 3.0
THERE = replace(HERE, theta=(published_law.A - math.log(FACTOR) / 2, published_law.B))


def table(truth: SmoothTruth, seed: int) -> list[dict]:
    return draw(truth, np.random.default_rng(seed), budgets=np.geomspace(2.0e5, 6.0e8, 9))


@pytest.fixture(scope="module")
def both() -> fit_record.FitResult:
    return dwsweep.fit_table(table(HERE, 0), draws=DRAWS, beside=[table(THERE, 1)])


def row(n: float | None, low: float | None, high: float | None) -> Transition:
    blank = dict.fromkeys(Transition.keys())
    return Transition(**{**blank, "n_params": n, "n_params_low": low, "n_params_high": high})


def test_the_ratio_of_two_sizes_and_its_interval() -> None:
    """Symmetric intervals in ln N add as normal errors do; lopsided ones by the ends that face each other."""
    ratio, low, high = size_ratio(row(1e8, 1e8 / 2, 2e8), row(5e7, 5e7 / 2, 1e8))
    assert ratio == pytest.approx(2)
    assert math.log(high / 2) == pytest.approx(math.sqrt(2) * math.log(2)) == pytest.approx(math.log(2 / low))
    ratio, low, high = size_ratio(row(1e8, 1e7, 1e8), row(1e8, 1e8, 1e8))
    assert (ratio, high) == pytest.approx((1, 1)) and low == pytest.approx(0.1)
    assert size_ratio(row(1e8, None, 2e8), row(1e8, 5e7, 2e8))[1] is None
    assert size_ratio(row(None, 1e7, None), row(1e8, 5e7, 2e8)) is None


@pytest.mark.parametrize("pairs", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_the_factor_between_two_truths_is_found(pairs: int) -> None:
    """Pairs of sweeps, two transitions each: nominal 95 %."""
    every = [table(truth, seed) for seed in range(pairs) for truth in (HERE, THERE)]
    others = dwsweep.fit_table(every[0], draws=DRAWS, beside=every).others
    ratios = []
    for own, other in zip(others[::2], others[1::2], strict=True):
        ratios += [size_ratio(pair, other.crossing(pair)) for pair in own.transitions]
    found = [ratio for ratio in ratios if ratio]
    covered = sum((low or 0) <= FACTOR <= (high or math.inf) for _, low, high in found)
    assert len(ratios) == len(found) == 2 * pairs and covered >= 2 * pairs - (pairs > 3)
    assert np.median([ratio for ratio, _, _ in found]) == pytest.approx(FACTOR, rel=0.05)
    assert np.median([high / low for _, low, high in found if low and high]) < 2


def test_nothing_of_another_table_enters_the_fit(both: fit_record.FitResult) -> None:
    alone = dwsweep.fit_table(table(HERE, 0), draws=DRAWS).to_dict()
    assert alone.pop("others") == []
    assert {k: v for k, v in both.to_dict().items() if k != "others"} == alone


def test_the_summary_names_both_and_how_far_apart_they_are(both: fit_record.FitResult) -> None:
    text = summary(both)
    (line,) = [line for line in text.splitlines() if line.lstrip().startswith("6→12") and "(" in line]
    ratio = size_ratio(verdicts(both.transitions)[0], both.others[0].transitions[0])
    assert f"{ratio[0]:.2f}" in line and f"{ratio[1]:.2f} … {ratio[2]:.2f}" in line
    assert max(map(len, text.splitlines())) <= 100
    apart = dwsweep.fit_table(table(HERE, 0), draws=DRAWS, beside=[table(SmoothTruth((24, 30)), 1)])
    assert says(summary(apart), "fit: no two depths both have")


def test_it_is_kept_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_sweeps.without_answers(monkeypatch)
    directory = report_sweeps.sweep(tmp_path / "mine", "one_pair")
    beside = report_sweeps.sweep(tmp_path / "theirs", "one_pair")
    result = dwsweep.fit_table(directory, draws=DRAWS, beside=[beside])
    (directory / "fit" / "fit.json").write_text(result.to_json())
    read = fit_record.read(directory)
    assert read.to_json() == result.to_json() and read.others[0].name == "theirs"
    sweep_page.write(directory)
    page = (directory / "report.html").read_text()
    assert "Beside theirs" in page


def test_a_table_that_cannot_be_read_is_refused_in_a_line(both: fit_record.FitResult, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^beside: .*nowhere.csv; no such file"):
        dwsweep.fit_table(table(HERE, 0), beside=[tmp_path / "nowhere.csv"])
    earlier = both.to_dict()
    del earlier["others"]  # of a fit.json that an earlier version wrote
    (tmp_path / "fit.json").write_text(json.dumps(earlier))
    assert fit_record.read(tmp_path).others == []
