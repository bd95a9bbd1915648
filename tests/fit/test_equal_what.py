"""Equal what: one heap answers at equal size, tokens per parameter, FLOPs and time, and its outputs agree."""

from __future__ import annotations

import html
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import report_sweeps
from claims import table_of
from coarse import coarse
from sentences import says

import dwsweep
from dwsweep.fit.data.rows import Row
from dwsweep.records import fit as fit_record
from dwsweep.records.answers import AnswerRow
from dwsweep.report import page as sweep_page
from dwsweep.report.adjusted_report import EQUAL, budget
from dwsweep.text import format_count

DRAWS = 200
DEPTHS = (4, 6, 8, 12, 16, 24, 32)
CONTEXT, VOCABULARY = 512, 2000
TITLE = "Best depth at equal size"


def best(n: float) -> float:
    return 14.0 * (n / 3e7) ** 0.25


def loss(n: float, depth: float, tokens: float) -> float:
    t = math.log(tokens / 1e9)
    return 1.8 + 1.9 * (n / 3e7) ** -0.14 + 0.06 * math.log(depth / best(n)) ** 2 - 0.27 * t + 0.04 * t * t


def seconds(n: float, depth: float, tokens: float) -> float:
    return tokens * 6.0 * n / 2e13 * (1.0 + 0.05 * depth)


def piled(runs: int = 90, one_count: bool = False, budget: float | None = None) -> list[Row]:
    rng, rows = np.random.default_rng(3), []
    for k in range(runs):
        depth, n = DEPTHS[k % len(DEPTHS)], 4e6 * 40 ** rng.random()
        width = 16 * max(2, round(math.sqrt(n / 12 / depth) / 16))
        n = 12 * depth * width**2
        tokens = 1e9 if one_count else float(f"{1e9 * math.exp(rng.uniform(-1.8, 1.8)):.3g}")
        if budget:
            tokens = float(f"{budget / seconds(n, depth, 1.0):.4g}")
        batch = int(rng.choice([64, 128, 128, 256]))
        row = {"depth": depth, "width": width, "tokens": tokens, "batch_size": batch, "seq_len": CONTEXT}
        row["n_params_total"] = n + VOCABULARY * width
        row["wall_seconds"] = round(seconds(n, depth, tokens) * math.exp(rng.normal(0.0, 0.01 if budget else 0.05)), 1)
        rows.append({**row, "loss": loss(n, depth, tokens) + rng.normal(0.0, 0.002)})
    return rows


@cache
def fitted() -> Any:
    return dwsweep.fit_table(piled(), draws=DRAWS)


def lines(result: Any, equal: str) -> list[AnswerRow]:
    return [row for row in result.adjusted.equal if row.equal == equal]


def truth(x: np.ndarray, tokens: Any) -> tuple[float, float]:
    """(n, depth) of the least loss over sizes e^x where a net sees ``tokens(n, depth)``."""
    depths = np.geomspace(3.0, 40.0, 200)
    found = [(loss(math.exp(a), d, tokens(math.exp(a), d)), math.exp(a), d) for a in x for d in depths]
    return min(found)[1:]


def holds(row: AnswerRow, expected: float, most: float) -> None:
    depth = row.depth_interval
    assert depth.bounded and depth.low * 0.97 < expected < depth.high * 1.03, (row, expected)  # type: ignore[operator]
    assert depth.high / depth.low < most, row  # type: ignore[operator]


def test_a_heap_answers_every_kind_of_equality() -> None:
    equal = ["n_params", "n_params_total", "tokens_per_param", "n_params and flops", "flops"]
    equal += ["n_params and wall_time", "wall_time"]
    assert list(dict.fromkeys(row.equal for row in fitted().adjusted.equal)) == equal
    for row in fitted().adjusted.equal:
        assert (row.known_from != "") == (row.equal not in ("n_params", "tokens_per_param"))


def test_at_equal_size_it_is_the_best_depth_of_the_fit() -> None:
    for row in lines(fitted(), "n_params"):
        holds(row, best(row.n_params), 1.7)
        assert row.cost is None


def test_at_equal_time_and_size_shallower_nets_are_best_and_by_how_much() -> None:
    """0.12·ln(L/L*) = slope·d ln(seconds)/d ln L: the slope of the loss in ln tokens times what a layer costs."""
    for size, row in zip(lines(fitted(), "n_params"), lines(fitted(), "n_params and wall_time"), strict=True):
        n = row.n_params or 0.0
        held = row.cost / seconds(n, size.depth or 0.0, 1.0)
        assert held == pytest.approx(size.tokens, rel=0.1)
        expected = truth(np.array([math.log(n)]), lambda a, d, spent=row.cost: spent / seconds(a, d, 1.0))[1]
        holds(row, expected, 2.0)
        assert row.depth and size.depth and row.depth < size.depth


