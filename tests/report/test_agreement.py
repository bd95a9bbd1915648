"""All outputs of one fit agree: what they say of each pair of depths, and of the best depths, is one thing.

The first row of a pair in transitions.csv is the verdict. Everything else that a reader can see is held against it.
"""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from claims import Claim, best_in_cells, first_rows, in_cells, in_sentence, of_row, table_of

import dwsweep
from dwsweep import interval
from dwsweep.guide import answer, fitted_source
from dwsweep.records import fit as fit_record
from dwsweep.records.record import csv_text
from dwsweep.records.transitions import Transition
from dwsweep.report import fit_report, guide_report
from dwsweep.terminal import plain_text
from dwsweep.text import format_count
from tests.simulations.sweeps import SmoothTruth, draw

pytestmark = pytest.mark.usefixtures("short_guideline", "surfaces_again")

RESULTS = Path(__file__).parents[2] / "sweeps" / "results"
PAIRS, BEST = "Transitions (where", "Best depth at each size"


def losses(truth: SmoothTruth, seed: int, low: float, high: float, sizes: int, **noise: float) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return draw(truth, rng, budgets=lambda depth: np.geomspace(low, high, sizes), **{"seeds": 3, **noise})


def clean() -> list[dict[str, Any]]:
    return losses(SmoothTruth((6, 12, 18, 24)), 0, 1e6, 2e8, 7, sigma=0.001, shape_sd=0.001)


def smoke() -> list[dict[str, Any]]:
    """The shapes and seeds of the smoke sweep, and losses that say about as little."""
    theta = (3.2, 0.45)
    return losses(SmoothTruth((1, 2, 6), theta=theta), 1, 1e4, 1e5, 3, sigma=0.03, shape_sd=0.01)


TABLES: dict[str, Any] = {
    "laptop": lambda: RESULTS / "laptop",
    "laptop-tokens": lambda: RESULTS / "laptop-tokens",
    "clean": clean,
    "smoke": smoke,
}


EACH = [pytest.param(name, marks=pytest.mark.slow if name == "laptop-tokens" else ()) for name in TABLES]


@cache
def fitted(name: str) -> Any:
    return dwsweep.fit_table(TABLES[name]())


def verdicts(result: Any) -> dict[Any, Claim]:
    return {pair: of_row(row) for pair, row in first_rows(csv_text(result.transitions, Transition)).items()}


def agree(expected: dict[Any, Claim], found: dict[Any, Claim], where: str) -> None:
    assert set(found) == set(expected), where
    for pair, claim in found.items():
        assert claim.agrees(expected[pair]), f"{where}: {pair} {claim}, transitions.csv {expected[pair]}"


@pytest.mark.parametrize("name", EACH)
def test_every_text_says_of_a_pair_what_the_first_row_of_its_csv_says(name: str, tmp_path: Path) -> None:
    result = fitted(name)
    expected = verdicts(result)
    assert expected
    fit_record.write(result, tmp_path)
    agree(expected, verdicts(fit_record.read(tmp_path)), "fit.json")
    text, notebook = result.summary(), result._repr_html_()
    agree(expected, in_cells(table_of(text, PAIRS)), "the table")
    agree(expected, in_sentence(text), "the answer")
    agree(expected, in_sentence(notebook), "the notebook")


@pytest.mark.parametrize("name", EACH)
def test_every_output_says_one_thing_of_the_best_depths(name: str) -> None:
    result = fitted(name)
    if result.surface is None:
        assert BEST not in result.summary() and "Too early to ask for a best depth" in result.summary()
        return
    optima = result.surface.optima
    best = [row for row in result.answers if row.question == "best_depth" and row.equal == "n_params"]
    assert [(row.n_params, row.depth, row.depth_low, row.depth_high) for row in best if row.depth] == [
        (row.n_params, row.depth, row.depth_low, row.depth_high) for row in optima if row.depth
    ]
    if not result.surface.bounded:
        return
    shown = best_in_cells(table_of(result.summary(), BEST))
    for row in optima:
        depth = row.depth_interval
        said = shown[format_count(row.n_params)]
        if depth.value is not None:
            ends = "" if depth.unbounded else depth.ends(interval.layers)
            assert said == f"{depth.texts(interval.layers)[0]} {ends}".strip()
    head = " ".join(result.summary().split()).partition(". ")[0]
    for best, low, high, size in re.findall(r"([\d.]+) \(([\d.]+) to ([\d.]+)\) at ([\d.]+[KMB]?)", head):
        assert shown[size] == f"{best} {low} … {high}"


def test_the_default_text_answers_first_ends_with_the_next_command_and_is_half_as_long() -> None:
    result = fitted("clean")
    text, full = plain_text(fit_report.render(result, "my fit")), plain_text(fit_report.render(result))
    assert text.splitlines()[0] == full.splitlines()[0] and text.startswith("The best depth grows with N: ")
    assert re.search(r"Next: `dwsweep guide \S+ --fit 'my fit'`", " ".join(text.split()))
    assert len(text.split()) < 0.5 * len(full.split()) and table_of(text, BEST) == table_of(full, BEST)


def test_a_table_that_is_too_early_to_ask_says_so_first() -> None:
    rows = [{"depth": depth, "width": 64 * k, "loss": 3.0 - 0.1 * k} for depth in (2, 4) for k in (1, 2)]
    text = plain_text(fit_report.render(dwsweep.fit_table(rows), "out"))
    assert text.startswith("Too early to ask for a best depth: 4 shapes of 2 depths and 4 sizes; it takes seven")
    assert "not rejected" not in text and "Next: `dwsweep design --hours" in " ".join(text.split())


def decimals_of(cell: str) -> set[int]:
    """Decimals of each number in a cell."""
    return {len(number.partition(".")[2]) for number in re.findall(r"[\d.]+", cell)}


def test_a_best_depth_has_the_same_digits_in_every_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables had 30 (27 … 35) where the comparison below them, the guideline and guide had 29.6 (27.1 … 35.4)."""
    bounded = [row for row in fitted("clean").surface.optima if row.depth and row.depth_interval.bounded]
    # public evidence moves a width, and one near a power of ten may have another digit then
    bounded = [row for row in bounded if 0.15 < math.log10(row.depth_high - row.depth_low) % 1.0 < 0.85]
    monkeypatch.setattr(interval, "WITHOUT_DIGITS", 0.0)  # every Monte-Carlo error then takes digits, and
    monkeypatch.setattr(interval, "ROUNDED_TO", 0.1)  # those of widths above one layer
    asked = [row.n_params for row in bounded]
    result = dwsweep.fit_table(clean(), params=asked)
    text = plain_text(fit_report.render(result))
    shown = best_in_cells(table_of(text, BEST))
    sizes = [format_count(n) for n in asked]
    assert any("." not in shown[size] for size in sizes)
    own = {format_count(row.n_params): row for row in bounded}
    for row in (row for row in result.guideline if row.name in sizes):
        width = own[row.name].depth_high - own[row.name].depth_low
        assert row.depth == pytest.approx(own[row.name].depth, abs=0.2 * width)
        assert row.depth_high - row.depth_low == pytest.approx(width, rel=0.4)
    rows = {row[0]: row for row in fit_report.guideline(result).rows if row[0] in sizes}
    guided = {size: f"{row[3]} {row[4]}" for size, row in rows.items()}
    assert {size: decimals_of(guided[size]) for size in sizes} == {size: decimals_of(shown[size]) for size in sizes}
    fit_record.write(result, tmp_path)
    source = fitted_source(tmp_path)
    said = " ".join(plain_text(guide_report.render(answer(asked, fit=tmp_path, source=source))).split())
    found = re.findall(r"Best depth (\S+) \(([^)]+)\)", said)
    assert [f"{best} {ends}" for best, ends in found] == [guided[size] for size in sizes]