@pytest.mark.parametrize(
    ("equal", "cost"),
    [
        ("wall_time", lambda n, d: seconds(n, d, 1.0)),
        ("flops", lambda n, d: 6.0 * n + 12.0 * CONTEXT * math.sqrt(n * d / 12.0)),
    ],
)
def test_at_equal_cost_each_depth_has_its_best_size(equal: str, cost: Any) -> None:
    found = [row for row in lines(fitted(), equal) if row.depth and row.n_params]
    assert found
    for row in found:
        n, depth = truth(np.linspace(math.log(4e6), math.log(1.6e8), 120), lambda a, d, c=row.cost: c / cost(a, d))
        holds(row, depth, 2.5)
        size = row.n_params_interval
        assert (size.low or 0.0) * 0.95 < n < (size.high or math.inf) * 1.05
        assert row.tokens == pytest.approx(row.cost / cost(row.n_params, row.depth), rel=0.1)


def test_at_equal_total_size_deeper_nets_are_best_since_their_tables_are_smaller() -> None:
    for size, row in zip(lines(fitted(), "n_params"), lines(fitted(), "n_params_total"), strict=True):
        width = math.sqrt(size.n_params / 12.0 / (size.depth or 1.0))
        assert row.cost == pytest.approx(size.n_params + VOCABULARY * width, rel=0.02)
        assert row.depth is None or size.depth is None or row.depth >= 0.99 * size.depth


@pytest.mark.slow
def test_few_points_and_draws_give_the_answers_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """On which the quick tier computes every heap: numbers move by a fifth of their interval."""
    every = fitted().adjusted.equal
    coarse(monkeypatch)
    few = dwsweep.fit_table(piled(), draws=DRAWS).adjusted.equal
    assert [row.equal for row in few] == [row.equal for row in every]
    for one, other in zip(every, few, strict=True):
        assert (other.cost or 0.0) == pytest.approx(one.cost or 0.0, rel=0.02)
        wide = math.log((one.depth_high or 2.0 * (one.depth_low or 1.0)) / (one.depth_low or 1.0))
        for name in ("depth", "depth_low", "depth_high"):
            a, b = getattr(one, name), getattr(other, name)
            assert a is None or b is None or abs(math.log(a / b)) < 0.2 * wide, (one, other)


def test_runs_of_one_count_of_tokens_answer_at_no_equal_cost() -> None:
    result = dwsweep.fit_table(piled(48, one_count=True), draws=DRAWS)
    assert {row.equal for row in result.adjusted.equal} <= {"n_params", "n_params_total"}


def test_runs_of_one_budget_of_time_are_compared_at_it_and_that_is_said() -> None:
    result = dwsweep.fit_table(piled(budget=3600.0), draws=DRAWS)
    assert {row.equal for row in result.adjusted.equal} == {"n_params and wall_time"}
    assert [(row.equal, round(row.cost, -2)) for row in result.adjusted.at_budgets] == [("wall_time", 3600)]
    assert says(result.adjusted.sentences, "fit: equal wall time")
    assert "tokens" not in {one.name for one in result.adjusted.columns}
    for row in lines(result, "n_params and wall_time"):
        n = row.n_params or 0.0
        holds(row, truth(np.array([math.log(n)]), lambda a, d: 3600.0 / seconds(a, d, 1.0))[1], 2.5)


def test_two_budgets_tell_what_tokens_do_and_all_runs_count() -> None:
    rows = [{**row, "device_seconds": row["wall_seconds"]} for of in (600.0, 3600.0) for row in piled(30, budget=of)]
    result = dwsweep.fit_table(rows, draws=DRAWS)
    assert result.provenance.rows_used == 60 and "tokens" in {one.name for one in result.adjusted.columns}
    for row in lines(result, "n_params"):
        holds(row, best(row.n_params), 2.5)
    for row in lines(result, "n_params and wall_time"):
        n = row.n_params or 0.0
        holds(row, truth(np.array([math.log(n)]), lambda a, d, c=row.cost: c / seconds(a, d, 1.0))[1], 2.5)


def test_every_output_says_one_thing_of_equal_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_sweeps.without_answers(monkeypatch)
    rows = fitted().adjusted.equal
    fit_record.write(fitted(), tmp_path)
    assert fit_record.read(tmp_path).adjusted.equal == rows  # type: ignore[union-attr]
    sweep_page.write(tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    body = page[page.index(TITLE) :].partition("</table>")[0].partition("<tbody>")[2]
    on_page = [re.split(r"(?:<[^>]*>\s*)+", html.unescape(row)) for row in body.split("</tr>")]
    for table in (table_of(fitted().summary(), TITLE), on_page):
        assert len(table) >= len(rows)
        for row, cells in zip(rows, table, strict=False):
            depth = row.depth_interval
            value = "–" if depth.value is None else f"{depth.value:.1f}"
            ends = "unbounded" if depth.unbounded else depth.ends(".1f")
            assert "".join(cells).startswith(f"{EQUAL[row.equal]}{budget(row)}{value}{ends}"), (row, cells)
            if row.n_params:
                assert format_count(row.n_params) in cells
